//! The sandbox a pod asks the runtime for.

use std::collections::HashMap;
use std::path::PathBuf;

use cri::v1;
use k8s_openapi::api::core::v1::Pod;

use super::security::{self, UserRange};
use super::{files, labels, spec};
use crate::Config;

/// Why a sandbox cannot even be asked for; a part of the message of FailedCreatePodSandBox.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    HostName(#[from] files::HostNameError),
    #[error("failed to read {}: {source}", .path.display())]
    ResolvConf { path: PathBuf, source: std::io::Error },
}

/// What the user should hear, and the sandbox.
pub fn config(
    config: &Config,
    pod: &Pod,
    attempt: u32,
    users: Option<UserRange>,
    cgroup_parent: String,
) -> Result<(v1::PodSandboxConfig, Vec<files::Warning>), ConfigError> {
    let name = files::host_name(pod, &config.cluster_domain)?;
    let hostname = files::kernel_host_name(pod, &name)?;
    let (dns, warnings) = files::dns_config(config, pod)
        .map_err(|source| ConfigError::ResolvConf { path: config.resolv_conf.clone(), source })?;
    let mut marks: HashMap<String, String> = pod.metadata.labels.clone().unwrap_or_default().into_iter().collect();
    marks.insert(labels::POD_NAME.to_owned(), spec::name(pod).to_owned());
    marks.insert(labels::POD_NAMESPACE.to_owned(), spec::namespace(pod).to_owned());
    marks.insert(labels::POD_UID.to_owned(), spec::uid(pod).to_owned());
    let mut notes: HashMap<String, String> = pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect();
    notes.entry(labels::CONFIG_SOURCE.to_owned()).or_insert_with(|| "api".to_owned());
    let sysctls = spec::wishes(pod).security_context.as_ref().and_then(|context| context.sysctls.as_ref());
    let sysctls = sysctls.into_iter().flatten().map(|sysctl| (dotted(&sysctl.name), sysctl.value.clone()));
    let log_directory = config.log_dir.join(spec::log_folder(pod)).to_string_lossy().into_owned();
    let made = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: spec::name(pod).to_owned(),
            uid: spec::uid(pod).to_owned(),
            namespace: spec::namespace(pod).to_owned(),
            attempt,
        }),
        hostname,
        log_directory,
        dns_config: Some(dns),
        port_mappings: ports(pod),
        labels: marks,
        annotations: notes,
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent,
            security_context: Some(security::sandbox_context(pod, users, &config.root_dir.join("seccomp"))),
            sysctls: sysctls.collect(),
            ..Default::default()
        }),
        windows: None,
    };
    Ok((made, warnings))
}

/// Both separators are allowed in the API, the kernel's files are named with dots.
fn dotted(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(first) if name.as_bytes()[first] == b'/' => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    }
}

fn ports(pod: &Pod) -> Vec<v1::PortMapping> {
    let sidecars = spec::init_containers(pod).filter(|container| spec::is_sidecar(container));
    let all = sidecars.chain(spec::regular_containers(pod)).flat_map(|container| container.ports.iter().flatten());
    all.map(|port| v1::PortMapping {
        protocol: (match port.protocol.as_deref() {
            Some("UDP") => v1::Protocol::Udp,
            Some("SCTP") => v1::Protocol::Sctp,
            _ => v1::Protocol::Tcp,
        }) as i32,
        container_port: port.container_port,
        host_port: port.host_port.unwrap_or(0),
        host_ip: port.host_ip.clone().unwrap_or_default(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::dotted;

    #[test]
    fn sysctl_names() {
        assert_eq!(dotted("net.ipv4.ip_forward"), "net.ipv4.ip_forward");
        assert_eq!(dotted("net/ipv4/conf/eth0.1/forwarding"), "net.ipv4.conf.eth0/1.forwarding");
    }
}
