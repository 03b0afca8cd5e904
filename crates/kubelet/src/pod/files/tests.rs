//! Names, hosts and resolvers of pods, held against what upstream's kubelet really wrote.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;

fn pod(spec: Value) -> Pod {
    let metadata = json!({"name": "running", "namespace": "obs", "uid": "u-1"});
    let mut pod = json!({"metadata": metadata, "spec": {"containers": []}});
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

fn config(cluster_dns: &[&str]) -> Config {
    Config {
        node_name: "node-1".into(),
        addresses: crate::node::addresses::Addresses::fixed(Vec::new()),
        node_external_ips: Vec::new(),
        node_labels: BTreeMap::new(),
        register_with_taints: Vec::new(),
        root_dir: "/nowhere".into(),
        root_dir_of_drivers: "/nowhere".into(),
        log_dir: "/nowhere".into(),
        static_pod_path: None,
        bind_address: IpAddr::from([127, 0, 0, 1]),
        port: 0,
        serving_certificate: Arc::new(rustls::server::ResolvesServerCertUsingSni::new()),
        client_ca: String::new(),
        cluster_dns: cluster_dns.iter().map(|address| address.parse().unwrap()).collect(),
        cluster_domain: "cluster.local".into(),
        resolv_conf: "/nowhere".into(),
        pods_max: 110,
        pod_cidr: None,
        cgroup_root: "/".into(),
        pod_pids_limit: None,
        kube_reserved: BTreeMap::new(),
        system_reserved: BTreeMap::new(),
        managers: Default::default(),
        swap_behavior: Default::default(),
        fail_swap_on: false,
        credential_providers: None,
        eviction_hard: BTreeMap::new(),
        eviction_soft: BTreeMap::new(),
        eviction_soft_grace_period: BTreeMap::new(),
        eviction_pressure_transition_period: Duration::ZERO,
        image_gc_high_threshold_percent: 85,
        image_gc_low_threshold_percent: 80,
        image_minimum_gc_age: Duration::ZERO,
        container_log_max_size: 0,
        container_log_max_files: 0,
        node_status_update_frequency: Duration::ZERO,
        node_status_report_frequency: Duration::ZERO,
        node_lease_duration: Duration::ZERO,
        power_off: Default::default(),
        allowed_unsafe_sysctls: Vec::new(),
        image_pulls_max: 1,
        shown: Default::default(),
        clock: Default::default(),
    }
}

fn lines(dns: &v1::DnsConfig) -> String {
    let v1::DnsConfig { servers, searches, options } = dns;
    format!("search {}\nnameserver {}\noptions {}", searches.join(" "), servers.join(" "), options.join(" "))
}

#[test]
fn hosts_as_observed() {
    let pod = pod(json!({}));
    let name = host_name(&pod, "cluster.local").unwrap();
    let expected = "# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
10.244.0.7\trunning
";
    assert_eq!(hosts(&pod, &["10.244.0.7".into()], &name, ""), expected);
}

#[test]
fn hosts_with_a_domain_aliases_and_the_nodes_network() {
    let aliases = json!([{"ip": "192.0.2.1", "hostnames": ["a", "b"]}]);
    let domain = pod(json!({"subdomain": "sub", "hostname": "host", "hostAliases": aliases}));
    let name = host_name(&domain, "cluster.local").unwrap();
    let text = hosts(&domain, &["10.0.0.1".into(), "fd00::1".into()], &name, "");
    let tail = "10.0.0.1\thost.sub.obs.svc.cluster.local\thost\nfd00::1\thost.sub.obs.svc.cluster.local\thost\n\n# Entries added by HostAliases.\n192.0.2.1\ta\tb\n";
    assert!(text.ends_with(tail), "{text}");
    let host = pod(json!({"hostNetwork": true}));
    let name = host_name(&host, "cluster.local").unwrap();
    let text = hosts(&host, &[], &name, "127.0.0.1 localhost\n");
    assert_eq!(text, "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n");
    assert_eq!(kernel_host_name(&host, &name).unwrap(), "");
}

#[test]
fn host_names() {
    let kernel = |spec: Value| {
        let pod = pod(spec);
        host_name(&pod, "cluster.local").and_then(|name| kernel_host_name(&pod, &name))
    };
    assert_eq!(kernel(json!({})).unwrap(), "running");
    assert_eq!(kernel(json!({"hostname": "h", "subdomain": "s"})).unwrap(), "h");
    let whole = json!({"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true});
    assert_eq!(kernel(whole).unwrap(), "h.s.obs.svc.cluster.local");
    assert_eq!(kernel(json!({"hostnameOverride": "any.name.example", "subdomain": "s"})).unwrap(), "any.name.example");
    let long = json!({"hostname": "h".repeat(50), "subdomain": "s", "setHostnameAsFQDN": true});
    let fqdn = format!("{}.s.obs.svc.cluster.local", "h".repeat(50));
    let expected = format!(
        "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long (64 characters is the max, {} characters requested)",
        fqdn.len()
    );
    assert_eq!(kernel(long).unwrap_err().to_string(), expected);
    assert!(
        kernel(json!({"hostname": "No_Label"}))
            .unwrap_err()
            .to_string()
            .starts_with("pod Hostname \"No_Label\" is not a valid DNS label")
    );
    let mut named = pod(json!({}));
    named.metadata.name = Some(format!("{}-.{}", "n".repeat(61), "tail"));
    assert_eq!(host_name(&named, "").unwrap().short, "n".repeat(61));
}

#[test]
fn resolvers() {
    let node = "# comment\nnameserver 192.0.2.53\nsearch example.org. other.example\noptions edns0\n";
    let made = |spec: Value| dns(&config(&["10.96.0.10"]), &pod(spec), node);
    let observed = dns(&config(&["10.96.0.10"]), &pod(json!({})), "nameserver 192.0.2.53\n");
    let expected =
        "search obs.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5";
    assert_eq!((lines(&observed.0).as_str(), observed.1.len()), (expected, 0));
    let cluster = "search obs.svc.cluster.local svc.cluster.local cluster.local example.org other.example\nnameserver 10.96.0.10\noptions ndots:5";
    let default = "search example.org other.example\nnameserver 192.0.2.53\noptions edns0";
    assert_eq!(lines(&made(json!({"dnsPolicy": "ClusterFirst"})).0), cluster);
    assert_eq!(lines(&made(json!({"dnsPolicy": "Default"})).0), default);
    assert_eq!(lines(&made(json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true})).0), default);
    assert_eq!(lines(&made(json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true})).0), cluster);
    let own = json!({
        "nameservers": ["192.0.2.1"], "searches": ["my.example"],
        "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}],
    });
    let none = made(json!({"dnsPolicy": "None", "dnsConfig": own}));
    assert_eq!(lines(&none.0), "search my.example\nnameserver 192.0.2.1\noptions ndots:2 rotate");
    let merged = made(json!({"dnsConfig": own})).0;
    assert_eq!(merged.servers, ["10.96.0.10", "192.0.2.1"]);
    assert_eq!(merged.searches.last().unwrap(), "my.example");
    assert_eq!(merged.options, ["ndots:2", "rotate"]);
    let missing = dns(&config(&[]), &pod(json!({})), node);
    assert_eq!(lines(&missing.0), default);
    assert_eq!(missing.1[0].reason, "MissingClusterDNS");
}

#[test]
fn limits_are_kept_and_said() {
    let searches: Vec<String> = (0..40).map(|number| format!("s{number}.example")).collect();
    let own = json!({"nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"], "searches": searches});
    let (made, warnings) = dns(&config(&[]), &pod(json!({"dnsPolicy": "None", "dnsConfig": own})), "");
    assert_eq!((made.servers.len(), made.searches.len()), (3, 32));
    assert_eq!(
        warnings[0].message,
        "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 192.0.2.1 192.0.2.2 192.0.2.3"
    );
    assert!(warnings[1].message.starts_with(
        "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: s0.example"
    ));
    let long: Vec<String> = (0..20).map(|number| format!("{}{number:02}", "s".repeat(198))).collect();
    let own = json!({"searches": long});
    let (made, warnings) = dns(&config(&[]), &pod(json!({"dnsPolicy": "None", "dnsConfig": own})), "");
    assert_eq!((made.searches.len(), warnings.len()), (10, 1));
    assert!(made.searches.join(" ").len() <= 2048);
}
