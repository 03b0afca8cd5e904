//! Answers small questions over HTTP: how we are, and how a Service is. One request a connection: monitoring and load
//! balancers ask so seldom that this is enough.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use reconcile::Shutdown;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

pub struct Answer {
    pub status: &'static str,
    pub content_type: &'static str,
    pub body: String,
}

impl Answer {
    pub fn json(is_good: bool, body: String) -> Answer {
        let status = if is_good { "200 OK" } else { "503 Service Unavailable" };
        Answer { status, content_type: "application/json", body }
    }

    pub fn text(body: String) -> Answer {
        Answer { status: "200 OK", content_type: "text/plain; version=0.0.4; charset=utf-8", body }
    }

    pub fn not_found() -> Answer {
        Answer {
            status: "404 Not Found",
            content_type: "text/plain; charset=utf-8",
            body: "404 page not found\n".into(),
        }
    }
}

/// Given the path that is asked for.
pub type Answers = Arc<dyn Fn(&str) -> Answer + Send + Sync>;

const CONNECTIONS_MAX: usize = 64;
const REQUEST_BYTES_MAX: u64 = 8192;
/// A request that is not complete by then is not waited for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

pub fn listen(address: SocketAddr, namespace: Option<&Path>) -> io::Result<TcpListener> {
    let open = || std::net::TcpListener::bind(address);
    let listener = match namespace {
        Some(path) => linux::netns::run_in(path, open)??,
        None => open()?,
    };
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Until told to stop.
pub async fn serve(listener: TcpListener, answers: Answers, stop: Shutdown) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match (accepted, room.clone().try_acquire_owned()) {
            (Ok((stream, _)), Ok(place)) => {
                let answers = answers.clone();
                tasks::spawn(async move {
                    // Whoever asked may be gone.
                    let _ = tokio::time::timeout(REQUEST_TIMEOUT, answer(stream, &answers)).await;
                    drop(place);
                });
            }
            // More than we serve at once: the connection is closed.
            (Ok(_), Err(_)) => {}
            // The next one may be taken; a pause keeps a lasting fault from using up a processor.
            (Err(_), _) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

async fn answer(mut stream: TcpStream, answers: &Answers) -> io::Result<()> {
    let (mut first, mut line) = (String::new(), String::new());
    let mut reader = BufReader::new((&mut stream).take(REQUEST_BYTES_MAX));
    reader.read_line(&mut first).await?;
    while reader.read_line(&mut line).await? > 2 {
        line.clear();
    }
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let answer = match method {
        "GET" | "HEAD" => answers(path.split('?').next().unwrap_or_default()),
        _ => Answer::not_found(),
    };
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nX-Content-Type-Options: nosniff\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.status,
        answer.content_type,
        answer.body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if method != "HEAD" {
        stream.write_all(answer.body.as_bytes()).await?;
    }
    stream.shutdown().await
}
