//! A container runtime that runs nothing: commands are little scripts over streams in memory, logs are files of the test.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use cri::streams::TerminalSize;
use cri::{Attached, Code, Error, ExecSync, Forwarded, Result, Runtime, Session, Streaming, v1};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{broadcast, mpsc, oneshot};

const PIPE_BYTES: usize = 64 * 1024;

pub struct FakeRuntime {
    /// Where `tar` works.
    pub folder: PathBuf,
    /// Where commands named `elsewhere` run: at a streaming server of its own.
    pub elsewhere: Mutex<String>,
    /// Commands that run now.
    pub scripts: Arc<AtomicUsize>,
    running: Mutex<HashMap<String, bool>>,
    events: broadcast::Sender<v1::ContainerEventResponse>,
}

impl FakeRuntime {
    pub fn new(folder: PathBuf) -> FakeRuntime {
        FakeRuntime {
            folder,
            elsewhere: Mutex::default(),
            scripts: Arc::default(),
            running: Mutex::default(),
            events: broadcast::channel(16).0,
        }
    }

    /// How many listen to events: everyone who follows a log does.
    pub fn listeners(&self) -> usize {
        self.events.receiver_count()
    }

    pub fn run(&self, id: &str) {
        self.running.lock().unwrap().insert(id.into(), true);
    }

    pub fn end(&self, id: &str) {
        self.running.lock().unwrap().insert(id.into(), false);
        let event = v1::ContainerEventResponse {
            container_id: id.into(),
            container_event_type: v1::ContainerEventType::ContainerStoppedEvent as i32,
            ..Default::default()
        };
        // Nobody may be listening.
        let _ = self.events.send(event);
    }
}

/// The process's side of its streams.
struct Inside {
    stdin: DuplexStream,
    stdout: DuplexStream,
    stderr: Option<DuplexStream>,
    sizes: mpsc::Receiver<TerminalSize>,
}

/// A pair of the two sides.
fn process(tty: bool, stdin: bool) -> (Inside, Attached) {
    let (stdin_inside, stdin_outside) = tokio::io::duplex(PIPE_BYTES);
    let (stdout_inside, stdout_outside) = tokio::io::duplex(PIPE_BYTES);
    let (stderr_inside, stderr_outside) = tokio::io::duplex(PIPE_BYTES);
    let (resize, sizes) = mpsc::channel(4);
    let inside = Inside { stdin: stdin_inside, stdout: stdout_inside, stderr: (!tty).then_some(stderr_inside), sizes };
    let outside = Attached {
        stdin: stdin.then(|| Box::pin(stdin_outside) as cri::streams::Writer),
        stdout: Some(Box::pin(stdout_outside)),
        stderr: (!tty).then(|| Box::pin(stderr_outside) as cri::streams::Reader),
        resize: tty.then_some(resize),
    };
    (inside, outside)
}

async fn script(command: Vec<String>, folder: PathBuf, mut inside: Inside) -> std::io::Result<i32> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["echo", words @ ..] => {
            inside.stdout.write_all(format!("{}\n", words.join(" ")).as_bytes()).await?;
            Ok(0)
        }
        ["exit", code] => Ok(code.parse().unwrap_or(255)),
        ["both"] => {
            inside.stdout.write_all(b"to stdout\n").await?;
            if let Some(stderr) = &mut inside.stderr {
                stderr.write_all(b"to stderr\n").await?;
            }
            Ok(3)
        }
        ["cat"] => {
            tokio::io::copy(&mut inside.stdin, &mut inside.stdout).await?;
            Ok(0)
        }
        // Reads one line and leaves the rest, as `head -1`.
        ["line"] => {
            let mut byte = [0];
            while inside.stdin.read(&mut byte).await? == 1 {
                inside.stdout.write_all(&byte).await?;
                if byte == *b"\n" {
                    break;
                }
            }
            Ok(0)
        }
        ["sizes"] => {
            while let Some(size) = inside.sizes.recv().await {
                inside.stdout.write_all(format!("{}x{}\r\n", size.width, size.height).as_bytes()).await?;
                if (size.width, size.height) == (120, 40) {
                    break;
                }
            }
            Ok(0)
        }
        ["tar", arguments @ ..] => {
            let mut child = tokio::process::Command::new("tar")
                .args(arguments)
                .current_dir(folder)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()?;
            let (mut input, mut output) = (child.stdin.take().expect("input"), child.stdout.take().expect("output"));
            let (mut stdin, mut stdout) = (inside.stdin, inside.stdout);
            let feeding = tokio::spawn(async move {
                let _ = tokio::io::copy(&mut stdin, &mut input).await;
            });
            tokio::io::copy(&mut output, &mut stdout).await?;
            let status = child.wait().await?;
            feeding.abort();
            Ok(status.code().unwrap_or(255))
        }
        _ => Ok(127),
    }
}

fn unused<T>() -> Result<T> {
    Err(Error::new(Code::Unimplemented, "not part of this test"))
}

