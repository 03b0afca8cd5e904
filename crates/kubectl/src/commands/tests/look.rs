//! Commands that only look: `top pod`, `logs`, `events`, `version`, `api-resources`, `explain`, `describe`.

use super::*;

fn measured(pods: &[(&str, &str, &str)]) -> Value {
    let items: Vec<Value> = pods
        .iter()
        .map(|(name, cpu, memory)| {
            json!({"metadata": {"name": name, "namespace": "default"},
                "containers": [{"name": "main", "usage": {"cpu": cpu, "memory": memory}}]})
        })
        .collect();
    json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items})
}

#[test]
fn pods_are_measured_and_sorted() {
    let path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";
    let fake = || Fake::new().answer(&format!("GET {path}"), measured(&[("a", "5m", "90Mi"), ("b", "70m", "10Mi")]));
    let names = |flags: &str| -> Vec<String> {
        let ran = fake().run(&format!("top pod --no-headers {flags}"));
        ran.out.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
    };
    assert_eq!(names(""), ["a", "b"]);
    assert_eq!(names("--sort-by=cpu"), ["b", "a"]);
    assert_eq!(names("--sort-by=memory"), ["a", "b"]);
    let ran = fake().run("top pod");
    assert_eq!(ran.out.lines().next(), Some("NAME   CPU(cores)   MEMORY(bytes)   "));
    let none = Fake::new()
        .answer(&format!("GET {path}"), measured(&[]))
        .answer(&format!("GET {PODS}"), json!({"kind": "PodList", "items": []}))
        .run("top pod");
    assert_eq!(none.err, "No resources found in default namespace.\n");
}

#[test]
fn logs_are_asked_of_one_container() {
    let log = format!("{PODS}/web/log");
    let fake = || Fake::new().objects(PODS, &[pod("web")]).answer_text(&format!("GET {log}"), 200, "one\ntwo\n");
    let ran = fake().run("logs web --tail=2 --since=1m -p --timestamps --limit-bytes=100");
    ended_well(&ran, "one\ntwo\n");
    let sent = ran.request(&format!("GET {log}"));
    let value = |name: &str| sent.query(name);
    assert_eq!((value("tailLines"), value("sinceSeconds"), value("limitBytes")), ("2", "60", "100"));
    assert_eq!((value("previous"), value("timestamps"), value("container")), ("true", "true", "main"));
    let prefixed = fake().run("logs web --prefix");
    assert_eq!(prefixed.out, "[pod/web/main] one\n[pod/web/main] two\n");
    let missing = "error: error from server (NotFound): pods \"missing\" not found in namespace \"default\"\n";
    ended_badly(&fake().run("logs missing"), missing);
}

#[test]
fn a_pod_of_two_containers_wants_a_choice() {
    let mut two = pod("web");
    two["spec"]["containers"] = json!([{"name": "a"}, {"name": "b"}]);
    let fake = || {
        Fake::new().objects(PODS, std::slice::from_ref(&two)).answer_text(&format!("GET {PODS}/web/log"), 200, "x\n")
    };
    let ran = fake().run("logs web");
    assert_eq!(ran.err, "Defaulted container \"a\" out of: a, b\n");
    let ran = fake().run("logs web -c c");
    ended_badly(&ran, "error: container c is not valid for pod web out of: a, b\n");
    let all = fake().run("logs web --all-containers");
    assert_eq!((all.out.as_str(), all.requests.len()), ("x\nx\n", 3));
}

#[test]
fn versions_of_both_sides() {
    let server = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.4"});
    let ran = Fake::new().answer("GET /version", server.clone()).run("version");
    assert!(
        ran.out.starts_with("Client Version: v1.36") && ran.out.ends_with("Server Version: v1.36.4\n"),
        "{}",
        ran.out
    );
    let ran = Fake::new().run("version --client");
    assert!(ran.requests.is_empty() && !ran.out.contains("Server"), "{ran:?}");
    let old = json!({"major": "1", "minor": "30", "gitVersion": "v1.30.0"});
    let ran = Fake::new().answer("GET /version", old).run("version");
    assert_eq!(
        ran.err,
        "WARNING: version difference between client (1.36) and server (1.30) exceeds the supported minor version skew of +/-1\n"
    );
    refuses("version -o xml", "--output must be 'yaml' or 'json'");
}

