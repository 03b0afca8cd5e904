//! The CRI socket of a whole node, asked as `crictl` and `critest` ask: pods, containers, commands, streams, images, statistics,
//! metrics, events and settings; and that the kubelet beside it leaves alone what it did not make. Then RuntimeClasses, whose
//! handlers are OCI runtimes of the host.

#[path = "support/node.rs"]
mod node;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cri::remote::Remote;
use cri::{Runtime, v1};
use futures::{SinkExt, StreamExt};
use node::{IMAGE, Node, PATIENCE, script};
use serde_json::{Value, json};
use testkit::machine::connect_within;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// A client of the socket.
struct Client {
    tokio: tokio::runtime::Runtime,
    remote: Remote,
    network: PathBuf,
}

impl Client {
    fn of(node: &Node) -> Client {
        let machine = node.server.machine();
        let found = machine.shell("find /run/knarr -name cri.sock").unwrap();
        let socket = machine.path(found.trim());
        let tokio = tokio::runtime::Runtime::new().unwrap();
        let remote =
            tokio.block_on(Remote::connect(&format!("unix://{}", socket.display()))).expect("somebody answers");
        Client { tokio, remote, network: machine.network() }
    }

    /// Calls one of the interface's methods.
    fn call<T>(&self, asked: impl Future<Output = T>) -> T {
        self.tokio.block_on(asked)
    }

    fn pod(&self, name: &str) -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.into(),
                uid: format!("{name}-uid"),
                namespace: "critest".into(),
                attempt: 0,
            }),
            hostname: name.into(),
            log_directory: format!("/var/log/pods/critest_{name}"),
            labels: [("app".to_owned(), name.to_owned())].into(),
            annotations: [("note".to_owned(), "kept".to_owned())].into(),
            ..Default::default()
        }
    }

    fn container(&self, name: &str, script: &str) -> v1::ContainerConfig {
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: IMAGE.into(), ..Default::default() }),
            command: ["sh", "-c", script].map(String::from).to_vec(),
            log_path: format!("{name}.log"),
            labels: [("container".to_owned(), name.to_owned())].into(),
            ..Default::default()
        }
    }

    /// A pod with one container that runs.
    fn run(&self, name: &str, script: &str) -> (String, String) {
        let sandbox = self.call(self.remote.run_pod_sandbox(self.pod(name), "")).unwrap();
        let config = self.container("main", script);
        let container = self.call(self.remote.create_container(&sandbox, config, self.pod(name))).unwrap();
        self.call(self.remote.start_container(&container)).unwrap();
        (sandbox, container)
    }

    fn exec(&self, container: &str, script: &str) -> (String, String, i32) {
        let command = ["sh", "-c", script].map(String::from);
        let done = self.call(self.remote.exec_sync(container, &command, 20)).unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(done.stdout), text(done.stderr), done.exit_code)
    }

    /// Connects to an address that the runtime gave, types, and collects what comes until the end, by channel.
    fn stream(&self, url: &str, protocol: &str, typed: &[u8], enough: impl Fn(&[String; 4]) -> bool) -> [String; 4] {
        let address = url.strip_prefix("http://").and_then(|rest| rest.split('/').next()).unwrap();
        assert!(address.starts_with("127.0.0.1:"), "streams are for this machine alone: {url}");
        let connected = connect_within(&self.network, address).unwrap();
        connected.set_nonblocking(true).unwrap();
        let mut request = url.replacen("http", "ws", 1).into_client_request().unwrap();
        request.headers_mut().insert("Sec-WebSocket-Protocol", protocol.parse().unwrap());
        self.call(async {
            let stream = tokio::net::TcpStream::from_std(connected).unwrap();
            let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
            if !typed.is_empty() {
                socket.send(Message::binary([&[0], typed].concat())).await.unwrap();
            }
            let mut seen: [String; 4] = Default::default();
            while let Ok(Some(Ok(message))) = tokio::time::timeout(PATIENCE, socket.next()).await {
                let data = message.into_data();
                if let Some((channel, text)) = data.split_first()
                    && let Some(seen) = seen.get_mut(usize::from(*channel))
                {
                    seen.push_str(&String::from_utf8_lossy(text));
                }
                if enough(&seen) {
                    break;
                }
            }
            seen
        })
    }
}

