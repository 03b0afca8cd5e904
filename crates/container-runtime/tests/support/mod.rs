//! A runtime on folders of its own, with an image made of busybox alone and a network that only counts.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use container_runtime::image::{Credentials, Image, ImageConfig, Snapshot, Usage};
use container_runtime::image_store::ImageStore;
use container_runtime::{Config, ContainerRuntime};
use cri::{Addresses, Network, Runtime, SandboxNetwork, v1};
use parking_lot::Mutex;

pub const IMAGE: &str = "registry.example/busybox:1";
const APPLETS: &[&str] = &[
    "sh", "cat", "echo", "sleep", "ls", "id", "pwd", "env", "true", "false", "grep", "wc", "yes", "head", "tail", "dd",
    "kill", "stty", "tty", "nc", "mount", "mkdir", "touch", "hostname", "ps", "readlink", "seq", "printf", "stat",
    "chmod", "ln", "tr",
];

/// Everything a test made goes when this is dropped.
pub struct World {
    pub folder: tempfile::TempDir,
    pub network: Arc<CountingNetwork>,
    pub images: Arc<FolderImages>,
    pub shim_answers_within: Duration,
    pub handlers: BTreeMap<String, PathBuf>,
    runtime: Option<ContainerRuntime>,
    cgroup: String,
}

#[derive(Default)]
pub struct CountingNetwork {
    pub attached: Mutex<Vec<String>>,
    pub seen: Mutex<Vec<PathBuf>>,
    next: AtomicU32,
}

#[async_trait]
impl Network for CountingNetwork {
    async fn attach(&self, pod: &SandboxNetwork) -> cri::Result<Addresses> {
        self.attached.lock().push(pod.sandbox.clone());
        self.seen.lock().push(pod.netns.clone());
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 2;
        Ok(Addresses { ips: vec![std::net::Ipv4Addr::from(0x0a2a_0000 + number).into()] })
    }

    async fn detach(&self, pod: &SandboxNetwork) -> cri::Result<()> {
        self.attached.lock().retain(|id| *id != pod.sandbox);
        Ok(())
    }

    async fn keep_only(&self, sandboxes: &[String]) -> cri::Result<()> {
        self.attached.lock().retain(|id| sandboxes.contains(id));
        Ok(())
    }

    async fn set_pod_cidr(&self, _: &str) -> cri::Result<()> {
        Ok(())
    }

    async fn not_ready(&self) -> Option<String> {
        None
    }
}

/// One image in one folder.
pub struct FolderImages {
    root: PathBuf,
    pub image: Mutex<Arc<Image>>,
}

impl FolderImages {
    pub fn new(root: &Path) -> Arc<FolderImages> {
        let layer = root.join("layer");
        for folder in ["bin", "etc", "tmp", "proc", "dev", "sys", "home/user"] {
            std::fs::create_dir_all(layer.join(folder)).unwrap();
        }
        std::fs::copy("/bin/busybox", layer.join("bin/busybox")).unwrap();
        for applet in APPLETS {
            std::os::unix::fs::symlink("busybox", layer.join("bin").join(applet)).unwrap();
        }
        std::fs::write(
            layer.join("etc/passwd"),
            "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
        )
        .unwrap();
        std::fs::write(layer.join("etc/group"), "root:x:0:\nuser:x:1000:\n").unwrap();
        std::fs::write(layer.join("etc/script"), "no program").unwrap();
        let image = Image {
            id: format!("sha256:{}", "a".repeat(64)),
            repo_tags: vec![IMAGE.to_string()],
            repo_digests: vec![],
            size: 1,
            pinned: false,
            config: ImageConfig { cmd: vec!["sh".to_string()], ..ImageConfig::default() },
        };
        Arc::new(FolderImages { root: root.to_owned(), image: Mutex::new(Arc::new(image)) })
    }

