//! Claims and devices on two nodes, from small objects.

use reconcile::Cache;
use serde_json::{Value, json};

use super::*;
use crate::objects::Objects;
use crate::snapshot::Snapshot;

fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object")
}

fn nodes() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, zone) in [("n1", "x"), ("n2", "y")] {
        let metadata = json!({"name": name, "labels": {"zone": zone}});
        snapshot.set_node(Arc::new(read(json!({"metadata": metadata, "status": {"allocatable": {"pods": "10"}}}))));
    }
    snapshot.freeze();
    snapshot
}

/// `name model memory numa [taint]` each, on a node.
fn slice(node: &str, devices: &str) -> Value {
    let devices: Vec<Value> = devices
        .split(';')
        .map(|text| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let attributes = json!({"model": {"string": words[1]}, "example.com/numa": {"int": words[3].parse::<i64>().expect("a number")},
                "driverVersion": {"version": "1.2.3"}});
            let taints: Vec<Value> =
                words.get(4).map(|key| json!({"key": key, "effect": "NoSchedule"})).into_iter().collect();
            json!({"name": words[0], "attributes": attributes, "capacity": {"memory": {"value": words[2]}}, "taints": taints})
        })
        .collect();
    json!({"metadata": {"name": node}, "spec": {"driver": "gpu.example.com", "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices}})
}

/// A pod with this claim, and what else there is.
fn claimed(slices: &[Value], others: &[Value], claim: Value) -> (Objects, PodInfo) {
    let claim: ResourceClaim =
        read(json!({"metadata": {"name": "c", "namespace": "a", "uid": "c"}, "spec": {"devices": claim}}));
    let others = others.iter().map(|one| read(one.clone()));
    let class = json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}});
    let mut objects = Objects::empty();
    objects.device_claims = Cache::holding(others.chain([claim]));
    objects.device_classes = Cache::holding([read(class)]);
    objects.slices = Cache::holding(slices.iter().map(|one| read(one.clone())));
    let pod = json!({"metadata": {"name": "p", "namespace": "a", "uid": "p"},
        "spec": {"containers": [], "resourceClaims": [{"name": "d", "resourceClaimName": "c"}]}});
    (objects, PodInfo::new(Arc::new(read(pod))))
}

/// What the claim's devices are on each node: `n1: request=device,...`, or why there are none.
fn check(slices: &[Value], others: &[Value], claim: Value, expected: &[(&str, &str)]) {
    let (objects, pod) = claimed(slices, others, claim);
    let snapshot = nodes();
    let view = View { snapshot: &snapshot, objects: &objects, now: Default::default() };
    let question = match Question::new(view, &pod, BINDING_TIMEOUT) {
        Ok(question) => question,
        Err(why) => return assert_eq!([("", why.to_string().as_str())], expected),
    };
    for (node, expected) in expected {
        let info = snapshot.by_name(node).expect("a node");
        let found = match question.check(info) {
            Err(refusal) => refusal.reasons.join(", "),
            Ok(()) => {
                let reservation =
                    DynamicResources::default().reserve(view, &pod, info).expect("something is to be written");
                let status = reservation.devices[0].claim.status.clone().expect("a status");
                assert_eq!(status.reserved_for.expect("users")[0].uid, "p");
                let devices = status.allocation.and_then(|one| one.devices).and_then(|devices| devices.results);
                let devices = devices.unwrap_or_default();
                devices.iter().map(|one| format!("{}={}", one.request, one.device)).collect::<Vec<_>>().join(",")
            }
        };
        assert_eq!(found, *expected, "{node}");
    }
}

fn exactly(name: &str, more: Value) -> Value {
    let mut request = json!({"deviceClassName": "gpu"});
    for (key, value) in more.as_object().into_iter().flatten() {
        request[key] = value.clone();
    }
    json!({"name": name, "exactly": request})
}

fn selecting(expression: &str) -> Value {
    json!({"selectors": [{"cel": {"expression": expression}}]})
}

