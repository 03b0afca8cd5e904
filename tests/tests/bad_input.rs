//! Requests that are wrong: every one gets a code and a Status, changes nothing, and costs the server little.
//! Connections that are wrong at the HTTP level are in `wire.rs`.

use std::cell::RefCell;

use serde_json::{Value, json};
use testkit::{Client, Server};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const KEPT: &str = "/api/v1/namespaces/default/secrets/kept";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// A server with one object, which no bad request may touch.
struct Fixture {
    server: Server,
    client: Client,
    before: Value,
    failures: RefCell<Vec<String>>,
}

impl Fixture {
    async fn start() -> Fixture {
        let server = Server::start().unwrap();
        let client = server.client().unwrap();
        let kept = json!({"metadata": {"name": "kept"}, "data": {"a": "MQ=="}});
        assert_eq!(client.post(SECRETS, &kept).await.unwrap().code, 201);
        let before = client.get(SECRETS).await.unwrap().json()["items"].clone();
        Fixture { server, client, before, failures: RefCell::default() }
    }

    /// Sends it; the answer must have this code and be a Status whose message holds these words; nothing may have changed.
    async fn check(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Vec<u8>>,
        code: u16,
        words: &str,
    ) {
        let body: Vec<u8> = body.into();
        let shown = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
        let what = format!("{method} {path} {content_type} {shown}");
        let reply =
            self.client.send(method, path, content_type, body).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let status = reply.json();
        let shape = (&status["kind"], &status["status"], &status["code"]);
        let message = status["message"].as_str().unwrap_or_default();
        if reply.code != code
            || shape != (&json!("Status"), &json!("Failure"), &json!(code))
            || !message.contains(words)
        {
            let answer: String = reply.text().chars().take(600).collect();
            self.failures
                .borrow_mut()
                .push(format!("{what}\n  expected {code} {words:?}\n  answered {} {answer}", reply.code));
        }
        self.unchanged(&what).await;
    }

    async fn unchanged(&self, what: &str) {
        let now = self.client.get(SECRETS).await.unwrap().json()["items"].clone();
        assert_eq!(now, self.before, "{what} changed something");
    }

    /// Every wrong answer at once: one at a time would take as many runs.
    fn report(&self) {
        let failures = self.failures.borrow();
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    fn memory_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }
}

#[tokio::test]
async fn bodies_that_are_no_object() {
    let fixture = Fixture::start().await;
    for (content_type, body, code, words) in [
        (JSON, &b"{"[..], 400, "unexpected end of JSON input"),
        (JSON, b"", 400, ""),
        (JSON, b"[]", 400, ""),
        (JSON, b"7", 400, ""),
        (JSON, b"null", 422, "name or generateName is required"),
        (JSON, b"\"text\"", 400, ""),
        (JSON, b"{\"metadata\": {\"name\": \"x\"}} trailing", 400, ""),
        (JSON, b"{\"metadata\": {\"name\": \"x\"}, }", 400, ""),
        (JSON, b"{'metadata': 1}", 400, ""),
        (JSON, b"\xff\xfe\x00{", 400, ""),
        (YAML, b"a: [", 400, "yaml"),
        (YAML, b"a: *nowhere", 400, ""),
        (YAML, b"\xff\xfe\xfa", 400, ""),
        ("text/plain", b"{}", 415, "accepted media types include"),
        ("application/vnd.kubernetes.protobuf", b"k8s\x00\xff\xff\xff", 400, ""),
        ("application/vnd.kubernetes.protobuf", b"not protobuf", 400, ""),
    ] {
        fixture.check("POST", SECRETS, content_type, body, code, words).await;
    }
    fixture.report();
}

#[tokio::test]
async fn values_of_the_wrong_type() {
    let fixture = Fixture::start().await;
    for (body, code, words) in [
        (
            json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "x"}}),
            400,
            "cannot be handled as a Secret",
        ),
        (json!({"kind": "Fruit", "apiVersion": "v1", "metadata": {"name": "x"}}), 400, "Fruit"),
        (json!({"kind": "Secret", "apiVersion": "v2", "metadata": {"name": "x"}}), 400, "v2"),
        (json!({"metadata": "x"}), 400, "cannot unmarshal string"),
        (json!({"metadata": {"name": 7}}), 400, "cannot unmarshal number"),
        (json!({"metadata": {"name": "x", "labels": ["a"]}}), 400, "cannot unmarshal array"),
        (json!({"metadata": {"name": "x", "labels": {"a": true}}}), 400, "cannot unmarshal bool"),
        (json!({"metadata": {"name": "x", "creationTimestamp": "yesterday"}}), 400, "parsing time"),
        (json!({"metadata": {"name": "x"}, "data": {"a": "not base64!"}}), 400, "illegal base64 data"),
        (json!({"metadata": {"name": "x"}, "immutable": "yes"}), 400, "cannot unmarshal string"),
        (json!({"metadata": {"name": "x", "namespace": "other"}}), 400, "does not match the namespace"),
        (json!({"metadata": {}}), 422, "name or generateName is required"),
        (json!({"metadata": {"name": "../../etc/passwd"}}), 422, "metadata.name"),
        (json!({"metadata": {"name": "a\0b"}}), 422, "metadata.name"),
        (json!({"metadata": {"name": "x".repeat(300)}}), 422, "must be no more than 253"),
        (json!({"metadata": {"generateName": "UPPER-"}}), 422, "metadata.generateName"),
    ] {
        fixture.check("POST", SECRETS, JSON, body.to_string(), code, words).await;
    }
    fixture.report();
}

