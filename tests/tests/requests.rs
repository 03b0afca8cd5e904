//! Requests that users make and that are easily answered a little differently from upstream.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testkit::{Client, Server};

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn refused(client: &Client, method: &str, path: &str, content_type: &str, body: &Value) -> (u16, String) {
    let reply = client.send(method, path, content_type, body.to_string()).await.unwrap();
    (reply.code, reply.json()["message"].as_str().unwrap_or_default().to_string())
}

async fn deployment(client: &Client) -> String {
    let labels = json!({"app": "d"});
    let body = json!({
        "metadata": {"name": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let reply = client.post(&format!("{DEPLOYMENTS}?fieldManager=maker"), &body).await.unwrap();
    assert_eq!(reply.code, 201, "{}", reply.text());
    format!("{DEPLOYMENTS}/d")
}

#[tokio::test]
async fn lists_and_health_name_what_they_cannot_do() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let path = "/api/v1/configmaps?sendInitialEvents=true";
    let expected = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is \
                    forbidden for list";
    let reply = client.get(path).await.unwrap();
    assert_eq!((reply.code, &reply.json()["message"]), (422, &json!(expected)));
    let text = client.get("/livez?verbose&exclude=etcd&exclude=nothing").await.unwrap().text();
    let warning = "warn: some health checks cannot be excluded: no matches for \"nothing\"\nlivez check passed\n";
    assert!(text.contains("[+]etcd excluded: ok\n") && text.ends_with(warning), "{text}");
}

#[tokio::test]
async fn strategic_patches_that_do_not_fit() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let path = deployment(&client).await;
    let found = refused(&client, "PATCH", &path, STRATEGIC, &json!({"spec": {"replicas": "x"}})).await;
    let expected = " \"\" is invalid: patch: Invalid value: \"map[spec:map[replicas:x]]\": unrecognized type: int32";
    assert_eq!(found, (422, expected.to_string()));
}

#[tokio::test]
async fn a_scale_can_be_applied() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let path = deployment(&client).await;
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}});
    let scale_path = format!("{path}/scale?fieldManager=scaler");
    let (code, message) = refused(&client, "PATCH", &scale_path, APPLY, &scale).await;
    assert_eq!(code, 409, "{message}");
    assert!(message.contains("conflict with \"maker\"") && message.ends_with(".spec.replicas"), "{message}");
    let reply = client.send("PATCH", &format!("{scale_path}&force=true"), APPLY, scale.to_string()).await.unwrap();
    assert_eq!(
        (reply.code, &reply.json()["kind"], &reply.json()["spec"]["replicas"]),
        (200, &json!("Scale"), &json!(3))
    );
    let found = client.get(&path).await.unwrap().json();
    assert_eq!(found["spec"]["replicas"], 3);
    let managers = found["metadata"]["managedFields"].as_array().unwrap();
    let scaler = managers.iter().find(|entry| entry["manager"] == "scaler").expect("the scaler owns its field");
    assert_eq!((&scaler["operation"], &scaler["subresource"]), (&json!("Apply"), &json!("scale")));
    assert_eq!(scaler["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
}

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn pod(client: &Client, name: &str) -> String {
    let body = json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    });
    assert_eq!(client.post(PODS, &body).await.unwrap().code, 201);
    let path = format!("{PODS}/{name}");
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(merge(client, &format!("{path}/status"), &status).await, 200);
    path
}

async fn merge(client: &Client, path: &str, patch: &Value) -> u16 {
    client.send("PATCH", path, "application/merge-patch+json", patch.to_string()).await.unwrap().code
}

