//! What a pod's containers find in `/etc/hosts`, as their host name and in `/etc/resolv.conf`.

use std::path::{Path, PathBuf};

use cri::v1;
use k8s_openapi::api::core::v1::{HostAlias, Pod, PodDNSConfig};

use crate::Config;

/// Something the user should hear as a Warning event about the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub reason: &'static str,
    pub message: String,
}

/// How a pod calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName {
    /// The first label, or the whole name where the pod overrides it.
    pub short: String,
    /// `<subdomain>.<namespace>.svc.<cluster domain>`, empty without a subdomain.
    pub domain: String,
}

/// The longest host name a pod is given.
const HOST_NAME_MAX: usize = 63;
/// The longest name that the kernel takes.
const KERNEL_NAME_MAX: usize = 64;
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_LINE_MAX: usize = 2048;
/// glibc has aborted on longer search paths.
const SEARCH_MAX: usize = 253;

/// A pod that cannot be named as it asks; shown to the user.
#[derive(Debug, thiserror::Error)]
pub enum HostNameError {
    #[error("pod HostnameOverride {0:?} is not a valid DNS subdomain: {SUBDOMAIN_RULE}")]
    Override(String),
    #[error("pod Hostname {0:?} is not a valid DNS label: {LABEL_RULE}")]
    Hostname(String),
    #[error("pod Subdomain {0:?} is not a valid DNS label: {LABEL_RULE}")]
    Subdomain(String),
    #[error(
        "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long ({KERNEL_NAME_MAX} characters is the max, {} characters requested)",
        .fqdn.len()
    )]
    Long { fqdn: String },
}

/// The pod's names in DNS and in its `/etc/hosts`.
pub fn host_name(pod: &Pod, cluster_domain: &str) -> Result<HostName, HostNameError> {
    let spec = pod.spec.as_ref();
    if let Some(name) = spec.and_then(|spec| spec.hostname_override.as_deref()) {
        if !is_subdomain(name) {
            return Err(HostNameError::Override(name.to_owned()));
        }
        return Ok(HostName { short: truncated(name, KERNEL_NAME_MAX), domain: String::new() });
    }
    let mut short = pod.metadata.name.clone().unwrap_or_default();
    if let Some(name) = spec.and_then(|spec| spec.hostname.as_deref()).filter(|name| !name.is_empty()) {
        if !is_label(name) {
            return Err(HostNameError::Hostname(name.to_owned()));
        }
        short = name.to_owned();
    }
    let mut domain = String::new();
    if let Some(name) = spec.and_then(|spec| spec.subdomain.as_deref()).filter(|name| !name.is_empty()) {
        if !is_label(name) {
            return Err(HostNameError::Subdomain(name.to_owned()));
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        domain = format!("{name}.{namespace}.svc.{cluster_domain}");
    }
    Ok(HostName { short: truncated(&short, HOST_NAME_MAX), domain })
}

/// The name that the sandbox gives to the kernel, empty for a pod in the host's network.
pub(crate) fn kernel_host_name(pod: &Pod, name: &HostName) -> Result<String, HostNameError> {
    if host_network(pod) {
        return Ok(String::new());
    }
    let whole = pod.spec.as_ref().and_then(|spec| spec.set_hostname_as_fqdn).unwrap_or(false);
    if !whole || name.domain.is_empty() {
        return Ok(name.short.clone());
    }
    let fqdn = format!("{}.{}", name.short, name.domain);
    if fqdn.len() > KERNEL_NAME_MAX {
        return Err(HostNameError::Long { fqdn });
    }
    Ok(fqdn)
}

/// The content of a pod's `/etc/hosts`. `node_hosts` is the node's own file, used by pods in the host's network.
pub fn hosts(pod: &Pod, pod_ips: &[String], name: &HostName, node_hosts: &str) -> String {
    let mut text = String::new();
    if host_network(pod) {
        text.push_str("# Kubernetes-managed hosts file (host network).\n");
        text.push_str(node_hosts);
    } else {
        text.push_str("# Kubernetes-managed hosts file.\n");
        text.push_str("127.0.0.1\tlocalhost\n");
        text.push_str("::1\tlocalhost ip6-localhost ip6-loopback\n");
        text.push_str("fe00::0\tip6-localnet\n");
        text.push_str("fe00::0\tip6-mcastprefix\n");
        text.push_str("fe00::1\tip6-allnodes\n");
        text.push_str("fe00::2\tip6-allrouters\n");
        for ip in pod_ips {
            match name.domain.as_str() {
                "" => text.push_str(&format!("{ip}\t{}\n", name.short)),
                domain => text.push_str(&format!("{ip}\t{}.{domain}\t{}\n", name.short, name.short)),
            }
        }
    }
    let aliases = pod.spec.as_ref().and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        aliases.iter().for_each(|alias| text.push_str(&alias_line(alias)));
    }
    text
}

