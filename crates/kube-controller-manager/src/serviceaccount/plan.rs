//! Decides whether a namespace needs its default service account.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::{Plan, Write};

pub(super) const DEFAULT: &str = "default";

pub(super) fn plan(namespace: &Namespace, account: Option<&ServiceAccount>) -> Plan {
    let active = namespace.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Active");
    if account.is_some() || !active {
        return Plan::nothing();
    }
    let metadata =
        ObjectMeta { name: Some(DEFAULT.into()), namespace: namespace.metadata.name.clone(), ..ObjectMeta::default() };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    // The namespace may have begun to end meanwhile, which is refused, and may be gone.
    Plan::one(Write::create(&account).accept(&["AlreadyExists", "NamespaceTerminating", "NotFound"]))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::NamespaceStatus;

    use super::*;

    #[test]
    fn an_active_namespace_without_an_account_gets_one() {
        let check = |phase: &str, account: Option<&ServiceAccount>, expected: &[&str]| {
            let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
            let status = Some(NamespaceStatus { phase: Some(phase.into()), ..NamespaceStatus::default() });
            let namespace = Namespace { metadata, status, ..Namespace::default() };
            let writes: Vec<String> = plan(&namespace, account).writes.iter().map(ToString::to_string).collect();
            assert_eq!(writes, expected, "{phase}");
        };
        check("Active", None, &["create /api/v1/namespaces/a/serviceaccounts"]);
        check("Active", Some(&ServiceAccount::default()), &[]);
        check("Terminating", None, &[]);
    }
}
