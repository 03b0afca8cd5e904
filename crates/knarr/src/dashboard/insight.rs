//! Rules of other components, handed to the dashboard: the scheduler's plugins, the policy compiler, the store's history.

use std::sync::Arc;
use std::time::Duration;

use dashboard::insight::{Named, Refused, Revision, SchedulingFacts, Side, Traffic, TrafficVerdict, Verdict};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass};
use kube_apiserver::authn::User;
use kube_apiserver::authz::{Attributes, forbidden};
use kube_apiserver::local::App;
use kube_scheduler::cycle::Questions;
use kube_scheduler::framework::{Refusal, View};
use kube_scheduler::objects::Objects;
use kube_scheduler::pod_info::PodInfo;
use kube_scheduler::profile::Profile;
use kube_scheduler::snapshot::Snapshot;
use machinery::status::Status;
use reconcile::{Cache, Clock};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The plugins that decide here.
pub struct Plugins(pub Vec<Profile>);

impl dashboard::Scheduling for Plugins {
    fn verdicts(&self, asked: &SchedulingFacts) -> Result<Vec<Verdict>, Status> {
        let pod: Pod = typed(&asked.pod)?;
        let pod = PodInfo::new(Arc::new(pod));
        let Some(profile) = self.0.iter().find(|profile| profile.scheduler_name == pod.scheduler_name()) else {
            let message = format!("the pod is for the scheduler {:?}, which knarr does not run", pod.scheduler_name());
            return Err(Status::new(501, "NotImplemented", message));
        };
        let (snapshot, objects) = (snapshot(asked), objects(&asked.others));
        let view = View { snapshot: &snapshot, objects: &objects, now: Clock::system().now() };
        let mut questions = match Questions::new(profile, view, &pod) {
            Ok(questions) => questions,
            Err(failure) => {
                let plugin = failure.plugins.iter().next().copied().unwrap_or_default();
                let refused = failure.all.map(|refusal| refused(plugin, refusal));
                return Ok(vec![Verdict { node: String::new(), refused }]);
            }
        };
        let mut verdicts: Vec<Verdict> = Vec::new();
        for node in snapshot.nodes() {
            let outcome = questions.check_with_nominated(&pod, node);
            let refused = outcome.err().map(|(plugin, refusal)| refused(plugin, refusal));
            verdicts.push(Verdict { node: node.name.clone(), refused });
        }
        verdicts.sort_by(|one, other| one.node.cmp(&other.node));
        Ok(verdicts)
    }
}

fn refused(plugin: &str, refusal: Refusal) -> Refused {
    Refused {
        plugin: plugin.into(),
        reasons: refusal.reasons.iter().map(str::to_owned).collect(),
        resolvable: refusal.resolvable,
    }
}

fn snapshot(asked: &SchedulingFacts) -> Snapshot {
    let mut snapshot = Snapshot::default();
    all::<Node>(&asked.nodes).for_each(|node| snapshot.set_node(Arc::new(node)));
    for namespace in all::<Namespace>(&asked.namespaces) {
        let labels = namespace.metadata.labels.unwrap_or_default();
        snapshot.namespaces.insert(namespace.metadata.name.unwrap_or_default(), labels);
    }
    for pod in all::<Pod>(&asked.pods) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let ended = matches!(phase, "Succeeded" | "Failed");
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty());
        let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
        let pod = Arc::new(PodInfo::new(Arc::new(pod)));
        match (node, nominated) {
            _ if ended => {}
            (Some(node), _) => snapshot.add_pod(pod, &node),
            (None, Some(node)) if !node.is_empty() => snapshot.nominate(pod, &node),
            (None, _) => {}
        }
    }
    snapshot.freeze();
    snapshot
}

fn objects(others: &[Value]) -> Objects {
    fn of<K: reconcile::Kind + DeserializeOwned>(kind: &str, others: &[Value]) -> Arc<Cache<K>> {
        Cache::holding(others.iter().filter(|one| one["kind"] == kind).filter_map(|one| K::deserialize(one).ok()))
    }
    let mut objects = Objects::empty();
    objects.claims = of::<PersistentVolumeClaim>("PersistentVolumeClaim", others);
    objects.volumes = of::<PersistentVolume>("PersistentVolume", others);
    objects.classes = of::<StorageClass>("StorageClass", others);
    objects.csi_nodes = of::<CSINode>("CSINode", others);
    objects.csi_drivers = of::<CSIDriver>("CSIDriver", others);
    objects.services = of::<Service>("Service", others);
    objects.device_claims = of::<ResourceClaim>("ResourceClaim", others);
    objects.slices = of::<ResourceSlice>("ResourceSlice", others);
    objects.device_classes = of::<DeviceClass>("DeviceClass", others);
    objects
}

