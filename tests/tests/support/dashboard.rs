//! A page's side of the dashboard: signs in, asks, and looks at things live.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use testkit::{Client, Reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

pub const COOKIE: &str = "__Host-knarr-dashboard";
/// A state that is not reached in this time is never reached.
pub const LONG: Duration = Duration::from_secs(60);

/// Somebody who has signed in.
pub struct Page {
    /// With the cookie.
    pub client: Client,
    pub csrf: String,
    pub cookie: String,
    pub session: Value,
}

impl Page {
    pub async fn sign_in(client: &Client, how: &Value) -> Page {
        let reply = client.post("/dashboard/api/session", how).await.unwrap();
        assert_eq!(reply.code, 201, "{}", reply.text());
        let set = reply.headers["set-cookie"].to_str().unwrap().to_string();
        let cookie = set.split(';').next().unwrap().to_string();
        let session = reply.json();
        let csrf = session["csrf"].as_str().unwrap().to_string();
        Page { client: client.with_header("cookie", &cookie), csrf, cookie, session }
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.client.get(&format!("/dashboard/{path}")).await.unwrap()
    }

    pub async fn ok(&self, path: &str) -> Value {
        let reply = self.get(path).await;
        assert_eq!(reply.code, 200, "{path}: {}", reply.text());
        reply.json()
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        let client = self.client.with_header("x-knarr-csrf", &self.csrf);
        client.post(&format!("/dashboard/{path}"), body).await.unwrap()
    }

    pub async fn live(&self) -> Live {
        let origin = format!("https://{}", self.client.address());
        Live::open(&self.client, &origin, "/dashboard/api/live").await.expect("the live connection opens")
    }
}

type Stream = tokio_rustls::client::TlsStream<tokio::net::TcpStream>;

pub struct Live(pub WebSocketStream<Stream>);

impl Live {
    /// The code of the answer where it is not 101.
    pub async fn open(client: &Client, origin: &str, path: &str) -> Result<Live, u16> {
        let mut stream = client.connect().await.unwrap();
        let cookie = client.headers.get("cookie").map(|value| value.to_str().unwrap()).unwrap_or_default();
        let origin = if origin.is_empty() { String::new() } else { format!("Origin: {origin}\r\n") };
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nCookie: {cookie}\r\n{origin}\r\n",
            client.address()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        let text = String::from_utf8_lossy(&answer).into_owned();
        let code: u16 = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap();
        match code {
            101 => Ok(Live(WebSocketStream::from_raw_socket(stream, Role::Client, None).await)),
            code => Err(code),
        }
    }

    pub async fn say(&mut self, message: Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    /// The first frame of that number that is as wanted.
    pub async fn until(&mut self, id: u64, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = async {
            while let Some(Ok(message)) = self.0.next().await {
                let Message::Text(text) = message else { continue };
                let frame: Value = serde_json::from_str(&text).unwrap();
                if frame["id"] == json!(id) {
                    last = frame;
                    if wanted(&last) {
                        return true;
                    }
                }
            }
            false
        };
        let found = tokio::time::timeout(LONG, found).await;
        assert!(matches!(found, Ok(true)), "{what}: {found:?}, last {last}");
        last
    }
}

/// Until what is asked for is as wanted.
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let began = std::time::Instant::now();
    loop {
        match ask().await {
            Ok(found) => return found,
            Err(seen) => assert!(began.elapsed() < LONG, "{what}: not within {LONG:?}: {seen}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
