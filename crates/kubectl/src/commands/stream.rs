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
use crate::flags::{Flag, Parsed};
use crate::session::Session;
use crate::terminal;

pub(super) struct Streams {
    pub stdin: bool,
    pub tty: bool,
    /// The bytes that end the session and leave the process alone.
    pub detach: Option<Vec<u8>>,
}

const DETACH_KEYS: &str = "ctrl-p,ctrl-q";

pub(super) const DETACH: &[Flag] =
    &[Flag::text("detach-keys", DETACH_KEYS, "The keys that end the session and leave the process alone.")];

/// The keys of `--detach-keys`; commands without the flag have the usual ones.
pub(super) fn detach_keys(flags: &Parsed) -> Result<Vec<u8>> {
    let given = if flags.has("detach-keys") { flags.text("detach-keys") } else { "" };
    let given = if given.is_empty() { DETACH_KEYS } else { given };
    given.split(',').map(key).collect()
}

/// `a`, `ctrl-a` or `DEL`.
fn key(name: &str) -> Result<u8> {
    let unknown = || Failure::message(format!("could not bind detach keys: Unknown character: '{name}'"));
    match name.as_bytes() {
        [byte] => Ok(*byte),
        b"DEL" => Ok(127),
        [b'c', b't', b'r', b'l', b'-', byte @ (b'@' | b'a'..=b'z' | b'['..=b'_')] => Ok(byte & 0x1f),
        _ => Err(unknown()),
    }
}

/// Looks for the keys in what is typed, also where they come one by one.
struct Detacher {
    keys: Vec<u8>,
    seen: usize,
}

impl Detacher {
    /// What is to be passed on, and whether the keys were typed.
    fn pass(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut out = Vec::with_capacity(typed.len());
        for byte in typed {
            if *byte == self.keys[self.seen] {
                self.seen += 1;
                if self.seen == self.keys.len() {
                    return (out, true);
                }
                continue;
            }
            // It was something else; what was kept back belongs to it.
            out.extend(&self.keys[..std::mem::take(&mut self.seen)]);
            if *byte == self.keys[0] && self.keys.len() > 1 {
                self.seen = 1;
            } else {
                out.push(*byte);
            }
        }
        (out, false)
    }
}

impl Streams {
    /// A terminal is only possible where there is one.
    pub(super) fn checked(mut self) -> Streams {
        if self.tty && self.stdin && !std::io::stdin().is_terminal() {
            terminal::errln("Unable to use a TTY - input is not a terminal or the right kind of file");
            self.tty = false;
        }
        if self.tty && !self.stdin {
            self.tty = false;
        }
        self
    }

    pub(crate) fn parameters(&self, container: &str) -> AttachParams {
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

pub(crate) fn pods(session: &Session, namespace: &str) -> Result<Api<Pod>> {
    Ok(Api::namespaced(session.client()?.clone(), namespace))
}

pub(crate) async fn exec(
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

pub(crate) async fn attach(
    session: &Session,
    pod: &Value,
    container: &str,
    streams: &Streams,
) -> Result<AttachedProcess> {
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

/// Carries all streams until the process ends, and answers as it did; or until the session is detached from.
pub(crate) async fn run(mut process: AttachedProcess, streams: &Streams) -> Result<()> {
    let raw = streams.tty.then(Raw::enter);
    if let Some(sender) = process.terminal_size().filter(|_| streams.tty) {
        tokio::spawn(follow_size(sender));
    }
    let (detached, detaching) = tokio::sync::oneshot::channel::<()>();
    if let Some(input) = process.stdin() {
        let detacher = streams.detach.clone().map(|keys| Detacher { keys, seen: 0 });
        tokio::spawn(pass_input(input, detacher, detached));
    }
    let status = process.take_status();
    let output = process.stdout().map(|stream| tokio::spawn(copy(stream, terminal::out_bytes)));
    let errors = process.stderr().map(|stream| tokio::spawn(copy(stream, err_bytes)));
    let ended = async {
        match status {
            Some(status) => status.await,
            None => None,
        }
    };
    let status = tokio::select! {
        status = ended => status,
        // A sender that is only dropped has nothing to say.
        Ok(()) = detaching => return Ok(()),
    };
    // What was written before the end is still on its way.
    for stream in [output, errors].into_iter().flatten() {
        let _ = tokio::time::timeout(Duration::from_secs(5), stream).await;
    }
    let Some(status) = status else { return Ok(()) };
    drop(raw);
    outcome(&serde_json::to_value(status).unwrap_or_default())
}

/// Tells the size of the terminal, now and whenever it changes.
async fn follow_size(mut sender: impl futures::Sink<TerminalSize> + Unpin) {
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
}

/// What is typed goes to the process, until it ends or the keys that detach are typed.
async fn pass_input(
    mut input: impl tokio::io::AsyncWrite + Unpin,
    mut detacher: Option<Detacher>,
    detached: tokio::sync::oneshot::Sender<()>,
) {
    let mut stdin = tokio::io::stdin();
    let mut buffer = vec![0; 32 << 10];
    loop {
        let count = match stdin.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        let (typed, detach) = match &mut detacher {
            Some(detacher) => detacher.pass(&buffer[..count]),
            None => (buffer[..count].to_vec(), false),
        };
        if input.write_all(&typed).await.is_err() {
            return;
        }
        if detach {
            // Nobody waits any more where the process has ended meanwhile.
            let _ = detached.send(());
            return;
        }
    }
    let _ = input.shutdown().await;
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
pub(super) fn outcome(status: &Value) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_detach_are_not_passed_on() {
        let keys: Vec<u8> = DETACH_KEYS.split(',').map(|name| key(name).unwrap()).collect();
        assert_eq!(keys, [16, 17]);
        let mut detacher = Detacher { keys, seen: 0 };
        assert_eq!(detacher.pass(b"a\x10b"), (b"a\x10b".to_vec(), false));
        assert_eq!(detacher.pass(b"\x10"), (Vec::new(), false));
        assert_eq!(detacher.pass(b"\x11c"), (Vec::new(), true));
        assert_eq!(key("DEL").unwrap(), 127);
        assert_eq!(key("shift").unwrap_err().text(), "could not bind detach keys: Unknown character: 'shift'");
    }
}
