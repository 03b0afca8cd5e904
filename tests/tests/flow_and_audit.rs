//! Who may run when the server is full, and what is written down about it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Client, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_secs(60);

/// Until it is so.
async fn until<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn make(client: &Client, path: &str, object: &Value) -> Value {
    let reply = client.post(path, object).await.unwrap();
    assert_eq!(reply.code, 201, "{}", reply.text());
    reply.json()
}

/// All that a user does with ConfigMaps goes to that level.
fn schema(name: &str, user: &str, level: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 50,
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": user}}],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"], "namespaces": ["*"],
                }],
            }],
        },
    })
}

fn level(name: &str, response: Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": response,
        }},
    })
}

/// These users may change ConfigMaps.
async fn allow(client: &Client) {
    let user = |name: &str| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name});
    let subjects = ["eve", "mallory", "bob"].map(user);
    let binding = json!({
        "metadata": {"name": "all"}, "subjects": subjects,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
    });
    make(client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let eve = client.with_header("impersonate-user", "eve");
    until("eve may", || async { eve.get(CONFIG_MAPS).await.unwrap().code == 200 }).await;
}

fn header(reply: &testkit::Reply, name: &str) -> String {
    reply.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_string()
}

/// A request that has begun and whose body is not yet there: it keeps its seat until it is ended.
struct Slow {
    connection: tokio_rustls::client::TlsStream<tokio::net::TcpStream>,
    rest: String,
}

impl Slow {
    async fn begin(client: &Client, user: &str, name: &str) -> Slow {
        let body = json!({"metadata": {"name": name}}).to_string();
        let (first, rest) = body.split_at(5);
        let head = format!(
            "POST {CONFIG_MAPS} HTTP/1.1\r\nHost: knarr\r\nContent-Type: application/json\r\nImpersonate-User: {user}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{first}",
            body.len()
        );
        let mut connection = client.connect().await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        Slow { connection, rest: rest.to_string() }
    }

