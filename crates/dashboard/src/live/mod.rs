//! The one live connection of a page: a WebSocket on which it says what it looks at, and is told of every change.
//!
//! Each thing looked at is a task of its own; what they have to say goes through one bounded queue, so that a page that does
//! not read stops them and fills no memory.

mod list;
mod object;
mod events;
mod overview;
mod map;
pub(crate) mod raw;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use component_base::tasks;
use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use machinery::status::Status;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use crate::Dashboard;
use crate::access::Connection;
use crate::body::{Body, full};
use crate::guard::is_websocket;
use crate::kinds::Kind;
use crate::session::SignedIn;
use crate::table::view::Sort;

/// What a page may look at over one connection.
const SUBSCRIPTIONS_MAX: usize = 32;
/// The largest message of a page.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Frames that wait to be sent.
const QUEUE: usize = 64;
/// How often it is looked whether the page is still there and its user still signed in.
const CHECK: Duration = Duration::from_secs(30);
/// A page that takes nothing for so long is gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections of all pages together.
const CONNECTIONS_MAX: usize = 1000;
/// The code by which a page learns that it must sign in again.
const SIGN_IN_AGAIN: u16 = 4401;

static CONNECTIONS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(CONNECTIONS_MAX);

/// What a page says.
#[derive(Clone, Debug, Deserialize)]
struct Asked {
    id: u64,
    op: String,
    #[serde(default)]
    resource: Kind,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    labels: String,
    #[serde(default)]
    fields: String,
    #[serde(default)]
    text: String,
    sort: Option<Sort>,
    #[serde(default)]
    from: usize,
    #[serde(default)]
    count: usize,
}

/// What a task needs to answer.
#[derive(Clone)]
struct Context {
    dashboard: Arc<Dashboard>,
    signed_in: SignedIn,
    id: u64,
    out: mpsc::Sender<Value>,
}

impl Context {
    /// False where the page is gone.
    async fn tell(&self, mut value: Value) -> bool {
        value["id"] = self.id.into();
        self.out.send(value).await.is_ok()
    }

    async fn fail(&self, status: &Status) -> bool {
        self.tell(json!({"error": status.to_value()})).await
    }
}

pub(crate) fn upgrade(
    dashboard: Arc<Dashboard>,
    connection: Connection,
    signed_in: SignedIn,
    mut parts: Parts,
) -> Result<Response<Body>, Status> {
    if !is_websocket(&parts.headers) {
        return Err(Status::bad_request("this is a WebSocket"));
    }
    let key =
        parts.headers.get(SEC_WEBSOCKET_KEY).ok_or_else(|| Status::bad_request("Sec-WebSocket-Key is missing"))?;
    let accept = accept_key(key.as_bytes());
    let upgrade: Option<OnUpgrade> = parts.extensions.remove();
    let upgrade = upgrade.ok_or_else(|| Status::bad_request("this connection cannot be upgraded"))?;
    let place = CONNECTIONS.try_acquire().map_err(|_| Status::too_many_requests("too many pages are open", 10))?;
    tasks::spawn(async move {
        let _place = place;
        if let Ok(upgraded) = upgrade.await {
            serve(dashboard, connection, signed_in, upgraded).await;
        }
    });
    let mut answer = Response::new(full(""));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_str(&accept).expect("base64 is a header value"));
    Ok(answer)
}

/// As RFC 6455 wants it.
fn accept_key(key: &[u8]) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(context.finish())
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

