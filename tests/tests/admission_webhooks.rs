//! Admission webhooks as operators bring them: a real HTTPS server with an authority of its own is asked before writes,
//! changes them, refuses them, or misbehaves; and whatever it does, the client gets a clear answer.

#[path = "support/webhook.rs"]
mod webhook;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use testkit::client::{Client, Reply};
use testkit::{Kubectl, Server};
use webhook::{Answer, Webhook, allowed, patched};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

struct Bed {
    server: Server,
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Bed {
    fn start() -> Bed {
        let server = Server::start_api(&[]).expect("starts");
        let client = server.client().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Bed { server, client, runtime }
    }

    fn kubectl(&self) -> Kubectl {
        self.server.kubectl()
    }

    fn post(&self, path: &str, object: Value) -> Reply {
        self.runtime.block_on(self.client.post(path, &object)).unwrap()
    }

    fn get(&self, path: &str) -> Reply {
        self.runtime.block_on(self.client.get(path)).unwrap()
    }

    fn put(&self, path: &str, object: &Value) -> Reply {
        self.runtime.block_on(self.client.put(path, object)).unwrap()
    }

    fn delete(&self, path: &str) -> Reply {
        self.runtime.block_on(self.client.delete(path)).unwrap()
    }

    fn configure(&self, kind: &str, name: &str, webhooks: Value) {
        let plural = format!("{}s", kind.to_lowercase());
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
            "webhooks": webhooks});
        let reply = self.post(&format!("{REGISTRATION}/{plural}"), object);
        assert_eq!(reply.code, 201, "{}", reply.text());
    }

    fn mutating(&self, name: &str, webhooks: Value) {
        self.configure("MutatingWebhookConfiguration", name, webhooks);
    }

    fn validating(&self, name: &str, webhooks: Value) {
        self.configure("ValidatingWebhookConfiguration", name, webhooks);
    }

    fn config_map(&self, name: &str) -> Reply {
        self.post(MAPS, map(name))
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

fn rule(operations: &[&str], group: &str, version: &str, resources: &[&str]) -> Value {
    json!([{"operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": resources}])
}

/// A webhook about config maps in `default`.
fn entry(name: &str, client: Value, more: Value) -> Value {
    let mut entry = json!({
        "name": format!("{name}.example.com"), "clientConfig": client, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "rules": rule(&["CREATE", "UPDATE"], "", "v1", &["configmaps"]),
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        "failurePolicy": "Fail", "timeoutSeconds": 5,
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        entry[field] = value.clone();
    }
    entry
}

fn add(path: &str, value: Value) -> Answer {
    patched(json!([{"op": "add", "path": path, "value": value}]))
}

#[test]
fn webhooks_change_and_refuse_in_their_order() {
    let bed = Bed::start();
    let hook = Webhook::start(|path, review| match path {
        "/first" => add("/data/first", "yes".into()),
        // Sees what the first has done.
        "/second" => match review["request"]["object"]["data"]["first"].as_str() {
            Some("yes") => add("/data/second", "yes".into()),
            _ => Answer::Response(json!({"allowed": false, "status": {"message": "too early"}})),
        },
        "/refuse" => {
            let data = &review["request"]["object"]["data"];
            assert_eq!(data["second"], "yes", "validation sees what is stored");
            let status = json!({"code": 403, "reason": "Forbidden", "message": "not this one"});
            let refused = review["request"]["name"] == "bad";
            Answer::Response(json!({"allowed": !refused, "status": status, "warnings": ["mind the gap"]}))
        }
        _ => allowed(),
    });
    // By name of the configuration, not in the order of their creation.
    bed.mutating("b-second", json!([entry("second", hook.at("/second"), json!({}))]));
    bed.mutating("a-first", json!([entry("first", hook.at("/first"), json!({}))]));
    bed.validating("refuse", json!([entry("refuse", hook.at("/refuse"), json!({}))]));

    let made = bed.config_map("good");
    assert_eq!(made.code, 201, "{}", made.text());
    assert_eq!(made.json()["data"], json!({"a": "1", "first": "yes", "second": "yes"}));
    assert_eq!(made.warnings(), ["299 - \"mind the gap\""]);
    let asked = hook.asked();
    let paths: Vec<&str> = asked.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["/first", "/second", "/refuse"]);
    let (_, review) = &asked[2];
    assert_eq!((&review["kind"], &review["apiVersion"]), (&json!("AdmissionReview"), &json!("admission.k8s.io/v1")));
    let request = &review["request"];
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!((&request["name"], &request["namespace"]), (&json!("good"), &json!("default")));
    assert_eq!((&request["operation"], &request["dryRun"]), (&json!("CREATE"), &json!(false)));
    assert_eq!(request["userInfo"]["username"], "system:admin");
    assert_eq!((&request["oldObject"], &request["options"]["kind"]), (&Value::Null, &json!("CreateOptions")));
    assert!(request["object"]["metadata"]["uid"].is_string() && request.get("subResource").is_none(), "{request}");

    let refused = bed.config_map("bad");
    let status = refused.json();
    let message = "admission webhook \"refuse.example.com\" denied the request: not this one";
    assert_eq!((refused.code, &status["reason"], &status["message"]), (403, &json!("Forbidden"), &json!(message)));
    assert_eq!(bed.get(&format!("{MAPS}/bad")).code, 404);
    let said = bed.kubectl().fails(&["create", "configmap", "bad", "--from-literal=x=y"]);
    assert!(said.contains(message), "{said}");
    hook.asked();

    // An update shows what was there before.
    let path = format!("{MAPS}/good");
    let mut object = bed.get(&path).json();
    object["data"]["a"] = "2".into();
    let changed = bed.put(&path, &object);
    assert_eq!(changed.code, 200, "{}", changed.text());
    let asked = hook.asked();
    assert_eq!(asked[0].1["request"]["operation"], "UPDATE");
    assert_eq!(asked[0].1["request"]["oldObject"]["data"]["a"], "1");
    assert_eq!(asked[0].1["request"]["object"]["data"]["a"], "2");

    // A connection is kept, and a configuration that is gone asks nobody.
    assert!(hook.connections.load(Ordering::SeqCst) <= 2, "{:?}", hook.connections);
    for (plural, name) in [("mutating", "a-first"), ("mutating", "b-second"), ("validating", "refuse")] {
        let gone = bed.delete(&format!("{REGISTRATION}/{plural}webhookconfigurations/{name}"));
        assert_eq!(gone.code, 200, "{}", gone.text());
    }
    assert_eq!(bed.config_map("free").json()["data"], json!({"a": "1"}));
    assert_eq!(hook.asked().len(), 0);
}

#[test]
fn rules_versions_selectors_and_conditions_decide_who_is_asked() {
    let bed = Bed::start();
    let hook = Webhook::start(|_, _| allowed());
    let anywhere = json!({"namespaceSelector": {}, "rules": rule(&["*"], "", "v1", &["configmaps"])});
    let with = |more: Value| {
        let mut all = anywhere.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let autoscalers = || rule(&["CREATE"], "autoscaling", "v1", &["horizontalpodautoscalers"]);
    let condition = |text: &str| json!([{"name": "c", "expression": text}]);
    bed.validating(
        "who",
        json!([
            entry("all", hook.at("/all"), anywhere.clone()),
            entry("labelled", hook.at("/labelled"), with(json!({"objectSelector": {"matchLabels": {"x": "y"}}}))),
            entry("default", hook.at("/default"), with(json!({
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}))),
            entry("named", hook.at("/named"), with(json!({
                "matchConditions": condition("has(object.data) && object.metadata.name == 'n' && request.operation == 'CREATE'")}))),
            entry("may", hook.at("/may"), with(json!({
                "matchConditions": condition("authorizer.group('').resource('secrets').check('get').allowed()")}))),
            entry("maynot", hook.at("/maynot"), with(json!({
                "matchConditions": condition("!authorizer.requestResource.check('delete').allowed()")}))),
            entry("delete", hook.at("/delete"), json!({"rules": rule(&["DELETE"], "", "v1", &["configmaps"])})),
            entry("equivalent", hook.at("/equivalent"), json!({"rules": autoscalers()})),
            entry("exact", hook.at("/exact"), json!({"rules": autoscalers(), "matchPolicy": "Exact"})),
            entry("scale", hook.at("/scale"), json!({"rules": rule(&["UPDATE"], "apps", "v1", &["deployments/scale"])})),
            entry("namespaces", hook.at("/namespaces"), json!({
                "rules": rule(&["CREATE"], "", "v1", &["namespaces"]), "namespaceSelector": {"matchLabels": {"seen": "yes"}}})),
        ]),
    );
    let asked = || {
        let mut paths: Vec<String> = hook.asked().into_iter().map(|(path, _)| path).collect();
        paths.sort();
        paths.join(" ")
    };
    assert_eq!(bed.config_map("m").code, 201);
    assert_eq!(asked(), "/all /default /may");
    let mut labelled = map("n");
    labelled["metadata"]["labels"] = json!({"x": "y"});
    assert_eq!(bed.post(MAPS, labelled).code, 201);
    assert_eq!(asked(), "/all /default /labelled /may /named");
    assert_eq!(bed.delete(&format!("{MAPS}/n")).code, 200);
    assert_eq!(asked(), "/all /default /delete /labelled /may", "the old object has the label");

    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    assert_eq!(bed.post("/api/v1/namespaces", namespace("one", json!({}))).code, 201);
    assert_eq!(bed.post("/api/v1/namespaces", namespace("two", json!({"seen": "yes"}))).code, 201);
    // Controllers make objects in new namespaces, which are asked about too.
    let asked_at = |paths: &[&str]| -> Vec<(String, Value)> {
        hook.asked().into_iter().filter(|(path, _)| paths.contains(&path.as_str())).collect()
    };
    let reviews = asked_at(&["/namespaces"]);
    assert_eq!(reviews.len(), 1);
    assert_eq!(reviews[0].1["request"]["namespace"], "two", "a namespace is in itself");

    // Another version of the same objects is shown in the version of the rule.
    let autoscaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}]}});
    let made = bed.post("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", autoscaler);
    assert_eq!(made.code, 201, "{}", made.text());
    let reviews = asked_at(&["/equivalent", "/exact"]);
    assert_eq!(reviews.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["/equivalent"]);
    let request = &reviews[0].1["request"];
    assert_eq!((&request["kind"]["version"], &request["requestKind"]["version"]), (&json!("v1"), &json!("v2")));
    assert_eq!(request["object"]["spec"]["targetCPUUtilizationPercentage"], 70, "{request}");

    // A subresource is shown as what was sent.
    bed.kubectl().ok(&["create", "deployment", "d", "--image=x", "--replicas=2"]);
    hook.asked();
    bed.kubectl().ok(&["scale", "deployment", "d", "--replicas=5"]);
    let scales = asked_at(&["/scale"]);
    assert_eq!(scales.len(), 1);
    let request = &scales[0].1["request"];
    assert_eq!(request["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!((&request["subResource"], &request["object"]["spec"]["replicas"]), (&json!("scale"), &json!(5)));
    assert_eq!(request["oldObject"]["spec"]["replicas"], 2);

    // A condition that fails refuses; the configuration itself is nobody's business.
    bed.validating(
        "broken",
        json!([entry(
            "broken",
            hook.at("/broken"),
            with(json!({"matchConditions": condition("object.nothing == 1")}))
        )]),
    );
    let refused = bed.config_map("o");
    assert_eq!(refused.code, 403, "{}", refused.text());
    let message =
        "configmaps \"o\" is forbidden: expression 'object.nothing == 1' resulted in error: no such key: nothing";
    assert_eq!(refused.json()["message"], message);
    let remove = |name: &str| {
        let reply = bed.delete(&format!("{REGISTRATION}/validatingwebhookconfigurations/{name}"));
        assert_eq!(reply.code, 200, "{}", reply.text());
    };
    remove("broken");
    let everything = json!({"rules": rule(&["*"], "*", "*", &["*/*"]), "namespaceSelector": {}});
    bed.validating("everything", json!([entry("everything", json!({"url": "https://127.0.0.1:1/"}), everything)]));
    assert_eq!(bed.config_map("p").code, 500);
    remove("everything");
    assert_eq!(bed.config_map("p").code, 201);
}

#[test]
fn whoever_changed_last_is_seen_by_those_who_ask_for_it() {
    let bed = Bed::start();
    let hook = Webhook::start(|path, review| match path {
        // Counts its own calls in the object.
        "/count" => {
            let count = review["request"]["object"]["data"]["count"].as_str().map_or(0, |text| text.parse().unwrap());
            add("/data/count", (count + 1).to_string().into())
        }
        "/once" => add("/data/once", "yes".into()),
        _ => allowed(),
    });
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    bed.mutating(
        "rounds",
        json!([entry("count", hook.at("/count"), again), entry("once", hook.at("/once"), json!({}))]),
    );
    let made = bed.config_map("m");
    assert_eq!(made.json()["data"], json!({"a": "1", "count": "2", "once": "yes"}), "{}", made.text());
    let paths: Vec<String> = hook.asked().into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["/count", "/once", "/count"]);
}

