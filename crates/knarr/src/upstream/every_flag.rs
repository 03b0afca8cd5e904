//! Every flag that upstream v1.36.4's programs have is known to knarr's of the same name: done, taken because it changes nothing,
//! or refused with a sentence.

use std::collections::BTreeSet;

use clap::CommandFactory;

use super::{Fate, tables};

const SERVING: &str = "bind-address secure-port disable-http2-serving cert-dir tls-cert-file tls-private-key-file \
    tls-cipher-suites tls-curve-preferences tls-min-version tls-sni-cert-key http2-max-streams-per-connection \
    permit-port-sharing permit-address-sharing";
const AUTHENTICATION: &str = "requestheader-username-headers requestheader-uid-headers requestheader-group-headers \
    requestheader-extra-headers-prefix requestheader-client-ca-file requestheader-allowed-names client-ca-file \
    authentication-kubeconfig authentication-token-webhook-cache-ttl authentication-skip-lookup \
    authentication-tolerate-lookup-failure";
const AUTHORIZATION: &str = "authorization-kubeconfig authorization-webhook-cache-authorized-ttl \
    authorization-webhook-cache-unauthorized-ttl authorization-always-allow-paths";
const LEADERS: &str = "leader-elect leader-elect-lease-duration leader-elect-renew-deadline leader-elect-retry-period \
    leader-elect-resource-lock leader-elect-resource-name leader-elect-resource-namespace";
const LOGS: &str = "log-flush-frequency logging-format v vmodule log-text-split-stream log-text-info-buffer-size \
    log-json-split-stream log-json-info-buffer-size";
const METRICS: &str =
    "show-hidden-metrics-for-version disabled-metrics allow-metric-labels allow-metric-labels-manifest";
const VERSIONS: &str = "emulated-version min-compatibility-version feature-gates";
const GLOBAL: &str = "version help";
const GENERIC: &str = "min-resync-period kube-api-content-type kube-api-qps kube-api-burst controller-start-interval \
    controllers profiling contention-profiling enable-leader-migration leader-migration-config master kubeconfig";
const CLOUDS: &str = "cloud-provider cloud-config external-cloud-volume-plugin use-service-account-credentials \
    allow-untagged-cloud route-reconciliation-period node-monitor-period cluster-name cluster-cidr allocate-node-cidrs \
    cidr-allocator-type configure-cloud-routes node-sync-period concurrent-service-syncs";
const SCHEDULER: &str = "config write-config-to master profiling contention-profiling kubeconfig kube-api-content-type \
    kube-api-qps kube-api-burst pod-max-in-unschedulable-pods-duration";
const CONTROLLERS: &str = "controller-shutdown-timeout disable-attach-detach-reconcile-sync \
    attach-detach-reconcile-sync-period disable-force-detach-on-timeout concurrent-cron-job-syncs \
    cluster-signing-cert-file cluster-signing-key-file cluster-signing-kubelet-serving-cert-file \
    cluster-signing-kubelet-serving-key-file cluster-signing-kubelet-client-cert-file \
    cluster-signing-kubelet-client-key-file cluster-signing-kube-apiserver-client-cert-file \
    cluster-signing-kube-apiserver-client-key-file cluster-signing-legacy-unknown-cert-file \
    cluster-signing-legacy-unknown-key-file cluster-signing-duration concurrent-daemonset-syncs \
    concurrent-deployment-syncs concurrent-device-taint-eviction-syncs concurrent-endpoint-syncs \
    endpoint-updates-batch-period concurrent-service-endpoint-syncs max-endpoints-per-slice \
    endpointslice-updates-batch-period mirroring-concurrent-service-endpoint-syncs mirroring-max-endpoints-per-subset \
    mirroring-endpointslice-updates-batch-period concurrent-ephemeralvolume-syncs concurrent-gc-syncs \
    enable-garbage-collector concurrent-horizontal-pod-autoscaler-syncs horizontal-pod-autoscaler-sync-period \
    horizontal-pod-autoscaler-downscale-stabilization horizontal-pod-autoscaler-tolerance \
    horizontal-pod-autoscaler-cpu-initialization-period horizontal-pod-autoscaler-initial-readiness-delay \
    concurrent-job-syncs legacy-service-account-token-clean-up-period namespace-sync-period concurrent-namespace-syncs \
    service-cluster-ip-range node-cidr-mask-size node-cidr-mask-size-ipv4 node-cidr-mask-size-ipv6 \
    node-startup-grace-period node-monitor-grace-period node-eviction-rate secondary-node-eviction-rate \
    large-cluster-size-threshold unhealthy-zone-threshold pvclaimbinder-sync-period \
    pv-recycler-pod-template-filepath-nfs pv-recycler-minimum-timeout-nfs pv-recycler-increment-timeout-nfs \
    pv-recycler-pod-template-filepath-hostpath pv-recycler-minimum-timeout-hostpath \
    pv-recycler-timeout-increment-hostpath enable-hostpath-provisioner enable-dynamic-provisioning \
    flex-volume-plugin-dir terminated-pod-gc-threshold concurrent-replicaset-syncs concurrent-rc-syncs \
    concurrent-resourceclaim-syncs resource-quota-sync-period concurrent-resource-quota-syncs \
    service-account-private-key-file concurrent-serviceaccount-token-syncs root-ca-file concurrent-statefulset-syncs \
    concurrent-ttl-after-finished-syncs concurrent-validating-admission-policy-status-syncs";