const NONE: &str = "cannot allocate all claims";

#[test]
fn devices_are_chosen_by_what_they_are() {
    let slices = [slice("n1", "g0 a 40Gi 0; g1 b 80Gi 1"), slice("n2", "g0 a 40Gi 0")];
    let one = |more: Value| json!({"requests": [exactly("r", more)]});
    check(&slices, &[], one(json!({})), &[("n1", "r=g0"), ("n2", "r=g0")]);
    let large = "device.capacity['gpu.example.com'].memory.compareTo(quantity('60Gi')) > 0";
    check(&slices, &[], one(selecting(large)), &[("n1", "r=g1"), ("n2", NONE)]);
    let model = "device.attributes['gpu.example.com'].model == 'b'";
    check(&slices, &[], one(selecting(model)), &[("n1", "r=g1"), ("n2", NONE)]);
    let version = "device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('1.2.0'))";
    check(&slices, &[], one(selecting(version)), &[("n2", "r=g0")]);
    check(&slices, &[], one(json!({"count": 2})), &[("n1", "r=g0,r=g1"), ("n2", NONE)]);
    check(&slices, &[], one(json!({"allocationMode": "All"})), &[("n1", "r=g0,r=g1"), ("n2", "r=g0")]);
    let wrong = "device.attributes['gpu.example.com'].size == 1";
    check(
        &slices,
        &[],
        one(selecting(wrong)),
        &[("n1", "claim a/c: selector #0: CEL runtime error: no such key: size")],
    );
    let unknown = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "none"}}]});
    check(&slices, &[], unknown, &[("", "request r: device class none does not exist")]);
}

