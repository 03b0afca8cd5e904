//! Kinds and schemas of what is not built in, as the API server tells them to any client: custom resources, and those of
//! aggregated servers.

use kube::Client;
use serde_json::{Map, Value, json};

use super::plan::Resource;

/// Deeper fields are taken on trust; only schemas of schemas go on for ever.
const DEPTH_MAX: usize = 12;

/// The kind that a resource holds, and the schema of its objects. What the server cannot tell is passed over, as upstream:
/// policies for it work all the same.
pub(super) async fn of(client: &Client, resource: &Resource) -> Option<(String, Value)> {
    match asked(client, resource).await {
        Ok(found) => found,
        Err(error) => {
            tracing::debug!(?resource, %error, "cannot get schema of resource matched by a ValidatingAdmissionPolicy");
            None
        }
    }
}

async fn asked(client: &Client, resource: &Resource) -> kube::Result<Option<(String, Value)>> {
    let version = format!("{}/{}", resource.group, resource.version);
    let served = client.list_api_group_resources(&version).await?;
    let Some(kind) = served.resources.into_iter().find(|one| one.name == resource.plural).map(|one| one.kind) else {
        return Ok(None);
    };
    let request = http::Request::get(format!("/openapi/v3/apis/{version}")).body(Vec::new());
    let document: Value = client.request(request.map_err(kube::Error::HttpError)?).await?;
    let schema = schema(&document, resource, &kind);
    Ok(schema.map(|schema| (kind, schema)))
}

fn schema(document: &Value, resource: &Resource, kind: &str) -> Option<Value> {
    let wanted = json!({"group": resource.group, "version": resource.version, "kind": kind});
    let is_kind = |schema: &&Value| {
        let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
        kinds.is_some_and(|kinds| kinds.contains(&wanted))
    };
    let found = document.pointer("/components/schemas")?.as_object()?.values().find(is_kind)?;
    Some(whole(document, found, DEPTH_MAX))
}

/// A schema with what it refers to in its place.
fn whole(document: &Value, schema: &Value, depth: usize) -> Value {
    let Some(own) = schema.as_object().filter(|_| depth > 0) else { return json!({}) };
    // Where a reference has a description or a default beside it, it stands alone in a list.
    let only = own.get("allOf").and_then(Value::as_array).filter(|parts| parts.len() == 1).map(|parts| &parts[0]);
    let reference = own.get("$ref").or_else(|| only?.get("$ref")).and_then(Value::as_str);
    if let Some(reference) = reference {
        let found = reference.strip_prefix('#').and_then(|path| document.pointer(path));
        return found.map_or_else(|| json!({}), |found| whole(document, found, depth - 1));
    }
    let below = |schema: &Value| whole(document, schema, depth - 1);
    let part = |(name, value): (&String, &Value)| {
        let value = match (name.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                fields.iter().map(|(name, field)| (name.clone(), below(field))).collect::<Map<_, _>>().into()
            }
            ("items" | "additionalProperties", Value::Object(_)) => below(value),
            _ => value.clone(),
        };
        (name.clone(), value)
    };
    own.iter().map(part).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved() {
        let tab = json!({
            "type": "object",
            "properties": {
                "metadata": {"allOf": [{"$ref": "#/components/schemas/Meta"}], "default": {}},
                "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                "list": {"type": "array", "items": {"$ref": "#/components/schemas/Meta"}},
                "gone": {"$ref": "#/components/schemas/Gone"},
                "open": {"type": "object", "additionalProperties": true},
            },
            "x-kubernetes-group-version-kind": [{"group": "example.com", "kind": "CronTab", "version": "v1"}],
        });
        let meta = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let again = json!({"properties": {"self": {"$ref": "#/components/schemas/Again"}}});
        let document = json!({"components": {"schemas": {"Tab": tab, "Meta": meta, "Again": again}}});
        let resource = Resource { group: "example.com".into(), version: "v1".into(), plural: "crontabs".into() };
        let mut expected = tab;
        expected["properties"]["metadata"] = meta.clone();
        expected["properties"]["list"]["items"] = meta;
        expected["properties"]["gone"] = json!({});
        assert_eq!(schema(&document, &resource, "CronTab"), Some(expected));
        assert_eq!(schema(&document, &resource, "Other"), None);
        let endless = whole(&document, &document["components"]["schemas"]["Again"], DEPTH_MAX);
        assert!(endless.pointer("/properties/self/properties/self").is_some());
    }
}
