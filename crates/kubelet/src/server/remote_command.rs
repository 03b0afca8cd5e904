//! Exec and attach: the client's streams joined to those of a process, and how it ended told on the error stream.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use component_base::tasks;
use cri::streams::{Reader, TerminalSize, Writer};
use cri::{Attached, Session};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::channel::{Incoming, Output};
use super::spdy;
use super::websocket::{Channels, Encoding, WebSocket};

/// kubectl makes its streams once the connection stands, and loses what comes before.
const HEAD_START: Duration = Duration::from_millis(20);
/// How long a client may take to open all the streams it asked for.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
const PIECE_BYTES: usize = 32 * 1024;

/// Which streams a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

/// What the subprotocol of a connection can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    pub name: &'static str,
    /// The error stream carries a Status; before version 4 it was a sentence.
    status: bool,
    resize: bool,
    encoding: Encoding,
}

const fn protocol(name: &'static str, version: u8, encoding: Encoding) -> Protocol {
    Protocol { name, status: version >= 4, resize: version >= 3, encoding }
}

/// Over SPDY, the best first.
pub(crate) static SPDY_PROTOCOLS: &[Protocol] = &[
    protocol("v4.channel.k8s.io", 4, Encoding::Binary),
    protocol("v3.channel.k8s.io", 3, Encoding::Binary),
    protocol("v2.channel.k8s.io", 2, Encoding::Binary),
    protocol("channel.k8s.io", 1, Encoding::Binary),
];

/// Over WebSocket. A channel for terminal sizes has always been there.
pub(crate) static WEBSOCKET_PROTOCOLS: &[Protocol] = &[
    protocol("v5.channel.k8s.io", 5, Encoding::Binary),
    protocol("v4.channel.k8s.io", 4, Encoding::Binary),
    protocol("v4.base64.channel.k8s.io", 4, Encoding::Base64),
    protocol("channel.k8s.io", 3, Encoding::Binary),
    protocol("base64.channel.k8s.io", 3, Encoding::Base64),
    protocol("", 3, Encoding::Binary),
];

pub struct ClientStreams {
    pub stdin: Option<Incoming>,
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
    pub resize: Option<Incoming>,
    pub error: Output,
    gone: CancellationToken,
    protocol: Protocol,
    connection: Option<spdy::Connection>,
}

impl ClientStreams {
    /// Waits for the streams that the client must open.
    pub(crate) async fn over_spdy(
        mut connection: spdy::Connection,
        wanted: Wanted,
        protocol: Protocol,
    ) -> Option<ClientStreams> {
        let (mut stdin, mut stdout, mut stderr, mut resize, mut error) = (None, None, None, None, None);
        let resizes = wanted.tty && protocol.resize;
        let expected = 1
            + usize::from(wanted.stdin)
            + usize::from(wanted.stdout)
            + usize::from(wanted.stderr && !wanted.tty)
            + usize::from(resizes);
        let collect = async {
            for _ in 0..expected {
                let stream = connection.streams.recv().await?;
                match stream.headers.get("streamtype") {
                    "stdin" => stdin = Some(stream.incoming),
                    "stdout" => stdout = Some(stream.output),
                    "stderr" => stderr = Some(stream.output),
                    "resize" => resize = Some(stream.incoming),
                    "error" => error = Some(stream.output),
                    _ => return None,
                }
            }
            Some(())
        };
        match tokio::time::timeout(OPEN_TIMEOUT, collect).await {
            Ok(Some(())) => {}
            _ => {
                tracing::debug!("timed out waiting for client to create streams");
                return None;
            }
        }
        connection.streams.close();
        let gone = connection.gone.clone();
        Some(ClientStreams {
            stdin,
            stdout,
            stderr,
            resize,
            error: error?,
            gone,
            protocol,
            connection: Some(connection),
        })
    }

    pub(crate) async fn over_websocket(socket: WebSocket, wanted: Wanted, protocol: Protocol) -> ClientStreams {
        tokio::time::sleep(HEAD_START).await;
        let mut channels = Channels::new(socket, protocol.encoding);
        let mut streams = ClientStreams {
            stdin: wanted.stdin.then(|| channels.incoming(0)),
            stdout: wanted.stdout.then(|| channels.output(1)),
            stderr: (wanted.stderr && !wanted.tty).then(|| channels.output(2)),
            error: channels.output(3),
            resize: wanted.tty.then(|| channels.incoming(4)),
            gone: channels.gone.clone(),
            protocol,
            connection: None,
        };
        channels.start();
        // The lowest channel tells the client that the connection stands.
        let first = [&mut streams.stdout, &mut streams.stderr].into_iter().flatten().next();
        first.unwrap_or(&mut streams.error).send(Bytes::new()).await;
        streams
    }

    /// A command from its first byte to its exit code.
    pub async fn exec(self, session: Session) {
        let Session { stdin, stdout, stderr, resize, exit } = session;
        let process = Attached { stdin, stdout, stderr, resize };
        self.join(process, async move {
            match exit.await {
                Ok(0) => Ending::Success,
                Ok(code) => Ending::Exit(code),
                Err(error) => Ending::Failed(format!("error executing command in container: {error}")),
            }
        })
        .await;
    }

    /// Until the container's process closes its output, or the client goes.
    pub async fn attach(self, process: Attached) {
        self.join(process, async { Ending::Success }).await;
    }

    /// Tells the client why there is nothing to join.
    pub async fn fail(mut self, message: String) {
        self.finish(Ending::Failed(message)).await;
    }