#[test]
fn what_is_taken_or_incomplete_is_not_given() {
    let result = json!({"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "g0"});
    let other = json!({"metadata": {"name": "o", "namespace": "b", "uid": "o"}, "spec": {},
        "status": {"allocation": {"devices": {"results": [result]}}}});
    let slices = [slice("n1", "g0 a 1Gi 0; g1 a 1Gi 1; g2 a 1Gi 1 broken"), slice("n2", "g0 a 1Gi 0")];
    let taken = [other];
    check(&slices, &taken, json!({"requests": [exactly("r", json!({}))]}), &[("n1", "r=g1"), ("n2", "r=g0")]);
    let watches = exactly("r", json!({"adminAccess": true}));
    check(&slices, &taken, json!({"requests": [watches]}), &[("n1", "r=g0")]);
    let tolerant = exactly("r", json!({"count": 2, "tolerations": [{"key": "broken", "operator": "Exists"}]}));
    check(&slices, &taken, json!({"requests": [tolerant]}), &[("n1", "r=g1,r=g2")]);
    // A driver is in the middle of an update: the old generation counts no more, the new one not yet.
    let mut newer = slice("n2", "g0 a 1Gi 0");
    newer["metadata"]["name"] = "newer".into();
    newer["spec"]["pool"] = json!({"name": "n2", "generation": 2, "resourceSliceCount": 2});
    let updating = [slices[1].clone(), newer];
    check(&updating, &[], json!({"requests": [exactly("r", json!({}))]}), &[("n2", NONE)]);
}

#[test]
fn requests_hold_together() {
    let slices = [slice("n1", "g0 a 1Gi 0; g1 a 1Gi 1; g2 b 1Gi 1"), slice("n2", "g0 a 1Gi 0; g1 b 1Gi 1")];
    let both = |constraint: Value| {
        json!({"requests": [exactly("a", selecting("device.attributes['gpu.example.com'].model == 'a'")),
            exactly("b", selecting("device.attributes['gpu.example.com'].model == 'b'"))], "constraints": [constraint]})
    };
    let same = json!({"matchAttribute": "example.com/numa"});
    check(&slices, &[], both(same), &[("n1", "a=g1,b=g2"), ("n2", NONE)]);
    let different = json!({"distinctAttribute": "example.com/numa"});
    check(&slices, &[], both(different), &[("n1", "a=g0,b=g2"), ("n2", "a=g0,b=g1")]);
    // The first way that goes.
    let way = |name: &str, count: usize| json!({"name": name, "deviceClassName": "gpu", "count": count});
    let first = json!({"requests": [{"name": "r", "firstAvailable": [way("three", 3), way("two", 2)]}]});
    check(&slices, &[], first, &[("n1", "r/three=g0,r/three=g1,r/three=g2"), ("n2", "r/two=g0,r/two=g1")]);
}

/// Two halves and the whole of one device share its memory.
#[test]
fn parts_of_a_device_exclude_each_other() {
    let mut parts = slice("n1", "half-0 a 20Gi 0; half-1 a 20Gi 0; whole b 40Gi 0");
    parts["spec"]["pool"]["resourceSliceCount"] = 2.into();
    for (place, memory) in ["20Gi", "20Gi", "40Gi"].into_iter().enumerate() {
        let consumes = json!([{"counterSet": "card", "counters": {"memory": {"value": memory}}}]);
        parts["spec"]["devices"][place]["consumesCounters"] = consumes;
    }
    let mut counters = slice("n1", "x a 1Gi 0");
    counters["metadata"]["name"] = "counters".into();
    counters["spec"]["pool"]["resourceSliceCount"] = 2.into();
    counters["spec"]["devices"] = json!([]);
    counters["spec"]["sharedCounters"] = json!([{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]);
    let slices = [parts.clone(), counters];
    let taken = |device: &str| {
        let result = json!({"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": device});
        json!({"metadata": {"name": "o", "namespace": "b", "uid": "o"}, "spec": {},
            "status": {"allocation": {"devices": {"results": [result]}}}})
    };
    let one = |more: Value| json!({"requests": [exactly("r", more)]});
    let whole = || selecting("device.attributes['gpu.example.com'].model == 'b'");
    check(&slices, &[], one(json!({})), &[("n1", "r=half-0")]);
    check(&slices, &[], one(json!({"count": 2})), &[("n1", "r=half-0,r=half-1")]);
    check(&slices, &[], one(json!({"count": 3})), &[("n1", NONE)]);
    check(&slices, &[taken("half-1")], one(json!({})), &[("n1", "r=half-0")]);
    check(&slices, &[taken("half-1")], one(whole()), &[("n1", NONE)]);
    check(&slices, &[taken("whole")], one(json!({})), &[("n1", NONE)]);
    check(&slices, &[], one(whole()), &[("n1", "r=whole")]);
    // Without its counters a part is nobody's.
    parts["spec"]["pool"]["resourceSliceCount"] = 1.into();
    check(&[parts], &[], one(json!({})), &[("n1", NONE)]);
}

#[test]
fn a_device_is_shared_by_its_capacity() {
    let mut shared = slice("n1", "g0 a 10Gi 0");
    shared["spec"]["devices"][0]["allowMultipleAllocations"] = true.into();
    let asks = |memory: &str, count: usize| json!({"requests": [exactly("r", json!({"count": count, "capacity": {"requests": {"memory": memory}}}))]});
    let slices = [shared, slice("n2", "g0 a 4Gi 0")];
    let other = |memory: &str| {
        let result = json!({"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "g0",
            "shareID": "00000000-0000-4000-8000-000000000000", "consumedCapacity": {"memory": memory}});
        json!({"metadata": {"name": "o", "namespace": "b", "uid": "o"}, "spec": {},
            "status": {"allocation": {"devices": {"results": [result]}}}})
    };
    check(&slices, &[], asks("4Gi", 1), &[("n1", "r=g0"), ("n2", "r=g0")]);
    check(&slices, &[], asks("5Gi", 1), &[("n1", "r=g0"), ("n2", NONE)]);
    check(&slices, &[], asks("5Gi", 2), &[("n1", "r=g0,r=g0")]);
    check(&slices, &[], asks("5Gi", 3), &[("n1", NONE)]);
    check(&slices, &[other("6Gi")], asks("4Gi", 1), &[("n1", "r=g0")]);
    check(&slices, &[other("7Gi")], asks("4Gi", 1), &[("n1", NONE)]);
    // Who says nothing asks for all of it.
    check(&slices, &[other("1Gi")], json!({"requests": [exactly("r", json!({}))]}), &[("n1", NONE), ("n2", "r=g0")]);
}

/// A selector that fails on one node is wrong: the pod goes to no other node either, so that somebody sees it.
#[test]
fn a_selector_that_fails_ends_the_attempt() {
    let claim = json!({"requests": [exactly("r", selecting("device.attributes['gpu.example.com'].size == 1"))]});
    let mut sized = slice("n1", "g0 a 1Gi 0");
    sized["spec"]["devices"][0]["attributes"]["size"] = json!({"int": 1});
    let (objects, pod) = claimed(&[sized, slice("n2", "g0 a 1Gi 0")], &[], claim);
    let snapshot = nodes();
    let view = View { snapshot: &snapshot, objects: &objects, now: Default::default() };
    for start in [0, 1] {
        let mut random = <rand::rngs::SmallRng as rand::SeedableRng>::seed_from_u64(1);
        let profile = crate::profile::Profile::standard();
        let decision = crate::cycle::decide(&profile, view, &pod, &mut { start }, &mut random);
        let crate::cycle::Decision::Error(why) = decision else { panic!("{decision:?}") };
        let expected = "claim a/c: selector #0: CEL runtime error: no such key: size";
        assert_eq!(why, format!("running \"DynamicResources\" filter plugin: {expected}"));
    }
}

/// A slice for every node whose devices must be made ready.
fn attachable(pool: &str, devices: &[&str], binds: bool) -> Value {
    let conditions =
        json!({"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"], "bindsToNode": binds});
    let devices = devices.iter().map(|name| {
        let mut device = conditions.clone();
        device["name"] = (*name).into();
        device
    });
    let devices: Vec<Value> = devices.collect();
    json!({"metadata": {"name": pool}, "spec": {"driver": "gpu.example.com", "allNodes": true,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}, "devices": devices}})
}

fn pod_with_claim() -> PodInfo {
    let pod = json!({"metadata": {"name": "p", "namespace": "a", "uid": "p"},
        "spec": {"containers": [], "resourceClaims": [{"name": "d", "resourceClaimName": "c"}]}});
    PodInfo::new(Arc::new(read(pod)))
}

/// The objects with one claim for one device, of this status.
fn with_claim(slices: &[Value], status: Value) -> Objects {
    let devices = json!({"requests": [exactly("r", json!({}))]});
    let claim = json!({"metadata": {"name": "c", "namespace": "a", "uid": "c"}, "spec": {"devices": devices}, "status": status});
    let mut objects = Objects::empty();
    objects.device_claims = Cache::holding([read(claim)]);
    objects.device_classes = Cache::holding([read(json!({"metadata": {"name": "gpu"}, "spec": {}}))]);
    objects.slices = Cache::holding(slices.iter().map(|one| read(one.clone())));
    objects
}

#[test]
fn devices_that_are_ready_come_first() {
    let one = |more: Value| json!({"requests": [exactly("r", more)]});
    // By its name the pool would come first.
    let slices = [attachable("a", &["far"], true), slice("n1", "near a 1Gi 0")];
    check(&slices, &[], one(json!({})), &[("n1", "r=near"), ("n2", "r=far")]);
    check(&slices, &[], one(json!({"count": 2})), &[("n1", "r=near,r=far"), ("n2", NONE)]);
}

#[test]
fn an_allocation_says_what_is_to_be_waited_for() {
    let snapshot = nodes();
    let node = snapshot.by_name("n2").expect("a node");
    for binds in [true, false] {
        let objects = with_claim(&[attachable("a", &["far"], binds)], json!({}));
        let view = View { snapshot: &snapshot, objects: &objects, now: Timestamp::UNIX_EPOCH };
        let reservation = DynamicResources::default().reserve(view, &pod_with_claim(), node).expect("a reservation");
        assert!(bind::has_conditions(&reservation));
        assert_eq!(reservation.devices[0].state, DeviceClaimState::Chosen);
        let claim = serde_json::to_value(&*reservation.devices[0].claim).expect("a claim");
        let allocation = &claim["status"]["allocation"];
        let result = json!({"request": "r", "driver": "gpu.example.com", "pool": "a", "device": "far",
            "bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]});
        assert_eq!(allocation["devices"]["results"], json!([result]));
        let fields = json!([{"key": "metadata.name", "operator": "In", "values": ["n2"]}]);
        let selector = json!({"nodeSelectorTerms": [{"matchFields": fields}]});
        // Without it the device is there for every node.
        assert_eq!(allocation["nodeSelector"], if binds { selector } else { Value::Null });
    }
}

#[test]
fn claims_whose_devices_failed_are_given_back() {
    let check = |condition: Value, users: Value, now: &str, expected: Option<&str>| {
        let result = json!({"request": "r", "driver": "gpu.example.com", "pool": "a", "device": "far",
            "bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]});
        let allocation = json!({"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": [result]}});
        let device = json!({"driver": "gpu.example.com", "pool": "a", "device": "far", "conditions": [condition]});
        let status = json!({"allocation": allocation, "reservedFor": users, "devices": [device]});
        let objects = with_claim(&[attachable("a", &["far"], false)], status);
        let (snapshot, pod) = (nodes(), pod_with_claim());
        let now = now.parse().expect("a time");
        let view = View { snapshot: &snapshot, objects: &objects, now };
        let question = Question::new(view, &pod, BINDING_TIMEOUT).expect("a question");
        let refusals: Vec<_> = snapshot.nodes().map(|node| (node, question.check(node).err())).collect();
        let refused = refusals.iter().filter_map(|(node, refusal)| Some((*node, refusal.as_ref()?)));
        let clean_up = clean_up(view, &pod, refused.clone(), BINDING_TIMEOUT);
        let found = (refused.count() > 0).then(|| clean_up.message());
        assert_eq!(found, expected, "{condition} {now}");
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let own = || json!([{"resource": "pods", "name": "p", "uid": "p"}]);
    let early = "2026-01-01T00:00:01Z";
    let freed = Some("deallocation of ResourceClaim completed");
    check(condition("Other"), own(), early, None);
    check(condition("Attached"), json!([]), "2026-01-03T00:00:00Z", None);
    check(condition("Broken"), own(), early, freed);
    check(condition("Other"), json!([]), "2026-01-01T00:10:01Z", freed);
    // Others use it, and may be fine with it.
    let both = json!([{"resource": "pods", "name": "p", "uid": "p"}, {"resource": "pods", "name": "q", "uid": "q"}]);
    check(condition("Broken"), both, early, Some("still not schedulable"));
}

/// A pod that asks for `resource=amount ...` in one container, and perhaps has a claim of its own.
fn pod_asking(words: &str, with_claim: bool) -> PodInfo {
    let requests: std::collections::BTreeMap<&str, &str> =
        words.split_whitespace().filter_map(|word| word.split_once('=')).collect();
    let claims = if with_claim { json!([{"name": "d", "resourceClaimName": "c"}]) } else { json!([]) };
    let container = json!({"name": "con", "resources": {"requests": requests}});
    let pod = json!({"metadata": {"name": "p", "namespace": "a", "uid": "p"},
        "spec": {"containers": [container], "resourceClaims": claims}});
    PodInfo::new(Arc::new(read(pod)))
}

/// n1 has two of `x.io/plugged` by a device plugin; n2 says that it has none.
fn nodes_with_plugins() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, amount) in [("n1", "2"), ("n2", "0")] {
        let allocatable = json!({"x.io/plugged": amount, "pods": "10"});
        snapshot.set_node(Arc::new(read(json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}}))));
    }
    snapshot.freeze();
    snapshot
}

