//! Rules of claims in upstream's words.

use machinery::field::Errors;
use machinery::node::Node;
use serde_json::{Value, json};

use super::KIND;
use crate::testing::{Rules, merge};

fn claim() -> Rules {
    Rules::of(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}, "storageClassName": "fast",
    }}))
}

fn spec(changes: Value, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|text| format!("spec{text}")).collect();
    claim().create(json!({"spec": changes}), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn what_a_claim_asks_for() {
    spec(
        json!({"accessModes": ["ReadWriteOncePod", "ReadOnlyMany"]}),
        &[".accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"],
    );
    spec(
        json!({"accessModes": ["Sometimes"]}),
        &[".accessModes: Unsupported value: \"Sometimes\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \
         \"ReadWriteOnce\", \"ReadWriteOncePod\""],
    );
    spec(
        json!({"resources": {"requests": {"storage": "0"}}}),
        &[".resources[storage]: Invalid value: \"0\": must be greater than zero"],
    );
    spec(json!({"resources": null}), &[".resources[storage]: Required value"]);
    spec(
        json!({"volumeMode": "Tape"}),
        &[".volumeMode: Unsupported value: \"Tape\": supported values: \"Block\", \"Filesystem\""],
    );
}

/// A reference stands in the older field, too, before the rules see it.
#[test]
fn sources_of_data() {
    spec(
        json!({"dataSourceRef": {"kind": "VolumeSnapshot", "name": "s"}}),
        &[
            ".dataSource: Invalid value: \"VolumeSnapshot\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
            ".dataSourceRef: Invalid value: \"VolumeSnapshot\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        ],
    );
    spec(
        json!({"dataSourceRef": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot"}}),
        &[".dataSource.name: Required value", ".dataSourceRef.name: Required value"],
    );
    let clone = json!({"kind": "PersistentVolumeClaim", "name": "a"});
    spec(
        json!({"dataSource": clone, "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "b"}}),
        &[": Invalid value: {}: must match dataSourceRef"],
    );
}

fn update(old: Value, new: Value) -> Vec<String> {
    let mut stored = claim().made(&Value::Null);
    merge(&mut stored, &old);
    let mut object = stored.clone();
    merge(&mut object, &new);
    let mut errors = Errors::default();
    (KIND.validate_update)(&Node::root(&object), &Node::root(&stored), &mut errors);
    errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect()
}

#[test]
fn bound_claims_grow_and_change_their_class() {
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    let size = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    assert!(update(bound.clone(), size("3Gi")).is_empty());
    // An expansion that failed may be taken back, but not below what there is.
    assert!(update(bound.clone(), size("1500Mi")).is_empty());
    assert_eq!(
        update(bound.clone(), size("1Gi")),
        ["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity",]
    );
    let refused = update(json!({}), size("3Gi"));
    let immutable = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
         claims\n";
    assert!(refused.len() == 1 && refused[0].starts_with(immutable), "{refused:?}");
    let with_class = |status: Value| {
        let mut old = bound.clone();
        merge(&mut old, &json!({"spec": {"volumeAttributesClassName": "gold"}, "status": status}));
        old
    };
    let none = json!({"spec": {"volumeAttributesClassName": null}});
    assert!(update(with_class(json!({})), json!({"spec": {"volumeAttributesClassName": "silver"}})).is_empty());
    // A class that never took effect may be taken back.
    assert!(update(with_class(json!({})), none.clone()).is_empty());
    let in_effect = with_class(json!({"currentVolumeAttributesClassName": "gold"}));
    let at = "spec.volumeAttributesClassName: Forbidden: update to";
    let why = "is forbidden when status.currentVolumeAttributesClassName is not nil";
    assert_eq!(update(in_effect.clone(), none), [format!("{at} nil {why}")]);
    let empty = json!({"spec": {"volumeAttributesClassName": ""}});
    assert_eq!(update(in_effect, empty), [format!("{at} empty string {why}")]);
}

#[test]
fn states_of_resizes() {
    let check = |status: Value, expected: &[&str]| claim().status(json!({}), status, expected);
    check(
        json!({"allocatedResourceStatuses": {"storage": "NodeResizePending"}, "allocatedResources": {"storage": "1Gi"}}),
        &[],
    );
    check(
        json!({"allocatedResourceStatuses": {"storage": "Growing"}}),
        &[
            "status.allocatedResourceStatuses: Unsupported value: \"storage\": supported values: \"ControllerResizeInProgress\", \
         \"ControllerResizeInfeasible\", \"NodeResizeInProgress\", \"NodeResizeInfeasible\", \"NodeResizePending\"",
        ],
    );
    check(
        json!({"allocatedResources": {"cpu": "-1"}}),
        &["status.allocatedResources: Unsupported value: \"cpu\": supported values: \"storage\""],
    );
}