    pub fn snapshots(&self) -> Vec<String> {
        let all = std::fs::read_dir(self.root.join("snapshots")).into_iter().flatten();
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

#[async_trait]
impl ImageStore for FolderImages {
    fn list(&self) -> Vec<Arc<Image>> {
        vec![self.image.lock().clone()]
    }

    fn get(&self, image: &str) -> Option<Arc<Image>> {
        let known = self.image.lock().clone();
        (known.id == image || known.repo_tags.contains(&image.to_string())).then_some(known)
    }

    async fn pull(&self, _: &str, _: Option<Credentials>) -> cri::Result<String> {
        Ok(self.image.lock().id.clone())
    }

    async fn import(&self, _: &Path) -> cri::Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn remove(&self, _: &str) -> cri::Result<()> {
        Ok(())
    }

    async fn prepare(&self, _: &str, container: &str) -> cri::Result<Snapshot> {
        let folder = self.root.join("snapshots").join(container);
        let snapshot =
            Snapshot { lower: vec![self.root.join("layer")], upper: folder.join("upper"), work: folder.join("work") };
        std::fs::create_dir_all(&snapshot.upper).unwrap();
        std::fs::create_dir_all(&snapshot.work).unwrap();
        Ok(snapshot)
    }

    async fn release(&self, container: &str) -> cri::Result<()> {
        let _ = std::fs::remove_dir_all(self.root.join("snapshots").join(container));
        Ok(())
    }

    async fn usage(&self) -> cri::Result<Usage> {
        Ok(Usage { bytes: 1, inodes: 1 })
    }

    async fn writable_usage(&self, _: &str) -> cri::Result<Usage> {
        Ok(Usage { bytes: 1, inodes: 1 })
    }
}

impl World {
    pub async fn new() -> World {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().unwrap();
        let cgroup = format!("/knarr-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut world = World {
            network: Arc::default(),
            images: FolderImages::new(&folder.path().join("images")),
            shim_answers_within: Duration::from_secs(60),
            handlers: BTreeMap::new(),
            runtime: None,
            cgroup,
            folder,
        };
        world.open().await;
        world
    }

    pub fn config(&self) -> Config {
        Config {
            root_dir: self.folder.path().join("root"),
            state_dir: self.folder.path().join("state"),
            shim_program: PathBuf::from(env!("CARGO_BIN_EXE_container-shim")),
            network: self.network.clone(),
            registries: Default::default(),
            handlers: self.handlers.clone(),
            layer_pulls_max: 1,
            log_max_size: 1 << 20,
            log_max_files: 3,
            shim_answers_within: self.shim_answers_within,
        }
    }

    /// knarr starts.
    pub async fn open(&mut self) {
        assert!(self.runtime.is_none());
        self.runtime = Some(ContainerRuntime::with_images(self.config(), self.images.clone()).await.unwrap());
    }

    /// knarr ends, as if it were killed.
    pub fn close(&mut self) {
        self.runtime = None;
    }

    pub fn runtime(&self) -> &ContainerRuntime {
        self.runtime.as_ref().unwrap()
    }

    pub fn sandbox_config(&self, name: &str) -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_string(),
                uid: format!("uid-{name}"),
                namespace: "default".to_string(),
                attempt: 0,
            }),
            hostname: name.to_string(),
            log_directory: self.folder.path().join("logs").join(name).display().to_string(),
            dns_config: Some(v1::DnsConfig {
                servers: vec!["10.96.0.10".to_string()],
                searches: vec!["default.svc.cluster.local".to_string()],
                options: vec!["ndots:5".to_string()],
            }),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/{name}", self.cgroup),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(namespaces()),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    pub fn container_config(&self, name: &str, command: &[&str]) -> v1::ContainerConfig {
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.to_string(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: IMAGE.to_string(), ..Default::default() }),
            command: command.iter().map(ToString::to_string).collect(),
            log_path: format!("{name}/0.log"),
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources::default()),
                security_context: Some(v1::LinuxContainerSecurityContext {
                    namespace_options: Some(namespaces()),
                    seccomp: Some(v1::SecurityProfile {
                        profile_type: v1::security_profile::ProfileType::RuntimeDefault as i32,
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
            }),
            ..Default::default()
        }
    }

    pub async fn sandbox(&self, name: &str) -> String {
        self.runtime().run_pod_sandbox(self.sandbox_config(name), "").await.unwrap()
    }

    pub async fn create(&self, sandbox: &str, pod: &str, config: v1::ContainerConfig) -> String {
        self.runtime().create_container(sandbox, config, self.sandbox_config(pod)).await.unwrap()
    }

    /// A pod with one container that runs this shell script.
    pub async fn run(&self, name: &str, script: &str) -> (String, String) {
        let sandbox = self.sandbox(name).await;
        let config = self.container_config("main", &["sh", "-c", script]);
        let container = self.create(&sandbox, name, config).await;
        self.runtime().start_container(&container).await.unwrap();
        (sandbox, container)
    }

    pub async fn status(&self, container: &str) -> v1::ContainerStatus {
        self.runtime().container_status(container).await.unwrap()
    }

    /// Its status, once it has ended.
    pub async fn ended(&self, container: &str) -> v1::ContainerStatus {
        wait("the container ends", || async {
            let status = self.status(container).await;
            (status.state() == v1::ContainerState::ContainerExited).then_some(status)
        })
        .await
    }

    pub fn log(&self, pod: &str, container: &str) -> String {
        let path = self.folder.path().join("logs").join(pod).join(container).join("0.log");
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// The lines of a log without their times.
    pub fn lines(&self, pod: &str, container: &str) -> Vec<String> {
        let log = self.log(pod, container);
        log.lines().map(|line| line.split_once(' ').unwrap().1.to_string()).collect()
    }

    pub async fn exec(&self, container: &str, script: &str) -> cri::ExecSync {
        let command = ["sh", "-c", script].map(String::from);
        self.runtime().exec_sync(container, &command, 20).await.unwrap()
    }

    pub async fn output(&self, container: &str, script: &str) -> String {
        let result = self.exec(container, script).await;
        assert_eq!(result.exit_code, 0, "{script}: {}", String::from_utf8_lossy(&result.stderr));
        String::from_utf8(result.stdout).unwrap().trim_end().to_string()
    }
}

pub fn namespaces() -> v1::NamespaceOption {
    v1::NamespaceOption { pid: v1::NamespaceMode::Container as i32, ..Default::default() }
}

pub async fn wait<T, F: Future<Output = Option<T>>>(what: &str, mut check: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Ends by number whatever a failed test has left, and takes its mounts and groups away.
impl Drop for World {
    fn drop(&mut self) {
        self.runtime = None;
        let state = self.folder.path().join("state");
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let text = String::from_utf8_lossy(&arguments).replace('\0', " ");
            if text.starts_with("knarr shim ") && text.contains(state.to_str().unwrap()) {
                let _ = linux::process::kill(pid, 9);
            }
        }
        let cgroups = linux::cgroup::Cgroups::detect();
        if let Ok(group) = cgroups.group(&self.cgroup) {
            let _ = group.kill();
            let _ = group.remove();
        }
        for entry in std::fs::read_dir(&state).into_iter().flatten().flatten() {
            let _ = linux::mount::unmount(&entry.path().join("shm"));
        }
        let _ = linux::mount::unmount(&state);
    }
}
