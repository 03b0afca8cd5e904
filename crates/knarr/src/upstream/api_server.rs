//! Flags of upstream's kube-apiserver, beside those that ours has itself.

use super::Fate::{Only, Refused, Switch, Taken};
use super::Table;

pub(super) const FLAGS: Table = &[
    ("endpoint-reconciler-type", Only(&["lease"], "knarr's servers know each other by leases")),
    ("storage-backend", Only(&["etcd3"], "there is no other")),
    ("etcd-compaction-interval", Only(&["5m", "5m0s"], "knarr compacts as often as upstream's default")),
    ("service-account-lookup", Only(&["true"], "knarr always looks")),
    ("enable-garbage-collector", Only(&["true"], "knarr always collects garbage")),
    ("request-timeout", Only(&["1m", "1m0s", "60s"], "knarr gives a request a minute")),
    ("default-not-ready-toleration-seconds", Only(&["300"], "knarr's pods stay for five minutes")),
    ("default-unreachable-toleration-seconds", Only(&["300"], "knarr's pods stay for five minutes")),
    ("kubelet-timeout", Taken),
    ("watch-cache", Switch),
    ("watch-cache-sizes", Taken),
    ("default-watch-cache-size", Taken),
    ("delete-collection-workers", Taken),
    ("enable-aggregator-routing", Switch),
    ("apiserver-count", Taken),
    ("permit-port-sharing", Only(&["false"], "knarr wants its port for itself")),
    ("permit-address-sharing", Only(&["false"], "knarr wants its address for itself")),
    ("admission-control", Refused("name plugins by --enable-admission-plugins and --disable-admission-plugins")),
    ("aggregator-reject-forwarding-redirect", Only(&["true"], "knarr never passes a foreign server's redirect on")),
    ("allow-metric-labels", Refused("knarr's metrics have fixed labels")),
    ("allow-metric-labels-manifest", Refused("knarr's metrics have fixed labels")),
    ("disabled-metrics", Refused("knarr's metrics are all there")),
    ("audit-log-compress", Only(&["false"], "knarr does not pack its audit logs")),
    ("audit-log-mode", Only(&["blocking"], "knarr writes each event before it answers")),
    ("audit-log-batch-buffer-size", Refused(NO_LOG_BATCHES)),
    ("audit-log-batch-max-size", Refused(NO_LOG_BATCHES)),
    ("audit-log-batch-max-wait", Refused(NO_LOG_BATCHES)),
    ("audit-log-batch-throttle-enable", Only(&["false"], NO_LOG_BATCHES)),
    ("audit-log-batch-throttle-qps", Refused(NO_LOG_BATCHES)),
    ("audit-log-batch-throttle-burst", Refused(NO_LOG_BATCHES)),
    ("audit-log-truncate-enabled", Only(&["false"], NO_TRUNCATION)),
    ("audit-log-truncate-max-batch-size", Refused(NO_TRUNCATION)),
    ("audit-log-truncate-max-event-size", Refused(NO_TRUNCATION)),
    ("audit-log-version", Only(&["audit.k8s.io/v1"], "there is no other")),
    ("audit-webhook-mode", Only(&["batch"], "knarr sends events together")),
    ("audit-webhook-batch-buffer-size", Only(&["10000"], "knarr lets as many events wait as upstream's default")),
    ("audit-webhook-batch-throttle-enable", Only(&["false"], "knarr sends a batch when the previous one was accepted")),
    ("audit-webhook-batch-throttle-qps", Refused("knarr sends a batch when the previous one was accepted")),
    ("audit-webhook-batch-throttle-burst", Refused("knarr sends a batch when the previous one was accepted")),
    ("audit-webhook-batch-initial-backoff", Refused("give it by --audit-webhook-initial-backoff")),
    ("audit-webhook-truncate-enabled", Only(&["false"], NO_TRUNCATION)),
    ("audit-webhook-truncate-max-batch-size", Refused(NO_TRUNCATION)),
    ("audit-webhook-truncate-max-event-size", Refused(NO_TRUNCATION)),
    ("audit-webhook-version", Only(&["audit.k8s.io/v1"], "there is no other")),
    ("coordinated-leadership-lease-duration", Refused(NO_COORDINATION)),
    ("coordinated-leadership-renew-deadline", Refused(NO_COORDINATION)),
    ("coordinated-leadership-retry-period", Refused(NO_COORDINATION)),
    ("debug-socket-path", Only(&[""], "knarr has no profiler to show")),
    ("disable-http2-serving", Only(&["false"], "knarr speaks HTTP/1.1 and HTTP/2")),
    ("emulated-version", Only(&["", "1.36", "kube=1.36"], "knarr is Kubernetes v1.36 and emulates no other")),
    ("emulation-forward-compatible", Only(&["false"], "knarr is Kubernetes v1.36 and emulates no other")),
    ("runtime-config-emulation-forward-compatible", Only(&["false"], "knarr emulates no other version")),
    ("min-compatibility-version", Only(&["", "1.35", "kube=1.35"], "knarr goes together with v1.35 and v1.36")),
    ("enable-logs-handler", Only(&["false"], "knarr's logs are where its standard error goes")),
    ("etcd-count-metric-poll-period", Taken),
    ("etcd-db-metric-poll-interval", Taken),
    ("etcd-healthcheck-timeout", Only(&["2s"], "knarr gives etcd as long as upstream's default")),
    ("etcd-readycheck-timeout", Only(&["2s"], "knarr gives etcd as long as upstream's default")),
    ("etcd-servers-overrides", Only(&[""], "knarr keeps all kinds in one etcd")),
    ("kubelet-port", Only(&["10250"], "a kubelet's port is the one its Node says")),
    ("kubelet-read-only-port", Only(&["10255"], "knarr never asks a kubelet there")),
    ("kubernetes-service-node-port", Only(&["0"], "knarr's Service kubernetes has a cluster address only")),
    ("lease-reuse-duration-seconds", Taken),
    // What may take this long is done before the first answer.
    ("livez-grace-period", Taken),
    ("max-connection-bytes-per-sec", Only(&["0"], "knarr does not slow its clients down")),
    ("min-request-timeout", Only(&["1800"], "knarr's watches last as long as upstream's by default")),
    ("peer-advertise-ip", Only(&[""], NO_PEERS)),
    ("peer-advertise-port", Only(&[""], NO_PEERS)),
    ("peer-ca-file", Only(&[""], NO_PEERS)),
    ("shutdown-watch-termination-grace-period", Only(&["0", "0s"], "knarr ends watches when it stops")),
    ("tls-curve-preferences", Only(&[""], "knarr speaks the curves that rustls takes for safe, and no others")),
];

