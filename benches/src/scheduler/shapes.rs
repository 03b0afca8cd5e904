//! The shapes of scheduler_perf: what is there before, and the pods that are measured.

use serde_json::{Value, json};

pub struct Shape {
    pub name: &'static str,
    /// Pods that are there before, of which none is measured.
    pub before: Option<fn(usize) -> Value>,
    /// How many of them, for so many nodes.
    pub before_count: fn(usize) -> usize,
    /// Whether those find nodes.
    pub before_bound: bool,
    pub measured: fn(usize) -> Value,
    pub measured_max: usize,
    /// How many of them one node can take.
    pub measured_per_node: usize,
    /// Other objects that must be there, as paths and bodies, for so many nodes and pods.
    pub objects: fn(usize, usize) -> Vec<(String, Value)>,
    /// Patches of nodes, for so many of them.
    pub patches: fn(usize) -> Vec<(String, Value)>,
    /// Whether nodes, pods that fit nowhere and Services come and go meanwhile.
    pub churn: bool,
    /// Whether the decisions alone can be measured: they see nodes and pods only.
    pub inside: bool,
}

impl Shape {
    /// How many pods are measured on so many nodes: no more than can be bound.
    pub fn measured_count(&self, nodes: usize) -> usize {
        self.measured_max.min(self.measured_per_node.saturating_mul(nodes))
    }
}

pub const NAMESPACE: &str = "bench";

pub static SHAPES: &[Shape] = &[
    Shape { name: "basic", measured: basic, ..PLAIN },
    Shape { name: "node affinity", measured: node_affinity, ..PLAIN },
    Shape { name: "pod affinity", measured: pod_affinity, measured_max: 1000, ..PLAIN },
    Shape { name: "pod anti-affinity", measured: pod_anti_affinity, measured_max: 1000, measured_per_node: 1, ..PLAIN },
    Shape { name: "topology spread", measured: spread, ..PLAIN },
    Shape {
        name: "preemption",
        before: Some(low),
        before_count: |nodes| nodes,
        measured: high,
        measured_max: 500,
        measured_per_node: 1,
        ..PLAIN
    },
    Shape {
        name: "unschedulable mix",
        before: Some(too_large),
        before_count: |_| 200,
        before_bound: false,
        measured: basic,
        ..PLAIN
    },
    Shape { name: "preferred affinity", measured: preferred, measured_max: 1000, ..PLAIN },
    Shape { name: "taints", patches: tainted_nodes, inside: false, ..PLAIN },
    Shape { name: "volumes", measured: with_volume, measured_max: 1000, objects: volumes, inside: false, ..PLAIN },
    Shape { name: "claims", measured: with_claim, measured_max: 1000, objects: devices, inside: false, ..PLAIN },
    Shape { name: "gates", before: Some(gated), before_count: |_| 5000, before_bound: false, ..PLAIN },
    Shape { name: "mixed churn", churn: true, inside: false, ..PLAIN },
];

const PLAIN: Shape = Shape {
    name: "",
    before: None,
    before_count: |_| 0,
    before_bound: true,
    measured: basic,
    measured_max: 2000,
    measured_per_node: usize::MAX,
    objects: |_, _| Vec::new(),
    patches: |_| Vec::new(),
    churn: false,
    inside: true,
};

fn pod(name: String, labels: Value, cpu: &str, more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "100Mi"}}}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name, "labels": labels}, "spec": spec})
}

fn basic(number: usize) -> Value {
    pod(format!("basic-{number}"), json!({"app": "basic"}), "100m", json!({}))
}

fn node_affinity(number: usize) -> Value {
    let zones = json!([{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-0", "zone-1"]}]}]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}});
    pod(format!("near-{number}"), json!({"app": "near"}), "100m", json!({"affinity": affinity}))
}

fn pod_affinity(number: usize) -> Value {
    let term =
        json!([{"labelSelector": {"matchLabels": {"color": "blue"}}, "topologyKey": "topology.kubernetes.io/zone"}]);
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
    pod(format!("blue-{number}"), json!({"color": "blue"}), "100m", json!({"affinity": affinity}))
}

fn pod_anti_affinity(number: usize) -> Value {
    let term = json!([{"labelSelector": {"matchLabels": {"color": "green"}}, "topologyKey": "kubernetes.io/hostname"}]);
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
    pod(format!("green-{number}"), json!({"color": "green"}), "100m", json!({"affinity": affinity}))
}

fn spread(number: usize) -> Value {
    let constraint = json!([{"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"color": "blue"}}}]);
    pod(format!("spread-{number}"), json!({"color": "blue"}), "100m", json!({"topologySpreadConstraints": constraint}))
}

/// One of these fills a node.
fn low(number: usize) -> Value {
    pod(
        format!("low-{number}"),
        json!({"app": "low"}),
        "3500m",
        json!({"priority": 0, "terminationGracePeriodSeconds": 0}),
    )
}

fn high(number: usize) -> Value {
    pod(
        format!("high-{number}"),
        json!({"app": "high"}),
        "3000m",
        json!({"priorityClassName": "high", "priority": 1000}),
    )
}

fn too_large(number: usize) -> Value {
    pod(format!("large-{number}"), json!({"app": "large"}), "9", json!({}))
}

fn preferred(number: usize) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"color": "red"}}, "topologyKey": "kubernetes.io/hostname"});
    let terms = json!([{"weight": 1, "podAffinityTerm": term}]);
    let affinity = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}});
    pod(format!("red-{number}"), json!({"color": "red"}), "100m", json!({"affinity": affinity}))
}