fn named(list: &[v1::PodSandbox]) -> Vec<String> {
    let mut names: Vec<String> = list.iter().map(|pod| pod.metadata.clone().unwrap().name).collect();
    names.sort();
    names
}

#[test]
fn crictl_works_and_the_kubelet_leaves_its_pods_alone() {
    let mut node = Node::start(&[]);
    node.create_pod(&script("own", "Always", "exec sleep infinity"));
    node.ready("own");
    let client = Client::of(&node);
    told(&client);
    let (sandbox, container) = client.run("made", "echo hello; exec tcp-echo 8080");
    pods_and_containers(&client, &sandbox, &container);
    commands_and_streams(&client, &sandbox, &container);
    statistics(&client, &sandbox, &container);
    images(&client);
    refusals(&client, &sandbox);

    // The kubelet starts again, looks for orphans, and finds none in it.
    drop(client);
    node.server.kill().unwrap();
    node.server.restart().unwrap();
    node.ready("own");
    let client = Client::of(&node);
    let pid = |client: &Client| client.exec(&container, "cat /proc/1/stat").0.split(' ').next().map(str::to_owned);
    assert_eq!(pid(&client).as_deref(), Some("1"), "it runs on");
    assert_eq!(named(&client.call(client.remote.list_pod_sandboxes(None)).unwrap()), ["made", "own"]);
    client.call(client.remote.stop_container(&container, 20)).unwrap();
    let status = client.call(client.remote.container_status(&container)).unwrap();
    assert_eq!(status.state(), v1::ContainerState::ContainerExited);
    assert_ne!(status.exit_code, 137, "it heard its stop signal");
    client.call(client.remote.stop_pod_sandbox(&sandbox)).unwrap();
    client.call(client.remote.remove_pod_sandbox(&sandbox)).unwrap();
    assert_eq!(named(&client.call(client.remote.list_pod_sandboxes(None)).unwrap()), ["own"]);
    assert_eq!(node::restarts(&node.pod("own")), 0);
}

/// Version, status, settings.
fn told(client: &Client) {
    let version = client.call(client.remote.version()).unwrap();
    assert_eq!((version.runtime_name.as_str(), version.runtime_api_version.as_str()), ("knarr", "v1"));
    let (mut runtime, _) = client.remote.clients();
    let status = client.call(runtime.status(v1::StatusRequest { verbose: true })).unwrap().into_inner();
    let conditions = status.status.unwrap().conditions;
    assert!(conditions.len() == 2 && conditions.iter().all(|condition| condition.status), "{conditions:?}");
    let info: Value = serde_json::from_str(&status.info["info"]).unwrap();
    assert!(info["socket"].as_str().unwrap().ends_with("/cri.sock"));
    assert!(status.runtime_handlers.iter().any(|handler| handler.name.is_empty()));
    let config = client.call(runtime.runtime_config(v1::RuntimeConfigRequest {})).unwrap().into_inner();
    assert_eq!(config.linux.unwrap().cgroup_driver(), v1::CgroupDriver::Cgroupfs);
    // Without a range there is nothing to change.
    client.call(runtime.update_runtime_config(v1::UpdateRuntimeConfigRequest::default())).unwrap();
}