const NO_LOG_BATCHES: &str = "knarr writes each audit event before it answers";
const NO_TRUNCATION: &str = "knarr writes audit events whole";
const NO_COORDINATION: &str = "knarr chooses no leaders for others: each component holds its own lease";
const NO_PEERS: &str = "knarr's servers all serve the same kinds and pass no requests to each other";

#[cfg(test)]
mod tests {
    /// Every flag of upstream's kube-apiserver v1.36.4.
    const API_SERVER_FLAGS: &str = "admission-control admission-control-config-file advertise-address \
        aggregator-reject-forwarding-redirect allow-metric-labels allow-metric-labels-manifest \
        allow-privileged anonymous-auth api-audiences apiserver-count audit-log-batch-buffer-size \
        audit-log-batch-max-size audit-log-batch-max-wait audit-log-batch-throttle-burst \
        audit-log-batch-throttle-enable audit-log-batch-throttle-qps audit-log-compress audit-log-format \
        audit-log-maxage audit-log-maxbackup audit-log-maxsize audit-log-mode audit-log-path \
        audit-log-truncate-enabled audit-log-truncate-max-batch-size audit-log-truncate-max-event-size \
        audit-log-version audit-policy-file audit-webhook-batch-buffer-size \
        audit-webhook-batch-initial-backoff audit-webhook-batch-max-size audit-webhook-batch-max-wait \
        audit-webhook-batch-throttle-burst audit-webhook-batch-throttle-enable \
        audit-webhook-batch-throttle-qps audit-webhook-config-file audit-webhook-initial-backoff \
        audit-webhook-mode audit-webhook-truncate-enabled audit-webhook-truncate-max-batch-size \
        audit-webhook-truncate-max-event-size audit-webhook-version authentication-config \
        authentication-token-webhook-cache-ttl authentication-token-webhook-config-file \
        authentication-token-webhook-version authorization-config authorization-mode \
        authorization-policy-file authorization-webhook-cache-authorized-ttl \
        authorization-webhook-cache-unauthorized-ttl authorization-webhook-config-file \
        authorization-webhook-version bind-address cert-dir client-ca-file contention-profiling \
        coordinated-leadership-lease-duration coordinated-leadership-renew-deadline \
        coordinated-leadership-retry-period cors-allowed-origins debug-socket-path \
        default-not-ready-toleration-seconds default-unreachable-toleration-seconds default-watch-cache-size \
        delete-collection-workers disable-admission-plugins disable-http2-serving disabled-metrics \
        egress-selector-config-file emulated-version emulation-forward-compatible enable-admission-plugins \
        enable-aggregator-routing enable-bootstrap-token-auth enable-garbage-collector enable-logs-handler \
        enable-priority-and-fairness encryption-provider-config encryption-provider-config-automatic-reload \
        endpoint-reconciler-type etcd-cafile etcd-certfile etcd-compaction-interval \
        etcd-count-metric-poll-period etcd-db-metric-poll-interval etcd-healthcheck-timeout etcd-keyfile \
        etcd-prefix etcd-readycheck-timeout etcd-servers etcd-servers-overrides event-ttl external-hostname \
        feature-gates goaway-chance http2-max-streams-per-connection kubelet-certificate-authority \
        kubelet-client-certificate kubelet-client-key kubelet-port kubelet-preferred-address-types \
        kubelet-read-only-port kubelet-timeout kubernetes-service-node-port lease-reuse-duration-seconds \
        livez-grace-period log-flush-frequency log-json-info-buffer-size log-json-split-stream \
        log-text-info-buffer-size log-text-split-stream logging-format max-connection-bytes-per-sec \
        max-mutating-requests-inflight max-requests-inflight min-compatibility-version min-request-timeout \
        oidc-ca-file oidc-client-id oidc-groups-claim oidc-groups-prefix oidc-issuer-url oidc-required-claim \
        oidc-signing-algs oidc-username-claim oidc-username-prefix peer-advertise-ip peer-advertise-port \
        peer-ca-file permit-address-sharing permit-port-sharing profiling proxy-client-cert-file \
        proxy-client-key-file request-timeout requestheader-allowed-names requestheader-client-ca-file \
        requestheader-extra-headers-prefix requestheader-group-headers requestheader-uid-headers \
        requestheader-username-headers runtime-config runtime-config-emulation-forward-compatible \
        secure-port service-account-extend-token-expiration service-account-issuer service-account-jwks-uri \
        service-account-key-file service-account-lookup service-account-max-token-expiration \
        service-account-signing-endpoint service-account-signing-key-file service-cluster-ip-range \
        service-node-port-range show-hidden-metrics-for-version shutdown-delay-duration \
        shutdown-send-retry-after shutdown-watch-termination-grace-period storage-backend \
        storage-initialization-timeout storage-media-type strict-transport-security-directives tls-cert-file \
        tls-cipher-suites tls-curve-preferences tls-min-version tls-private-key-file tls-sni-cert-key \
        token-auth-file tracing-config-file vmodule watch-cache watch-cache-sizes";

    #[derive(clap::Parser)]
    struct ApiServer {
        #[command(flatten)]
        _flags: crate::api_server::Flags,
    }

    #[test]
    fn every_flag_of_upstreams_api_server_is_known() {
        use clap::CommandFactory;
        let command = ApiServer::command();
        let ours: Vec<&str> = command.get_arguments().filter_map(|argument| argument.get_long()).collect();
        let table: Vec<&str> = super::super::tables("kube-apiserver")
            .unwrap()
            .iter()
            .flat_map(|table| table.iter())
            .map(|(name, _)| *name)
            .collect();
        for flag in API_SERVER_FLAGS.split_whitespace() {
            let known = usize::from(ours.contains(&flag)) + usize::from(table.contains(&flag));
            assert_eq!(known, 1, "--{flag}");
        }
    }
}
