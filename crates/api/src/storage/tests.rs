//! Rules of storage kinds and of nodes in upstream's words.

use serde_json::{Value, json};

use crate::testing::Rules;

#[test]
fn storage_classes() {
    let rules = Rules::of(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": "d.example.com", "parameters": {"type": "ssd"},
    }));
    let made = rules.made(&Value::Null);
    assert_eq!((&made["reclaimPolicy"], &made["volumeBindingMode"]), (&json!("Delete"), &json!("Immediate")));
    rules.create(json!({"provisioner": null}), &["provisioner: Required value"]);
    rules.create(json!({"reclaimPolicy": "Recycle", "volumeBindingMode": "Later"}), &[
        "reclaimPolicy: Unsupported value: \"Recycle\": supported values: \"Delete\", \"Retain\"",
        "volumeBindingMode: Unsupported value: \"Later\": supported values: \"Immediate\", \"WaitForFirstConsumer\"",
    ]);
    let terms = |terms: Value| json!({"allowedTopologies": terms});
    let term = json!({"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]});
    rules.create(
        terms(json!([term, {"matchLabelExpressions": [{"key": "zone", "values": ["b", "a"]}]}])),
        &["allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\""],
    );
    rules.create(
        terms(json!([{"matchLabelExpressions": [{"key": "zone", "values": ["a", "a"]}, {"key": "zone"}]}])),
        &[
            "allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: \"a\"",
            "allowedTopologies[0].matchLabelExpressions[1].values: Required value",
            "allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: \"zone\"",
        ],
    );
    rules.update(json!({"allowVolumeExpansion": true, "mountOptions": ["noatime"]}), &[]);
    rules.update(
        json!({"provisioner": "e.example.com", "parameters": {"type": "hdd"}, "reclaimPolicy": "Retain"}),
        &[
            "parameters: Invalid value: {\"type\":\"hdd\"}: field is immutable",
            "provisioner: Invalid value: \"e.example.com\": field is immutable",
            "reclaimPolicy: Invalid value: \"Retain\": field is immutable",
        ],
    );
}

#[test]
fn csi_drivers() {
    let rules = Rules::of(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "d.example.com"}, "spec": {},
    }));
    rules.create(json!({"spec": {"fsGroupPolicy": "Some", "volumeLifecycleModes": ["Forever"]}}), &[
        "spec.fsGroupPolicy: Unsupported value: \"Some\": supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\"",
        "spec.volumeLifecycleModes: Unsupported value: \"Forever\": supported values: \"Persistent\", \"Ephemeral\"",
    ]);
    rules.create(json!({"spec": {"serviceAccountTokenInSecrets": true}}), &[
        "spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no tokenRequests are \
         specified",
    ]);
    let tokens = json!({"serviceAccountTokenInSecrets": true, "tokenRequests": [{"audience": "a"}]});
    rules.create(json!({"spec": tokens}), &[]);
    rules.create(json!({"spec": {"tokenRequests": [{"audience": "a", "expirationSeconds": 599}, {"audience": "a"}]}}), &[
        "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
        "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
    ]);
    rules.create(
        json!({"spec": {"nodeAllocatableUpdatePeriodSeconds": 9}}),
        &["spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds"],
    );
    rules.update(
        json!({"spec": {"attachRequired": false}}),
        &["spec.attachedRequired: Invalid value: false: field is immutable"],
    );
    let made = rules.made(&json!({"spec": {"preventPodSchedulingIfMissing": true}}));
    assert!(made["spec"].get("preventPodSchedulingIfMissing").is_none(), "of a feature that is off");
}

#[test]
fn csi_nodes() {
    let rules = Rules::of(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"},
        "spec": {"drivers": [{"name": "d.example.com", "nodeID": "1", "topologyKeys": ["zone"], "allocatable": {"count": 5}}]},
    }));
    rules.create(
        json!({"spec": {"drivers": [{"name": "", "nodeID": "", "allocatable": {"count": -1}}]}}),
        &[
            "spec.drivers[0].name: Required value",
            "spec.drivers[0].nodeID: Required value",
            "spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
    rules.create(
        json!({"spec": {"drivers": [{}, {"name": "d.example.com", "nodeID": "2"}]}}),
        &["spec.drivers[1].name: Duplicate value: \"d.example.com\""],
    );
    rules.update(json!({"spec": {"drivers": [{"allocatable": {"count": 6}}]}}), &[]);
    rules.update(
        json!({"spec": {"drivers": [{"nodeID": "2"}]}}),
        &["spec.drivers: Invalid value: {\"Name\":\"d.example.com\",\"NodeID\":\"2\",\"TopologyKeys\":[\"zone\"],\
         \"Allocatable\":null}: field is immutable"],
    );
}

#[test]
fn attachments() {
    let rules = Rules::of(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "a"},
        "spec": {"attacher": "d.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "p"}},
    }));
    rules.create(json!({"spec": {"attacher": ""}}), &["spec.attacher: Required value"]);
    rules.create(
        json!({"spec": {"source": {"persistentVolumeName": null}}}),
        &["spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"],
    );
    rules.update(
        json!({"spec": {"nodeName": "n2"}}),
        &["spec: Invalid value: {\"Attacher\":\"d.example.com\",\"Source\":{\"PersistentVolumeName\":\"p\",\
         \"InlineVolumeSpec\":null},\"NodeName\":\"n2\"}: field is immutable"],
    );
}

#[test]
fn nodes() {
    let rules =
        Rules::of(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {}, "status": {}}));
    let taint = |effect: &str| json!({"key": "k", "effect": effect});
    rules.create(json!({"spec": {"taints": [taint("Now")]}}), &[
        "metadata.taints[0].effect: Unsupported value: \"Now\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \
         \"NoExecute\"",
    ]);
    rules.create(json!({"spec": {"taints": [taint("NoExecute"), taint("NoExecute")]}}), &[
        "metadata.taints[1]: Duplicate value: {\"Key\":\"k\",\"Value\":\"\",\"Effect\":\"NoExecute\",\"TimeAdded\":null}: \
         taints must be unique by key and effect pair",
    ]);
    rules.create(json!({"spec": {"podCIDRs": ["10.0.0.0/24", "10.0.0.0/24"]}}), &[
        "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.0.0.0/24\"]: may specify no more than one CIDR for each IP family",
    ]);
    rules.create(
        json!({"spec": {"podCIDRs": ["010.0.0.0/24"]}}),
        &["spec.podCIDRs[0]: Invalid value: \"010.0.0.0/24\": must not have leading 0s in IP or prefix length"],
    );
    let features = |names: Value| json!({"status": {"declaredFeatures": names}});
    rules.create(features(json!(["Alpha", "Beta/sub", "Beta/sub2"])), &[]);
    rules.create(
        features(json!(["Beta", "Alpha", "Alpha"])),
        &[
            "status.declaredFeatures[1]: Invalid value: \"Alpha\": list must be sorted alphabetically",
            "status.declaredFeatures[2]: Duplicate value: \"Alpha\"",
        ],
    );
    rules.create(features(json!(["A/1"])), &[
        "status.declaredFeatures[0]: Invalid value: \"A/1\": invalid feature name \"A/1\": must start with an UpperCamelCase \
         segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only \
         alphanumeric characters and slashes",
    ]);
    rules.update_from(
        &json!({"spec": {"podCIDRs": ["10.0.0.0/24"], "providerID": "a"}}),
        json!({"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "providerID": "b"}}),
        &[
            "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
            "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
        ],
    );
}