#[tokio::test]
async fn evictions_say_why() {
    let server = Server::start_api(&[]).unwrap();
    let client = server.client().unwrap();
    let path = pod(&client, "p").await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}}});
    assert_eq!(client.post(budgets, &budget).await.unwrap().code, 201);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let failed = json!([{
        "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    for (conditions, cause) in [
        (json!([]), "The disruption budget b needs 1 healthy pods and has 1 currently"),
        (failed, "The disruption budget b does not allow evicting pods currently because it failed sync: no scale"),
    ] {
        let status = json!({
            "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1,
            "expectedPods": 1, "conditions": conditions,
        });
        assert_eq!(merge(&client, &format!("{budgets}/b/status"), &json!({"status": status})).await, 200);
        let reply = client.post(&format!("{path}/eviction"), &eviction).await.unwrap();
        assert_eq!((reply.code, &reply.json()["details"]["causes"][0]["message"]), (429, &json!(cause)));
    }
    let allowed = json!({"status": {"disruptionsAllowed": 1}});
    assert_eq!(merge(&client, &format!("{budgets}/b/status"), &allowed).await, 200);
    assert_eq!(client.post(&format!("{path}/eviction"), &eviction).await.unwrap().code, 201);
    let found = client.get(&path).await.unwrap().json();
    assert!(found["metadata"]["deletionTimestamp"].is_string(), "{found}");
    let conditions = found["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|entry| entry["type"] == "DisruptionTarget").expect("the reason");
    assert_eq!((&target["status"], &target["reason"]), (&json!("True"), &json!("EvictionByEvictionAPI")));
    assert_eq!(target["message"], "Eviction API: evicting");
}

#[tokio::test]
async fn watchers_see_a_pod_end_before_it_is_gone() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let path = pod(&client, "p").await;
    let since = client.get(&path).await.unwrap().json()["metadata"]["resourceVersion"].clone();
    let since = since.as_str().unwrap();
    assert_eq!(client.delete(&format!("{path}?gracePeriodSeconds=0")).await.unwrap().code, 200);
    let watch = format!("{PODS}?watch=true&timeoutSeconds=1&resourceVersion={since}");
    let text = client.get(&watch).await.unwrap().text();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> = events
        .iter()
        .map(|event| (event["type"].as_str().unwrap(), event["object"]["metadata"]["deletionTimestamp"].is_string()))
        .collect();
    assert_eq!(seen, [("MODIFIED", true), ("DELETED", true)]);
}

#[tokio::test]
async fn a_service_keeps_its_address() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    assert_eq!(client.post(services, &service).await.unwrap().code, 201);
    // Outside of the range, which upstream does not look at here.
    let patch = json!({"spec": {"clusterIP": "1.2.3.4"}});
    let path = format!("{services}/s");
    let (code, message) = refused(&client, "PATCH", &path, "application/merge-patch+json", &patch).await;
    assert_eq!(code, 422, "{message}");
    assert!(
        message.ends_with("spec.clusterIPs[0]: Invalid value: [\"1.2.3.4\"]: may not change once set"),
        "{message}"
    );
}

/// Whoever watches is told at once that the server stops, and nobody who has asked for nothing is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_ends_its_watches() {
    let mut server = Server::start().unwrap();
    let client = server.client().unwrap();
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(client.watch("/api/v1/namespaces?watch=true").await.unwrap());
    }
    for watch in &mut watches {
        assert_eq!(watch.next().await.unwrap().unwrap()["type"], "ADDED");
    }
    // One has not begun to speak, another has and says no more.
    let silent = tokio::net::TcpStream::connect(client.address()).await.unwrap();
    let idle = client.connect().await.unwrap();
    let (stopped, server) = tokio::task::spawn_blocking(move || (server.terminate(), server)).await.unwrap();
    assert!(stopped.unwrap(), "the server ends with success");
    for mut watch in watches {
        // Events may be on their way; after them the stream is whole, not cut.
        while watch.next().await.unwrap().is_some() {}
    }
    // It says so when it has to cut somebody off, which takes it five seconds.
    let log = std::fs::read_to_string(server.data_dir().join("log")).unwrap();
    assert!(log.contains("stopping server") && !log.contains("shutdown timeout exceeded"), "{log}");
    drop((silent, idle));
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

#[tokio::test]
async fn reviews_have_no_table() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let review = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let refused = client.with_header("accept", TABLE).post(path, &review).await.unwrap();
    assert_eq!((refused.code, &refused.json()["reason"]), (406, &json!("NotAcceptable")), "{}", refused.text());
    let either = client.with_header("accept", &format!("{TABLE},application/json")).post(path, &review).await.unwrap();
    assert_eq!((either.code, &either.json()["kind"]), (201, &json!("SelfSubjectAccessReview")));
    let listed = client.with_header("accept", TABLE).get("/api/v1/namespaces").await.unwrap();
    assert_eq!((listed.code, &listed.json()["kind"]), (200, &json!("Table")));
}

