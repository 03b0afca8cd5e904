//! Extended resources that drivers' devices satisfy where no device plugin does: which class gives them, which requests stand for them, and
//! the claim that is made for the pod. Data in, data out.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use component_helpers::pods::controller_of;
use component_helpers::resources::Resources;
use k8s_openapi::api::core::v1::{Container, ContainerExtendedResourceRequest, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClaim as Devices, DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use machinery::quantity::Quantity;
use reconcile::Key;

use super::Impossible;
use super::allocate::Wanted;
use crate::framework::Refusal;
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

/// Before the name of a class it is a resource that the class gives, whatever it says.
const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";
/// On the claim that stands for the extended resources of a pod.
const ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";

/// A resource that is not Kubernetes' own, such as `example.com/gpu`.
pub(crate) fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    let as_quota = || machinery::names::qualified_name(&format!("requests.{name}"));
    !is_native && !name.starts_with("requests.") && as_quota().is_empty()
}

/// Whether devices may satisfy a resource of that name.
fn is_name(name: &str) -> bool {
    is_extended(name) || name.starts_with(IMPLICIT)
}

/// The class whose devices a resource stands for. Of two that name it, the newer: whoever moves from one to another makes the new one
/// first.
pub(crate) fn class_of(objects: &Objects, resource: &str) -> Option<Arc<DeviceClass>> {
    if let Some(class) = resource.strip_prefix(IMPLICIT) {
        return objects.device_classes.get(&Key::cluster(class));
    }
    let all = objects.device_classes.list().into_iter();
    let named = all.filter(|class| class.spec.extended_resource_name.as_deref() == Some(resource));
    // The list is sorted by name, and of equals the first is taken.
    named.reduce(|best, other| {
        let made = |class: &DeviceClass| class.metadata.creation_timestamp.clone();
        if made(&other) > made(&best) { other } else { best }
    })
}

/// Which of the resources that are asked for have a class.
pub(crate) fn with_class(objects: &Objects, asked: &Resources) -> Vec<String> {
    let names = asked.other.iter().filter(|(name, amount)| *amount > 0 && is_name(name));
    names.filter(|(name, _)| class_of(objects, name).is_some()).map(|(name, _)| name.clone()).collect()
}

/// Whether a class gives some of what is asked for.
pub(crate) fn gives(objects: &Objects, class: &Key, asked: &Resources) -> bool {
    let named = objects.device_classes.get(class).and_then(|class| class.spec.extended_resource_name.clone());
    asked.other(&format!("{IMPLICIT}{}", class.name)) > 0 || named.is_some_and(|name| asked.other(&name) > 0)
}

/// The claim that an earlier decision made for the pod.
pub(super) fn made_for(objects: &Objects, pod: &PodInfo) -> Option<Arc<ResourceClaim>> {
    objects.device_claims.owned_by(&pod.uid).into_iter().find(|claim| stands_for(claim, &pod.uid))
}

/// Whether the claim stands for extended resources of that pod.
pub(crate) fn stands_for(claim: &ResourceClaim, uid: &str) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(ANNOTATION)).is_some_and(|value| value == "true")
        && controller_of(&claim.metadata).is_some_and(|owner| owner.uid == uid)
}

/// What a pod asks for that devices may satisfy.
pub(super) struct Extended<'a> {
    objects: &'a Objects,
    pod: &'a PodInfo,
    /// All extended resources of the pod; those that have a class, with its name.
    asked: Vec<(String, Option<String>)>,
    /// A claim of an earlier decision, which must go first.
    stale: Option<Arc<ResourceClaim>>,
    /// The claims that were needed so far: nodes differ in what their device plugins have.
    made: RefCell<BTreeMap<Vec<String>, Rc<NodeClaim>>>,
}

/// The claim that a pod needs on a node.
pub(super) struct NodeClaim {
    pub wanted: Wanted,
    pub mappings: Vec<ContainerExtendedResourceRequest>,
}