    async fn join(mut self, process: Attached, ending: impl Future<Output = Ending>) {
        let Attached { stdin, stdout, stderr, resize } = process;
        let (has_output, has_input) = (self.stdout.is_some() || self.stderr.is_some(), self.stdin.is_some());
        let input = tasks::spawn(feed(self.stdin.take(), stdin));
        let sizes = tasks::spawn(resizes(self.resize.take(), resize));
        let (mut client_out, mut client_err) = (self.stdout.take(), self.stderr.take());
        let output = async {
            tokio::join!(drain(stdout, &mut client_out), drain(stderr, &mut client_err));
        };
        let gone = self.gone.clone();
        let whole = async {
            output.await;
            ending.await
        };
        let ended = tokio::select! {
            () = gone.cancelled() => None,
            ending = whole => Some(ending),
        };
        // Who attached only to type stays until the typing ends.
        let mut input = input;
        if !has_output && has_input && matches!(ended, Some(Ending::Success)) {
            tokio::select! {
                () = gone.cancelled() => {}
                _ = &mut input => {}
            }
        }
        input.abort();
        sizes.abort();
        for stream in [client_out, client_err].iter_mut().flatten() {
            stream.close().await;
        }
        if let Some(ending) = ended {
            self.finish(ending).await;
        }
    }

    async fn finish(&mut self, ending: Ending) {
        let text = ending.text(self.protocol.status);
        if !text.is_empty() {
            self.error.send(text.into()).await;
        }
        self.error.close().await;
        if let Some(connection) = self.connection.take() {
            connection.close().await;
        }
    }
}

/// How a command ended, for the error stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    Success,
    Exit(i32),
    Failed(String),
}

impl Ending {
    fn text(&self, status: bool) -> String {
        if !status {
            return match self {
                Ending::Success => String::new(),
                Ending::Exit(code) => {
                    format!("error executing remote command: command terminated with exit code {code}")
                }
                Ending::Failed(message) => message.clone(),
            };
        }
        let value = match self {
            Ending::Success => json!({"metadata": {}, "status": "Success"}),
            Ending::Exit(code) => json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: exit status {code}"),
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
            Ending::Failed(message) => json!({
                "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
                "message": format!("Internal error occurred: {message}"),
                "details": {"causes": [{"message": message}]},
            }),
        };
        value.to_string()
    }
}

async fn feed(incoming: Option<Incoming>, writer: Option<Writer>) {
    let Some(mut writer) = writer else { return };
    if let Some(mut incoming) = incoming {
        while let Some(bytes) = incoming.receive().await {
            if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
                // The process reads no more; what else comes is thrown away, or the connection would stand still.
                while incoming.receive().await.is_some() {}
                return;
            }
        }
    }
    // It may have ended already.
    let _ = writer.shutdown().await;
}

async fn drain(reader: Option<Reader>, output: &mut Option<Output>) {
    let Some(mut reader) = reader else { return };
    let mut buffer = BytesMut::with_capacity(PIECE_BYTES);
    loop {
        buffer.reserve(PIECE_BYTES);
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return,
            // A terminal whose other side is closed reads as an error, which is its end.
            Err(_) => return,
            Ok(_) => {}
        }
        let bytes = buffer.split().freeze();
        if let Some(output) = output
            && !output.send(bytes).await
        {
            return;
        }
    }
}

async fn resizes(incoming: Option<Incoming>, sizes: Option<mpsc::Sender<TerminalSize>>) {
    let (Some(mut incoming), Some(sizes)) = (incoming, sizes) else { return };
    let mut text = Vec::new();
    while let Some(bytes) = incoming.receive().await {
        text.extend_from_slice(&bytes);
        for size in take_sizes(&mut text) {
            if sizes.send(size).await.is_err() {
                return;
            }
        }
    }
}

#[derive(serde::Deserialize)]
struct Size {
    #[serde(rename = "Width", default)]
    width: u16,
    #[serde(rename = "Height", default)]
    height: u16,
}

/// Sizes that stand whole in the text, one JSON object after the other; the rest stays.
fn take_sizes(text: &mut Vec<u8>) -> Vec<TerminalSize> {
    let mut found = Vec::new();
    let mut objects = serde_json::Deserializer::from_slice(text).into_iter::<Size>();
    let mut used = 0;
    loop {
        match objects.next() {
            Some(Ok(size)) => {
                found.push(TerminalSize { width: size.width, height: size.height });
                used = objects.byte_offset();
            }
            Some(Err(error)) if error.is_eof() => break,
            // What is no size at all cannot become one.
            Some(Err(_)) => {
                used = text.len();
                break;
            }
            None => break,
        }
    }
    text.drain(..used);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_any_pieces() {
        let mut text = b"{\"Width\":80,\"Height\":24}\n{\"Width\":100,".to_vec();
        assert_eq!(take_sizes(&mut text), vec![TerminalSize { width: 80, height: 24 }]);
        text.extend_from_slice(b"\"Height\":30}\n");
        assert_eq!(take_sizes(&mut text), vec![TerminalSize { width: 100, height: 30 }]);
        text.extend_from_slice(b"nonsense");
        assert_eq!(take_sizes(&mut text), vec![]);
        assert!(text.is_empty());
    }

    #[test]
    fn endings_are_told_as_the_protocol_wants() {
        assert_eq!(Ending::Success.text(true), r#"{"metadata":{},"status":"Success"}"#);
        assert_eq!(Ending::Success.text(false), "");
        let exit: serde_json::Value = serde_json::from_str(&Ending::Exit(3).text(true)).unwrap();
        assert_eq!(exit["reason"], "NonZeroExitCode");
        assert_eq!(exit["details"]["causes"][0], json!({"reason": "ExitCode", "message": "3"}));
        assert!(Ending::Exit(3).text(false).contains("exit code 3"));
    }
}
