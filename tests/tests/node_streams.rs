//! Logs, exec, attach, port-forward, copies and proxies: real kubectl, old and new, through a real API server to a real
//! kubelet server. Only the containers are not real: they are scripts over streams in memory.

#[path = "support/fake_node.rs"]
mod fake_node;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
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
        // The new one really speaks WebSocket, and has no need to go back to SPDY.
        let told = kubectl.run(&[&["-v=4"][..], &exec(&["echo", "x"])].concat()).unwrap();
        let told = String::from_utf8_lossy(&told.stderr).to_lowercase();
        assert!(!told.contains("fallback"), "{told}");
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
        let mut forwarding =
            spawn(&kubectl, &["-v=4", "port-forward", "--address", "127.0.0.1", "pod/web", ":80", ":81"]);
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
            assert!(!line.contains("fallback"), "{line}");
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

/// The code, and how long a body came with it.
async fn head_over_http2(client: &testkit::Client, path: &str) -> anyhow::Result<(u16, usize)> {
    let request = http::Request::head(format!("https://{}{path}", client.address()));
    let request = request.body(http_body_util::Empty::<bytes::Bytes>::new())?;
    let response = client.http2().await?.send_request(request).await?;
    let code = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await?;
    Ok((code, body.to_bytes().len()))
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
    for (client, code) in [(&stranger, 401), (&admin, 200)] {
        // A body would break the stream.
        let (said, length) = node.tokio.block_on(head_over_http2(client, "/pods")).unwrap();
        assert_eq!((said, length), (code, 0));
        assert_eq!(node.tokio.block_on(client.send("HEAD", "/pods", "", "")).unwrap().code, code);
    }
    assert_eq!(get(&admin, "/healthz"), (200, "ok".into()));
    assert_eq!(get(&admin, "/stats/summary?only_cpu_and_memory=true").1, "summary?only_cpu_and_memory=true\n");
    assert_eq!(get(&admin, "/metrics/cadvisor").1, "cadvisor?\n");
    let pods: serde_json::Value = serde_json::from_str(&get(&admin, "/pods").1).unwrap();
    assert_eq!(pods["items"][0]["metadata"]["name"], "web");
    assert_eq!(pods["items"][0]["status"]["phase"], "Running");
    let running: serde_json::Value = serde_json::from_str(&get(&admin, "/runningpods/").1).unwrap();
    assert_eq!(running["items"][0]["spec"]["containers"].as_array().unwrap().len(), 2);
    assert!(get(&admin, "/configz").1.contains("kubeletconfig"));
    assert!(get(&admin, "/flagz").1.ends_with("only.\nmax-pods=7\n"), "{}", get(&admin, "/flagz").1);
    assert!(get(&admin, "/statusz").1.contains("\nBinary version: 1.36.4\n"));
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

/// kubectl goes over to SPDY when a WebSocket fails; this client knows nothing else.
#[test]
fn streams_work_over_websocket_alone() {
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::AttachParams;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let node = FakeNode::start();
    node.tokio.block_on(async {
        let config = kube::config::Kubeconfig::read_from(node.server.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
        let pods = kube::Api::<Pod>::default_namespaced(kube::Client::try_from(config).unwrap());
        let params = || AttachParams::default().container("app").stdin(true).stderr(true);
        let mut process = pods.exec("web", ["cat"], &params()).await.unwrap();
        let (mut stdin, mut stdout) = (process.stdin().unwrap(), process.stdout().unwrap());
        let status = process.take_status().unwrap();
        let bytes = pattern(3 * 1024 * 1024);
        let sent = bytes.clone();
        let sending = tokio::spawn(async move {
            stdin.write_all(&sent).await.unwrap();
            stdin.shutdown().await.unwrap();
        });
        let mut back = vec![0; bytes.len()];
        stdout.read_exact(&mut back).await.unwrap();
        assert!(back == bytes, "what was typed comes back otherwise");
        sending.await.unwrap();
        assert_eq!(status.await.unwrap().status.as_deref(), Some("Success"));

        let mut process = pods.exec("web", ["exit", "9"], &params()).await.unwrap();
        let status = process.take_status().unwrap().await.unwrap();
        assert_eq!(status.reason.as_deref(), Some("NonZeroExitCode"));
        let causes = status.details.and_then(|details| details.causes).unwrap();
        assert_eq!((causes[0].reason.as_deref(), causes[0].message.as_deref()), (Some("ExitCode"), Some("9")));

        let mut forwarding = pods.portforward("web", &[80]).await.unwrap();
        let mut stream = forwarding.take_stream(80).unwrap();
        stream.write_all(b"over there").await.unwrap();
        let mut back = [0; 10];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"over there");
    });
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(std::time::Instant::now() < until, "{what} in 20 seconds");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_a_client_leaves_behind_ends() {
    let node = FakeNode::start();
    std::fs::write(node.log_file("app", 1), entries(0..1)).unwrap();
    let scripts = || node.runtime.scripts.load(std::sync::atomic::Ordering::SeqCst);
    for kubectl in node.kubectls() {
        let following = spawn(&kubectl, &["logs", "web", "-c", "app", "-f"]);
        let typing = spawn(&kubectl, &["exec", "-i", "web", "-c", "app", "--", "cat"]);
        wait_until("both run", || (node.runtime.listeners(), scripts()) == (1, 1));
        // Killed, not asked to end.
        drop(following);
        drop(typing);
        wait_until("both have ended", || (node.runtime.listeners(), scripts()) == (0, 0));
    }
}

#[test]
fn a_kubelet_with_the_wrong_certificate_is_refused() {
    let node = FakeNode::start();
    std::fs::write(node.log_file("app", 1), entries(0..1)).unwrap();
    // Another node announces a name of the same machine: the certificate there is for node-1 and 127.0.0.1.
    let client = node.server.client().unwrap();
    node.made(&client, "/api/v1/nodes", json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-2"}}));
    let status = json!({"status": {"addresses": [{"type": "Hostname", "address": "localhost"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": node.kubelet.port()}}}});
    node.patched(&client, "/api/v1/nodes/node-2/status", status);
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "far", "namespace": "default"},
        "spec": {"nodeName": "node-2", "containers": [{"name": "app", "image": "app"}]}});
    node.made(&client, "/api/v1/namespaces/default/pods", pod);
    // The name of the node is as good as its address, wherever it says that it is.
    let addresses = json!({"status": {"addresses": [{"type": "Hostname", "address": "localhost"}]}});
    node.patched(&client, "/api/v1/nodes/node-1/status", addresses);
    for kubectl in node.kubectls() {
        assert_eq!(kubectl.ok(&["logs", "web", "-c", "app"]), lines(0..1));
        let refused = kubectl.fails(&["logs", "far", "-c", "app"]);
        assert!(refused.contains("failed to verify certificate"), "{refused}");
        let refused = kubectl.fails(&["exec", "far", "-c", "app", "--", "echo"]);
        assert!(refused.contains("failed to verify certificate"), "{refused}");
        // Whoever wants it so gets as far as the kubelet, which does not know that pod.
        let believed = kubectl.fails(&["logs", "far", "-c", "app", "--insecure-skip-tls-verify-backend"]);
        assert!(!believed.contains("certificate"), "{believed}");
    }
}

#[test]
fn a_runtime_with_a_streaming_server_of_its_own_is_passed_through_to() {
    let node = FakeNode::start();
    let address = node.tokio.block_on(web_server(("127.0.0.1", 0)));
    *node.runtime.elsewhere.lock().unwrap() = format!("http://{address}/upgrade");
    let path = "/api/v1/namespaces/default/pods/web/exec?container=app&command=elsewhere&stdout=true";
    node.tokio.block_on(upgraded(&node.server.client().unwrap(), path, "SPDY/3.1"));
    *node.runtime.elsewhere.lock().unwrap() = "http://127.0.0.1:9/gone".into();
    for kubectl in node.kubectls() {
        let failed = kubectl.fails(&["exec", "web", "-c", "app", "--", "elsewhere"]);
        assert!(failed.contains("error dialing backend: dial tcp 127.0.0.1:9"), "{failed}");
    }
}

/// As upstream's conformance test of logs asks, and browsers.
#[test]
fn logs_can_be_read_over_websocket() {
    let node = FakeNode::start();
    std::fs::write(node.log_file("app", 1), "2026-01-02T03:04:05Z stdout F container is alive\n").unwrap();
    let client = node.server.client().unwrap();
    for (protocol, expected) in [
        ("", &b"\x82\x00\x82\x13container is alive\n\x88\x02\x03\xe8"[..]),
        ("binary.k8s.io", b"\x82\x00\x82\x13container is alive\n\x88\x02\x03\xe8"),
        ("base64.binary.k8s.io", b"\x81\x00\x81\x1cY29udGFpbmVyIGlzIGFsaXZlCg==\x88\x02\x03\xe8"),
    ] {
        let (head, frames) = node.tokio.block_on(websocket(&client, LOG, protocol));
        assert!(head.starts_with("http/1.1 101"), "{head}");
        assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
        let chosen = format!("sec-websocket-protocol: {protocol}\r\n");
        assert_eq!(head.contains(&chosen), !protocol.is_empty(), "{head}");
        assert_eq!(frames, expected, "{protocol}");
    }
    let (head, _) = node.tokio.block_on(websocket(&client, LOG, "channel.k8s.io"));
    assert!(head.starts_with("http/1.1 403"), "{head}");
    let nobody = LOG.replace("container=app", "container=nobody");
    let (head, _) = node.tokio.block_on(websocket(&client, &nobody, "binary.k8s.io"));
    assert!(head.starts_with("http/1.1 400"), "{head}");
}

const LOG: &str = "/api/v1/namespaces/default/pods/web/log?container=app";

/// The head of the answer to a WebSocket's request, and the bytes behind it until the server closes.
async fn websocket(client: &testkit::Client, path: &str, protocol: &str) -> (String, Vec<u8>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = client.connect().await.unwrap();
    let protocol = if protocol.is_empty() { String::new() } else { format!("Sec-WebSocket-Protocol: {protocol}\r\n") };
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{protocol}\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(answer).unwrap().to_ascii_lowercase();
    let mut frames = Vec::new();
    if head.starts_with("http/1.1 101") {
        // However the connection is closed, all bytes before that count.
        let _ = stream.read_to_end(&mut frames).await;
    }
    (head, frames)
}

/// An address that is not the loopback's, in a network namespace that leads nowhere else.
const INSIDE: &str = "10.123.0.1";

/// Runs itself again in a network of its own: proxies refuse to reach loopback addresses.
#[test]
fn proxies_reach_nodes_pods_and_services() {
    if std::env::var_os("KNARR_TEST_OWN_NETWORK").is_none() {
        let line = format!(
            "ip link set lo up && ip addr add {INSIDE}/32 dev lo && \
             exec \"$0\" --exact proxies_reach_nodes_pods_and_services --nocapture"
        );
        let output = std::process::Command::new("unshare")
            .args(["--net", "sh", "-c", &line])
            .arg(std::env::current_exe().unwrap())
            .env("KNARR_TEST_OWN_NETWORK", "1")
            .output()
            .expect("unshare runs");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let node = FakeNode::start_at(INSIDE.parse().unwrap());
    node.tokio.block_on(web_server((INSIDE, 8080)));
    let client = node.server.client().unwrap();
    let slice = json!({"metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}, {"name": "secure", "port": node.kubelet.port()}],
        "endpoints": [{"addresses": [INSIDE], "targetRef": {"kind": "Pod", "name": "web", "namespace": "default"}}]});
    node.made(&client, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice);
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80}, {"name": "secure", "port": 443}]}});
    node.made(&client, "/api/v1/namespaces/default/services", service);
    let ask = |method: &str, path: &str, body: &'static str| {
        node.tokio.block_on(client.send(method, path, "text/plain", body)).unwrap()
    };
    let pod = "/api/v1/namespaces/default/pods/web/proxy";
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        for base in [
            pod,
            "/api/v1/namespaces/default/services/web:http/proxy",
            "/api/v1/namespaces/default/services/http:web:80/proxy",
        ] {
            let reply = ask(method, &format!("{base}/a%2Fb//c?x=y"), "sent");
            assert_eq!(reply.code, 200, "{method} {base}: {}", reply.text());
            assert_eq!(reply.text(), format!("{method} /a%2Fb//c?x=y {INSIDE}:8080 sent"));
        }
    }
    assert_eq!(ask("HEAD", &format!("{pod}/"), "").code, 200);
    let redirected = ask("GET", &format!("{pod}/redirect"), "");
    assert_eq!((redirected.code, redirected.headers["location"].to_str().unwrap()), (302, &*format!("{pod}/there")));
    let others = ["/api/v1/namespaces/default/services/web:http/proxy", "/api/v1/nodes/node-1:8080/proxy"];
    for base in [pod].iter().chain(&others) {
        for method in ["GET", "HEAD"] {
            let slashed = ask(method, &format!("{base}?a=b"), "");
            let location = slashed.headers["location"].to_str().unwrap();
            assert_eq!((slashed.code, location), (301, &*format!("{base}/?a=b")), "{method}");
        }
        // A page may have relative links; nobody reads the answer to these as one.
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let reply = ask(method, &format!("{base}?method={method}"), "sent");
            let expected = format!("{method} /?method={method} {INSIDE}:8080 sent");
            assert_eq!((reply.code, reply.text()), (200, expected));
        }
        let page = ask("GET", &format!("{base}/page"), "");
        assert_eq!(page.text(), format!("<a href=\"{base}/rewriteme\">test</a>"));
    }
    // The kubelet's own port stands in for a pod that speaks TLS: it wants to know who asks, and is not told.
    let secure = ask("GET", "/api/v1/namespaces/default/services/https:web:secure/proxy/healthz", "");
    assert_eq!((secure.code, secure.text()), (401, "Unauthorized".into()));
    assert_eq!(ask("GET", "/api/v1/nodes/node-1/proxy/healthz", "").text(), "ok");
    assert!(ask("GET", "/api/v1/nodes/node-1:8080/proxy/x", "").text().starts_with("GET /x"));
    let missing = ask("GET", "/api/v1/namespaces/default/services/nobody/proxy/", "");
    assert_eq!(missing.json()["message"], "services \"nobody\" not found");
    let closed = ask("GET", "/api/v1/namespaces/default/pods/web:9/proxy/", "");
    let expected = format!("error trying to reach service: dial tcp {INSIDE}:9: connect: connection refused");
    assert_eq!((closed.code, closed.json()["message"].as_str()), (503, Some(&*expected)));
    node.tokio.block_on(upgraded(&client, &format!("{pod}/upgrade"), "echo"));
    // Nobody gets this server to talk to itself.
    let status = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    node.patched(&client, "/api/v1/namespaces/default/pods/web/status", status);
    assert_eq!(ask("GET", &format!("{pod}/"), "").json()["message"], "address not allowed");
}

