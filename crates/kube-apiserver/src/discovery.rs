//! Discovery: which groups, versions and resources there are. Computed from the table, plain and aggregated.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use machinery::kind::{Kind, Subresource};
use machinery::status::Status;
use serde_json::{Value, json};

use crate::aggregate::{self, Route};
use crate::app::App;
use crate::negotiate::Answer;
use crate::resources::{Resource, Table};
use crate::respond::{self, Reply};

/// Upstream's version that is served, and ours behind it.
pub const VERSION: &str = concat!("v1.36.4+knarr", env!("CARGO_PKG_VERSION"));

/// What `kubectl version` shows. The API level is upstream's; the build is ours.
pub fn version() -> Reply {
    let value = json!({
        "major": "1", "minor": "36",
        "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": VERSION, "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none (rust)", "compiler": "rustc",
        "platform": format!("linux/{}", architecture()),
    });
    let text = serde_json::to_vec_pretty(&value).expect("a JSON value can be written");
    respond::bytes_reply(200, "application/json", text)
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Answers `/api`, `/apis` and what is below them, and `/`.
pub fn answer(
    app: &Arc<App>,
    path: &str,
    headers: &HeaderMap,
    answer: &Result<Answer, Status>,
) -> Result<Option<Reply>, Status> {
    let table = app.table.load();
    let routes = app.aggregator.routes();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let value = match parts.as_slice() {
        [""] => json!({"paths": paths(&table, &routes)}),
        ["api"] | ["apis"] if wants_aggregated(headers).is_some() => {
            return Ok(Some(aggregated(&table, &routes, parts[0] == "api", headers)));
        }
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": format!("{}:{}", app.settings.advertise_address, app.settings.https_port)}],
        }),
        ["apis"] => {
            let groups: Vec<Value> = groups(&table, &routes)
                .iter()
                .filter(|(name, _)| !name.is_empty())
                .map(|(name, versions)| group(name, versions))
                .collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["api", version] => match resource_list(&table, "", version) {
            Some(list) => list,
            None => return Err(Status::no_such_resource()),
        },
        ["apis", name] => match groups(&table, &routes).iter().find(|(group, _)| group == name) {
            Some((name, versions)) => {
                let mut value = group(name, versions);
                value["kind"] = "APIGroup".into();
                value["apiVersion"] = "v1".into();
                value
            }
            None => return Ok(None),
        },
        ["apis", group, version] => match resource_list(&table, group, version) {
            Some(list) => list,
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(Some(respond::value(200, &answer.clone()?, &value)))
}

type Routes = [Arc<Route>];

/// Groups in the order of the table, those that others serve at the place their priority gives them; each with its
/// versions, the preferred one first.
fn groups<'a>(table: &'a Table, routes: &'a Routes) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut groups = local_groups(table);
    let custom = |group: &str| table.resources().iter().any(|it| it.kind.group == group && it.custom.is_some());
    let mut routes: Vec<&Route> = routes.iter().map(Arc::as_ref).collect();
    routes.sort_by_key(|route| std::cmp::Reverse((route.version_priority, priority(&route.version))));
    let mut priorities: Vec<i64> =
        groups.iter().map(|(group, _)| aggregate::group_priority(group, custom(group))).collect();
    for route in routes {
        match groups.iter_mut().find(|(name, _)| *name == route.group) {
            Some((_, versions)) if versions.contains(&route.version.as_str()) => {}
            Some((_, versions)) => versions.push(&route.version),
            None => {
                let at = priorities.iter().position(|other| *other < route.group_priority).unwrap_or(groups.len());
                priorities.insert(at, route.group_priority);
                groups.insert(at, (&route.group, vec![&route.version]));
            }
        }
    }
    groups
}

fn local_groups(table: &Table) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for resource in table.resources() {
        let kind = &*resource.kind;
        match groups.iter_mut().find(|(name, _)| *name == kind.group) {
            Some((_, versions)) if versions.contains(&kind.version) => {}
            Some((_, versions)) => versions.push(kind.version),
            None => groups.push((kind.group, vec![kind.version])),
        }
    }
    for (_, versions) in &mut groups {
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
    }
    groups
}

/// Kubernetes' order of versions: v2 before v1, stable before beta before alpha.
pub fn priority(version: &str) -> (u8, u32, u32) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let major = digits.parse().unwrap_or(0);
    let stage = &rest[digits.len()..];
    for (name, rank) in [("alpha", 1), ("beta", 2)] {
        if let Some(minor) = stage.strip_prefix(name) {
            return (rank, major, minor.parse().unwrap_or(0));
        }
    }
    if stage.is_empty() && !digits.is_empty() { (3, major, 0) } else { (0, 0, 0) }
}

fn group(name: &str, versions: &[&str]) -> Value {
    let version = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let all: Vec<Value> = versions.iter().map(version).collect();
    json!({"name": name, "versions": all, "preferredVersion": all[0]})
}