fn pods_and_containers(client: &Client, sandbox: &str, container: &str) {
    let (mut runtime, _) = client.remote.clients();
    let all = client.call(client.remote.list_pod_sandboxes(None)).unwrap();
    assert_eq!(named(&all), ["made", "own"]);
    let filter = v1::PodSandboxFilter { label_selector: [("app".into(), "made".into())].into(), ..Default::default() };
    assert_eq!(named(&client.call(client.remote.list_pod_sandboxes(Some(filter.clone()))).unwrap()), ["made"]);
    let request = v1::StreamPodSandboxesRequest { filter: Some(filter) };
    let mut streamed = client.call(runtime.stream_pod_sandboxes(request)).unwrap().into_inner();
    let first = client.call(streamed.next()).unwrap().unwrap();
    assert_eq!(named(&first.pod_sandboxes), ["made"]);
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: sandbox.into(), verbose: true };
    let answer = client.call(runtime.pod_sandbox_status(request)).unwrap().into_inner();
    let status = answer.status.unwrap();
    assert_eq!((status.state(), status.annotations["note"].as_str()), (v1::PodSandboxState::SandboxReady, "kept"));
    assert!(!status.network.unwrap().ip.is_empty(), "it has an address");
    assert!(serde_json::from_str::<Value>(&answer.info["info"]).unwrap()["pid"].as_i64().unwrap() > 1);
    let request = v1::ContainerStatusRequest { container_id: container.into(), verbose: true };
    let answer = client.call(runtime.container_status(request)).unwrap().into_inner();
    let status = answer.status.unwrap();
    assert_eq!((status.state(), status.labels["container"].as_str()), (v1::ContainerState::ContainerRunning, "main"));
    assert!(serde_json::from_str::<Value>(&answer.info["info"]).unwrap()["pid"].as_i64().unwrap() > 1);
    let request = v1::StreamContainersRequest {
        filter: Some(v1::ContainerFilter { pod_sandbox_id: sandbox.into(), ..Default::default() }),
    };
    let mut streamed = client.call(runtime.stream_containers(request)).unwrap().into_inner();
    assert_eq!(client.call(streamed.next()).unwrap().unwrap().containers[0].id, container);
    client.call(client.remote.reopen_container_log(container)).unwrap();
    let resources = v1::LinuxContainerResources { cpu_shares: 512, ..Default::default() };
    client.call(client.remote.update_container_resources(container, resources)).unwrap();
    let status = client.call(client.remote.container_status(container)).unwrap();
    assert_eq!(status.resources.unwrap().linux.unwrap().cpu_shares, 512);
    let request = v1::UpdatePodSandboxResourcesRequest { pod_sandbox_id: sandbox.into(), ..Default::default() };
    client.call(client.remote.update_pod_sandbox_resources(request)).unwrap();

    // A container that ends tells so, with its code.
    let mut events = client.call(client.remote.events()).unwrap();
    let config = client.container("second", "exit 5");
    let second = client.call(client.remote.create_container(sandbox, config, client.pod("made"))).unwrap();
    client.call(client.remote.start_container(&second)).unwrap();
    let stopped = client.call(async {
        loop {
            let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("in time").expect("events go on");
            if event.container_id == second
                && event.container_event_type() == v1::ContainerEventType::ContainerStoppedEvent
            {
                return event;
            }
        }
    });
    let statuses = stopped.containers_statuses;
    assert_eq!(statuses.iter().find(|status| status.id == second).unwrap().exit_code, 5);
    client.call(client.remote.remove_container(&second)).unwrap();
}