const CLOUD_CONTROLLERS: &str = "concurrent-node-syncs concurrent-node-status-updates node-status-update-frequency webhooks \
    webhook-bind-address webhook-secure-port webhook-disable-http2-serving webhook-cert-dir webhook-tls-cert-file \
    webhook-tls-private-key-file webhook-tls-cipher-suites webhook-tls-curve-preferences webhook-tls-min-version \
    webhook-tls-sni-cert-key feature-gates";

/// What clap knows of a command.
fn own(component: &str) -> BTreeSet<String> {
    let mut command = crate::configuration::command(crate::Arguments::command());
    command.build();
    let command = command.find_subcommand(component).unwrap_or_else(|| panic!("there is no command {component}"));
    let names = |argument: &clap::Arg| {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        argument.get_long().into_iter().chain(aliases).map(str::to_owned).collect::<Vec<_>>()
    };
    command.get_arguments().flat_map(names).collect()
}

fn check(component: &str, parts: &[&str], count: usize) {
    let upstream: BTreeSet<&str> = parts.iter().flat_map(|part| part.split_whitespace()).collect();
    assert_eq!(upstream.len(), count, "{component}");
    let own = own(component);
    let sifted: Vec<&(&str, Fate)> = tables(component).unwrap().iter().flat_map(|table| table.iter()).collect();
    // Both of these are read before all others.
    let known = |name: &str| {
        ["v", "version"].contains(&name) || own.contains(name) || sifted.iter().any(|(known, _)| *known == name)
    };
    let unknown: Vec<&&str> = upstream.iter().filter(|name| !known(name)).collect();
    assert_eq!(unknown, Vec::<&&str>::new(), "{component} does not know these");
    for (name, _) in &sifted {
        assert!(!own.contains(*name), "{component} --{name} is taken before the component sees it");
    }
    let mine = [super::CONTROLLER_MANAGER, super::GENERIC, super::SCHEDULER, super::CLOUD_CONTROLLER_MANAGER];
    for (name, fate) in mine.iter().flat_map(|table| table.iter()) {
        if let Fate::Only(_, why) | Fate::Refused(why) = fate {
            assert!(why.len() > 10, "{name} is refused without a reason");
        }
    }
}

#[test]
fn the_scheduler() {
    let parts = [SERVING, AUTHENTICATION, AUTHORIZATION, LEADERS, LOGS, METRICS, VERSIONS, GLOBAL, SCHEDULER];
    check("kube-scheduler", &parts, 62);
}

#[test]
fn the_controller_manager() {
    let parts = [SERVING, AUTHENTICATION, AUTHORIZATION, LEADERS, LOGS, METRICS, VERSIONS, GLOBAL];
    check("kube-controller-manager", &[&parts[..], &[GENERIC, CLOUDS, CONTROLLERS]].concat(), 150);
}

#[test]
fn the_cloud_controller_manager() {
    let parts = [SERVING, AUTHENTICATION, AUTHORIZATION, LEADERS, LOGS, GLOBAL, GENERIC, CLOUDS, CLOUD_CONTROLLERS];
    check("cloud-controller-manager", &parts, 86);
}