impl<'a> Extended<'a> {
    /// Nothing where no class gives any of what the pod asks for.
    pub(super) fn new(objects: &'a Objects, pod: &'a PodInfo) -> Option<Extended<'a>> {
        let names = pod.requests.other.iter().filter(|(name, amount)| *amount > 0 && is_name(name));
        let class = |name: &str| class_of(objects, name).and_then(|class| class.metadata.name.clone());
        let asked: Vec<_> = names.map(|(name, _)| (name.clone(), class(name))).collect();
        asked.iter().any(|(_, class)| class.is_some()).then(|| Extended {
            stale: made_for(objects, pod),
            made: RefCell::default(),
            objects,
            pod,
            asked,
        })
    }

    /// The claim that the pod needs on that node, if its device plugins do not have all of it.
    pub(super) fn on(&self, node: &NodeInfo) -> Result<Option<Rc<NodeClaim>>, Refusal> {
        if self.stale.is_some() {
            return Err(Refusal::final_("cannot schedule extended resource claim"));
        }
        let mut missing = Vec::new();
        for (name, class) in &self.asked {
            let has = node.allocatable.other.iter().find(|(other, _)| other == name).map(|(_, amount)| *amount);
            match class {
                Some(_) if has.unwrap_or(0) == 0 => missing.push(name.clone()),
                None if has.is_none() => return Err(Refusal::final_("cannot fit resource")),
                Some(_) | None => {}
            }
        }
        if missing.is_empty() {
            return Ok(None);
        }
        if let Some(made) = self.made.borrow().get(&missing) {
            return Ok(Some(made.clone()));
        }
        let made = self.claim(&missing).map_err(|why| Refusal::final_(why.to_string()))?;
        let made = Rc::new(made);
        self.made.borrow_mut().insert(missing, made.clone());
        Ok(Some(made))
    }

    fn claim(&self, missing: &[String]) -> Result<NodeClaim, Impossible> {
        let classes = self.asked.iter().filter(|(name, _)| missing.contains(name));
        let classes = classes.filter_map(|(name, class)| Some((name.as_str(), class.as_deref()?)));
        let classes: BTreeMap<&str, &str> = classes.collect();
        let (requests, mappings) = requests_and_mappings(&self.pod.pod, &classes);
        let claim = Arc::new(unnamed_claim(self.pod, requests));
        Ok(NodeClaim { wanted: Wanted::new(self.objects, claim)?, mappings })
    }
}

