//! Which kinds there are, as the API server's discovery says to this user.

use machinery::status::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A resource by its names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Kind {
    #[serde(default)]
    pub group: String,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub resource: String,
}

impl Kind {
    pub fn new(group: &str, version: &str, resource: &str) -> Kind {
        Kind { group: group.into(), version: version.into(), resource: resource.into() }
    }

    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.group == group && self.resource == resource
    }
}

/// A kind as discovery describes it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Described {
    #[serde(flatten)]
    pub names: Kind,
    pub kind: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub custom: bool,
}

impl Described {
    pub fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|one| one == verb)
    }
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// Every resource, each in the version its group prefers.
pub(crate) async fn all(client: &kube::Client) -> Result<Vec<Described>, Status> {
    let mut found = Vec::new();
    for path in ["/api", "/apis"] {
        let accept = http::HeaderValue::from_static(AGGREGATED);
        let list = crate::ask::ask(client, http::Method::GET, path, accept, None).await?;
        if list["items"].is_array() {
            found.extend(read(&list));
        } else {
            // A server that is older than aggregated discovery.
            found.extend(one_by_one(client, path, &list).await?);
        }
    }
    let custom = custom_groups(client).await;
    for one in &mut found {
        one.custom =
            custom.iter().any(|(group, resource)| *group == one.names.group && *resource == one.names.resource);
    }
    Ok(found)
}

/// Those that a CustomResourceDefinition made; where they may not be listed, none is known to be one.
async fn custom_groups(client: &kube::Client) -> Vec<(String, String)> {
    let accept = http::HeaderValue::from_static("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io");
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let list = crate::ask::ask(client, http::Method::GET, path, accept, None).await.unwrap_or_default();
    let names = list["items"].as_array().into_iter().flatten().filter_map(|item| item["metadata"]["name"].as_str());
    names.filter_map(|name| name.split_once('.')).map(|(resource, group)| (group.into(), resource.into())).collect()
}

fn read(list: &Value) -> Vec<Described> {
    let mut found: Vec<Described> = Vec::new();
    for item in list["items"].as_array().into_iter().flatten() {
        let group = item["metadata"]["name"].as_str().unwrap_or_default();
        for version in item["versions"].as_array().into_iter().flatten() {
            let name = version["version"].as_str().unwrap_or_default();
            for resource in version["resources"].as_array().into_iter().flatten() {
                let names = Kind::new(group, name, resource["resource"].as_str().unwrap_or_default());
                // Versions stand in the order of preference: the first one counts.
                if found.iter().any(|one| one.names.is(group, &names.resource)) {
                    continue;
                }
                found.push(Described {
                    names,
                    kind: resource["responseKind"]["kind"].as_str().unwrap_or_default().into(),
                    namespaced: resource["scope"] == "Namespaced",
                    verbs: texts(&resource["verbs"]),
                    short_names: texts(&resource["shortNames"]),
                    categories: texts(&resource["categories"]),
                    custom: false,
                });
            }
        }
    }
    found
}

async fn one_by_one(client: &kube::Client, path: &str, list: &Value) -> Result<Vec<Described>, Status> {
    let versions: Vec<(String, String)> = match path {
        "/api" => texts(&list["versions"]).into_iter().map(|version| (String::new(), version)).collect(),
        _ => {
            let groups = list["groups"].as_array().into_iter().flatten();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
            groups.map(|group| (text(&group["name"]), text(&group["preferredVersion"]["version"]))).collect()
        }
    };
    let mut found = Vec::new();
    for (group, version) in versions {
        let path = if group.is_empty() { format!("{path}/{version}") } else { format!("{path}/{group}/{version}") };
        // A foreign server that does not answer hides its own kinds only.
        let Ok(list) = crate::ask::get(client, &path).await else { continue };
        for resource in list["resources"].as_array().into_iter().flatten() {
            let name = resource["name"].as_str().unwrap_or_default();
            if name.contains('/') {
                continue;
            }
            found.push(Described {
                names: Kind::new(&group, &version, name),
                kind: resource["kind"].as_str().unwrap_or_default().into(),
                namespaced: resource["namespaced"] == true,
                verbs: texts(&resource["verbs"]),
                short_names: texts(&resource["shortNames"]),
                categories: texts(&resource["categories"]),
                custom: false,
            });
        }
    }
    Ok(found)
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|one| one.as_str()).map(str::to_owned).collect()
}

/// The answer of `/dashboard/api/resources`.
pub(crate) async fn answer(client: &kube::Client) -> Result<Value, Status> {
    let all = all(client).await?;
    serde_json::to_value(all).map_err(|error| Status::internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_version_counts() {
        let resource = |name: &str| {
            json!({"resource": name, "scope": "Namespaced", "verbs": ["get", "list"], "shortNames": ["h"],
                "responseKind": {"kind": "Hpa"}})
        };
        let list = json!({"items": [{"metadata": {"name": "autoscaling"}, "versions": [
            {"version": "v2", "resources": [resource("hpas")]},
            {"version": "v1", "resources": [resource("hpas"), resource("old")]},
        ]}]});
        let found: Vec<(String, String)> =
            read(&list).into_iter().map(|one| (one.names.version, one.names.resource)).collect();
        assert_eq!(found, [("v2".into(), "hpas".into()), ("v1".into(), "old".into())]);
    }
}
