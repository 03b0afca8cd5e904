//! The load: clients with keep-alive TLS connections, each sending its next request when the last is answered.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::report::Latencies;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    /// Many clients share a connection, as those of one process do.
    Http2,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2",
        }
    }

    fn clients_per_connection(self) -> usize {
        match self {
            Protocol::Http1 => 1,
            Protocol::Http2 => 16,
        }
    }
}

pub enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub async fn open(client: &testkit::Client, protocol: Protocol) -> anyhow::Result<Connection> {
        let stream = TokioIo::new(client.connect().await?);
        // A connection's end shows in the answers that do not come.
        Ok(match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(async move { connection.await.ok() });
                Connection::Http1(sender)
            }
            Protocol::Http2 => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                builder.initial_stream_window_size(4 << 20).initial_connection_window_size(64 << 20);
                let (sender, connection) = builder.handshake(stream).await?;
                tokio::spawn(async move { connection.await.ok() });
                Connection::Http2(sender)
            }
        })
    }

    /// Connections for so many clients: one each, or shared ones.
    pub async fn open_all(
        client: &testkit::Client,
        protocol: Protocol,
        clients: usize,
    ) -> anyhow::Result<Vec<Connection>> {
        let mut connections: Vec<Connection> = Vec::with_capacity(clients);
        for number in 0..clients {
            let shared = match connections.last() {
                Some(Connection::Http2(sender)) if number % protocol.clients_per_connection() != 0 => {
                    Some(sender.clone())
                }
                _ => None,
            };
            connections.push(match shared {
                Some(sender) => Connection::Http2(sender),
                None => Connection::open(client, protocol).await?,
            });
        }
        Ok(connections)
    }

    pub async fn open_answer(
        &mut self,
        method: &str,
        path: &str,
        media: &'static str,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        let uri = match self {
            Connection::Http1(_) => path.to_string(),
            Connection::Http2(_) => format!("https://127.0.0.1{path}"),
        };
        let mut request = Request::builder().method(method).uri(uri).header("user-agent", "benches/1.0");
        if matches!(self, Connection::Http1(_)) {
            request = request.header("host", "127.0.0.1");
        }
        if !media.is_empty() {
            // What is sent, or what is asked for where nothing is.
            request = request.header(if method == "GET" { "accept" } else { "content-type" }, media);
        }
        let request = request.body(Full::new(body))?;
        let answer = match self {
            Connection::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Connection::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        Ok(answer)
    }

    /// Sends a request, reads the answer to its end, and says its code and how many bytes it had.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        media: &'static str,
        body: Bytes,
    ) -> anyhow::Result<(u16, usize)> {
        let answer = self.open_answer(method, path, media, body).await?;
        let code = answer.status().as_u16();
        let mut body = answer.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok((code, bytes))
    }
}

/// What one client does, again and again.
pub trait Client: Send + 'static {
    /// One request of this client; `number` counts its requests. False where the server refused it.
    fn step(&mut self, connection: &mut Connection, number: usize)
    -> impl Future<Output = anyhow::Result<bool>> + Send;
}

/// When a run ends: after so many requests of each client, or after so long, whichever is first.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub requests_each_max: usize,
    pub time_max: Duration,
}

pub struct Outcome {
    pub latencies: Latencies,
    pub refused: usize,
    pub elapsed: Duration,
    /// Processor time that the server took, in seconds.
    pub cpu_seconds: f64,
}

impl Outcome {
    pub fn per_second(&self) -> f64 {
        self.latencies.count() as f64 / self.elapsed.as_secs_f64()
    }

    pub fn cpu_ms_each(&self) -> f64 {
        self.cpu_seconds * 1000.0 / self.latencies.count().max(1) as f64
    }
}

/// Runs all clients at once, each on its own connection or stream.
pub async fn run<C: Client>(
    server: &testkit::Server,
    protocol: Protocol,
    bounds: Bounds,
    clients: Vec<C>,
) -> anyhow::Result<Outcome> {
    let connections = Connection::open_all(&server.client()?, protocol, clients.len()).await?;
    let cpu_before = crate::process::cpu_seconds(server.pid())?;
    let began = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for (mut client, mut connection) in clients.into_iter().zip(connections) {
        running.spawn(async move {
            let (mut latencies, mut refused) = (Vec::new(), 0);
            for number in 0..bounds.requests_each_max {
                let sent = Instant::now();
                if client.step(&mut connection, number).await? {
                    latencies.push(sent.elapsed());
                } else {
                    refused += 1;
                }
                if began.elapsed() >= bounds.time_max {
                    break;
                }
            }
            anyhow::Ok((latencies, refused))
        });
    }
    let (mut latencies, mut refused) = (Vec::new(), 0);
    while let Some(done) = running.join_next().await {
        let (mine, refused_mine) = done?.context("a client of the benchmark")?;
        latencies.extend(mine);
        refused += refused_mine;
    }
    let elapsed = began.elapsed();
    if latencies.is_empty() {
        bail!("the server refused every request");
    }
    let cpu_seconds = crate::process::cpu_seconds(server.pid())? - cpu_before;
    Ok(Outcome { latencies: Latencies::new(latencies), refused, elapsed, cpu_seconds })
}
