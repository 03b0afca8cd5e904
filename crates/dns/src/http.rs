//! `/metrics`, `/health` and `/ready`, as CoreDNS has them on its ports.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use reconcile::Shutdown;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::resolver::Resolver;

const REQUEST_BYTES_MAX: u64 = 8 << 10;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTIONS_MAX: usize = 32;
const FAILED_RETRY: Duration = Duration::from_millis(100);

/// Answers until shutdown. Being unable to is no reason to answer no questions.
pub async fn serve(address: SocketAddr, resolver: Arc<Resolver>, shutdown: Shutdown) {
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%address, %error, "the metrics of the cluster's DNS are not served"),
    };
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(FAILED_RETRY).await;
            continue;
        };
        let Ok(permit) = connections.clone().try_acquire_owned() else { continue };
        let resolver = resolver.clone();
        tasks::spawn(async move {
            let _ = tokio::time::timeout(REQUEST_TIMEOUT, answer(stream, &resolver)).await;
            drop(permit);
        });
    }
}

/// One request a connection: monitoring asks so seldom that this is enough.
async fn answer(mut stream: TcpStream, resolver: &Resolver) -> std::io::Result<()> {
    let (reading, mut writing) = stream.split();
    let mut reader = BufReader::new(reading.take(REQUEST_BYTES_MAX));
    let mut first = String::new();
    reader.read_line(&mut first).await?;
    let mut line = String::new();
    while reader.read_line(&mut line).await? > 2 {
        line.clear();
    }
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, body) = match path.split('?').next().unwrap_or_default() {
        "/metrics" => ("200 OK", resolver.metrics_text()),
        "/health" => ("200 OK", "OK".to_owned()),
        "/ready" if resolver.is_synced() => ("200 OK", "OK".to_owned()),
        "/ready" => ("503 Service Unavailable", "kubernetes".to_owned()),
        _ => ("404 Not Found", "404 page not found\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = if method == "HEAD" { "" } else { &*body };
    writing.write_all(format!("{head}{body}").as_bytes()).await
}
