//! Custom resources against a real server: definitions come and go, and their objects behave like everyone else's.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use serde_json::{Value, json};
use testkit::client::{Client, Reply};
use testkit::kubectl::{self, Kubectl};
use testkit::server::Server;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BOXES: &str = "/apis/example.com/v1/namespaces/default/boxes";

fn definition() -> Value {
    let spec = json!({
        "type": "object", "required": ["size"],
        "x-kubernetes-validations": [
            {"rule": "self.size <= self.sizeMax", "message": "size may not be larger than sizeMax"},
        ],
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "sizeMax": {"type": "integer", "default": 10},
            "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "note": {"type": "string", "nullable": true},
            "owner": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "owner is immutable"}]},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "port": {"x-kubernetes-int-or-string": true},
                }},
            },
        },
    });
    let status =
        json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boxes.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "boxes", "singular": "box", "kind": "Box", "listKind": "BoxList", "shortNames": ["bx"], "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector",
                }},
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "selectableFields": [{"jsonPath": ".spec.color"}],
            }],
        },
    })
}

fn object(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": name}, "spec": spec})
}

fn good(reply: Reply) -> Value {
    assert!(reply.code < 300, "{} {}", reply.code, reply.text());
    reply.json()
}

fn refused(reply: Reply, code: u16, message: &str) {
    assert_eq!((reply.code, reply.json()["message"].as_str().unwrap_or("")), (code, message));
}

/// Creates a definition and waits until it is served, which takes no time that anyone would notice.
async fn install(client: &Client, definition: &Value) {
    good(client.post(DEFINITIONS, definition).await.expect("an answer"));
    let path = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().expect("a name"));
    until("the definition is established", || async {
        let found = client.get(&path).await.expect("an answer").json();
        condition(&found, "Established") == "True"
    })
    .await;
}

fn condition(definition: &Value, kind: &str) -> String {
    let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or("").to_string()
}

