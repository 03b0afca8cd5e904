//! Pods by what they are on, what they use and how they are labeled: whoever is asked about one node, claim or Service looks at its
//! pods only.

use std::sync::Arc;

use component_helpers::labels::selects;
use component_helpers::volumes::claim_names;
use k8s_openapi::api::core::v1::Pod;
use machinery::selector::LabelSelector;
use reconcile::{Cache, Index};

/// By the node they are bound to.
pub(crate) const BY_NODE: Index<Pod> =
    Index { name: "node", of: |pod| component_helpers::pods::node(pod).map(str::to_owned).into_iter().collect() };

/// By the claims for volumes that they use.
pub(crate) const BY_CLAIM: Index<Pod> = Index {
    name: "claim",
    of: |pod| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut claims: Vec<String> = claim_names(pod).map(|(name, _)| of_claim(namespace, &name)).collect();
        claims.dedup();
        claims
    },
};

/// What pods are found by that use this claim.
pub(crate) fn of_claim(namespace: &str, claim: &str) -> String {
    format!("{namespace}/{claim}")
}

/// By namespace and all labels: no selector can tell those of one value apart.
const BY_LABELS: Index<Pod> = Index {
    name: "labels",
    of: |pod| {
        let mut value = below(pod.metadata.namespace.as_deref().unwrap_or_default());
        for (key, label) in pod.metadata.labels.iter().flatten() {
            value.extend([key.as_str(), "=", label, ","]);
        }
        vec![value]
    },
};

fn below(namespace: &str) -> String {
    format!("{namespace}/")
}

/// The pods of a namespace that a selector takes, in the order of their names. There are about as many different labels as templates,
/// so the pods of others cost nothing.
pub(crate) fn selected(pods: &Cache<Pod>, namespace: &str, selector: &LabelSelector) -> Vec<Arc<Pod>> {
    pods.found_like(BY_LABELS, &below(namespace), |pod| selects(selector, pod.metadata.labels.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_takes_the_same_pods_as_by_looking_at_all() {
        let pod = |number: usize| {
            let (namespace, app, tier) =
                (["a", "ab"][number % 2], ["web", "db", "webx"][number % 3], ["x", "y"][number % 5 % 2]);
            let object = serde_json::json!({"metadata": {
                "name": format!("p{number:02}"), "namespace": namespace, "labels": {"app": app, "tier": tier}}});
            serde_json::from_value::<Pod>(object).expect("a pod")
        };
        let pods = Cache::holding((0..60).map(pod));
        for text in ["app=web", "app=web,tier=x", "app!=web", "app in (db,webx)", "", "none"] {
            let selector = LabelSelector::parse(text).expect("a selector");
            let mut all = pods.in_namespace("a");
            all.retain(|pod| selects(&selector, pod.metadata.labels.as_ref()));
            assert_eq!(selected(&pods, "a", &selector), all, "{text}");
        }
    }
}