#[async_trait]
impl Runtime for FakeRuntime {
    async fn exec_sync(&self, _: &str, command: &[String], _: i64) -> Result<ExecSync> {
        Ok(ExecSync { stdout: format!("ran {}\n", command.join(" ")).into(), ..ExecSync::default() })
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<Streaming<Session>> {
        if request.cmd.first().is_some_and(|program| program == "missing") {
            return Err(Error::unknown("exec: \"missing\": executable file not found in $PATH"));
        }
        if request.cmd.first().is_some_and(|program| program == "elsewhere") {
            return Ok(Streaming::Url(self.elsewhere.lock().unwrap().clone()));
        }
        let (inside, Attached { stdin, stdout, stderr, resize }) = process(request.tty, request.stdin);
        let (done, exit) = oneshot::channel();
        let folder = self.folder.clone();
        let scripts = self.scripts.clone();
        scripts.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            let code = script(request.cmd, folder, inside).await.unwrap_or(141);
            scripts.fetch_sub(1, Ordering::SeqCst);
            let _ = done.send(code);
        });
        let exit = Box::pin(async move { exit.await.map_err(|_| Error::unknown("the script is gone")) });
        Ok(Streaming::Local(Session { stdin, stdout, stderr, resize, exit }))
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<Streaming<Attached>> {
        let (mut inside, outside) = process(request.tty, request.stdin);
        tokio::spawn(async move {
            inside.stdout.write_all(b"welcome\n").await?;
            if request.stdin {
                tokio::io::copy(&mut inside.stdin, &mut inside.stdout).await?;
            }
            inside.stdout.write_all(b"goodbye\n").await
        });
        Ok(Streaming::Local(outside))
    }

    async fn port_forward(&self, _: &str, port: u16) -> Result<Streaming<Forwarded>> {
        if port != 80 {
            return Err(Error::unknown(format!("dial tcp4 127.0.0.1:{port}: connect: connection refused")));
        }
        let (inside, outside) = tokio::io::duplex(PIPE_BYTES);
        tokio::spawn(async move {
            let (mut read, mut write) = tokio::io::split(inside);
            tokio::io::copy(&mut read, &mut write).await?;
            write.shutdown().await
        });
        let (read, write) = tokio::io::split(outside);
        Ok(Streaming::Local(Forwarded { read: Box::pin(read), write: Box::pin(write) }))
    }

    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus> {
        let running = self.running.lock().unwrap().get(id).copied();
        let state = match running.ok_or_else(|| Error::not_found("no such container"))? {
            true => v1::ContainerState::ContainerRunning,
            false => v1::ContainerState::ContainerExited,
        };
        Ok(v1::ContainerStatus { id: id.into(), state: state as i32, ..Default::default() })
    }

    async fn events(&self) -> Result<BoxStream<'static, v1::ContainerEventResponse>> {
        let receiver = self.events.subscribe();
        let stream = futures::stream::unfold(receiver, |mut receiver| async {
            let event = receiver.recv().await.ok()?;
            Some((event, receiver))
        });
        Ok(stream.boxed())
    }

    async fn version(&self) -> Result<v1::VersionResponse> {
        unused()
    }
    async fn status(&self) -> Result<v1::RuntimeStatus> {
        unused()
    }
    async fn run_pod_sandbox(&self, _: v1::PodSandboxConfig, _: &str) -> Result<String> {
        unused()
    }
    async fn stop_pod_sandbox(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn remove_pod_sandbox(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn pod_sandbox_status(&self, _: &str) -> Result<v1::PodSandboxStatus> {
        unused()
    }
    async fn list_pod_sandboxes(&self, _: Option<v1::PodSandboxFilter>) -> Result<Vec<v1::PodSandbox>> {
        unused()
    }
    async fn create_container(&self, _: &str, _: v1::ContainerConfig, _: v1::PodSandboxConfig) -> Result<String> {
        unused()
    }
    async fn start_container(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn stop_container(&self, _: &str, _: i64) -> Result<()> {
        unused()
    }
    async fn remove_container(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn list_containers(&self, _: Option<v1::ContainerFilter>) -> Result<Vec<v1::Container>> {
        unused()
    }
    async fn update_container_resources(&self, _: &str, _: v1::LinuxContainerResources) -> Result<()> {
        unused()
    }
    async fn reopen_container_log(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn list_container_stats(&self) -> Result<Vec<v1::ContainerStats>> {
        unused()
    }
    async fn list_pod_sandbox_stats(&self) -> Result<Vec<v1::PodSandboxStats>> {
        unused()
    }
    async fn list_images(&self) -> Result<Vec<v1::Image>> {
        unused()
    }
    async fn image_status(&self, _: &str) -> Result<Option<v1::Image>> {
        unused()
    }
    async fn pull_image(&self, _: &str, _: Option<v1::AuthConfig>, _: Option<v1::PodSandboxConfig>) -> Result<String> {
        unused()
    }
    async fn remove_image(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse> {
        unused()
    }
    async fn update_pod_cidr(&self, _: &str) -> Result<()> {
        unused()
    }
}
