//! The life of real pods: starts, probes, hooks, restarts, changes and ends, as users see them in the API.

#[path = "support/on_node.rs"]
mod on_node;

use std::time::{Duration, Instant};

use on_node::{condition, ended, node, one, pod_path, script, status, with};
use serde_json::{Value, json};

fn restarts(pod: &Value, container: &str) -> i64 {
    status(pod, container)["restartCount"].as_i64().unwrap_or(-1)
}

fn terminated<'a>(pod: &'a Value, container: &str) -> &'a Value {
    &status(pod, container)["state"]["terminated"]
}

#[test]
fn init_containers_and_sidecars_start_and_end_in_order() {
    let node = node();
    let step = |name: &str, text: &str| {
        let mounts = json!([{"name": "v", "mountPath": "/v"}]);
        with(script(text), json!({"name": name, "volumeMounts": mounts}))
    };
    let started =
        json!({"exec": {"command": ["test", "-f", "/v/first-started"]}, "periodSeconds": 1, "failureThreshold": 30});
    let spec = json!({
        "restartPolicy": "Never",
        "volumes": [{"name": "v", "emptyDir": {}}],
        "initContainers": [
            step("one", "echo one >> /v/order"),
            with(step("first", "echo first >> /v/order; sleep 1; touch /v/first-started; serve --port 8081"),
                json!({"restartPolicy": "Always", "startupProbe": started})),
            step("two", "test -f /v/first-started && echo two >> /v/order"),
            with(step("second", "echo second >> /v/order; serve --port 8082"), json!({"restartPolicy": "Always"})),
        ],
        "containers": [step("main", "sleep 1; echo main >> /v/order; cat /v/order")],
    });
    node.pod("order", spec);
    // While init containers run, the pod says which; what waits for them says so.
    let waiting = node.until("order", "initializing", |pod| !terminated(pod, "one").is_null());
    if condition(&waiting, "Initialized") == "False" {
        assert_eq!(status(&waiting, "main")["state"]["waiting"]["reason"], "PodInitializing");
        assert_eq!(waiting["status"]["phase"], "Pending");
    }
    let pod = node.until("order", "ended", ended);
    assert_eq!(pod["status"]["phase"], "Succeeded", "{pod:#}");
    assert_eq!(node.until_log("order", "main", "main"), "one\nfirst\ntwo\nsecond\nmain\n");
    assert_eq!(terminated(&pod, "one")["reason"], "Completed");
    assert_eq!(status(&pod, "one")["ready"], true);
    // The sidecars are asked to end after the main container, the last one first.
    let asked = |container: &str| {
        let path = format!("{}/log?container={container}&timestamps=true", pod_path("order"));
        let log = node.send("GET", &path, Value::Null).text();
        let line =
            log.lines().find(|line| line.contains("asked to end")).unwrap_or_else(|| panic!("{container}: {log}"));
        line.split(' ').next().unwrap().to_owned()
    };
    let (first, second) = (asked("first"), asked("second"));
    assert!(second < first, "{second} {first}");
    assert_eq!(terminated(&pod, "first")["exitCode"], 0);
    assert_eq!(condition(&pod, "Initialized"), "True");

    // A sidecar that ends is started again, whatever the pod's policy; the pod's readiness asks for it too.
    let sidecar = with(script("sleep 1; exit 3"), json!({"name": "side", "restartPolicy": "Always"}));
    let spec = json!({"restartPolicy": "Never", "initContainers": [sidecar], "containers": [script("sleep 300")]});
    node.pod("sidecar-restarts", spec);
    node.until("sidecar-restarts", "restarted", |pod| restarts(pod, "side") >= 1);
    node.delete("sidecar-restarts", Some(0));

    // A failed init container of a pod that is never restarted fails the pod.
    let spec = json!({"restartPolicy": "Never", "initContainers": [with(script("exit 1"), json!({"name": "i"}))], "containers": [script("true")]});
    node.pod("init-never", spec);
    let pod = node.until("init-never", "over", |pod| {
        pod["status"]["phase"] == "Failed" && condition(pod, "PodReadyToStartContainers") == "False"
    });
    assert_eq!(status(&pod, "main")["state"]["waiting"]["reason"], "PodInitializing");
    let spec =
        json!({"initContainers": [with(script("exit 1"), json!({"name": "i"}))], "containers": [script("true")]});
    node.pod("init-again", spec);
    let pod = node
        .until("init-again", "backing off", |pod| status(pod, "i")["state"]["waiting"]["reason"] == "CrashLoopBackOff");
    assert_eq!(condition(&pod, "Initialized"), "False");
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let initialized = conditions.iter().find(|condition| condition["type"] == "Initialized").unwrap();
    assert_eq!(initialized["message"], "containers with incomplete status: [i]");
    node.delete("init-again", Some(0));
}

