//! Where requests go, and what is changed on their way.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::json;

use crate::backend::Backend;
use crate::client::{Connection, ask, codes, get, raw, send, with};
use crate::world::{World, config, rule};

#[tokio::test]
async fn hosts_and_paths_lead_to_their_services() {
    let world = World::start().await;
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    assert_eq!(ask(world.http, "a.test", "/").await.status, 404, "there is no rule yet");
    world.service("one", &[&one]);
    world.service("two", &[&two]);
    world.service("empty", &[]);
    let rules = json!([
        rule("a.test", "/", "one"),
        rule("a.test", "/two", "two"),
        rule("*.b.test", "/", "two"),
        rule("c.test", "/", "empty"),
        rule("d.test", "/", "missing")
    ]);
    world.ingress("i", json!({}), json!({"rules": rules}));
    world.until("a.test", "/", |reply| reply.status == 200).await;
    for (host, path, backend, status) in [
        ("a.test", "/x", "one", 200),
        ("A.test:8080", "/two/x?y=1", "two", 200),
        ("a.test", "/twox", "one", 200),
        ("a.test", "/x/../two", "two", 200),
        ("x.b.test", "/", "two", 200),
        ("b.test", "/", "", 404),
        ("unknown.test", "/", "", 404),
        ("c.test", "/", "", 503),
        ("d.test", "/", "", 503),
        ("a.test", "/../x", "", 400),
    ] {
        let reply = ask(world.http, host, path).await;
        assert_eq!((reply.status, reply.backend()), (status, backend), "{host}{path}");
    }
    // The backend gets the path as it came.
    assert_eq!(ask(world.http, "a.test", "/x/../two?y=%20").await.said()["target"], "/x/../two?y=%20");
}

#[tokio::test]
async fn a_default_backend_takes_what_is_left() {
    let world = World::start().await;
    let backend = Backend::start("left").await;
    world.service("left", &[&backend]);
    let default = json!({"service": {"name": "left", "port": {"name": "web"}}});
    world.ingress("i", json!({}), json!({"defaultBackend": default}));
    world.until("whoever.test", "/x", |reply| reply.backend() == "left").await;
}

#[tokio::test]
async fn backends_learn_who_asks_and_clients_cannot_lie_about_it() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let lies = [
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-proto", "https"),
        ("x-real-ip", "6.6.6.6"),
        ("forwarded", "for=6.6.6.6"),
        ("x_forwarded_for", "6.6.6.6"),
        ("x-request-id", "mine"),
        ("connection", "x-private, x-real-ip"),
        ("x-private", "1"),
        ("te", "trailers"),
        ("keep-alive", "1"),
        ("x-kept", "yes"),
    ];
    let said = send(world.http, with("a.test:81", "/", &lies)).await.said();
    let headers = &said["headers"];
    let expected = json!({
        "host": "a.test:81",
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-host": "a.test:81",
        "x-forwarded-port": world.http.port().to_string(),
        "x-forwarded-proto": "http",
        "x-forwarded-scheme": "http",
        "x-kept": "yes",
        "x-real-ip": "127.0.0.1",
        "x-request-id": "mine",
        "x-scheme": "http",
    });
    assert_eq!(headers, &expected);
    let said = ask(world.http, "a.test", "/").await.said();
    assert_eq!(said["headers"]["x-request-id"].as_str().map(str::len), Some(32));
}

#[tokio::test]
async fn a_trusted_proxy_is_believed() {
    let trusted = vec!["127.0.0.0/8".parse().expect("a range")];
    let world = World::start_with(ingress::Config { trusted_proxies: trusted, ..config() }).await;
    let backend = Backend::start("b").await;
    let annotations = json!({"nginx.ingress.kubernetes.io/allowlist-source-range": "6.6.6.0/24"});
    world.annotated(annotations, &[&backend]).await;
    let words = [("x-forwarded-for", "9.9.9.9, 6.6.6.6"), ("x-forwarded-proto", "https"), ("x-real-ip", "6.6.6.6")];
    let said = send(world.http, with("a.test", "/", &words)).await.said();
    assert_eq!(said["headers"]["x-forwarded-for"], "9.9.9.9, 6.6.6.6, 127.0.0.1");
    assert_eq!(said["headers"]["x-forwarded-proto"], "https");
    assert_eq!(said["headers"]["x-real-ip"], "6.6.6.6");
    let other = send(world.http, with("a.test", "/", &[("x-forwarded-for", "6.6.6.6, 9.9.9.9")])).await;
    assert_eq!(other.status, 403, "only the last address that no proxy of ours has counts");
}

#[tokio::test]
async fn what_belongs_to_the_backends_connection_stays_there() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let reply = ask(world.http, "a.test", "/?hop=1").await;
    for name in ["x-secret", "keep-alive", "transfer-encoding"] {
        assert!(!reply.headers.contains_key(name), "{name} in {:?}", reply.headers);
    }
    assert_eq!(ask(world.http, "a.test", "/?status=418").await.status, 418);
}

