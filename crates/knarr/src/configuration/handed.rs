//! `--kubelet-arg max-pods=50` and its siblings: flags of the parts by the names that upstream's programs have.

use anyhow::bail;
use clap::{Arg, ArgAction, ArgMatches};

use super::merge::nearest;

/// A part, the flag that hands it something, and what it can be told: its own name for it, and ours.
struct Part {
    flag: &'static str,
    name: &'static str,
    /// Whether agents have it.
    on_agents: bool,
    known: &'static [(&'static str, &'static str)],
}

static PARTS: [Part; 5] = [
    Part {
        flag: "kubelet-arg",
        name: "kubelet",
        on_agents: true,
        known: &[
            ("allowed-unsafe-sysctls", "allowed-unsafe-sysctls"),
            ("cgroup-root", "cgroup-root"),
            ("container-log-max-files", "container-log-max-files"),
            ("container-log-max-size", "container-log-max-size"),
            ("container-runtime-endpoint", "container-runtime-endpoint"),
            ("cpu-manager-policy", "cpu-manager-policy"),
            ("cpu-manager-policy-options", "cpu-manager-policy-options"),
            ("eviction-hard", "eviction-hard"),
            ("eviction-pressure-transition-period", "eviction-pressure-transition-period"),
            ("eviction-soft", "eviction-soft"),
            ("eviction-soft-grace-period", "eviction-soft-grace-period"),
            ("hostname-override", "node-name"),
            ("image-credential-provider-bin-dir", "image-credential-provider-bin-dir"),
            ("image-credential-provider-config", "image-credential-provider-config"),
            ("image-gc-high-threshold", "image-gc-high-threshold"),
            ("image-gc-low-threshold", "image-gc-low-threshold"),
            ("kube-reserved", "kube-reserved"),
            ("max-pods", "max-pods"),
            ("memory-manager-policy", "memory-manager-policy"),
            ("minimum-image-ttl-duration", "minimum-image-ttl-duration"),
            ("node-ip", "node-ip"),
            ("node-labels", "node-label"),
            ("node-status-update-frequency", "node-status-update-frequency"),
            ("pod-manifest-path", "pod-manifest-path"),
            ("pod-max-pids", "pod-max-pids"),
            ("port", "kubelet-port"),
            ("register-with-taints", "node-taint"),
            ("reserved-cpus", "reserved-cpus"),
            ("reserved-memory", "reserved-memory"),
            ("resolv-conf", "resolv-conf"),
            ("system-reserved", "system-reserved"),
            ("topology-manager-policy", "topology-manager-policy"),
            ("topology-manager-policy-options", "topology-manager-policy-options"),
            ("topology-manager-scope", "topology-manager-scope"),
        ],
    },
    Part {
        flag: "kube-proxy-arg",
        name: "kube-proxy",
        on_agents: true,
        known: &[
            ("healthz-bind-address", "proxy-healthz-address"),
            ("metrics-bind-address", "proxy-metrics-address"),
            ("nodeport-addresses", "nodeport-addresses"),
        ],
    },
    Part {
        flag: "kube-apiserver-arg",
        name: "kube-apiserver",
        on_agents: false,
        known: &[
            ("admission-control-config-file", "admission-control-config-file"),
            ("advertise-address", "advertise-address"),
            ("anonymous-auth", "anonymous-auth"),
            ("api-audiences", "api-audiences"),
            ("audit-log-format", "audit-log-format"),
            ("audit-log-maxage", "audit-log-maxage"),
            ("audit-log-maxbackup", "audit-log-maxbackup"),
            ("audit-log-maxsize", "audit-log-maxsize"),
            ("audit-log-path", "audit-log-path"),
            ("audit-policy-file", "audit-policy-file"),
            ("audit-webhook-batch-max-size", "audit-webhook-batch-max-size"),
            ("audit-webhook-batch-max-wait", "audit-webhook-batch-max-wait"),
            ("audit-webhook-config-file", "audit-webhook-config-file"),
            ("audit-webhook-initial-backoff", "audit-webhook-initial-backoff"),
            ("authentication-config", "authentication-config"),
            ("authentication-token-webhook-cache-ttl", "authentication-token-webhook-cache-ttl"),
            ("authentication-token-webhook-config-file", "authentication-token-webhook-config-file"),
            ("authentication-token-webhook-version", "authentication-token-webhook-version"),
            ("authorization-config", "authorization-config"),
            ("authorization-mode", "authorization-mode"),
            ("authorization-policy-file", "authorization-policy-file"),
            ("authorization-webhook-cache-authorized-ttl", "authorization-webhook-cache-authorized-ttl"),
            ("authorization-webhook-cache-unauthorized-ttl", "authorization-webhook-cache-unauthorized-ttl"),
            ("authorization-webhook-config-file", "authorization-webhook-config-file"),
            ("authorization-webhook-version", "authorization-webhook-version"),
            ("bind-address", "bind-address"),
            ("cors-allowed-origins", "cors-allowed-origins"),
            ("disable-admission-plugins", "disable-admission-plugins"),
            ("enable-admission-plugins", "enable-admission-plugins"),
            ("enable-priority-and-fairness", "enable-priority-and-fairness"),
            ("encryption-provider-config", "encryption-provider-config"),
            ("encryption-provider-config-automatic-reload", "encryption-provider-config-automatic-reload"),
            ("etcd-cafile", "etcd-cafile"),
            ("etcd-certfile", "etcd-certfile"),
            ("etcd-keyfile", "etcd-keyfile"),
            ("etcd-servers", "etcd-servers"),
            ("event-ttl", "event-ttl"),
            ("external-hostname", "external-hostname"),
            ("feature-gates", "feature-gates"),
            ("goaway-chance", "goaway-chance"),
            ("max-mutating-requests-inflight", "max-mutating-requests-inflight"),
            ("max-requests-inflight", "max-requests-inflight"),
            ("oidc-ca-file", "oidc-ca-file"),
            ("oidc-client-id", "oidc-client-id"),
            ("oidc-groups-claim", "oidc-groups-claim"),
            ("oidc-groups-prefix", "oidc-groups-prefix"),
            ("oidc-issuer-url", "oidc-issuer-url"),
            ("oidc-required-claim", "oidc-required-claim"),
            ("oidc-signing-algs", "oidc-signing-algs"),
            ("oidc-username-claim", "oidc-username-claim"),
            ("oidc-username-prefix", "oidc-username-prefix"),
            ("runtime-config", "runtime-config"),
            ("secure-port", "https-port"),
            ("service-account-extend-token-expiration", "service-account-extend-token-expiration"),
            ("service-account-issuer", "service-account-issuer"),
            ("service-account-jwks-uri", "service-account-jwks-uri"),
            ("service-account-max-token-expiration", "service-account-max-token-expiration"),
            ("service-cluster-ip-range", "service-cidr"),
            ("service-node-port-range", "service-node-port-range"),
            ("storage-media-type", "storage-media-type"),
            ("strict-transport-security-directives", "strict-transport-security-directives"),
            ("tls-cipher-suites", "tls-cipher-suites"),
            ("tls-min-version", "tls-min-version"),
            ("token-auth-file", "token-auth-file"),
            ("tracing-config-file", "tracing-config-file"),
        ],
    },
    Part {
        flag: "kube-controller-manager-arg",
        name: "kube-controller-manager",
        on_agents: false,
        known: &[
            ("cluster-cidr", "cluster-cidr"),
            ("controllers", "controllers"),
            (
                "horizontal-pod-autoscaler-cpu-initialization-period",
                "horizontal-pod-autoscaler-cpu-initialization-period",
            ),
            ("horizontal-pod-autoscaler-downscale-stabilization", "horizontal-pod-autoscaler-downscale-stabilization"),
            ("horizontal-pod-autoscaler-initial-readiness-delay", "horizontal-pod-autoscaler-initial-readiness-delay"),
            ("horizontal-pod-autoscaler-sync-period", "horizontal-pod-autoscaler-sync-period"),
            ("horizontal-pod-autoscaler-tolerance", "horizontal-pod-autoscaler-tolerance"),
            ("large-cluster-size-threshold", "large-cluster-size-threshold"),
            ("node-cidr-mask-size", "node-cidr-mask-size"),
            ("node-cidr-mask-size-ipv4", "node-cidr-mask-size"),
            ("node-eviction-rate", "node-eviction-rate"),
            ("node-monitor-grace-period", "node-monitor-grace-period"),
            ("node-monitor-period", "node-monitor-period"),
            ("node-startup-grace-period", "node-startup-grace-period"),
            ("secondary-node-eviction-rate", "secondary-node-eviction-rate"),
            ("secure-port", "controller-manager-secure-port"),
            ("service-cluster-ip-range", "service-cidr"),
            ("terminated-pod-gc-threshold", "terminated-pod-gc-threshold"),
            ("unhealthy-zone-threshold", "unhealthy-zone-threshold"),
        ],
    },
    Part {
        flag: "kube-scheduler-arg",
        name: "kube-scheduler",
        on_agents: false,
        known: &[("config", "kube-scheduler-config"), ("secure-port", "scheduler-secure-port")],
    },
];

