//! The flags of upstream's kubelet and kube-proxy that knarr's take besides their own. Most of the kubelet's stand for fields
//! of its configuration: they are read as if they stood there, so that one list says what knarr can do.

use super::Fate::{Field, Only, Refused, Switch, Taken};
use super::Shape::{Amount, Flag, List, Pairs, Text, Thresholds};
use super::Table;

const NO_DRIVER: &str = "knarr's kubelet has no storage driver, as upstream's";

pub const KUBELET: Table = &[
    ("pod-infra-container-image", Taken),
    ("runtime-cgroups", Taken),
    ("cloud-provider", Only(&["", "external"], "clouds are the work of a cloud-controller-manager")),
    ("config-dir", Refused("give one file by --config")),
    ("anonymous-auth", Only(&["false"], "knarr's kubelet rejects anonymous requests")),
    ("authentication-token-webhook", Only(&["true"], "knarr's kubelet always asks the API server")),
    (
        "authentication-token-webhook-cache-ttl",
        Only(&["2m", "2m0s"], "knarr's kubelet remembers tokens for two minutes, as upstream's default"),
    ),
    ("authorization-mode", Only(&["Webhook"], "knarr's kubelet always asks the API server")),
    (
        "authorization-webhook-cache-authorized-ttl",
        Only(&["5m", "5m0s"], "knarr's kubelet remembers what is allowed for five minutes, as upstream's default"),
    ),
    (
        "authorization-webhook-cache-unauthorized-ttl",
        Only(&["30s"], "knarr's kubelet remembers what is forbidden for 30 seconds, as upstream's default"),
    ),
    ("read-only-port", Only(&["0"], "knarr's kubelet rejects anonymous requests")),
    ("cgroup-driver", Only(&["cgroupfs", "systemd"], "the container runtime decides")),
    ("lock-file", Refused("knarr's kubelet locks nothing: let systemd run one of them")),
    ("exit-on-lock-contention", Only(&["false"], "knarr's kubelet locks nothing")),
    ("runonce", Only(&["false"], "knarr's kubelet runs until it is stopped")),
    ("manifest-url-header", Refused("knarr's kubelet reads static pods from files: use --pod-manifest-path")),
    ("minimum-container-ttl-duration", Only(&["0", "0s"], "knarr removes dead containers as upstream's default")),
    ("maximum-dead-containers-per-container", Only(&["1"], "knarr keeps one dead container, as upstream's default")),
    ("maximum-dead-containers", Only(&["-1"], "knarr removes dead containers as upstream's default")),
    ("experimental-mounter-path", Only(&[""], "knarr mounts by itself")),
    ("experimental-allocatable-ignore-eviction", Only(&["false"], "knarr sets thresholds of eviction aside")),
    ("reserved-memory", Refused("give reservedMemory in the file of --config")),
    // Fields of the configuration.
    ("allowed-unsafe-sysctls", Field("allowedUnsafeSysctls", List)),
    ("cgroups-per-qos", Field("cgroupsPerQOS", Flag)),
    ("container-log-max-files", Field("containerLogMaxFiles", Amount)),
    ("container-log-max-size", Field("containerLogMaxSize", Text)),
    ("cpu-cfs-quota", Field("cpuCFSQuota", Flag)),
    ("cpu-cfs-quota-period", Field("cpuCFSQuotaPeriod", Text)),
    ("cpu-manager-policy", Field("cpuManagerPolicy", Text)),
    ("cpu-manager-policy-options", Field("cpuManagerPolicyOptions", Pairs)),
    ("cpu-manager-reconcile-period", Field("cpuManagerReconcilePeriod", Text)),
    ("enable-controller-attach-detach", Field("enableControllerAttachDetach", Flag)),
    ("enable-debugging-handlers", Field("enableDebuggingHandlers", Flag)),
    ("enable-server", Field("enableServer", Flag)),
    ("enforce-node-allocatable", Field("enforceNodeAllocatable", List)),
    ("event-burst", Field("eventBurst", Amount)),
    ("event-qps", Field("eventRecordQPS", Amount)),
    ("eviction-max-pod-grace-period", Field("evictionMaxPodGracePeriod", Amount)),
    ("eviction-minimum-reclaim", Field("evictionMinimumReclaim", Pairs)),
    ("eviction-pressure-transition-period", Field("evictionPressureTransitionPeriod", Text)),
    ("eviction-soft", Field("evictionSoft", Thresholds)),
    ("eviction-soft-grace-period", Field("evictionSoftGracePeriod", Pairs)),
    ("fail-cgroupv1", Field("failCgroupV1", Flag)),
    ("fail-swap-on", Field("failSwapOn", Flag)),
    ("file-check-frequency", Field("fileCheckFrequency", Text)),
    ("hairpin-mode", Field("hairpinMode", Text)),
    ("http-check-frequency", Field("httpCheckFrequency", Text)),
    ("image-gc-high-threshold", Field("imageGCHighThresholdPercent", Amount)),
    ("image-gc-low-threshold", Field("imageGCLowThresholdPercent", Amount)),
    ("image-service-endpoint", Field("imageServiceEndpoint", Text)),
    ("kernel-memcg-notification", Field("kernelMemcgNotification", Flag)),
    ("kube-reserved", Field("kubeReserved", Pairs)),
    ("kube-reserved-cgroup", Field("kubeReservedCgroup", Text)),
    ("kubelet-cgroups", Field("kubeletCgroups", Text)),
    ("local-storage-capacity-isolation", Field("localStorageCapacityIsolation", Flag)),
    ("make-iptables-util-chains", Field("makeIPTablesUtilChains", Flag)),
    ("manifest-url", Field("staticPodURL", Text)),
    ("max-open-files", Field("maxOpenFiles", Amount)),
    ("memory-manager-policy", Field("memoryManagerPolicy", Text)),
    ("minimum-image-ttl-duration", Field("imageMinimumGCAge", Text)),
    ("node-status-max-images", Field("nodeStatusMaxImages", Amount)),
    ("node-status-update-frequency", Field("nodeStatusUpdateFrequency", Text)),
    ("oom-score-adj", Field("oomScoreAdj", Amount)),
    ("pod-max-pids", Field("podPidsLimit", Amount)),
    ("pods-per-core", Field("podsPerCore", Amount)),
    ("protect-kernel-defaults", Field("protectKernelDefaults", Flag)),
    ("provider-id", Field("providerID", Text)),
    ("qos-reserved", Field("qosReserved", Pairs)),
    ("register-node", Field("registerNode", Flag)),
    ("registry-burst", Field("registryBurst", Amount)),
    ("registry-qps", Field("registryPullQPS", Amount)),
    ("reserved-cpus", Field("reservedSystemCPUs", Text)),
    ("rotate-server-certificates", Field("serverTLSBootstrap", Flag)),
    ("runtime-request-timeout", Field("runtimeRequestTimeout", Text)),
    ("seccomp-default", Field("seccompDefault", Flag)),
    ("serialize-image-pulls", Field("serializeImagePulls", Flag)),
    ("streaming-connection-idle-timeout", Field("streamingConnectionIdleTimeout", Text)),
    ("sync-frequency", Field("syncFrequency", Text)),
    ("system-cgroups", Field("systemCgroups", Text)),
    ("system-reserved", Field("systemReserved", Pairs)),
    ("system-reserved-cgroup", Field("systemReservedCgroup", Text)),
    ("topology-manager-policy", Field("topologyManagerPolicy", Text)),
    ("topology-manager-policy-options", Field("topologyManagerPolicyOptions", Pairs)),
    ("topology-manager-scope", Field("topologyManagerScope", Text)),
    ("volume-plugin-dir", Field("volumePluginDir", Text)),
    ("volume-stats-agg-period", Field("volumeStatsAggPeriod", Text)),
    // Of cadvisor, which upstream's kubelet takes by mistake: knarr measures when somebody asks, and asks the runtime.
    ("housekeeping-interval", Taken),
    ("global-housekeeping-interval", Taken),
    ("application-metrics-count-limit", Taken),
    ("event-storage-age-limit", Taken),
    ("event-storage-event-limit", Taken),
    ("containerd", Taken),
    ("containerd-namespace", Taken),
    ("boot-id-file", Only(&["/proc/sys/kernel/random/boot_id"], "the kernel says so there")),
    ("machine-id-file", Only(&["/etc/machine-id", "/var/lib/dbus/machine-id"], "systemd says so there")),
    ("container-hints", Only(&["/etc/cadvisor/container_hints.json"], "knarr needs no hints about containers")),
    ("enable-load-reader", Only(&["false"], "knarr's kubelet reads no loads")),
    ("log-cadvisor-usage", Only(&["false"], "knarr's kubelet has no cadvisor")),
    ("storage-driver-user", Only(&["root", ""], NO_DRIVER)),
    ("storage-driver-password", Only(&["root", ""], NO_DRIVER)),
    ("storage-driver-host", Only(&["localhost:8086", ""], NO_DRIVER)),
    ("storage-driver-db", Only(&["cadvisor", ""], NO_DRIVER)),
    ("storage-driver-table", Only(&["stats", ""], NO_DRIVER)),
    ("storage-driver-secure", Only(&["false"], NO_DRIVER)),
    ("storage-driver-buffer-duration", Only(&["1m", "1m0s", ""], NO_DRIVER)),
];

