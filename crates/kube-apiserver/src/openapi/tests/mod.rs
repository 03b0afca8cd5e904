//! Over every kind: what the documents say, that they hang together, and that both forms say the same.

mod protobuf;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use store::cache::Cache;
use store::embedded::{Config, EmbeddedStore};

use super::*;
use crate::resources::{self, Table};
use crate::runtime_config::RuntimeConfig;

/// What most tests look at, made once: reading all documents takes a while.
struct Served {
    table: Arc<Table>,
    version_2: Value,
    /// By name.
    version_3: BTreeMap<String, Value>,
}

async fn served() -> &'static Served {
    static SERVED: tokio::sync::OnceCell<Served> = tokio::sync::OnceCell::const_new();
    SERVED
        .get_or_init(async || {
            let table = Arc::new(table().await);
            let hashes = Documents::default().hashes(&table).await.expect("hashes");
            let names = hashes.keys().filter(|name| !name.is_empty());
            let version_3 = names.map(|name| (name.clone(), read(&table, Document::Json3(name.clone()))));
            Served { version_2: read(&table, Document::Json2), version_3: version_3.collect(), table }
        })
        .await
}

/// Betas and alphas, too.
fn everything() -> RuntimeConfig {
    let open: Vec<&str> = api::OPTIONAL.iter().filter_map(|optional| optional.gate).collect();
    let text: Vec<String> = open.iter().map(|gate| format!("{gate}=true")).collect();
    let gates = component_base::features::Gates::parse(&text.join(","), &open).expect("these are open");
    RuntimeConfig::parse("api/all=true", gates).expect("good")
}

async fn table() -> Table {
    let folder = tempfile::tempdir().expect("a folder");
    let store = EmbeddedStore::open(Config::new(folder.path())).expect("an empty store");
    let cache = Cache::start(store).await.expect("it starts");
    resources::built_in(&cache, &everything()).await.expect("nothing to load")
}

fn written(table: &Table, document: &Document) -> Vec<u8> {
    let mut out = Vec::new();
    documents::write(&mut out, table, document).expect("memory takes all");
    out
}

fn read(table: &Table, document: Document) -> Value {
    serde_json::from_slice(&written(table, &document)).expect("a document is JSON")
}

fn document_of<'a>(documents: &'a BTreeMap<String, Value>, group: &str, version: &str) -> &'a Value {
    &documents[&paths::root_of(group, version)[1..]]
}

#[tokio::test]
async fn every_kind_and_its_list_are_defined() {
    let Served { version_2: second, version_3: third, .. } = served().await;
    for kind in api::every_kind() {
        let list = kind.verbs.contains(&"list").then(|| format!("{}List", kind.kind));
        for name in [kind.kind.to_string()].into_iter().chain(list) {
            let wanted = json!({"group": kind.group, "version": kind.version, "kind": name});
            let defines = |schemas: &Value| {
                let kinds = |schema: &Value| schema["x-kubernetes-group-version-kind"].as_array().cloned();
                schemas.as_object().unwrap().values().filter_map(kinds).flatten().any(|found| found == wanted)
            };
            assert!(defines(&second["definitions"]), "version 2 lacks {wanted}");
            let document = document_of(third, kind.group, kind.version);
            assert!(defines(&document["components"]["schemas"]), "version 3 lacks {wanted}");
        }
    }
}

/// By default nothing is said of versions that are not served.
#[tokio::test]
async fn what_is_not_served_is_not_defined() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = EmbeddedStore::open(Config::new(folder.path())).expect("an empty store");
    let cache = Cache::start(store).await.expect("it starts");
    let config =
        RuntimeConfig::parse("batch/v1/cronjobs=false,autoscaling/v1=false", Default::default()).expect("good");
    let table = resources::built_in(&cache, &config).await.expect("nothing to load");
    let second = read(&table, Document::Json2);
    let names: Vec<&String> = second["definitions"].as_object().unwrap().keys().collect();
    let stray = |name: &&&String| name.contains("beta") || name.contains("alpha") || name.ends_with(".CronJob");
    assert_eq!(names.iter().filter(stray).collect::<Vec<_>>(), Vec::<&&String>::new());
    assert!(second["definitions"].get("io.k8s.api.autoscaling.v1.Scale").is_some(), "Deployments scale by it");
    check_references("v2", &second, &second);
}

#[tokio::test]
async fn every_reference_leads_somewhere() {
    let Served { version_2: second, version_3: third, .. } = served().await;
    check_references("v2", second, second);
    for (name, document) in third {
        check_references(name, document, document);
    }
}

