//! Discovery of the server's resources, including custom ones.

use kube::Client;
use kube::core::discovery::v2::{ACCEPT_AGGREGATED_DISCOVERY_V2, APIGroupDiscoveryList};
use serde_json::Value;

/// A resource in the version its group prefers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub kind: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
}

impl Resource {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    pub fn supports(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|known| known == verb))
    }

    /// The path of the collection; of all namespaces where none is given.
    pub fn path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        if namespace.is_empty() || !self.namespaced {
            format!("{root}/{}/{}", self.api_version(), self.plural)
        } else {
            format!("{root}/{}/namespaces/{namespace}/{}", self.api_version(), self.plural)
        }
    }

    pub fn item_path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.path(namespace))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Discovered {
    /// Each resource once, in its group's preferred version.
    pub resources: Vec<Resource>,
    /// The same resources in the other versions that are served.
    pub other_versions: Vec<Resource>,
    /// Group versions whose resources are not known now: a foreign API server does not answer.
    pub stale: Vec<String>,
}

impl Discovered {
    /// The resource that an object's `apiVersion` and `kind` name.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        let mut all = self.resources.iter().chain(&self.other_versions);
        all.find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }
}

pub async fn discover(client: &Client) -> Result<Discovered, kube::Error> {
    let mut found = Discovered::default();
    for path in ["/api", "/apis"] {
        let asked = http::Request::get(path).header(http::header::ACCEPT, ACCEPT_AGGREGATED_DISCOVERY_V2);
        let asked = asked
            .body(Vec::new())
            .map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)))?;
        let answer: Value = client.request(asked).await?;
        collect(read(answer).map_err(kube::Error::SerdeError)?, &mut found);
    }
    Ok(found)
}

/// A server that does not gather what it serves in one answer gives another one, which must not be taken for nothing: whoever
/// deletes what there is would leave all of it.
fn read(answer: Value) -> serde_json::Result<APIGroupDiscoveryList> {
    match answer["kind"].as_str() {
        Some("APIGroupDiscoveryList") => serde_json::from_value(without_nulls(answer)),
        other => {
            let found = other.unwrap_or("something else").to_owned();
            Err(serde::de::Error::custom(format!("expected an APIGroupDiscoveryList, got {found}")))
        }
    }
}

/// Servers in Go write lists that are not there as null.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let said = fields.into_iter().filter(|(_, value)| !value.is_null());
            said.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

fn collect(list: APIGroupDiscoveryList, found: &mut Discovered) {
    for item in list.items {
        let group = item.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        let first = found.resources.len();
        // Versions come in the order of preference, so the first that has a resource is the preferred one.
        for version in item.versions {
            let name = version.version.unwrap_or_default();
            if version.freshness.as_deref() == Some("Stale") {
                found.stale.push(format!("{group}/{name}"));
            }
            for resource in version.resources {
                let (Some(plural), Some(kind)) = (resource.resource, resource.response_kind.and_then(|kind| kind.kind))
                else {
                    continue;
                };
                let preferred = !found.resources[first..].iter().any(|known| known.plural == plural);
                let list = if preferred { &mut found.resources } else { &mut found.other_versions };
                list.push(Resource {
                    group: group.clone(),
                    version: name.clone(),
                    plural,
                    kind,
                    namespaced: resource.scope.as_deref() == Some("Namespaced"),
                    verbs: resource.verbs,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_are_null_are_empty_and_other_answers_are_none() {
        let null = serde_json::json!({"kind": "APIGroupDiscoveryList", "metadata": {}, "items": [
            {"metadata": {"name": "a", "creationTimestamp": null}, "versions": null},
            {"metadata": {"name": "b"}, "versions": [{"version": "v1", "resources": null}, {"version": "v2", "resources": [
                {"resource": "x", "responseKind": {"kind": "X"}, "scope": "Cluster", "verbs": null, "shortNames": null,
                    "categories": null, "subresources": null},
            ]}]},
        ]});
        let mut found = Discovered::default();
        collect(read(null).unwrap(), &mut found);
        assert_eq!(found.resources.iter().map(|one| one.path("")).collect::<Vec<_>>(), ["/apis/b/v2/x"]);
        let empty = serde_json::json!({"kind": "APIGroupDiscoveryList", "items": null});
        assert!(read(empty).unwrap().items.is_empty());
        for kind in ["APIGroupList", "APIVersions"] {
            assert!(read(serde_json::json!({"kind": kind})).unwrap_err().to_string().contains(kind));
        }
    }

    #[test]
    fn a_resource_comes_in_its_preferred_version() {
        let resource = |plural: &str, scope: &str| serde_json::json!({"resource": plural, "scope": scope, "responseKind": {"kind": "K", "group": "", "version": ""}, "verbs": ["list"]});
        let list = serde_json::json!({"items": [{"metadata": {"name": "g"}, "versions": [
            {"version": "v1", "resources": [resource("a", "Namespaced")]},
            {"version": "v1beta1", "freshness": "Stale", "resources": [resource("a", "Namespaced"), resource("b", "Cluster")]},
        ]}]});
        let mut found = Discovered::default();
        collect(serde_json::from_value(list).unwrap(), &mut found);
        let paths: Vec<String> = found.resources.iter().map(|resource| resource.item_path("n", "x")).collect();
        assert_eq!(paths, ["/apis/g/v1/namespaces/n/a/x", "/apis/g/v1beta1/b/x"]);
        assert_eq!(found.stale, ["g/v1beta1"]);
        assert_eq!(found.of_kind("g/v1beta1", "K").map(|resource| resource.plural.as_str()), Some("b"));
        assert_eq!(found.other_versions.len(), 1);
        assert!(found.resources[0].supports(&["list"]) && !found.resources[0].supports(&["list", "watch"]));
    }
}
