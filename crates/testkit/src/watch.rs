//! A watch as a client sees it: one JSON event per line, for as long as the server sends them.

use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use crate::Client;

pub struct Watch {
    body: Incoming,
    buffer: Vec<u8>,
}

/// What a test compares of an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    pub revision: u64,
    pub event: String,
    pub name: String,
}

impl Client {
    /// Opens a watch; the path names what and from where.
    pub async fn watch(&self, path: &str) -> anyhow::Result<Watch> {
        let answer = self.open("GET", path, "", "").await?;
        if answer.status() != 200 {
            let body = answer.into_body().collect().await?.to_bytes();
            bail!("the watch was refused: {}", String::from_utf8_lossy(&body));
        }
        Ok(Watch { body: answer.into_body(), buffer: Vec::new() })
    }
}

impl Watch {
    /// The next event; none when the server ends the watch.
    pub async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).context("an event")?));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// Events until there are this many or the watch ends; bookmarks are passed over, and an error event is an error.
    pub async fn take(&mut self, count: usize, timeout: Duration) -> anyhow::Result<Vec<Seen>> {
        let mut seen = Vec::new();
        let until = tokio::time::Instant::now() + timeout;
        while seen.len() < count {
            let next = tokio::time::timeout_at(until, self.next()).await;
            let event = match next {
                Ok(event) => event?,
                Err(_) => bail!("only {} of {count} events came in {timeout:?}", seen.len()),
            };
            match event {
                None => break,
                Some(event) if event["type"] == "BOOKMARK" => {}
                Some(event) if event["type"] == "ERROR" => bail!("the watch failed: {event}"),
                Some(event) => seen.push(Seen::of(&event)?),
            }
        }
        Ok(seen)
    }
}

impl Seen {
    fn of(event: &Value) -> anyhow::Result<Seen> {
        let metadata = &event["object"]["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let revision = text(&metadata["resourceVersion"]).parse().context("an event's revision")?;
        Ok(Seen { revision, event: text(&event["type"]), name: text(&metadata["name"]) })
    }
}
