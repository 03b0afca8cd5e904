//! What is said of a definition: which of its names are accepted, and whether it is served. Data in, data out.

use std::collections::HashSet;

use machinery::object::Meta;
use serde_json::{Map, Value, json};

/// The names that the definitions of one group have taken.
#[derive(Debug, Default)]
pub struct Taken {
    resources: HashSet<String>,
    kinds: HashSet<String>,
}

impl Taken {
    /// By those definitions of the group, the one that asks among them.
    #[cfg(test)]
    fn by<'a>(definitions: impl Iterator<Item = &'a Value>) -> Taken {
        let mut taken = Taken::default();
        definitions.for_each(|definition| taken.add(definition));
        taken
    }

    pub fn add(&mut self, definition: &Value) {
        let names = &definition["status"]["acceptedNames"];
        let short = names["shortNames"].as_array().into_iter().flatten();
        let resources = [&names["plural"], &names["singular"]].into_iter().chain(short);
        self.resources.extend(resources.filter_map(Value::as_str).filter(|name| !name.is_empty()).map(Into::into));
        let kinds = [&names["kind"], &names["listKind"]].into_iter();
        self.kinds.extend(kinds.filter_map(Value::as_str).filter(|name| !name.is_empty()).map(Into::into));
    }
}

/// The status that a definition should have.
pub fn plan(definition: &Value, taken: &Taken, now: &str) -> Value {
    let mut status = definition.get("status").filter(|status| status.is_object()).cloned().unwrap_or_else(|| json!({}));
    let (names, problem) = accepted(definition, taken);
    let accepted = problem.is_none();
    status["acceptedNames"] = names;
    remember_storage_version(definition, &mut status);
    let (reason, message) = problem.unwrap_or_else(|| ("NoConflicts", "no conflicts found".into()));
    set_condition(&mut status, "NamesAccepted", accepted, reason, &message, now);
    // Once served, a definition stays so, whatever becomes of its names.
    if !is_true(&status, "Established") {
        if accepted {
            set_condition(
                &mut status,
                "Established",
                true,
                "InitialNamesAccepted",
                "the initial names have been accepted",
                now,
            )
        } else {
            set_condition(&mut status, "Established", false, "NotAccepted", "not all names are accepted", now)
        }
    }
    approval(definition, &mut status, now);
    status
}