/// Where a pod's `/etc/hosts` lies on the node.
pub(crate) fn hosts_path(config: &Config, uid: &str) -> PathBuf {
    config.root_dir.join("pods").join(uid).join("etc-hosts")
}

/// Writes a pod's `/etc/hosts` on the node and says how a container gets it. A container that mounts something at
/// `/etc/hosts` itself gets nothing, which is for the caller to see.
pub(crate) fn write_hosts(
    config: &Config,
    pod: &Pod,
    pod_ips: &[String],
    name: &HostName,
) -> std::io::Result<v1::Mount> {
    let path = hosts_path(config, pod.metadata.uid.as_deref().unwrap_or_default());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // A node without the file is no reason to keep a pod from running.
    let node_hosts = if host_network(pod) { read_or_empty(Path::new("/etc/hosts"))? } else { String::new() };
    let text = hosts(pod, pod_ips, name, &node_hosts);
    // Running containers see this file through a bind mount, so it is written in place and only when it differs.
    // Containers can write to it, also more than anybody wants to read.
    if linux::file::read_regular(&path, text.len() as u64).ok().as_deref() != Some(text.as_bytes()) {
        linux::file::write(&path, text, 0o644)?;
    }
    set_mode(&path, 0o644)?;
    Ok(v1::Mount {
        container_path: "/etc/hosts".into(),
        host_path: path.to_string_lossy().into_owned(),
        selinux_relabel: true,
        ..Default::default()
    })
}

/// The pod's resolver, from its policy, the cluster's DNS and the node's own `resolv.conf`.
pub fn dns(config: &Config, pod: &Pod, node_resolv_conf: &str) -> (v1::DnsConfig, Vec<Warning>) {
    let mut warnings = Vec::new();
    let spec = pod.spec.as_ref();
    let policy = spec.and_then(|spec| spec.dns_policy.as_deref()).unwrap_or("ClusterFirst");
    let mut dns = match policy {
        "None" => v1::DnsConfig::default(),
        "Default" => parse_resolv_conf(node_resolv_conf),
        "ClusterFirst" if host_network(pod) => parse_resolv_conf(node_resolv_conf),
        _ if config.cluster_dns.is_empty() => {
            warnings.push(Warning {
                reason: "MissingClusterDNS",
                message: format!(
                    "pod: {:?}. kubelet does not have ClusterDNS IP configured and cannot create Pod using {policy:?} policy. Falling back to \"Default\" policy.",
                    describe(pod)
                ),
            });
            parse_resolv_conf(node_resolv_conf)
        }
        _ => cluster_first(config, pod, parse_resolv_conf(node_resolv_conf)),
    };
    if let Some(wished) = spec.and_then(|spec| spec.dns_config.as_ref()) {
        append(&mut dns, wished);
    }
    fit_nameservers(&mut dns, &mut warnings);
    fit_searches(&mut dns, &mut warnings);
    (dns, warnings)
}

/// [`dns`] with the node's file read.
pub fn dns_config(config: &Config, pod: &Pod) -> std::io::Result<(v1::DnsConfig, Vec<Warning>)> {
    let node = if config.resolv_conf.as_os_str().is_empty() {
        // Upstream's answer to an empty --resolv-conf: a resolver that is not there, and the root as search path.
        "nameserver 127.0.0.1\nsearch .\n".to_owned()
    } else {
        linux::file::read_text_followed(&config.resolv_conf, FILE_BYTES_MAX)?
    };
    Ok(dns(config, pod, &node))
}

fn alias_line(alias: &HostAlias) -> String {
    format!("{}\t{}\n", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t"))
}

fn host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false)
}

