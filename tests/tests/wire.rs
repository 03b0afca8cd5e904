//! Connections that are wrong or unusual at the HTTP level: sent byte by byte, answered and ended properly.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{Client, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

async fn start() -> (Server, Client) {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    (server, client)
}

/// Writes these bytes on a new connection and reads until the server ends it.
async fn exchange(client: &Client, bytes: &[u8]) -> String {
    let mut stream = client.connect().await.unwrap();
    // The server may answer and end before it has read everything.
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "the server neither answered nor ended: {}", String::from_utf8_lossy(&answer));
    String::from_utf8_lossy(&answer).into_owned()
}

fn memory_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_body_of_a_hundred_megabytes_is_refused_while_it_comes() {
    let (server, client) = start().await;
    let before = memory_bytes(&server);
    let mut stream = client.connect().await.unwrap();
    let head = format!(
        "POST {SECRETS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut read, mut write) = tokio::io::split(stream);
    let sending = tokio::spawn(async move {
        let chunk = [b"10000\r\n", "x".repeat(65_536).as_bytes(), b"\r\n"].concat();
        let mut sent = 0;
        while sent < 100 << 20 {
            if write.write_all(&chunk).await.is_err() {
                break;
            }
            sent += 65_536;
        }
        let _ = write.write_all(b"0\r\n\r\n").await;
        sent
    });
    let mut answer = vec![0; 16];
    tokio::time::timeout(Duration::from_secs(60), read.read_exact(&mut answer)).await.expect("an answer").unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&answer));
    drop(read);
    sending.abort();
    let grown = memory_bytes(&server).saturating_sub(before);
    assert!(grown < 40 << 20, "the server grew by {} MiB", grown >> 20);

    // One that says its size in advance is refused before it is sent.
    let announced = format!(
        "POST {SECRETS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 104857600\r\nConnection: close\r\n\r\n"
    );
    let answer = exchange(&client, announced.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("Request entity too large: limit is 3145728"), "{answer}");
}

#[tokio::test]
async fn heads_that_are_wrong() {
    let (_server, client) = start().await;
    let many_headers: String = (0..5_000).map(|number| format!("X-{number}: y\r\n")).collect();
    for (bytes, codes) in [
        ("GET /healthz\r\n\r\n".to_string(), &["400", ""][..]),
        ("NONSENSE\r\n\r\n".to_string(), &["400", ""]),
        ("GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n".to_string(), &["400", "505", ""]),
        ("GET /healthz HTTP/1.1\r\nbad header\r\n\r\n".to_string(), &["400", ""]),
        ("GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n".to_string(), &["400", ""]),
        ("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_string(), &["400", ""]),
        (format!("POST {SECRETS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), &["400", ""]),
        (format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{many_headers}\r\n"), &["431", "400", ""]),
        (format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(2 << 20)), &["414", "431", "400", ""]),
    ] {
        let answer = exchange(&client, bytes.as_bytes()).await;
        let code = answer.split(' ').nth(1).unwrap_or_default();
        assert!(codes.contains(&code), "{:?}: {answer}", &bytes[..bytes.len().min(80)]);
    }
    assert_eq!(client.get("/healthz").await.unwrap().text(), "ok");
}

#[tokio::test]
async fn slow_heads_and_half_closed_connections_end() {
    let (_server, client) = start().await;
    // A head that never comes to its end must not hold a connection for ever.
    let mut slow = client.connect().await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.unwrap();
    let began = Instant::now();
    // Ended after the request was sent: the answer still comes.
    let mut half = client.connect().await.unwrap();
    half.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    half.shutdown().await.unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    // Ended in the middle of a body: nothing is made.
    let mut cut = client.connect().await.unwrap();
    let head = format!(
        "POST {SECRETS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{{\"metadata\":{{\"name\":\"cut\"}}}}"
    );
    cut.write_all(head.as_bytes()).await.unwrap();
    cut.shutdown().await.unwrap();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(30), cut.read_to_end(&mut rest)).await.expect("an end");
    assert_eq!(client.get(&format!("{SECRETS}/cut")).await.unwrap().code, 404);
    // No TLS at all.
    let address = client.address();
    let mut plain = tokio::net::TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(30), plain.read_to_end(&mut rest)).await.expect("an end");
    assert!(!rest.starts_with(b"HTTP/1.1 200"));

    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(60), slow.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "a head that does not end was waited for over {:?}", began.elapsed());
}