#[tokio::test]
async fn bodies_made_to_cost_much() {
    let fixture = Fixture::start().await;
    let memory = fixture.memory_bytes();
    let levels = 100_000;
    let deep_json = format!(r#"{{"metadata": {{"name": "x"}}, "data": {}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    fixture.check("POST", SECRETS, JSON, deep_json, 400, "depth").await;
    let deep_objects = format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    fixture.check("POST", SECRETS, JSON, deep_objects.clone(), 400, "depth").await;
    fixture.check("PATCH", KEPT, MERGE_PATCH, deep_objects.clone(), 400, "").await;
    fixture.check("PATCH", KEPT, STRATEGIC_PATCH, deep_objects, 400, "").await;
    fixture.check("POST", SECRETS, YAML, "- ".repeat(levels), 400, "").await;
    fixture.check("POST", SECRETS, YAML, "[".repeat(levels), 400, "").await;

    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![before; 9].join(", "));
    }
    fixture.check("POST", SECRETS, YAML, bomb, 400, "").await;

    let operations: Vec<Value> =
        (0..10_001).map(|_| json!({"op": "test", "path": "/kind", "value": "Secret"})).collect();
    let words = "The allowed maximum operations in a JSON patch is 10000, got 10001";
    fixture.check("PATCH", KEPT, JSON_PATCH, json!(operations).to_string(), 413, words).await;
    // Each copy doubles what the one before made.
    let doubling: Vec<Value> = (0..60).map(|_| json!({"op": "copy", "from": "/data", "path": "/data/more"})).collect();
    let reply = fixture.client.send("PATCH", KEPT, JSON_PATCH, json!(doubling).to_string()).await.unwrap();
    assert!((400..500).contains(&reply.code), "{}", reply.text());
    fixture.unchanged("a doubling patch").await;

    let long_selector = format!("{SECRETS}?labelSelector={}", "a%2C".repeat(8_000));
    let reply = fixture.client.get(&long_selector).await.unwrap();
    assert!(matches!(reply.code, 200 | 400 | 414 | 431), "{}", reply.code);

    let grown = fixture.memory_bytes().saturating_sub(memory);
    assert!(grown < 96 << 20, "the server grew by {} MiB", grown >> 20);
    fixture.report();
}

