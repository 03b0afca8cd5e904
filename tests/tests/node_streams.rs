//! Logs, exec, attach, port-forward, copies and proxies: real kubectl, old and new, through a real API server to a real
//! kubelet server. Only the containers are not real: they are scripts over streams in memory.

#[path = "support/fake_node.rs"]
mod fake_node;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use fake_node::FakeNode;
use serde_json::json;
use testkit::Kubectl;

fn entries(seconds: std::ops::Range<u32>) -> String {
    seconds.map(|second| format!("2026-01-02T03:04:{second:02}.5Z stdout F line {second}\n")).collect()
}

fn lines(seconds: std::ops::Range<u32>) -> String {
    seconds.map(|second| format!("line {second}\n")).collect()
}

/// Ended with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(kubectl: &Kubectl, arguments: &[&str]) -> Running {
    let mut command = kubectl.command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running(command.spawn().expect("kubectl starts"))
}

#[test]
fn logs_are_shown_with_every_option() {
    let node = FakeNode::start();
    std::fs::write(node.log_file("app", 0), "2026-01-02T03:00:00Z stderr F it crashed\n").unwrap();
    std::fs::write(node.log_file("app", 1), entries(0..20)).unwrap();
    std::fs::write(node.log_file("side", 0), "2026-01-02T03:00:00Z stdout F beside\n").unwrap();
    for kubectl in node.kubectls() {
        let logs = |more: &[&str]| kubectl.ok(&[&["logs", "web", "-c", "app"], more].concat());
        assert_eq!(logs(&[]), lines(0..20));
        assert_eq!(logs(&["--tail=3"]), lines(17..20));
        assert_eq!(logs(&["--tail=0"]), "");
        assert_eq!(logs(&["--since-time=2026-01-02T03:04:10Z"]), lines(10..20));
        assert_eq!(logs(&["--since=1h"]), "");
        assert_eq!(logs(&["--limit-bytes=10"]), "line 0\nlin");
        assert_eq!(logs(&["--timestamps", "--tail=1"]), "2026-01-02T03:04:19.5Z line 19\n");
        assert_eq!(logs(&["-p"]), "it crashed\n");
        assert_eq!(kubectl.ok(&["logs", "web", "-c", "side"]), "beside\n");

        let waiting = kubectl.fails(&["logs", "web", "-c", "late"]);
        let expected = "(BadRequest): container \"late\" in pod \"web\" is waiting to start: ContainerCreating";
        assert!(waiting.contains(expected), "{waiting}");
        let previous = kubectl.fails(&["logs", "web", "-c", "side", "-p"]);
        assert!(previous.contains("previous terminated container \"side\" in pod \"web\" not found"), "{previous}");
        let wrong = kubectl.fails(&["logs", "web", "-c", "other"]);
        assert!(wrong.contains("container other is not valid for pod web"), "{wrong}");
        let missing = kubectl.fails(&["logs", "nobody"]);
        assert!(missing.contains("pods \"nobody\" not found"), "{missing}");
    }
    let client = node.server.client().unwrap();
    let path = "/api/v1/namespaces/default/pods/web/log";
    let ask = node.tokio.block_on(client.get(path)).unwrap();
    let expected = "a container name must be specified for pod web, choose one of: [app side late]";
    assert_eq!((ask.code, ask.json()["message"].as_str()), (400, Some(expected)));
    let invalid = node.tokio.block_on(client.get(&format!("{path}?container=app&tailLines=-1"))).unwrap();
    assert_eq!((invalid.code, invalid.json()["reason"].as_str()), (422, Some("Invalid")));
}

#[test]
fn a_log_is_followed_until_its_container_ends() {
    let node = FakeNode::start();
    for (round, kubectl) in node.kubectls().iter().enumerate() {
        let path = node.log_file("app", 1);
        std::fs::write(&path, entries(0..1)).unwrap();
        node.runtime.run("app-2");
        let mut following = spawn(kubectl, &["logs", "web", "-c", "app", "-f"]);
        let mut output = BufReader::new(following.0.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "line 0\n");
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(entries(1..2).as_bytes()).unwrap();
        // Shown while the command still runs: nothing is held back.
        line.clear();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "line 1\n");
        std::fs::rename(&path, path.with_extension(format!("log.20260102-03040{round}"))).unwrap();
        std::fs::write(&path, entries(2..3)).unwrap();
        line.clear();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "line 2\n");
        node.runtime.end("app-2");
        line.clear();
        assert_eq!(output.read_line(&mut line).unwrap(), 0, "{line}");
        assert!(following.0.wait().unwrap().success());
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    }
}