/// A pod as upstream's messages write it: `name_namespace(uid)`.
fn describe(pod: &Pod) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let metadata = &pod.metadata;
    format!("{}_{}({})", part(&metadata.name), part(&metadata.namespace), part(&metadata.uid))
}

/// What a container may have made of its files is not read beyond this.
const FILE_BYTES_MAX: u64 = 4 << 20;

fn read_or_empty(path: &Path) -> std::io::Result<String> {
    match linux::file::read_text_followed(path, FILE_BYTES_MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        other => other,
    }
}

fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty()
        && name.len() <= HOST_NAME_MAX
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn is_subdomain(name: &str) -> bool {
    name.len() <= SEARCH_MAX && name.split('.').all(is_label)
}

/// Cut to so many bytes, with no `-` or `.` left at the end.
fn truncated(name: &str, max: usize) -> String {
    match name.get(..max) {
        Some(cut) if name.len() > max => cut.trim_end_matches(['-', '.']).to_owned(),
        _ => name.to_owned(),
    }
}

fn cluster_first(config: &Config, pod: &Pod, node: v1::DnsConfig) -> v1::DnsConfig {
    let mut searches = Vec::new();
    if !config.cluster_domain.is_empty() {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let domain = config.cluster_domain.as_str();
        searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_owned()];
    }
    searches.extend(node.searches);
    v1::DnsConfig {
        servers: config.cluster_dns.iter().map(ToString::to_string).collect(),
        searches: without_repeats(searches),
        options: vec!["ndots:5".into()],
    }
}

fn append(dns: &mut v1::DnsConfig, wished: &PodDNSConfig) {
    dns.servers.extend(wished.nameservers.iter().flatten().cloned());
    dns.searches.extend(wished.searches.iter().flatten().cloned());
    dns.servers = without_repeats(std::mem::take(&mut dns.servers));
    dns.searches = without_repeats(std::mem::take(&mut dns.searches));
    for option in wished.options.iter().flatten() {
        let name = option.name.as_deref().unwrap_or_default();
        let value = option.value.as_deref().filter(|value| !value.is_empty());
        set_option(&mut dns.options, value.map_or(name.to_owned(), |value| format!("{name}:{value}")));
    }
}

/// A later option of the same name takes the place of an earlier one.
fn set_option(options: &mut Vec<String>, option: String) {
    let name = |option: &str| option.split_once(':').map_or(option, |(name, _)| name).to_owned();
    match options.iter_mut().find(|known| name(known) == name(&option)) {
        Some(known) => *known = option,
        None => options.push(option),
    }
}

fn without_repeats(names: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}

fn parse_resolv_conf(text: &str) -> v1::DnsConfig {
    let mut dns = v1::DnsConfig::default();
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with('#') || line.starts_with(';') {
            continue;
        }
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => dns.servers.extend(words.next().map(str::to_owned)),
            // The last search line counts, as in the C library.
            Some("search") => dns.searches = words.map(without_root).collect(),
            Some("options") => words.for_each(|option| set_option(&mut dns.options, option.to_owned())),
            _ => {}
        }
    }
    dns
}

fn without_root(name: &str) -> String {
    match name {
        "." => name.to_owned(),
        _ => name.strip_suffix('.').unwrap_or(name).to_owned(),
    }
}

fn fit_nameservers(dns: &mut v1::DnsConfig, warnings: &mut Vec<Warning>) {
    if dns.servers.len() <= NAMESERVERS_MAX {
        return;
    }
    dns.servers.truncate(NAMESERVERS_MAX);
    warnings.push(Warning {
        reason: "DNSConfigForming",
        message: format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            dns.servers.join(" ")
        ),
    });
}

fn fit_searches(dns: &mut v1::DnsConfig, warnings: &mut Vec<Warning>) {
    let wished = dns.searches.len();
    dns.searches.truncate(SEARCHES_MAX);
    dns.searches.retain(|search| search.len() <= SEARCH_MAX);
    while dns.searches.join(" ").len() > SEARCH_LINE_MAX {
        dns.searches.pop();
    }
    if dns.searches.len() < wished {
        warnings.push(Warning {
            reason: "DNSConfigForming",
            message: format!(
                "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
                dns.searches.join(" ")
            ),
        });
    }
}

#[cfg(test)]
mod tests;
