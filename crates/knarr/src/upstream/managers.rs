//! Flags of the scheduler and of both controller managers.

use super::Fate::{Only, Refused, Switch, Taken};
use super::Table;

/// Of those that lead and are led, and that show health and metrics by HTTPS.
pub(super) const LEADERS: Table = &[
    ("leader-elect-resource-lock", Only(&["leases"], "only leases is supported")),
    // Who may see the metrics is asked of the API server every time: nothing is kept that could be too old.
    ("authentication-token-webhook-cache-ttl", Taken),
    ("authorization-webhook-cache-authorized-ttl", Taken),
    ("authorization-webhook-cache-unauthorized-ttl", Taken),
    // The authority is looked up when somebody shows a certificate, and a failure only refuses that one.
    ("authentication-skip-lookup", Switch),
    ("authentication-tolerate-lookup-failure", Switch),
    // Health and metrics are always HTTP/1.1.
    ("disable-http2-serving", Switch),
    ("permit-port-sharing", Only(&["false"], "knarr wants its port for itself")),
    ("permit-address-sharing", Only(&["false"], "knarr wants its address for itself")),
    ("tls-curve-preferences", Refused("knarr exchanges keys by the groups that rustls takes for safe, and no others")),
    ("emulated-version", Only(&["1.36", "kube=1.36"], "knarr is as 1.36 and cannot be as another version")),
    (
        "min-compatibility-version",
        Only(&["1.35", "kube=1.35", "1.36", "kube=1.36"], "knarr works beside 1.35 and 1.36"),
    ),
    (
        "disabled-metrics",
        Refused("knarr's metrics cannot be turned off one by one; leave them out where they are scraped"),
    ),
    ("allow-metric-labels", Refused("knarr's metrics keep their labels; drop them where they are scraped")),
    ("allow-metric-labels-manifest", Refused("knarr's metrics keep their labels; drop them where they are scraped")),
];

pub(super) const SCHEDULER: Table =
    &[("write-config-to", Refused("knarr has no configuration to write: give --config"))];

/// Of both controller managers.
pub(super) const GENERIC: Table = &[
    ("cluster-name", Taken),
    // Objects are followed by watches that say when they have missed something; nothing is looked at again and again.
    ("min-resync-period", Taken),
    ("controller-start-interval", Only(&["0", "0s"], "knarr's controllers start together")),
    ("enable-leader-migration", Only(&["false"], "knarr's controllers have one lease")),
    ("leader-migration-config", Refused("knarr's controllers have one lease")),
    ("allow-untagged-cloud", Only(&["false"], "no cloud of knarr's has tags")),
    ("external-cloud-volume-plugin", Refused("knarr has no volume plugins of clouds; use CSI")),
    // Both do nothing upstream either where the provider has no routes.
    ("route-reconciliation-period", Taken),
    ("node-sync-period", Taken),
    ("cidr-allocator-type", Only(&["RangeAllocator"], "nodes get their ranges from --cluster-cidr")),
];

pub(super) const CONTROLLER_MANAGER: Table = &[
    ("cloud-provider", Only(&["", "external"], "clouds are the work of a cloud-controller-manager")),
    ("cloud-config", Refused("clouds are the work of a cloud-controller-manager")),
    ("configure-cloud-routes", Only(&["false"], "clouds are the work of a cloud-controller-manager")),
    // Load balancers are the work of a cloud-controller-manager, upstream too.
    ("concurrent-service-syncs", Taken),
    // VolumeAttachments are followed by a watch, so there is nothing to compare now and then.
    ("attach-detach-reconcile-sync-period", Taken),
    ("disable-attach-detach-reconcile-sync", Switch),
    ("endpoint-updates-batch-period", Only(&["0", "0s"], BATCHES)),
    ("endpointslice-updates-batch-period", Only(&["0", "0s"], BATCHES)),
    ("mirroring-endpointslice-updates-batch-period", Only(&["0", "0s"], BATCHES)),
    // Ending namespaces and claims are followed by watches.
    ("namespace-sync-period", Taken),
    ("pvclaimbinder-sync-period", Taken),
    ("enable-dynamic-provisioning", Only(&["true"], "knarr always provisions")),
    ("enable-hostpath-provisioner", Only(&["false"], "use the StorageClass local-path")),
    ("flex-volume-plugin-dir", Refused("knarr has no flex volumes; use CSI")),
    ("pv-recycler-pod-template-filepath-nfs", Only(&[""], RECYCLES)),
    ("pv-recycler-minimum-timeout-nfs", Only(&["300"], RECYCLES)),
    ("pv-recycler-increment-timeout-nfs", Only(&["30"], RECYCLES)),
    ("pv-recycler-pod-template-filepath-hostpath", Only(&[""], RECYCLES)),
    ("pv-recycler-minimum-timeout-hostpath", Only(&["60"], RECYCLES)),
    ("pv-recycler-timeout-increment-hostpath", Only(&["30"], RECYCLES)),
];

const BATCHES: &str = "knarr writes endpoints as changes come";
const RECYCLES: &str = "knarr recycles no volumes; use persistentVolumeReclaimPolicy Delete or Retain";

pub(super) const CLOUD_CONTROLLER_MANAGER: Table = &[
    ("cloud-config", Refused("the built-in provider has nothing to configure")),
    // The built-in provider has no routes and does not know of nodes, so that there is nothing to do with these.
    ("allocate-node-cidrs", Switch),
    ("cluster-cidr", Taken),
    ("configure-cloud-routes", Switch),
    ("node-monitor-period", Taken),
    ("node-status-update-frequency", Taken),
    ("concurrent-node-syncs", Taken),
    ("concurrent-node-status-updates", Taken),
    ("webhooks", Refused(WEBHOOKS)),
    ("webhook-bind-address", Refused(WEBHOOKS)),
    ("webhook-secure-port", Only(&["0"], WEBHOOKS)),
    ("webhook-disable-http2-serving", Refused(WEBHOOKS)),
    ("webhook-cert-dir", Refused(WEBHOOKS)),
    ("webhook-tls-cert-file", Refused(WEBHOOKS)),
    ("webhook-tls-private-key-file", Refused(WEBHOOKS)),
    ("webhook-tls-cipher-suites", Refused(WEBHOOKS)),
    ("webhook-tls-curve-preferences", Refused(WEBHOOKS)),
    ("webhook-tls-min-version", Refused(WEBHOOKS)),
    ("webhook-tls-sni-cert-key", Refused(WEBHOOKS)),
];

const WEBHOOKS: &str = "the built-in provider has no webhooks";