fn check_references(name: &str, document: &Value, part: &Value) {
    match part {
        Value::Object(map) => {
            if let Some(Value::String(target)) = map.get("$ref") {
                let pointer = target.strip_prefix('#').unwrap_or_else(|| panic!("{name}: {target}"));
                assert!(document.pointer(pointer).is_some(), "{name}: nothing at {target}");
                assert!(map.len() == 1 || document.get("swagger").is_some(), "{name}: more beside {target}");
            }
            map.values().for_each(|value| check_references(name, document, value));
        }
        Value::Array(items) => items.iter().for_each(|item| check_references(name, document, item)),
        _ => {}
    }
}

/// Each list type, merge key, map type and union that is known stands in both versions.
#[tokio::test]
async fn every_fact_about_merging_is_served() {
    let Served { version_2: second, version_3: third, .. } = served().await;
    let mut facts = 0;
    for (name, definition) in api::schema::openapi_definitions() {
        let served = third.values().map(|document| &document["components"]["schemas"][&name]);
        let mut copies: Vec<&Value> = served.filter(|schema| schema.is_object()).collect();
        copies.push(&second["definitions"][&name]);
        let properties = definition["properties"].as_object().cloned().unwrap_or_default();
        let parts = properties.keys().map(|field| format!("/properties/{field}")).chain([String::new()]);
        for part in parts {
            let known = definition.pointer(&part).and_then(Value::as_object).expect("a schema");
            let merging = known.iter().filter(|(key, _)| {
                key.starts_with("x-kubernetes-") && !key.ends_with("-kind") && !key.ends_with("-int-or-string")
            });
            for (key, value) in merging {
                facts += 1;
                for copy in &copies {
                    assert_eq!(copy.pointer(&part).map(|schema| &schema[key]), Some(value), "{name} {part} {key}");
                }
            }
        }
    }
    assert!(facts > 400, "only {facts} facts");
}

#[tokio::test]
async fn scalars_with_two_forms() {
    let Served { version_2: second, version_3: third, .. } = served().await;
    let third = &third["apis/apps/v1"];
    let check = |name: &str, two: Value, three: Value| {
        let without_words = |schema: &Value| {
            let mut schema = schema.clone();
            schema.as_object_mut().expect("a schema").remove("description");
            schema
        };
        assert_eq!(without_words(&second["definitions"][name]), two, "{name}");
        assert_eq!(without_words(&third["components"]["schemas"][name]), three, "{name}");
    };
    check(
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        json!({"type": "string", "format": "int-or-string"}),
        json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
    );
    check(
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        json!({"type": "string"}),
        json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
    );
}

#[tokio::test]
async fn defaults_stand_in_version_3_only() {
    let Served { version_2: second, version_3: third, .. } = served().await;
    let port = |document: &Value, at: &str| document[at]["io.k8s.api.core.v1.ContainerPort"]["properties"].clone();
    let properties = port(&third["api/v1"]["components"], "schemas");
    assert_eq!(properties["protocol"]["default"], "TCP");
    assert_eq!(properties["containerPort"]["default"], 0);
    assert_eq!(port(second, "definitions")["protocol"].get("default"), None);
    let pod = &second["definitions"]["io.k8s.api.core.v1.Pod"];
    assert_eq!(pod.get("required"), None, "metadata is not asked for");
}

