//! A request as a SubjectAccessReview says it. Pure.

use machinery::selector::{FieldOperator, FieldSelector, LabelSelector, Operator};
use serde_json::{Map, Value, json};

use super::super::Attributes;
use super::{Status, Version};

/// The `spec`: what is empty is left out, as Go does.
pub fn spec(a: &Attributes, version: Version) -> Value {
    let mut spec = Map::new();
    if a.resource.is_empty() {
        spec.insert("nonResourceAttributes".into(), with_texts(&[("path", a.path), ("verb", a.verb)], false).into());
    } else {
        spec.insert("resourceAttributes".into(), resource(a, false).into());
    }
    let user = a.user;
    if !user.name.is_empty() {
        spec.insert("user".into(), user.name.clone().into());
    }
    if !user.groups.is_empty() {
        let field = if version == Version::V1 { "groups" } else { "group" };
        spec.insert(field.into(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), json!(user.extra));
    }
    if !user.uid.is_empty() {
        spec.insert("uid".into(), user.uid.clone().into());
    }
    Value::Object(spec)
}

/// What match conditions see as `request`: every text is there, also an empty one.
pub(crate) fn for_conditions(a: &Attributes) -> Value {
    let user = a.user;
    let mut request = json!({"user": user.name, "groups": user.groups, "uid": user.uid, "extra": user.extra});
    if a.resource.is_empty() {
        request["nonResourceAttributes"] = with_texts(&[("path", a.path), ("verb", a.verb)], true).into();
    } else {
        request["resourceAttributes"] = resource(a, true).into();
    }
    request
}

/// How much of the review a client chooses.
pub(crate) fn chosen_bytes(a: &Attributes) -> usize {
    let texts = [a.namespace, a.verb, a.group, a.version, a.resource, a.subresource, a.name, a.path];
    texts.iter().map(|text| text.len()).sum::<usize>() + a.field_selector.len() + a.label_selector.len()
}

/// `None` for what is no answer.
pub fn status(review: &Value) -> Option<Status> {
    let status = review.get("status").filter(|_| review["kind"] == "SubjectAccessReview")?;
    let flag = |field: &str| match status.get(field) {
        None | Some(Value::Null) => Some(false),
        Some(value) => value.as_bool(),
    };
    Some(Status {
        allowed: flag("allowed")?,
        denied: flag("denied")?,
        reason: status.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned(),
    })
}

fn with_texts(texts: &[(&str, &str)], empty_too: bool) -> Map<String, Value> {
    let shown = texts.iter().filter(|(_, text)| empty_too || !text.is_empty());
    shown.map(|(field, text)| ((*field).to_owned(), Value::from(*text))).collect()
}

fn resource(a: &Attributes, empty_too: bool) -> Map<String, Value> {
    let texts = [
        ("namespace", a.namespace),
        ("verb", a.verb),
        ("group", a.group),
        ("version", a.version),
        ("resource", a.resource),
        ("subresource", a.subresource),
        ("name", a.name),
    ];
    let mut out = with_texts(&texts, empty_too);
    for (field, requirements) in
        [("fieldSelector", fields(a.field_selector)), ("labelSelector", labels(a.label_selector))]
    {
        if !requirements.is_empty() {
            out.insert(field.into(), json!({"requirements": requirements}));
        }
    }
    out
}

/// Selectors only narrow what is asked for, so one that cannot be read is left out: the question is then the wider one.
fn fields(text: &str) -> Vec<Value> {
    let Ok(selector) = FieldSelector::parse(text) else { return Vec::new() };
    let one = |(key, operator, value): &(String, FieldOperator, String)| {
        let operator = match operator {
            FieldOperator::Equals => "In",
            FieldOperator::NotEquals => "NotIn",
        };
        json!({"key": key, "operator": operator, "values": [value]})
    };
    selector.requirements().iter().map(one).collect()
}

fn labels(text: &str) -> Vec<Value> {
    let Ok(selector) = LabelSelector::parse(text) else { return Vec::new() };
    let one = |requirement: &machinery::selector::Requirement| {
        let operator = match requirement.operator {
            Operator::In | Operator::Equals => "In",
            Operator::NotIn | Operator::NotEquals => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            Operator::GreaterThan | Operator::LessThan => return None,
        };
        let mut out = json!({"key": requirement.key, "operator": operator});
        if !requirement.values.is_empty() {
            out["values"] = requirement.values.clone().into();
        }
        Some(out)
    };
    selector.requirements().iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::fixtures::user;

    #[test]
    fn reviews_say_what_upstream_says() {
        let ada = user("ada", &["dev"]);
        let list = Attributes {
            version: "v1",
            namespace: "shop",
            field_selector: "spec.nodeName=a,status.phase!=Failed",
            label_selector: "app in (b,a),!old,n>5",
            ..Attributes::resource(&ada, "list", "", "pods")
        };
        assert_eq!(
            spec(&list, Version::V1),
            json!({
                "resourceAttributes": {
                    "namespace": "shop", "verb": "list", "version": "v1", "resource": "pods",
                    "fieldSelector": {"requirements": [
                        {"key": "spec.nodeName", "operator": "In", "values": ["a"]},
                        {"key": "status.phase", "operator": "NotIn", "values": ["Failed"]},
                    ]},
                    "labelSelector": {"requirements": [
                        {"key": "app", "operator": "In", "values": ["a", "b"]},
                        {"key": "old", "operator": "DoesNotExist"},
                    ]},
                },
                "user": "ada", "groups": ["dev"],
            })
        );
        let path = Attributes::path(&ada, "get", "/metrics");
        assert_eq!(
            spec(&path, Version::V1beta1),
            json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}, "user": "ada", "group": ["dev"]})
        );
        assert_eq!(for_conditions(&list)["resourceAttributes"]["subresource"], "");
    }

    #[test]
    fn only_reviews_are_answers() {
        let check = |review: Value, expected: Option<(bool, bool)>| {
            assert_eq!(status(&review).map(|status| (status.allowed, status.denied)), expected, "{review}");
        };
        let review = |status: Value| json!({"kind": "SubjectAccessReview", "status": status});
        check(review(json!({"allowed": true})), Some((true, false)));
        check(review(json!({"allowed": false, "denied": true})), Some((false, true)));
        check(review(json!({})), Some((false, false)));
        check(review(json!({"allowed": "yes"})), None);
        check(json!({"status": {"allowed": true}}), None);
        check(json!({"kind": "SubjectAccessReview"}), None);
    }
}
