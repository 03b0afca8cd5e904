//! DefaultTolerationSeconds: a pod stays five minutes on a node that is not ready or not reachable.

use machinery::object::child_mut;
use machinery::status::Status;
use serde_json::{Value, json};

use super::{Plugin, Request};

const SECONDS: i64 = 300;
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

pub struct DefaultTolerationSeconds;

#[async_trait::async_trait]
impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        if request.is("", "pods") {
            add_tolerations(object);
        }
        Ok(())
    }
}

fn add_tolerations(pod: &mut Value) {
    let spec = child_mut(pod, "spec");
    let list = spec.get("tolerations").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let missing: Vec<Value> =
        TAINTS.into_iter().filter(|taint| !list.iter().any(|entry| tolerates(entry, taint))).map(toleration).collect();
    if missing.is_empty() {
        return;
    }
    match spec.get_mut("tolerations").and_then(Value::as_array_mut) {
        Some(list) => list.extend(missing),
        None => {
            spec.insert("tolerations".into(), missing.into());
        }
    }
}

fn tolerates(toleration: &Value, taint: &str) -> bool {
    let text = |field: &str| toleration.get(field).and_then(Value::as_str).unwrap_or("");
    (text("key").is_empty() || text("key") == taint) && matches!(text("effect"), "" | "NoExecute")
}

fn toleration(taint: &str) -> Value {
    json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: Value, added: &[&str]) {
        let mut pod = json!({"spec": {"tolerations": given}});
        add_tolerations(&mut pod);
        let mut expected: Vec<Value> = given.as_array().cloned().unwrap_or_default();
        expected.extend(added.iter().map(|taint| toleration(taint)));
        assert_eq!(pod["spec"]["tolerations"], Value::from(expected), "{given}");
    }

    #[test]
    fn missing_tolerations_are_added_behind_the_given() {
        check(Value::Null, &TAINTS);
        check(json!([{"key": "a", "operator": "Exists"}]), &TAINTS);
        check(json!([{"key": TAINTS[0], "operator": "Exists", "effect": "NoSchedule"}]), &TAINTS);
        check(json!([{"key": TAINTS[0], "operator": "Exists", "effect": "NoExecute"}]), &TAINTS[1..]);
        check(json!([{"key": TAINTS[1], "operator": "Exists"}]), &TAINTS[..1]);
        check(json!([{"operator": "Exists"}]), &[]);
        check(json!([{"operator": "Exists", "effect": "NoSchedule"}]), &TAINTS);
    }
}