#[tokio::test]
async fn operations_as_upstream_names_them() {
    let second = &served().await.version_2;
    let check = |path: &str, method: &str, id: &str, action: &str, kind: [&str; 3]| {
        let found = &second["paths"][path][method];
        assert_eq!(found["operationId"], id, "{method} {path}");
        assert_eq!(found["x-kubernetes-action"], action, "{method} {path}");
        let [group, version, kind] = kind;
        let wanted = json!({"group": group, "version": version, "kind": kind});
        assert_eq!(found["x-kubernetes-group-version-kind"], wanted, "{method} {path}");
    };
    let pods = "/api/v1/namespaces/{namespace}/pods";
    let pod = ["", "v1", "Pod"];
    check("/api/v1/pods", "get", "listCoreV1PodForAllNamespaces", "list", pod);
    check(pods, "get", "listCoreV1NamespacedPod", "list", pod);
    check(pods, "post", "createCoreV1NamespacedPod", "post", pod);
    check(pods, "delete", "deleteCoreV1CollectionNamespacedPod", "deletecollection", pod);
    let one = &format!("{pods}/{{name}}");
    check(one, "patch", "patchCoreV1NamespacedPod", "patch", pod);
    check(&format!("{one}/log"), "get", "readCoreV1NamespacedPodLog", "get", pod);
    let exec = ["", "v1", "PodExecOptions"];
    check(&format!("{one}/exec"), "post", "connectCoreV1PostNamespacedPodExec", "connect", exec);
    let eviction = ["policy", "v1", "Eviction"];
    check(&format!("{one}/eviction"), "post", "createCoreV1NamespacedPodEviction", "post", eviction);
    check("/api/v1/watch/pods", "get", "watchCoreV1PodListForAllNamespaces", "watchlist", pod);
    let scale = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale";
    check(scale, "put", "replaceAppsV1NamespacedDeploymentScale", "put", ["autoscaling", "v1", "Scale"]);
    let role = ["rbac.authorization.k8s.io", "v1", "ClusterRole"];
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    check(roles, "get", "listRbacAuthorizationV1ClusterRole", "list", role);
}

#[tokio::test]
async fn operation_ids_are_unique() {
    let second = &served().await.version_2;
    let mut seen = BTreeMap::new();
    for (path, item) in second["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("a path").iter().filter(|(key, _)| *key != "parameters") {
            let id = operation["operationId"].as_str().expect("an id").to_string();
            let before = seen.insert(id.clone(), format!("{method} {path}"));
            assert_eq!(before, None, "{id}: {method} {path}");
        }
    }
    assert!(seen.len() > 600, "only {} operations", seen.len());
}

/// kubectl looks for these before it sends a dry run, leaves validation to the server, or sends a strategic patch.
#[tokio::test]
async fn what_kubectl_looks_for_in_patches() {
    let Served { version_2: second, version_3: third, .. } = served().await;
    let path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}";
    let third = &third["apis/apps/v1"];
    for document in [second, third] {
        let patch = &document["paths"][path]["patch"];
        let names: Vec<&str> =
            patch["parameters"].as_array().unwrap().iter().filter_map(|found| found["name"].as_str()).collect();
        assert!(names.contains(&"dryRun") && names.contains(&"fieldValidation"), "{names:?}");
    }
    let content = &third["paths"][path]["patch"]["requestBody"]["content"];
    assert!(content.get("application/strategic-merge-patch+json").is_some());
}

#[test]
fn a_custom_kind() {
    let kind = machinery::kind::Kind {
        group: "stable.example.com",
        version: "v1",
        kind: "CronTab",
        ..machinery::kind::Kind::COMMON
    };
    assert_eq!(custom::name(&kind), "com.example.stable.v1.CronTab");
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer", "default": 1, "minimum": 0},
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "note": {"type": "string", "nullable": true},
            "list": {"type": "array", "items": {"type": "string"}, "x-kubernetes-preserve-unknown-fields": true},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }, "required": ["replicas", "note"]},
    }});
    let definition = custom::definition(&kind, Some(&schema));
    let name = custom::name(&kind);
    let second = definitions::v2(&name, &definition);
    assert_eq!(
        second["properties"]["spec"]["properties"],
        json!({
            "replicas": {"type": "integer", "minimum": 0}, "port": {"x-kubernetes-int-or-string": true}, "note": {},
            "list": {"x-kubernetes-preserve-unknown-fields": true},
            "free": {"x-kubernetes-preserve-unknown-fields": true},
        })
    );
    assert_eq!(second["properties"]["spec"]["required"], json!(["replicas"]));
    let target = "/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(second["properties"]["metadata"]["$ref"], format!("#{target}"));
    let third = definitions::v3(&name, &definition);
    assert_eq!(third["properties"]["spec"], schema["properties"]["spec"]);
    assert_eq!(third["x-kubernetes-group-version-kind"][0]["kind"], "CronTab");
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"spec": {}}});
    for schema in [None, Some(&open)] {
        let bare = definitions::v2(&name, &custom::definition(&kind, schema));
        let fields: Vec<&String> = bare.as_object().expect("a schema").keys().collect();
        assert_eq!(fields, ["type", "x-kubernetes-group-version-kind"], "anything may stand in such a kind");
    }
}