/// Whether a condition of a status is true.
pub fn is_true(status: &Value, kind: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Sets a condition; its time changes only with its status.
pub fn set_condition(status: &mut Value, kind: &str, holds: bool, reason: &str, message: &str, now: &str) {
    let state = if holds { "True" } else { "False" };
    let mut condition =
        json!({"type": kind, "status": state, "reason": reason, "message": message, "lastTransitionTime": now});
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(list) = status["conditions"].as_array_mut() else { return };
    match list.iter_mut().find(|known| known["type"] == kind) {
        Some(known) => {
            if known["status"] == state {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => list.push(condition),
    }
}

/// The names to go by, and the last reason why not all are what was asked for.
fn accepted(definition: &Value, taken: &Taken) -> (Value, Option<(&'static str, String)>) {
    let wanted = &definition["spec"]["names"];
    let current = &definition["status"]["acceptedNames"];
    let mut names = current.as_object().cloned().unwrap_or_default();
    let mut problem = None;
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or("").to_string();
    let kind = text(wanted, "kind");
    let singles = [
        ("plural", text(wanted, "plural"), &taken.resources, "PluralConflict"),
        ("singular", or(text(wanted, "singular"), kind.to_lowercase()), &taken.resources, "SingularConflict"),
        ("shortNames", String::new(), &taken.resources, "ShortNamesConflict"),
        ("kind", kind.clone(), &taken.kinds, "KindConflict"),
        ("listKind", or(text(wanted, "listKind"), format!("{kind}List")), &taken.kinds, "ListKindConflict"),
    ];
    for (field, name, used, reason) in singles {
        if field == "shortNames" {
            if let Some(message) = short_names(wanted, current, &mut names, taken) {
                problem = Some((reason, message));
            }
            continue;
        }
        if name == text(current, field) || !used.contains(&name) {
            names.insert(field.into(), name.into());
        } else {
            problem = Some((reason, format!("{name:?} is already in use")));
            names.entry(field).or_insert_with(|| "".into());
        }
    }
    copy(&mut names, wanted, "categories");
    (names.into(), problem)
}

fn or(text: String, other: String) -> String {
    if text.is_empty() { other } else { text }
}

fn short_names(wanted: &Value, current: &Value, names: &mut Map<String, Value>, taken: &Taken) -> Option<String> {
    let list = |value: &Value| value["shortNames"].as_array().cloned().unwrap_or_default();
    let own = list(current);
    let conflicts: Vec<String> = list(wanted)
        .iter()
        .filter(|name| !own.contains(name))
        .filter_map(Value::as_str)
        .filter(|name| taken.resources.contains(*name))
        .map(|name| format!("{name:?} is already in use"))
        .collect();
    match conflicts.as_slice() {
        [] => {
            copy(names, wanted, "shortNames");
            None
        }
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

fn copy(names: &mut Map<String, Value>, wanted: &Value, field: &str) {
    match wanted[field].as_array().filter(|list| !list.is_empty()) {
        Some(list) => names.insert(field.into(), list.clone().into()),
        None => names.remove(field),
    };
}

/// Objects may exist in every version that ever was the stored one, until somebody has rewritten them all.
fn remember_storage_version(definition: &Value, status: &mut Value) {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let Some(name) =
        versions.into_iter().find(|version| version["storage"] == true).map(|version| version["name"].clone())
    else {
        return;
    };
    match status["storedVersions"].as_array_mut() {
        Some(list) if list.contains(&name) => {}
        Some(list) => list.push(name),
        None => status["storedVersions"] = json!([name]),
    }
}

const APPROVED: &str = "api-approved.kubernetes.io";

/// Groups of the project itself carry a link to who approved them.
fn approval(definition: &Value, status: &mut Value, now: &str) {
    let group = definition["spec"]["group"].as_str().unwrap_or("");
    let protected =
        ["k8s.io", "kubernetes.io"].iter().any(|name| group == *name || group.ends_with(&format!(".{name}")));
    if !protected {
        return;
    }
    let given = definition.annotation(APPROVED).unwrap_or("");
    let (holds, reason, message) = match given {
        "" => {
            let detail = "see https://github.com/kubernetes/enhancements/pull/1111";
            (
                false,
                "MissingAnnotation",
                format!("protected groups must have approval annotation \"{APPROVED}\", {detail}"),
            )
        }
        _ if given.starts_with("unapproved") => (false, "UnapprovedAnnotation", format!("not approved: {given:?}")),
        _ if given.contains("://") => (true, "ApprovedAnnotation", format!("approved in {given}")),
        _ => (
            false,
            "InvalidAnnotation",
            format!(
                "protected groups must have approval annotation \"{APPROVED}\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
            ),
        ),
    };
    set_condition(status, "KubernetesAPIApprovalPolicyConformant", holds, reason, &message, now);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxes() -> Value {
        json!({
            "metadata": {"name": "boxes.example.com"},
            "spec": {
                "group": "example.com", "names": {"plural": "boxes", "kind": "Box", "shortNames": ["bx"]},
                "versions": [{"name": "v1", "served": true, "storage": true}],
            },
        })
    }

    #[test]
    fn a_new_definition_is_established() {
        let status = plan(&boxes(), &Taken::default(), "2026-01-01T00:00:00Z");
        assert!(is_true(&status, "NamesAccepted") && is_true(&status, "Established"));
        let names =
            json!({"plural": "boxes", "singular": "box", "kind": "Box", "listKind": "BoxList", "shortNames": ["bx"]});
        assert_eq!(status["acceptedNames"], names);
        assert_eq!(status["storedVersions"], json!(["v1"]));
        // The same again changes nothing, whatever the time.
        let again = json!({"metadata": {}, "spec": boxes()["spec"], "status": status});
        let taken = Taken::by(std::iter::once(&again));
        assert_eq!(plan(&again, &taken, "2027-01-01T00:00:00Z"), again["status"]);
    }

    #[test]
    fn names_that_others_have_are_not_accepted() {
        let other = json!({"status": {"acceptedNames": {"plural": "bottles", "kind": "Box", "shortNames": ["bx"]}}});
        let status = plan(&boxes(), &Taken::by(std::iter::once(&other)), "2026-01-01T00:00:00Z");
        assert!(!is_true(&status, "NamesAccepted") && !is_true(&status, "Established"));
        let conditions = &status["conditions"];
        assert_eq!(conditions[0]["reason"], "KindConflict");
        assert_eq!(conditions[0]["message"], "\"Box\" is already in use");
        assert_eq!(conditions[1]["reason"], "NotAccepted");
        assert_eq!(status["acceptedNames"]["kind"], "");
        assert_eq!(status["acceptedNames"]["plural"], "boxes");
    }
}