#[test]
fn containers_are_restarted_as_their_policy_says() {
    let node = node();
    let policy = |policy: &str, text: &str| json!({"restartPolicy": policy, "containers": [script(text)]});
    node.pod("always-0", policy("Always", "exit 0"));
    node.pod("on-failure-0", policy("OnFailure", "exit 0"));
    node.pod("on-failure-3", policy("OnFailure", "exit 3"));
    node.pod("never-3", policy("Never", "exit 3"));
    node.pod("crash", policy("Always", "echo bye > /dev/termination-log; exit 3"));
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    let ruled = |text: &str| json!({"restartPolicy": "Never", "containers": [with(script(text), json!({"restartPolicy": "Never", "restartPolicyRules": rules}))]});
    node.pod("rule-holds", ruled("exit 42"));
    node.pod("rule-not", ruled("exit 43"));

    let waiting = |pod: &Value| status(pod, "main")["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    let pod = node.until("crash", "backing off", waiting);
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let message = format!("back-off 10s restarting failed container=main pod=crash_default({uid})");
    assert_eq!(status(&pod, "main")["state"]["waiting"]["message"], message);
    assert_eq!(status(&pod, "main")["lastState"]["terminated"]["message"], "bye\n");
    assert_eq!(pod["status"]["phase"], "Running");
    node.until_event(
        "crash",
        &format!("Warning BackOff Back-off restarting failed container main in pod crash_default({uid})"),
    );
    let begun = Instant::now();
    let count = restarts(&pod, "main");
    node.until("crash", "restarted", |pod| restarts(pod, "main") > count);
    let waited = begun.elapsed();
    assert!(waited > Duration::from_secs(7) && waited < Duration::from_secs(14), "{waited:?}");
    // The count rises when the container is made; the message follows when it has ended again.
    node.until("crash", "backing off longer", |pod| {
        let message = status(pod, "main")["state"]["waiting"]["message"].as_str().unwrap_or_default();
        message.starts_with("back-off 20s restarting failed container=main")
    });
    assert_eq!(terminated(&node.until_phase("on-failure-0", "Succeeded"), "main")["reason"], "Completed");
    let failed = node.until_phase("never-3", "Failed");
    assert_eq!(
        (&terminated(&failed, "main")["reason"], &terminated(&failed, "main")["exitCode"]),
        (&json!("Error"), &json!(3))
    );
    assert_eq!(restarts(&failed, "main"), 0);
    assert_eq!(restarts(&node.until_phase("rule-not", "Failed"), "main"), 0);
    node.until("rule-holds", "restarted", |pod| restarts(pod, "main") >= 1);
    node.until("always-0", "restarted", |pod| restarts(pod, "main") >= 1);
    node.until("on-failure-3", "restarted", |pod| restarts(pod, "main") >= 1);

    for name in ["crash", "always-0", "on-failure-3", "rule-holds"] {
        node.delete(name, Some(0));
    }
}

#[test]
fn probes_decide_about_readiness_and_restarts() {
    let node = node();
    let every_second = |probe: Value| with(json!({"periodSeconds": 1, "failureThreshold": 1}), probe);
    let http = every_second(json!({"httpGet": {"path": "/readyz", "port": "web"}}));
    let serve =
        json!({"command": ["serve"], "ports": [{"name": "web", "containerPort": 8080}], "readinessProbe": http});
    node.pod("readiness", one(serve));
    let never = every_second(json!({"tcpSocket": {"port": 9}, "failureThreshold": 2}));
    node.pod("startup", json!({"containers": [with(script("sleep 300"), json!({"startupProbe": never}))]}));

    node.until_ready("readiness");
    let pod = node.get("readiness");
    assert_eq!((&status(&pod, "main")["ready"], &status(&pod, "main")["started"]), (&json!(true), &json!(true)));
    node.exec("readiness", "main", &["sh", "-c", "echo > /dev/null"]);
    let proxy = format!("{}:8080/proxy/readyz?ready=false", pod_path("readiness"));
    let switched = node.send("POST", &proxy, json!({}));
    assert_eq!(switched.code, 200, "{}", switched.text());
    let pod = node.until("readiness", "unready", |pod| condition(pod, "Ready") == "False");
    assert_eq!(restarts(&pod, "main"), 0);
    node.until_event("readiness", "Warning Unhealthy Readiness probe failed: HTTP probe failed with statuscode: 503");
    node.send("POST", &format!("{}:8080/proxy/readyz?ready=true", pod_path("readiness")), json!({}));
    node.until_ready("readiness");
    node.delete("readiness", Some(0));

    let live =
        every_second(json!({"exec": {"command": ["sh", "-c", "echo gone; test -f /alive"]}, "failureThreshold": 2}));
    let start = every_second(json!({"tcpSocket": {"port": 8080}, "failureThreshold": 60}));
    let text = "touch /alive; sleep 3; tcp-echo 8080";
    node.pod(
        "liveness",
        json!({"containers": [with(script(text), json!({"livenessProbe": live, "startupProbe": start}))]}),
    );
    // Nothing is asked about liveness before the startup probe has succeeded.
    let pod = node.until("liveness", "running", |pod| !status(pod, "main")["state"]["running"].is_null());
    assert_eq!(status(&pod, "main")["started"], false);
    let pod = node.until("liveness", "started", |pod| status(pod, "main")["started"] == true);
    assert_eq!(restarts(&pod, "main"), 0);
    node.until_event("liveness", "Warning Unhealthy Startup probe failed: dial tcp ");
    node.exec("liveness", "main", &["rm", "/alive"]);
    let pod = node.until("liveness", "restarted", |pod| restarts(pod, "main") == 1);
    assert!(status(&pod, "main")["lastState"]["terminated"]["exitCode"] != 0);
    node.until_event("liveness", "Warning Unhealthy Liveness probe failed: gone");
    node.until_event("liveness", "Normal Killing Container main failed liveness probe, will be restarted");
    node.delete("liveness", Some(0));

    // The pod shares the node's network, where a health service of the test answers.
    let health = on_node::Health::start(&node);
    let grpc = every_second(json!({"grpc": {"port": health.port, "service": "shop"}}));
    let spec = with(one(with(script("sleep 300"), json!({"readinessProbe": grpc}))), json!({"hostNetwork": true}));
    node.pod("grpc", spec);
    node.until_event(
        "grpc",
        "Warning Unhealthy Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")",
    );
    assert_eq!(condition(&node.get("grpc"), "Ready"), "False");
    health.serve();
    node.until_ready("grpc");
    node.delete("grpc", Some(0));

    node.until("startup", "restarted", |pod| restarts(pod, "main") >= 1);
    node.until_event("startup", "Normal Killing Container main failed startup probe, will be restarted");
    node.delete("startup", Some(0));
}