#[test]
fn commands_run_with_their_streams_and_exit_codes() {
    let node = FakeNode::start();
    for kubectl in node.kubectls() {
        fn exec<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
            [&["exec", "web", "-c", "app", "--"], arguments].concat()
        }
        assert_eq!(kubectl.ok(&exec(&["echo", "hello", "you & me"])), "hello you & me\n");
        let both = kubectl.run(&exec(&["both"])).unwrap();
        assert_eq!(String::from_utf8_lossy(&both.stdout), "to stdout\n");
        let complaint = String::from_utf8_lossy(&both.stderr).into_owned();
        assert!(complaint.contains("to stderr\n"), "{complaint}");
        assert!(complaint.contains("command terminated with exit code 3"), "{complaint}");
        assert_eq!(both.status.code(), Some(3));
        assert_eq!(kubectl.run(&exec(&["exit", "42"])).unwrap().status.code(), Some(42));
        // The end of the input reaches the command.
        let with_input = ["exec", "-i", "web", "-c", "app", "--", "cat"];
        assert_eq!(kubectl.ok_with(&with_input, "typed\n"), "typed\n");
        let one_line = ["exec", "-i", "web", "-c", "app", "--", "line"];
        assert_eq!(kubectl.ok_with(&one_line, "first\nsecond\n"), "first\n");
        let missing = kubectl.fails(&exec(&["missing"]));
        assert!(missing.contains("executable file not found in $PATH"), "{missing}");
        let late = kubectl.fails(&["exec", "web", "-c", "late", "--", "echo"]);
        assert!(late.contains("container not found (\"late\")"), "{late}");
        let attached = kubectl.ok_with(&["attach", "-i", "web", "-c", "app"], "hello\n");
        assert_eq!(attached, "welcome\nhello\ngoodbye\n");
        assert_eq!(kubectl.ok(&["attach", "web", "-c", "app"]), "welcome\ngoodbye\n");
    }
}

