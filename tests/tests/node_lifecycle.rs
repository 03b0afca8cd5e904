//! The life of real pods: starts, probes, hooks, restarts, changes and ends, as users see them in the API.

#[path = "support/on_node.rs"]
mod on_node;

use std::time::{Duration, Instant};

use on_node::{IMAGE, condition, ended, node, one, pod_path, script, status, with};
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

#[test]
fn running_pods_take_new_containers_sizes_and_images() {
    let node = node();
    let resources = json!({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}});
    let kept = with(script("sleep 300"), json!({"resources": resources}));
    let policy = json!({"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}, {"resourceName": "cpu", "restartPolicy": "NotRequired"}]});
    let restarted = with(kept.clone(), with(policy, json!({"name": "other"})));
    node.pod("changes", json!({"containers": [kept, restarted]}));
    let pod = node.until_ready("changes");
    let id =
        |pod: &Value, container: &str| status(pod, container)["containerID"].as_str().unwrap_or_default().to_owned();
    let (main, other) = (id(&pod, "main"), id(&pod, "other"));

    // An ephemeral container joins, and sees the processes of its target.
    let debugger = json!({"name": "debugger", "image": IMAGE, "imagePullPolicy": "Never", "targetContainerName": "main", "command": ["sh", "-c", "cat /proc/1/cmdline; echo; sleep 300"]});
    node.patch(
        &format!("{}/ephemeralcontainers", pod_path("changes")),
        json!({"spec": {"ephemeralContainers": [debugger]}}),
    );
    let pod = node.until("changes", "debugged", |pod| !status(pod, "debugger")["state"]["running"].is_null());
    assert_eq!(condition(&pod, "Ready"), "True");
    assert!(node.until_log("changes", "debugger", "sleep").contains("sleep\x00300"));

    let file = |pod: &Value, controller: &str, container: &str, file: &str| {
        let (name, uid) = (node.server.machine().name(), pod["metadata"]["uid"].as_str().unwrap());
        let group = id(pod, container).rsplit('/').next().unwrap().to_owned();
        let path = format!("/sys/fs/cgroup/{controller}/{name}/kubepods/burstable/pod{uid}/{group}/{file}");
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_owned()
    };
    assert_eq!(file(&pod, "cpu", "main", "cpu.cfs_quota_us"), "20000");
    let resize = |container: &str, resources: Value| {
        let path = format!("{}/resize", pod_path("changes"));
        node.patch(&path, json!({"spec": {"containers": [{"name": container, "resources": resources}]}}));
    };
    resize("main", json!({"requests": {"cpu": "150m"}, "limits": {"cpu": "400m", "memory": "96Mi"}}));
    let pod = node.until("changes", "resized", |pod| status(pod, "main")["resources"]["limits"]["cpu"] == "400m");
    assert_eq!(file(&pod, "cpu", "main", "cpu.cfs_quota_us"), "40000");
    assert_eq!(file(&pod, "memory", "main", "memory.limit_in_bytes"), (96 << 20).to_string());
    assert_eq!((id(&pod, "main"), restarts(&pod, "main")), (main.clone(), 0));
    assert_eq!(status(&pod, "main")["allocatedResources"]["cpu"], "150m");
    resize("other", json!({"limits": {"memory": "80Mi"}}));
    let pod = node.until("changes", "restarted", |pod| {
        restarts(pod, "other") == 1 && !status(pod, "other")["state"]["running"].is_null()
    });
    assert_ne!(id(&pod, "other"), other);
    assert_eq!(file(&pod, "memory", "other", "memory.limit_in_bytes"), (80 << 20).to_string());
    assert_eq!((id(&pod, "main"), restarts(&pod, "main")), (main.clone(), 0));
    // What the node cannot give is put off for ever.
    resize("main", json!({"requests": {"cpu": "900"}, "limits": {"cpu": "900"}}));
    let pod = node.until("changes", "refused", |pod| condition(pod, "PodResizePending") == "True");
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let pending = conditions.iter().find(|condition| condition["type"] == "PodResizePending").unwrap();
    assert_eq!(pending["reason"], "Infeasible", "{pending}");
    resize("main", json!({"requests": {"cpu": "150m"}, "limits": {"cpu": "400m"}}));
    node.until("changes", "accepted", |pod| condition(pod, "PodResizePending") != "True");

    // Another image restarts its container, and no other.
    let versioned = node.send("GET", "/api/v1/nodes/node-1", Value::Null).json();
    let images = versioned["status"]["images"].as_array().cloned().unwrap_or_default();
    let names: Vec<String> = images
        .iter()
        .flat_map(|image| image["names"].as_array().cloned().unwrap_or_default())
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let second = names
        .iter()
        .find(|name| name.starts_with("knarr.dev/demo:") && *name != IMAGE)
        .unwrap_or_else(|| panic!("{names:?}"));
    node.patch(&pod_path("changes"), json!({"spec": {"containers": [{"name": "main", "image": second}]}}));
    let pod = node.until("changes", "restarted", |pod| {
        restarts(pod, "main") == 1 && !status(pod, "main")["state"]["running"].is_null()
    });
    assert_eq!(restarts(&pod, "other"), 1);
    node.until_event("changes", "Normal Killing Container main definition changed, will be restarted");
    node.delete("changes", Some(0));
}

#[test]
fn files_are_pods_too() {
    let node = node();
    let folder = node.server.data_dir().join("pod-manifests");
    let manifest = |text: &str| {
        let container = with(script(text), json!({"name": "main", "image": IMAGE, "imagePullPolicy": "Never"}));
        let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static", "namespace": "default"}, "spec": spec});
        std::fs::write(folder.join(".static.json"), pod.to_string()).unwrap();
        std::fs::rename(folder.join(".static.json"), folder.join("static.json")).unwrap();
    };
    manifest("echo first; sleep 300");
    let pod = node.until_ready("static-node-1");
    assert_eq!(pod["metadata"]["annotations"]["kubernetes.io/config.source"], "file");
    assert!(pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string(), "{pod:#}");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!(node.until_log("static-node-1", "main", "first"), "first\n");
    let container = status(&pod, "main")["containerID"].clone();
    // The mirror is only a mirror: without it the pod runs on, and it comes back.
    let uid = pod["metadata"]["uid"].clone();
    node.delete("static-node-1", Some(0));
    let pod = node.until("static-node-1", "mirrored again", |pod| {
        pod["metadata"]["uid"].is_string() && pod["metadata"]["uid"] != uid && condition(pod, "Ready") == "True"
    });
    assert_eq!(status(&pod, "main")["containerID"], container);
    manifest("echo second; sleep 300");
    node.until("static-node-1", "changed", |pod| {
        condition(pod, "Ready") == "True" && status(pod, "main")["containerID"] != container
    });
    assert_eq!(node.until_log("static-node-1", "main", "second"), "second\n");
    std::fs::remove_file(folder.join("static.json")).unwrap();
    node.until_gone("static-node-1");
}

#[test]
fn pods_that_do_not_fit_are_refused() {
    let node = node();
    let ask = |resource: &str, amount: &str| {
        one(with(script("true"), json!({"resources": {"requests": {resource: amount}}})))
    };
    node.pod("too-much", ask("cpu", "900"));
    let pod = node.until_phase("too-much", "Failed");
    assert_eq!(pod["status"]["reason"], "OutOfcpu");
    let message = pod["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("Pod was rejected: Node didn't have enough resource: cpu, requested: 900000, used: "),
        "{message}"
    );
    node.until_event("too-much", "Warning OutOfcpu Node didn't have enough resource: cpu, requested: 900000, used: ");
    node.pod("too-large", ask("memory", "900Ti"));
    assert_eq!(node.until_phase("too-large", "Failed")["status"]["reason"], "OutOfmemory");
    node.pod("elsewhere", with(one(script("true")), json!({"nodeSelector": {"disk": "none"}})));
    let pod = node.until_phase("elsewhere", "Failed");
    assert_eq!(pod["status"]["reason"], "NodeAffinity");
    let expected = "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    assert_eq!(pod["status"]["message"], expected);
}

#[test]
fn what_cannot_start_says_why() {
    let node = node();
    node.pod("no-command", one(json!({"command": ["/nope"]})));
    let pod =
        node.until("no-command", "failed", |pod| status(pod, "main")["state"]["terminated"]["reason"] == "StartError");
    let terminated = terminated(&pod, "main");
    assert_eq!(terminated["exitCode"], 128);
    let message = terminated["message"].as_str().unwrap();
    assert!(message.contains("exec: \"/nope\": stat /nope: no such file or directory"), "{message}");
    node.until_event("no-command", "Warning Failed Error: ");
    let reference = json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "a"}}}]});
    node.pod("no-map", one(with(script("echo $A"), reference)));
    let pod = node.until("no-map", "waiting", |pod| {
        status(pod, "main")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    });
    assert_eq!(status(&pod, "main")["state"]["waiting"]["message"], "configmap \"later\" not found");
    assert_eq!(pod["status"]["phase"], "Pending");
    node.until_event("no-map", "Warning Failed Error: configmap \"later\" not found");
    node.create("configmaps", json!({"metadata": {"name": "later"}, "data": {"a": "now"}}));
    node.until_phase("no-map", "Succeeded");
    assert_eq!(node.until_log("no-map", "main", "now"), "now\n");
}

