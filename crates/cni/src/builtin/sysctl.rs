//! Switches of the kernel that a node with pods needs.

use std::path::{Path, PathBuf};

use ipnet::IpNet;

use super::Config;
use crate::{Error, Result};

pub fn set_up(config: &Config, ranges: &[IpNet]) -> Result<()> {
    let (four, six) =
        (ranges.iter().any(|range| range.addr().is_ipv4()), ranges.iter().any(|range| range.addr().is_ipv6()));
    inside(config, || {
        if four {
            set("net/ipv4/ip_forward", "1")?;
        }
        if six {
            // A router does not listen to other routers unless told; the uplink may live from that.
            for path in interfaces("net/ipv6/conf") {
                let listens = path.join("accept_ra");
                if std::fs::read_to_string(&listens).is_ok_and(|value| value.trim() == "1") {
                    write(&listens, "2")?;
                }
            }
            set("net/ipv6/conf/all/forwarding", "1")?;
        }
        // Where the kernel has it loaded, bridged packets shall pass the same rules as routed ones.
        let value = if config.bridge_netfilter { "1" } else { "0" };
        BRIDGE_NETFILTER.iter().try_for_each(|name| tolerate_absence(set(name, value)))
    })
}

const BRIDGE_NETFILTER: [&str; 2] = ["net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"];

/// Whether what a bridge switches passes the rules for routed packets.
pub(crate) fn bridged_packets_pass_rules(config: &Config) -> Result<bool> {
    let on = |name: &&str| std::fs::read_to_string(Path::new("/proc/sys").join(name)).is_ok_and(|on| on.trim() == "1");
    let mut all = false;
    inside(config, || {
        all = BRIDGE_NETFILTER.iter().all(on);
        Ok(())
    })?;
    Ok(all)
}

pub(crate) fn set_up_bridge(config: &Config) -> Result<()> {
    let bridge = format!("net/ipv4/conf/{}", config.bridge);
    inside(config, || {
        // What a host sends to its own 127.0.0.1 may go to a pod when a host port leads there.
        set(&format!("{bridge}/route_localnet"), "1")?;
        // Pods must not be told to talk to each other directly: their way leads through the node's rules.
        set(&format!("{bridge}/send_redirects"), "0")?;
        set("net/ipv4/conf/all/send_redirects", "0")
    })
}

/// /proc/sys/net shows the namespace of the thread that looks.
fn inside(config: &Config, work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    match &config.node_namespace {
        None => work(),
        Some(path) => linux::netns::run_in(path, work)
            .map_err(|source| Error::Namespace { path: path.clone(), source })
            .and_then(|done| done),
    }
}

fn interfaces(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(Path::new("/proc/sys").join(folder)).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn set(name: &str, value: &str) -> Result<()> {
    write(&Path::new("/proc/sys").join(name), value)
}

fn write(path: &Path, value: &str) -> Result<()> {
    let fail = |source| Error::File { path: path.to_owned(), source };
    // Someone else may have set it where we may not write.
    if std::fs::read_to_string(path).map_err(fail)?.trim() == value {
        return Ok(());
    }
    std::fs::write(path, value).map_err(fail)
}

fn tolerate_absence(done: Result<()>) -> Result<()> {
    match done {
        Err(Error::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
