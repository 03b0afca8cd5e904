//! What OpenAPI says of a custom kind: the schema of its definition with what every object has.

use machinery::kind::Kind;
use serde_json::{Value, json};

use super::definitions::{API_VERSION, KIND, NEUTRAL};

/// The name of a custom kind's definition: `com.example.stable.v1.CronTab` for `stable.example.com`.
pub fn name(kind: &Kind) -> String {
    let mut parts: Vec<&str> = kind.group.rsplit('.').collect();
    parts.extend([kind.version, kind.kind]);
    parts.join(".")
}

/// A definition from the schema of the custom kind's version; without one anything may stand in an object.
pub fn definition(kind: &Kind, schema: Option<&Value>) -> Value {
    let kinds = json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
    let Some(mut out) = schema.filter(|schema| schema.is_object()).cloned() else {
        return json!({"type": "object", "x-kubernetes-group-version-kind": kinds});
    };
    out["x-kubernetes-group-version-kind"] = kinds;
    if !out["properties"].is_object() {
        out["properties"] = json!({});
    }
    let properties = &mut out["properties"];
    properties["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    properties["kind"] = json!({"type": "string", "description": KIND});
    properties["metadata"] = metadata();
    out
}

/// The metadata of an object.
pub fn metadata() -> Value {
    json!({
        "$ref": format!("{NEUTRAL}io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
        "description": "Standard object's metadata. More info: \
            https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
    })
}
