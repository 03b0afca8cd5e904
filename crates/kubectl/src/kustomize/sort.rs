//! The order of the built resources.

use serde_json::Value;

use super::Resource;

const FIRST: &[&str] = &[
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];
const LAST: &[&str] = &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// What others stand on comes first, as kubectl has always built them.
pub(super) fn in_order(mut resources: Vec<Resource>, options: &Value) -> Vec<Value> {
    let rank = |object: &Value| {
        let kind = object["kind"].as_str().unwrap_or_default();
        let place = |list: &str| options[list].as_array()?.iter().position(|known| *known == kind);
        if options.is_object() {
            let first = place("orderFirst").map(|at| at as i64 - 1000);
            return first.or_else(|| place("orderLast").map(|at| at as i64 + 1000)).unwrap_or(0);
        }
        let first = FIRST.iter().position(|known| *known == kind).map(|at| at as i64 - 1000);
        first.or_else(|| LAST.iter().position(|known| *known == kind).map(|at| at as i64 + 1000)).unwrap_or(0)
    };
    let text =
        |object: &Value, path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_string();
    resources.sort_by_key(|resource| {
        let object = &resource.object;
        (
            rank(object),
            text(object, "/apiVersion"),
            text(object, "/kind"),
            text(object, "/metadata/namespace"),
            text(object, "/metadata/name"),
        )
    });
    resources.into_iter().map(|resource| resource.object).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kinds(options: Value) -> Vec<String> {
        let kinds = ["Widget", "ValidatingWebhookConfiguration", "Deployment", "Namespace", "Service"];
        let resource = |kind: &str| Resource {
            object: json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}}),
            first_name: "a".into(),
            hashed: false,
            origin: Default::default(),
        };
        let sorted = in_order(kinds.iter().map(|kind| resource(kind)).collect(), &options);
        sorted.iter().map(|object| object["kind"].as_str().unwrap_or_default().to_string()).collect()
    }

    #[test]
    fn what_others_stand_on_comes_first() {
        let expected = ["Namespace", "Service", "Deployment", "Widget", "ValidatingWebhookConfiguration"];
        assert_eq!(kinds(Value::Null), expected);
    }

    #[test]
    fn a_kustomization_may_have_its_own_order() {
        let sorted = kinds(json!({"orderFirst": ["Widget"], "orderLast": ["Namespace"]}));
        assert_eq!((sorted[0].as_str(), sorted[4].as_str()), ("Widget", "Namespace"));
    }
}
