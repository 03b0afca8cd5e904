//! The small HTTP server that shows monitoring how a component is doing. It answers one request a connection: monitoring and
//! load balancers ask so seldom that this is enough, and there is no connection that could be kept open.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub use http::StatusCode;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::metrics::Slis;
use crate::{Shutdown, tasks};

/// Served at once by one listener; more are closed unanswered.
const CONNECTIONS_MAX: usize = 64;
const REQUEST_BYTES_MAX: u64 = 16 << 10;
/// A request that is not complete by then is not waited for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer that is not sent by then is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// After a connection could not be accepted, so that a lasting fault does not use up a processor.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

const PLAIN: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Default)]
pub struct Request {
    pub method: String,
    /// Without its query.
    pub path: String,
    pub headers: HeaderMap,
}

impl Request {
    /// What the client says of the forms it reads.
    pub fn accept(&self) -> String {
        let values = self.headers.get_all(http::header::ACCEPT).iter();
        values.filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",")
    }

    /// The bearer token that was sent along.
    pub fn token(&self) -> Option<&str> {
        let values = self.headers.get_all(http::header::AUTHORIZATION).iter();
        values
            .filter_map(|value| value.to_str().ok()?.trim().split_once(' '))
            .find_map(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: StatusCode,
    content_type: &'static str,
    /// The header `Warning`, where there is one.
    warning: Option<&'static str>,
    pub body: String,
}

impl Answer {
    pub fn new(status: StatusCode, content_type: &'static str, body: impl Into<String>) -> Answer {
        Answer { status, content_type, warning: None, body: body.into() }
    }

    pub fn warning(self, warning: Option<&'static str>) -> Answer {
        Answer { warning, ..self }
    }

    /// Text under the type of metrics, which monitoring reads as plain text as well.
    pub fn text(status: StatusCode, body: impl Into<String>) -> Answer {
        Answer::new(status, METRICS, body)
    }

    pub fn ok(body: impl Into<String>) -> Answer {
        Answer::text(StatusCode::OK, body)
    }

    pub fn json(status: StatusCode, body: String) -> Answer {
        Answer::new(status, "application/json", body)
    }

    pub fn not_found() -> Answer {
        Answer::new(StatusCode::NOT_FOUND, PLAIN, "404 page not found\n")
    }
}

pub type Answers = Arc<dyn Fn(&Request) -> Answer + Send + Sync>;

/// Pages that only one component has, by their paths.
type Others = Arc<dyn Fn(&Request) -> Option<Answer> + Send + Sync>;

/// The pages that every component has: `/healthz`, `/livez`, `/readyz`, `/metrics` and `/metrics/slis`.
pub struct Pages {
    metrics: Arc<dyn Fn() -> String + Send + Sync>,
    slis: Slis,
    others: Others,
}

impl Pages {
    pub fn new(metrics: Arc<dyn Fn() -> String + Send + Sync>) -> Pages {
        Pages { metrics, slis: Slis::default(), others: Arc::new(|_| None) }
    }

    /// With pages besides these.
    pub fn and(self, others: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static) -> Pages {
        Pages { others: Arc::new(others), ..self }
    }

    pub fn answer(&self, request: &Request) -> Answer {
        match request.path.as_str() {
            "/healthz" => self.ping("healthz"),
            "/livez" => self.ping("livez"),
            "/readyz" => self.ping("readyz"),
            "/metrics" => Answer::ok((self.metrics)()),
            "/metrics/slis" => Answer::ok(self.slis.text()),
            _ => (self.others)(request).unwrap_or_else(Answer::not_found),
        }
    }

    /// That an answer comes is all there is to check.
    fn ping(&self, endpoint: &'static str) -> Answer {
        self.slis.observe("ping", endpoint, true);
        Answer::ok("ok")
    }
}

/// Answers until shutdown.
pub async fn serve(listener: TcpListener, answers: Answers, shutdown: Shutdown) {
    let serve = |stream| {
        let answers = answers.clone();
        tasks::boxed(async move { answer(stream, async |request| answers(&request)).await })
    };
    accept(listener, shutdown, serve).await;
}

/// Hands connections on until shutdown, at most `CONNECTIONS_MAX` at once.
pub async fn accept(listener: TcpListener, shutdown: Shutdown, serve: impl Fn(TcpStream) -> tasks::Boxed<()>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match (accepted, places.clone().try_acquire_owned()) {
            (Ok((stream, _)), Ok(place)) => {
                let serving = tokio::time::timeout(ANSWER_TIMEOUT, serve(stream));
                tasks::spawn(async move {
                    // Whoever asked may be gone, or too slow.
                    let _ = serving.await;
                    drop(place);
                });
            }
            (Ok(_), Err(_)) => tracing::debug!("too many connections to status page; closing the newest"),
            (Err(error), _) => {
                tracing::debug!(%error, "cannot accept connection to status page");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Reads one request and answers it. What does not arrive, or cannot be sent, needs no answer.
pub async fn answer<F>(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: impl FnOnce(Request) -> F)
where
    F: Future<Output = Answer>,
{
    let Ok(Ok(request)) = tokio::time::timeout(REQUEST_TIMEOUT, read(&mut stream)).await else { return };
    let is_head = request.method == "HEAD";
    let answer = match request.method.as_str() {
        "GET" | "HEAD" => answer(request).await,
        _ => Answer::not_found(),
    };
    let warning = answer.warning.map(|text| format!("Warning: {text}\r\n")).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nX-Content-Type-Options: nosniff\r\n{warning}Content-Length: {}\r\nConnection: close\r\n\r\n",
        answer.status,
        answer.content_type,
        answer.body.len()
    );
    let body = if is_head { "" } else { &*answer.body };
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Request> {
    let mut reader = BufReader::new(stream.take(REQUEST_BYTES_MAX));
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    let mut words = line.split_whitespace();
    let method = words.next().unwrap_or_default().to_owned();
    let path = words.next().unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
    let mut request = Request { method, path, headers: HeaderMap::new() };
    line.clear();
    while reader.read_line(&mut line).await? > 2 {
        if let Some((name, value)) = header(&line) {
            request.headers.append(name, value);
        }
        line.clear();
    }
    Ok(request)
}

/// A header that can be one.
fn header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    Some((name.parse().ok()?, value.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(request: &str) -> String {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        client.write_all(request.as_bytes()).await.unwrap();
        answer(server, async |request| Answer::ok(request.path)).await;
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        said
    }

    #[tokio::test]
    async fn a_head_has_no_body_and_nothing_is_changed_here() {
        let said = asked("GET /healthz?verbose HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\n/healthz"), "{said}");
        let said = asked("HEAD /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(said.contains("Content-Length: 8\r\n") && said.ends_with("\r\n\r\n"), "{said}");
        let said = asked("POST /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(said.starts_with("HTTP/1.1 404 Not Found\r\n"), "{said}");
    }

    #[test]
    fn health_checks_are_counted() {
        let more = |request: &Request| (request.path == "/more").then(|| Answer::ok("more"));
        let pages = Pages::new(Arc::new(|| "a 1\n".into())).and(more);
        let asked = |path: &str| pages.answer(&Request { path: path.into(), ..Request::default() });
        assert_eq!(asked("/readyz"), Answer::ok("ok"));
        assert_eq!(asked("/metrics"), Answer::ok("a 1\n"));
        assert_eq!(asked("/more"), Answer::ok("more"));
        assert_eq!(asked("/else"), Answer::not_found());
        let text = asked("/metrics/slis").body;
        assert!(text.contains("kubernetes_healthcheck{name=\"ping\",type=\"readyz\"} 1\n"), "{text}");
    }

    #[test]
    fn tokens_are_found_in_their_header() {
        let check = |line: &str, expected: Option<&str>| {
            let mut request = Request::default();
            request.headers.extend(header(line).map(|(name, value)| (Some(name), value)));
            assert_eq!(request.token(), expected, "{line}");
        };
        check("Authorization: Bearer abc\r\n", Some("abc"));
        check("authorization: bearer abc\r\n", Some("abc"));
        check("Authorization: Basic abc\r\n", None);
        check("X-Authorization: Bearer abc\r\n", None);
        check("Host: a\r\n", None);
    }

    /// Those who connect and say nothing hold no more than their places.
    #[tokio::test]
    async fn connections_beyond_the_limit_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), Shutdown::new());
        let server = tasks::spawn(serve(listener, Arc::new(|_| Answer::ok("ok")), shutdown.clone()));
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut refused = TcpStream::connect(address).await.unwrap();
        let mut said = String::new();
        assert_eq!(refused.read_to_string(&mut said).await.unwrap_or(0), 0, "{said}");
        drop(silent);
        // Places are free again as soon as the server has seen the others go.
        while !said.ends_with("ok") {
            said.clear();
            let mut stream = TcpStream::connect(address).await.unwrap();
            if stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.is_ok() {
                let _ = stream.read_to_string(&mut said).await;
            }
        }
        shutdown.cancel();
        server.await.unwrap();
    }
}
