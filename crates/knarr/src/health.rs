//! What monitoring asks a component that runs alone: whether it lives, and how it is doing. Without TLS, for the machine itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What `/metrics` answers.
pub type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// Listens from now on; the answers are given beside the caller.
pub async fn serve(address: SocketAddr, page: Page) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => _ = tokio::spawn(answer(stream, page.clone())),
                // The next one may be taken; a pause keeps a lasting fault from using up a processor.
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            }
        }
    });
    Ok(())
}

/// Upstream's metric of whether this process is the one that works.
pub fn leadership(component: &str, leads: &AtomicBool) -> String {
    let value = u8::from(leads.load(Ordering::Relaxed));
    format!(
        "# HELP leader_election_master_status [ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates \
         backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.\n\
         # TYPE leader_election_master_status gauge\nleader_election_master_status{{name=\"{component}\"}} {value}\n"
    )
}

const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// A request that is not complete by then is not waited for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Nobody who asks this little needs more.
const REQUEST_MAX: u64 = 16 * 1024;

/// One request a connection: monitoring asks so seldom that this is enough.
async fn answer(mut stream: TcpStream, page: Page) {
    let mut first = String::new();
    let request = async {
        let mut reader = BufReader::new((&mut stream).take(REQUEST_MAX));
        reader.read_line(&mut first).await?;
        let mut line = String::new();
        while reader.read_line(&mut line).await? > 2 {
            line.clear();
        }
        std::io::Result::Ok(())
    };
    if !matches!(tokio::time::timeout(REQUEST_TIMEOUT, request).await, Ok(Ok(()))) {
        return;
    }
    let path = first.split_whitespace().nth(1).unwrap_or_default();
    let (status, body) = match path.split('?').next().unwrap_or_default() {
        "/healthz" | "/livez" | "/readyz" => ("200 OK", "ok".to_owned()),
        "/metrics" => ("200 OK", page()),
        _ => ("404 Not Found", "404 page not found\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // Whoever asked may be gone.
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
}
