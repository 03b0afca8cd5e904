//! Looks at the host. Nothing is changed, and nothing is judged here.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use nlink::netlink::nftables::ChainInfo;
use nlink::netlink::{Connection, Nftables};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::rules::CAP_SYS_ADMIN;

/// What is looked at.
#[derive(Clone, Debug, Default)]
pub struct Host {
    pub is_root: bool,
    /// Bits in the order of the kernel's numbers.
    pub capabilities: u64,
    /// What kind of container this is, where it is one.
    pub container: Option<&'static str>,
    /// Of the kernel, as `uname -r` has it.
    pub release: String,
    /// System calls that the kernel, or whoever filters them, does not let us have.
    pub calls_refused: Vec<&'static str>,
    pub has_overlay: bool,
    pub cgroups: Cgroups,
    /// Why the kernel's tables cannot be opened.
    pub nftables_error: Option<io::ErrorKind>,
    pub has_bridge_rules: bool,
    pub firewall: Option<Firewall>,
    pub ranges: Ranges,
    pub etcd: Option<PathBuf>,
    pub disk: Disk,
    pub ports: Vec<Port>,
}

#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    /// Of version 2, the controllers there are; none where this is not its root.
    pub unified: Option<String>,
    /// Of version 1, the folders there are.
    pub mounted: Vec<&'static str>,
    pub is_read_only: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// The nearest folder that exists.
    pub folder: PathBuf,
    /// Whether a cluster was made there before.
    pub is_used: bool,
    pub free: Option<u64>,
    /// Why nothing can be written there.
    pub error: Option<io::ErrorKind>,
}

#[derive(Clone, Debug)]
pub struct Port {
    pub address: SocketAddr,
    pub what: &'static str,
    pub flag: &'static str,
    /// Nothing runs without it.
    pub is_needed: bool,
    pub error: Option<io::ErrorKind>,
}

/// The addresses that the cluster has or is to have.
#[derive(Clone, Debug)]
pub struct Ranges {
    pub pods: String,
    pub services: String,
}

impl Default for Ranges {
    /// Those of a cluster that nobody told otherwise.
    fn default() -> Ranges {
        Ranges { pods: "10.42.0.0/16".to_owned(), services: "10.43.0.0/16".to_owned() }
    }
}

/// Rules of somebody else that packets of pods have to pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Firewall {
    Firewalld,
    Ufw,
    /// A chain that drops what no rule allows.
    Drops {
        table: String,
        chain: String,
    },
}

pub const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
const CGROUP_MOUNT: &str = "/sys/fs/cgroup";

impl Port {
    pub fn new(address: SocketAddr, what: &'static str, flag: &'static str) -> Port {
        Port { address, what, flag, is_needed: true, error: None }
    }

    pub fn spare(address: SocketAddr, what: &'static str, flag: &'static str) -> Port {
        Port { is_needed: false, ..Port::new(address, what, flag) }
    }
}

impl Host {
    pub async fn look(data_dir: &Path, ranges: Ranges, ports: Vec<Port>) -> Host {
        let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let capabilities = capabilities(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        Host {
            is_root: rustix::process::geteuid().is_root(),
            capabilities,
            container: container(),
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            calls_refused: calls_refused(capabilities >> CAP_SYS_ADMIN.0 & 1 == 1),
            // One that is a module is known once it was used.
            has_overlay: lists(&filesystems, "overlay") || Path::new("/sys/module/overlay").exists(),
            cgroups: cgroups(Path::new(CGROUP_MOUNT)),
            nftables_error: nftables_error(),
            has_bridge_rules: Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables").exists(),
            firewall: foreign_firewall().await,
            ranges,
            etcd: etcd(&std::env::var("PATH").unwrap_or_default()),
            disk: disk(data_dir),
            ports: ports.into_iter().map(tried).collect(),
        }
    }
}

fn capabilities(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

fn container() -> Option<&'static str> {
    let named = std::env::var_os("container").is_some() || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    match () {
        () if Path::new("/.dockerenv").exists() => Some("a Docker container"),
        () if Path::new("/run/.containerenv").exists() => Some("a Podman container"),
        () if named => Some("a container"),
        () => None,
    }
}

/// Those without which no container starts; each is asked for something harmless.
fn calls_refused(may_mount: bool) -> Vec<&'static str> {
    let is_refused = |error: Errno| matches!(error, Errno::NOSYS | Errno::PERM);
    let mut refused = Vec::new();
    if rustix::fs::openat2(CWD, "/", OFlags::PATH, Mode::empty(), ResolveFlags::empty()).is_err_and(is_refused) {
        refused.push("openat2");
    }
    let own = rustix::process::getpid();
    if rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).is_err_and(is_refused) {
        refused.push("pidfd_open");
    }
    if may_mount && linux::mount::set_attributes_is_refused() {
        refused.push("mount_setattr");
    }
    refused
}

fn lists(filesystems: &str, name: &str) -> bool {
    filesystems.lines().any(|line| line.split_whitespace().last() == Some(name))
}

