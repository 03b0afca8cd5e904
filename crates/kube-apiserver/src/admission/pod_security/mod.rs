//! PodSecurity: a namespace's labels say how much its pods may do to their host. `enforce` refuses pods, `warn` tells
//! also those who write workloads, `audit` is for the audit log.

mod baseline;
mod checks;
mod policy;
mod restricted;
mod settings;

use std::collections::BTreeMap;

use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;

use self::checks::evaluate;
use self::policy::{Level, Policy, Standard};
pub use self::settings::Settings;
use super::{Operation, Plugin, Request};
use crate::write::store_status;

/// How many pods of a namespace are looked at when its labels change.
const PODS_MAX: usize = 3000;

pub struct PodSecurity {
    pub settings: Settings,
}

#[async_trait::async_trait]
impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        if !matches!(request.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        if request.is("", "namespaces") {
            return self.namespace(request, object).await;
        }
        if request.is_for("", "pods") {
            return self.pod(request, object);
        }
        if let Some(template) = template(request, object).filter(|template| !self.is_exempt(request, template)) {
            let policy = self.policy_of(request);
            audit(request, &policy, template);
            warn(request, &policy, template);
        }
        Ok(())
    }
}

/// The keys of audit annotations, as upstream's.
const AUDIT_PREFIX: &str = "pod-security.kubernetes.io/";

impl PodSecurity {
    fn policy_of(&self, request: &Request<'_>) -> Policy {
        let namespace = request.app.views.one("namespaces", "", request.namespace);
        let defaults = self.settings.defaults;
        namespace.map_or(defaults, |namespace| Policy::read(&namespace, &defaults).0)
    }

    /// Whether the operator lets this user, namespace or runtime do anything.
    fn is_exempt(&self, request: &Request<'_>, pod: &Value) -> bool {
        let exempt = self.settings.exemption(request.namespace, &request.user.name, pod);
        if let Some(why) = exempt {
            request.call.annotate(format!("{AUDIT_PREFIX}exempt"), why);
        }
        exempt.is_some()
    }

    fn pod(&self, request: &Request<'_>, pod: &Value) -> Result<(), Status> {
        if matches!(request.subresource, "status" | "binding" | "eviction") {
            return Ok(());
        }
        if request.old.is_some_and(|old| !matters(pod, old)) {
            return Ok(());
        }
        if self.is_exempt(request, pod) {
            return Ok(());
        }
        let policy = self.policy_of(request);
        request.call.annotate(format!("{AUDIT_PREFIX}enforce-policy"), policy.enforce.to_string());
        let violations = evaluate(policy.enforce, pod);
        audit(request, &policy, pod);
        if !violations.is_empty() {
            let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, checks::details(&violations));
            return Err(request.forbidden(Some(pod), &why));
        }
        warn(request, &policy, pod);
        Ok(())
    }

    /// Labels must make sense; those who tighten them learn which pods would not get in any more.
    async fn namespace(&self, request: &Request<'_>, object: &Value) -> Result<(), Status> {
        let (policy, errors) = Policy::read(object, &self.settings.defaults);
        let before = request.old.map(|old| Policy::read(old, &self.settings.defaults));
        let news = before.as_ref().is_none_or(|(_, old)| old.summary() != errors.summary());
        if !errors.is_empty() && news {
            return Err(Status::invalid("", "Namespace", object.name(), &errors));
        }
        let Some((before, _)) = before else { return Ok(()) };
        let (new, old) = (policy.enforce, before.enforce);
        if new == old || new.level == Level::Privileged || new.version == old.version && new.level <= old.level {
            return Ok(());
        }
        if self.settings.is_exempt_namespace(object.name()) {
            return Ok(());
        }
        request.app.cache.fresh().await.map_err(store_status)?;
        let pods = request.app.views.all("pods", object.name());
        for warning in namespace_warnings(object.name(), new, pods.iter().map(|pod| &**pod)) {
            request.call.warn(warning);
        }
        Ok(())
    }
}