fn commands_and_streams(client: &Client, sandbox: &str, container: &str) {
    assert_eq!(client.exec(container, "echo out; echo err >&2; exit 4"), ("out\n".into(), "err\n".into(), 4));
    let (mut runtime, _) = client.remote.clients();
    let request = |script: &str| v1::ExecRequest {
        container_id: container.into(),
        cmd: ["sh", "-c", script].map(String::from).to_vec(),
        stdin: true,
        stdout: true,
        stderr: true,
        tty: false,
    };
    let exec = request("echo got; echo beside >&2; exit 6");
    let url = client.call(runtime.exec(exec)).unwrap().into_inner().url;
    let seen = client.stream(&url, "v5.channel.k8s.io", b"", |_| false);
    assert_eq!((seen[1].as_str(), seen[2].as_str()), ("got\n", "beside\n"));
    assert!(seen[3].contains("\"ExitCode\"") && seen[3].contains("\"6\""), "{}", seen[3]);
    // The address was for one connection.
    let address = url.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
    let path = url.split_once(&address).unwrap().1.to_owned();
    let again = client.call(async {
        let stream = connect_within(&client.network, &address).unwrap();
        stream.set_nonblocking(true).unwrap();
        let stream = tokio::net::TcpStream::from_std(stream).unwrap();
        let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
        request.headers_mut().insert("Sec-WebSocket-Protocol", "v5.channel.k8s.io".parse().unwrap());
        tokio_tungstenite::client_async(request, stream).await.map(drop)
    });
    assert!(again.unwrap_err().to_string().contains("404"));

    let cat = v1::ExecRequest { cmd: vec!["cat".into()], ..request("") };
    let typed = client.call(runtime.exec(cat)).unwrap().into_inner().url;
    let seen = client.stream(&typed, "v5.channel.k8s.io", b"typed\n", |seen| seen[1].ends_with('\n'));
    assert_eq!(seen[1], "typed\n");

    let attach = v1::AttachRequest { container_id: container.into(), stdout: true, ..Default::default() };
    let url = client.call(runtime.attach(attach)).unwrap().into_inner().url;
    assert!(url.contains("/attach/"), "{url}");
    let forward = |port| v1::PortForwardRequest { pod_sandbox_id: sandbox.into(), port: vec![port] };
    let url = client.call(runtime.port_forward(forward(8080))).unwrap().into_inner().url;
    let seen = client.stream(&url, "v4.channel.k8s.io", b"ping", |seen| seen[0].ends_with("ping"));
    assert!(seen[0].ends_with("ping"), "{seen:?}");
    // Nobody listens there: that is told on the stream of errors.
    let url = client.call(runtime.port_forward(forward(8081))).unwrap().into_inner().url;
    let seen = client.stream(&url, "v4.channel.k8s.io", b"", |seen| seen[1].contains("8081"));
    assert!(seen[1].contains("error forwarding port 8081"), "{seen:?}");
}

fn statistics(client: &Client, sandbox: &str, container: &str) {
    let (mut runtime, _) = client.remote.clients();
    let request = v1::ContainerStatsRequest { container_id: container.into() };
    let stats = client.call(runtime.container_stats(request)).unwrap().into_inner().stats.unwrap();
    assert!(stats.memory.unwrap().usage_bytes.unwrap().value > 0);
    let filter = v1::ContainerStatsFilter { pod_sandbox_id: sandbox.into(), ..Default::default() };
    let request = v1::ListContainerStatsRequest { filter: Some(filter.clone()) };
    assert_eq!(client.call(runtime.list_container_stats(request)).unwrap().into_inner().stats.len(), 1);
    let request = v1::StreamContainerStatsRequest { filter: Some(filter) };
    let mut streamed = client.call(runtime.stream_container_stats(request)).unwrap().into_inner();
    assert_eq!(client.call(streamed.next()).unwrap().unwrap().container_stats.len(), 1);
    let request = v1::PodSandboxStatsRequest { pod_sandbox_id: sandbox.into() };
    let stats = client.call(runtime.pod_sandbox_stats(request)).unwrap().into_inner().stats.unwrap();
    assert_eq!(stats.linux.unwrap().containers.len(), 1);
    let request = v1::StreamPodSandboxStatsRequest::default();
    let mut streamed = client.call(runtime.stream_pod_sandbox_stats(request)).unwrap().into_inner();
    assert_eq!(client.call(streamed.next()).unwrap().unwrap().pod_sandbox_stats.len(), 2, "the kubelet's pod, too");

    let descriptors = client.call(runtime.list_metric_descriptors(v1::ListMetricDescriptorsRequest {}));
    let known: Vec<String> = descriptors.unwrap().into_inner().descriptors.into_iter().map(|one| one.name).collect();
    let metrics = client.call(runtime.list_pod_sandbox_metrics(v1::ListPodSandboxMetricsRequest {})).unwrap();
    let pods = metrics.into_inner().pod_metrics;
    let own = pods.iter().find(|pod| pod.pod_sandbox_id == sandbox).expect("the pod's metrics");
    let of_container = &own.container_metrics[0];
    assert_eq!(of_container.container_id, container);
    assert!(of_container.metrics.iter().all(|metric| known.contains(&metric.name)));
    let memory =
        of_container.metrics.iter().find(|metric| metric.name == "container_memory_working_set_bytes").unwrap();
    assert!(memory.value.unwrap().value > 0 && memory.label_values[1] == "main");
    let received = own.metrics.iter().any(|metric| metric.name == "container_network_receive_bytes_total");
    assert!(received, "{:?}", own.metrics);
    let mut streamed =
        client.call(runtime.stream_pod_sandbox_metrics(v1::StreamPodSandboxMetricsRequest {})).unwrap().into_inner();
    assert_eq!(client.call(streamed.next()).unwrap().unwrap().pod_sandbox_metrics.len(), 2);
}