#[tokio::test]
async fn approvers_write_conditions_of_any_type() {
    const MERGE: &str = "application/merge-patch+json";
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let params = rcgen::CertificateParams::new(vec!["e2e".to_string()]).unwrap();
    let request = STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap());
    let object = json!({
        "metadata": {"name": "r"},
        "spec": {"request": request, "signerName": "example.com/e2e", "usages": ["digital signature"]},
    });
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let made = client.post(requests, &object).await.unwrap();
    assert_eq!(made.code, 201, "{}", made.text());
    let patch = json!({
        "metadata": {"annotations": {"patchedapproval": "true"}},
        "status": {"conditions": [{"type": "ApprovalPatch", "status": "True", "reason": "e2e"}]},
    });
    let path = format!("{requests}/r/approval");
    let patched = client.send("PATCH", &path, MERGE, patch.to_string()).await.unwrap();
    let mut object = patched.json();
    assert_eq!(object["metadata"]["annotations"]["patchedapproval"], "true", "{}", patched.text());
    assert_eq!(object["status"]["conditions"][0]["type"], "ApprovalPatch");
    assert!(object["status"]["conditions"][0]["lastTransitionTime"].is_string());
    let approved = json!({"type": "Approved", "status": "True", "reason": "E2E"});
    object["status"]["conditions"].as_array_mut().unwrap().push(approved);
    let updated = client.put(&path, &object).await.unwrap().json();
    assert_eq!(updated["status"]["conditions"][1]["type"], "Approved", "{updated}");
    let other = json!({"type": "StatusUpdate", "status": "True"});
    object = updated;
    object["status"]["conditions"].as_array_mut().unwrap().push(other);
    let updated = client.put(&format!("{requests}/r/status"), &object).await.unwrap().json();
    assert_eq!(updated["status"]["conditions"][2]["type"], "StatusUpdate", "{updated}");
    assert!(updated["status"]["conditions"][2]["lastUpdateTime"].is_string());
}

#[tokio::test]
async fn a_negative_grace_period_is_stored_as_a_second() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let pods = "/api/v1/namespaces/default/pods";
    let mut pod = json!({
        "metadata": {"name": "p"},
        "spec": {"terminationGracePeriodSeconds": -1, "containers": [{"name": "c", "image": "i"}]},
    });
    let made = client.post(pods, &pod).await.unwrap();
    assert_eq!(made.json()["spec"]["terminationGracePeriodSeconds"], 1, "{}", made.text());
    pod = made.json();
    pod["spec"]["terminationGracePeriodSeconds"] = json!(-1);
    // The scheduler may have written meanwhile.
    pod["metadata"]["resourceVersion"] = Value::Null;
    let updated = client.put(&format!("{pods}/p"), &pod).await.unwrap();
    assert_eq!((updated.code, &updated.json()["spec"]["terminationGracePeriodSeconds"]), (200, &json!(1)));
}

#[tokio::test]
async fn health_checks_are_named_and_counted() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    for endpoint in ["healthz", "livez", "readyz"] {
        let text = client.get(&format!("/{endpoint}?verbose=1")).await.unwrap().text();
        for check in ["ping", "log", "etcd", "autoregister-completion", "poststarthook/crd-informer-synced"] {
            assert!(text.contains(&format!("[+]{check} ok\n")), "{check} in {text}");
        }
        assert!(text.ends_with(&format!("{endpoint} check passed\n")), "{text}");
    }
    let text = client.get("/metrics/slis").await.unwrap().text();
    assert!(text.contains("kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 1\n"), "{text}");
    assert!(text.contains("kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"livez\"} "), "{text}");
    assert!(text.contains("process_start_time_seconds "), "{text}");
}

/// Tools put a namespace into everything they write. Where there is none to be in, it is dropped, however it is written.
#[tokio::test]
async fn cluster_scoped_objects_are_in_no_namespace() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = |more: Value| {
        let mut role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "r", "namespace": "somewhere"},
        });
        role["metadata"]["labels"] = more;
        role
    };
    let in_none = async |code: u16, label: &str| {
        let stored = client.get(&format!("{path}/r")).await.unwrap();
        let metadata = &stored.json()["metadata"];
        assert_eq!(code / 100, 2, "{label}");
        assert_eq!((metadata.get("namespace"), &metadata["labels"]["by"]), (None, &json!(label)), "{metadata}");
    };
    let created = client.post(path, &role(json!({"by": "create"}))).await.unwrap();
    in_none(created.code, "create").await;
    let one = format!("{path}/r");
    let body = role(json!({"by": "update"}));
    let (code, _) = refused(&client, "PUT", &one, "application/json", &body).await;
    in_none(code, "update").await;
    in_none(merge(&client, &one, &role(json!({"by": "patch"}))).await, "patch").await;
    let body = role(json!({"by": "apply"}));
    let (code, _) = refused(&client, "PATCH", &format!("{one}?fieldManager=m&force=true"), APPLY, &body).await;
    in_none(code, "apply").await;
    // Where there are namespaces, it must be that of the path.
    let elsewhere = json!({"metadata": {"name": "c", "namespace": "somewhere"}});
    let (code, message) =
        refused(&client, "POST", "/api/v1/namespaces/default/configmaps", "application/json", &elsewhere).await;
    let expected = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!((code, message.as_str()), (400, expected));
}
