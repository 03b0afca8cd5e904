//! What the objects should be: the FlowSchemas' condition, and the objects that every cluster has. Pure.

use std::sync::{Arc, LazyLock};

use machinery::object::Meta;
use serde_json::{Value, json};

pub(crate) const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];
const GROUP_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// All FlowSchemas and PriorityLevelConfigurations that every cluster has.
pub fn standard() -> &'static [Value] {
    static STANDARD: LazyLock<Vec<Value>> = LazyLock::new(|| {
        crate::bootstrap::objects(&Default::default())
            .into_iter()
            .filter(|object| object["apiVersion"] == GROUP_VERSION)
            .collect()
    });
    &STANDARD
}

/// Those without which nothing works.
pub fn mandatory() -> &'static [Value] {
    static THEY: LazyLock<Vec<Value>> =
        LazyLock::new(|| standard().iter().filter(|object| is_mandatory(object)).cloned().collect());
    &THEY
}

fn is_mandatory(object: &Value) -> bool {
    MANDATORY.contains(&object.name())
}

/// What a standard object becomes: `current` itself where its operator has taken it over.
pub(crate) fn maintained(current: &Value, wanted: &Value) -> Value {
    let asked = current.annotation(AUTOUPDATE);
    // Without a word, what was never changed is still ours.
    let ours = match asked {
        Some(text) => text == "true",
        None => current.meta("generation").and_then(Value::as_i64).unwrap_or(1) == 1,
    };
    let mut next = current.clone();
    if is_mandatory(wanted) {
        let kept = current["spec"].get("exempt").cloned();
        next["spec"] = wanted["spec"].clone();
        // How much the exempt level lends is the operator's to choose.
        if !ours && let (Some(kept), true) = (kept, wanted["spec"].get("exempt").is_some()) {
            next["spec"]["exempt"] = kept;
        }
        if asked.is_none() {
            next["metadata"]["annotations"][AUTOUPDATE] = "true".into();
        }
        return next;
    }
    if ours {
        next["spec"] = wanted["spec"].clone();
    }
    if asked.is_none() {
        next["metadata"]["annotations"][AUTOUPDATE] = if ours { "true" } else { "false" }.into();
    }
    next
}

/// Standard objects that are gone or not as they should be.
pub(crate) fn to_repair(there: &[Arc<Value>], kind: &str) -> Vec<Value> {
    let wanted = standard().iter().filter(|object| object["kind"] == kind);
    let broken = |wanted: &&Value| match there.iter().find(|object| object.name() == wanted.name()) {
        None => true,
        Some(current) => maintained(current, wanted) != **current,
    };
    wanted.filter(broken).cloned().collect()
}

/// The FlowSchema's conditions where they should be others; `now` as objects carry it.
pub fn conditions(schema: &Value, level_exists: bool, now: &str) -> Option<Value> {
    let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or("");
    let (status, reason, what) = if level_exists {
        ("False", "Found", "and it exists")
    } else {
        ("True", "NotFound", "but there is no such object")
    };
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {what}");
    let mut conditions = schema["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let at = conditions.iter().position(|condition| condition["type"] == "Dangling");
    let current = at.map_or(&Value::Null, |at| &conditions[at]);
    if current["status"] == status && current["reason"] == reason && current["message"] == message {
        return None;
    }
    let since = if current["status"] == status { current["lastTransitionTime"].clone() } else { now.into() };
    let next = json!({
        "type": "Dangling", "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    match at {
        Some(at) => conditions[at] = next,
        None => conditions.push(next),
    }
    Some(conditions.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str) -> Value {
        standard().iter().find(|object| object["kind"] == kind && object.name() == name).unwrap().clone()
    }

    #[test]
    fn the_condition_says_whether_the_level_exists() {
        let mut schema = object("FlowSchema", "probes");
        let first = conditions(&schema, false, "T1").unwrap();
        assert_eq!(
            first,
            json!([{
                "type": "Dangling", "status": "True", "lastTransitionTime": "T1", "reason": "NotFound",
                "message": "This FlowSchema references the PriorityLevelConfiguration object named \"exempt\" but there is no such object",
            }])
        );
        schema["status"]["conditions"] = first;
        assert_eq!(conditions(&schema, false, "T2"), None);
        let found = conditions(&schema, true, "T2").unwrap();
        assert_eq!(found[0]["status"], "False");
        assert_eq!(found[0]["lastTransitionTime"], "T2");
        assert_eq!(
            found[0]["message"],
            "This FlowSchema references the PriorityLevelConfiguration object named \"exempt\" and it exists"
        );
    }

    #[test]
    fn suggested_objects_are_kept_until_they_are_taken_over() {
        let wanted = object("PriorityLevelConfiguration", "workload-low");
        let changed = |annotation: Option<&str>, generation: i64| {
            let mut current = wanted.clone();
            current["spec"]["limited"]["nominalConcurrencyShares"] = 7.into();
            current["metadata"]["generation"] = generation.into();
            match annotation {
                Some(text) => current["metadata"]["annotations"][AUTOUPDATE] = text.into(),
                None => current["metadata"]["annotations"] = json!({}),
            }
            let next = maintained(&current, &wanted);
            let shares = next["spec"]["limited"]["nominalConcurrencyShares"].as_i64().unwrap();
            (shares, next.annotation(AUTOUPDATE).unwrap_or("none").to_string())
        };
        assert_eq!(changed(Some("true"), 2), (100, "true".into()));
        assert_eq!(changed(Some("false"), 2), (7, "false".into()));
        assert_eq!(changed(None, 2), (7, "false".into()));
        assert_eq!(changed(None, 1), (100, "true".into()));
    }

    #[test]
    fn mandatory_objects_are_put_right_whatever_they_say() {
        let wanted = object("FlowSchema", "catch-all");
        let mut current = wanted.clone();
        current["metadata"]["annotations"][AUTOUPDATE] = "false".into();
        current["spec"]["matchingPrecedence"] = 1.into();
        assert_eq!(maintained(&current, &wanted)["spec"], wanted["spec"]);

        let wanted = object("PriorityLevelConfiguration", "exempt");
        let lends = |annotation: &str| {
            let mut current = wanted.clone();
            current["metadata"]["annotations"][AUTOUPDATE] = annotation.into();
            current["spec"]["exempt"]["lendablePercent"] = 50.into();
            maintained(&current, &wanted)["spec"]["exempt"]["lendablePercent"].clone()
        };
        assert_eq!((lends("true"), lends("false")), (0.into(), 50.into()));
    }

    #[test]
    fn what_is_gone_comes_back() {
        let kind = "PriorityLevelConfiguration";
        // As they are stored, which must be as they are wanted, or they would be put right for ever.
        let stored = |object: &Value| {
            let mut object = object.clone();
            let kind = api::KINDS.iter().find(|known| object["kind"] == known.kind).unwrap();
            (kind.defaults)(&mut object);
            Arc::new(object)
        };
        let schemas: Vec<Arc<Value>> =
            standard().iter().map(stored).filter(|one| one["kind"] == "FlowSchema").collect();
        assert_eq!(to_repair(&schemas, "FlowSchema"), Vec::<Value>::new());
        let mut there: Vec<Arc<Value>> =
            standard().iter().map(stored).filter(|object| object["kind"] == kind).collect();
        assert_eq!(to_repair(&there, kind), Vec::<Value>::new());
        let gone = there.remove(0);
        assert_eq!(to_repair(&there, kind), [Value::clone(&gone)]);
    }
}