#[test]
fn a_node_under_pressure_ends_pods_and_takes_no_more() {
    // A node that is content only with more memory than there is. The pod comes first: afterwards none is taken.
    let node = on_node::Node::start(&["--eviction-hard=memory.available<99%"]);
    let asked = json!({"resources": {"requests": {"memory": "1Mi"}}});
    node.pod("asked", one(with(script("sleep 300"), asked)));
    let pod = node.until_phase("asked", "Failed");
    assert_eq!(pod["status"]["reason"], "Evicted");
    let message = pod["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("The node was low on resource: memory. Threshold quantity: "), "{message}");
    assert_eq!(condition(&pod, "DisruptionTarget"), "True");
    node.until_event("asked", "Warning Evicted The node was low on resource: memory.");
    let path = "/api/v1/nodes/node-1";
    let pressed = |node: &Value| condition(node, "MemoryPressure") == "True";
    let begun = Instant::now();
    while !pressed(&node.send("GET", path, Value::Null).json()) {
        assert!(begun.elapsed() < Duration::from_secs(30), "the node does not say that it is under pressure");
        std::thread::sleep(Duration::from_millis(50));
    }
    node.pod("refused", one(script("sleep 300")));
    let pod = node.until_phase("refused", "Failed");
    assert_eq!(pod["status"]["reason"], "Evicted");
    assert_eq!(pod["status"]["message"], "Pod was rejected: The node had condition: [MemoryPressure]. ");
}
