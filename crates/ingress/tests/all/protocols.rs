//! HTTP/2, gRPC and WebSockets.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backend::Backend;
use crate::client::{self, raw};
use crate::world::{World, config, rule, server_tls};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_without_tls_is_understood() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let sender = client::http2(world.http).await;
    let requests = (0..40).map(|number| {
        let mut sender = sender.clone();
        async move {
            let request = Request::builder().uri(format!("http://a.test/{number}?wait=5")).header("cookie", "a=1");
            let request = request.header("cookie", "b=2").body(Full::<Bytes>::default()).expect("a request");
            let response = sender.send_request(request).await.expect("an answer");
            assert_eq!(response.status(), 200);
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            let said: serde_json::Value = serde_json::from_slice(&body).expect("words");
            assert_eq!(said["target"], format!("/{number}?wait=5"));
            assert_eq!(said["version"], "HTTP/1.1");
            assert_eq!(said["headers"]["host"], "a.test");
            assert_eq!(said["headers"]["cookie"], "a=1; b=2");
        }
    });
    futures::future::join_all(requests).await;
    let curl = std::process::Command::new("curl")
        .args([
            "-sS",
            "--max-time",
            "20",
            "--http2-prior-knowledge",
            "-w",
            "%{http_version} %{http_code}",
            "-o",
            "/dev/null",
            "-H",
            "Host: a.test",
        ])
        .arg(format!("http://{}/", world.http))
        .output()
        .expect("curl runs");
    assert_eq!(String::from_utf8_lossy(&curl.stdout), "2 200", "{}", String::from_utf8_lossy(&curl.stderr));
}

/// A call as gRPC makes them: trailers say how it ended.
async fn call(world: &World, host: &str) -> (String, Option<String>, usize) {
    let mut sender = client::http2(world.http).await;
    let request = Request::builder().method("POST").uri(format!("http://{host}/pkg.Service/Method"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    let request = request.body(Full::new(Bytes::from_static(b"\0\0\0\0\x02hi"))).expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    let version = response.headers().get("x-version").and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    let collected = response.into_body().collect().await.expect("a body");
    let status = collected.trailers().and_then(|trailers| trailers.get("grpc-status")).cloned();
    let status = status.map(|value| value.to_str().expect("text").to_owned());
    (version, status, collected.to_bytes().len())
}

#[tokio::test]
async fn grpc_reaches_backends_that_speak_http2() {
    let world = World::start().await;
    let plain = Backend::start("plain").await;
    let encrypted = Backend::start_with("encrypted", Some(server_tls(&[b"h2"]))).await;
    world.service_with("by-port", json!({"port": 80, "name": "web", "appProtocol": "kubernetes.io/h2c"}), &[&plain]);
    world.service("by-annotation", &[&plain]);
    world.service("encrypted", &[&encrypted]);
    world.ingress("port", json!({}), json!({"rules": [rule("port.test", "/", "by-port")]}));
    let grpc = |kind: &str| json!({"nginx.ingress.kubernetes.io/backend-protocol": kind});
    world.ingress("annotation", grpc("GRPC"), json!({"rules": [rule("annotation.test", "/", "by-annotation")]}));
    world.ingress("encrypted", grpc("GRPCS"), json!({"rules": [rule("encrypted.test", "/", "encrypted")]}));
    for host in ["port.test", "annotation.test", "encrypted.test"] {
        world.until(host, "/", |reply| reply.status == 200).await;
        let (version, status, bytes) = call(&world, host).await;
        assert_eq!((version.as_str(), status.as_deref(), bytes), ("HTTP/2.0", Some("0"), 7), "{host}");
    }
    let said = client::ask(world.http, "port.test", "/").await.said();
    assert_eq!((said["version"].as_str(), said["authority"].as_str()), (Some("HTTP/2.0"), Some("port.test")));
    let before = plain.connections();
    for _ in 0..20 {
        call(&world, "port.test").await;
    }
    assert!(plain.connections() <= before + 2, "calls share connections: {}", plain.connections());
}

#[tokio::test]
async fn backends_with_tls_are_reached() {
    let world = World::start().await;
    let backend = Backend::start_with("encrypted", Some(server_tls(&[b"http/1.1"]))).await;
    world.annotated(json!({"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}), &[&backend]).await;
    assert_eq!(client::ask(world.http, "a.test", "/").await.backend(), "encrypted");
}

async fn upgraded(world: &World, protocol: &str) -> TcpStream {
    let mut stream = TcpStream::connect(world.http).await.expect("a connection");
    let head =
        format!("GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: {protocol}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 ") && head.contains(&format!("upgrade: {protocol}")), "{head}");
    stream
}

#[tokio::test]
async fn websockets_carry_bytes_both_ways() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let mut stream = upgraded(&world, "websocket").await;
    // Bytes that would be a wrong request, and many of them.
    for message in [&b"\x81\x05hello\n\n"[..], &[7; 100_000]] {
        let (mut reader, mut writer) = stream.split();
        let mut echo = vec![0; message.len()];
        let (sent, read) = tokio::join!(writer.write_all(message), reader.read_exact(&mut echo));
        sent.expect("sent");
        read.expect("echoed");
        assert_eq!(echo, message);
    }
    assert!(world.metrics().await.contains("knarr_ingress_tunnels 1"));
    // Requests on other connections go on, and an endpoint's removal does not cut the tunnel.
    world.endpoints("s", &[]);
    world.until("a.test", "/", |reply| reply.status == 503).await;
    stream.write_all(b"still there").await.expect("sent");
    let mut echo = [0; 11];
    stream.read_exact(&mut echo).await.expect("echoed");
    drop(stream);
    let deadline = tokio::time::Instant::now() + crate::world::PATIENCE;
    while !world.metrics().await.contains("knarr_ingress_tunnels 0") {
        assert!(tokio::time::Instant::now() < deadline, "the tunnel does not end with its client");
    }
}

#[tokio::test]
async fn silent_tunnels_end() {
    let world =
        World::start_with(ingress::Config { tunnel_idle_timeout: Duration::from_millis(200), ..config() }).await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let mut stream = upgraded(&world, "echo").await;
    let mut buffer = [0; 1];
    let ended = tokio::time::timeout(crate::world::PATIENCE, stream.read(&mut buffer)).await.expect("it ends");
    assert!(matches!(ended, Ok(0) | Err(_)));
}

#[tokio::test]
async fn upgrades_are_no_way_around_the_rules() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    // An upgrade to HTTP/2 is not passed on, so nothing can follow it unseen.
    let text = raw(
        world.http,
        b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n\r\n",
    )
    .await;
    assert!(
        text.starts_with("HTTP/1.1 200 ") && !text.contains("\"upgrade\"") && !text.contains("http2-settings"),
        "{text}"
    );
    // A backend that does not upgrade leaves the connection as it was: guarded.
    let text = raw(
        world.http,
        b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\nGET /x HTTP/1.1\nHost: a.test\n\n",
    )
    .await;
    assert_eq!(client::codes(&text), ["200", "400"], "{text}");
}
