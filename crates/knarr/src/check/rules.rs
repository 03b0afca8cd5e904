//! The rules of `knarr check`: each finding is a sentence that says what to do.

use std::io::ErrorKind;

use super::host::{CONTROLLERS, Cgroups, Disk, Firewall, Host, Port, Ranges};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Good,
    /// Something works less well, or one thing not at all.
    Worse,
    /// It cannot run.
    Missing,
}

#[derive(Clone, Debug)]
pub struct Finding {
    pub verdict: Verdict,
    pub what: &'static str,
    /// What was seen, and what to do about it.
    pub detail: String,
}

impl Finding {
    fn good(what: &'static str, detail: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Good, what, detail: detail.into() }
    }

    fn worse(what: &'static str, detail: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Worse, what, detail: detail.into() }
    }

    fn missing(what: &'static str, detail: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Missing, what, detail: detail.into() }
    }
}

/// The first kernel with all that containers are started with: libcontainer sets attributes of mounts by mount_setattr.
const KERNEL_MIN: (u32, u32) = (5, 12);
const CAP_NET_ADMIN: (u32, &str) = (12, "CAP_NET_ADMIN");
pub(super) const CAP_SYS_ADMIN: (u32, &str) = (21, "CAP_SYS_ADMIN");
/// What a new cluster writes before anybody asked it for anything, several times over.
const DISK_MIN: u64 = 64 << 20;
/// What a node wants for images.
const DISK_WANTED: u64 = 2 << 30;

/// Everything `knarr check` prints.
pub fn all(host: &Host) -> Vec<Finding> {
    let mut findings = node(host);
    findings.insert(findings.len() - host.ports.len(), bridge_rules(host.has_bridge_rules));
    findings.insert(findings.len() - host.ports.len(), etcd(host));
    findings
}

/// What a node needs, the first things first.
pub fn node(host: &Host) -> Vec<Finding> {
    let mut findings = vec![
        root(host.is_root),
        kernel(host),
        privileges(host),
        cgroups(&host.cgroups, host.container),
        nftables(host),
        overlay(host.has_overlay),
        firewall(host.firewall.as_ref(), &host.ranges),
        disk(&host.disk, DISK_WANTED),
    ];
    findings.extend(host.ports.iter().map(port));
    findings
}

/// What a server without a node needs.
pub fn server(host: &Host) -> Vec<Finding> {
    std::iter::once(disk(&host.disk, DISK_MIN)).chain(host.ports.iter().map(port)).collect()
}

/// Why it is in vain to start.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    sentence: String,
    /// Whether it is so until the machine is started with another kernel, so that trying again helps nobody.
    pub is_lasting: bool,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Refusal {}

const KERNEL: &str = "kernel";

/// Why it would be in vain to start, if it would.
pub fn refusal(host: &Host, start: Starts) -> Option<Refusal> {
    let missing = |findings: Vec<Finding>| findings.into_iter().find(|finding| finding.verdict == Verdict::Missing);
    let Finding { what, detail, .. } = match start {
        Starts::Server => missing(server(host))?,
        Starts::Node => missing(node(host))?,
        // What a server alone needs as well is no reason to do without a node.
        Starts::ServerWithNode => match missing(server(host)) {
            Some(finding) => finding,
            None => {
                let Finding { what, detail, .. } = missing(node(host))?;
                let sentence = format!("{what}: {detail}, or run the control plane alone with --disable-agent");
                return Some(Refusal { sentence, is_lasting: what == KERNEL });
            }
        },
    };
    Some(Refusal { sentence: format!("{what}: {detail}"), is_lasting: what == KERNEL })
}

/// What is to run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    Server,
    Node,
    ServerWithNode,
}

fn root(is_root: bool) -> Finding {
    if is_root {
        Finding::good("root", "")
    } else {
        Finding::missing("root", "only root can make containers: use sudo")
    }
}

fn kernel(host: &Host) -> Finding {
    let what = KERNEL;
    let release = &host.release;
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or_default());
    let version: (u32, u32) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let (major, minor) = KERNEL_MIN;
    if version < KERNEL_MIN {
        return Finding::missing(
            what,
            format!("Linux {release} is too old for containers of knarr: boot {major}.{minor} or newer"),
        );
    }
    if !host.calls_refused.is_empty() {
        let calls = host.calls_refused.join(" and ");
        return Finding::missing(
            what,
            format!("{calls} may not be called here: take away the seccomp profile that filters them"),
        );
    }
    Finding::good(what, release.as_str())
}

fn privileges(host: &Host) -> Finding {
    let what = "privileges";
    let lacking: Vec<&str> = [CAP_SYS_ADMIN, CAP_NET_ADMIN]
        .into_iter()
        .filter(|(number, _)| host.capabilities >> number & 1 == 0)
        .map(|(_, name)| name)
        .collect();
    if lacking.is_empty() || !host.is_root {
        return Finding::good(what, host.container.unwrap_or_default());
    }
    let (place, cure) = match host.container {
        Some(container) => (container, "start it with --privileged"),
        None => ("root here", "start knarr outside of what took them away"),
    };
    Finding::missing(what, format!("{place} is without {}: {cure}", lacking.join(" and ")))
}