async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let ends = Instant::now() + Duration::from_secs(10);
    while !is_so().await {
        assert!(Instant::now() < ends, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn patch(client: &Client, path: &str, kind: &str, body: &Value) -> Reply {
    client.send("PATCH", path, kind, body.to_string()).await.expect("an answer")
}

const MERGE: &str = "application/merge-patch+json";

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_new_kind() {
    let server = Server::start().expect("a server");
    let client = server.client().expect("a client");
    install(&client, &definition()).await;

    // Unknown fields vanish, defaults appear, nulls stay where they are allowed, status has its own door.
    let mut given = object(
        "a",
        json!({"size": 1, "unknown": 1, "note": null, "free": {"x": [1]}, "ports": [{"name": "p", "port": "80%", "q": 1}]}),
    );
    given["status"] = json!({"replicas": 5});
    let reply = client.post(BOXES, &given).await.expect("an answer");
    let warnings = reply.warnings();
    assert!(warnings.iter().any(|text| text.contains(r#"unknown field \"spec.ports[0].q\""#)), "{warnings:?}");
    let created = good(reply);
    let spec = json!({"size": 1, "sizeMax": 10, "color": "red", "note": null, "free": {"x": [1]}, "ports": [{"name": "p", "port": "80%"}]});
    assert_eq!(created["spec"], spec);
    assert_eq!(created["status"], Value::Null);
    assert_eq!(created["metadata"]["generation"], 1);
    let strict =
        client.post(&format!("{BOXES}?fieldValidation=Strict"), &object("b", json!({"size": 1, "unknown": 1}))).await;
    refused(
        strict.expect("an answer"),
        400,
        "Box in version \"v1\" cannot be handled as a Box: strict decoding error: unknown field \"spec.unknown\"",
    );

    let listed = good(client.get(BOXES).await.expect("an answer"));
    assert_eq!((&listed["kind"], listed["items"].as_array().map(Vec::len)), (&json!("BoxList"), Some(1)));
    assert_eq!(listed["items"][0]["kind"], "Box");

    // Updates: generation counts changes of the spec, not of the status.
    let path = format!("{BOXES}/a");
    let patched = good(patch(&client, &path, MERGE, &json!({"spec": {"size": 2}, "status": {"replicas": 9}})).await);
    assert_eq!(
        (&patched["metadata"]["generation"], &patched["spec"]["size"], &patched["status"]),
        (&json!(2), &json!(2), &Value::Null)
    );
    let patched = good(
        patch(
            &client,
            &format!("{path}/status"),
            MERGE,
            &json!({"spec": {"size": 3}, "status": {"replicas": 2, "selector": "a=b"}}),
        )
        .await,
    );
    assert_eq!(
        (&patched["metadata"]["generation"], &patched["spec"]["size"], &patched["status"]["replicas"]),
        (&json!(2), &json!(2), &json!(2))
    );
    let patched = good(
        patch(
            &client,
            &path,
            "application/json-patch+json",
            &json!([{"op": "replace", "path": "/spec/color", "value": "blue"}]),
        )
        .await,
    );
    assert_eq!(patched["spec"]["color"], "blue");
    refused(
        patch(&client, &path, "application/strategic-merge-patch+json", &json!({})).await,
        415,
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    );
    let mut whole = patched.clone();
    whole["metadata"]["resourceVersion"].take();
    assert_eq!(client.put(&path, &whole).await.expect("an answer").code, 422);

    // Scale.
    let scale = good(client.get(&format!("{path}/scale")).await.expect("an answer"));
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]), (&json!(2), &json!({"replicas": 2, "selector": "a=b"})));
    good(patch(&client, &format!("{path}/scale"), MERGE, &json!({"spec": {"replicas": 4}})).await);
    assert_eq!(good(client.get(&path).await.expect("an answer"))["spec"]["size"], 4);

    // Selectors.
    let selected = good(client.get(&format!("{BOXES}?fieldSelector=spec.color%3Dblue")).await.expect("an answer"));
    assert_eq!(selected["items"].as_array().map(Vec::len), Some(1));
    let selected = good(client.get(&format!("{BOXES}?fieldSelector=spec.color%3Dred")).await.expect("an answer"));
    assert_eq!(selected["items"].as_array().map(Vec::len), Some(0));
    assert_eq!(client.get(&format!("{BOXES}?fieldSelector=spec.size%3D4")).await.expect("an answer").code, 400);

    // Columns.
    let tables = client.with_header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = good(tables.get(BOXES).await.expect("an answer"));
    let names: Vec<&Value> =
        table["columnDefinitions"].as_array().expect("columns").iter().map(|column| &column["name"]).collect();
    assert_eq!(names, ["Name", "Size", "Color", "Age"]);
    assert_eq!(
        table["rows"][0]["cells"].as_array().map(|cells| &cells[..3]),
        Some(&[json!("a"), json!(4), json!("blue")][..])
    );

    let deleted = good(client.delete(&path).await.expect("an answer"));
    assert_eq!((&deleted["kind"], &deleted["details"]["group"]), (&json!("Status"), &json!("example.com")));
    assert_eq!(client.get(&path).await.expect("an answer").code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_schema_refuses() {
    let server = Server::start().expect("a server");
    let client = server.client().expect("a client");
    install(&client, &definition()).await;
    let post = |spec: Value| {
        let (client, object) = (client.clone(), object("a", spec));
        async move { client.post(BOXES, &object).await.expect("an answer") }
    };
    refused(
        post(json!({"size": "x"})).await,
        422,
        "Box.example.com \"a\" is invalid: [spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\", <nil>: Invalid value: \"null\": some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
    );
    refused(
        post(json!({"size": 0})).await,
        422,
        "Box.example.com \"a\" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
    );
    refused(
        post(json!({"size": 11})).await,
        422,
        "Box.example.com \"a\" is invalid: spec: Invalid value: size may not be larger than sizeMax",
    );
    refused(
        post(json!({"size": 1, "ports": [{"name": "a"}, {"name": "a"}]})).await,
        422,
        "Box.example.com \"a\" is invalid: spec.ports[1]: Duplicate value: {\"name\":\"a\"}",
    );
    let reply = post(json!({"color": "green"})).await.json();
    let causes: Vec<&Value> =
        reply["details"]["causes"].as_array().expect("causes").iter().map(|cause| &cause["reason"]).collect();
    assert_eq!(causes, ["FieldValueRequired", "FieldValueNotSupported", "FieldValueInvalid"]);
    let bad_name = client.post(BOXES, &object("A_B", json!({"size": 1}))).await.expect("an answer");
    assert_eq!(bad_name.code, 422);

    // Rules about change.
    good(post(json!({"size": 1, "owner": "me"})).await);
    let path = format!("{BOXES}/a");
    good(patch(&client, &path, MERGE, &json!({"spec": {"size": 2}})).await);
    let moved = patch(&client, &path, MERGE, &json!({"spec": {"owner": "you"}})).await;
    refused(moved, 422, "Box.example.com \"a\" is invalid: spec.owner: Invalid value: \"you\": owner is immutable");

    // A rule that becomes stricter does not hold up changes elsewhere.
    let mut stricter = good(client.get(&format!("{DEFINITIONS}/boxes.example.com")).await.expect("an answer"));
    stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["owner"]["maxLength"] =
        1.into();
    good(client.put(&format!("{DEFINITIONS}/boxes.example.com"), &stricter).await.expect("an answer"));
    until("the new schema holds", || async { post(json!({"size": 1, "owner": "long"})).await.code == 422 }).await;
    good(patch(&client, &path, MERGE, &json!({"spec": {"size": 3}})).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn applying() {
    let server = Server::start().expect("a server");
    let client = server.client().expect("a client");
    install(&client, &definition()).await;
    let path = format!("{BOXES}/a");
    let apply = |manager: &'static str, spec: Value| {
        let (client, path) = (client.clone(), path.clone());
        async move {
            patch(
                &client,
                &format!("{path}?fieldManager={manager}"),
                "application/apply-patch+yaml",
                &object("a", spec),
            )
            .await
        }
    };
    let made = apply("one", json!({"size": 1, "ports": [{"name": "a", "port": 1}]})).await;
    assert_eq!(made.code, 201, "{}", made.text());
    let both = good(apply("two", json!({"ports": [{"name": "b", "port": 2}]})).await);
    assert_eq!(both["spec"]["ports"], json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]));
    let conflict = apply("two", json!({"size": 2})).await;
    assert_eq!((conflict.code, &conflict.json()["reason"]), (409, &json!("Conflict")));
    // The port of one goes with its manager's wish, the other stays.
    let less = good(apply("one", json!({"size": 1})).await);
    assert_eq!(less["spec"]["ports"], json!([{"name": "b", "port": 2}]));
    let mut managers: Vec<&str> = less["metadata"]["managedFields"]
        .as_array()
        .expect("managers")
        .iter()
        .filter_map(|entry| entry["manager"].as_str())
        .collect();
    // They stand in the order of their last change, which may fall into one second or two.
    managers.sort();
    assert_eq!(managers, ["one", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_versions() {
    let server = Server::start().expect("a server");
    let client = server.client().expect("a client");
    let mut definition = definition();
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    second["storage"] = false.into();
    second["deprecated"] = true.into();
    second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["extra"] =
        json!({"type": "string", "default": "two"});
    // Versions with the same ones need the same schema.
    second["selectableFields"] = json!([{"jsonPath": ".spec.extra"}]);
    definition["spec"]["versions"].as_array_mut().expect("versions").push(second);
    install(&client, &definition).await;
    good(client.post(BOXES, &object("a", json!({"size": 1}))).await.expect("an answer"));
    let other = "/apis/example.com/v2/namespaces/default/boxes";
    let reply = client.get(&format!("{other}/a")).await.expect("an answer");
    assert_eq!(reply.warnings(), ["299 - \"example.com/v2 Box is deprecated\""]);
    let shown = good(reply);
    // What was stored gets the defaults of its own version; those of this one are for those who write in it.
    assert_eq!((&shown["apiVersion"], &shown["spec"]["extra"]), (&json!("example.com/v2"), &Value::Null));
    let listed = good(client.get(other).await.expect("an answer"));
    assert_eq!(
        (&listed["apiVersion"], &listed["items"][0]["apiVersion"]),
        (&json!("example.com/v2"), &json!("example.com/v2"))
    );
    let group = good(client.get("/apis/example.com").await.expect("an answer"));
    assert_eq!(group["preferredVersion"]["version"], "v2");

    // Written in one version, stored in the other.
    good(patch(&client, &format!("{other}/a"), MERGE, &json!({"spec": {"size": 2}})).await);
    let shown = good(client.get(&format!("{BOXES}/a")).await.expect("an answer"));
    assert_eq!(
        (&shown["apiVersion"], &shown["spec"]["size"], &shown["spec"]["extra"]),
        (&json!("example.com/v1"), &json!(2), &Value::Null)
    );

    // The other becomes the stored one; both are remembered until somebody has rewritten the objects.
    let path = format!("{DEFINITIONS}/boxes.example.com");
    let mut moved = good(client.get(&path).await.expect("an answer"));
    moved["spec"]["versions"][0]["storage"] = false.into();
    moved["spec"]["versions"][1]["storage"] = true.into();
    good(client.put(&path, &moved).await.expect("an answer"));
    until("both versions are remembered", || async {
        client.get(&path).await.expect("an answer").json()["status"]["storedVersions"] == json!(["v1", "v2"])
    })
    .await;
    let shown = good(client.get(&format!("{BOXES}/a")).await.expect("an answer"));
    assert_eq!(shown["apiVersion"], "example.com/v1");
    let before = shown["metadata"]["resourceVersion"].clone();
    let written = good(client.put(&format!("{BOXES}/a"), &shown).await.expect("an answer"));
    assert_ne!(
        written["metadata"]["resourceVersion"], before,
        "a write that changes nothing moves the object to the new version"
    );
    assert_eq!(written["metadata"]["generation"], shown["metadata"]["generation"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_reach_objects_that_were_stored_before() {
    let mut server = Server::start().expect("a server");
    let client = server.client().expect("a client");
    install(&client, &definition()).await;
    good(client.post(BOXES, &object("a", json!({"size": 1}))).await.expect("an answer"));
    let path = format!("{DEFINITIONS}/boxes.example.com");
    let mut later = good(client.get(&path).await.expect("an answer"));
    later["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["later"] =
        json!({"type": "integer", "default": 7});
    good(client.put(&path, &later).await.expect("an answer"));
    let has_default =
        || async { client.get(&format!("{BOXES}/a")).await.expect("an answer").json()["spec"]["later"] == 7 };
    until("the default shows", has_default).await;
    let listed = good(client.get(BOXES).await.expect("an answer"));
    assert_eq!(listed["items"][0]["spec"]["later"], 7);

    // A server that starts serves what was defined before, from its first answer on.
    server.restart().expect("a restart");
    let client = server.client().expect("a client");
    let found = good(client.get(&format!("{BOXES}/a")).await.expect("an answer"));
    assert_eq!(found["spec"]["later"], 7);
    refused(
        client.post(BOXES, &object("b", json!({"size": 11}))).await.expect("an answer"),
        422,
        "Box.example.com \"b\" is invalid: spec: Invalid value: size may not be larger than sizeMax",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_definition() {
    let server = Server::start().expect("a server");
    let client = server.client().expect("a client");
    install(&client, &definition()).await;
    let mut held = object("held", json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["hold"]);
    good(client.post(BOXES, &held).await.expect("an answer"));
    good(client.post(BOXES, &object("free", json!({"size": 1}))).await.expect("an answer"));
    let mut watch = client
        .open("GET", &format!("{BOXES}?watch=true&resourceVersion=0"), "", "")
        .await
        .expect("a watch")
        .into_body();

    let path = format!("{DEFINITIONS}/boxes.example.com");
    let marked = good(client.delete(&path).await.expect("an answer"));
    assert_eq!(marked["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(condition(&marked, "Terminating"), "True");
    until("the free object is gone", || async {
        client.get(&format!("{BOXES}/free")).await.expect("an answer").code == 404
    })
    .await;
    let refused_create = client.post(BOXES, &object("late", json!({"size": 1}))).await.expect("an answer");
    refused(refused_create, 405, "create not allowed while custom resource definition is terminating");
    assert_eq!(client.get(&path).await.expect("an answer").code, 200, "an object still holds the definition");
    good(patch(&client, &format!("{BOXES}/held"), MERGE, &json!({"metadata": {"finalizers": null}})).await);
    until("the definition is gone", || async { client.get(&path).await.expect("an answer").code == 404 }).await;
    until("the kind is gone", || async { client.get(BOXES).await.expect("an answer").code == 404 }).await;
    assert_eq!(client.get("/apis/example.com").await.expect("an answer").code, 404);
    let mut seen = String::new();
    let read_all = async {
        while let Some(Ok(frame)) = watch.frame().await {
            seen.push_str(&String::from_utf8_lossy(frame.data_ref().map_or(&[], |data| data)));
        }
    };
    tokio::time::timeout(Duration::from_secs(10), read_all).await.expect("the watch ends with the kind");
    assert_eq!(seen.matches("\"type\":\"DELETED\"").count(), 2, "{seen}");

    // The same kind again is a new one.
    install(&client, &definition()).await;
    assert_eq!(good(client.get(BOXES).await.expect("an answer"))["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_belong_to_one_definition() {
    let server = Server::start().expect("a server");
    let client = server.client().expect("a client");
    install(&client, &definition()).await;
    let mut rival = definition();
    rival["metadata"]["name"] = "crates.example.com".into();
    rival["spec"]["names"] =
        json!({"plural": "crates", "singular": "crate", "kind": "Box", "listKind": "CrateList", "shortNames": ["bx"]});
    good(client.post(DEFINITIONS, &rival).await.expect("an answer"));
    let path = format!("{DEFINITIONS}/crates.example.com");
    until("the conflict is told", || async {
        let found = client.get(&path).await.expect("an answer").json();
        condition(&found, "NamesAccepted") == "False"
    })
    .await;
    let found = good(client.get(&path).await.expect("an answer"));
    assert_eq!(condition(&found, "Established"), "False");
    assert_eq!(found["status"]["conditions"][0]["message"], "\"Box\" is already in use");
    assert_eq!(client.get("/apis/example.com/v1/crates").await.expect("an answer").code, 404);
    // Names that become free go to who waits for them.
    good(client.delete(&format!("{DEFINITIONS}/boxes.example.com")).await.expect("an answer"));
    until("the rival is served", || async {
        client.get("/apis/example.com/v1/crates").await.expect("an answer").code == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_kubectl() {
    let server = Server::start().expect("a server");
    for (index, program) in kubectl::programs().iter().enumerate() {
        let kubectl = Kubectl::new(program, &server.kubeconfig());
        kubectl.ok_with(&["create", "--validate=false", "-f", "-"], &definition().to_string());
        kubectl.ok(&["wait", "--for", "condition=established", "crd/boxes.example.com", "--timeout=10s"]);
        let resources = kubectl.ok(&["api-resources", "--api-group=example.com"]);
        assert!(resources.contains("boxes") && resources.contains("bx"), "{resources}");
        kubectl.ok_with(&["create", "--validate=false", "-f", "-"], &object("a", json!({"size": 3})).to_string());
        let rows = kubectl.ok(&["get", "bx"]);
        assert!(rows.starts_with("NAME   SIZE   AGE\na      3      "), "{index} {rows}");
        assert!(kubectl.ok(&["get", "boxes", "-o", "wide"]).contains("red"));
        assert!(kubectl.ok(&["get", "all"]).contains("box.example.com/a"));
        kubectl.ok(&["scale", "box/a", "--replicas=5"]);
        assert_eq!(kubectl.ok(&["get", "box", "a", "-o", "jsonpath={.spec.size}"]), "5");
        kubectl.ok(&["patch", "box", "a", "--type=merge", "-p", r#"{"spec":{"color":"blue"}}"#]);
        kubectl.ok(&["label", "box", "a", "x=y"]);
        assert!(
            kubectl
                .ok(&["get", "boxes", "-l", "x=y", "--field-selector", "spec.color=blue", "-o", "name"])
                .contains("box.example.com/a")
        );
        kubectl.ok(&["delete", "crd", "boxes.example.com"]);
        assert!(kubectl.fails(&["get", "boxes"]).contains("the server"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_about_custom_resources_are_checked_against_their_schema() {
    let server = Server::start().expect("a server");
    let client = server.client().expect("a client");
    good(client.post(DEFINITIONS, &definition()).await.expect("an answer"));
    let document = "/openapi/v3/apis/example.com/v1";
    until("the schema is published", || async { client.get(document).await.expect("an answer").code == 200 }).await;
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let rules = json!([{"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["boxes"], "operations": ["CREATE"]}]);
    let expressions = ["object.spec.size > '1'", "object.spec.sizeMin < 10", "object.spec.size > 1"];
    let validations: Vec<Value> = expressions.iter().map(|text| json!({"expression": text})).collect();
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "confused"},
        "spec": {"matchConstraints": {"resourceRules": rules}, "validations": validations},
    });
    good(client.post(POLICIES, &policy).await.expect("an answer"));
    let path = format!("{POLICIES}/confused");
    let read = || async { good(client.get(&path).await.expect("an answer")) };
    until("the policy is checked", || async { !read().await["status"]["typeChecking"].is_null() }).await;
    let policy = read().await;
    let warnings = policy["status"]["typeChecking"]["expressionWarnings"].as_array().expect("warnings");
    let told: Vec<(&str, &str)> =
        warnings.iter().map(|one| (one["fieldRef"].as_str().unwrap(), one["warning"].as_str().unwrap())).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    let of_types = "example.com/v1, Kind=Box: ERROR: <input>:1:18: found no matching overload for '_>_' applied to '(int, string)'";
    assert!(told[0].0 == "spec.validations[0].expression" && told[0].1.starts_with(of_types), "{told:?}");
    assert!(
        told[1].0 == "spec.validations[1].expression" && told[1].1.contains("undefined field 'sizeMin'"),
        "{told:?}"
    );
}
