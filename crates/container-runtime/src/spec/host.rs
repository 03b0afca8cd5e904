//! Facts about the host (kernel features, limits), read once at the start.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Capability, LinuxDevice};

use super::devices;

#[derive(Clone, Debug)]
pub struct Host {
    pub cgroup: linux::cgroup::Hierarchy,
    /// Names and places of the trees of cgroups, on v1: `memory` at `/sys/fs/cgroup/memory`.
    pub cgroup_mounts: Vec<(String, PathBuf)>,
    pub apparmor: bool,
    /// Profiles that the kernel has loaded.
    pub apparmor_profiles: Vec<String>,
    /// The labels of containers, where SELinux is on and its policy knows containers.
    pub selinux: Option<linux::selinux::Contexts>,
    /// All devices below `/dev`, for privileged containers and for what pods ask for by path.
    pub devices: Vec<LinuxDevice>,
    /// Symbolic links below `/dev` to devices, such as `/dev/disk/by-id/...`.
    pub device_links: BTreeMap<PathBuf, PathBuf>,
    /// What this process may give to others.
    pub capabilities: Vec<Capability>,
    /// The lowest value that this process may write.
    pub oom_score_adj_min: i32,
    /// Swap can be limited.
    pub swap: bool,
    /// Huge pages can be limited.
    pub hugetlb: bool,
    pub hostname: String,
}

impl Host {
    /// What is missing or unreadable counts as not there.
    pub fn detect() -> Host {
        let cgroups = linux::cgroup::Cgroups::detect();
        let capabilities = capabilities(&read("/proc/self/status"));
        let (devices, device_links) = devices::host_devices(Path::new("/dev"));
        let oom_score_adj_min = if capabilities.contains(&Capability::SysResource) {
            -1000
        } else {
            read("/proc/self/oom_score_adj").trim().parse().unwrap_or(0)
        };
        Host {
            cgroup: cgroups.hierarchy,
            cgroup_mounts: cgroups.mounts().to_vec(),
            apparmor: read("/sys/module/apparmor/parameters/enabled").trim() == "Y",
            apparmor_profiles: apparmor_profiles(&read(APPARMOR_PROFILES)),
            selinux: linux::selinux::contexts(),
            devices,
            device_links,
            capabilities,
            oom_score_adj_min,
            swap: cgroups.limits_swap(),
            hugetlb: cgroups.has("hugetlb"),
            hostname: read("/proc/sys/kernel/hostname").trim().to_owned(),
        }
    }

    /// Which devices are there now: disks are attached at any time.
    pub(crate) fn read_devices(&mut self) {
        (self.devices, self.device_links) = devices::host_devices(Path::new("/dev"));
    }

    /// Which profiles are loaded now: administrators load theirs at any time.
    pub(crate) fn read_apparmor_profiles(&mut self) {
        self.apparmor_profiles = apparmor_profiles(&read(APPARMOR_PROFILES));
    }
}

const APPARMOR_PROFILES: &str = "/sys/kernel/security/apparmor/profiles";

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The bounding set in `/proc/self/status` that is also permitted: what a child can be given.
fn capabilities(status: &str) -> Vec<Capability> {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let held = mask("CapBnd:").unwrap_or(0) & mask("CapPrm:").unwrap_or(0);
    NUMBERED.iter().enumerate().filter(|(bit, _)| held >> bit & 1 == 1).map(|(_, capability)| *capability).collect()
}

/// `name (mode)` per line.
fn apparmor_profiles(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.rsplit_once(" (")).map(|(name, _)| name.to_owned()).collect()
}

/// Every capability in the order of the kernel's numbers.
pub(crate) static NUMBERED: &[Capability] = &[
    Capability::Chown,
    Capability::DacOverride,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setpcap,
    Capability::LinuxImmutable,
    Capability::NetBindService,
    Capability::NetBroadcast,
    Capability::NetAdmin,
    Capability::NetRaw,
    Capability::IpcLock,
    Capability::IpcOwner,
    Capability::SysModule,
    Capability::SysRawio,
    Capability::SysChroot,
    Capability::SysPtrace,
    Capability::SysPacct,
    Capability::SysAdmin,
    Capability::SysBoot,
    Capability::SysNice,
    Capability::SysResource,
    Capability::SysTime,
    Capability::SysTtyConfig,
    Capability::Mknod,
    Capability::Lease,
    Capability::AuditWrite,
    Capability::AuditControl,
    Capability::Setfcap,
    Capability::MacOverride,
    Capability::MacAdmin,
    Capability::Syslog,
    Capability::WakeAlarm,
    Capability::BlockSuspend,
    Capability::AuditRead,
    Capability::Perfmon,
    Capability::Bpf,
    Capability::CheckpointRestore,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_bits() {
        let status = "Name:\tx\nCapPrm:\t00000000a80425fb\nCapBnd:\t000001ffffffffff\n";
        let mut found = capabilities(status);
        let mut expected = super::super::capabilities::DEFAULT.to_vec();
        found.sort_by_key(|capability| capability.to_string());
        expected.sort_by_key(|capability| capability.to_string());
        assert_eq!(found, expected);
    }

    #[test]
    fn apparmor_profiles_are_named() {
        let text = "cri-containerd.apparmor.d (enforce)\n/usr/bin/man (my filter) (complain)\n";
        assert_eq!(apparmor_profiles(text), ["cri-containerd.apparmor.d", "/usr/bin/man (my filter)"]);
    }
}