fn with_extended_class(mut objects: Objects, resource: &str) -> Objects {
    let class = json!({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": resource}});
    objects.device_classes = Cache::holding([read(class)]);
    objects
}

/// Which devices the claim for extended resources has on each node, or why there is none.
#[track_caller]
fn check_extended(objects: &Objects, pod: &PodInfo, expected: &[(&str, &str)]) {
    let snapshot = nodes_with_plugins();
    let view = View { snapshot: &snapshot, objects, now: Timestamp::UNIX_EPOCH };
    let question = Question::new(view, pod, BINDING_TIMEOUT).expect("a question");
    for (node, expected) in expected {
        let info = snapshot.by_name(node).expect("a node");
        let found = match question.check(info) {
            Err(refusal) => refusal.reasons.join(", "),
            Ok(()) => {
                let reservation = DynamicResources::default().reserve(view, pod, info).unwrap_or_default();
                let claims = reservation.devices.iter().map(|one| {
                    let kind = if matches!(one.state, DeviceClaimState::Uncreated(_)) { "made" } else { "own" };
                    let results = conditions::results(&one.claim).iter();
                    let results = results.map(|one| format!("{}={}", one.request, one.device)).collect::<Vec<_>>();
                    format!("{kind} {}", results.join(","))
                });
                claims.collect::<Vec<_>>().join("; ")
            }
        };
        assert_eq!(found, *expected, "{node}");
    }
}

#[test]
fn extended_resources_are_claimed_where_no_plugin_has_them() {
    let slices = [slice("n1", "g0 a 1Gi 0; g1 a 1Gi 0"), slice("n2", "g0 a 1Gi 0; g1 a 1Gi 0")];
    let plain = || with_claim(&slices, json!({}));
    let gpu = with_extended_class(plain(), "x.io/gpu");
    let one = "made container-0-request-0=g0";
    check_extended(&gpu, &pod_asking("x.io/gpu=1", false), &[("n1", one), ("n2", one)]);
    let two = "made container-0-request-0=g0,container-0-request-0=g1";
    check_extended(&gpu, &pod_asking("x.io/gpu=2", false), &[("n1", two)]);
    check_extended(&gpu, &pod_asking("x.io/gpu=3", false), &[("n1", NONE), ("n2", NONE)]);
    let implicit = "deviceclass.resource.kubernetes.io/gpu=1";
    check_extended(&plain(), &pod_asking(implicit, false), &[("n1", one)]);
    // The plugin's come first; of a plugin that has none left to offer, the driver's are taken.
    let plugged = with_extended_class(plain(), "x.io/plugged");
    check_extended(&plugged, &pod_asking("x.io/plugged=1", false), &[("n1", ""), ("n2", one)]);
    // What nobody gives keeps the pod away.
    let both = pod_asking("x.io/gpu=1 x.io/nobodys=1", false);
    check_extended(&gpu, &both, &[("n1", "cannot fit resource"), ("n2", "cannot fit resource")]);
    // Beside a claim of the pod's own, whose device it does not get too.
    let own = "own r=g0; made container-0-request-0=g1";
    check_extended(&gpu, &pod_asking("x.io/gpu=1", true), &[("n1", own)]);
    check_extended(&plugged, &pod_asking("x.io/plugged=1", true), &[("n1", "own r=g0")]);
}

#[test]
fn a_claim_for_extended_resources_is_made_anew() {
    let slices = [slice("n1", "g0 a 1Gi 0")];
    let pod = pod_asking("x.io/gpu=1", false);
    let mut objects = with_extended_class(with_claim(&slices, json!({})), "x.io/gpu");
    let snapshot = nodes_with_plugins();
    let node = snapshot.by_name("n1").expect("a node");
    let reserve = |objects: &Objects| {
        let view = View { snapshot: &snapshot, objects, now: Timestamp::UNIX_EPOCH };
        DynamicResources::default().reserve(view, &pod, node)
    };
    let reservation = reserve(&objects).expect("a reservation");
    let claim = serde_json::to_value(&*reservation.devices[0].claim).expect("a claim");
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true});
    let metadata = json!({"namespace": "a", "generateName": "p-extended-resources-", "ownerReferences": [owner],
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}});
    assert_eq!(claim["metadata"], metadata);
    // Its device is taken as soon as that is decided, though nothing is written yet, and free again when it is not written.
    objects.assume(&reservation);
    check_extended(&objects, &pod, &[("n1", NONE)]);
    objects.forget(&reservation);
    check_extended(&objects, &pod, &[("n1", "made container-0-request-0=g0")]);
    // What an earlier decision left must go before another is made.
    let mut left = ResourceClaim::clone(&reservation.devices[0].claim);
    left.metadata.name = Some("p-extended-resources-x".into());
    objects.device_claims = Cache::holding([left.clone()]);
    let stale = "cannot schedule extended resource claim";
    check_extended(&objects, &pod, &[("n1", stale), ("n2", stale)]);
    let view = View { snapshot: &snapshot, objects: &objects, now: Timestamp::UNIX_EPOCH };
    let done = clean_up(view, &pod, std::iter::empty(), BINDING_TIMEOUT);
    assert_eq!((done.message(), done), ("deletion of ResourceClaim completed", CleanUp::Delete(Arc::new(left))));
}