#[test]
fn a_terminal_tells_its_size_and_every_change_of_it() {
    let node = FakeNode::start();
    for program in testkit::kubectl::programs() {
        let kubeconfig = node.server.kubeconfig();
        let exec = format!("{} --kubeconfig {} exec -it web -c app -- sizes", program.display(), kubeconfig.display());
        let line = format!("stty rows 30 cols 100; (sleep 2; stty rows 40 cols 120 </dev/tty) & {exec}");
        let mut child = std::process::Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .env("HOME", node.server.data_dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map(Running)
            .expect("script starts");
        let mut shown = String::new();
        child.0.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
        assert!(child.0.wait().unwrap().success(), "{shown}");
        assert!(shown.contains("100x30"), "{shown}");
        assert!(shown.contains("120x40"), "{shown}");
    }
}

/// Bytes in which any loss, doubling or mixing-up shows.
fn pattern(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flatten().take(length).collect()
}

#[test]
fn fifty_megabytes_are_copied_both_ways_unbroken() {
    let node = FakeNode::start();
    let bytes = pattern(50 * 1024 * 1024);
    for (round, kubectl) in node.kubectls().iter().enumerate() {
        let local = node.server.data_dir().join(format!("big-{round}"));
        std::fs::write(&local, &bytes).unwrap();
        let remote = node.runtime.folder.join(format!("copy-{round}"));
        let place = format!("web:{}", remote.display());
        // The new kubectl asks first whether the place is a folder, with a program that this runtime does not have.
        kubectl.ok(&["cp", "-c", "app", &local.display().to_string(), &place]);
        assert!(std::fs::read(&remote).unwrap() == bytes, "the copy to the pod differs");
        let back = node.server.data_dir().join(format!("back-{round}"));
        let relative = format!("web:copy-{round}");
        kubectl.ok(&["cp", "-c", "app", &relative, &back.display().to_string()]);
        assert!(std::fs::read(&back).unwrap() == bytes, "the copy from the pod differs");
        std::fs::remove_file(remote).unwrap();
    }
}

#[test]
fn ports_are_forwarded() {
    let node = FakeNode::start();
    for kubectl in node.kubectls() {
        let mut forwarding = spawn(&kubectl, &["port-forward", "--address", "127.0.0.1", "pod/web", ":80", ":81"]);
        let mut output = BufReader::new(forwarding.0.stdout.take().unwrap());
        let mut port = || {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            let port = line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next());
            port.and_then(|port| port.parse::<u16>().ok()).unwrap_or_else(|| panic!("{line:?}"))
        };
        let (good, bad) = (port(), port());
        let talks: Vec<_> = (0..4)
            .map(|talk| {
                std::thread::spawn(move || {
                    let bytes = pattern(2 * 1024 * 1024 + talk);
                    let mut stream = TcpStream::connect(("127.0.0.1", good)).unwrap();
                    let (mut writing, sent) = (stream.try_clone().unwrap(), bytes.clone());
                    let sender = std::thread::spawn(move || {
                        writing.write_all(&sent).unwrap();
                        writing.shutdown(std::net::Shutdown::Write).unwrap();
                    });
                    let mut back = Vec::new();
                    stream.read_to_end(&mut back).unwrap();
                    sender.join().unwrap();
                    assert!(back == bytes, "{} of {} bytes came back", back.len(), bytes.len());
                })
            })
            .collect();
        talks.into_iter().for_each(|talk| talk.join().expect("what was sent comes back"));
        let mut refused = TcpStream::connect(("127.0.0.1", bad)).unwrap();
        refused.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The connection is closed or reset, as kubectl likes.
        let _ = refused.read(&mut [0; 16]);
        let mut errors = BufReader::new(forwarding.0.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("error forwarding port 81 to pod web_default") {
            line.clear();
            assert!(errors.read_line(&mut line).unwrap() > 0, "kubectl says nothing about port 81");
        }
        assert!(line.contains("connection refused"), "{line}");
    }
}

#[test]
fn reading_permission_is_not_enough_to_run_commands() {
    let node = FakeNode::start();
    let client = node.server.client().unwrap();
    let role = json!({"metadata": {"name": "looker"}, "rules": [
        {"apiGroups": [""], "resources": ["pods", "pods/exec", "pods/log"], "verbs": ["get"]}]});
    node.made(&client, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role);
    let binding = json!({"metadata": {"name": "looker"}, "subjects": [{"kind": "User", "name": "jane",
        "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looker"}});
    node.made(&client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding);
    std::fs::write(node.log_file("app", 1), entries(0..1)).unwrap();
    for kubectl in node.kubectls() {
        assert_eq!(kubectl.ok(&["--as=jane", "logs", "web", "-c", "app"]), lines(0..1));
        let refused = kubectl.fails(&["--as=jane", "exec", "web", "-c", "app", "--", "echo", "x"]);
        assert!(refused.contains("cannot create resource \"pods/exec\""), "{refused}");
    }
}

#[test]
fn the_kubelet_itself_asks_who_is_there() {
    let node = FakeNode::start();
    let get = |client: &testkit::Client, path: &str| {
        let reply = node.tokio.block_on(client.get(path)).unwrap();
        (reply.code, reply.text())
    };
    let stranger = node.direct(false);
    assert_eq!(get(&stranger, "/pods"), (401, "Unauthorized".into()));
    assert_eq!(get(&stranger, "/healthz").0, 401);
    let admin = node.direct(true);
    assert_eq!(get(&admin, "/healthz"), (200, "ok".into()));
    assert_eq!(get(&admin, "/stats/summary?only_cpu_and_memory=true").1, "summary?only_cpu_and_memory=true\n");
    assert_eq!(get(&admin, "/metrics/cadvisor").1, "cadvisor?\n");
    let pods: serde_json::Value = serde_json::from_str(&get(&admin, "/pods").1).unwrap();
    assert_eq!(pods["items"][0]["metadata"]["name"], "web");
    assert_eq!(pods["items"][0]["status"]["phase"], "Running");
    let running: serde_json::Value = serde_json::from_str(&get(&admin, "/runningpods/").1).unwrap();
    assert_eq!(running["items"][0]["spec"]["containers"].as_array().unwrap().len(), 2);
    assert!(get(&admin, "/configz").1.contains("kubeletconfig"));
    assert_eq!(get(&admin, "/checkpoint/default/web/app").0, 404);
    assert_eq!(get(&admin, "/nothing").0, 404);
    assert!(get(&admin, "/logs/").1.contains("pods/"));
    let run = node.tokio.block_on(admin.send("POST", "/run/default/web/app?cmd=a+b", "", "")).unwrap();
    assert_eq!(run.text(), "ran a b\n");
    assert_eq!(get(&admin, "/exec/default/web/app?command=a&output=1"), (400, "Upgrade request required".into()));

    // A token of a service account: first without rights on nodes, then with the narrow one.
    let api = node.server.client().unwrap();
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = node.tokio.block_on(api.post(path, &json!({"spec": {}}))).unwrap().json();
    let token = token["status"]["token"].as_str().unwrap().to_string();
    let account = stranger.with_header("authorization", &format!("Bearer {token}"));
    let (code, text) = get(&account, "/metrics/resource");
    assert_eq!(code, 403);
    let user = "system:serviceaccount:default:default";
    assert_eq!(text, format!("Forbidden (user={user}, verb=get, resource=nodes, subresource(s)=[metrics])\n"));
    let role = json!({"metadata": {"name": "narrow"},
        "rules": [{"apiGroups": [""], "resources": ["nodes/pods"], "verbs": ["get"]}]});
    node.made(&api, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role);
    let binding = json!({"metadata": {"name": "narrow"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "narrow"}});
    node.made(&api, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding);
    assert_eq!(get(&account, "/pods").0, 200);
    assert_eq!(get(&account, "/containerLogs/default/web/app").0, 403);
    assert_eq!(get(&stranger.with_header("authorization", "Bearer nonsense"), "/pods").0, 401);
}