/// Objects within objects have a version, a kind and metadata, unless old clients would then refuse all other fields.
#[test]
fn embedded_objects() {
    let kind = machinery::kind::Kind { group: "example.com", kind: "Holder", ..machinery::kind::Kind::COMMON };
    let embedded = |open: bool| json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": open});
    let schema = json!({"type": "object", "properties": {"open": embedded(true), "closed": embedded(false)}});
    let name = custom::name(&kind);
    let definition = custom::definition(&kind, Some(&schema));
    let (second, third) = (definitions::v2(&name, &definition), definitions::v3(&name, &definition));
    for part in [&second["properties"]["closed"], &third["properties"]["closed"], &third["properties"]["open"]] {
        let fields: Vec<&String> = part["properties"].as_object().expect("properties").keys().collect();
        assert_eq!(fields, ["apiVersion", "kind", "metadata"]);
        assert_eq!(part["required"], json!(["kind", "apiVersion"]));
    }
    assert_eq!(second["properties"]["open"].get("properties"), None);
    check_references(
        "embedded",
        &json!({"swagger": "2.0", "definitions": {META_NAME: {}}}),
        &second["properties"]["closed"],
    );
}

const META_NAME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// A custom kind has its own document and is in the one of version 2; the others stay as they are.
#[tokio::test]
async fn a_custom_kind_joins_while_running() {
    let before = &served().await.table;
    let names = json!({"kind": "CronTab", "plural": "crontabs", "singular": "crontab"});
    let definition = json!({"spec": {
        "group": "stable.example.com", "names": names, "scope": "Namespaced",
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    let state = before.get("", "v1", "configmaps").and_then(|resource| resource.state.clone()).expect("a state");
    let added = crate::custom::definition::entries(&definition, &names, &state);
    let after = Arc::new(before.changed(|_| false, added));

    let third = read(&after, Document::Json3("apis/stable.example.com/v1".into()));
    check_references("custom", &third, &third);
    let path = "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}";
    let content = third["paths"][path]["patch"]["requestBody"]["content"].as_object().expect("a body");
    assert!(!content.contains_key("application/strategic-merge-patch+json"), "custom kinds have no merge keys");
    let second = read(&after, Document::Json2);
    check_references("v2", &second, &second);
    assert!(second["definitions"]["com.example.stable.v1.CronTabList"].is_object());

    let documents = Documents::default();
    let (old, new) = (documents.hashes(before).await.expect("hashes"), documents.hashes(&after).await.expect("hashes"));
    assert!(new.contains_key("apis/stable.example.com") && old["apis/apps/v1"] == new["apis/apps/v1"]);
    let apps = Document::Json3("apis/apps/v1".into());
    assert!(written(before, &apps) == written(&after, &apps), "the same hash means the same document");
}

#[tokio::test]
async fn documents_are_built_once_and_hashes_follow_the_table() {
    let table = &served().await.table;
    let documents = Documents::default();
    let hashes = documents.hashes(table).await.expect("hashes");
    assert!(Arc::ptr_eq(&hashes, &documents.hashes(table).await.expect("hashes")), "computed once per table");
    let document = Document::Json3("apis/batch/v1".into());
    let hash = &hashes["apis/batch/v1"];
    let first = documents.compressed(table, &document, hash).await.expect("built");
    let second = documents.compressed(table, &document, hash).await.expect("found");
    assert_eq!(first.as_ptr(), second.as_ptr(), "the same bytes");
    let text = documents::decompressed(first).await.expect("gzip");
    assert_eq!(text, written(table, &document));
    let smaller = Arc::new(table.changed(|resource| resource.kind.kind == "CronJob", Vec::new()));
    let changed = documents.hashes(&smaller).await.expect("hashes");
    for (name, same) in [("apis/batch/v1", false), ("", false), ("apis/apps/v1", true)] {
        assert_eq!(changed[name] == hashes[name], same, "{name}");
    }
}

#[test]
fn the_best_offer_wins() {
    let check = |accept: &str, expected: Option<u8>| {
        let mut headers = HeaderMap::new();
        if !accept.is_empty() {
            headers.insert(ACCEPT, HeaderValue::from_str(accept).expect("a header"));
        }
        assert_eq!(accepted(&headers, &[("application/json", 0), ("application/x+protobuf", 1)]), expected, "{accept}");
    };
    check("", Some(0));
    check("*/*", Some(0));
    check("application/*", Some(0));
    check("application/x+protobuf", Some(1));
    check("application/x+protobuf, */*", Some(1));
    check("application/x+protobuf;q=0.5, application/json", Some(0));
    check("application/other, application/json", Some(0));
    check("application/json;q=0", None);
    check("text/html", None);
}