fn cgroups(found: &Cgroups, container: Option<&str>) -> Finding {
    let what = "cgroups";
    let version = if found.unified.is_some() { "version 2" } else { "version 1" };
    let is_there = |name: &&str| match &found.unified {
        Some(controllers) => controllers.split_whitespace().any(|one| one == *name),
        None => found.mounted.contains(name),
    };
    let lacking: Vec<&str> = CONTROLLERS.into_iter().filter(|name| !is_there(name)).collect();
    let detail = match (lacking.first(), &found.unified) {
        (Some(first), Some(_)) => {
            format!("{version}, without {}: add cgroup_enable={first} to the kernel's command line", lacking.join(", "))
        }
        (Some(_), None) => {
            format!("{} not mounted below /sys/fs/cgroup: mount them there", lacking.join(", "))
        }
        (None, _) if found.is_read_only => {
            let place = container.unwrap_or("whoever started this");
            format!("/sys/fs/cgroup is read-only: {place} needs --privileged")
        }
        (None, _) => return Finding::good(what, version),
    };
    Finding::missing(what, detail)
}

fn nftables(host: &Host) -> Finding {
    match host.nftables_error {
        None => Finding::good("nftables", ""),
        Some(error) => Finding::missing("nftables", format!("{error}: modprobe nf_tables")),
    }
}

fn overlay(has_overlay: bool) -> Finding {
    if has_overlay {
        Finding::good("overlay", "")
    } else {
        Finding::worse(
            "overlay",
            "the kernel does not show it yet; containers' roots are made of layers: modprobe overlay",
        )
    }
}

fn bridge_rules(has_bridge_rules: bool) -> Finding {
    if has_bridge_rules {
        Finding::good("bridge rules", "")
    } else {
        Finding::worse("bridge rules", "pods of one node are kept apart by routing instead: modprobe br_netfilter")
    }
}

fn firewall(found: Option<&Firewall>, ranges: &Ranges) -> Finding {
    let Ranges { pods, services } = ranges;
    let what = "firewall";
    let detail = match found {
        None => return Finding::good(what, ""),
        Some(Firewall::Firewalld) => format!(
            "firewalld rejects what pods send unless its zone trusted has their addresses: firewall-cmd --permanent \
             --zone=trusted --add-source={pods} --add-source={services} && firewall-cmd --reload"
        ),
        Some(Firewall::Ufw) => format!(
            "ufw drops what pods send unless it is told otherwise: ufw allow from {pods} && \
             ufw route allow from {pods} && ufw route allow to {pods}"
        ),
        Some(Firewall::Drops { table, chain }) => format!(
            "chain {chain} of table {table} drops what it forwards unless a rule allows it, and with it what pods send: \
             allow what comes from and goes to {pods}"
        ),
    };
    Finding::worse(what, detail)
}

fn etcd(host: &Host) -> Finding {
    match &host.etcd {
        Some(file) => Finding::good("etcd", file.display().to_string()),
        None => Finding::worse("etcd", "needed for --cluster-init only: apt install etcd-server"),
    }
}

fn disk(disk: &Disk, wanted: u64) -> Finding {
    let (what, folder) = ("disk", disk.folder.display());
    if let Some(error) = disk.error {
        return Finding::missing(what, format!("{folder}: {error}; choose another folder with --data-dir"));
    }
    let Some(free) = disk.free else {
        return Finding::worse(what, format!("{folder}: cannot read free disk space"));
    };
    let free_mib = free >> 20;
    // A cluster that is there serves what it has, even from a full disk.
    if free < DISK_MIN && !disk.is_used {
        return Finding::missing(
            what,
            format!(
                "{free_mib} MiB free in {folder}, and a new cluster needs {}: free some, or choose another folder with --data-dir",
                DISK_MIN >> 20
            ),
        );
    }
    if free < wanted {
        Finding::worse(
            what,
            format!(
                "{free_mib} MiB free in {folder}; images want more: free some, or choose another folder with --data-dir"
            ),
        )
    } else {
        Finding::good(what, format!("{free_mib} MiB free in {folder}"))
    }
}

fn port(port: &Port) -> Finding {
    let (number, flag) = (port.address.port(), port.flag);
    let detail = match port.error {
        None => return Finding::good(port.what, format!("port {number} is free")),
        Some(ErrorKind::AddrInUse) => format!(
            "port {number} is taken by another program, perhaps another knarr: stop it (ss -ltnp names it), or choose another with {flag}"
        ),
        Some(ErrorKind::PermissionDenied) => {
            format!("only root may listen on port {number}: use sudo, or choose one above 1023 with {flag}")
        }
        Some(ErrorKind::AddrNotAvailable) => {
            format!("no link has the address {}: choose one of this host", port.address.ip())
        }
        Some(error) => format!("port {number}: {error}; choose another with {flag}"),
    };
    if port.is_needed { Finding::missing(port.what, detail) } else { Finding::worse(port.what, detail) }
}

#[cfg(test)]
mod tests;
