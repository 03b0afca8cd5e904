//! Those who mean harm: other readings of requests, floods, and clients that take their time.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backend::Backend;
use crate::client::{ask, codes, raw};
use crate::world::{PATIENCE, World, config};

#[tokio::test]
async fn requests_with_two_readings_are_refused() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let before = backend.requests();
    for request in [
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nhell",
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4,4\r\n\r\nhell",
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0x4\r\n\r\nhell",
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: identity\r\n\r\nhell",
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.test\r\nX: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\nHost: a.test\n\n",
        "GET / HTTP/1.1\r\nHost: a.test\nX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.test\rX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.test\r\nX: a\0b\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a.test\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03\r\n\r\n",
    ] {
        let text = raw(world.http, request.as_bytes()).await;
        assert_eq!(codes(&text), ["400"], "{request:?}: {text}");
    }
    assert_eq!(backend.requests(), before, "no backend has seen any of them");
    // What hides in a body or behind a refused request is never a request.
    let hidden = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n";
    assert_eq!(codes(&raw(world.http, hidden.as_bytes()).await), ["400"]);
    let inside = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 42\r\nConnection: close\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n!!!!!";
    let text = raw(world.http, inside.as_bytes()).await;
    assert_eq!(codes(&text), ["200"], "{text}");
    assert!(world.metrics().await.contains("knarr_ingress_bad_requests_total"), "they are counted");
}

#[tokio::test]
async fn floods_of_headers_are_refused() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let many: String = (0..5000).map(|number| format!("x-{number}: y\r\n")).collect();
    let text = raw(world.http, format!("GET / HTTP/1.1\r\nHost: a.test\r\n{many}\r\n").as_bytes()).await;
    assert_eq!(codes(&text), ["431"], "{text}");
    let long = format!("GET / HTTP/1.1\r\nHost: a.test\r\nX: {}\r\n\r\n", "y".repeat(1 << 20));
    let text = raw(world.http, long.as_bytes()).await;
    assert!(text.is_empty() || codes(&text) == ["431"], "{text}");
    let path = format!("GET /{} HTTP/1.1\r\nHost: a.test\r\n\r\n", "p".repeat(1 << 20));
    let text = raw(world.http, path.as_bytes()).await;
    assert!(text.is_empty() || ["414", "431"].contains(&codes(&text)[0]), "{text}");
    assert_eq!(ask(world.http, "a.test", "/").await.status, 200);
}

#[tokio::test]
async fn clients_that_take_their_time_are_not_waited_for() {
    let timeout = Duration::from_millis(400);
    let world =
        World::start_with(ingress::Config { client_timeout: timeout, handshake_timeout: timeout, ..config() }).await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let before = backend.requests();
    // Says nothing, says nothing where TLS is expected, says a head drop by drop, stops within a body, begins HTTP/2 and stops.
    let beginnings: [(std::net::SocketAddr, &[u8]); 6] = [
        (world.http, b""),
        (world.https, b""),
        (world.http, b"GET / HTTP/1.1\r\nHost: a.te"),
        (world.http, b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\nhalf"),
        (world.http, b"PR"),
        (world.http, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ];
    let waiting = beginnings.map(|(address, bytes)| async move {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(bytes).await.expect("sent");
        let (began, mut buffer) = (Instant::now(), [0; 4096]);
        let mut drops = tokio::time::interval(Duration::from_millis(100));
        let mut all = Vec::new();
        loop {
            tokio::select! {
                read = stream.read(&mut buffer) => match read {
                    Ok(count @ 1..) => all.extend_from_slice(&buffer[..count]),
                    _ => break,
                },
                // Only the one with the unfinished head goes on.
                _ = drops.tick(), if bytes.ends_with(b".te") => { let _ = stream.write_all(b"s").await; }
            }
            assert!(began.elapsed() < PATIENCE, "{bytes:?} is still waited for");
        }
        (bytes, all)
    });
    for (bytes, answer) in futures::future::join_all(waiting).await {
        if bytes.ends_with(b"half") {
            assert!(answer.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&answer));
        }
    }
    assert!(backend.requests() <= before + 1, "only the one with the whole head can have been seen");
}

#[tokio::test]
async fn clients_that_do_not_read_are_cut_off() {
    let world = World::start_with(ingress::Config { client_timeout: Duration::from_millis(500), ..config() }).await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let mut stream = TcpStream::connect(world.http).await.expect("a connection");
    stream.write_all(b"GET /?bytes=200000000 HTTP/1.1\r\nHost: a.test\r\n\r\n").await.expect("sent");
    let deadline = Instant::now() + PATIENCE;
    // Our own question is a connection, too, but to another port.
    while !world.metrics().await.contains("process_connections 0\n") {
        assert!(Instant::now() < deadline, "{}", world.metrics().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_the_others_live() {
    let world = World::start_with(ingress::Config { connections_max: 10, ..config() }).await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let deadline = Instant::now() + PATIENCE;
    while !world.metrics().await.contains("process_connections 0\n") {
        assert!(Instant::now() < deadline);
    }
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(TcpStream::connect(world.http).await.expect("a connection"));
    }
    let deadline = Instant::now() + PATIENCE;
    while !world.metrics().await.contains("process_connections 10\n") {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(raw(world.http, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await, "");
    held[0].write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").await.expect("sent");
    let mut text = String::new();
    held[0].read_to_string(&mut text).await.expect("an answer");
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}

#[tokio::test]
async fn streams_that_are_opened_and_reset_at_once_do_not_wear_the_server_out() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let mut stream = TcpStream::connect(world.http).await.expect("a connection");
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    // :method GET, :scheme http, :path /, :authority a.test
    let block = [0x82, 0x86, 0x84, 0x41, 6, b'a', b'.', b't', b'e', b's', b't'];
    for number in 0..2000u32 {
        let id = (number * 2 + 1).to_be_bytes();
        bytes.extend_from_slice(&[0, 0, block.len() as u8, 1, 5]);
        bytes.extend_from_slice(&id);
        bytes.extend_from_slice(&block);
        bytes.extend_from_slice(&[0, 0, 4, 3, 0]);
        bytes.extend_from_slice(&id);
        bytes.extend_from_slice(&[0, 0, 0, 8]);
    }
    let _ = stream.write_all(&bytes).await;
    // The server says goodbye to such a client.
    let mut all = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await;
    assert!(end.is_ok(), "the connection is still open");
    assert_eq!(ask(world.http, "a.test", "/").await.status, 200);
}