fn resource_list(table: &Table, group: &str, version: &str) -> Option<Value> {
    let members: Vec<&Arc<Resource>> = table
        .resources()
        .iter()
        .filter(|resource| resource.kind.group == group && resource.kind.version == version)
        .collect();
    let first = members.first()?;
    let mut resources: Vec<Value> = Vec::new();
    for resource in &members {
        resources.push(described(&resource.kind));
        resources.extend(resource.kind.subresources.iter().map(|sub| described_subresource(&resource.kind, sub)));
    }
    resources.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    Some(
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": first.kind.api_version(), "resources": resources}),
    )
}

fn described(kind: &Kind) -> Value {
    let mut value = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced(), "kind": kind.kind, "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        value["shortNames"] = kind.short_names.into();
    }
    if !kind.categories.is_empty() {
        value["categories"] = kind.categories.into();
    }
    if !kind.storage.is_empty() {
        value["storageVersionHash"] = storage_hash(kind).into();
    }
    value
}

/// A short text that changes with the stored version, as clients expect one.
fn storage_hash(kind: &Kind) -> String {
    use base64::Engine;
    let text = format!(
        "{}/{}/{}",
        kind.group,
        kind.convert.as_ref().map_or(kind.version, |convert| convert.version),
        kind.kind
    );
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

fn described_subresource(kind: &Kind, sub: &Subresource) -> Value {
    let mut value = json!({
        "name": format!("{}/{}", kind.plural, sub.name), "singularName": "", "namespaced": kind.namespaced(),
        "kind": sub.kind, "verbs": sub.verbs,
    });
    if !sub.version.is_empty() {
        value["group"] = sub.group.into();
        value["version"] = sub.version.into();
    }
    value
}

/// The version of aggregated discovery the client takes before the plain form.
fn wants_aggregated(headers: &HeaderMap) -> Option<&'static str> {
    let accept = headers.get(http::header::ACCEPT)?.to_str().ok()?;
    for clause in accept.split(',') {
        if clause.contains("as=APIGroupDiscoveryList") && clause.contains("g=apidiscovery.k8s.io") {
            if clause.contains("v=v2beta1") {
                return Some("v2beta1");
            }
            if clause.contains("v=v2") {
                return Some("v2");
            }
        }
    }
    None
}

fn aggregated(table: &Table, routes: &Routes, core: bool, headers: &HeaderMap) -> Reply {
    let version = wants_aggregated(headers).unwrap_or("v2");
    let mut items = Vec::new();
    for (name, versions) in groups(table, routes) {
        if name.is_empty() != core {
            continue;
        }
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| match routes.iter().find(|route| route.group == name && route.version == *version) {
                Some(route) => route.described.clone(),
                None => aggregated_version(table, name, version),
            })
            .collect();
        let metadata =
            if core { json!({"creationTimestamp": null}) } else { json!({"name": name, "creationTimestamp": null}) };
        items.push(json!({"metadata": metadata, "versions": versions}));
    }
    let value = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"), "metadata": {}, "items": items,
    });
    let content_type = match version {
        "v2beta1" => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    };
    let text = value.to_string();
    let etag = format!("\"{}\"", hex(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()).as_ref()));
    let same = headers.get(http::header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == etag.as_bytes());
    let mut reply = if same {
        respond::reply(304, content_type, crate::body::Body::Empty)
    } else {
        respond::bytes_reply(200, content_type, text)
    };
    let headers = reply.headers_mut();
    headers.insert(http::header::ETAG, etag.parse().expect("hexadecimal digits in quotes are a header"));
    headers.insert(http::header::VARY, http::HeaderValue::from_static("Accept"));
    headers.insert(http::header::CACHE_CONTROL, http::HeaderValue::from_static("public"));
    reply
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn aggregated_version(table: &Table, group: &str, version: &str) -> Value {
    let scope = |kind: &Kind| if kind.namespaced() { "Namespaced" } else { "Cluster" };
    let response = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut resources = BTreeMap::new();
    for resource in table.resources().iter().filter(|r| r.kind.group == group && r.kind.version == version) {
        let kind = &*resource.kind;
        let subresources: Vec<Value> = kind.subresources.iter().map(|sub| {
            let (sub_group, sub_version) = if sub.version.is_empty() { (group, version) } else { (sub.group, sub.version) };
            json!({"subresource": sub.name, "responseKind": response(sub_group, sub_version, sub.kind), "verbs": sub.verbs})
        }).collect();
        let mut value = json!({
            "resource": kind.plural, "responseKind": response(group, version, kind.kind), "scope": scope(kind),
            "singularResource": kind.singular, "verbs": kind.verbs,
        });
        for (field, list) in [("shortNames", kind.short_names), ("categories", kind.categories)] {
            if !list.is_empty() {
                value[field] = list.into();
            }
        }
        if !subresources.is_empty() {
            value["subresources"] = subresources.into();
        }
        resources.insert(kind.plural, value);
    }
    json!({"version": version, "freshness": "Current", "resources": resources.into_values().collect::<Vec<_>>()})
}

pub const FIXED_PATHS: [&str; 16] = [
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/flagz",
    "/healthz",
    "/livez",
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/statusz",
    "/version",
];

fn paths(table: &Table, routes: &Routes) -> Vec<String> {
    let mut paths: Vec<String> = FIXED_PATHS.iter().map(ToString::to_string).collect();
    for (group, versions) in groups(table, routes).iter().filter(|(group, _)| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.sort();
    paths
}
