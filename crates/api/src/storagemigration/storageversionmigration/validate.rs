//! Validation of StorageVersionMigration: it names a resource, and says at most one of success and failure, once.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use crate::check;

pub(super) fn validate(migration: &Node, errors: &mut Errors) {
    let named = migration.at("spec").at("resource");
    let (resource, group) = (named.at("resource"), named.at("group"));
    if resource.str().is_empty() {
        errors.required(&resource, "resource is required to be set");
    }
    for (at, rule) in [(resource, names::dns1035_label as fn(&str) -> Vec<String>), (group, names::dns_subdomain)] {
        // Upstream joins what is wrong with one text in one sentence.
        let problems = if at.str().is_empty() { Vec::new() } else { rule(at.str()) };
        if !problems.is_empty() {
            errors.invalid(&at, problems.join(","));
        }
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate(new, errors);
    check::immutable(&new.at("spec"), &old.at("spec"), errors);
}

pub(super) fn validate_status(new: &Node, old: &Node, errors: &mut Errors) {
    let (status, before) = (new.at("status"), old.at("status"));
    let (revision, conditions) = (status.at("resourceVersion"), status.at("conditions"));
    if !revision.str().is_empty() && !is_revision(revision.str()) {
        errors.invalid(&revision, format!("resource version is not well formed: {}", revision.str()));
    }
    check::conditions(&conditions, errors);
    let had = before.text("resourceVersion");
    if !had.is_empty() && had != revision.str() {
        errors.invalid_value(&revision.path, &revision.str().into(), "field is immutable");
    }
    let is = |status: &Node, kind: &str| {
        status.each("conditions").find(|one| one.text("type") == kind).is_some_and(|one| one.text("status") == "True")
    };
    if is(&status, "Succeeded") && is(&status, "Failed") {
        errors.invalid(&conditions, "Both success and failed conditions cannot be true at the same time");
    }
    for (kind, word) in [("Succeeded", "Success"), ("Failed", "Failed")] {
        if is(&before, kind) && !is(&status, kind) {
            errors.invalid(&conditions, format!("{word} condition cannot be set to false once it is true"));
        }
    }
}

/// A whole number of any length, neither zero nor with zeros before it.
fn is_revision(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::Rules;

    fn rules() -> Rules {
        Rules::of(json!({
            "apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
            "metadata": {"name": "m"}, "spec": {"resource": {"group": "apps", "resource": "deployments"}},
        }))
    }

    #[test]
    fn a_resource_is_named_and_stays() {
        rules().create(
            json!({"spec": {"resource": {"resource": ""}}}),
            &["spec.resource.resource: Required value: resource is required to be set"],
        );
        rules().create(json!({"spec": {"resource": {"group": null}}}), &[]);
        rules().create(
            json!({"spec": {"resource": {"group": "-", "resource": "9"}}}),
            &[
                r#"spec.resource.resource: Invalid value: "9": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"#,
                r#"spec.resource.group: Invalid value: "-": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
            ],
        );
        rules().update(
            json!({"spec": {"resource": {"resource": "replicasets"}}}),
            &[r#"spec: Invalid value: {"resource":{"group":"apps","resource":"replicasets"}}: field is immutable"#],
        );
    }

    #[test]
    fn it_succeeds_or_fails_once() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = |conditions: Value| json!({"resourceVersion": "7", "conditions": conditions});
        let (done, failed) = (condition("Succeeded", "True"), condition("Failed", "True"));
        let check = |old: Value, new: Value, expected: &[&str]| {
            let shown = new["conditions"].to_string();
            let expected: Vec<String> = expected.iter().map(|one| one.replace("CONDITIONS", &shown)).collect();
            rules().status(old, new, &expected.iter().map(String::as_str).collect::<Vec<_>>());
        };
        check(json!({}), status(json!([done])), &[]);
        check(
            json!({}),
            status(json!([done, failed])),
            &[
                "status.conditions: Invalid value: CONDITIONS: Both success and failed conditions cannot be true at the same time",
            ],
        );
        check(
            status(json!([done])),
            status(json!([condition("Succeeded", "False")])),
            &["status.conditions: Invalid value: CONDITIONS: Success condition cannot be set to false once it is true"],
        );
        check(
            status(json!([failed])),
            json!({"resourceVersion": "07", "conditions": [failed]}),
            &[
                r#"status.resourceVersion: Invalid value: "07": resource version is not well formed: 07"#,
                r#"status.resourceVersion: Invalid value: "07": field is immutable"#,
            ],
        );
    }
}
