//! The fields of a KubeletConfiguration that knarr's kubelet has no choice about: those that change nothing that anyone could see, and those
//! that may only say what it does anyway. All others are read by `file.rs`; together they are all that upstream has.

use anyhow::bail;
use serde_json::{Map, Value};

use self::Fate::{Free, Only};
use crate::component_config::says_nothing;

pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
pub const KIND: &str = "KubeletConfiguration";

pub enum Fate {
    /// It may say anything, which has no effect, and why: told when it says something.
    Free(&'static str),
    /// It may say these, or nothing; what another value would need.
    Only(&'static [&'static str], &'static str),
}

pub const FIELDS: &[(&str, Fate)] = &[
    ("syncFrequency", Free("pods are looked at when something changes, not after a time")),
    ("fileCheckFrequency", Free("files of static pods are watched, not polled")),
    ("httpCheckFrequency", Free("there are no static pods from the network")),
    ("registryPullQPS", Free("pulls are limited by serializeImagePulls and maxParallelImagePulls, not by a rate")),
    ("registryBurst", Free("pulls are limited by serializeImagePulls and maxParallelImagePulls, not by a rate")),
    (
        "eventRecordQPS",
        Free("events are limited for each object, as upstream's spam filter does, not by a rate of the node"),
    ),
    (
        "eventBurst",
        Free("events are limited for each object, as upstream's spam filter does, not by a rate of the node"),
    ),
    (
        "streamingConnectionIdleTimeout",
        Free("an idle stream is ended by its client or its container, never by the kubelet"),
    ),
    ("volumeStatsAggPeriod", Free("volumes are measured when somebody asks")),
    ("kubeletCgroups", Free("the service manager that starts knarr decides its cgroup")),
    ("runtimeRequestTimeout", Free("calls of a runtime have two minutes, upstream's default")),
    ("maxOpenFiles", Free("the service manager that starts knarr sets it")),
    ("contentType", Free("knarr asks the API in JSON")),
    ("kubeAPIQPS", Free("the API server limits its clients by priority and fairness")),
    ("kubeAPIBurst", Free("the API server limits its clients by priority and fairness")),
    ("makeIPTablesUtilChains", Free("knarr's rules are nftables' and need no helper chains")),
    ("iptablesMasqueradeBit", Free("knarr's rules are nftables' and need no mark")),
    ("iptablesDropBit", Free("knarr's rules are nftables' and need no mark")),
    ("containerLogMaxWorkers", Free("each container rotates its own log")),
    ("containerLogMonitorInterval", Free("logs are rotated when they are written, not after a time")),
    ("volumePluginDir", Free("flexvolumes are gone from knarr; drivers are CSI's")),
    ("kernelMemcgNotification", Free("memory pressure is heard from the kernel by PSI")),
    ("logging", Free("knarr logs as its own flags say")),
    ("showHiddenMetricsForVersion", Free("knarr hides no metrics")),
    ("enableServer", Only(&["true"], "logs, exec and metrics need the kubelet's server")),
    ("runOnce", Only(&[], "a kubelet that ends after one look at static pods")),
    ("staticPodURL", Only(&[], "static pods from the network; use staticPodPath")),
    ("staticPodURLHeader", Only(&[], "static pods from the network; use staticPodPath")),
    ("readOnlyPort", Only(&[], "a server without authentication; use port and a client certificate or token")),
    ("tlsCipherSuites", Only(&[], "a choice of ciphers; knarr's are rustls' of TLS 1.2 and 1.3")),
    ("tlsCurvePreferences", Only(&[], "a choice of key exchanges; knarr's are rustls'")),
    ("tlsMinVersion", Only(&["VersionTLS12"], "another lowest version of TLS than 1.2")),
    ("enableDebuggingHandlers", Only(&["true"], "a server without logs and exec")),
    ("enableContentionProfiling", Only(&[], "Go's profiler")),
    ("enableProfilingHandler", Only(&[], "Go's profiler")),
    ("enableDebugFlagsHandler", Only(&[], "changing log levels by the kubelet's server")),
    ("enableSystemLogHandler", Only(&["true"], "a server without the node's logs")),
    ("enableSystemLogQuery", Only(&[], "queries of journald by the kubelet's server")),
    ("systemCgroups", Only(&[], "moving the host's processes into a cgroup")),
    ("cgroupsPerQOS", Only(&["true"], "pods without QoS cgroups")),
    (
        "cgroupDriver",
        Only(&["systemd", "cgroupfs"], "another driver than those; the container runtime decides between them"),
    ),
    ("qosReserved", Only(&[], "memory that is kept for a QoS class, an alpha feature of upstream")),
    (
        "hairpinMode",
        Only(&["promiscuous-bridge", "hairpin-veth"], "pods that do not reach themselves by their Service"),
    ),
    ("cpuCFSQuota", Only(&["true"], "containers without their CPU limits")),
    (
        "cpuCFSQuotaPeriod",
        Only(&["100ms"], "another period of CPU limits, behind a gate of upstream that is off by default"),
    ),
    ("nodeStatusMaxImages", Only(&["50"], "another number of images in the node's status than 50")),
    ("evictionMaxPodGracePeriod", Only(&[], "a limit of the grace period of evicted pods")),
    ("evictionMinimumReclaim", Only(&[], "eviction beyond what the thresholds ask for")),
    ("enableControllerAttachDetach", Only(&["true"], "attaching volumes by the kubelet; the controller does it")),
    ("protectKernelDefaults", Only(&[], "a check of sysctls at the start")),
    ("configMapAndSecretChangeDetectionStrategy", Only(&["Watch"], "polling ConfigMaps and Secrets; they are watched")),
    ("systemReservedCgroup", Only(&[], "limits of the host's own cgroups")),
    ("kubeReservedCgroup", Only(&[], "limits of knarr's own cgroup")),
    ("enforceNodeAllocatable", Only(&["[\"pods\"]"], "limits of other cgroups than that of pods")),
    ("providerID", Only(&[], "an identity given by hand; a cloud-controller-manager sets it")),
    (
        "shutdownGracePeriodByPodPriority",
        Only(&[], "grace periods by priority; use shutdownGracePeriod and shutdownGracePeriodCriticalPods"),
    ),
    ("seccompDefault", Only(&[], "RuntimeDefault for pods that do not ask for a profile")),
    ("memoryThrottlingFactor", Only(&["0.9"], "MemoryQoS, an alpha feature of upstream")),
    ("memoryReservationPolicy", Only(&["None"], "MemoryQoS, an alpha feature of upstream")),
    ("registerNode", Only(&["true"], "a node that somebody else makes")),
    ("tracing", Only(&[], "spans of OpenTelemetry")),
    ("localStorageCapacityIsolation", Only(&["true"], "pods without limits of their local storage")),
    ("imageMaximumGCAge", Only(&[], "removing images by their age alone")),
    ("imageServiceEndpoint", Only(&[], "images from another endpoint than containers")),
    ("crashLoopBackOff", Only(&[], "another longest delay between crashes than five minutes")),
    ("userNamespaces", Only(&[], "another number of users for each pod than 65536")),
    (
        "singleProcessOOMKill",
        Only(&[], "ending one process of a container that is out of memory; the container ends as a whole"),
    ),
    (
        "imagePullCredentialsVerificationPolicy",
        Only(&["NeverVerifyPreloadedImages"], "another policy of images that are on the node"),
    ),
    ("preloadedImagesVerificationAllowlist", Only(&[], "another policy of images that are on the node")),
];

/// Refuses what would need something that knarr does not have, and tells what has no effect.
pub fn check(fields: &Map<String, Value>) -> anyhow::Result<()> {
    for (name, value) in fields.iter().filter(|(_, value)| !says_nothing(value)) {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match FIELDS.iter().find(|(known, _)| known == name) {
            None => bail!("unknown field {name}"),
            Some((_, Free(why))) => {
                tracing::info!(field = name, value = text, why, "field of the KubeletConfiguration has no effect")
            }
            Some((_, Only(good, _))) if good.contains(&text.as_str()) => {}
            Some((_, Only(_, needs))) => bail!("{name}: {text}: not supported by knarr: it would need {needs}"),
        }
    }
    Ok(())
}
