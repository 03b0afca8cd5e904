//! A command's streams in a container: our input, output, errors and terminal, over a WebSocket.

use std::io::IsTerminal;
use std::time::Duration;

use futures::SinkExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, AttachedProcess, TerminalSize};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::failure::{Failure, Result};
use crate::session::Session;
use crate::terminal;

pub struct Streams {
    pub stdin: bool,
    pub tty: bool,
}

impl Streams {
    /// A terminal is only possible where there is one.
    pub fn checked(mut self) -> Streams {
        if self.tty && self.stdin && !std::io::stdin().is_terminal() {
            terminal::errln("Unable to use a TTY - input is not a terminal or the right kind of file");
            self.tty = false;
        }
        if self.tty && !self.stdin {
            self.tty = false;
        }
        self
    }

    pub fn parameters(&self, container: &str) -> AttachParams {
        AttachParams {
            container: Some(container.to_string()),
            stdin: self.stdin,
            stdout: true,
            stderr: !self.tty,
            tty: self.tty,
            max_stdin_buf_size: Some(64 << 10),
            max_stdout_buf_size: Some(256 << 10),
            max_stderr_buf_size: Some(64 << 10),
        }
    }
}

pub fn pods(session: &Session, namespace: &str) -> Result<Api<Pod>> {
    Ok(Api::namespaced(session.client()?.clone(), namespace))
}

pub async fn exec(
    session: &Session,
    pod: &Value,
    container: &str,
    streams: &Streams,
    command: &[String],
) -> Result<AttachedProcess> {
    let (namespace, name) = place(pod);
    let parameters = streams.parameters(container);
    pods(session, namespace)?.exec(name, command, &parameters).await.map_err(|error| upgraded(session, &error))
}

pub async fn attach(session: &Session, pod: &Value, container: &str, streams: &Streams) -> Result<AttachedProcess> {
    let (namespace, name) = place(pod);
    let parameters = streams.parameters(container);
    pods(session, namespace)?.attach(name, &parameters).await.map_err(|error| upgraded(session, &error))
}

fn place(pod: &Value) -> (&str, &str) {
    (pod["metadata"]["namespace"].as_str().unwrap_or_default(), pod["metadata"]["name"].as_str().unwrap_or_default())
}

fn upgraded(session: &Session, error: &kube::Error) -> Failure {
    session.connection(error)
}

/// The terminal as it was, put back when this goes.
struct Raw(Option<rustix::termios::Termios>);

impl Raw {
    fn enter() -> Raw {
        let stdin = std::io::stdin();
        let Ok(before) = rustix::termios::tcgetattr(&stdin) else { return Raw(None) };
        let mut raw = before.clone();
        raw.make_raw();
        let _ = rustix::termios::tcsetattr(&stdin, rustix::termios::OptionalActions::Now, &raw);
        Raw(Some(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = rustix::termios::tcsetattr(std::io::stdin(), rustix::termios::OptionalActions::Now, before);
        }
    }
}

fn size() -> Option<TerminalSize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout())
        .or_else(|_| rustix::termios::tcgetwinsize(std::io::stdin()))
        .ok()?;
    Some(TerminalSize { width: size.ws_col, height: size.ws_row })
}

/// Carries all streams until the process ends, and answers as it did.
pub async fn run(mut process: AttachedProcess, streams: &Streams) -> Result<()> {
    let _raw = streams.tty.then(Raw::enter);
    if let Some(mut sender) = process.terminal_size().filter(|_| streams.tty) {
        tokio::spawn(async move {
            let Ok(mut changed) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::window_change()) else {
                return;
            };
            loop {
                if let Some(size) = size()
                    && sender.send(size).await.is_err()
                {
                    return;
                }
                if changed.recv().await.is_none() {
                    return;
                }
            }
        });
    }
    if let Some(mut input) = process.stdin() {
        tokio::spawn(async move {
            let mut stdin = tokio::io::stdin();
            let mut buffer = vec![0; 32 << 10];
            loop {
                match stdin.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => {
                        if input.write_all(&buffer[..count]).await.is_err() {
                            return;
                        }
                    }
                }
            }
            let _ = input.shutdown().await;
        });
    }
    let status = process.take_status();
    let output = process.stdout().map(|stream| tokio::spawn(copy(stream, terminal::out_bytes)));
    let errors = process.stderr().map(|stream| tokio::spawn(copy(stream, err_bytes)));
    let status = match status {
        Some(status) => status.await,
        None => None,
    };
    // What was written before the end is still on its way.
    for stream in [output, errors].into_iter().flatten() {
        let _ = tokio::time::timeout(Duration::from_secs(5), stream).await;
    }
    let Some(status) = status else { return Ok(()) };
    drop(_raw);
    outcome(&serde_json::to_value(status).unwrap_or_default())
}

fn err_bytes(bytes: &[u8]) {
    use std::io::Write;
    let _ = std::io::stderr().lock().write_all(bytes);
}

async fn copy(mut stream: impl tokio::io::AsyncRead + Unpin, print: fn(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = stream.read(&mut buffer).await {
        if count == 0 {
            return;
        }
        print(&buffer[..count]);
    }
}

/// The process's own exit code becomes ours.
pub fn outcome(status: &Value) -> Result<()> {
    if status["status"] == "Success" {
        return Ok(());
    }
    let causes = status["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let code = causes
        .iter()
        .find(|cause| cause["reason"] == "ExitCode")
        .and_then(|cause| cause["message"].as_str()?.parse::<i32>().ok());
    match code {
        Some(code) => {
            terminal::errln(&format!("command terminated with exit code {code}"));
            Err(Failure::Exit(code))
        }
        None => Err(Failure::message(status["message"].as_str().unwrap_or("unknown error").to_string())),
    }
}
