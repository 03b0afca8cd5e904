//! `knarr check`: what this host lacks for a server or a node, and how to get it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

#[derive(clap::Args)]
pub struct Flags {
    /// Where knarr would keep everything.
    #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    data_dir: std::path::PathBuf,
    /// The port of the Kubernetes API.
    #[arg(long, env = "KNARR_HTTPS_PORT", default_value_t = 6443)]
    https_port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Something works less well, or one thing not at all.
    Worse,
    /// A node cannot run.
    Missing,
}

struct Finding {
    verdict: Verdict,
    what: &'static str,
    /// What was seen, and what to do about it.
    detail: String,
}

/// Prints what it found; fails where a node could not run.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    let findings = look(&flags);
    for finding in &findings {
        let mark = match finding.verdict {
            Verdict::Good => "ok     ",
            Verdict::Worse => "warning",
            Verdict::Missing => "MISSING",
        };
        println!("{mark}  {:<20} {}", finding.what, finding.detail);
    }
    let missing = findings.iter().filter(|finding| finding.verdict == Verdict::Missing).count();
    anyhow::ensure!(
        missing == 0,
        "{missing} things are missing for a node; `knarr server --disable-agent` needs none of them"
    );
    Ok(())
}

fn look(flags: &Flags) -> Vec<Finding> {
    let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let mut findings = vec![
        root(rustix::process::geteuid().is_root()),
        file_system(&filesystems, "overlay", "containers' roots are made of layers: modprobe overlay"),
        control_groups(Path::new("/sys/fs/cgroup")),
        network(),
        bridge_rules(Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables")),
        etcd(&std::env::var("PATH").unwrap_or_default()),
        space(&flags.data_dir),
    ];
    let ports = [
        (flags.https_port, "the Kubernetes API", Verdict::Missing, "choose another with --https-port"),
        (10250, "the kubelet", Verdict::Missing, "choose another with --kubelet-port"),
        (80, "the ingress", Verdict::Worse, "choose another with --ingress-http-port"),
        (443, "the ingress with TLS", Verdict::Worse, "choose another with --ingress-https-port"),
    ];
    findings.extend(ports.map(|(port, what, verdict, advice)| is_free(port, what, verdict, advice)));
    findings
}

fn good(what: &'static str, detail: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Good, what, detail: detail.into() }
}

fn root(is_root: bool) -> Finding {
    match is_root {
        true => good("root", ""),
        false => Finding {
            verdict: Verdict::Missing,
            what: "root",
            detail: "only root can make containers: sudo knarr check".into(),
        },
    }
}

fn file_system(known: &str, name: &'static str, advice: &str) -> Finding {
    let there = known.lines().any(|line| line.split_whitespace().last() == Some(name));
    // One that is a module is known once it was used.
    match there || Path::new(&format!("/sys/module/{name}")).exists() {
        true => good(name, ""),
        false => Finding {
            verdict: Verdict::Worse,
            what: name,
            detail: format!("the kernel does not show it yet; {advice}"),
        },
    }
}

fn control_groups(mount: &Path) -> Finding {
    let (what, verdict) = ("control groups", Verdict::Missing);
    if let Ok(controllers) = std::fs::read_to_string(mount.join("cgroup.controllers")) {
        let lacking: Vec<&str> = ["cpu", "memory", "pids"]
            .into_iter()
            .filter(|name| !controllers.split_whitespace().any(|one| one == *name))
            .collect();
        return match lacking.is_empty() {
            true => good(what, "version 2"),
            false => {
                let detail = format!(
                    "version 2, without {}: add cgroup_enable={} to the kernel's command line",
                    lacking.join(", "),
                    lacking[0]
                );
                Finding { verdict, what, detail }
            }
        };
    }
    let lacking: Vec<&str> = ["cpu", "memory", "pids"].into_iter().filter(|name| !mount.join(name).is_dir()).collect();
    match lacking.is_empty() {
        true => good(what, "version 1"),
        false => {
            Finding { verdict, what, detail: format!("{} not mounted below {}", lacking.join(", "), mount.display()) }
        }
    }
}

/// Opening the kernel's tables is the test; nothing is changed.
fn network() -> Finding {
    use rustix::net::{AddressFamily, SocketType, netlink, socket};
    match socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::NETFILTER)) {
        Ok(_) => good("nftables", ""),
        Err(error) => {
            Finding { verdict: Verdict::Missing, what: "nftables", detail: format!("{error}: modprobe nf_tables") }
        }
    }
}

fn bridge_rules(switch: &Path) -> Finding {
    match switch.exists() {
        true => good("bridge rules", ""),
        false => Finding {
            verdict: Verdict::Worse,
            what: "bridge rules",
            detail: "pods of one node are kept apart by routing instead: modprobe br_netfilter".into(),
        },
    }
}

fn etcd(path: &str) -> Finding {
    let found = std::env::split_paths(path).map(|folder| folder.join("etcd")).find(|file| file.is_file());
    match found {
        Some(file) => good("etcd", file.display().to_string()),
        None => Finding {
            verdict: Verdict::Worse,
            what: "etcd",
            detail: "needed for --cluster-init only: apt install etcd-server".into(),
        },
    }
}

fn space(data_dir: &Path) -> Finding {
    const WANTED: u64 = 2 << 30;
    let what = "disk";
    let there = data_dir.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    match rustix::fs::statvfs(there) {
        Ok(found) if found.f_bavail * found.f_frsize < WANTED => Finding {
            verdict: Verdict::Worse,
            what,
            detail: format!(
                "{} MiB free in {}; images want more: --data-dir",
                (found.f_bavail * found.f_frsize) >> 20,
                there.display()
            ),
        },
        Ok(found) => good(what, format!("{} MiB free in {}", (found.f_bavail * found.f_frsize) >> 20, there.display())),
        Err(error) => Finding { verdict: Verdict::Worse, what, detail: format!("{}: {error}", there.display()) },
    }
}

fn is_free(port: u16, what: &'static str, verdict: Verdict, advice: &str) -> Finding {
    match TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))) {
        Ok(_) => good(what, format!("port {port} is free")),
        Err(error) => Finding { verdict, what, detail: format!("port {port}: {error}; {advice}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        assert_eq!(root(false).verdict, Verdict::Missing);
        assert_eq!(file_system("nodev\toverlay\n", "overlay", "").verdict, Verdict::Good);
        assert!(file_system("ext4\n", "nothing-of-this-name", "do so").detail.ends_with("do so"));
        let folder = tempfile::tempdir().unwrap();
        assert!(control_groups(folder.path()).detail.contains("cpu, memory, pids"));
        std::fs::write(folder.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        assert!(control_groups(folder.path()).detail.contains("without pids"));
        std::fs::write(folder.path().join("cgroup.controllers"), "cpuset cpu memory pids\n").unwrap();
        assert_eq!(control_groups(folder.path()).verdict, Verdict::Good);
        assert!(etcd("").detail.contains("apt install"));
        let taken = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        assert_eq!(is_free(port, "x", Verdict::Missing, "advice").verdict, Verdict::Missing);
        drop(taken);
    }
}