#[test]
fn hooks_run_after_the_start_and_before_the_end() {
    let node = node();
    let folder = node.server.data_dir().join("hooks");
    std::fs::create_dir_all(&folder).unwrap();
    let volume = json!({"terminationGracePeriodSeconds": 30, "volumes": [{"name": "v", "hostPath": {"path": folder}}]});
    let serve = |name: &str, lifecycle: Value| {
        with(one(json!({"command": ["serve"], "lifecycle": lifecycle, "volumeMounts": [{"name": "v", "mountPath": "/v"}]})), volume.clone())
            .as_object_mut()
            .map(|spec| node.pod(name, Value::Object(spec.clone())))
    };
    let exec = |text: &str| json!({"exec": {"command": ["sh", "-c", text]}});
    // The server still answers while the hook runs: the request to end comes afterwards.
    serve(
        "hooks",
        json!({
            "postStart": exec("echo started >> /v/log"),
            "preStop": exec("sleep 1; get http://127.0.0.1:8080/readyz >> /v/log; echo stopping >> /v/log"),
        }),
    );
    serve("hook-fails", json!({"postStart": exec("echo oh no; exit 7")}));
    serve("hook-sleeps", json!({"preStop": {"sleep": {"seconds": 2}}}));
    // It says so when it is asked to exit, and only the hook asks.
    serve("hook-asks", json!({"preStop": {"httpGet": {"path": "/exit?code=7", "port": 8080}}}));
    let refuses = json!({"preStop": {"httpGet": {"path": "/readyz", "port": 9}}});
    serve("hook-refused", refuses);
    node.until_ready("hooks");
    assert_eq!(std::fs::read_to_string(folder.join("log")).unwrap(), "started\n");
    node.delete("hooks", None);
    let pod = node.get("hooks");
    assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod:#}");
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 30);
    node.until_event("hooks", "Normal Killing Stopping container main");
    node.until_gone("hooks");
    assert_eq!(std::fs::read_to_string(folder.join("log")).unwrap(), "started\nok\nstopping\n");

    node.until("hook-fails", "ended", |pod| !terminated(pod, "main").is_null());
    node.until_event("hook-fails", "Warning FailedPostStartHook PostStartHook failed");
    node.until_event("hook-fails", "Normal Killing FailedPostStartHook");

    node.until_ready("hook-sleeps");
    let begun = Instant::now();
    node.delete("hook-sleeps", None);
    node.until_gone("hook-sleeps");
    assert!(
        begun.elapsed() >= Duration::from_secs(2) && begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    node.until_ready("hook-asks");
    // Held until we have seen what it said.
    node.patch(&pod_path("hook-asks"), json!({"metadata": {"finalizers": ["example.com/look"]}}));
    node.delete("hook-asks", None);
    node.until("hook-asks", "ended", |pod| !terminated(pod, "main").is_null());
    node.until_log("hook-asks", "main", "asked to exit with 7");
    node.patch(&pod_path("hook-asks"), json!({"metadata": {"finalizers": null}}));
    node.until_gone("hook-asks");
    let failed = |name: &str| node.events(name).iter().any(|event| event.contains("FailedPreStopHook"));
    assert!(!failed("hook-asks"), "{:?}", node.events("hook-asks"));
    node.until_ready("hook-refused");
    node.delete("hook-refused", None);
    node.until_event("hook-refused", "Warning FailedPreStopHook PreStopHook failed");
    node.until_gone("hook-refused");
}