fn parts(command: &str) -> impl Iterator<Item = &'static Part> {
    let is_agent = command == "agent";
    PARTS.iter().filter(move |part| part.on_agents || !is_agent)
}

pub fn flags(command: &str) -> Vec<Arg> {
    let flag = |part: &Part| {
        Arg::new(part.flag)
            .long(part.flag)
            .value_name("FLAG=VALUE")
            .action(ArgAction::Append)
            .allow_hyphen_values(true)
            .help(format!("Set a flag of upstream's {}, such as {}", part.name, example(part)))
    };
    parts(command).map(flag).collect()
}

fn example(part: &Part) -> String {
    let (name, value) = match part.flag {
        "kubelet-arg" => ("max-pods", "50"),
        "kube-proxy-arg" => ("nodeport-addresses", "primary"),
        "kube-apiserver-arg" => ("event-ttl", "30m"),
        "kube-controller-manager-arg" => ("node-monitor-period", "2s"),
        _ => ("config", "/etc/scheduler.yaml"),
    };
    format!("{name}={value}")
}

/// What a part of this command can be told: its own name for it, and ours.
pub fn names_of(command: &str, part: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    parts(command).filter(move |known| known.name == part).flat_map(|part| part.known.iter().copied())
}

#[cfg(test)]
pub fn targets(command: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    parts(command).flat_map(|part| part.known.iter().map(move |(_, ours)| (part.name, *ours)))
}

/// What was handed over, as flags of ours.
pub fn arguments(command: &str, given: &ArgMatches) -> anyhow::Result<Vec<String>> {
    let mut arguments = Vec::new();
    for part in parts(command) {
        for text in given.get_many::<String>(part.flag).into_iter().flatten() {
            arguments.push(translated(part, text)?);
        }
    }
    Ok(arguments)
}

fn translated(part: &Part, text: &str) -> anyhow::Result<String> {
    let (name, value) = text.trim_start_matches('-').split_once('=').unwrap_or((text.trim_start_matches('-'), "true"));
    let Some((_, ours)) = part.known.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = part.known.iter().map(|(known, _)| *known).collect();
        bail!(
            "--{}: {} of knarr has no flag {name:?}{}; it has {}",
            part.flag,
            part.name,
            nearest(name, &known),
            known.join(", ")
        );
    };
    Ok(format!("--{ours}={value}"))
}