    async fn end(mut self) -> String {
        self.connection.write_all(self.rest.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // How the server closes the connection is not what is asked.
        let _ = self.connection.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// A number of `/metrics`, by the begin of its line.
async fn metric(client: &Client, begin: &str) -> f64 {
    let text = client.get("/metrics").await.unwrap().text();
    let line = text.lines().find_map(|line| line.strip_prefix(begin)?.strip_prefix(' '));
    line.and_then(|number| number.parse().ok()).unwrap_or(-1.0)
}

#[tokio::test]
async fn a_small_level_is_full_while_others_go_on() {
    // 30 seats, of which one share of 247 is one.
    let server = Server::start_api(&["--max-requests-inflight=20", "--max-mutating-requests-inflight=10"]).unwrap();
    let client = server.client().unwrap();
    allow(&client).await;
    let queue = json!({"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 1}});
    let small = make(&client, LEVELS, &level("small", queue)).await;
    make(&client, LEVELS, &level("strict", json!({"type": "Reject"}))).await;
    let of_eve = make(&client, SCHEMAS, &schema("of-eve", "eve", "small")).await;
    make(&client, SCHEMAS, &schema("of-mallory", "mallory", "strict")).await;

    let eve = client.with_header("impersonate-user", "eve");
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_string();
    until("the schema is in force", || async {
        let reply = eve.get(CONFIG_MAPS).await.unwrap();
        header(&reply, "x-kubernetes-pf-flowschema-uid") == uid(&of_eve)
            && header(&reply, "x-kubernetes-pf-prioritylevel-uid") == uid(&small)
    })
    .await;
    let (full, strict) = (Slow::begin(&client, "eve", "eves").await, Slow::begin(&client, "mallory", "his").await);
    let labels = |name: &str, level: &str| format!("{{flow_schema=\"{name}\",priority_level=\"{level}\"}}");
    let running = "apiserver_flowcontrol_current_executing_requests";
    until("the slow ones run", || async {
        metric(&client, &(running.to_string() + &labels("of-eve", "small"))).await == 1.0
            && metric(&client, &(running.to_string() + &labels("of-mallory", "strict"))).await == 1.0
    })
    .await;
    // It tries ten times, a second apart: meanwhile, the rest of the test.
    let arguments = ["get", "configmaps", "-n", "default", "--as=mallory"];
    let tries = server.kubectl().command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();

    let waiting = tokio::spawn({
        let eve = eve.clone();
        async move { eve.get(CONFIG_MAPS).await.unwrap() }
    });
    let in_queue = "apiserver_flowcontrol_current_inqueue_requests".to_string() + &labels("of-eve", "small");
    until("one waits", || async { metric(&client, &in_queue).await == 1.0 }).await;
    let refused = eve.get(CONFIG_MAPS).await.unwrap();
    assert_eq!((refused.code, refused.text().as_str()), (429, "Too many requests, please try again later.\n"));
    assert_eq!(header(&refused, "retry-after"), "1");
    assert_eq!(header(&refused, "x-kubernetes-pf-flowschema-uid"), uid(&of_eve));
    let mallory = client.with_header("impersonate-user", "mallory");
    assert_eq!(mallory.get(CONFIG_MAPS).await.unwrap().code, 429);

    // Who is elsewhere, who is exempt, and what else the same user does.
    let bob = client.with_header("impersonate-user", "bob");
    for _ in 0..20 {
        assert_eq!(bob.get(CONFIG_MAPS).await.unwrap().code, 200);
        assert_eq!(client.get(CONFIG_MAPS).await.unwrap().code, 200);
        assert_eq!(eve.get("/api/v1/namespaces/default/secrets").await.unwrap().code, 200);
    }
    assert!(!waiting.is_finished());
    assert!(full.end().await.starts_with("HTTP/1.1 201"));
    assert_eq!(waiting.await.unwrap().code, 200);
    assert_eq!(eve.get(CONFIG_MAPS).await.unwrap().code, 200);
    let refused = |name: &str, level: &str, reason: &str| {
        let labels = labels(name, level).replace('}', &format!(",reason=\"{reason}\"}}"));
        format!("apiserver_flowcontrol_rejected_requests_total{labels}")
    };
    assert_eq!(metric(&client, &refused("of-eve", "small", "queue-full")).await, 1.0);
    assert_eq!(metric(&client, "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"small\"}").await, 1.0);

    let output = tokio::task::spawn_blocking(move || tries.wait_with_output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "Error from server (TooManyRequests): the server has received too many requests and has asked us to \
                    try again later (get configmaps)\n";
    assert_eq!(said, expected);
    assert!(metric(&client, &refused("of-mallory", "strict", "concurrency-limit")).await > 1.0);
    drop(strict);
}

#[tokio::test]
async fn schemas_say_whether_their_level_exists_and_standard_objects_come_back() {
    let server = Server::start_api(&[]).unwrap();
    let (client, kubectl) = (server.client().unwrap(), server.kubectl());
    let output = kubectl.run(&["get", "flowschemas", "--no-headers"]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let missing: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(missing, ["False"; 11], "{text}");

    make(&client, SCHEMAS, &schema("lost", "eve", "later")).await;
    let condition = async |name: &str, field: &str| {
        let schema = client.get(&format!("{SCHEMAS}/{name}")).await.unwrap().json();
        schema["status"]["conditions"][0][field].as_str().unwrap_or("").to_string()
    };
    until("the schema is dangling", || async { condition("lost", "status").await == "True" }).await;
    assert_eq!(condition("lost", "reason").await, "NotFound");
    let expected =
        "This FlowSchema references the PriorityLevelConfiguration object named \"later\" but there is no such object";
    assert_eq!(condition("lost", "message").await, expected);
    make(&client, LEVELS, &level("later", json!({"type": "Reject"}))).await;
    until("its level is found", || async { condition("lost", "status").await == "False" }).await;

    let before = client.get(&format!("{SCHEMAS}/catch-all")).await.unwrap().json();
    assert_eq!(client.delete(&format!("{SCHEMAS}/catch-all")).await.unwrap().code, 200);
    until("what is mandatory comes back", || async {
        let there = client.get(&format!("{SCHEMAS}/catch-all")).await.unwrap();
        there.code == 200 && there.json()["metadata"]["uid"] != before["metadata"]["uid"]
    })
    .await;
    let patch = |annotation: &str| {
        let annotations = json!({"apf.kubernetes.io/autoupdate-spec": annotation});
        json!({"metadata": {"annotations": annotations}, "spec": {"limited": {"nominalConcurrencyShares": 7}}})
            .to_string()
    };
    let path = format!("{LEVELS}/workload-low");
    let shares =
        async || client.get(&path).await.unwrap().json()["spec"]["limited"]["nominalConcurrencyShares"].clone();
    for (annotation, expected) in [("false", 7), ("true", 100)] {
        let reply = client.send("PATCH", &path, "application/merge-patch+json", patch(annotation)).await.unwrap();
        assert_eq!(reply.code, 200, "{}", reply.text());
        until("the suggested level is as it should be", || async { shares().await == expected }).await;
    }
}

#[tokio::test]
async fn without_priority_and_fairness_plain_limits_hold() {
    let server =
        Server::start_api(&["--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=1"]).unwrap();
    let client = server.client().unwrap();
    allow(&client).await;
    let slow = Slow::begin(&client, "bob", "a").await;
    until("it runs", || async {
        metric(&client, "apiserver_current_inflight_requests{request_kind=\"mutating\"}").await == 1.0
    })
    .await;
    let other = client.with_header("impersonate-user", "eve");
    let refused = other.post(CONFIG_MAPS, &json!({})).await.unwrap();
    assert_eq!((refused.code, header(&refused, "retry-after").as_str()), (429, "1"));
    assert!(!refused.headers.contains_key("x-kubernetes-pf-flowschema-uid"));
    make(&client, CONFIG_MAPS, &json!({"metadata": {"name": "of-an-administrator"}})).await;
    drop(slow);
}

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: ["system:apiserver"]
- level: RequestResponse
  namespaces: ["default"]
  resources: [{group: "", resources: ["configmaps"]}]
- level: Metadata
  namespaces: ["default"]
  resources: [{group: "", resources: ["secrets"]}]
- level: Metadata
  nonResourceURLs: ["/version"]
"#;

/// Takes one batch of events.
async fn webhook(listener: tokio::net::TcpListener) -> Value {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut received = Vec::new();
    loop {
        stream.read_buf(&mut received).await.unwrap();
        let text = String::from_utf8_lossy(&received).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.to_lowercase().split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse::<usize>();
        if body.len() >= length.unwrap() {
            assert!(head.contains("Bearer secret"), "{head}");
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            return serde_json::from_str(body).unwrap();
        }
    }
}

#[tokio::test]
async fn what_is_asked_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": format!("http://{}/sink", listener.local_addr().unwrap())}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    });
    std::fs::write(file("webhook.yaml"), config.to_string()).unwrap();
    std::fs::write(file("policy.yaml"), POLICY).unwrap();
    let flag = |name: &str, path: &str| format!("--{name}={}", file(path).display());
    let flags = [
        flag("audit-policy-file", "policy.yaml"),
        flag("audit-log-path", "logs/audit.log"),
        flag("audit-webhook-config-file", "webhook.yaml"),
        "--audit-webhook-batch-max-size=3".into(),
    ];
    let server = Server::start_api(&flags.each_ref().map(String::as_str)).unwrap();
    let client = server.client().unwrap();
    let sink = tokio::spawn(webhook(listener));
    let kubectl = |arguments: &[&str]| {
        let output = server.kubectl().run(arguments).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    kubectl(&["create", "configmap", "made", "--from-literal=k=v", "-n", "default"]);
    kubectl(&["create", "secret", "generic", "hidden", "--from-literal=k=very-secret", "-n", "default"]);
    let asked = client.with_header("audit-id", "of-my-own").with_header("impersonate-user", "eve");
    let refused = asked.get(&format!("{CONFIG_MAPS}/made")).await.unwrap();
    assert_eq!((refused.code, header(&refused, "audit-id").as_str()), (403, "of-my-own"));
    let unknown = server.anonymous().unwrap().with_header("authorization", "Bearer wrong");
    assert_eq!(unknown.get("/version").await.unwrap().code, 401);
    assert_eq!(client.delete(&format!("{CONFIG_MAPS}/made")).await.unwrap().code, 200);
    let ends = client.get(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1")).await.unwrap();
    assert_eq!(ends.code, 200);

    let events = || -> Vec<Value> {
        let text = std::fs::read_to_string(file("logs/audit.log")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let is = |event: &Value, verb: &str, stage: &str| event["verb"] == verb && event["stage"] == stage;
    until("the end of the watch is written", || async {
        events()
            .iter()
            .any(|event| is(event, "watch", "ResponseComplete") && event["objectRef"]["resource"] == "configmaps")
    })
    .await;
    let events = events();
    assert!(events.iter().all(|event| event["stage"] != "RequestReceived" && event["apiVersion"] == "audit.k8s.io/v1"));
    let find = |what: &str, fits: &dyn Fn(&Value) -> bool| -> Value {
        events.iter().find(|event| fits(event)).unwrap_or_else(|| panic!("{what}: {events:#?}")).clone()
    };
    let made = find("the ConfigMap", &|event| event["verb"] == "create" && event["objectRef"]["name"] == "made");
    assert_eq!(made["level"], "RequestResponse");
    assert_eq!(made["user"]["groups"][0], "system:masters");
    assert_eq!(
        (&made["requestObject"]["data"], &made["responseObject"]["data"]),
        (&json!({"k": "v"}), &json!({"k": "v"}))
    );
    assert!(made["responseObject"]["metadata"]["uid"].is_string() && made["responseObject"]["kind"] == "ConfigMap");
    assert!(made["responseObject"]["metadata"].get("managedFields").is_none());
    assert_eq!(made["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!((&made["sourceIPs"], &made["stage"]), (&json!(["127.0.0.1"]), &json!("ResponseComplete")));
    assert_eq!(made["annotations"]["authorization.k8s.io/decision"], "allow");
    assert!(made["userAgent"].as_str().unwrap().starts_with("kubectl"));

    let hidden = find("the Secret", &|event| event["objectRef"]["name"] == "hidden");
    assert_eq!(hidden["level"], "Metadata");
    assert!(events.iter().all(|event| !event.to_string().contains("dmVyeS1zZWNyZXQ")));
    let refused = find("the refusal", &|event| event["auditID"] == "of-my-own");
    assert_eq!(refused["impersonatedUser"], json!({"username": "eve", "groups": ["system:authenticated"]}));
    assert_eq!(
        (&refused["responseStatus"]["reason"], &refused["responseStatus"]["code"]),
        (&json!("Forbidden"), &json!(403))
    );
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
    let unknown = find("the wrong token", &|event| event["responseStatus"]["code"] == 401);
    assert_eq!((&unknown["stage"], &unknown["user"]), (&json!("ResponseStarted"), &json!({})));
    assert_eq!(unknown["responseStatus"]["message"], "Authentication failed, attempted: bearer");
    let gone = find("the deletion", &|event| event["verb"] == "delete");
    assert_eq!(gone["responseStatus"]["status"], "Success");
    find("the watch", &|event| is(event, "watch", "ResponseStarted") && event["objectRef"]["resource"] == "configmaps");

    let batch = sink.await.unwrap();
    assert_eq!((&batch["kind"], &batch["apiVersion"]), (&json!("EventList"), &json!("audit.k8s.io/v1")));
    assert_eq!(batch["items"].as_array().map(Vec::len), Some(3));
    assert!(batch["items"][0]["auditID"].is_string());
}

#[tokio::test]
async fn the_use_of_a_secrets_token_is_noted() {
    let server = Server::start_api(&["--controllers=serviceaccount-token-controller"]).unwrap();
    let client = server.client().unwrap();
    let tracking = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    let since = client.get(tracking).await.unwrap().json()["data"]["since"].as_str().unwrap().to_string();
    assert_eq!(since.split('-').map(str::len).collect::<Vec<_>>(), [4, 2, 2], "{since}");
    make(&client, "/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "robot"}})).await;
    let secret = json!({
        "metadata": {"name": "key", "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token",
    });
    make(&client, "/api/v1/namespaces/default/secrets", &secret).await;
    let kubectl = server.kubectl();
    let field = |path: &str| {
        let output = kubectl.run(&["get", "secret", "key", "-n", "default", "-o", path]).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let token = "go-template={{with .data.token}}{{. | base64decode}}{{end}}";
    until("the token is there", || async { !field(token).is_empty() }).await;
    let robot = server.anonymous().unwrap().with_header("authorization", &format!("Bearer {}", field(token)));
    assert_eq!(robot.get("/api/v1/namespaces").await.unwrap().code, 403);
    let label = r"jsonpath={.metadata.labels.kubernetes\.io/legacy-token-last-used}";
    until("its use is noted", || async { field(label) == since }).await;
}