fn audit(request: &Request<'_>, policy: &Policy, pod: &Value) {
    let violations = evaluate(policy.audit, pod);
    if !violations.is_empty() {
        let details = checks::details(&violations);
        let told = format!("would violate PodSecurity \"{}\": {details}", policy.audit);
        request.call.annotate(format!("{AUDIT_PREFIX}audit-violations"), told);
    }
}

fn warn(request: &Request<'_>, policy: &Policy, pod: &Value) {
    let violations = evaluate(policy.warn, pod);
    if !violations.is_empty() {
        let details = checks::details(&violations);
        request.call.warn(format!("would violate PodSecurity \"{}\": {details}", policy.warn));
    }
}

/// Of what can change in a running pod, only images and ephemeral containers matter here.
fn matters(new: &Value, old: &Value) -> bool {
    let images = |pod: &Value, field: &str| -> Vec<Value> {
        pod["spec"][field].as_array().into_iter().flatten().map(|container| container["image"].clone()).collect()
    };
    ["containers", "initContainers"].into_iter().any(|field| images(new, field) != images(old, field))
        || new["spec"]["ephemeralContainers"] != old["spec"]["ephemeralContainers"]
}

/// The pod that a workload would make.
fn template<'a>(request: &Request<'_>, object: &'a Value) -> Option<&'a Value> {
    let kind = &request.resource.kind;
    let path = match (kind.group, kind.plural) {
        _ if !request.subresource.is_empty() => return None,
        ("", "podtemplates") => "/template",
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => "/spec/template",
        ("batch", "cronjobs") => "/spec/jobTemplate/spec/template",
        _ => return None,
    };
    object.pointer(path)
}

fn namespace_warnings<'a>(
    namespace: &str,
    standard: Standard,
    pods: impl ExactSizeIterator<Item = &'a Value>,
) -> Vec<String> {
    let total = pods.len();
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in pods.take(PODS_MAX) {
        let violations = evaluate(standard, pod);
        if !violations.is_empty() {
            found.entry(checks::reasons(&violations)).or_default().push(pod.name());
        }
    }
    let mut warnings = Vec::new();
    if total > PODS_MAX {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {PODS_MAX} of {total} existing pods"
        ));
    }
    if !found.is_empty() {
        warnings.push(format!(
            "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{standard}\""
        ));
    }
    let mut lines: Vec<String> = found
        .into_iter()
        .map(|(reasons, names)| {
            let first = names.iter().min().copied().unwrap_or("");
            match names.len() {
                1 => format!("{first}: {reasons}"),
                2 => format!("{first} (and 1 other pod): {reasons}"),
                count => format!("{first} (and {} other pods): {reasons}", count - 1),
            }
        })
        .collect();
    lines.sort();
    warnings.extend(lines);
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::policy::Version;
    use super::*;

    #[test]
    fn pods_with_the_same_problems_share_a_line() {
        let pod = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
        let pods = [
            pod("b", json!({"hostNetwork": true})),
            pod("a", json!({"hostNetwork": true})),
            pod("c", json!({"volumes": [{"name": "v", "hostPath": {}}]})),
            pod("fine", json!({})),
        ];
        let standard = Standard { level: Level::Baseline, version: Version::LATEST };
        assert_eq!(
            namespace_warnings("n", standard, pods.iter()),
            [
                "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
                "a (and 1 other pod): host namespaces",
                "c: hostPath volumes",
            ]
        );
    }

    #[test]
    fn only_some_updates_matter() {
        let pod = |image: &str, labels: Value| json!({"metadata": {"labels": labels}, "spec": {"containers": [{"image": image}]}});
        assert!(!matters(&pod("a", json!({"x": "y"})), &pod("a", json!({}))));
        assert!(matters(&pod("b", json!({})), &pod("a", json!({}))));
    }
}
