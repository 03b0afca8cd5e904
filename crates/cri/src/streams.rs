//! Byte streams into containers.

use std::pin::Pin;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::Error;

pub type Reader = Pin<Box<dyn AsyncRead + Send>>;
pub type Writer = Pin<Box<dyn AsyncWrite + Send>>;

/// Where a stream is: here, or at an address of the runtime's own streaming server, to which the client's upgraded
/// connection is passed through.
pub enum Streaming<T> {
    Local(T),
    Url(String),
}

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    pub width: u16,
    pub height: u16,
}

/// A command running in a container. Dropping it closes its input and output; the process is then told by SIGHUP or SIGPIPE.
pub struct Session {
    pub stdin: Option<Writer>,
    pub stdout: Option<Reader>,
    /// Absent with a terminal, whose output is one stream.
    pub stderr: Option<Reader>,
    pub resize: Option<mpsc::Sender<TerminalSize>>,
    /// The exit code, when it has ended.
    pub exit: BoxFuture<'static, Result<i32, Error>>,
}

/// The streams of a container's own process. Output begins now; what was written before is in its log.
pub struct Attached {
    pub stdin: Option<Writer>,
    pub stdout: Option<Reader>,
    pub stderr: Option<Reader>,
    pub resize: Option<mpsc::Sender<TerminalSize>>,
}

/// A connection to a port in a pod.
pub struct Forwarded {
    pub read: Reader,
    pub write: Writer,
}