async fn serve(dashboard: Arc<Dashboard>, connection: Connection, signed_in: SignedIn, upgraded: Upgraded) {
    let limits =
        WebSocketConfig::default().max_message_size(Some(MESSAGE_BYTES_MAX)).max_frame_size(Some(MESSAGE_BYTES_MAX));
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(limits)).await;
    let (out, mut frames) = mpsc::channel(QUEUE);
    let mut subscriptions = Subscriptions { all: HashMap::new() };
    let mut check = tokio::time::interval(CHECK);
    check.tick().await;
    let shutdown = dashboard.shutdown.clone();
    loop {
        tokio::select! {
            message = socket.next() => match message {
                Some(Ok(Message::Text(text))) => {
                    let context = Context { dashboard: dashboard.clone(), signed_in: signed_in.clone(), id: 0, out: out.clone() };
                    if let Err((id, status)) = subscriptions.take(context, &text) {
                        let frame = json!({"id": id, "error": status.to_value()});
                        if !send(&mut socket, &frame).await { break }
                    }
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => break,
            },
            Some(frame) = frames.recv() => if !send(&mut socket, &frame).await { break },
            _ = check.tick() => {
                if dashboard.still(&signed_in, &connection).await {
                    if socket.send(Message::Ping(Default::default())).await.is_err() { break }
                } else {
                    close(&mut socket, CloseCode::from(SIGN_IN_AGAIN), "sign in again").await;
                    break;
                }
            }
            () = shutdown.cancelled() => {
                close(&mut socket, CloseCode::Restart, "the server stops").await;
                break;
            }
        }
    }
}

impl Dashboard {
    /// Whether a session that was good is it still. A server that cannot say so now is asked again later.
    async fn still(&self, signed_in: &SignedIn, connection: &Connection) -> bool {
        let session = &signed_in.session;
        if session.expires <= self.config.clock.now().as_second() || self.sessions.is_ended(session) {
            return false;
        }
        !matches!(self.open(session.clone(), connection).await, Err(status) if status.code == 401)
    }
}

async fn send(socket: &mut Socket, frame: &Value) -> bool {
    let sent = socket.send(Message::text(frame.to_string()));
    matches!(tokio::time::timeout(SEND_TIMEOUT, sent).await, Ok(Ok(())))
}

async fn close(socket: &mut Socket, code: CloseCode, reason: &'static str) {
    let closing = socket.close(Some(CloseFrame { code, reason: reason.into() }));
    // The page may be gone already.
    let _ = tokio::time::timeout(Duration::from_secs(1), closing).await;
}

struct Subscription {
    task: JoinHandle<()>,
    /// A list's window moves without beginning again.
    list: Option<watch::Sender<Asked>>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Subscriptions {
    all: HashMap<u64, Subscription>,
}

impl Subscriptions {
    fn take(&mut self, mut context: Context, text: &str) -> Result<(), (u64, Status)> {
        let asked: Asked = serde_json::from_str(text)
            .map_err(|error| (0, Status::bad_request(format!("cannot decode message: {error}"))))?;
        let id = asked.id;
        context.id = id;
        if asked.op == "close" {
            self.all.remove(&id);
            return Ok(());
        }
        if asked.op == "list"
            && let Some(list) = self.all.get(&id).and_then(|known| known.list.as_ref())
        {
            list.send_replace(asked);
            return Ok(());
        }
        self.all.retain(|other, known| *other != id && !known.task.is_finished());
        if self.all.len() >= SUBSCRIPTIONS_MAX {
            let message = format!("a page looks at {SUBSCRIPTIONS_MAX} things at most: close one first");
            return Err((id, Status::too_many_requests(message, 1)));
        }
        let mut list = None;
        let task = match asked.op.as_str() {
            "list" => {
                let (sender, wanted) = watch::channel(asked);
                list = Some(sender);
                tasks::spawn(list::run(context, wanted))
            }
            "object" => tasks::spawn(object::run(context, asked)),
            "events" => tasks::spawn(events::run(context, asked)),
            "overview" => tasks::spawn(overview::run(context)),
            "map" => tasks::spawn(map::run(context, asked)),
            other => return Err((id, Status::bad_request(format!("unknown operation {other:?}")))),
        };
        self.all.insert(id, Subscription { task, list });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_handshake_is_answered_as_its_standard_shows() {
        assert_eq!(super::accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
