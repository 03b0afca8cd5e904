//! The backend and the load, both as cheap as they can be: they speak no more HTTP than this measurement needs.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use testkit::machine::{ADDRESS, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::HOST;
use crate::report::Latencies;

const LARGE_BYTES: usize = 256 * 1024;
/// However fast it is, a run ends.
const REQUESTS_EACH_MAX: usize = 200_000;

/// Who asks for what, and how.
#[derive(Clone, Copy)]
pub struct Shape {
    pub what: &'static str,
    pub path: &'static str,
    pub connections: usize,
    /// Whether connections stay.
    pub keep: bool,
    pub seconds: u64,
}

pub struct Measured {
    pub latencies: Latencies,
    elapsed: Duration,
    pub cpu_seconds: f64,
}

impl Measured {
    pub fn per_second(&self) -> f64 {
        self.latencies.count() as f64 / self.elapsed.as_secs_f64()
    }

    pub fn cpu_us_each(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.latencies.count().max(1) as f64
    }
}

/// Answers every request at once; ends when it is dropped.
pub struct Backend(Option<oneshot::Sender<()>>);

impl Backend {
    pub fn start(network: PathBuf, port: u16) -> anyhow::Result<Backend> {
        let (stop, stopped) = oneshot::channel();
        std::thread::Builder::new().name("backend".into()).spawn(move || {
            within(&network, move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async {
                    let listener = TcpListener::bind((ADDRESS, port)).await?;
                    let large = Arc::new(answer(&vec![b'x'; LARGE_BYTES]));
                    let serve = async {
                        while let Ok((stream, _)) = listener.accept().await {
                            tokio::spawn(serve(stream, large.clone()));
                        }
                    };
                    tokio::select! {
                        () = serve => {}
                        _ = stopped => {}
                    }
                    Ok(())
                })
            })
        })?;
        Ok(Backend(Some(stop)))
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.0.take().map(|stop| stop.send(()));
    }
}

fn answer(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

async fn serve(mut stream: TcpStream, large: Arc<Vec<u8>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let small = answer(b"ok\n");
    let mut seen: Vec<u8> = Vec::with_capacity(4096);
    loop {
        if stream.read_buf(&mut seen).await? == 0 {
            return Ok(());
        }
        // The proxies send a request when the last was answered.
        if seen.ends_with(b"\r\n\r\n") {
            let wanted = if seen.starts_with(b"GET /large") { &large[..] } else { &small };
            stream.write_all(wanted).await?;
            seen.clear();
        }
    }
}

/// Whether the route is there.
pub fn answers(address: &str, port: u16) -> std::io::Result<bool> {
    let mut stream = std::net::TcpStream::connect((address, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(request("/", false).as_bytes())?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    Ok(text.starts_with(b"HTTP/1.1 200"))
}

fn request(path: &str, keep: bool) -> String {
    let end = if keep { "" } else { "Connection: close\r\n" };
    format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nUser-Agent: benches/1.0\r\nAccept: */*\r\n{end}\r\n")
}

pub fn run(network: &Path, shape: Shape, port: u16) -> anyhow::Result<Measured> {
    within(network, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            let began = Instant::now();
            let until = began + Duration::from_secs(shape.seconds);
            let clients: Vec<_> = (0..shape.connections).map(|_| tokio::spawn(client(shape, port, until))).collect();
            let mut all = Vec::new();
            for client in clients {
                all.extend(client.await.map_err(std::io::Error::other)??);
            }
            Ok(Measured { latencies: Latencies::new(all), elapsed: began.elapsed(), cpu_seconds: 0.0 })
        })
    })
    .context("the load")
}

async fn client(shape: Shape, port: u16, until: Instant) -> std::io::Result<Vec<Duration>> {
    let request = request(shape.path, shape.keep);
    let mut buffer = vec![0; 64 * 1024];
    let mut latencies = Vec::new();
    let mut kept: Option<TcpStream> = None;
    for _ in 0..REQUESTS_EACH_MAX {
        let sent = Instant::now();
        if sent >= until {
            break;
        }
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect((ADDRESS, port)).await?;
                stream.set_nodelay(true)?;
                stream
            }
        };
        stream.write_all(request.as_bytes()).await?;
        exchange(&mut stream, &mut buffer).await?;
        latencies.push(sent.elapsed());
        if shape.keep {
            kept = Some(stream);
        }
    }
    Ok(latencies)
}

/// Reads one answer to its end.
async fn exchange(stream: &mut TcpStream, buffer: &mut [u8]) -> std::io::Result<()> {
    let wrong = |what: &str| std::io::Error::other(what.to_owned());
    let mut filled = 0;
    let (head, length) = loop {
        let count = stream.read(&mut buffer[filled..]).await?;
        if count == 0 {
            return Err(wrong("the connection ended"));
        }
        filled += count;
        if let Some(end) = buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            if !head.starts_with("http/1.1 200") {
                return Err(wrong(&head));
            }
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
            break (end + 4, length.ok_or_else(|| wrong("no length"))?);
        }
    };
    let mut left = (head + length).saturating_sub(filled);
    while left > 0 {
        let most = left.min(buffer.len());
        match stream.read(&mut buffer[..most]).await? {
            0 => return Err(wrong("the answer ended too early")),
            count => left -= count,
        }
    }
    Ok(())
}
