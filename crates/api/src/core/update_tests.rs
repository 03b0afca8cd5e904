//! What may change of an object once it is stored, and bad objects beyond the recorded ones.

use machinery::field::Errors;
use machinery::kind::Kind;
use machinery::node::Node;
use machinery::schema::conform::{Problems, conform};
use serde_json::{Value, json};

use crate::KINDS;
use crate::schema::type_of;

/// Puts `new` in place of `old`, as a PUT does, and compares what is refused.
fn check_update(kind: &str, old: Value, new: Value, expected: &[&str]) {
    let kind = find(kind);
    let (mut old, mut new) = (old, new);
    for object in [&mut old, &mut new] {
        decode(kind, object);
    }
    let status = old.get("status").cloned();
    (kind.prepare_update)(&mut new, &old);
    assert_eq!(new.get("status").cloned(), status, "status is not changed by a PUT");
    let mut errors = Errors::default();
    (kind.validate_update)(&Node::root(&new), &Node::root(&old), &mut errors);
    compare(errors, expected);
}

fn check_create(kind: &str, mut object: Value, expected: &[&str]) {
    let kind = find(kind);
    decode(kind, &mut object);
    (kind.prepare_create)(&mut object);
    let mut errors = Errors::default();
    (kind.validate)(&Node::root(&object), &mut errors);
    compare(errors, expected);
}

/// What a body goes through before the rules see it.
fn decode(kind: &Kind, object: &mut Value) {
    conform(object, type_of(kind), &mut Problems::default()).expect("decodable");
    (kind.defaults)(object);
}

fn compare(errors: Errors, expected: &[&str]) {
    let sentences: Vec<String> = errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
    assert_eq!(sentences, expected);
}

/// A kind by name, or by group and name where two groups have it.
fn find(name: &str) -> &'static Kind {
    let (group, name) = name.split_once('/').unwrap_or(("", name));
    let found = KINDS.iter().find(|kind| kind.kind == name && (group.is_empty() || kind.group == group));
    found.expect("the kind is served")
}

#[test]
fn immutable_data_stays() {
    let old = json!({"metadata": {"name": "m"}, "immutable": true, "data": {"a": "b"}});
    check_update("ConfigMap", old.clone(), old.clone(), &[]);
    let new = json!({"metadata": {"name": "m"}, "data": {"a": "c"}, "binaryData": {"x": "eA=="}});
    let detail = "Forbidden: field is immutable when `immutable` is set";
    let expected = ["immutable", "data", "binaryData"].map(|field| format!("{field}: {detail}"));
    check_update("ConfigMap", old, new, &expected.each_ref().map(String::as_str));
    let large = json!({"data": {"a": "A".repeat(1_048_577)}});
    check_create("ConfigMap", large, &["[]: Too long: may not be more than 1048576 bytes"]);
}

#[test]
fn secrets_keep_their_type() {
    let old = json!({"type": "kubernetes.io/basic-auth", "data": {"username": "YQ=="}});
    let new = json!({"data": {"username": "YQ=="}});
    check_update("Secret", old, new, &["type: Invalid value: \"Opaque\": field is immutable"]);
    let bad = json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "x"}});
    let expected = "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": invalid character 'x' \
                    looking for beginning of value";
    check_create("Secret", bad, &[expected]);
    let large = json!({"data": {"a": "A".repeat(1_400_000)}});
    check_create("Secret", large, &["data: Too long: may not be more than 1048576 bytes"]);
}