/// Somebody may say of a pod that it needs no claim after all; until then it waits for it.
#[test]
fn a_claim_that_the_status_waives_is_not_waited_for() {
    let pod = |statuses: Value| {
        let claims = json!([{"name": "d", "resourceClaimTemplateName": "t"}]);
        let pod = json!({"metadata": {"name": "p", "namespace": "a", "uid": "p"},
            "spec": {"containers": [], "resourceClaims": claims}, "status": {"resourceClaimStatuses": statuses}});
        PodInfo::new(Arc::new(read(pod)))
    };
    let plugin = DynamicResources::default();
    let (snapshot, objects) = (nodes(), Objects::empty());
    let view = View { snapshot: &snapshot, objects: &objects, now: Default::default() };
    assert!(!plugin.admits(&pod(json!([]))));
    let waived = pod(json!([{"name": "d"}]));
    assert!(plugin.admits(&waived) && matches!(plugin.filter(view, &waived), Filtering::Skip));
}

#[test]
fn nodes_with_the_better_alternative_are_preferred() {
    let slices = [slice("n1", "g0 small 1Gi 0; g1 small 1Gi 0"), slice("n2", "g0 large 1Gi 0; g1 small 1Gi 0")];
    let alternative = |model: &str| {
        let selectors =
            selecting(&format!("device.attributes['gpu.example.com'].model == '{model}'"))["selectors"].clone();
        json!({"name": model, "deviceClassName": "gpu", "selectors": selectors})
    };
    let scores = |requests: Value| -> Option<Vec<i64>> {
        let (objects, pod) = claimed(&slices, &[], json!({"requests": requests}));
        let snapshot = nodes();
        let view = View { snapshot: &snapshot, objects: &objects, now: Default::default() };
        let plugin = DynamicResources::default();
        let Scoring::Ask(question) = plugin.score(view, &pod, &[]) else { return None };
        let all: Vec<&NodeInfo> = ["n1", "n2"].map(|name| snapshot.by_name(name).expect("a node")).to_vec();
        let mut scores: Vec<i64> = all.iter().map(|node| question.score(node)).collect();
        question.normalize(&all, &mut scores);
        Some(scores)
    };
    let either = json!({"name": "r", "firstAvailable": [alternative("large"), alternative("small")]});
    assert_eq!(scores(json!([either])), Some(vec![87, 100]));
    assert_eq!(scores(json!([either, exactly("x", json!({}))])), Some(vec![87, 100]));
    let only_small = json!({"name": "r", "firstAvailable": [alternative("small")]});
    assert_eq!(scores(json!([only_small])), None, "all nodes are alike");
    assert_eq!(scores(json!([exactly("r", json!({}))])), None);
}
