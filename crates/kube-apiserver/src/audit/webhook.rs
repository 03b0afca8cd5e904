//! Sends events elsewhere, many at a time: a request never waits for it, and what cannot be sent is lost in the end.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use component_base::tasks;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Batch;
use super::kubeconfig::Place;
use crate::outgoing::dial::{self, Connection, SendError};

/// Events that wait to be sent, as upstream; more are lost.
const WAITING_MAX: usize = 10_000;
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a batch is sent before it is lost, each time after a longer pause.
const TRIES_MAX: u32 = 5;

pub struct Webhook {
    events: mpsc::Sender<Bytes>,
}

impl Webhook {
    pub fn start(place: Place, batch: Batch, shutdown: CancellationToken) -> Webhook {
        let (events, waiting) = mpsc::channel(WAITING_MAX);
        tasks::spawn(send_all(place, batch, waiting, shutdown));
        Webhook { events }
    }

    pub fn take(&self, event: Bytes) {
        if self.events.try_send(event).is_err() {
            tracing::warn!("audit webhook buffer is full; dropping audit event");
        }
    }
}

async fn send_all(place: Place, batch: Batch, mut waiting: mpsc::Receiver<Bytes>, shutdown: CancellationToken) {
    let mut events: Vec<Bytes> = Vec::new();
    loop {
        let stops = gather(&mut events, batch, &mut waiting, &shutdown).await;
        if !events.is_empty() {
            let sending = send(&place, batch, list(&events));
            // The last ones get one chance.
            let sent = if stops {
                tokio::time::timeout(SEND_TIMEOUT, post(&place, list(&events))).await.unwrap_or(Err(PostError::Timeout))
            } else {
                sending.await
            };
            if let Err(error) = sent {
                tracing::error!(events = events.len(), %error, "cannot send audit events to webhook; dropping them");
            }
            events.clear();
        }
        if stops {
            return;
        }
    }
}

/// Until there are enough events or the first has waited long enough; whether it is time to stop.
async fn gather(
    events: &mut Vec<Bytes>,
    batch: Batch,
    waiting: &mut mpsc::Receiver<Bytes>,
    shutdown: &CancellationToken,
) -> bool {
    let mut until = None;
    while events.len() < batch.events_max {
        let timer = async {
            match until {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = waiting.recv() => match event {
                Some(event) => {
                    until.get_or_insert_with(|| tokio::time::Instant::now() + batch.wait_max);
                    events.push(event);
                }
                None => return true,
            },
            () = timer => return false,
            () = shutdown.cancelled() => {
                while let Ok(event) = waiting.try_recv() {
                    events.push(event);
                }
                return true;
            }
        }
    }
    false
}

/// Why events did not arrive.
#[derive(Debug, thiserror::Error)]
enum PostError {
    #[error("timeout")]
    Timeout,
    #[error(transparent)]
    Send(#[from] SendError),
    #[error("the webhook answered {0}")]
    Code(StatusCode),
}

async fn send(place: &Place, batch: Batch, body: Bytes) -> Result<(), PostError> {
    let mut pause = batch.retry_after;
    for _ in 1..TRIES_MAX {
        match tokio::time::timeout(SEND_TIMEOUT, post(place, body.clone())).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => tracing::warn!(%error, "cannot send audit events to webhook; retrying"),
            Err(_) => tracing::warn!("audit webhook timed out; retrying"),
        }
        tokio::time::sleep(pause).await;
        pause = pause.mul_f64(1.5);
    }
    tokio::time::timeout(SEND_TIMEOUT, post(place, body)).await.unwrap_or(Err(PostError::Timeout))
}

async fn post(place: &Place, body: Bytes) -> Result<(), PostError> {
    let connection: Box<dyn Connection> = match &place.tls {
        None => Box::new(dial::plain(&place.host, place.port).await.map_err(SendError::from)?),
        Some(tls) => {
            let name = ServerName::try_from(place.host.clone()).map_err(SendError::from)?;
            dial::secured(&place.host, place.port, tls.clone(), name).await.map_err(SendError::from)?
        }
    };
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await;
    let (mut sender, connection) = handshake.map_err(SendError::from)?;
    // It ends with its answer.
    tasks::spawn(connection);
    let mut request = Request::post(&place.path)
        .header(HOST, format!("{}:{}", place.host, place.port))
        .header(CONTENT_TYPE, "application/json");
    if let Some(authorization) = &place.authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let request = request.body(Full::new(body)).map_err(SendError::from)?;
    let answer = sender.send_request(request).await.map_err(SendError::from)?;
    let code = answer.status();
    // Read to its end, so that the other side sees an orderly one.
    let _ = answer.into_body().collect().await;
    if code.is_success() { Ok(()) } else { Err(PostError::Code(code)) }
}

fn list(events: &[Bytes]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_slice(br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#);
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            out.put_u8(b',');
        }
        out.put_slice(event);
    }
    out.put_slice(b"]}");
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn events_are_gathered_by_number_and_time() {
        let batch = Batch { events_max: 2, wait_max: Duration::from_secs(5), retry_after: Duration::from_secs(1) };
        let (sender, mut waiting) = mpsc::channel(10);
        let (mut events, shutdown) = (Vec::new(), CancellationToken::new());
        for _ in 0..3 {
            sender.send(Bytes::from_static(b"{}")).await.unwrap();
        }
        assert!(!gather(&mut events, batch, &mut waiting, &shutdown).await);
        assert_eq!(
            list(&events),
            r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[{},{}]}"#
        );
        events.clear();
        let began = tokio::time::Instant::now();
        assert!(!gather(&mut events, batch, &mut waiting, &shutdown).await);
        assert_eq!((events.len(), began.elapsed().as_secs()), (1, 5));
        events.clear();
        sender.send(Bytes::from_static(b"{}")).await.unwrap();
        shutdown.cancel();
        assert!(gather(&mut events, batch, &mut waiting, &shutdown).await);
    }
}
