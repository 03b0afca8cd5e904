//! What kubeadm writes is read, and what cannot be done is refused.

use super::*;

/// What kubeadm writes.
const KUBEADM: &str = r#"
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
kind: KubeletConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
"#;

fn file(text: &str) -> anyhow::Result<File> {
    File::of(component_config::parse(text.as_bytes(), known::API_VERSION, known::KIND)?)
}

#[test]
fn kubeadms_file_is_read_and_zeros_are_defaults() {
    let file = file(KUBEADM).unwrap();
    assert_eq!(file.cluster_dns, [IpAddr::from([10, 96, 0, 10])]);
    assert_eq!(file.static_pod_path, Path::new("/etc/kubernetes/manifests"));
    assert_eq!(file.authentication.x509.client_ca_file, Path::new("/etc/kubernetes/pki/ca.crt"));
    assert_eq!((file.eviction_pressure_transition_period.as_str(), file.image_minimum_gc_age.as_str()), ("5m", "2m"));
    assert!(file.rotate_certificates && !file.server_tls_bootstrap);
    assert_eq!((file.max_pods, file.runtime_endpoint(), file.eviction_hard.clone()), (110, None, None));
    assert_eq!(file.power_off_periods().all, Duration::from_secs(30));
}

#[test]
fn what_a_file_says_is_done_or_refused() {
    let with = |line: &str| file(&format!("apiVersion: {}\nkind: {}\n{line}\n", known::API_VERSION, known::KIND));
    assert_eq!(with("maxPods: 7").unwrap().max_pods, 7);
    assert_eq!(with("healthzPort: 0").unwrap().healthz_port, 0);
    assert_eq!(with("resolvConf: ''").unwrap().resolv_conf.as_deref(), Some(""));
    let periods = with("shutdownGracePeriod: 20s\nshutdownGracePeriodCriticalPods: 5s").unwrap().power_off_periods();
    assert_eq!((periods.all.as_secs(), periods.critical.as_secs()), (20, 5));
    let taints = with("registerWithTaints: [{key: a, effect: NoSchedule}]").unwrap().register_with_taints;
    assert_eq!((taints[0].key.as_str(), taints[0].effect.as_str()), ("a", "NoSchedule"));
    for (line, expected) in [
        ("readOnlyPort: 10255", "readOnlyPort: 10255: not supported by knarr"),
        ("cpuManagerPolicy: dynamic", "unknown CPU manager policy \"dynamic\""),
        ("cpuManagerPolicyOptions: {full-pcpus-only: 'true'}", "need the policy static"),
        ("reservedSystemCPUs: x", "reserved CPUs"),
        ("memorySwap: {swapBehavior: UnlimitedSwap}", "memorySwap.swapBehavior \"UnlimitedSwap\" must be one of"),
        ("featureGates: {NodeSwap: true}", "featureGates: NodeSwap: true: not supported by knarr"),
        ("runOnce: true", "runOnce: true: not supported by knarr: it would need a kubelet that ends"),
        ("nonsense: 1", "unknown field `nonsense`"),
        ("authentication: {anonymous: {enabled: true}}", "rejects anonymous requests"),
        ("authorization: {mode: AlwaysAllow}", "set it to Webhook"),
        ("imageGCLowThresholdPercent: 90", "must be less than"),
        ("tlsCertFile: /a", "belong together"),
    ] {
        let error = format!("{:#}", with(line).unwrap_err());
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn swap_stops_a_kubelet_that_is_told_nothing_about_it() {
    let with = |line: &str| file(&format!("apiVersion: {}\nkind: {}\n{line}\n", known::API_VERSION, known::KIND));
    let refused = with("maxPods: 7").unwrap().check_machine_swap(1 << 30).unwrap_err().to_string();
    let sentence = "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false";
    assert_eq!(refused, sentence);
    assert!(with("maxPods: 7").unwrap().check_machine_swap(0).is_ok());
    assert!(with("failSwapOn: false").unwrap().check_machine_swap(1 << 30).is_ok());
    assert!(with("failSwapOn: true").unwrap().check_machine_swap(1 << 30).is_err());
}

/// Upstream's fields of v1.36.4, one a line.
const FIELDS: &str = include_str!("../fields.txt");

#[test]
fn every_field_of_upstream_is_done_or_has_a_sentence() {
    let is_read = |name: &str| {
        let read = serde_json::from_value::<File>(serde_json::json!({name: null}));
        !read.is_err_and(|error| error.to_string().contains("unknown field"))
    };
    let mut count = 0;
    for field in FIELDS.lines() {
        let has_sentence = known::FIELDS.iter().filter(|(name, _)| *name == field).count();
        assert_eq!(usize::from(is_read(field)) + has_sentence, 1, "{field}");
        count += 1;
    }
    assert!(count > 120, "{count}");
    for (name, _) in known::FIELDS {
        assert!(FIELDS.lines().any(|field| field == *name), "upstream has no field {name}");
    }
    assert!(!is_read("nonsense"), "what nobody has is noticed");
}

#[test]
fn managers_of_a_file() {
    let with =
        |text: &str| file(&format!("apiVersion: {}\nkind: {}\n{text}\n", known::API_VERSION, known::KIND)).unwrap();
    let file = with(
        "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {align-by-socket: 'true'}\nreservedSystemCPUs: 0-1\n\
         featureGates: {CPUManagerPolicyAlphaOptions: true}\nmemoryManagerPolicy: Static\n\
         reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\ntopologyManagerScope: pod",
    );
    let settings = file.managers().unwrap();
    assert!(settings.cpu_options.align_by_socket);
    assert_eq!((settings.reserved_cpus.len(), settings.reserved_memory[0].limits["memory"].as_str()), (2, "1Gi"));
    assert_eq!((with("oomScoreAdj: 0").oom_score_adj, with("oomScoreAdj: -7").oom_score_adj), (Some(0), Some(-7)));
    assert!(with("podsPerCore: 1").pods_max() < 110);
    let merged = with("mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Gi}").eviction_hard();
    assert_eq!((merged.len(), merged["memory.available"].as_str()), (5, "1Gi"));
    assert_eq!(with("evictionHard: {memory.available: 1Gi}").eviction_hard().len(), 1);
}