#[tokio::test]
async fn patches_that_cannot_be() {
    let fixture = Fixture::start().await;
    for (content_type, body, code, words) in [
        (JSON_PATCH, "{}", 400, ""),
        (JSON_PATCH, "[{", 400, ""),
        (JSON_PATCH, r#"[{"op": "dance", "path": "/data"}]"#, 422, ""),
        (JSON_PATCH, r#"[{"op": "remove", "path": "/data/nothing"}]"#, 422, ""),
        (JSON_PATCH, r#"[{"op": "test", "path": "/data/a", "value": "Mg=="}]"#, 422, ""),
        (
            JSON_PATCH,
            r#"[{"op": "replace", "path": "/metadata/name", "value": "other"}]"#,
            400,
            "does not match the name",
        ),
        (JSON_PATCH, r#"[{"op": "replace", "path": "", "value": 7}]"#, 422, ""),
        (MERGE_PATCH, "[]", 400, ""),
        (MERGE_PATCH, "{", 400, ""),
        (MERGE_PATCH, r#"{"data": 7}"#, 422, ""),
        (MERGE_PATCH, r#"{"metadata": {"uid": "other"}}"#, 422, "field is immutable"),
        (
            MERGE_PATCH,
            r#"{"metadata": {"resourceVersion": "1"}, "data": {"b": "MQ=="}}"#,
            409,
            "the object has been modified",
        ),
        (MERGE_PATCH, r#"{"type": "other"}"#, 422, "field is immutable"),
        (STRATEGIC_PATCH, r#"{"metadata": {"ownerReferences": [{"name": "no merge key"}]}}"#, 422, "uid"),
        ("application/apply-patch+yaml", "{}", 422, "is required for apply patch"),
        ("application/json", "{}", 415, "415: Unsupported Media Type"),
        ("", "{}", 415, ""),
    ] {
        fixture.check("PATCH", KEPT, content_type, body, code, words).await;
    }
    let apply = format!("{KEPT}?fieldManager=me");
    for (body, code, words) in [
        (": : :", 400, "error decoding YAML"),
        ("metadata: {name: kept}", 400, "version"),
        ("{apiVersion: v1, kind: Secret, metadata: {name: kept, managedFields: [{manager: x}]}}", 400, "managedFields"),
        ("{apiVersion: v1, kind: Secret, metadata: {name: other}}", 400, "does not match"),
    ] {
        fixture.check("PATCH", &apply, "application/apply-patch+yaml", body, code, words).await;
    }
    fixture.report();
}

#[tokio::test]
async fn unknown_fields_in_three_modes() {
    let fixture = Fixture::start().await;
    let client = &fixture.client;
    let body = r#"{"metadata": {"name": "x", "colour": "red"}, "shape": 1, "type": "a", "type": "Opaque"}"#;
    let strict = format!("{SECRETS}?fieldValidation=Strict");
    fixture
        .check(
            "POST",
            &strict,
            JSON,
            body,
            400,
            r#"strict decoding error: unknown field "metadata.colour", unknown field "shape", duplicate field "type""#,
        )
        .await;
    let yaml = "metadata: {name: x, colour: red}\nshape: 1\n";
    fixture.check("POST", &strict, YAML, yaml, 400, r#"unknown field "metadata.colour", unknown field "shape""#).await;
    fixture
        .check(
            "PATCH",
            &format!("{KEPT}?fieldValidation=Strict"),
            MERGE_PATCH,
            r#"{"shape": 1}"#,
            422,
            r#"unknown field "shape""#,
        )
        .await;
    // The text of a patch is read as strictly as what it makes, also where it changes nothing.
    for (media, patch, expected) in [
        (
            MERGE_PATCH,
            r#"{"shape": 1, "type": "a", "type": "Opaque"}"#,
            r#"duplicate field "type", unknown field "shape""#,
        ),
        (STRATEGIC_PATCH, r#"{"type": "a", "type": "Opaque"}"#, r#"strict decoding error: duplicate field "type""#),
        (
            JSON_PATCH,
            r#"[{"op": "test", "path": "/kind", "path": "/type", "value": "Opaque", "foo": 1}]"#,
            r#"strict decoding error: json patch unknown field "[0].foo", json patch duplicate field "[0].path""#,
        ),
    ] {
        fixture.check("PATCH", &format!("{KEPT}?fieldValidation=Strict"), media, patch, 422, expected).await;
        let warned = client.send("PATCH", &format!("{KEPT}?dryRun=All"), media, patch).await.unwrap();
        assert_eq!(warned.code, 200, "{}", warned.text());
        assert_eq!(warned.warnings().len(), expected.matches(" field ").count(), "{media}: {:?}", warned.warnings());
    }
    fixture.check("POST", &format!("{SECRETS}?fieldValidation=Loud"), JSON, body, 422, "fieldValidation").await;

    // Without a mode the server warns; asked to ignore, it says nothing. Either way the fields are not kept.
    for (query, warnings) in
        [("?dryRun=All", 3), ("?dryRun=All&fieldValidation=Warn", 3), ("?dryRun=All&fieldValidation=Ignore", 0)]
    {
        let reply = client.send("POST", &format!("{SECRETS}{query}"), JSON, body).await.unwrap();
        assert_eq!(reply.code, 201, "{}", reply.text());
        assert_eq!(reply.warnings().len(), warnings, "{query}: {:?}", reply.warnings());
        assert_eq!(reply.json().get("shape"), None);
        assert_eq!(reply.json()["type"], "Opaque");
    }
    let reply = client.send("POST", &format!("{SECRETS}?dryRun=All"), JSON, body).await.unwrap();
    assert!(reply.warnings().contains(&r#"299 - "unknown field \"shape\"""#.to_string()), "{:?}", reply.warnings());
    fixture.unchanged("a dry run").await;
    fixture.report();
}

#[tokio::test]
async fn finalizers_of_namespaces_are_checked() {
    let fixture = Fixture::start().await;
    let body = r#"{"metadata": {"name": "default"}, "spec": {"finalizers": ["odd"]}}"#;
    let expected = r#"spec.finalizers[0]: Invalid value: "odd": name is neither a standard finalizer name nor is it fully qualified"#;
    fixture.check("PUT", "/api/v1/namespaces/default/finalize", JSON, body, 422, expected).await;
    fixture.report();
}

#[tokio::test]
async fn names_paths_and_queries() {
    let fixture = Fixture::start().await;
    for (method, path, code) in [
        ("GET", "/api/v1/namespaces/default/secrets/..%2f..%2fkube-system", 400),
        ("DELETE", "/api/v1/namespaces/default/secrets/%2e%2e", 400),
        ("GET", "/api/v1/namespaces/default/secrets/kept/nothing", 404),
        ("GET", "/api/v1/namespaces/default%2Fsecrets%2Fkept/secrets/kept", 400),
        ("GET", "/api/v1/namespaces/default/secrets/%ff%fe", 400),
        ("GET", "/api/v1/namespaces/default/secrets?limit=x", 400),
        ("GET", "/api/v1/namespaces/default/secrets?resourceVersion=abc", 400),
        ("GET", "/api/v1/namespaces/default/secrets?resourceVersionMatch=Exact", 422),
        ("GET", "/api/v1/namespaces/default/secrets?resourceVersionMatch=Nearly&resourceVersion=1", 422),
        ("GET", "/api/v1/namespaces/default/secrets?continue=abc", 400),
        ("GET", "/api/v1/namespaces/default/secrets?labelSelector=a+b", 400),
        ("GET", "/api/v1/namespaces/default/secrets?fieldSelector=spec.nope=1", 400),
        ("GET", "/api/v1/namespaces/default/secrets?watch=true&resourceVersion=-1", 400),
        ("GET", "/apis/nowhere/v1/things", 404),
        ("GET", "/api/v2/pods", 404),
        ("GET", "/api/v1/secrets/kept", 404),
        ("DELETE", "/api/v1/secrets/kept", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("POST", "/api/v1/secrets", 405),
        ("PUT", "/api/v1/namespaces/default/secrets", 405),
        ("POST", "/api/v1/namespaces/default/secrets/kept", 405),
        ("PATCH", "/api/v1/namespaces/default/secrets", 405),
        ("DELETE", "/version", 403),
    ] {
        let reply = fixture.client.send(method, path, JSON, "{}").await.unwrap();
        // Only paths of the API are answered with a Status; the others have plain text, as upstream.
        if path.starts_with("/api/v1/") {
            if (reply.code, &reply.json()["kind"]) != (code, &json!("Status")) {
                fixture
                    .failures
                    .borrow_mut()
                    .push(format!("{method} {path}: expected {code}, answered {}", reply.text()));
            }
        } else {
            assert!(reply.code == code || matches!(reply.code, 404 | 405), "{method} {path}: {}", reply.code);
        }
        fixture.unchanged(path).await;
    }
    // Encoded dots are a name like any other, and no such object can be made.
    let reply = fixture
        .client
        .put("/api/v1/namespaces/default/secrets/%2e%2e", &json!({"metadata": {"name": ".."}}))
        .await
        .unwrap();
    assert!(matches!(reply.code, 400 | 404 | 422), "{}", reply.text());
    fixture.unchanged("a PUT of ..").await;
    fixture.report();
}

#[tokio::test]
async fn forged_and_stale_continue_tokens() {
    let fixture = Fixture::start().await;
    let client = &fixture.client;
    for name in ["b", "c"] {
        client.post(SECRETS, &json!({"metadata": {"name": name}})).await.unwrap();
    }
    let page = client.get(&format!("{SECRETS}?limit=1")).await.unwrap().json();
    let token = page["metadata"]["continue"].as_str().unwrap().to_string();
    let next = client.get(&format!("{SECRETS}?limit=1&continue={token}")).await.unwrap();
    assert_eq!((next.code, &next.json()["items"][0]["metadata"]["name"]), (200, &json!("c")), "{}", next.text());

    let forged = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let base64 = |text: &str| {
        use std::process::{Command, Stdio};
        let mut child = Command::new("base64").arg("-w0").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().replace('=', "")
    };
    for token in [
        "abc".to_string(),
        forged("{}"),
        base64("{}"),
        base64(r#"{"v":"meta.k8s.io/v1","rv":-5,"start":"x"}"#),
        base64(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../../kube-system/secret\u0000"}"#),
        base64(r#"{"v":"other","rv":1,"start":"x"}"#),
        token[..token.len() / 2].to_string(),
    ] {
        let reply = client.get(&format!("{SECRETS}?limit=1&continue={token}")).await.unwrap();
        assert!(matches!(reply.code, 400 | 410), "{token}: {} {}", reply.code, reply.text());
        assert_eq!(reply.json()["kind"], "Status");
    }
    // A revision that was never reached.
    let future = base64(r#"{"v":"meta.k8s.io/v1","rv":999999999,"start":"b\u0000"}"#);
    let reply = client.get(&format!("{SECRETS}?limit=1&continue={future}")).await.unwrap();
    assert!(matches!(reply.code, 400 | 410 | 504), "{} {}", reply.code, reply.text());
    fixture.report();
}
