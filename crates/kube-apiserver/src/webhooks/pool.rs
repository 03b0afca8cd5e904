//! Connections to webhooks, kept for the next call.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::time::Instant;

use super::{ExchangeError, Hook};
use crate::outgoing::dial::SendError;
use crate::outgoing::way::Way;

/// Kept to one place; more are closed when their answer has been read.
const IDLE_PER_PLACE_MAX: usize = 16;
const IDLE_MAX: usize = 256;
/// As long as Go's client keeps one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

pub type Sender = SendRequest<Full<Bytes>>;

#[derive(Default)]
pub struct Pool {
    /// To Services.
    egress: Way,
    idle: Mutex<HashMap<String, Vec<(Sender, Instant)>>>,
}

impl Pool {
    pub fn new(egress: Way) -> Pool {
        Pool { egress, ..Pool::default() }
    }

    pub fn take(&self, key: &str) -> Option<Sender> {
        let mut idle = self.idle.lock();
        let kept = idle.get_mut(key)?;
        while let Some((sender, since)) = kept.pop() {
            if sender.is_ready() && since.elapsed() < IDLE_TIMEOUT {
                return Some(sender);
            }
        }
        idle.remove(key);
        None
    }

    pub fn keep(&self, key: &str, sender: Sender) {
        let mut idle = self.idle.lock();
        idle.retain(|_, kept| {
            kept.retain(|(sender, since)| !sender.is_closed() && since.elapsed() < IDLE_TIMEOUT);
            !kept.is_empty()
        });
        if idle.values().map(Vec::len).sum::<usize>() >= IDLE_MAX {
            return;
        }
        let kept = idle.entry(key.to_string()).or_default();
        if kept.len() < IDLE_PER_PLACE_MAX {
            kept.push((sender, Instant::now()));
        }
    }
}

pub async fn connect(pool: &Pool, hook: &Hook, place: &(String, u16)) -> Result<Sender, ExchangeError> {
    let name = ServerName::try_from(hook.server_name().to_string()).map_err(SendError::from)?;
    // A URL is not of the cluster.
    let way = if hook.is_service() { &pool.egress } else { &Way::Direct };
    let connection = way.secured(&place.0, place.1, hook.tls()?, name).await.map_err(SendError::from)?;
    let (sender, connection) = handshake(TokioIo::new(connection)).await.map_err(SendError::from)?;
    // It ends when the sender is dropped or the other side closes it.
    tokio::spawn(connection);
    Ok(sender)
}
