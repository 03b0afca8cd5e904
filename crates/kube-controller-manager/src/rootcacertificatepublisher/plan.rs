//! Decides whether the ConfigMap kube-root-ca.crt of a namespace must be written.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::{Plan, Write};

pub(super) const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the \
     internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes \
     clusters.",
);

pub(super) fn plan(authority: &str, namespace: &Namespace, published: Option<&ConfigMap>) -> Plan {
    let active = namespace.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Active");
    if !active {
        return Plan::nothing();
    }
    let data = BTreeMap::from([("ca.crt".to_string(), authority.to_string())]);
    let Some(published) = published else {
        let metadata = ObjectMeta {
            name: Some(NAME.into()),
            namespace: namespace.metadata.name.clone(),
            annotations: Some(described(BTreeMap::new())),
            ..ObjectMeta::default()
        };
        let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
        // The namespace may have begun to end meanwhile, which is refused, and may be gone.
        return Plan::one(Write::create(&map).accept(&["AlreadyExists", "NamespaceTerminating", "NotFound"]));
    };
    let annotations = published.metadata.annotations.clone().unwrap_or_default();
    let right = published.data.as_ref() == Some(&data)
        && annotations.get(DESCRIPTION.0).is_some_and(|text| text == DESCRIPTION.1);
    if right {
        return Plan::nothing();
    }
    let mut map = published.clone();
    map.data = Some(data);
    map.metadata.annotations = Some(described(annotations));
    Plan::one(Write::update(&map))
}

fn described(mut annotations: BTreeMap<String, String>) -> BTreeMap<String, String> {
    annotations.insert(DESCRIPTION.0.into(), DESCRIPTION.1.into());
    annotations
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::NamespaceStatus;

    use super::*;

    fn published(text: &str) -> ConfigMap {
        let metadata = ObjectMeta {
            name: Some(NAME.into()),
            namespace: Some("a".into()),
            annotations: Some(described(BTreeMap::new())),
            ..ObjectMeta::default()
        };
        ConfigMap { metadata, data: Some(BTreeMap::from([("ca.crt".into(), text.into())])), ..ConfigMap::default() }
    }

    #[test]
    fn an_active_namespace_has_the_right_copy() {
        let check = |phase: &str, published: Option<ConfigMap>, expected: &[&str]| {
            let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
            let status = Some(NamespaceStatus { phase: Some(phase.into()), ..NamespaceStatus::default() });
            let namespace = Namespace { metadata, status, ..Namespace::default() };
            let plan = plan("right", &namespace, published.as_ref());
            let writes: Vec<String> = plan.writes.iter().map(ToString::to_string).collect();
            assert_eq!(writes, expected, "{phase}");
            assert!(plan.writes.iter().all(|write| write.body()["data"]["ca.crt"] == "right"));
        };
        check("Active", None, &["create /api/v1/namespaces/a/configmaps"]);
        check("Active", Some(published("right")), &[]);
        check("Active", Some(published("wrong")), &["update /api/v1/namespaces/a/configmaps/kube-root-ca.crt"]);
        check(
            "Active",
            Some(ConfigMap { data: None, ..published("") }),
            &["update /api/v1/namespaces/a/configmaps/kube-root-ca.crt"],
        );
        check("Terminating", None, &[]);
    }
}
