//! Restricted: what hardened pods do without, besides all that baseline forbids.

use std::collections::BTreeSet;

use serde_json::Value;

use super::baseline::{added, must_not_add, seccomp_setters, unmasked};
use super::checks::{Check, Pod, Violation, containers, context, name, plural, quoted, setters, violation};
use super::policy::Level;

pub const CHECKS: &[Check] = &[
    check("allowPrivilegeEscalation", 8, "", escalation),
    check("capabilities_restricted", 22, "capabilities_baseline", capabilities),
    check("procMount_restricted", 35, "procMount_baseline", unmasked),
    check("restrictedVolumes", 0, "", volumes),
    check("runAsNonRoot", 0, "", run_as_non_root),
    check("runAsUser", 23, "", run_as_user),
    check("seccompProfile_restricted", 19, "seccompProfile_baseline", seccomp),
];

const fn check(id: &'static str, since: u32, overrides: &'static str, run: fn(&Pod<'_>) -> Option<Violation>) -> Check {
    Check { id, level: Level::Restricted, since, overrides, run }
}

/// Windows has none of these; since 1.25 its pods need not mention them.
fn spared(pod: &Pod<'_>) -> bool {
    pod.at_least(25) && pod.is_windows()
}

fn escalation(pod: &Pod<'_>) -> Option<Violation> {
    let names =
        pod.containers_where(|container| context(container, "/allowPrivilegeEscalation") != Some(&Value::Bool(false)));
    if spared(pod) || names.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&names));
    violation("allowPrivilegeEscalation != false", detail)
}

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    if spared(pod) {
        return None;
    }
    let drops_all = |container: &Value| {
        let list = context(container, "/capabilities/drop").and_then(Value::as_array);
        list.is_some_and(|list| list.iter().any(|one| one == "ALL"))
    };
    let keeping = pod.containers_where(|container| !drops_all(container));
    let (adding, wrong) = added(pod, &["NET_BIND_SERVICE"]);
    let mut parts = Vec::new();
    if !keeping.is_empty() {
        parts.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeping)));
    }
    if !adding.is_empty() {
        parts.push(must_not_add(&adding, &wrong));
    }
    if parts.is_empty() {
        return None;
    }
    violation("unrestricted capabilities", parts.join("; "))
}

fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 8] =
        ["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"];
    let mut names = Vec::new();
    let mut types = BTreeSet::new();
    for volume in pod.spec.get("volumes").and_then(Value::as_array).into_iter().flatten() {
        let source =
            volume.as_object().into_iter().flatten().find(|(field, value)| *field != "name" && !value.is_null());
        match source {
            Some((kind, _)) if ALLOWED.contains(&kind.as_str()) => {}
            Some((kind, _)) => {
                names.push(name(volume));
                types.insert(kind.as_str());
            }
            // No source at all means an empty folder.
            None => {}
        }
    }
    if names.is_empty() {
        return None;
    }
    let types: Vec<&str> = types.into_iter().collect();
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", names.len()),
        quoted(&names),
        plural("uses", "use", names.len()),
        plural("restricted volume type", "restricted volume types", types.len()),
        quoted(&types)
    );
    violation("restricted volume types", detail)
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const PLACE: &str = "/runAsNonRoot";
    if pod.at_least(35) && pod.has_own_users() {
        return None;
    }
    let refuses = Some(&Value::Bool(false));
    let named = pod.containers_where(|container| context(container, PLACE) == refuses);
    if let Some(setters) = setters(pod.context(PLACE) == refuses, &named) {
        return violation("runAsNonRoot != true", format!("{setters} must not set securityContext.runAsNonRoot=false"));
    }
    let silent = pod.containers_where(|container| context(container, PLACE).is_none());
    if pod.context(PLACE).is_some() || silent.is_empty() {
        return None;
    }
    let detail = format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&silent));
    violation("runAsNonRoot != true", detail)
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    if pod.at_least(35) && pod.has_own_users() {
        return None;
    }
    let root = |user: Option<&Value>| user.and_then(Value::as_i64) == Some(0);
    let named = pod.containers_where(|container| root(context(container, "/runAsUser")));
    let setters = setters(root(pod.context("/runAsUser")), &named)?;
    violation("runAsUser=0", format!("{setters} must not set runAsUser=0"))
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if spared(pod) {
        return None;
    }
    if let Some(found) = seccomp_setters(pod) {
        return Some(found);
    }
    let silent = pod.containers_where(|container| context(container, "/seccompProfile/type").is_none());
    if pod.context("/seccompProfile/type").is_some() || silent.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers(&silent)
    );
    violation("seccompProfile", detail)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::checks::{details, evaluate};
    use super::super::policy::{Standard, Version};
    use super::*;

    fn check(spec: Value, expected: &str) {
        let found = evaluate(Standard { level: Level::Restricted, version: Version::LATEST }, &json!({"spec": spec}));
        assert_eq!(details(&found), expected, "{spec}");
    }

    #[test]
    fn a_plain_pod_lacks_four_things() {
        check(
            json!({"containers": [{"name": "c"}]}),
            "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
             unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), \
             runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), \
             seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        );
    }

    #[test]
    fn a_hardened_pod_passes() {
        let container = |more: Value| {
            let mut context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
            context.as_object_mut().expect("a map").extend(more.as_object().cloned().unwrap_or_default());
            json!({"name": "c", "securityContext": context})
        };
        let pod = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        check(json!({"securityContext": pod, "containers": [container(json!({}))]}), "");
        check(
            json!({"securityContext": pod, "containers": [container(json!({"runAsUser": 0}))]}),
            "runAsUser=0 (container \"c\" must not set runAsUser=0)",
        );
        check(
            json!({"securityContext": pod, "containers": [container(json!({"runAsNonRoot": false}))]}),
            "runAsNonRoot != true (container \"c\" must not set securityContext.runAsNonRoot=false)",
        );
        let volumes = json!([{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "emptyDir": {}}]);
        check(
            json!({"securityContext": pod, "containers": [container(json!({}))], "volumes": volumes}),
            "hostPath volumes (volume \"v\"), restricted volume types (volume \"v\" uses restricted volume type \"hostPath\")",
        );
    }
}
