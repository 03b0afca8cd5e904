//! The node's heartbeat: a Lease in `kube-node-lease`, renewed at every quarter of its duration, whatever else is slow.

use std::time::Duration;

use component_base::Clock;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Seen;

pub const NAMESPACE: &str = "kube-node-lease";
/// Renewals are up to so much late, so that the nodes of a cluster do not all come at once.
const JITTER: f64 = 0.04;
/// After a failure it is tried again sooner, and then ever later, up to this.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(7);

pub(super) async fn run(client: Client, node: String, duration: Duration, seen: watch::Receiver<Seen>, clock: Clock) {
    let leases = Leases { api: Api::namespaced(client, NAMESPACE), node, duration, clock };
    let renew_after = duration / 4;
    let mut known: Option<Lease> = None;
    let mut again = AGAIN_AFTER;
    loop {
        let owner = seen.borrow().uid();
        match timeout(renew_after, leases.renew(owner, known.take())).await {
            Ok(Ok(lease)) => {
                known = Some(lease);
                again = AGAIN_AFTER;
                sleep(renew_after.mul_f64(1.0 + JITTER * rand::random::<f64>())).await;
                continue;
            }
            Ok(Err(error)) => tracing::warn!(%error, "cannot renew node lease"),
            Err(_) => tracing::warn!("timed out renewing node lease"),
        }
        sleep(again).await;
        again = (again * 2).min(AGAIN_AFTER_MAX);
    }
}

struct Leases {
    api: Api<Lease>,
    node: String,
    duration: Duration,
    clock: Clock,
}

impl Leases {
    /// Writes over the lease as it was last known, or as it is read again when that is not current any more.
    async fn renew(&self, owner: Option<String>, known: Option<Lease>) -> Result<Lease, kube::Error> {
        let parameters = PostParams::default();
        let renewed = |old: Option<Lease>| renewed(old, &self.node, self.duration, owner.as_deref(), self.clock.now());
        if let Some(known) = known {
            match self.api.replace(&self.node, &parameters, &renewed(Some(known))).await {
                Err(error) if matches!(reconcile::reason(&error), "Conflict" | "NotFound") => {}
                answer => return answer,
            }
        }
        match self.api.get_opt(&self.node).await? {
            Some(lease) => self.api.replace(&self.node, &parameters, &renewed(Some(lease))).await,
            None => self.api.create(&parameters, &renewed(None)).await,
        }
    }
}

/// The lease with a new time. The Node owns it, so that it goes when the Node goes; while that is not known yet, nobody does.
fn renewed(old: Option<Lease>, node: &str, duration: Duration, owner: Option<&str>, now: Timestamp) -> Lease {
    let mut lease = old.unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    if let Some(uid) = owner {
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: node.to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        };
        let owners = lease.metadata.owner_references.get_or_insert_default();
        owners.retain(|other| other.kind != "Node" || (other.name == node && other.uid == uid));
        if !owners.iter().any(|other| other.uid == uid) {
            owners.push(owner);
        }
    }
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(node.to_owned()),
        lease_duration_seconds: i32::try_from(duration.as_secs()).ok(),
        renew_time: Some(MicroTime(now)),
        ..lease.spec.unwrap_or_default()
    });
    lease
}