fn images(client: &Client) {
    let (_, mut images) = client.remote.clients();
    let all = client.call(client.remote.list_images()).unwrap();
    assert!(all.iter().any(|image| image.repo_tags.iter().any(|tag| tag.contains("demo"))), "{all:?}");
    let spec = |image: &str| Some(v1::ImageSpec { image: image.into(), ..Default::default() });
    let request = v1::ImageStatusRequest { image: spec(IMAGE), verbose: true };
    assert!(client.call(images.image_status(request)).unwrap().into_inner().image.is_some());
    let request = v1::ImageStatusRequest { image: spec("nobody.example/nothing:1"), verbose: false };
    assert!(client.call(images.image_status(request)).unwrap().into_inner().image.is_none());
    let filter = Some(v1::ImageFilter { image: spec(IMAGE) });
    let mut streamed = client.call(images.stream_images(v1::StreamImagesRequest { filter })).unwrap().into_inner();
    assert_eq!(client.call(streamed.next()).unwrap().unwrap().images.len(), 1);
    let usage = client.call(client.remote.image_fs_info()).unwrap();
    assert!(usage.image_filesystems[0].used_bytes.unwrap().value > 0);
}

fn refusals(client: &Client, sandbox: &str) {
    let (mut runtime, _) = client.remote.clients();
    let refused = client.call(runtime.checkpoint_container(v1::CheckpointContainerRequest::default())).unwrap_err();
    assert!(refused.message().contains("CRIU"), "{refused}");
    let again = client.call(client.remote.run_pod_sandbox(client.pod("made"), "")).unwrap_err();
    assert!(again.message.contains(&format!("is reserved for {sandbox:?}")), "{again}");
    let unknown = client.call(client.remote.container_status("nobody")).unwrap_err();
    assert_eq!(unknown.code, cri::Code::NotFound);
    let handler = client.call(client.remote.run_pod_sandbox(client.pod("other"), "nothing")).unwrap_err();
    assert_eq!(handler.message, "failed to get sandbox runtime: no runtime for \"nothing\" is configured");
}

