//! What RoleBinding and ClusterRoleBinding share: subjects, the reference to a role, rows.

use jiff::Timestamp;
use machinery::field::{Errors, FieldError, Problem};
use machinery::kind::age;
use machinery::names;
use machinery::node::Node;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::{Value, json};

use crate::check;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) enum Reach {
    Namespace,
    Cluster,
}

/// The API group of a reference or subject follows from its kind.
pub(super) fn defaults(binding: &mut Value) {
    if let Some(role) = binding.get_mut("roleRef").filter(|role| role.is_object()) {
        fill(role, "apiGroup", GROUP);
    }
    for subject in binding.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            fill(subject, "apiGroup", GROUP);
        }
    }
}

/// Sets a text that is missing or empty.
fn fill(value: &mut Value, field: &str, text: &str) {
    if value[field].as_str().unwrap_or("").is_empty() {
        value[field] = text.into();
    }
}

pub(super) fn validate(binding: &Node, reach: Reach, errors: &mut Errors) {
    let role = binding.at("roleRef");
    check::one_of_texts(&role.at("apiGroup"), &[GROUP], errors);
    let kinds: &[&str] = match reach {
        Reach::Namespace => &["Role", "ClusterRole"],
        Reach::Cluster => &["ClusterRole"],
    };
    check::one_of_texts(&role.at("kind"), kinds, errors);
    check::required_rule(&role.at("name"), names::path_segment_name, errors);
    for subject in binding.each("subjects") {
        validate_subject(&subject, &reach, errors);
    }
}

/// A binding's role is for ever: whoever may change subjects must not be able to hand out other permissions.
pub(super) fn validate_role_change(new: &Node, old: &Node, errors: &mut Errors) {
    let (new, old) = (new.at("roleRef"), old.at("roleRef"));
    if !check::same(new.value, old.value) {
        // The value is shown as upstream's internal type prints itself.
        let shown = format!(
            "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
            json!(new.text("apiGroup")),
            json!(new.text("kind")),
            json!(new.text("name"))
        );
        errors.push(FieldError::new(Problem::Invalid, &new.path, shown, "cannot change roleRef"));
    }
}

fn validate_subject(subject: &Node, reach: &Reach, errors: &mut Errors) {
    let (name, group) = (subject.at("name"), subject.at("apiGroup"));
    check::required(&name, "", errors);
    match subject.text("kind") {
        "ServiceAccount" => {
            check::optional_rule(&name, names::dns_subdomain, errors);
            if !group.str().is_empty() {
                errors.not_supported(&group, &[""]);
            }
            if matches!(reach, Reach::Cluster) {
                check::required(&subject.at("namespace"), "", errors);
            }
        }
        "User" | "Group" => check::one_of_texts(&group, &[GROUP], errors),
        _ => check::one_of_texts(&subject.at("kind"), &["ServiceAccount", "User", "Group"], errors),
    }
}

pub(super) fn row(binding: &Value, now: Timestamp) -> Vec<Cell> {
    let role = &binding["roleRef"];
    let text = |value: &Value| value.as_str().unwrap_or("").to_string();
    let subjects = |kind: &str| {
        let all = binding["subjects"].as_array().into_iter().flatten().filter(|subject| subject["kind"] == kind);
        let named = all.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(&subject["namespace"]), text(&subject["name"])),
            _ => text(&subject["name"]),
        });
        named.collect::<Vec<_>>().join(", ")
    };
    vec![
        binding.name().into(),
        format!("{}/{}", text(&role["kind"]), text(&role["name"])).into(),
        age(binding, now),
        subjects("User").into(),
        subjects("Group").into(),
        subjects("ServiceAccount").into(),
    ]
}