const BY_RANGE: &str = "knarr knows pods by --cluster-cidr";

pub const PROXY: Table = &[
    ("proxy-mode", Only(&["", "nftables"], "knarr's rules are nftables'")),
    ("masquerade-all", Only(&["false"], "knarr hides only the sources that must be hidden")),
    ("config-sync-period", Taken),
    ("oom-score-adj", Taken),
    ("bind-address-hard-fail", Switch),
    ("write-config-to", Refused("knarr's proxy writes no file; what it takes by --config is in the documentation")),
    ("init-only", Only(&["false"], "knarr's proxy needs nothing before its rules")),
    ("detect-local-mode", Only(&["", "ClusterCIDR"], BY_RANGE)),
    ("pod-bridge-interface", Only(&[""], BY_RANGE)),
    ("pod-interface-name-prefix", Only(&[""], BY_RANGE)),
    ("healthz-port", Refused("give --healthz-bind-address")),
    ("metrics-port", Refused("give --metrics-bind-address")),
    // For modes that are not used: upstream does not look at them either.
    ("iptables-masquerade-bit", Taken),
    ("iptables-localhost-nodeports", Switch),
    ("iptables-sync-period", Taken),
    ("iptables-min-sync-period", Taken),
    ("ipvs-sync-period", Taken),
    ("ipvs-min-sync-period", Taken),
    ("ipvs-scheduler", Taken),
    ("ipvs-exclude-cidrs", Taken),
    ("ipvs-strict-arp", Switch),
    ("ipvs-tcp-timeout", Taken),
    ("ipvs-tcpfin-timeout", Taken),
    ("ipvs-udp-timeout", Taken),
];