#[test]
fn only_root_may_connect() {
    let node = Node::start(&[]);
    let machine = node.server.machine();
    let socket = machine.shell("find /run/knarr -name cri.sock").unwrap().trim().to_owned();
    assert_eq!(machine.shell(&format!("stat -c '%a %u %g' {socket}")).unwrap().trim(), "600 0 0");
    // Somebody who was let through by a careless mode is refused by who he is.
    machine.shell(&format!("chmod 777 {socket} $(dirname {socket})")).unwrap();
    // In Perl, which every Debian has where anybody may run it.
    let connect = format!(
        "use IO::Socket::UNIX; $SIG{{PIPE}} = 'IGNORE'; alarm 20; \
         my $s = IO::Socket::UNIX->new(Peer => '{socket}') or die \"$!\\n\"; \
         syswrite($s, \"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\0\\0\\0\\4\\0\\0\\0\\0\\0\"); \
         print sysread($s, my $b, 1) ? 'answer' : 'closed';\n"
    );
    let script = node.server.data_dir().join("connect.pl");
    std::fs::write(&script, connect).unwrap();
    let by = |user: &str| {
        let run = format!("setpriv --reuid={user} --clear-groups perl - < {} 2>&1; true", script.display());
        machine.shell(&run).unwrap()
    };
    assert_eq!(by("0").trim(), "answer");
    let seen = by("65534");
    assert!(seen.contains("closed") || seen.contains("reset") || seen.contains("Broken pipe"), "{seen}");
}

fn class(node: &Node, name: &str, handler: &str, more: Value) {
    let mut class =
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler});
    class.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    node.create("/apis/node.k8s.io/v1/runtimeclasses", &class);
}

fn with_class(mut pod: Value, class: &str) -> Value {
    pod["spec"]["runtimeClassName"] = class.into();
    pod
}

#[test]
fn a_runtime_class_names_a_runtime_of_the_host() {
    let node = Node::start(&["--runtime-handler", "host=/usr/sbin/runc"]);
    let handlers = node.get("/api/v1/nodes/node-1")["status"]["runtimeHandlers"].clone();
    let names: Vec<&str> =
        handlers.as_array().unwrap().iter().map(|handler| handler["name"].as_str().unwrap_or("")).collect();
    for name in ["", "host", "knarr", "runc"] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    assert_eq!(node.get("/api/v1/nodes/node-1")["status"]["features"]["supplementalGroupsPolicy"], true);
    let overhead = json!({"overhead": {"podFixed": {"cpu": "10m", "memory": "16Mi"}}});
    class(&node, "by-runc", "host", overhead);
    class(&node, "by-nobody", "nothing", json!({}));
    let limited = |pod: Value| {
        let mut pod = pod;
        pod["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "64Mi", "cpu": "500m"}});
        pod
    };
    let read = "echo started; exec sleep infinity";
    node.create_pod(&limited(with_class(script("hosted", "Always", read), "by-runc")));
    let pod = node.ready("hosted");
    assert_eq!(pod["spec"]["overhead"], json!({"cpu": "10m", "memory": "16Mi"}));
    assert_eq!(node.log("hosted"), "started\n");
    assert_eq!(node.exec("hosted", &["sh", "-c", "echo inside"]), "inside\n");
    // runc keeps its state of the container where it was told to.
    let id = node::container_id(&pod);
    let state = format!("find /run/knarr -path '*/oci/{id}/state.json'");
    assert_eq!(node.server.machine().shell(&state).unwrap().lines().count(), 1);
    // The pod may use its own limit and the overhead.
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let limit = format!(
        "for folder in $(find /sys/fs/cgroup -type d -name pod{uid}); do cat $folder/memory.max $folder/memory.limit_in_bytes 2>/dev/null; done; true"
    );
    assert_eq!(node.server.machine().shell(&limit).unwrap().trim(), (80_u64 << 20).to_string());

    node.create_pod(&with_class(script("lost", "Always", "sleep 1000"), "by-nobody"));
    let event = node.until_event("lost", "FailedCreatePodSandBox");
    let expected = "FailedCreatePodSandBox: Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for \"nothing\" is configured";
    assert_eq!(event, expected);
    node.server.kubectl().ok(&["delete", "pod", "hosted", "--wait=false"]);
    let deadline = Instant::now() + PATIENCE;
    while !node.pod("hosted").is_null() {
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(node.server.machine().shell(&state).unwrap(), "", "nothing of it is left");
}