#[test]
fn events_are_sorted_by_time() {
    let event = |name: &str, at: &str, message: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"}, "type": "Normal",
            "reason": "Seen", "message": message, "lastTimestamp": at,
            "involvedObject": {"kind": "Pod", "name": "web", "apiVersion": "v1"}})
    };
    let events = [event("b", "2026-01-01T00:00:02Z", "second"), event("a", "2026-01-01T00:00:01Z", "first")];
    let fake = || Fake::new().objects("/api/v1/namespaces/default/events", &events);
    let ran = fake().run("events");
    let messages: Vec<&str> = ran.out.lines().skip(1).filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(messages, ["first", "second"], "{ran:?}");
    assert!(ran.out.starts_with("LAST SEEN   TYPE     REASON   OBJECT    MESSAGE\n"), "{}", ran.out);
    let none = Fake::new()
        .answer("GET /api/v1/namespaces/default/events", json!({"kind": "EventList", "items": []}))
        .run("events");
    assert_eq!(none.err, "No events found in default namespace.\n");
}

#[test]
fn manifests_are_built_without_a_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    write(
        "kustomization.yaml",
        "namePrefix: dev-\nnamespace: team\nlabels:\n- pairs: {tier: back}\nresources:\n- map.yaml\n",
    );
    write("map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: one}\n");
    let ran = Fake::new().run(&format!("kustomize {}", folder.path().display()));
    let expected = "\
apiVersion: v1
data:
  x: one
kind: ConfigMap
metadata:
  labels:
    tier: back
  name: dev-a
  namespace: team
";
    ended_well(&ran, expected);
}

#[test]
fn completion_and_options_need_no_cluster() {
    for (shell, word) in
        [("bash", "__start_kubectl"), ("zsh", "#compdef kubectl"), ("fish", "complete"), ("powershell", "Register")]
    {
        let ran = Fake::new().run(&format!("completion {shell}"));
        assert!(ran.code == 0 && ran.out.contains(word), "{shell}");
    }
    misused("completion", "completion", "Shell not specified.");
    misused("completion bash zsh", "completion", "Too many arguments. Expected only the shell type.");
    misused("completion tcsh", "completion", "Unsupported shell type \"tcsh\".");
    assert!(Fake::new().run("options").out.starts_with("The following options can be passed to any command:\n\n"));
}

#[test]
fn a_command_that_is_none_has_neighbors() {
    let ran = Fake::new().run("descibe pods");
    assert_eq!(ran.err, "error: unknown command \"descibe\" for \"kubectl\"\n\nDid you mean this?\n\tdescribe\n");
    let ran = Fake::new().run("get --nothing");
    assert_eq!(ran.err, "error: unknown flag: --nothing\nSee 'kubectl get --help' for usage.\n");
}

#[test]
fn logs_have_no_negative_numbers() {
    let check = |flags: &str, expected: &str| {
        let ran = Fake::new().objects(PODS, &[pod("web")]).run(&format!("logs web {flags}"));
        ended_badly(&ran, &format!("error: {expected}\n"));
    };
    check("--limit-bytes=-1", "--limit-bytes must be greater than 0");
    check("--since=-5s", "--since must be greater than 0");
    check("--tail=-2", "--tail must be greater than or equal to -1");
    check("main -c main", "only one of -c or an inline [CONTAINER] arg is allowed");
    let all = "--all-containers=true should not be specified with container name main";
    check("-c main --all-containers", all);
    check("main --all-containers", all);
}
