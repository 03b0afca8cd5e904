//! Protobuf, which typed Go clients ask for: every kind says the same in it as in JSON, one by one, in lists of any length, in
//! watches, and where only metadata is wanted.

use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use machinery::codec::protobuf::{self, Envelope};
use serde_json::{Value, json};
use testkit::client::Client;
use testkit::server::Server;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

fn asking(client: &Client, media: &str) -> Client {
    client.with_header("accept", media)
}

/// The items of a list, and its metadata's fields, none of which is looked into.
fn read_list(body: &[u8], kind: &str, shape: machinery::schema::TypeRef) -> Vec<Value> {
    let envelope = protobuf::open(body).expect("an envelope");
    assert_eq!(envelope.kind, format!("{kind}List"));
    let fields = protobuf::bytes_fields(envelope.raw).expect("a list");
    assert_eq!(fields.iter().filter(|(number, _)| *number == 1).count(), 1, "metadata of {kind}List");
    let items = fields.iter().filter(|(number, _)| *number == 2);
    let read = |raw| Envelope { raw, ..Envelope::default() }.decode(shape, api::schema::field_numbers());
    items
        .map(|(_, raw)| {
            let mut item = read(*raw).expect("an item");
            drop_empty(&mut item);
            item
        })
        .collect()
}

/// As protobuf has it: the kind is in the envelope, and what is null is not there.
fn without_kind(mut item: Value) -> Value {
    drop_empty(&mut item);
    if let Some(fields) = item.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    item
}

/// Lists and maps without entries do not exist in protobuf. (Structs do; that they stay is tested beside the encoder.)
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty);
            fields.retain(|_, value| !value.is_null() && *value != json!({}) && *value != json!([]));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// Every resource of a version that can be listed.
async fn listable(client: &Client, version: &str) -> Vec<(String, String)> {
    let path = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let reply = client.get(&path).await.expect("an answer").json();
    let resources = reply["resources"].as_array().cloned().unwrap_or_default();
    let lists = resources.iter().filter(|resource| resource["verbs"].to_string().contains("\"list\""));
    lists
        .map(|resource| {
            let text = |field: &str| resource[field].as_str().unwrap_or_default().to_owned();
            (format!("{path}/{}", text("name")), text("kind"))
        })
        .collect()
}

fn examples() -> Vec<(&'static str, Value)> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"a": "\u{1f6a2} \"\\\n"}}, "spec": {
        "containers": [{"name": "c", "image": "i", "env": [{"name": "E", "value": ""}], "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"port": "http", "httpHeaders": []}, "periodSeconds": 3}, "readinessProbe": {"exec": {"command": ["x"]}},
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c", "defaultMode": 256}}], "schedulerName": "nobody"}});
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "AAECAw==", "e": ""}});
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": {"maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1500m"}}}]}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "ships.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "ships", "singular": "ship", "kind": "Ship"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"n": {"type": "integer", "default": 3, "enum": [3, 4]}}, 
                "x-kubernetes-preserve-unknown-fields": true}, "map": {"type": "object", "additionalProperties": {"type": "string"}}, "list": {"type": "array", "items": {"type": "number", "maximum": 1.5}}}}}}]}});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "e"}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": false}}], "ports": [{"name": "", "port": 80, "protocol": "TCP"}]});
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"}, "spec": {"podSelector": {},
        "ingress": [{"ports": [{"port": 80, "endPort": 90}, {"port": "http"}]}, {}]}});
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "r"}, "spec": {"devices": {
        "requests": [{"name": "one", "exactly": {"deviceClassName": "c"}}],
        "config": [{"opaque": {"driver": "d.example.com", "parameters": {"apiVersion": "d/v1", "kind": "K", "b": [1, null], "a": 1.5}}}]}}});
    vec![
        ("/api/v1/namespaces/default/pods", pod),
        ("/api/v1/namespaces/default/secrets", secret),
        ("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", scaler),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition),
        ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice),
        ("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", policy),
        ("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim),
    ]
}