#[cfg(test)]
mod tests {
    use super::super::{sift, tables};

    /// All flags of upstream's programs of v1.36.4, one a line.
    const KUBELET_FLAGS: &str = include_str!("kubelet-flags.txt");
    const PROXY_FLAGS: &str = include_str!("kube-proxy-flags.txt");

    #[test]
    fn every_flag_of_upstream_is_known() {
        let all = crate::configuration::command(<crate::Arguments as clap::CommandFactory>::command());
        for (component, flags) in [("kubelet", KUBELET_FLAGS), ("kube-proxy", PROXY_FLAGS)] {
            let own = all.find_subcommand(component).expect("it is a command");
            for flag in flags.lines() {
                let is_taken =
                    tables(component).unwrap().iter().flat_map(|table| table.iter()).any(|(name, _)| *name == flag);
                let is_own = own.get_arguments().any(|argument| argument.get_long() == Some(flag));
                let is_everybodys = matches!(flag, "help" | "v" | "version");
                assert!(is_taken || is_own || is_everybodys, "{component} --{flag}");
                assert!(!(is_taken && is_own), "{component} --{flag} is in two places");
            }
        }
    }

    #[test]
    fn flags_become_fields() {
        let sifted = |line: &str| {
            let sifted = sift(line.split(' ').map(Into::into))?;
            let words: Vec<String> = sifted.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            anyhow::Ok(words[2..].join(" "))
        };
        let check = |flag: &str, expected: &str| {
            assert_eq!(sifted(&format!("knarr kubelet {flag}")).unwrap(), format!("--field={expected}"), "{flag}");
        };
        check("--pod-max-pids 100", "podPidsLimit=100");
        check("--event-qps=0.5", "eventRecordQPS=0.5");
        check("--rotate-server-certificates", "serverTLSBootstrap=true");
        check("--serialize-image-pulls=false", "serializeImagePulls=false");
        check("--container-log-max-size=5Mi", "containerLogMaxSize=\"5Mi\"");
        check("--allowed-unsafe-sysctls=a,b", "allowedUnsafeSysctls=[\"a\",\"b\"]");
        check("--system-reserved=cpu=1,memory=1Gi", "systemReserved={\"cpu\":\"1\",\"memory\":\"1Gi\"}");
        check("--eviction-soft=memory.available<1Gi", "evictionSoft={\"memory.available\":\"1Gi\"}");
        let refused = |line: &str| sifted(line).unwrap_err().to_string();
        assert_eq!(refused("knarr kubelet --pod-max-pids=x"), "--pod-max-pids: \"x\" is not a number");
        assert_eq!(refused("knarr kubelet --kube-reserved=x"), "--kube-reserved: \"x\" has no '='");
    }
}