fn gated(number: usize) -> Value {
    pod(
        format!("gated-{number}"),
        json!({"app": "gated"}),
        "100m",
        json!({"schedulingGates": [{"name": "bench/waits"}]}),
    )
}

/// Every third node takes nobody, and every other third is to be avoided.
fn tainted_nodes(nodes: usize) -> Vec<(String, Value)> {
    let patch = |number: usize| {
        let effect = ["NoSchedule", "PreferNoSchedule"][number % 3];
        let taints = json!([{"key": "bench/taint", "value": "yes", "effect": effect}]);
        (format!("/api/v1/nodes/hollow-{number}"), json!({"spec": {"taints": taints}}))
    };
    (0..nodes).filter(|number| number % 3 < 2).map(patch).collect()
}

/// One of a pod's own, which names it and is bound before pods come, as upstream's shape has it. The binding is left to the
/// binder: it takes a claim that calls itself bound to a volume that does not know it by its uid for lost, as upstream's does.
fn volumes(_: usize, pods: usize) -> Vec<(String, Value)> {
    let both = |number: usize| {
        let (volume, claim) = (format!("volume-{number}"), format!("claim-{number}"));
        let size = json!({"storage": "1Gi"});
        let reference =
            json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": NAMESPACE, "name": claim});
        let source = json!({"driver": "csi.bench.test", "volumeHandle": volume});
        let volume_object = json!({"metadata": {"name": volume}, "spec": {"capacity": size, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "", "claimRef": reference, "csi": source, "persistentVolumeReclaimPolicy": "Retain"}});
        let claim_object = json!({"metadata": {"name": claim}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": volume, "resources": {"requests": size}}});
        let claims = format!("/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims");
        [("/api/v1/persistentvolumes".to_owned(), volume_object), (claims, claim_object)]
    };
    (0..pods).flat_map(both).collect()
}

fn with_volume(number: usize) -> Value {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": format!("claim-{number}")}}]);
    pod(format!("stored-{number}"), json!({"app": "stored"}), "100m", json!({"volumes": volumes}))
}

/// Devices on every node, and a claim for each pod.
fn devices(nodes: usize, pods: usize) -> Vec<(String, Value)> {
    const GROUP: &str = "/apis/resource.k8s.io/v1";
    const EACH: usize = 20;
    let class = json!({"metadata": {"name": "bench"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'bench.test'"}}]}});
    let slice = |number: usize| {
        let node = format!("hollow-{number}");
        let devices: Vec<Value> = (0..EACH).map(|device| json!({"name": format!("device-{device}")})).collect();
        let slice = json!({"metadata": {"name": format!("slice-{number}")}, "spec": {"driver": "bench.test", "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices}});
        (format!("{GROUP}/resourceslices"), slice)
    };
    let claim = |number: usize| {
        let requests = json!([{"name": "one", "exactly": {"deviceClassName": "bench"}}]);
        let claim =
            json!({"metadata": {"name": format!("devices-{number}")}, "spec": {"devices": {"requests": requests}}});
        (format!("{GROUP}/namespaces/{NAMESPACE}/resourceclaims"), claim)
    };
    let classes = std::iter::once((format!("{GROUP}/deviceclasses"), class));
    classes.chain((0..nodes).map(slice)).chain((0..pods).map(claim)).collect()
}

fn with_claim(number: usize) -> Value {
    let claims = json!([{"name": "d", "resourceClaimName": format!("devices-{number}")}]);
    pod(format!("claims-{number}"), json!({"app": "claims"}), "100m", json!({"resourceClaims": claims}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_a_name_of_its_own_and_pods_that_differ() {
        let names: std::collections::BTreeSet<&str> = SHAPES.iter().map(|shape| shape.name).collect();
        assert_eq!(names.len(), SHAPES.len());
        for shape in SHAPES {
            assert_ne!(
                (shape.measured)(0)["metadata"]["name"],
                (shape.measured)(1)["metadata"]["name"],
                "{}",
                shape.name
            );
        }
    }

    #[test]
    fn no_shape_measures_more_pods_than_its_nodes_take() {
        let count = |name: &str, nodes: usize| {
            let shape = SHAPES.iter().find(|shape| shape.name == name).expect("a shape of that name");
            shape.measured_count(nodes)
        };
        assert_eq!((count("pod anti-affinity", 100), count("pod anti-affinity", 5000)), (100, 1000));
        assert_eq!((count("preemption", 100), count("preemption", 1000)), (100, 500));
        assert_eq!(count("basic", 100), 2000);
    }

    #[test]
    fn no_claim_calls_itself_bound() {
        let objects = volumes(1, 3);
        assert_eq!(objects.len(), 6);
        assert!(objects.iter().all(|(_, object)| object["metadata"].get("annotations").is_none()), "{objects:?}");
    }

    #[test]
    fn a_third_of_the_nodes_has_no_taint() {
        let patched = tainted_nodes(9);
        assert_eq!(patched.len(), 6);
        assert!(patched.iter().all(|(path, _)| !path.ends_with("-2") && !path.ends_with("-5")), "{patched:?}");
    }
}