#[tokio::test]
async fn every_kind_is_listed_in_protobuf_as_in_json() {
    let server = Server::start().expect("a server");
    let client = server.client().expect("a client");
    for (path, object) in examples() {
        let reply = client.post(path, &object).await.expect("an answer");
        assert_eq!(reply.code, 201, "{path}: {}", reply.text());
    }
    let wants = asking(&client, protobuf::MEDIA_TYPE);
    let groups = client.get("/apis").await.expect("an answer").json();
    let versions = groups["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .flat_map(|group| group["versions"].as_array().expect("versions"));
    let versions: Vec<String> =
        versions.map(|version| version["groupVersion"].as_str().expect("a version").to_owned()).collect();
    let (mut kinds, mut objects) = (0, 0);
    for version in versions.iter().map(String::as_str).chain(["v1"]) {
        let (group, number) = version.split_once('/').unwrap_or(("", version));
        for (path, kind) in listable(&client, version).await {
            let Some(shape) = api::schema::type_named(group, number, &kind) else { continue };
            if !api::schema::field_numbers().cover(shape) {
                continue;
            }
            // What changes between two reads is read again.
            let mut tries = 0..20;
            loop {
                let plain = client.get(&path).await.expect("an answer").json();
                let reply = wants.get(&path).await.expect("an answer");
                assert_eq!(reply.headers[CONTENT_TYPE], protobuf::MEDIA_TYPE, "{path}");
                let listed = read_list(&reply.body, &kind, shape);
                let expected: Vec<Value> =
                    plain["items"].as_array().expect("items").iter().cloned().map(without_kind).collect();
                if listed == expected {
                    kinds += usize::from(!listed.is_empty());
                    objects += listed.len();
                    break;
                }
                if tries.next().is_none() {
                    let other = listed.iter().zip(&expected).find(|(one, other)| one != other);
                    panic!("{path}: {} and {} items; {other:?}", listed.len(), expected.len());
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
    println!("{objects} objects of {kinds} kinds");
    assert!(kinds > 20 && objects > 200, "{objects} objects of {kinds} kinds");
}

/// Every list of everything that is served, but for what changes by itself.
async fn everything(client: &Client) -> Vec<(String, Value)> {
    let groups = client.get("/apis").await.expect("an answer").json();
    let groups = groups["groups"].as_array().expect("groups").clone();
    let versions = groups.iter().flat_map(|group| group["versions"].as_array().expect("versions"));
    let versions = versions.map(|version| version["groupVersion"].as_str().expect("a version").to_owned());
    let mut all = Vec::new();
    for version in versions.chain(["v1".to_owned()]) {
        for (path, _) in listable(client, &version).await {
            if path.ends_with("/leases") || path.ends_with("/events") || path.ends_with("/componentstatuses") {
                continue;
            }
            let list = client.get(&path).await.expect("an answer").json();
            all.push((path, list["items"].clone()));
        }
    }
    all
}

#[tokio::test]
async fn what_is_stored_as_protobuf_is_read_as_it_was_written() {
    let mut server =
        Server::start_api(&["--storage-media-type=application/vnd.kubernetes.protobuf"]).expect("a server");
    let client = server.client().expect("a client");
    server.default_account("default").expect("an account");
    for (path, object) in examples() {
        let reply = client.post(path, &object).await.expect("an answer");
        assert_eq!(reply.code, 201, "{path}: {}", reply.text());
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (file, dir) = (folder.path().join("snapshot"), folder.path().join("store"));
    let program = testkit::server::binary().expect("knarr");
    let saved = std::process::Command::new(program)
        .args(["snapshot", "save"])
        .arg(&file)
        .arg("--data-dir")
        .arg(server.data_dir())
        .status();
    assert!(saved.expect("it runs").success());
    store::embedded::snapshot::restore(&file, &dir).expect("a snapshot");
    let opened = store::embedded::EmbeddedStore::open(store::embedded::Config::new(dir)).expect("a store");
    let request = store::RangeRequest { prefix: "/registry/".into(), ..Default::default() };
    let entries = store::Store::range(&*opened, request).await.expect("values").entries;
    let (binary, text): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| entry.value.starts_with(b"k8s\0"));
    assert!(binary.len() > 150, "{} values", binary.len());
    for entry in text {
        // As upstream has them, but for the ports of Services, which both read in either form.
        let is_text = entry.key.contains("/api") || entry.key.starts_with("/registry/ranges/");
        assert!(is_text, "{} is stored as {:?}", entry.key, entry.value);
    }
    let before = everything(&client).await;
    server.restart().expect("it starts again");
    let mut tries = 0..20;
    loop {
        let after = everything(&client).await;
        let different = before.iter().zip(&after).find(|(one, other)| one != other);
        match different {
            None => break,
            Some((one, other)) if tries.next().is_none() => panic!("{one:?}\n{other:?}"),
            Some(_) => tokio::time::sleep(std::time::Duration::from_millis(250)).await,
        }
    }
    assert!(before.len() > 50, "{} lists", before.len());
}

#[tokio::test]
async fn long_lists_single_objects_and_watches() {
    const BIG: usize = 60;
    let server = Server::start_api(&[]).expect("a server");
    let client = server.client().expect("a client");
    let shape = api::schema::type_named("", "v1", "ConfigMap").expect("a kind");
    for number in 0..BIG {
        let data = json!({"text": "\"x\" ".repeat(40_000)});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{number:02}")}, "data": data});
        assert_eq!(client.post(MAPS, &map).await.expect("an answer").code, 201);
    }
    let wants = asking(&client, protobuf::MEDIA_TYPE);
    let plain = client.get(MAPS).await.expect("an answer").json();
    let expected: Vec<Value> = plain["items"].as_array().expect("items").iter().cloned().map(without_kind).collect();
    // Longer than what is made whole; the second time the lengths are known. In pages it is made whole.
    for _ in 0..2 {
        let reply = wants.get(MAPS).await.expect("an answer");
        assert_eq!(read_list(&reply.body, "ConfigMap", shape), expected);
    }
    let page = wants.get(&format!("{MAPS}?limit=3")).await.expect("an answer");
    assert_eq!(read_list(&page.body, "ConfigMap", shape), expected[..3]);
    let zipped = wants.with_header("accept-encoding", "gzip").get(MAPS).await.expect("an answer");
    assert_eq!(zipped.headers["content-encoding"], "gzip");
    assert!(zipped.body.starts_with(b"\x1f\x8b") && zipped.body.len() < 1_000_000, "{}", zipped.body.len());
    let metadata = asking(&client, METADATA).get(MAPS).await.expect("an answer");
    let alone: Vec<Value> = expected.iter().map(|map| json!({"metadata": map["metadata"]})).collect();
    assert_eq!(read_list(&metadata.body, "PartialObjectMetadata", shape), alone);

    let one = wants.get(&format!("{MAPS}/m07")).await.expect("an answer");
    let mut whole = client.get(&format!("{MAPS}/m07")).await.expect("an answer").json();
    assert_eq!(protobuf::decode(&one.body, shape, api::schema::field_numbers()), Ok(whole.clone()));

    // The first state, then a change, to two who share it.
    let path = format!("{MAPS}?watch=true&fieldSelector=metadata.name%3Dm07");
    let mut watchers = Vec::new();
    for _ in 0..2 {
        let mut answer = wants.open("GET", &path, "", "").await.expect("a watch").into_body();
        let mut bytes = Vec::new();
        assert_eq!(next_event(&mut answer, &mut bytes, shape).await, ("ADDED".to_owned(), whole.clone()));
        watchers.push((answer, bytes));
    }
    whole["data"] = json!({"text": "short"});
    let changed = client.put(&format!("{MAPS}/m07"), &whole).await.expect("an answer").json();
    for (answer, bytes) in &mut watchers {
        assert_eq!(next_event(answer, bytes, shape).await, ("MODIFIED".to_owned(), changed.clone()));
    }
}

/// One event of a watch: its length, then its type and an object.
async fn next_event(
    answer: &mut hyper::body::Incoming,
    bytes: &mut Vec<u8>,
    shape: machinery::schema::TypeRef<'_>,
) -> (String, Value) {
    loop {
        if let Some((length, rest)) = bytes.split_first_chunk::<4>()
            && let Some(event) = rest.get(..u32::from_be_bytes(*length) as usize)
        {
            let fields = protobuf::bytes_fields(event).expect("an event");
            let raw = protobuf::bytes_fields(fields[1].1).expect("an object")[0].1;
            let object = protobuf::decode(raw, shape, api::schema::field_numbers()).expect("an object");
            let kind = String::from_utf8(fields[0].1.to_vec()).expect("a type");
            let taken = 4 + event.len();
            bytes.drain(..taken);
            return (kind, object);
        }
        let frame = answer.frame().await.expect("the watch goes on").expect("a frame");
        bytes.extend_from_slice(frame.data_ref().expect("bytes"));
    }
}