/// One object that cannot be read is left out: it must not hide what all others say.
fn all<'a, T: DeserializeOwned + 'a>(values: &'a [Value]) -> impl Iterator<Item = T> + 'a {
    values.iter().filter_map(|value| T::deserialize(value).ok())
}

fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, Status> {
    T::deserialize(value).map_err(|error| Status::internal(error.to_string()))
}

/// The rules that nodes put into their kernels.
pub struct Policies;

impl dashboard::Policy for Policies {
    fn verdict(&self, asked: &Traffic) -> Result<TrafficVerdict, Status> {
        let (from, to): (Pod, Pod) = (typed(&asked.from)?, typed(&asked.to)?);
        let policies: Vec<NetworkPolicy> = all(&asked.policies).collect();
        let namespaces: Vec<Namespace> = all(&asked.namespaces).collect();
        let explained = cni::policy::explain(&from, &to, (&asked.protocol, asked.port), &policies, &namespaces);
        let explained = explained.ok_or_else(|| {
            Status::bad_request(
                "one of the pods has no address of its own: it is on its node's network, has ended, or has not begun",
            )
        })?;
        let side = |side: cni::policy::Side| Side { isolated_by: side.isolated_by, allowed_by: side.allowed_by };
        Ok(TrafficVerdict { egress: side(explained.egress), ingress: side(explained.ingress) })
    }
}

/// What the store still knows.
pub struct History {
    pub app: Arc<App>,
}

/// Reading all of a store's history takes no longer.
const READ_MAX: Duration = Duration::from_secs(10);

#[async_trait::async_trait]
impl dashboard::Revisions for History {
    async fn of(&self, user: &dashboard::User, object: &Named) -> Result<(Vec<Revision>, bool), Status> {
        let user = user.clone();
        let user = User { name: user.name, uid: user.uid, groups: user.groups, extra: user.extra };
        let attributes = Attributes {
            version: &object.version,
            namespace: &object.namespace,
            name: &object.name,
            ..Attributes::resource(&user, "get", &object.group, &object.resource)
        };
        let decision = self.app.authorizer.authorize(&attributes, &self.app.views).await;
        if !decision.is_allowed() {
            return Err(forbidden(&attributes, decision.reason()));
        }
        kube_apiserver::local::revisions_of(
            &self.app,
            (&object.group, &object.version, &object.resource),
            &object.namespace,
            &object.name,
            READ_MAX,
        )
        .await
        .map(|(found, complete)| {
            (found.into_iter().map(|(revision, object)| Revision { revision, object }).collect(), complete)
        })
    }
}

#[cfg(test)]
mod tests {
    use dashboard::Scheduling;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_node_has_a_verdict() {
        let node = |name: &str, cpu: &str, taint: bool| {
            let taints = if taint { json!([{"key": "k", "effect": "NoSchedule"}]) } else { json!([]) };
            json!({"metadata": {"name": name}, "spec": {"taints": taints}, "status": {"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "10"}}})
        };
        let asked = SchedulingFacts {
            pod: json!({"metadata": {"name": "p", "namespace": "a", "uid": "u"}, "spec": {"schedulerName": "default-scheduler",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}),
            nodes: vec![node("small", "1", false), node("tainted", "8", true), node("good", "8", false)],
            pods: Vec::new(),
            namespaces: Vec::new(),
            others: Vec::new(),
        };
        let verdicts = Plugins(vec![Profile::standard()]).verdicts(&asked).unwrap();
        let told: Vec<(&str, &str)> = verdicts
            .iter()
            .map(|one| (one.node.as_str(), one.refused.as_ref().map_or("", |refused| refused.plugin.as_str())))
            .collect();
        assert_eq!(told, [("good", ""), ("small", "NodeResourcesFit"), ("tainted", "TaintToleration")]);
    }
}
