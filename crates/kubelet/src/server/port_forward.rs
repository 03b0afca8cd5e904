//! Port-forward: connections to ports of a pod, each as a pair of streams for bytes and for what went wrong.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use component_base::tasks;
use cri::{Forwarded, Runtime, Streaming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::channel::{Incoming, Output};
use super::spdy::{self, Stream};
use super::websocket::{Channels, Encoding, WebSocket};

pub(crate) const SPDY_PROTOCOL: &str = "portforward.k8s.io";
/// SPDY frames inside WebSocket messages, as kubectl speaks since v1.31.
pub(crate) const TUNNEL_PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";
/// Channels of a WebSocket, two for each port that the query names.
pub(crate) static WEBSOCKET_PROTOCOLS: &[(&str, Encoding)] = &[
    ("v4.channel.k8s.io", Encoding::Binary),
    ("v4.base64.channel.k8s.io", Encoding::Base64),
    ("portforward.k8s.io", Encoding::Binary),
    ("", Encoding::Binary),
];

/// How long the second stream of a pair may take.
const PAIR_TIMEOUT: Duration = Duration::from_secs(30);
const PIECE_BYTES: usize = 32 * 1024;

/// The pod whose ports are reached.
#[derive(Clone)]
pub struct Target {
    pub runtime: Arc<dyn Runtime>,
    pub sandbox: String,
    /// As messages name it: `name_namespace`.
    pub pod: String,
    pub uid: String,
}

/// Pairs up streams by their request until the client goes.
pub(crate) async fn over_spdy(mut connection: spdy::Connection, target: Target) {
    let gone = connection.gone.clone();
    let mut halves: HashMap<String, (Stream, tokio::time::Instant)> = HashMap::new();
    let mut running = tokio::task::JoinSet::new();
    loop {
        let stream = tokio::select! {
            () = gone.cancelled() => break,
            stream = connection.streams.recv() => match stream {
                Some(stream) => stream,
                // The client opens no more; what runs goes on to its end.
                None => {
                    while running.join_next().await.is_some() {}
                    break;
                }
            },
            Some(_) = running.join_next() => continue,
        };
        let now = tokio::time::Instant::now();
        halves.retain(|_, (_, until)| *until > now);
        // Very old clients name no request: their streams come in pairs, the error stream first.
        let request = match stream.headers.get("requestid") {
            "" => match stream.headers.get("streamtype") {
                "error" => stream.id.to_string(),
                _ => stream.id.saturating_sub(2).to_string(),
            },
            named => named.to_string(),
        };
        let Some((other, _)) = halves.remove(&request) else {
            halves.insert(request, (stream, now + PAIR_TIMEOUT));
            continue;
        };
        let (data, error) = match stream.headers.get("streamtype") {
            "data" => (stream, other),
            _ => (other, stream),
        };
        let port = data.headers.get("port").to_string();
        let target = target.clone();
        running.spawn(tasks::boxed(
            async move { forward(&target, &port, data.incoming, data.output, error.output).await },
        ));
    }
    running.shutdown().await;
    connection.close().await;
}

/// Two channels for each port, each opened by the server with the port's number.
pub(crate) async fn over_websocket(socket: WebSocket, encoding: Encoding, ports: Vec<u16>, target: Target) {
    let mut channels = Channels::new(socket, encoding);
    let gone: CancellationToken = channels.gone.clone();
    let mut running = tokio::task::JoinSet::new();
    for (place, port) in ports.into_iter().enumerate() {
        let first = (place * 2) as u8;
        let (incoming, mut data, mut error) =
            (channels.incoming(first), channels.output(first), channels.output(first + 1));
        let target = target.clone();
        running.spawn(tasks::boxed(async move {
            let number = Bytes::copy_from_slice(&port.to_le_bytes());
            data.send(number.clone()).await;
            error.send(number).await;
            forward(&target, &port.to_string(), incoming, data, error).await;
        }));
    }
    channels.start();
    let all = async { while running.join_next().await.is_some() {} };
    tokio::select! {
        () = gone.cancelled() => {}
        () = all => {}
    }
}

async fn forward(target: &Target, port: &str, incoming: Incoming, mut data: Output, mut error: Output) {
    let outcome = match port.parse::<u16>() {
        Ok(number) if number > 0 => match target.runtime.port_forward(&target.sandbox, number).await {
            Ok(Streaming::Local(connection)) => {
                copy(connection, incoming, &mut data).await;
                Ok(())
            }
            Ok(Streaming::Url(_)) => Err("the runtime forwards ports elsewhere".to_string()),
            Err(refused) => Err(refused.to_string()),
        },
        _ => Err(format!("{port:?} is not a port")),
    };
    if let Err(why) = outcome {
        let text = format!("error forwarding port {port} to pod {}, uid {}: {why}", target.pod, target.uid);
        error.send(text.into()).await;
    }
    error.close().await;
    data.close().await;
}

/// Until both directions have ended: a client that has sent all may still read.
async fn copy(connection: Forwarded, mut incoming: Incoming, data: &mut Output) {
    let Forwarded { mut read, mut write } = connection;
    let inward = async {
        while let Some(bytes) = incoming.receive().await {
            if write.write_all(&bytes).await.is_err() || write.flush().await.is_err() {
                while incoming.receive().await.is_some() {}
                return;
            }
        }
        // The pod may have closed first.
        let _ = write.shutdown().await;
    };
    let outward = async {
        let mut buffer = BytesMut::with_capacity(PIECE_BYTES);
        loop {
            buffer.reserve(PIECE_BYTES);
            match read.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if !data.send(buffer.split().freeze()).await {
                break;
            }
        }
        data.close().await;
    };
    let (mut inward, mut outward) = (std::pin::pin!(inward), std::pin::pin!(outward));
    tokio::select! {
        // When the pod has closed, nothing that the client still sends can arrive.
        () = &mut outward => {}
        () = &mut inward => outward.await,
    }
}