#[test]
fn ends_are_graceful_and_no_longer_than_allowed() {
    let node = node();
    let deaf = |seconds: u32| {
        with(one(json!({"command": ["ignore-term"]})), json!({"terminationGracePeriodSeconds": seconds}))
    };
    node.pod("deaf", deaf(5));
    node.pod("deaf-now", deaf(60));
    node.pod("polite", with(one(script("sleep 300")), json!({"terminationGracePeriodSeconds": 60})));
    node.pod("deadline", with(one(script("sleep 300")), json!({"activeDeadlineSeconds": 2})));
    for name in ["deaf", "deaf-now"] {
        node.until_log(name, "main", "ignored");
    }
    node.until_ready("polite");
    let begun = Instant::now();
    for (name, grace) in [("deaf", None), ("deaf-now", Some(0)), ("polite", None)] {
        node.delete(name, grace);
    }
    node.until_gone("deaf-now");
    node.until_gone("polite");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    node.until_gone("deaf");
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(20), "{took:?}");

    let pod =
        node.until("deadline", "over", |pod| pod["status"]["phase"] == "Failed" && !terminated(pod, "main").is_null());
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
    assert_eq!(pod["status"]["message"], "Pod was active on the node longer than the specified deadline");
    assert_eq!(condition(&pod, "Ready"), "False");
    node.until_event(
        "deadline",
        "Normal DeadlineExceeded Pod was active on the node longer than the specified deadline",
    );
}

#[test]
fn last_words_and_gates_are_told() {
    let node = node();
    let words = |name: &str, text: &str, more: Value| {
        node.pod(name, one(with(script(text), more)));
        let pod = node.until(name, "ended", ended);
        terminated(&pod, "main")["message"].clone()
    };
    let own = json!({"terminationMessagePath": "/tmp/last"});
    assert_eq!(words("words-own", "mkdir -p /tmp; echo -n mine > /tmp/last; exit 1", own), "mine");
    let fall_back = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    assert_eq!(words("words-log", "echo first; echo last; exit 1", fall_back.clone()), "first\nlast\n");
    assert_eq!(words("words-log-open", "echo -n DONE; exit 1", fall_back.clone()), "DONE");
    assert_eq!(words("words-log-good", "echo first; exit 0", fall_back.clone()), Value::Null);
    assert_eq!(words("words-both", "echo log; echo -n file > /dev/termination-log; exit 1", fall_back), "file");
    assert_eq!(words("words-none", "echo log; exit 1", json!({})), Value::Null);

    let gate = json!({"readinessGates": [{"conditionType": "example.com/ready"}]});
    node.pod("gate", with(one(script("sleep 300")), gate));
    let pod = node.until("gate", "running", |pod| condition(pod, "ContainersReady") == "True");
    assert_eq!(condition(&pod, "Ready"), "False");
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
    assert_eq!(ready["reason"], "ReadinessGatesNotReady");
    assert_eq!(ready["message"], "corresponding condition of pod readiness gate \"example.com/ready\" does not exist.");
    let open = json!({"status": {"conditions": [{"type": "example.com/ready", "status": "True"}]}});
    node.patch(&format!("{}/status", pod_path("gate")), open);
    node.until_ready("gate");
    node.delete("gate", Some(0));
}
