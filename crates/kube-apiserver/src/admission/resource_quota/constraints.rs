//! Where a quota limits processor time or memory, every container must say how much it wants.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::pod_resources::{Side, of_container};
use crate::refusal::Refusal;

/// Names that cannot be counted unless they are given.
const DEMANDED: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// `must specify limits.cpu for: a,b; memory for: a`.
pub fn check(names: &[String], pod: &Value) -> Result<(), Refusal> {
    let whole = given(&pod["spec"]);
    let demanded: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| DEMANDED.contains(name) && !whole.contains(*name)).collect();
    if demanded.is_empty() {
        return Ok(());
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for field in ["containers", "initContainers"] {
        for container in pod["spec"][field].as_array().into_iter().flatten() {
            let given = given(container);
            for name in demanded.iter().filter(|name| !given.contains(**name)) {
                missing.entry(name).or_default().insert(container["name"].as_str().unwrap_or(""));
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let parts: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(",")))
        .collect();
    Err(format!("must specify {}", parts.join("; ")).into())
}

/// What a container, or the pod as a whole, says, by quota names.
fn given(container: &Value) -> BTreeSet<String> {
    let requests = of_container(container, Side::Requests).into_keys();
    let mut names: BTreeSet<String> = requests.flat_map(|name| [format!("requests.{name}"), name]).collect();
    names.extend(of_container(container, Side::Limits).into_keys().map(|name| format!("limits.{name}")));
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_must_say_what_is_limited() {
        let check = |names: &[&str], spec: Value, expected: Result<(), &str>| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            let found = super::check(&names, &json!({"spec": spec})).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(String::from));
        };
        let silent = json!({"containers": [{"name": "b"}, {"name": "a"}]});
        check(&["pods", "requests.ephemeral-storage"], silent.clone(), Ok(()));
        check(&["limits.cpu", "memory"], silent, Err("must specify limits.cpu for: a,b; memory for: a,b"));
        let resources = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}});
        check(
            &["cpu", "requests.cpu", "limits.cpu"],
            json!({"containers": [{"name": "c", "resources": resources}]}),
            Ok(()),
        );
        check(&["cpu"], json!({"containers": [{"name": "c"}], "resources": resources}), Ok(()));
    }
}
