//! Fields of pods behind feature gates: where the gate is closed they are dropped, unless the stored object has them already.

use machinery::kind::Kind;
use serde_json::Value;

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// A gate of upstream's, and what it is about.
struct Gated {
    gate: &'static str,
    is_used: fn(&Value) -> bool,
    drop: fn(&mut Value),
}

static GATED: [Gated; 3] = [
    Gated {
        gate: "ContainerStopSignals",
        is_used: |spec| containers(spec).any(|container| container.pointer("/lifecycle/stopSignal").is_some()),
        drop: drop_stop_signals,
    },
    Gated {
        gate: "ClusterTrustBundleProjection",
        is_used: |spec| has_source(spec, "clusterTrustBundle"),
        drop: |spec| drop_source(spec, "clusterTrustBundle"),
    },
    Gated {
        gate: "PodCertificateRequest",
        is_used: |spec| has_source(spec, "podCertificate"),
        drop: |spec| drop_source(spec, "podCertificate"),
    },
];

/// Drops what is behind closed gates from a pod, or from the template of a kind that has one.
pub fn drop_disabled(kind: &Kind, new: &mut Value, old: Option<&Value>, is_on: impl Fn(&str) -> bool) {
    let Some(path) = spec_path(kind) else { return };
    let Some(spec) = new.pointer_mut(path) else { return };
    let old = old.and_then(|old| old.pointer(path));
    for gated in &GATED {
        if (gated.is_used)(spec) && !is_on(gated.gate) && !old.is_some_and(gated.is_used) {
            (gated.drop)(spec);
        }
    }
}

/// Where objects of a kind describe a pod.
fn spec_path(kind: &Kind) -> Option<&'static str> {
    match (kind.group, kind.plural) {
        ("", "pods") => Some("/spec"),
        ("", "podtemplates") => Some("/template/spec"),
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => Some("/spec/template/spec"),
        ("batch", "cronjobs") => Some("/spec/jobTemplate/spec/template/spec"),
        _ => None,
    }
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    LISTS.iter().flat_map(move |list| spec[*list].as_array().into_iter().flatten())
}

/// A lifecycle that says nothing else goes with it.
fn drop_stop_signals(spec: &mut Value) {
    for list in LISTS {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) else { continue };
            if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
                container.remove("lifecycle");
            }
        }
    }
}

fn has_source(spec: &Value, field: &str) -> bool {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mut sources = volumes.filter_map(|volume| volume.pointer("/projected/sources")?.as_array()).flatten();
    sources.any(|source| source.get(field).is_some())
}

/// The source stays, with nothing in it.
fn drop_source(spec: &mut Value, field: &str) {
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten();
    let sources = volumes.filter_map(|volume| volume.pointer_mut("/projected/sources")?.as_array_mut()).flatten();
    for source in sources.filter_map(Value::as_object_mut) {
        source.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> Value {
        json!({
            "containers": [{"name": "a", "lifecycle": {"stopSignal": "SIGUSR1"}}],
            "initContainers": [{"name": "b", "lifecycle": {"stopSignal": "SIGINT", "preStop": {"sleep": {"seconds": 1}}}}],
            "volumes": [{"name": "v", "projected": {"sources": [
                {"clusterTrustBundle": {"name": "b", "path": "p"}}, {"podCertificate": {"signerName": "s"}},
                {"configMap": {"name": "c"}}]}}, {"name": "w", "emptyDir": {}}],
        })
    }

    fn bare() -> Value {
        json!({
            "containers": [{"name": "a"}],
            "initContainers": [{"name": "b", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}],
            "volumes": [{"name": "v", "projected": {"sources": [{}, {}, {"configMap": {"name": "c"}}]}},
                {"name": "w", "emptyDir": {}}],
        })
    }

    fn dropped(kind: &Kind, new: &Value, old: Option<&Value>, open: &[&str]) -> Value {
        let mut new = new.clone();
        drop_disabled(kind, &mut new, old, |gate| open.contains(&gate));
        new
    }

    #[test]
    fn fields_of_closed_gates_are_dropped_from_pods_and_templates() {
        let pod = |spec: Value| json!({"spec": spec});
        let template = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
        let job = |spec: Value| json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}});
        let check = |plural: &str, wrap: &dyn Fn(Value) -> Value| {
            let kind = crate::KINDS.iter().find(|kind| kind.plural == plural).unwrap();
            assert_eq!(dropped(kind, &wrap(spec()), None, &[]), wrap(bare()), "{plural}");
            let open = ["ContainerStopSignals", "ClusterTrustBundleProjection", "PodCertificateRequest"];
            assert_eq!(dropped(kind, &wrap(spec()), None, &open), wrap(spec()), "{plural}");
        };
        check("pods", &pod);
        for plural in ["replicationcontrollers", "replicasets", "deployments", "statefulsets", "daemonsets", "jobs"] {
            check(plural, &template);
        }
        check("cronjobs", &job);
        check("podtemplates", &|spec| json!({"template": {"spec": spec}}));
    }

    /// Each is judged by itself.
    #[test]
    fn what_is_stored_already_may_stay() {
        let kind = crate::KINDS.iter().find(|kind| kind.plural == "pods").unwrap();
        let old = json!({"spec": {"containers": [{"name": "a", "lifecycle": {"stopSignal": "SIGHUP"}}]}});
        let new = dropped(kind, &json!({"spec": spec()}), Some(&old), &[]);
        assert_eq!(new["spec"]["containers"], spec()["containers"]);
        assert_eq!(new["spec"]["volumes"], bare()["volumes"]);
        let new = dropped(kind, &json!({"spec": spec()}), Some(&json!({"spec": bare()})), &[]);
        assert_eq!(new["spec"], bare());
    }
}