/// The server gives it a name.
fn unnamed_claim(pod: &PodInfo, requests: Vec<DeviceRequest>) -> ResourceClaim {
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.key.name.clone(),
        uid: pod.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    ResourceClaim {
        metadata: ObjectMeta {
            namespace: Some(pod.key.namespace.clone()),
            generate_name: Some(format!("{}-extended-resources-", pod.key.name)),
            owner_references: Some(vec![owner]),
            annotations: Some([(ANNOTATION.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: ResourceClaimSpec { devices: Some(Devices { requests: Some(requests), ..Devices::default() }) },
        status: None,
    }
}

/// The requests that stand for these resources, given with their classes, and which container has which of them. Containers that run
/// together have devices of their own; init containers, which end before the others start, use those of the later ones first, and share
/// what they need besides.
fn requests_and_mappings(
    pod: &Pod,
    classes: &BTreeMap<&str, &str>,
) -> (Vec<DeviceRequest>, Vec<ContainerExtendedResourceRequest>) {
    let init = || pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let containers: Vec<&Container> = init().chain(pod.spec.iter().flat_map(|spec| &spec.containers)).collect();
    let ends = |place: usize| place < init().count() && containers[place].restart_policy.as_deref() != Some("Always");
    let (mut requests, mut mappings) = (Vec::new(), Vec::new());
    for (resource, class) in classes {
        let mut staying: Vec<Option<DeviceRequest>> = vec![None; containers.len()];
        for place in (0..containers.len()).filter(|place| !ends(*place)) {
            let (request, own) = of_container(place, containers[place], resource, class, &[]);
            staying[place] = request;
            mappings.extend(own);
        }
        let mut largest: Option<DeviceRequest> = None;
        let (mut names, mut ending) = (BTreeSet::new(), Vec::new());
        for place in (0..containers.len()).filter(|place| ends(*place)) {
            let (request, own) = of_container(place, containers[place], resource, class, &staying[place..]);
            ending.extend(own);
            let Some(request) = request else { continue };
            names.insert(request.name.clone());
            if largest.as_ref().is_none_or(|largest| count(largest) < count(&request)) {
                largest = Some(request);
            }
        }
        if let Some(largest) = &largest {
            let others = ending.iter_mut().filter(|mapping| names.contains(&mapping.request_name));
            others.for_each(|mapping| mapping.request_name.clone_from(&largest.name));
        }
        requests.extend(largest);
        requests.extend(staying.into_iter().flatten());
        mappings.extend(ending);
    }
    requests.sort_by(|one, other| one.name.cmp(&other.name));
    (requests, mappings)
}

fn count(request: &DeviceRequest) -> i64 {
    request.exactly.as_ref().and_then(|exactly| exactly.count).unwrap_or(0)
}

/// What one container needs besides the requests that it can use of others, and all that it uses.
fn of_container(
    place: usize,
    container: &Container,
    resource: &str,
    class: &str,
    usable: &[Option<DeviceRequest>],
) -> (Option<DeviceRequest>, Vec<ContainerExtendedResourceRequest>) {
    let mut mappings = Vec::new();
    let asked = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let Some(asked) = asked else { return (None, mappings) };
    let amount = asked.get(resource).and_then(|amount| Quantity::parse(&amount.0).ok()).map_or(0, |one| one.value());
    if amount == 0 {
        return (None, mappings);
    }
    let mapping = |request: &str| ContainerExtendedResourceRequest {
        container_name: container.name.clone(),
        resource_name: resource.to_owned(),
        request_name: request.to_owned(),
    };
    let mut had = 0;
    for request in usable.iter().flatten() {
        had += count(request);
        mappings.push(mapping(&request.name));
        if had >= amount {
            return (None, mappings);
        }
    }
    // By the container's place among all, and that of the resource among all that the container asks for, which are sorted.
    let index = asked.keys().position(|name| name == resource).unwrap_or(0);
    let name = format!("container-{place}-request-{index}");
    mappings.push(mapping(&name));
    let exactly = ExactDeviceRequest {
        device_class_name: class.to_owned(),
        allocation_mode: Some("ExactCount".into()),
        count: Some(amount - had),
        ..ExactDeviceRequest::default()
    };
    (Some(DeviceRequest { name, exactly: Some(exactly), first_available: None }), mappings)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Containers as `name resource=amount ...`; names that begin with `init` or `sidecar` come first.
    fn pod(containers: &[&str]) -> Pod {
        let (mut init, mut regular) = (Vec::new(), Vec::new());
        for text in containers {
            let words: Vec<&str> = text.split_whitespace().collect();
            let requests = words[1..].iter().filter_map(|word| word.split_once('='));
            let requests: BTreeMap<&str, &str> = requests.collect();
            let mut container = json!({"name": words[0], "resources": {"requests": requests}});
            if words[0].starts_with("sidecar") {
                container["restartPolicy"] = "Always".into();
            }
            let is_init = words[0].starts_with("init") || words[0].starts_with("sidecar");
            if is_init { init.push(container) } else { regular.push(container) }
        }
        serde_json::from_value(
            json!({"metadata": {"name": "p"}, "spec": {"initContainers": init, "containers": regular}}),
        )
        .expect("a pod")
    }

    /// `request class count` and `container resource request`.
    #[track_caller]
    fn check(containers: &[&str], classes: &[(&str, &str)], requests: &[&str], mappings: &[&str]) {
        let classes: BTreeMap<&str, &str> = classes.iter().copied().collect();
        let (found, mapped) = requests_and_mappings(&pod(containers), &classes);
        let found = found.iter().map(|one| {
            let exactly = one.exactly.as_ref().expect("exactly");
            assert_eq!(exactly.allocation_mode.as_deref(), Some("ExactCount"));
            format!("{} {} {}", one.name, exactly.device_class_name, count(one))
        });
        assert_eq!(found.collect::<Vec<_>>(), requests, "{containers:?}");
        let mapped =
            mapped.iter().map(|one| format!("{} {} {}", one.container_name, one.resource_name, one.request_name));
        assert_eq!(mapped.collect::<Vec<_>>(), mappings, "{containers:?}");
    }

    /// The cases of upstream's own tests, and its comments about init containers.
    #[test]
    fn requests_stand_for_resources_of_containers() {
        let (a, b) = (("x.io/a", "class"), ("x.io/b", "other"));
        check(&["con x.io/a=1 x.io/b=2"], &[], &[], &[]);
        check(
            &["con x.io/a=1 x.io/b=2"],
            &[a],
            &["container-0-request-0 class 1"],
            &["con x.io/a container-0-request-0"],
        );
        check(
            &["con x.io/a=1 x.io/b=2"],
            &[a, b],
            &["container-0-request-0 class 1", "container-0-request-1 other 2"],
            &["con x.io/a container-0-request-0", "con x.io/b container-0-request-1"],
        );
        check(
            &["con0 x.io/a=1", "con1 x.io/b=2"],
            &[a, b],
            &["container-0-request-0 class 1", "container-1-request-0 other 2"],
            &["con0 x.io/a container-0-request-0", "con1 x.io/b container-1-request-0"],
        );
        // All that a container asks for counts in the index, not only what devices give.
        check(
            &["con cpu=1 memory=1Gi x.io/a=1"],
            &[a],
            &["container-0-request-2 class 1"],
            &["con x.io/a container-0-request-2"],
        );
        check(
            &["con x.io/a=1", "init0 x.io/b=2"],
            &[a, b],
            &["container-0-request-0 other 2", "container-1-request-0 class 1"],
            &["con x.io/a container-1-request-0", "init0 x.io/b container-0-request-0"],
        );
        // Init containers run one after the other and share the largest request.
        check(
            &["con x.io/a=1", "init0 x.io/b=1", "init1 x.io/b=2"],
            &[a, b],
            &["container-1-request-0 other 2", "container-2-request-0 class 1"],
            &[
                "con x.io/a container-2-request-0",
                "init0 x.io/b container-1-request-0",
                "init1 x.io/b container-1-request-0",
            ],
        );
        // What a later sidecar will have is used before it starts, and not after.
        check(
            &["con x.io/a=1", "init0 x.io/b=1", "sidecar1 x.io/b=1", "init2 x.io/b=2"],
            &[a, b],
            &["container-1-request-0 other 1", "container-2-request-0 other 2", "container-3-request-0 class 1"],
            &[
                "con x.io/a container-3-request-0",
                "sidecar1 x.io/b container-1-request-0",
                "init0 x.io/b container-1-request-0",
                "init2 x.io/b container-2-request-0",
            ],
        );
        // It takes what the container after it has, and one more of its own.
        check(
            &["con x.io/a=1", "init0 x.io/a=2"],
            &[a],
            &["container-0-request-0 class 1", "container-1-request-0 class 1"],
            &[
                "con x.io/a container-1-request-0",
                "init0 x.io/a container-1-request-0",
                "init0 x.io/a container-0-request-0",
            ],
        );
        let implicit = ("deviceclass.resource.kubernetes.io/other", "other");
        check(
            &["init0 deviceclass.resource.kubernetes.io/other=2 x.io/b=1"],
            &[b, implicit],
            &["container-0-request-0 other 2", "container-0-request-1 other 1"],
            &[
                "init0 deviceclass.resource.kubernetes.io/other container-0-request-0",
                "init0 x.io/b container-0-request-1",
            ],
        );
        check(&["con x.io/a=0"], &[a], &[], &[]);
    }

    #[test]
    fn the_newest_class_gives_a_resource() {
        let class = |name: &str, resource: Option<&str>, made: &str| -> DeviceClass {
            let metadata = json!({"name": name, "creationTimestamp": made});
            let spec = resource.map_or(json!({}), |name| json!({"extendedResourceName": name}));
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a class")
        };
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let mut objects = Objects::empty();
        objects.device_classes = reconcile::Cache::holding([
            class("a", Some("x.io/gpu"), early),
            class("b", Some("x.io/gpu"), late),
            class("c", Some("x.io/gpu"), late),
            class("d", None, late),
        ]);
        let name = |resource: &str| class_of(&objects, resource).and_then(|class| class.metadata.name.clone());
        let found = |name: &str| Some(name.to_owned());
        assert_eq!(name("x.io/gpu"), found("b"));
        assert_eq!(name("x.io/other"), None);
        assert_eq!(name("deviceclass.resource.kubernetes.io/d"), found("d"));
        assert_eq!(name("deviceclass.resource.kubernetes.io/x"), None);
        let asked = Resources {
            other: [
                ("deviceclass.resource.kubernetes.io/d", 1),
                ("hugepages-2Mi", 1),
                ("x.io/gpu", 0),
                ("x.io/other", 2),
            ]
            .map(|(name, amount)| (name.to_owned(), amount))
            .into(),
            ..Resources::default()
        };
        assert_eq!(with_class(&objects, &asked), ["deviceclass.resource.kubernetes.io/d"]);
    }
}
