//! Kernel parameters of a pod. They belong to its namespaces, so they are set once, when the sandbox is made.

use std::collections::BTreeMap;

use cri::v1;

use super::invalid;

/// Parameters of the IPC namespace that have no prefix of their own.
const IPC: &[&str] = &[
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
];

/// What to write below `/proc/sys`, names with dots. Refuses what is not the pod's own.
pub fn sysctls(sandbox: &v1::PodSandboxConfig) -> cri::Result<BTreeMap<String, String>> {
    let linux = sandbox.linux.clone().unwrap_or_default();
    let namespaces = linux.security_context.and_then(|security| security.namespace_options).unwrap_or_default();
    let own_network = namespaces.network() != v1::NamespaceMode::Node;
    let own_ipc = namespaces.ipc() != v1::NamespaceMode::Node;
    let own_users = namespaces.userns_options.as_ref().is_some_and(|users| users.mode() == v1::NamespaceMode::Pod);

    let mut parameters = BTreeMap::new();
    if own_network {
        // containerd's defaults: no container needs CAP_NET_BIND_SERVICE for port 80 or CAP_NET_RAW for ping.
        parameters.insert("net.ipv4.ip_unprivileged_port_start".to_owned(), "0".to_owned());
        if !own_users {
            parameters.insert("net.ipv4.ping_group_range".to_owned(), "0 2147483647".to_owned());
        }
    }
    for (name, value) in &linux.sysctls {
        let name = with_dots(name);
        let (own, what) = if name.starts_with("net.") {
            (own_network, "hostNetwork")
        } else if IPC.contains(&name.as_str()) || name.starts_with("fs.mqueue.") {
            (own_ipc, "hostIPC")
        } else {
            return Err(invalid(format!("sysctl {name:?} is not in a separate kernel namespace")));
        };
        if !own {
            return Err(invalid(format!("sysctl {name:?} is not allowed with {what}")));
        }
        if path(&name).split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(invalid(format!("sysctl {name:?} is not a name")));
        }
        parameters.insert(name, value.clone());
    }
    Ok(parameters)
}

/// The path below `/proc/sys`. A slash in a name stands for a dot in a part, as in `net.ipv4.conf.eth0/100.forwarding`.
pub fn path(name: &str) -> String {
    name.chars()
        .map(|letter| {
            if letter == '.' {
                '/'
            } else if letter == '/' {
                '.'
            } else {
                letter
            }
        })
        .collect()
}

/// Names come with either separator; the first one in the text decides which it is.
fn with_dots(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(place) if name.as_bytes()[place] == b'/' => path(name),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sysctls: &[(&str, &str)], host_network: bool) -> Result<Vec<String>, String> {
        let mut namespaces = v1::NamespaceOption::default();
        if host_network {
            namespaces.set_network(v1::NamespaceMode::Node);
        }
        let security = v1::LinuxSandboxSecurityContext { namespace_options: Some(namespaces), ..Default::default() };
        let sandbox = v1::PodSandboxConfig {
            linux: Some(v1::LinuxPodSandboxConfig {
                security_context: Some(security),
                sysctls: sysctls.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
                ..Default::default()
            }),
            ..Default::default()
        };
        super::sysctls(&sandbox)
            .map(|found| found.iter().map(|(name, value)| format!("{name}={value}")).collect())
            .map_err(|error| error.message)
    }

    #[test]
    fn a_pod_may_set_its_own() {
        assert_eq!(
            check(&[("net.core.somaxconn", "1024"), ("kernel/shm_rmid_forced", "1")], false).unwrap(),
            [
                "kernel.shm_rmid_forced=1",
                "net.core.somaxconn=1024",
                "net.ipv4.ip_unprivileged_port_start=0",
                "net.ipv4.ping_group_range=0 2147483647"
            ]
        );
        assert_eq!(check(&[], true).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn the_nodes_are_refused() {
        assert!(check(&[("vm.swappiness", "1")], false).unwrap_err().contains("separate kernel namespace"));
        assert!(check(&[("net.core.somaxconn", "1")], true).unwrap_err().contains("hostNetwork"));
        assert!(check(&[("net....sysrq", "1")], false).unwrap_err().contains("not a name"));
    }

    #[test]
    fn a_slash_is_a_dot_in_a_part() {
        assert_eq!(path("net.ipv4.conf.eth0/100.forwarding"), "net/ipv4/conf/eth0.100/forwarding");
    }
}