#[test]
fn nodes_keep_networks_and_provider() {
    let old = json!({"spec": {"podCIDR": "10.0.0.0/24", "providerID": "a"}});
    let new = json!({
        "spec": {"podCIDR": "10.0.1.0/24", "providerID": "b", "taints": [
            {"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "X"}
        ]}
    });
    check_update(
        "Node",
        old,
        new,
        &[
            "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
            "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
            "metadata.taints[1]: Duplicate value: {\"Key\":\"a\",\"Value\":\"\",\"Effect\":\"NoSchedule\",\
             \"TimeAdded\":null}: taints must be unique by key and effect pair",
            "metadata.taints[2].effect: Unsupported value: \"X\": supported values: \"NoSchedule\", \
             \"PreferNoSchedule\", \"NoExecute\"",
        ],
    );
}

#[test]
fn bound_claims_may_grow() {
    let claim = |size: &str, class: Option<&str>| {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "volumeName": "v"
        });
        let mut claim = json!({"spec": spec, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
        if let Some(class) = class {
            claim["spec"]["volumeAttributesClassName"] = class.into();
        }
        claim
    };
    check_update("PersistentVolumeClaim", claim("1Gi", None), claim("2Gi", Some("fast")), &[]);
    check_update("PersistentVolumeClaim", claim("3Gi", None), claim("2Gi", None), &[]);
    check_update(
        "PersistentVolumeClaim",
        claim("1Gi", Some("fast")),
        claim("500Mi", None),
        &["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"],
    );
}

#[test]
fn claims_show_one_data_source_in_both_fields() {
    let kind = find("PersistentVolumeClaim");
    let check = |spec: Value, expected: Value| {
        let mut claim = json!({"spec": spec});
        (kind.prepare_create)(&mut claim);
        assert_eq!(claim["spec"], expected);
    };
    let source = json!({"kind": "PersistentVolumeClaim", "name": "a"});
    check(json!({"dataSource": source}), json!({"dataSource": source, "dataSourceRef": source}));
    check(json!({"dataSourceRef": source}), json!({"dataSource": source, "dataSourceRef": source}));
    check(json!({"dataSource": {"kind": "Other", "name": "a"}}), json!({}));
}

#[test]
fn volumes_have_one_source_that_stays() {
    let volume = |source: Value| {
        let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
        spec.as_object_mut().unwrap().append(&mut source.as_object().unwrap().clone());
        json!({"metadata": {"name": "v"}, "spec": spec})
    };
    let two = volume(json!({"hostPath": {"path": "/a/../b"}, "nfs": {"server": "s", "path": "p"}}));
    check_create(
        "PersistentVolume",
        two,
        &[
            "spec.hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
            "spec.nfs: Forbidden: may not specify more than 1 volume type",
        ],
    );
    check_create(
        "PersistentVolume",
        volume(json!({"local": {"path": "/x"}})),
        &["spec.nodeAffinity: Required value: Local volume requires node affinity"],
    );
    check_update(
        "PersistentVolume",
        volume(json!({"nfs": {"server": "s", "path": "/p"}})),
        volume(json!({"nfs": {"server": "s", "path": "/q"}})),
        &["spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n\
           - {\"nfs\":{\"path\":\"/p\",\"server\":\"s\"}}\n+ {\"nfs\":{\"path\":\"/q\",\"server\":\"s\"}}"],
    );
    let csi = json!({"driver": "d.example.com", "volumeHandle": "h"});
    let mut expandable = csi.clone();
    expandable["controllerExpandSecretRef"] = json!({"name": "s", "namespace": "n"});
    check_update("PersistentVolume", volume(json!({"csi": csi})), volume(json!({"csi": expandable})), &[]);
}

#[test]
fn quotas_name_resources_and_scopes_that_fit() {
    check_create(
        "ResourceQuota",
        json!({"spec": {"hard": {"pods": "1500m", "foo": "1", "a.b/c": "-1"}, "scopes": ["BestEffort", "X"]}}),
        &[
            "spec.hard[a.b/c]: Invalid value: \"-1\": must be greater than or equal to 0",
            "spec.hard[foo]: Invalid value: \"foo\": must be a standard resource type or fully qualified",
            "spec.hard[foo]: Invalid value: \"foo\": must be a standard resource for quota",
            "spec.hard[pods]: Invalid value: \"1500m\": must be an integer",
            "spec.scopes: Invalid value: [\"BestEffort\",\"X\"]: unsupported scope",
        ],
    );
    let quota = |scopes: Value| json!({"spec": {"hard": {"cpu": "1"}, "scopes": scopes}, "status": {}});
    check_update(
        "ResourceQuota",
        quota(json!([])),
        quota(json!(["Terminating"])),
        &["spec.scopes: Invalid value: [\"Terminating\"]: field is immutable"],
    );
}

#[test]
fn classes_do_not_change() {
    let old = json!({"provisioner": "a/b", "parameters": {"x": "y"}});
    let new = json!({"provisioner": "a/c", "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer"});
    check_update(
        "StorageClass",
        old,
        new,
        &[
            "parameters: Invalid value: null: field is immutable",
            "provisioner: Invalid value: \"a/c\": field is immutable",
            "reclaimPolicy: Invalid value: \"Retain\": field is immutable",
            "volumeBindingMode: Invalid value: \"WaitForFirstConsumer\": field is immutable",
        ],
    );
}

#[test]
fn slices_hold_addresses_of_their_type() {
    check_create(
        "EndpointSlice",
        json!({"addressType": "IPv4", "endpoints": [{"addresses": ["fd00::1", "010.0.0.1", "0.0.0.0"]}, {}]}),
        &[
            "endpoints[0].addresses: Invalid value: \"fd00::1\": must be an IPv4 address",
            "endpoints[0].addresses[1]: Invalid value: \"010.0.0.1\": must not have leading 0s",
            "endpoints[0].addresses[2]: Invalid value: \"0.0.0.0\": may not be unspecified (0.0.0.0)",
            "endpoints[1].addresses: Required value: must contain at least 1 address",
        ],
    );
}

#[test]
fn namespaces_keep_their_finalizers() {
    let kind = find("Namespace");
    let old = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
    let mut new = json!({"metadata": {"name": "n"}, "spec": {"finalizers": []}});
    (kind.prepare_update)(&mut new, &old);
    assert_eq!(new, old);
    let mut errors = Errors::default();
    super::namespace::validate::validate_finalize(
        &Node::root(&json!({"spec": {"finalizers": ["odd", "a.b/c"]}})),
        &mut errors,
    );
    compare(
        errors,
        &["spec.finalizers[0]: Invalid value: \"odd\": name is neither a standard finalizer name nor is it fully \
           qualified"],
    );
}

#[test]
fn services_are_of_one_type() {
    let ports = json!([{"port": 80}]);
    check_create(
        "Service",
        json!({"spec": {"type": "NodePort", "clusterIP": "None", "clusterIPs": ["None"], "ports": ports}}),
        &["spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services"],
    );
    check_create(
        "Service",
        json!({"spec": {"type": "ExternalName", "externalName": "A.b.", "clusterIP": "1.2.3.4", "clusterIPs": ["1.2.3.4"]}}),
        &[
            "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
            "spec.externalName: Invalid value: \"A.b\": a lowercase RFC 1123 subdomain must consist of lower case \
             alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
             'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ],
    );
    check_create(
        "Service",
        json!({"spec": {"ports": ports, "externalIPs": ["169.254.1.1", "x"], "trafficDistribution": "Odd"}}),
        &[
            "spec.externalIPs[0]: Invalid value: \"169.254.1.1\": may not be in the link-local range (169.254.0.0/16, \
             fe80::/10)",
            "spec.externalIPs[1]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or \
             2001:db8::ffff)",
            "spec.trafficDistribution: Unsupported value: \"Odd\": supported values: \"PreferClose\", \
             \"PreferSameZone\", \"PreferSameNode\"",
        ],
    );
}

#[test]
fn drivers_and_attachments() {
    check_create(
        "CSIDriver",
        json!({"metadata": {"name": "d"}, "spec": {
            "fsGroupPolicy": "X", "volumeLifecycleModes": ["Y"],
            "tokenRequests": [{"audience": "a", "expirationSeconds": 1}, {"audience": "a"}]
        }}),
        &[
            "spec.fsGroupPolicy: Unsupported value: \"X\": supported values: \"File\", \"None\", \
             \"ReadWriteOnceWithFSType\"",
            "spec.tokenRequests[0].expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
            "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
            "spec.volumeLifecycleModes: Unsupported value: \"Y\": supported values: \"Persistent\", \"Ephemeral\"",
        ],
    );
    let node = |id: &str, count: i64| json!({"spec": {"drivers": [{"name": "d", "nodeID": id, "topologyKeys": ["zone"], "allocatable": {"count": count}}]}});
    check_update("CSINode", node("a", 1), node("a", 2), &[]);
    check_update(
        "CSINode",
        node("a", 1),
        node("b", 1),
        &["spec.drivers: Invalid value: {\"Name\":\"d\",\"NodeID\":\"b\",\"TopologyKeys\":[\"zone\"],\
           \"Allocatable\":null}: field is immutable"],
    );
    check_create(
        "VolumeAttachment",
        json!({"spec": {"attacher": "", "source": {}, "nodeName": "n"}}),
        &[
            "spec.attacher: Required value",
            "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ],
    );
}

#[test]
fn events_in_the_new_form_obey_more() {
    let good = json!({
        "metadata": {"name": "e", "namespace": "n"}, "regarding": {"kind": "Pod", "name": "p", "namespace": "n"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "Started", "action": "Start", "type": "Normal",
        "reportingController": "a.b/c", "reportingInstance": "i", "note": "text", "apiVersion": "events.k8s.io/v1"
    });
    check_create("events.k8s.io/Event", good.clone(), &[]);
    let mut bad = good.clone();
    bad["deprecatedCount"] = json!(2);
    bad["type"] = "Odd".into();
    bad["series"] = json!({"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"});
    bad["action"] = "".into();
    check_create(
        "events.k8s.io/Event",
        bad,
        &[
            "action: Required value",
            "series.count: Invalid value: \"\": should be at least 2",
            "type: Invalid value: \"\": has invalid value: Odd",
            "count: Invalid value: \"\": needs to be unset",
        ],
    );
    let mut changed = good.clone();
    changed["note"] = "other".into();
    check_update("events.k8s.io/Event", good, changed, &["message: Invalid value: \"other\": field is immutable"]);
    let old_form = json!({
        "metadata": {"name": "e", "namespace": "n"}, "involvedObject": {"namespace": "other"}, "count": 7
    });
    check_create(
        "Event",
        old_form,
        &["involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"],
    );
}

#[test]
fn warnings_are_given() {
    let check = |kind: &str, object: Value, expected: &[&str]| {
        assert_eq!((find(kind).warnings)(&object, None), expected);
    };
    check("Endpoints", json!({}), &["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]);
    check(
        "Service",
        json!({"spec": {"type": "ClusterIP", "externalIPs": ["FD00::1"], "sessionAffinity": "None"}}),
        &[
            "spec.externalIPs[0]: IPv6 address \"FD00::1\" should be in RFC 5952 canonical format (\"fd00::1\")",
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        ],
    );
    check(
        "PersistentVolume",
        json!({"spec": {"persistentVolumeReclaimPolicy": "Recycle", "rbd": {}}}),
        &[
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning.",
            "spec.rbd: deprecated in v1.28, non-functional in v1.31+",
        ],
    );
    check(
        "Secret",
        json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "", "tls.key": ""}}),
        &["tls: failed to find any PEM data in certificate input"],
    );
}