#[tokio::test]
async fn older_and_newer_ways_to_speak_http() {
    let (server, client) = start().await;
    let answer = exchange(&client, b"GET /healthz HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with("ok"), "{answer}");

    let body = json!({"metadata": {"name": "chunked"}}).to_string();
    let (first, second) = body.split_at(10);
    let chunked = format!(
        "POST {SECRETS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n",
        first.len(),
        second.len()
    );
    assert!(exchange(&client, chunked.as_bytes()).await.starts_with("HTTP/1.1 201"));

    let pipelined =
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(&client, pipelined).await.matches("HTTP/1.1 200").count(), 2);

    let expecting = format!(
        "POST {SECRETS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(&client, expecting.as_bytes()).await;
    assert!(answer.contains("HTTP/1.1 409"), "{answer}");

    // HTTP/2 is agreed upon in the handshake; many requests share the connection.
    let mut sender = client.http2().await.unwrap();
    for path in ["/healthz", SECRETS, "/api"] {
        let request = http::Request::get(format!("{}{path}", server.url))
            .body(http_body_util::Empty::<bytes::Bytes>::new())
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_2), "{path}");
    }
}

#[tokio::test]
async fn answers_are_compressed_when_asked_and_large() {
    use std::io::Write as _;
    let (_server, client) = start().await;
    let large = json!({"metadata": {"name": "large"}, "stringData": {"a": "b".repeat(200_000)}});
    client.post(SECRETS, &large).await.unwrap();
    let zipped = client.with_header("accept-encoding", "gzip").get(SECRETS).await.unwrap();
    assert_eq!(zipped.headers.get("content-encoding").map(|value| value.to_str().unwrap()), Some("gzip"));
    assert!(zipped.body.len() < 20_000, "{} bytes", zipped.body.len());
    let mut file = tempfile::NamedTempFile::with_suffix(".gz").unwrap();
    file.write_all(&zipped.body).unwrap();
    let unzipped = std::process::Command::new("gzip").arg("-dc").arg(file.path()).output().unwrap();
    let plain = client.get(SECRETS).await.unwrap();
    assert_eq!(plain.headers.get("content-encoding"), None);
    assert_eq!(unzipped.stdout, plain.body);
    // A watch comes event by event, and is not held back for compression.
    let small = client.with_header("accept-encoding", "gzip").get("/healthz").await.unwrap();
    assert_eq!((small.text().as_str(), small.headers.get("content-encoding")), ("ok", None));
}

#[tokio::test]
async fn methods_that_change_nothing_or_do_not_exist() {
    let (_server, client) = start().await;
    client.post(SECRETS, &json!({"metadata": {"name": "kept"}})).await.unwrap();
    let before = client.get(SECRETS).await.unwrap().json()["items"].clone();
    for (method, path, codes) in [
        ("HEAD", "/healthz", &[200, 405][..]),
        ("HEAD", SECRETS, &[200, 405]),
        ("OPTIONS", SECRETS, &[403, 404, 405]),
        ("TRACE", SECRETS, &[403, 404, 405]),
        ("BREW", SECRETS, &[403, 404, 405]),
        ("CONNECT", "/api/v1/nodes", &[400, 403, 404, 405]),
    ] {
        let reply = client.send(method, path, "", "").await.unwrap();
        assert!(codes.contains(&reply.code), "{method} {path}: {} {}", reply.code, reply.text());
        if method == "HEAD" {
            assert!(reply.body.is_empty());
        }
    }
    assert_eq!(client.get(SECRETS).await.unwrap().json()["items"], before);
}