/// Says what it was asked, redirects, and echoes behind an upgrade.
async fn web_server(place: (&str, u16)) -> SocketAddr {
    use http_body_util::{BodyExt, Full};
    use hyper_util::rt::TokioIo;
    type Reply = http::Response<Full<bytes::Bytes>>;
    async fn answer(mut request: http::Request<hyper::body::Incoming>) -> Result<Reply, hyper::Error> {
        let builder = http::Response::builder();
        if request.uri().path() == "/redirect" {
            return Ok(builder.status(302).header("location", "/there").body(Full::default()).unwrap());
        }
        if request.uri().path() == "/page" {
            let builder = builder.header("content-type", "text/html; charset=utf-8");
            return Ok(builder.body(Full::new("<a href=\"/rewriteme\">test</a>".into())).unwrap());
        }
        if request.uri().path() == "/upgrade" {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let (mut read, mut write) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
                tokio::io::copy(&mut read, &mut write).await
            });
            let builder = builder.status(101).header("connection", "Upgrade").header("upgrade", "echo");
            return Ok(builder.body(Full::default()).unwrap());
        }
        assert!(!request.headers().contains_key("authorization"));
        let (parts, body) = request.into_parts();
        let body = String::from_utf8(body.collect().await?.to_bytes().to_vec()).unwrap();
        let host = parts.headers["host"].to_str().unwrap();
        let text = format!("{} {} {host} {body}", parts.method, parts.uri);
        Ok(builder.body(Full::new(text.into())).unwrap())
    }
    let listener = tokio::net::TcpListener::bind(place).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = hyper::service::service_fn(answer);
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection.with_upgrades());
        }
    });
    address
}

async fn upgraded(client: &testkit::Client, path: &str, protocol: &str) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = client.connect().await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    let answer = String::from_utf8(answer).unwrap().to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101") && answer.contains("upgrade: echo"), "{answer}");
    stream.write_all(b"there and back").await.unwrap();
    let mut back = [0; 14];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"there and back");
}