fn cgroups(mount: &Path) -> Cgroups {
    let is_read_only = |folder: &Path| {
        rustix::fs::accessat(CWD, folder, Access::WRITE_OK, AtFlags::EACCESS).is_err_and(|error| error == Errno::ROFS)
    };
    if let Ok(controllers) = std::fs::read_to_string(mount.join("cgroup.controllers")) {
        return Cgroups { unified: Some(controllers), is_read_only: is_read_only(mount), ..Cgroups::default() };
    }
    let mounted: Vec<&str> = CONTROLLERS.into_iter().filter(|name| mount.join(name).is_dir()).collect();
    let is_read_only = mounted.iter().any(|name| is_read_only(&mount.join(name)));
    Cgroups { unified: None, mounted, is_read_only }
}

/// Opening the kernel's tables is the test.
fn nftables_error() -> Option<io::ErrorKind> {
    use rustix::net::{AddressFamily, SocketType, netlink, socket};
    socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::NETFILTER)).err().map(|error| error.kind())
}

async fn foreign_firewall() -> Option<Firewall> {
    // Who may not look at the tables may not have a node either, which is said elsewhere.
    let chains = Connection::<Nftables>::new().ok()?.list_chains().await.ok()?;
    firewall(&chains.iter().map(Chain::of).collect::<Vec<_>>())
}

/// What of a chain is of interest.
#[derive(Clone, Debug)]
struct Chain<'a> {
    table: &'a str,
    name: &'a str,
    drops_forwarded: bool,
}

impl Chain<'_> {
    fn of(found: &ChainInfo) -> Chain<'_> {
        const HOOK_FORWARD: u32 = 2;
        const POLICY_DROP: u32 = 0;
        let drops_forwarded = found.hook == Some(HOOK_FORWARD) && found.policy == Some(POLICY_DROP);
        Chain { table: &found.table, name: &found.name, drops_forwarded }
    }
}

fn firewall(chains: &[Chain]) -> Option<Firewall> {
    if chains.iter().any(|chain| chain.table == "firewalld") {
        return Some(Firewall::Firewalld);
    }
    let drops = chains.iter().find(|chain| chain.drops_forwarded && !chain.table.starts_with("knarr"))?;
    Some(if chains.iter().any(|chain| chain.name.starts_with("ufw-")) {
        Firewall::Ufw
    } else {
        Firewall::Drops { table: drops.table.to_owned(), chain: drops.name.to_owned() }
    })
}

fn etcd(path: &str) -> Option<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join("etcd")).find(|file| file.is_file())
}

fn disk(data_dir: &Path) -> Disk {
    let folder = data_dir.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    // A folder of a relative path may be the one we are in.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let free = rustix::fs::statvfs(folder).ok().map(|found| found.f_bavail * found.f_frsize);
    let error = rustix::fs::accessat(CWD, folder, Access::WRITE_OK, AtFlags::EACCESS).err().map(|error| error.kind());
    Disk { folder: folder.to_owned(), is_used: has_entries(data_dir), free, error }
}

fn has_entries(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

fn tried(port: Port) -> Port {
    // Of number 0 there is always one.
    let error = TcpListener::bind(port.address).err().map(|error| error.kind());
    Port { error, ..port }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_read_as_it_is() {
        assert_eq!(capabilities("Name:\tx\nCapEff:\t000001ffffffffff\n"), 0x1ff_ffff_ffff);
        assert_eq!(capabilities(""), 0);
        assert!(lists("nodev\toverlay\n\text4\n", "overlay") && !lists("nodev\toverlayfs\n", "overlay"));
        assert_eq!(etcd(""), None);
        let folder = tempfile::tempdir().unwrap();
        assert!(cgroups(folder.path()).unified.is_none() && cgroups(folder.path()).mounted.is_empty());
        std::fs::create_dir(folder.path().join("memory")).unwrap();
        assert_eq!(cgroups(folder.path()).mounted, ["memory"]);
        std::fs::write(folder.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        assert_eq!(cgroups(folder.path()).unified.as_deref(), Some("cpu memory\n"));
        let found = disk(&folder.path().join("not/there/yet"));
        assert_eq!((found.folder.as_path(), found.is_used, found.error), (folder.path(), false, None));
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tried(Port::new(taken.local_addr().unwrap(), "x", "--x"));
        assert_eq!(port.error, Some(io::ErrorKind::AddrInUse));
    }

    #[test]
    fn a_firewall_is_known_by_its_chains() {
        let chain = |table, name, drops_forwarded| Chain { table, name, drops_forwarded };
        assert_eq!(firewall(&[chain("filter", "FORWARD", false)]), None);
        assert_eq!(firewall(&[chain("knarr-policy", "forward", true)]), None);
        let own = Firewall::Drops { table: "filter".into(), chain: "FORWARD".into() };
        assert_eq!(firewall(&[chain("filter", "FORWARD", true)]), Some(own));
        let ufw = [chain("filter", "ufw-user-forward", false), chain("filter", "FORWARD", true)];
        assert_eq!(firewall(&ufw), Some(Firewall::Ufw));
        assert_eq!(firewall(&[chain("firewalld", "filter_FORWARD", false)]), Some(Firewall::Firewalld));
    }
}