#[tokio::test]
async fn connections_are_kept_on_both_sides() {
    let world = World::start_with(ingress::Config { worker_threads: 1, ..config() }).await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let before = backend.connections();
    let mut connection = Connection::open(world.http).await.expect("a connection");
    for _ in 0..50 {
        assert_eq!(connection.send(get("a.test", "/")).await.expect("an answer").status, 200);
    }
    assert!(backend.connections() <= before + 1, "{} connections for 50 requests", backend.connections());
}

#[tokio::test]
async fn bodies_pass_in_both_directions_without_being_kept() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let size = 20 << 20;
    let reply = ask(world.http, "a.test", &format!("/?bytes={size}")).await;
    assert_eq!(reply.body.len(), size);
    let request = Request::builder().method("POST").uri("/").header("host", "a.test");
    let reply = send(world.http, request.body(Full::new(Bytes::from(vec![b'y'; size]))).expect("a request")).await;
    assert_eq!(reply.said()["bytes"], size);
    // The first piece of an answer is there long before the second.
    let mut stream = tokio::net::TcpStream::connect(world.http).await.expect("a connection");
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    stream.write_all(b"GET /?trickle=60000 HTTP/1.1\r\nHost: a.test\r\n\r\n").await.expect("sent");
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains("first ") {
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut buffer)).await;
        text.push_str(&String::from_utf8_lossy(&buffer[..read.expect("in time").expect("bytes")]));
    }
}

#[tokio::test]
async fn chunked_bodies_and_requests_in_a_row_arrive() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let text = raw(
        world.http,
        b"POST /1 HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n\
          GET /2 HTTP/1.1\r\nHost: a.test\r\n\r\nPOST /3 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi\
          GET /4 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert_eq!(codes(&text), ["200"; 4], "{text}");
    assert!(text.contains("\"bytes\":11") && text.contains("\"target\":\"/4\""), "{text}");
}

#[tokio::test]
async fn clients_that_ask_first_whether_they_may_send_are_answered() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(world.http).await.expect("a connection");
    let head =
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n";
    stream.write_all(head).await.expect("sent");
    let mut buffer = [0; 256];
    let count =
        tokio::time::timeout(Duration::from_secs(20), stream.read(&mut buffer)).await.expect("in time").expect("bytes");
    assert!(buffer[..count].starts_with(b"HTTP/1.1 100 "), "{}", String::from_utf8_lossy(&buffer[..count]));
    stream.write_all(b"hi").await.expect("sent");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.expect("the answer");
    assert!(rest.contains("\"bytes\":2"), "{rest}");
}

#[tokio::test]
async fn requests_are_counted_and_written_down() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("access.log");
    let world = World::start_with(ingress::Config { access_log: Some(log.clone()), ..config() }).await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let agent = [("user-agent", "probe \"1\""), ("x-request-id", "r1")];
    send(world.http, with("a.test", "/seen?q=1", &agent)).await;
    send(world.http, with("nobody.test", "/", &[])).await;
    let deadline = std::time::Instant::now() + crate::world::PATIENCE;
    let written = loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if text.contains("r1") && text.contains("nobody.test") {
            break text;
        }
        assert!(std::time::Instant::now() < deadline, "{text}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let line = written.lines().find(|line| line.ends_with(" r1")).expect("the line");
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    assert!(line.contains("\"GET /seen?q=1 HTTP/1.1\" 200 "), "{line}");
    assert!(line.contains("\"probe \\\"1\\\"\""), "{line}");
    assert!(line.contains(&format!("[default-s] {} a.test r1", backend.address)), "{line}");
    // A log that is moved away is begun anew.
    std::fs::rename(&log, folder.path().join("access.log.1")).expect("moved");
    while !std::fs::read_to_string(&log).unwrap_or_default().contains("/after") {
        assert!(std::time::Instant::now() < deadline, "no new log");
        send(world.http, with("a.test", "/after", &[])).await;
    }
    let metrics = world.metrics().await;
    let counted = "nginx_ingress_controller_requests{namespace=\"default\",ingress=\"i\",service=\"s\",method=\"GET\",status=\"200\"}";
    assert!(metrics.contains(counted), "{metrics}");
    assert!(metrics.contains(
        "nginx_ingress_controller_requests{namespace=\"\",ingress=\"\",service=\"\",method=\"GET\",status=\"404\"}"
    ));
    assert!(metrics.contains("nginx_ingress_controller_request_duration_seconds_bucket{namespace=\"default\""));
}

#[tokio::test]
async fn backends_that_do_not_answer_in_time_are_given_up() {
    let world = World::start_with(ingress::Config { read_timeout: Duration::from_millis(300), ..config() }).await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    assert_eq!(ask(world.http, "a.test", "/?wait=20000").await.status, 504);
    let cut = crate::client::try_send(world.http, get("a.test", "/?trickle=20000")).await;
    assert!(cut.is_err(), "an answer that stops is not made to look complete: {cut:?}");
    assert_eq!(ask(world.http, "a.test", "/?trickle=10").await.body, "first second");
}
