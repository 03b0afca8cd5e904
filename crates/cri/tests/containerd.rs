//! A real containerd, started here with folders, socket and network of its own: the demo image in a real pod.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cri::{Remote, Runtime, Streaming, v1};
use futures::StreamExt;
use linux::netns::Namespace;

const RANGE: &str = "10.99.0.0/24";

struct Containerd {
    folder: tempfile::TempDir,
    /// Its own network: nothing outside can be reached from it.
    node: Namespace,
    process: Child,
}

impl Containerd {
    fn start() -> Containerd {
        let folder = tempfile::tempdir().unwrap();
        let node = Namespace::create().unwrap();
        let up = node.run(|| Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        assert!(up.unwrap());
        let root = folder.path();
        std::fs::create_dir(root.join("cni")).unwrap();
        std::fs::write(root.join("cni/10-test.conflist"), cni_configuration(root)).unwrap();
        std::fs::write(root.join("config.toml"), configuration(root)).unwrap();
        let log = std::fs::File::create(root.join("log")).unwrap();
        let mut command = Command::new("containerd");
        command.arg("--config").arg(root.join("config.toml")).stdout(Stdio::null()).stderr(log);
        let process = node.run(|| command.spawn().unwrap()).unwrap();
        Containerd { folder, node, process }
    }

    fn endpoint(&self) -> String {
        format!("unix://{}", self.folder.path().join("containerd.sock").display())
    }

    fn ctr(&self, arguments: &[&str]) -> Output {
        let socket = self.folder.path().join("containerd.sock");
        Command::new("ctr").arg("--address").arg(socket).args(["-n", "k8s.io"]).args(arguments).output().unwrap()
    }

    async fn connect(&self) -> Remote {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match Remote::connect(&self.endpoint()).await {
                Ok(remote) => return remote,
                Err(error) if Instant::now() > deadline => {
                    let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
                    panic!("{error}\n{log}")
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

impl Drop for Containerd {
    /// Also when the test has failed: tasks, then containerd, then what is mounted.
    fn drop(&mut self) {
        let tasks = String::from_utf8_lossy(&self.ctr(&["tasks", "list", "-q"]).stdout).into_owned();
        for task in tasks.lines() {
            self.ctr(&["tasks", "delete", "--force", task]);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let root = self.folder.path().display().to_string();
        for mount in mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|path| path.starts_with(&root)) {
            let _ = Command::new("umount").args(["-l", mount]).status();
        }
        // One in each tree of version 1, or the one of version 2.
        let trees =
            std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        for tree in trees.chain([Path::new("/sys/fs/cgroup").to_owned()]) {
            let _ = std::fs::remove_dir(tree.join(cgroup().trim_start_matches('/')));
        }
    }
}

fn cgroup() -> String {
    format!("/knarr-cri-test-{}", std::process::id())
}

fn configuration(root: &Path) -> String {
    let root = root.display();
    format!(
        r#"version = 2
root = "{root}/root"
state = "{root}/state"
disabled_plugins = ["io.containerd.internal.v1.restart", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
address = "{root}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
disable_apparmor = true
netns_mounts_under_state_dir = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"
sandbox_image = "{image}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{root}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
"#,
        image = demo_image::NAME
    )
}

fn cni_configuration(root: &Path) -> String {
    format!(
        r#"{{ "cniVersion": "1.0.0", "name": "test", "plugins": [ {{ "type": "bridge", "bridge": "test0", "isGateway": true,
        "ipam": {{ "type": "host-local", "dataDir": "{}/addresses", "ranges": [[{{ "subnet": "{RANGE}" }}]] }} }} ] }}"#,
        root.display()
    )
}

fn pod(containerd: &Containerd) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "web".to_owned(),
            namespace: "default".to_owned(),
            uid: format!("uid-{}", std::process::id()),
            attempt: 0,
        }),
        hostname: "web".to_owned(),
        log_directory: containerd.folder.path().join("logs").display().to_string(),
        linux: Some(v1::LinuxPodSandboxConfig { cgroup_parent: cgroup(), ..Default::default() }),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_image_runs_in_containerd() {
    let containerd = Containerd::start();
    let remote = containerd.connect().await;
    assert_eq!(remote.version().await.unwrap().runtime_name, "containerd");

    let archive = containerd.folder.path().join("demo.tar");
    std::fs::write(&archive, demo_image::archive()).unwrap();
    let arguments = ["images", "import", "--snapshotter", "native", archive.to_str().unwrap()];
    let imported = containerd.ctr(&arguments);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    let deadline = Instant::now() + Duration::from_secs(10);
    let image = loop {
        // The CRI side hears of an import by an event.
        match remote.image_status(demo_image::NAME).await.unwrap() {
            Some(image) => break image,
            None if Instant::now() > deadline => panic!("the image does not appear"),
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    assert!(image.repo_tags.contains(&demo_image::NAME.to_owned()), "{image:?}");
    assert_eq!(remote.image_status("knarr.dev/nothing:1").await.unwrap(), None);
    assert!(!remote.list_images().await.unwrap().is_empty());

    let ready = remote.status().await.unwrap().conditions;
    assert!(ready.iter().all(|condition| condition.status), "{ready:?}");

    // This containerd may be older than the call for events; either way they come.
    let mut events = remote.events().await.unwrap();
    let sandbox = remote.run_pod_sandbox(pod(&containerd), "").await.unwrap();
    let address = remote.pod_sandbox_status(&sandbox).await.unwrap().network.unwrap().ip;
    assert_eq!(address, "10.99.0.2");
    // The image stands in for the pause image, too, so the sandbox itself is a web server.
    let (url, program) = (format!("http://{address}:8080/hostname"), containerd.folder.path().join("demo"));
    std::fs::write(&program, demo_image::program()).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // It is started, which does not mean that it listens.
    loop {
        let got = containerd.node.run(|| Command::new(&program).args(["get", &url]).output().unwrap()).unwrap();
        if got.stdout == b"web\n" {
            break;
        }
        assert!(Instant::now() < deadline, "{}", String::from_utf8_lossy(&got.stderr));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let config = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: image.id.clone(), ..Default::default() }),
        command: ["/bin/sh", "-c", "echo hello; exec sleep infinity"].map(str::to_owned).to_vec(),
        log_path: "main.log".to_owned(),
        linux: Some(v1::LinuxContainerConfig::default()),
        ..Default::default()
    };
    let id = remote.create_container(&sandbox, config, pod(&containerd)).await.unwrap();
    remote.start_container(&id).await.unwrap();
    let status = remote.container_status(&id).await.unwrap();
    assert_eq!(status.state, v1::ContainerState::ContainerRunning as i32);

    let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let done = remote.exec_sync(&id, &command(&["cat", "/etc/passwd"]), 10).await.unwrap();
    assert!(done.exit_code == 0 && done.stdout.starts_with(b"root:x:0:0:"), "{done:?}");
    assert_eq!(remote.exec_sync(&id, &command(&["exit", "3"]), 10).await.unwrap().exit_code, 3);
    let late = remote.exec_sync(&id, &command(&["sleep", "30"]), 1).await.unwrap_err();
    assert_eq!(late.code, cri::Code::DeadlineExceeded, "{late}");
    let request =
        v1::ExecRequest { container_id: id.clone(), cmd: command(&["id"]), stdout: true, ..Default::default() };
    let Streaming::Url(url) = remote.exec(request).await.unwrap() else { panic!("an address is expected") };
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");

    let own = |stats: &v1::ContainerStats| stats.attributes.as_ref().unwrap().id == id;
    assert!(remote.list_container_stats().await.unwrap().iter().any(own));
    assert!(remote.list_pod_sandbox_stats().await.is_ok());
    assert!(!remote.image_fs_info().await.unwrap().image_filesystems.is_empty());
    remote
        .update_container_resources(&id, v1::LinuxContainerResources { cpu_shares: 128, ..Default::default() })
        .await
        .unwrap();
    remote.reopen_container_log(&id).await.unwrap();
    remote.update_pod_cidr(RANGE).await.unwrap();
    let log = std::fs::read_to_string(containerd.folder.path().join("logs/main.log")).unwrap();
    assert!(log.ends_with(" stdout F hello\n"), "{log}");

    let started = Instant::now();
    remote.stop_container(&id, 20).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(15), "sleep ends on SIGTERM");
    assert_eq!(remote.container_status(&id).await.unwrap().exit_code, 143);
    let mut heard = Vec::new();
    while heard.last() != Some(&(v1::ContainerEventType::ContainerStoppedEvent as i32)) {
        let event = tokio::time::timeout(Duration::from_secs(15), events.next()).await.expect("an event").unwrap();
        if event.container_id == id {
            heard.push(event.container_event_type);
        }
    }
    assert_eq!(heard, [0, 1, 2]);

    remote.remove_container(&id).await.unwrap();
    remote.remove_container(&id).await.unwrap();
    assert_eq!(remote.container_status(&id).await.unwrap_err().code, cri::Code::NotFound);
    remote.stop_pod_sandbox(&sandbox).await.unwrap();
    remote.remove_pod_sandbox(&sandbox).await.unwrap();
    remote.remove_pod_sandbox(&sandbox).await.unwrap();
    assert!(remote.list_pod_sandboxes(None).await.unwrap().is_empty());
    remote.remove_image(demo_image::NAME).await.unwrap();
    assert_eq!(remote.image_status(demo_image::NAME).await.unwrap(), None);
}
