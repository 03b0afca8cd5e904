//! Rules of classes, drivers and capacities of storage: a good object, one change at a time, and what upstream (v1.36.4) says to it.

use serde_json::{Value, json};

use crate::testing::Rules;

fn csistorage_capacity() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": "c", "namespace": "n"},
        "storageClassName": "fast",
    })
}

fn volume_attributes_class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttributesClass",
        "metadata": {"name": "v"},
        "driverName": "csi.example.com",
        "parameters": {"iops": "100"},
    })
}

fn storage_class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "s"},
        "provisioner": "csi.example.com",
    })
}

fn csidriver() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "csi.example.com"},
        "spec": {"attachRequired": true},
    })
}

#[test]
fn capacities() {
    let rules = Rules::of(csistorage_capacity());
    rules.create(
        json!({"storageClassName": ""}),
        &["storageClassName: Invalid value: \"\": a lowercase RFC 1123 subdomain must consist of lower \
             case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    rules.create(
        json!({"storageClassName": "a_b"}),
        &["storageClassName: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain must consist of \
             lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    rules.create(json!({"capacity": "-1"}), &["capacity: Invalid value: \"-1\": must be greater than or equal to 0"]);
    rules.create(json!({"maximumVolumeSize": "-1"}), &[]);
    rules.create(
        json!({"nodeTopology": {"matchLabels": {"-": "x"}}}),
        &["nodeTopology.matchLabels: Invalid value: \"-\": name part must consist of alphanumeric \
             characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
             'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"],
    );
    rules.update(
        json!({"storageClassName": "slow"}),
        &["storageClassName: Invalid value: \"slow\": field is immutable"],
    );
    rules.update(json!({"capacity": "5Gi"}), &[]);
    rules.update(
        json!({"nodeTopology": {"matchLabels": {"a": "b"}}}),
        &["nodeTopology: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: field is immutable"],
    );
}

#[test]
fn classes_of_attributes() {
    let rules = Rules::of(volume_attributes_class());
    rules.create(json!({"driverName": ""}), &["driverName: Required value"]);
    rules
        .create(json!({"parameters": null}), &["parameters: Required value: must contain at least one key/value pair"]);
    rules.create(json!({"parameters": {"": "x"}}), &["parameters: Invalid value: \"\": field can not be empty."]);
    rules.create(json!({"parameters": {"k": "x".repeat(300)}}), &[]);
    rules.update(json!({"driverName": "other"}), &["driverName: Forbidden: updates to driverName are forbidden."]);
    rules
        .update(json!({"parameters": {"iops": "5"}}), &["parameters: Forbidden: updates to parameters are forbidden."]);
}

#[test]
fn classes_of_storage() {
    let rules = Rules::of(storage_class());
    rules.create(json!({"provisioner": ""}), &["provisioner: Required value"]);
    rules.create(
        json!({"reclaimPolicy": "Recycle"}),
        &["reclaimPolicy: Unsupported value: \"Recycle\": supported values: \"Delete\", \"Retain\""],
    );
    rules.create(
        json!({"volumeBindingMode": "Later"}),
        &["volumeBindingMode: Unsupported value: \"Later\": supported values: \"Immediate\", \
             \"WaitForFirstConsumer\""],
    );
    rules.create(json!({"parameters": {"": "x"}}), &["parameters: Invalid value: \"\": field can not be empty."]);
    rules.create(
        json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "z", "values": ["a", "a"]}]}]}),
        &["allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: \"a\""],
    );
    rules.create(
        json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "z", "values": []}]}]}),
        &["allowedTopologies[0].matchLabelExpressions[0].values: Required value"],
    );
    rules.create(json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "z", "values": ["a"]}, {"key": "z", "values": ["b"]}]}]}), &["allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: \"z\""]);
    rules.create(json!({"volumeBindingMode": "Immediate", "allowedTopologies": [{"matchLabelExpressions": [{"key": "z", "values": ["a"]}]}, {"matchLabelExpressions": [{"key": "z", "values": ["a"]}]}]}), &["allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\""]);
    rules.update(json!({"provisioner": "other"}), &["provisioner: Invalid value: \"other\": field is immutable"]);
    rules.update(json!({"parameters": {"a": "b"}}), &["parameters: Invalid value: {\"a\":\"b\"}: field is immutable"]);
    rules.update(json!({"reclaimPolicy": "Retain"}), &["reclaimPolicy: Invalid value: \"Retain\": field is immutable"]);
    rules.update(
        json!({"volumeBindingMode": "WaitForFirstConsumer"}),
        &["volumeBindingMode: Invalid value: \"WaitForFirstConsumer\": field is immutable"],
    );
    rules.update(json!({"allowVolumeExpansion": true}), &[]);
}

#[test]
fn drivers() {
    let rules = Rules::of(csidriver());
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(
        spec(json!({"volumeLifecycleModes": ["Forever"]})),
        &["spec.volumeLifecycleModes: Unsupported value: \"Forever\": supported values: \"Persistent\", \
             \"Ephemeral\""],
    );
    rules.create(
        spec(json!({"fsGroupPolicy": "Some"})),
        &["spec.fsGroupPolicy: Unsupported value: \"Some\": supported values: \"File\", \"None\", \
             \"ReadWriteOnceWithFSType\""],
    );
    rules.create(
        spec(json!({"tokenRequests": [{"audience": "a"}, {"audience": "a"}]})),
        &["spec.tokenRequests[1].audience: Duplicate value: \"a\""],
    );
    rules.create(
        spec(json!({"tokenRequests": [{"audience": "a", "expirationSeconds": 10}]})),
        &["spec.tokenRequests[0].expirationSeconds: Invalid value: 10: may not specify a duration less \
             than 10 minutes"],
    );
    rules.create(
        spec(json!({"nodeAllocatableUpdatePeriodSeconds": 5})),
        &["spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 5: must be greater than or equal to \
             10 seconds"],
    );
    rules.create(spec(json!({"nodeAllocatableUpdatePeriodSeconds": 10})), &[]);
    rules.update(
        spec(json!({"attachRequired": false})),
        &["spec.attachedRequired: Invalid value: false: field is immutable"],
    );
    rules.update(spec(json!({"podInfoOnMount": true})), &[]);
    rules.update(spec(json!({"fsGroupPolicy": "File"})), &[]);
    rules.update(
        spec(json!({"volumeLifecycleModes": ["Ephemeral"]})),
        &["spec.volumeLifecycleModes: Invalid value: [\"Ephemeral\"]: field is immutable"],
    );
    rules.update(spec(json!({"storageCapacity": true})), &[]);
}
