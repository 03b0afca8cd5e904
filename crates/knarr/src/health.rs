//! What monitoring asks a component that runs alone: whether it lives, and how it is doing. Here without TLS, for the machine
//! itself; `secure.rs` answers the same to everyone else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use component_base::metrics::{self, Metric, Slis};
use component_base::tasks;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What `/metrics` answers.
pub type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// Listens from now on; the answers are given beside the caller.
pub async fn serve(address: SocketAddr, page_of: Page) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
    let slis = Arc::new(Slis::default());
    tasks::spawn(accept(listener, move |stream| {
        let (page_of, slis) = (page_of.clone(), slis.clone());
        async move { answer(stream, async |request: Request| page(&request.path, &page_of, &slis)).await }
    }));
    Ok(())
}

/// Serves every connection beside the others.
pub async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, _)) => _ = tasks::spawn(serve(stream)),
            // The next one may be taken; a pause keeps a lasting fault from using up a processor.
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

/// Upstream's metric of whether this process is the one that works.
pub fn leadership(component: &str, leads: &AtomicBool) -> String {
    let mut page = metrics::Page::default();
    page.family(&LEADERSHIP).sample(&[("name", component)], u8::from(leads.load(Ordering::Relaxed)));
    page.text()
}

const LEADERSHIP: Metric = Metric::gauge(
    "leader_election_master_status",
    "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. \
     'name' is the string used to identify the lease. Please make sure to group by name.",
);

const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// A request that is not complete by then is not waited for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Nobody who asks this little needs more.
const REQUEST_MAX: u64 = 16 * 1024;

pub struct Request {
    /// Without its query.
    pub path: String,
    /// The bearer token that was sent along.
    pub token: Option<String>,
    pub headers: http::HeaderMap,
}

pub struct Answer {
    code: u16,
    body: String,
}

impl Answer {
    pub fn new(code: u16, body: &str) -> Answer {
        Answer { code, body: body.into() }
    }
}

/// What there is to see.
pub fn page(path: &str, metrics: &Page, slis: &Slis) -> Answer {
    match path {
        "/healthz" => healthy("healthz", slis),
        "/livez" => healthy("livez", slis),
        "/readyz" => healthy("readyz", slis),
        "/metrics" => Answer::new(200, &metrics()),
        "/metrics/slis" => Answer::new(200, &slis.text()),
        _ => Answer::new(404, "404 page not found\n"),
    }
}

/// That an answer comes is all there is to check.
fn healthy(endpoint: &'static str, slis: &Slis) -> Answer {
    slis.observe("ping", endpoint, true);
    Answer::new(200, "ok")
}

/// One request a connection: monitoring asks so seldom that this is enough.
pub async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: impl AsyncFnOnce(Request) -> Answer) {
    let mut request = Request { path: String::new(), token: None, headers: http::HeaderMap::new() };
    let mut is_head = false;
    let read = async {
        let mut reader = BufReader::new((&mut stream).take(REQUEST_MAX));
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        let mut words = line.split_whitespace();
        is_head = words.next() == Some("HEAD");
        let target = words.next().unwrap_or_default();
        request.path = target.split('?').next().unwrap_or_default().to_owned();
        line.clear();
        while reader.read_line(&mut line).await? > 2 {
            request.token = request.token.take().or_else(|| bearer(&line));
            if let Some((name, value)) = header(&line) {
                request.headers.append(name, value);
            }
            line.clear();
        }
        std::io::Result::Ok(())
    };
    if !matches!(tokio::time::timeout(REQUEST_TIMEOUT, read).await, Ok(Ok(()))) {
        return;
    }
    let Answer { code, body } = answer(request).await;
    let reason = http::StatusCode::from_u16(code).ok().and_then(|status| status.canonical_reason()).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {code} {reason}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // Whoever asked may be gone.
    let body = if is_head { "" } else { &*body };
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// A header that can be one.
fn header(line: &str) -> Option<(http::HeaderName, http::HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    Some((name.parse().ok()?, value.trim().parse().ok()?))
}

fn bearer(line: &str) -> Option<String> {
    let (name, value) = line.split_once(':')?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let is_token = name.eq_ignore_ascii_case("authorization") && scheme.eq_ignore_ascii_case("bearer");
    is_token.then(|| token.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_head_has_no_body() {
        for (method, body) in [("HEAD", ""), ("GET", "ok")] {
            let (mut client, server) = tokio::io::duplex(1024);
            client.write_all(format!("{method} /healthz HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
            answer(server, async |_| Answer::new(200, "ok")).await;
            let mut said = String::new();
            client.read_to_string(&mut said).await.unwrap();
            assert!(said.contains("Content-Length: 2\r\n") && said.ends_with(&format!("\r\n\r\n{body}")), "{said}");
        }
    }

    #[test]
    fn health_checks_are_counted() {
        let (metrics, slis): (Page, Slis) = (Arc::new(String::new), Slis::default());
        assert_eq!(page("/readyz", &metrics, &slis).body, "ok");
        let text = page("/metrics/slis", &metrics, &slis).body;
        assert!(text.contains("kubernetes_healthcheck{name=\"ping\",type=\"readyz\"} 1\n"), "{text}");
    }

    #[test]
    fn tokens_are_found_in_their_header() {
        let check = |line: &str, expected: Option<&str>| assert_eq!(bearer(line).as_deref(), expected, "{line}");
        check("Authorization: Bearer abc\r\n", Some("abc"));
        check("authorization: bearer abc\r\n", Some("abc"));
        check("Authorization: Basic abc\r\n", None);
        check("X-Authorization: Bearer abc\r\n", None);
        check("Host: a\r\n", None);
    }
}
