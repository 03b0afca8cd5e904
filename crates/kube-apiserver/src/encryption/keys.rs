//! Of which resource the value of a key is, as upstream counts them: configurations name resources, the store has keys.

use std::collections::HashMap;
use std::sync::LazyLock;

use machinery::status::GroupResource;

const REGISTRY: &str = "/registry/";

/// By the part of the key behind `/registry/`. Events of both groups are stored as those of the core group.
static BUILT_IN: LazyLock<HashMap<&'static str, GroupResource<'static>>> = LazyLock::new(|| {
    let stored = api::every_kind().filter(|kind| !kind.storage.is_empty());
    let mut known = HashMap::new();
    for kind in stored {
        let is_better = |there: &GroupResource| !there.group.is_empty() && kind.group.is_empty();
        if known.get(kind.storage).is_none_or(is_better) {
            known.insert(kind.storage, GroupResource { group: kind.group, resource: kind.plural });
        }
    }
    // What has no API of its own.
    let own = [
        ("ranges/serviceips", "serviceipallocations"),
        ("ranges/servicenodeports", "servicenodeportallocations"),
        ("masterleases", "apiserveripinfo"),
    ];
    known.extend(own.map(|(storage, resource)| (storage, GroupResource { group: "", resource })));
    known
});

/// None for keys of nobody's resources.
pub fn resource_of(key: &str) -> Option<GroupResource<'_>> {
    let rest = key.strip_prefix(REGISTRY)?;
    let (first, behind) = rest.split_once('/').unwrap_or((rest, ""));
    if let Some(known) = BUILT_IN.get(first) {
        return Some(*known);
    }
    // Two parts: `services/specs/...`, or group and name of a custom kind. Ranges are values themselves.
    let second = behind.split('/').next().unwrap_or_default();
    let two = &rest[..(first.len() + 1 + second.len()).min(rest.len())];
    if let Some(known) = BUILT_IN.get(two) {
        return Some(*known);
    }
    (first.contains('.') && !second.is_empty()).then_some(GroupResource { group: first, resource: second })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_upstreams_resources() {
        let check = |key: &str, expected: &str| {
            let found = resource_of(key).map(|resource| resource.to_string()).unwrap_or_default();
            assert_eq!(found, expected, "{key}");
        };
        check("/registry/secrets/default/a", "secrets");
        check("/registry/minions/node-1", "nodes");
        check("/registry/deployments/default/a", "deployments.apps");
        check("/registry/ingress/default/a", "ingresses.networking.k8s.io");
        check("/registry/services/specs/default/a", "services");
        check("/registry/services/endpoints/default/a", "endpoints");
        check("/registry/controllers/default/a", "replicationcontrollers");
        check("/registry/events/default/a", "events");
        check("/registry/horizontalpodautoscalers/default/a", "horizontalpodautoscalers.autoscaling");
        check("/registry/apiregistration.k8s.io/apiservices/v1.", "apiservices.apiregistration.k8s.io");
        check("/registry/stable.example.com/crontabs/default/a", "crontabs.stable.example.com");
        check("/registry/ranges/serviceips", "serviceipallocations");
        check("/registry/ranges/servicenodeports", "servicenodeportallocations");
        check("/registry/masterleases/10.0.0.1", "apiserveripinfo");
        check("/registry/something/else", "");
        check("/elsewhere/secrets/a", "");
        check("/registry/", "");
    }
}