#[test]
fn dry_runs_ask_only_those_without_side_effects() {
    let bed = Bed::start();
    let hook = Webhook::start(|_, _| allowed());
    bed.validating("dry", json!([entry("dry", hook.at("/"), json!({"sideEffects": "NoneOnDryRun"}))]));
    let dry = format!("{MAPS}?dryRun=All");
    assert_eq!(bed.post(&dry, map("m")).code, 201);
    let asked = hook.asked();
    assert_eq!(asked[0].1["request"]["dryRun"], true);
    assert_eq!(asked[0].1["request"]["options"]["dryRun"], json!(["All"]));
    assert_eq!(bed.get(&format!("{MAPS}/m")).code, 404);
}

#[test]
fn a_certificate_that_is_its_own_bundle_is_believed() {
    let bed = Bed::start();
    let hook = Webhook::self_signed(|_, _| allowed());
    bed.validating("own", json!([entry("own", hook.at("/"), json!({}))]));
    let made = bed.config_map("m");
    assert_eq!((made.code, hook.asked().len()), (201, 1), "{}", made.text());
}

#[test]
fn a_webhook_that_misbehaves_gets_a_clear_answer_and_changes_nothing() {
    let bed = Bed::start();
    let hook = Webhook::start(|path, _| match path {
        "/hang" => Answer::Hang,
        "/garbage" => Answer::Raw(200, Bytes::from_static(b"<html>")),
        "/empty" => Answer::Raw(200, Bytes::from_static(b"{}")),
        "/error" => Answer::Raw(500, Bytes::from_static(b"boom")),
        "/uid" => Answer::Response(json!({"allowed": true, "uid": "another"})),
        "/huge" => Answer::Raw(200, Bytes::from(vec![b' '; 20 << 20])),
        "/type" => add("/data", json!("no map")),
        "/kind" => patched(json!([{"op": "replace", "path": "/kind", "value": "Secret"}])),
        "/elsewhere" => patched(json!([{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}])),
        "/missing" => patched(json!([{"op": "remove", "path": "/data/nothing"}])),
        "/invalid" => add("/data/bad key!", "x".into()),
        "/silent" => Answer::Response(json!({"allowed": false})),
        other => panic!("who asks for {other}?"),
    });
    let configurations = format!("{REGISTRATION}/mutatingwebhookconfigurations");
    let check = |path: &str, more: Value, code: u16, message: &str| {
        bed.mutating("bad", json!([entry("bad", hook.at(path), more)]));
        let began = Instant::now();
        let reply = bed.config_map("m");
        let shown = reply.json()["message"].as_str().unwrap_or("").replace(&hook.port.to_string(), "PORT");
        assert_eq!(reply.code, code, "{path}: {}", reply.text());
        assert!(shown.contains(message), "{path}: {shown}");
        assert!(began.elapsed() < Duration::from_secs(8), "{path} took {:?}", began.elapsed());
        if code >= 400 {
            assert_eq!(bed.get(&format!("{MAPS}/m")).code, 404, "{path}");
        }
        assert_eq!(bed.delete(&format!("{configurations}/bad")).code, 200);
    };
    let failed = |rest: &str| format!("Internal error occurred: failed calling webhook \"bad.example.com\": {rest}");
    let post = |path: &str| format!("failed to call webhook: Post \"https://127.0.0.1:PORT{path}?timeout=");
    let second = || json!({"timeoutSeconds": 1});
    check("/hang", second(), 500, &failed(&format!("{}1s\": context deadline exceeded", post("/hang"))));
    check("/garbage", json!({}), 500, &failed("failed to call webhook: couldn't get version/kind; json parse error:"));
    check("/empty", json!({}), 500, &failed("received invalid webhook response: webhook response was absent"));
    let text = "failed to call webhook: an error on the server (\"boom\") has prevented the request from succeeding";
    check("/error", json!({}), 500, &failed(text));
    check("/uid", json!({}), 500, "received invalid webhook response: expected response.uid=");
    check("/huge", json!({}), 500, "the response is larger than 16777216 bytes");
    check("/type", json!({}), 500, "Internal error occurred: ");
    check("/kind", json!({}), 500, "expected v1, Kind=ConfigMap after the patch, got v1, Kind=Secret");
    check("/elsewhere", json!({}), 400, "the namespace of the provided object does not match the namespace sent");
    check("/missing", json!({}), 500, "Internal error occurred: ");
    check("/invalid", json!({}), 422, "data[bad key!]: Invalid value");
    check("/silent", json!({}), 400, "admission webhook \"bad.example.com\" denied the request without explanation");
    assert_eq!(bed.get("/api/v1/namespaces/kube-system/configmaps/m").code, 404);

    // Nobody there, or not who they say: and what may be ignored is.
    let nobody = json!({"clientConfig": {"url": "https://127.0.0.1:1/x"}});
    let text = "Post \"https://127.0.0.1:1/x?timeout=5s\": dial tcp 127.0.0.1:1: connect: connection refused";
    check("/", nobody.clone(), 500, &failed(&format!("failed to call webhook: {text}")));
    let service = json!({"clientConfig": {"service": {"namespace": "default", "name": "gone", "path": "/p"}}});
    let text = "Post \"https://gone.default.svc:443/p?timeout=5s\": service \"gone\" not found";
    check("/", service, 500, &failed(&format!("failed to call webhook: {text}")));
    let other = Webhook::start(|_, _| allowed());
    let stranger = json!({"clientConfig": {"url": hook.at("/x")["url"], "caBundle": other.bundle}});
    check("/", stranger, 500, "tls: failed to verify certificate");
    let mut ignored = nobody;
    ignored["failurePolicy"] = "Ignore".into();
    check("/", ignored, 201, "");

    let metrics = bed.get("/metrics").text();
    for line in [
        "apiserver_admission_webhook_rejection_count{error_type=\"calling_webhook_error\",name=\"bad.example.com\",operation=\"CREATE\",rejection_code=\"503\",type=\"admit\"}",
        "apiserver_admission_webhook_rejection_count{error_type=\"no_error\",name=\"bad.example.com\",operation=\"CREATE\",rejection_code=\"400\",type=\"admit\"} 1",
        "apiserver_admission_webhook_fail_open_count{name=\"bad.example.com\",type=\"admit\"} 1",
        "apiserver_admission_webhook_admission_duration_seconds_count{name=\"bad.example.com\",operation=\"CREATE\",rejected=\"true\",type=\"admit\"}",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[test]
fn a_service_leads_to_its_endpoints() {
    let bed = Bed::start();
    let hook = Webhook::start(|_, _| add("/data/b", "2".into()));
    let service = json!({"namespace": "default", "name": "hook", "port": 443, "path": "/x"});
    let client = json!({"service": service, "caBundle": hook.bundle});
    bed.mutating("service", json!([entry("service", client, json!({}))]));
    let made = bed.post(
        "/api/v1/namespaces/default/services",
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}}),
    );
    assert_eq!(made.code, 201, "{}", made.text());
    let refused = bed.config_map("m");
    assert!(refused.text().contains("no endpoints available for service"), "{}", refused.text());
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "ports": [{"name": "", "port": hook.port, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}]});
    let made = bed.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice);
    // Upstream's rules keep loopback addresses out of slices; a foreign name leads there all the same.
    if made.code != 201 {
        bed.kubectl().ok(&["delete", "service", "hook"]);
        bed.kubectl().ok(&["create", "service", "externalname", "hook", "--external-name=localhost"]);
        let mut service = service;
        service["port"] = hook.port.into();
        let path = format!("{REGISTRATION}/mutatingwebhookconfigurations/service");
        let mut object = bed.get(&path).json();
        object["webhooks"][0]["clientConfig"]["service"] = service;
        assert_eq!(bed.put(&path, &object).code, 200);
    }
    let made = bed.config_map("m");
    assert_eq!(made.json()["data"]["b"], "2", "{}", made.text());
    assert_eq!(hook.asked()[0].0, "/x");
}
