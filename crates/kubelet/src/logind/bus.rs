//! A connection to a message bus: the handshake, calls that are waited for, and signals.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use super::wire::{self, HEAD_BYTES, Message, Value, WireError};

/// What a service may take to answer, as other clients of the bus wait.
const ANSWER_WITHIN: Duration = Duration::from_secs(25);
/// Signals that came while an answer was waited for.
const SIGNALS_MAX: usize = 64;
const FDS_MAX: usize = 4;
const LINE_BYTES_MAX: usize = 4096;

const BUS: Target =
    Target { destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus" };

#[derive(Debug, thiserror::Error)]
pub enum BusError {
    #[error("{step}: {source}")]
    Io { step: &'static str, source: io::Error },
    #[error("the bus refuses this process: {0}")]
    Refused(String),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("{member}: {said}")]
    Answer { member: String, said: String },
    #[error("{0} was answered with something else")]
    Strange(String),
    #[error("the bus is gone")]
    Gone,
}

fn io_error(step: &'static str) -> impl Fn(io::Error) -> BusError {
    move |source| BusError::Io { step, source }
}

/// Whom a call is for.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub destination: &'static str,
    pub path: &'static str,
    pub interface: &'static str,
}

pub(super) struct Bus {
    socket: UnixStream,
    serial: u32,
    signals: VecDeque<Message>,
}

impl Bus {
    pub(super) fn connect(path: &Path) -> Result<Bus, BusError> {
        let socket = UnixStream::connect(path).map_err(io_error("connect to the system bus"))?;
        let mut bus = Bus { socket, serial: 0, signals: VecDeque::new() };
        bus.wait_at_most(Some(ANSWER_WITHIN))?;
        bus.authenticate()?;
        bus.call(BUS, "Hello", Vec::new())?;
        Ok(bus)
    }

    /// The other end of this closes what is waited for.
    pub(super) fn socket(&self) -> Result<UnixStream, BusError> {
        self.socket.try_clone().map_err(io_error("copy the connection to the system bus"))
    }

    pub(super) fn wait_at_most(&self, timeout: Option<Duration>) -> Result<(), BusError> {
        self.socket.set_read_timeout(timeout).map_err(io_error("set timeout"))
    }

    fn authenticate(&mut self) -> Result<(), BusError> {
        let uid = rustix::process::geteuid().as_raw().to_string();
        let hex: String = uid.bytes().map(|byte| format!("{byte:02x}")).collect();
        let step = io_error("authenticate at the system bus");
        self.socket.write_all(format!("\0AUTH EXTERNAL {hex}\r\n").as_bytes()).map_err(&step)?;
        self.expect_line("OK")?;
        self.socket.write_all(b"NEGOTIATE_UNIX_FD\r\n").map_err(&step)?;
        self.expect_line("AGREE_UNIX_FD")?;
        self.socket.write_all(b"BEGIN\r\n").map_err(&step)
    }

    fn expect_line(&mut self, start: &str) -> Result<(), BusError> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") && line.len() < LINE_BYTES_MAX {
            let mut byte = [0];
            self.socket.read_exact(&mut byte).map_err(io_error("authenticate at the system bus"))?;
            line.push(byte[0]);
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line.starts_with(start) { Ok(()) } else { Err(BusError::Refused(line)) }
    }

    pub(super) fn send(&mut self, mut message: Message) -> Result<u32, BusError> {
        self.serial += 1;
        message.serial = self.serial;
        self.socket.write_all(&message.encode()).map_err(io_error("send to the system bus"))?;
        Ok(self.serial)
    }

    /// Asks, and waits for the answer.
    pub(super) fn call(
        &mut self,
        target: Target,
        member: &str,
        body: Vec<Value>,
    ) -> Result<(Message, Vec<OwnedFd>), BusError> {
        let serial = self.send(Message {
            kind: wire::METHOD_CALL,
            path: target.path.to_owned(),
            interface: target.interface.to_owned(),
            member: member.to_owned(),
            destination: target.destination.to_owned(),
            body,
            ..Message::default()
        })?;
        loop {
            let (message, fds) = self.receive()?;
            match message.kind {
                wire::METHOD_RETURN if message.reply_serial == serial => return Ok((message, fds)),
                wire::ERROR if message.reply_serial == serial => {
                    let said = match message.body.into_iter().next() {
                        Some(Value::Text(said)) => said,
                        _ => "refused without a reason".to_owned(),
                    };
                    return Err(BusError::Answer { member: member.to_owned(), said });
                }
                wire::SIGNAL if self.signals.len() < SIGNALS_MAX => self.signals.push_back(message),
                _ => {}
            }
        }
    }

    /// Lets these signals come.
    pub(super) fn listen(&mut self, rule: &str) -> Result<(), BusError> {
        self.call(BUS, "AddMatch", vec![Value::Text(rule.to_owned())]).map(drop)
    }

    /// The next signal, however long it takes.
    pub(super) fn next_signal(&mut self) -> Result<Message, BusError> {
        if let Some(signal) = self.signals.pop_front() {
            return Ok(signal);
        }
        self.wait_at_most(None)?;
        loop {
            let (message, _) = self.receive()?;
            if message.kind == wire::SIGNAL {
                self.wait_at_most(Some(ANSWER_WITHIN))?;
                return Ok(message);
            }
        }
    }

    /// One message with its descriptors.
    pub(super) fn receive(&mut self) -> Result<(Message, Vec<OwnedFd>), BusError> {
        let mut bytes = vec![0; HEAD_BYTES];
        let mut fds = Vec::new();
        self.fill(&mut bytes, &mut fds)?;
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&bytes);
        let length = Message::length(&head)?;
        let mut rest = vec![0; length - HEAD_BYTES];
        self.fill(&mut rest, &mut fds)?;
        bytes.extend(rest);
        Ok((Message::decode(&bytes)?, fds))
    }

    fn fill(&mut self, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<(), BusError> {
        let mut filled = 0;
        while filled < buffer.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let received = rustix::io::retry_on_intr(|| {
                let mut parts = [IoSliceMut::new(&mut buffer[filled..])];
                rustix::net::recvmsg(&self.socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
            });
            let received = received.map_err(|error| io_error("receive from the system bus")(error.into()))?;
            if received.bytes == 0 {
                return Err(BusError::Gone);
            }
            filled += received.bytes;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    fds.extend(rights);
                }
            }
        }
        Ok(())
    }
}
