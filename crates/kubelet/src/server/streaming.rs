//! Exec, attach and port-forward up to the upgrade: which container, which protocol, and what is refused before it.

use std::sync::Arc;

use component_base::tasks;
use cri::serve::Stream;
use cri::{Attached, Session, Streaming, v1};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::answers::{self, Answer, full, text};
use super::port_forward::{self, Target};
use super::remote_command::{ClientStreams, Protocol, SPDY_PROTOCOLS, WEBSOCKET_PROTOCOLS, Wanted};
use super::routes::Context;
use super::websocket::{self, Encoding, WebSocket};
use super::{pass_through, spdy};
use crate::pods::PodState;

const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
const ACCEPTED_PROTOCOLS: &str = "x-accepted-stream-protocol-versions";

struct Query(Vec<(String, String)>);

impl Query {
    fn parse(query: &str) -> Query {
        Query(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    }

    /// Only `1` means yes here, as upstream.
    fn is_set(&self, name: &str) -> bool {
        self.0.iter().any(|(key, value)| key == name && value == "1")
    }
}

/// The pod that a path names, with its uid where it is given.
fn find_pod(context: &Context, segments: &[&str], named: usize) -> Option<Arc<PodState>> {
    let (namespace, name) = (segments.get(1)?, segments.get(2)?);
    let state = context.server.pods.by_name(namespace, name)?;
    let uid = if segments.len() > named { segments.get(3) } else { None };
    let same = uid.is_none_or(|uid| state.pod.metadata.uid.as_deref() == Some(uid));
    same.then_some(state)
}

pub async fn answer(context: &Arc<Context>, parts: &mut Parts, segments: &[&str], query: &str) -> Answer {
    let query = Query::parse(query);
    if segments[0] == "portForward" {
        return if matches!(segments.len(), 3 | 4) {
            forward(context, parts, segments, &query).await
        } else {
            answers::not_found()
        };
    }
    if !matches!(segments.len(), 4 | 5) {
        return answers::not_found();
    }
    let mut wanted = Wanted {
        stdin: query.is_set("input"),
        stdout: query.is_set("output"),
        stderr: query.is_set("error"),
        tty: query.is_set("tty"),
    };
    // A terminal has one output.
    wanted.stderr &= !wanted.tty;
    if !wanted.stdin && !wanted.stdout && !wanted.stderr {
        return text(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr");
    }
    let Some(state) = find_pod(context, segments, 4) else {
        return text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    let name = segments[segments.len() - 1];
    let Some(id) = container_id(&state, name) else {
        return text(StatusCode::INTERNAL_SERVER_ERROR, format!("container not found ({name:?})"));
    };
    let Wanted { stdin, stdout, stderr, tty } = wanted;
    let stream = if segments[0] == "exec" {
        Stream::Exec(v1::ExecRequest { container_id: id, cmd: query.all("command"), tty, stdin, stdout, stderr })
    } else {
        Stream::Attach(v1::AttachRequest { container_id: id, tty, stdin, stdout, stderr })
    };
    process(&context.server.runtime, parts, wanted, stream).await
}

/// Runs a command or attaches to a container, and joins the client with what came of it.
pub(super) async fn process(
    runtime: &Arc<dyn cri::Runtime>,
    parts: &mut Parts,
    wanted: Wanted,
    stream: Stream,
) -> Answer {
    if !upgradable(&parts.headers) {
        return not_upgradable();
    }
    let process = match stream {
        Stream::Exec(request) => runtime.exec(request).await.map(Process::of_exec).map_err(ProcessError::Exec),
        Stream::Attach(request) => runtime.attach(request).await.map(Process::of_attach).map_err(ProcessError::Attach),
        Stream::PortForward(_) => return answers::not_found(),
    };
    match process {
        Ok(Process::Elsewhere(url)) => pass_through::answer(parts, &url).await,
        process => join(parts, wanted, process),
    }
}

/// Why there is no process to join; the client reads it.
#[derive(Debug, thiserror::Error)]
enum ProcessError {
    #[error("error executing command in container: {0}")]
    Exec(#[source] cri::Error),
    #[error("error attaching to container: {0}")]
    Attach(#[source] cri::Error),
}

/// What the runtime gave.
enum Process {
    Exec(Session),
    Attach(Attached),
    Elsewhere(String),
}

impl Process {
    fn of_exec(streaming: Streaming<Session>) -> Process {
        match streaming {
            Streaming::Local(session) => Process::Exec(session),
            Streaming::Url(url) => Process::Elsewhere(url),
        }
    }

    fn of_attach(streaming: Streaming<Attached>) -> Process {
        match streaming {
            Streaming::Local(attached) => Process::Attach(attached),
            Streaming::Url(url) => Process::Elsewhere(url),
        }
    }
}

/// Agrees on a protocol, answers with the upgrade, and joins the streams behind it.
fn join(parts: &mut Parts, wanted: Wanted, process: Result<Process, ProcessError>) -> Answer {
    let over_websocket = websocket::is_asked(&parts.headers);
    let table = if over_websocket { WEBSOCKET_PROTOCOLS } else { SPDY_PROTOCOLS };
    let names: Vec<&str> = table.iter().map(|protocol| protocol.name).collect();
    let chosen = match agree(&parts.headers, over_websocket, &names) {
        Ok(chosen) => chosen,
        Err(refused) => return refused,
    };
    let protocol: Protocol = *table.iter().find(|protocol| protocol.name == chosen).unwrap_or(&table[table.len() - 1]);
    let Some(upgrade) = parts.extensions.remove::<OnUpgrade>() else { return not_upgradable() };
    let answer = if over_websocket { websocket_answer(&parts.headers, &chosen) } else { spdy_answer(&chosen) };
    tasks::spawn(async move {
        let connection = match upgrade.await {
            Ok(upgraded) => TokioIo::new(upgraded),
            Err(error) => {
                tracing::debug!(%error, "cannot upgrade connection");
                return;
            }
        };
        let streams = if over_websocket {
            Some(ClientStreams::over_websocket(WebSocket::start(connection), wanted, protocol).await)
        } else {
            ClientStreams::over_spdy(spdy::Connection::start(connection), wanted, protocol).await
        };
        let Some(streams) = streams else { return };
        match process {
            Ok(Process::Exec(session)) => streams.exec(session).await,
            Ok(Process::Attach(attached)) => streams.attach(attached).await,
            Ok(Process::Elsewhere(_)) => {}
            Err(error) => streams.fail(error.to_string()).await,
        }
    });
    answer
}

async fn forward(context: &Arc<Context>, parts: &mut Parts, segments: &[&str], query: &Query) -> Answer {
    let Some(state) = find_pod(context, segments, 3) else {
        return text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    let metadata = &state.pod.metadata;
    let (name, namespace) = (metadata.name.clone().unwrap_or_default(), metadata.namespace.clone().unwrap_or_default());
    let Some(sandbox) = state.sandbox.clone().filter(|_| !state.finished) else {
        let full_name = format!("{name}_{namespace}");
        return text(StatusCode::INTERNAL_SERVER_ERROR, format!("pod not found ({full_name:?})"));
    };
    if !upgradable(&parts.headers) {
        return not_upgradable();
    }
    let runtime = context.server.runtime.clone();
    // Nothing listens on port 0: only a runtime with a streaming server of its own answers, with that server's address.
    if let Ok(Streaming::Url(url)) = runtime.port_forward(&sandbox, 0).await {
        return pass_through::answer(parts, &url).await;
    }
    let pod = format!("{name}_{namespace}");
    let target = Target { runtime, sandbox, pod, uid: metadata.uid.clone().unwrap_or_default() };
    forward_to(parts, target, ports(query))
}

/// Agrees on a protocol and connects the client's streams with ports of the pod.
pub(super) fn forward_to(parts: &mut Parts, target: Target, ports: Result<Vec<u16>, PortsError>) -> Answer {
    if !websocket::is_asked(&parts.headers) {
        let chosen = match agree(&parts.headers, false, &[port_forward::SPDY_PROTOCOL]) {
            Ok(chosen) => chosen,
            Err(refused) => return refused,
        };
        let Some(upgrade) = parts.extensions.remove::<OnUpgrade>() else { return not_upgradable() };
        tasks::spawn(async move {
            let Ok(upgraded) = upgrade.await else { return };
            port_forward::over_spdy(spdy::Connection::start(TokioIo::new(upgraded)), target).await;
        });
        return spdy_answer(&chosen);
    }
    let tunnels = websocket::offered(&parts.headers).iter().any(|name| name == port_forward::TUNNEL_PROTOCOL);
    let (chosen, encoding, ports) = if tunnels {
        (port_forward::TUNNEL_PROTOCOL.to_string(), Encoding::Binary, Vec::new())
    } else {
        let names: Vec<&str> = port_forward::WEBSOCKET_PROTOCOLS.iter().map(|(name, _)| *name).collect();
        let chosen = match agree(&parts.headers, true, &names) {
            Ok(chosen) => chosen,
            Err(refused) => return refused,
        };
        let encoding = port_forward::WEBSOCKET_PROTOCOLS.iter().find(|(name, _)| *name == chosen);
        match ports {
            Ok(ports) => (chosen, encoding.map_or(Encoding::Binary, |(_, encoding)| *encoding), ports),
            Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
        }
    };
    let Some(upgrade) = parts.extensions.remove::<OnUpgrade>() else { return not_upgradable() };
    let answer = websocket_answer(&parts.headers, &chosen);
    tasks::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let socket = WebSocket::start(TokioIo::new(upgraded));
        if tunnels {
            port_forward::over_spdy(spdy::Connection::start(socket.tunnel()), target).await
        } else {
            port_forward::over_websocket(socket, encoding, ports, target).await
        }
    });
    answer
}

/// A WebSocket has at most 255 channels, two for each port.
const PORTS_MAX: usize = 127;

/// A query that names no ports.
#[derive(Debug, thiserror::Error)]
pub(super) enum PortsError {
    #[error("query parameter \"port\" is required")]
    Missing,
    #[error("port {0:?} must be > 0")]
    Zero(String),
    #[error("unable to parse {0:?} as a port")]
    NoNumber(String),
}

fn ports(query: &Query) -> Result<Vec<u16>, PortsError> {
    // Both forms are common: `port=80&port=81` and `port=80,81`.
    let texts: Vec<String> = query.all("port").iter().flat_map(|value| value.split(',')).map(str::to_string).collect();
    if texts.is_empty() || texts.len() > PORTS_MAX {
        return Err(PortsError::Missing);
    }
    let number = |text: &String| match text.parse::<u16>() {
        Ok(0) => Err(PortsError::Zero(text.clone())),
        Ok(port) => Ok(port),
        Err(_) => Err(PortsError::NoNumber(text.clone())),
    };
    texts.iter().map(number).collect()
}

/// Ports of a message, where they are numbers of any size.
pub(super) fn numbers(ports: &[i32]) -> Result<Vec<u16>, PortsError> {
    if ports.len() > PORTS_MAX {
        return Err(PortsError::Missing);
    }
    let number = |port: &i32| match u16::try_from(*port) {
        Ok(0) => Err(PortsError::Zero(port.to_string())),
        Ok(port) => Ok(port),
        Err(_) => Err(PortsError::NoNumber(port.to_string())),
    };
    ports.iter().map(number).collect()
}

fn container_id(state: &PodState, name: &str) -> Option<String> {
    let named = || state.containers.iter().filter(|container| container.name == name);
    named().find(|container| container.running).or_else(|| named().next()).map(|container| container.id.clone())
}

pub(super) fn upgradable(headers: &HeaderMap) -> bool {
    let asked = |name: http::HeaderName, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(word))
    };
    websocket::is_asked(headers)
        || (asked(http::header::CONNECTION, "upgrade") && asked(http::header::UPGRADE, "SPDY/3.1"))
}

pub(super) fn not_upgradable() -> Answer {
    text(StatusCode::BAD_REQUEST, "Upgrade request required")
}

/// The first protocol of ours that the client offers. A client that offers none speaks the oldest.
fn agree(headers: &HeaderMap, over_websocket: bool, ours: &[&str]) -> Result<String, Answer> {
    let offered = if over_websocket {
        websocket::offered(headers)
    } else {
        let values = headers.get_all(STREAM_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(|value| value.trim().to_string()).collect()
    };
    if offered.is_empty() {
        return Ok(String::new());
    }
    if let Some(chosen) = ours.iter().find(|name| offered.iter().any(|other| other == **name)) {
        return Ok(chosen.to_string());
    }
    let message = format!(
        "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]\n",
        offered.join(" "),
        ours.join(" ")
    );
    let mut refused = text(StatusCode::FORBIDDEN, message);
    for name in ours {
        if let Ok(value) = HeaderValue::from_str(name) {
            refused.headers_mut().append(ACCEPTED_PROTOCOLS, value);
        }
    }
    Err(refused)
}

fn switching(upgrade: &'static str) -> Answer {
    let mut answer = Response::new(full(""));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.headers_mut().insert(http::header::UPGRADE, HeaderValue::from_static(upgrade));
    answer
}

fn spdy_answer(protocol: &str) -> Answer {
    let mut answer = switching("SPDY/3.1");
    if let Ok(value) = HeaderValue::from_str(protocol)
        && !protocol.is_empty()
    {
        answer.headers_mut().insert(STREAM_PROTOCOL, value);
    }
    answer
}

fn websocket_answer(headers: &HeaderMap, protocol: &str) -> Answer {
    let mut answer = switching("websocket");
    let key = headers.get(http::header::SEC_WEBSOCKET_KEY).map_or(&b""[..], HeaderValue::as_bytes);
    if let Ok(value) = HeaderValue::from_str(&websocket::accept_key(key)) {
        answer.headers_mut().insert(http::header::SEC_WEBSOCKET_ACCEPT, value);
    }
    if let Ok(value) = HeaderValue::from_str(protocol)
        && !protocol.is_empty()
    {
        answer.headers_mut().insert(http::header::SEC_WEBSOCKET_PROTOCOL, value);
    }
    answer
}

/// `/run/{namespace}/{pod}/{container}?cmd=...`: runs a command to its end and answers with its output.
pub async fn run(context: &Arc<Context>, segments: &[&str], query: &str) -> Answer {
    if !matches!(segments.len(), 4 | 5) {
        return answers::not_found();
    }
    let Some(state) = find_pod(context, segments, 4) else {
        return text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    let name = segments[segments.len() - 1];
    let Some(id) = container_id(&state, name) else {
        return text(StatusCode::INTERNAL_SERVER_ERROR, format!("container not found ({name:?})"));
    };
    let line = Query::parse(query).all("cmd").join(" ");
    let command: Vec<String> = line.split(' ').map(str::to_string).collect();
    match context.server.runtime.exec_sync(&id, &command, 0).await {
        Ok(done) if done.exit_code == 0 => {
            answers::answer(StatusCode::OK, "text/plain; charset=utf-8", [done.stdout, done.stderr].concat())
        }
        Ok(done) => {
            let output = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
            let message = format!("command '{line}' exited with {}: {output}", done.exit_code);
            text(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_common_protocol_is_chosen() {
        let mut headers = HeaderMap::new();
        let names: Vec<&str> = SPDY_PROTOCOLS.iter().map(|protocol| protocol.name).collect();
        assert_eq!(agree(&headers, false, &names).unwrap(), "");
        headers.append(STREAM_PROTOCOL, HeaderValue::from_static("channel.k8s.io"));
        headers.append(STREAM_PROTOCOL, HeaderValue::from_static("v4.channel.k8s.io"));
        assert_eq!(agree(&headers, false, &names).unwrap(), "v4.channel.k8s.io");
        let mut headers = HeaderMap::new();
        headers.insert(http::header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("x, v5.channel.k8s.io"));
        let names: Vec<&str> = WEBSOCKET_PROTOCOLS.iter().map(|protocol| protocol.name).collect();
        assert_eq!(agree(&headers, true, &names).unwrap(), "v5.channel.k8s.io");
        assert_eq!(agree(&headers, true, &["y"]).unwrap_err().status(), 403);
    }

    #[test]
    fn ports_are_numbers() {
        assert_eq!(ports(&Query::parse("port=80&port=81,82")).unwrap(), [80, 81, 82]);
        assert!(ports(&Query::parse("")).is_err());
        assert!(ports(&Query::parse("port=0")).is_err());
        assert!(ports(&Query::parse("port=x")).is_err());
    }
}
