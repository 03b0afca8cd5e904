//! What annotations of ingress-nginx do here.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::json;

use crate::backend::Backend;
use crate::client::{Connection, ask, get, raw, send, with};
use crate::world::{World, rule};

fn nginx(pairs: &[(&str, &str)]) -> serde_json::Value {
    pairs.iter().map(|(name, value)| (format!("nginx.ingress.kubernetes.io/{name}"), json!(value))).collect()
}

#[tokio::test]
async fn targets_are_rewritten() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.service("s", &[&backend]);
    let service = json!({"service": {"name": "s", "port": {"number": 80}}});
    let paths = json!([{"path": "/api(/|$)(.*)", "pathType": "ImplementationSpecific", "backend": service}]);
    world.ingress(
        "i",
        nginx(&[("rewrite-target", "/v1/$2"), ("use-regex", "true")]),
        json!({"rules": [{"host": "a.test", "http": {"paths": paths}}]}),
    );
    world.ingress("j", nginx(&[("rewrite-target", "/")]), json!({"rules": [rule("b.test", "/old", "s")]}));
    world.until("a.test", "/api", |reply| reply.status == 200).await;
    world.until("b.test", "/old", |reply| reply.status == 200).await;
    for (host, path, target) in [
        ("a.test", "/api/users?x=1", "/v1/users?x=1"),
        ("a.test", "/api", "/v1/"),
        ("a.test", "/api/a%20b", "/v1/a%20b"),
        ("b.test", "/old/x?y=z", "/?y=z"),
    ] {
        assert_eq!(ask(world.http, host, path).await.said()["target"], target, "{path}");
    }
}

#[tokio::test]
async fn requests_are_sent_elsewhere() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.service("s", &[&backend]);
    let spec = |host: &str| json!({"rules": [rule(host, "/", "s")]});
    world.ingress("force", nginx(&[("force-ssl-redirect", "true")]), spec("force.test"));
    world.ingress("moved", nginx(&[("permanent-redirect", "https://new.test/")]), spec("moved.test"));
    world.ingress("root", nginx(&[("app-root", "/app")]), spec("root.test"));
    let mut with_tls = spec("tls.test");
    with_tls["tls"] = json!([{"hosts": ["tls.test"]}]);
    world.ingress("tls", json!({}), with_tls.clone());
    with_tls["rules"] = json!([rule("plain.test", "/", "s")]);
    with_tls["tls"] = json!([{"hosts": ["plain.test"]}]);
    world.ingress("plain", nginx(&[("ssl-redirect", "false")]), with_tls);
    world.until("plain.test", "/", |reply| reply.status == 200).await;
    let port = world.https.port();
    for (host, path, status, location) in [
        ("force.test", "/x?y=1", 308, format!("https://force.test:{port}/x?y=1")),
        ("tls.test:8080", "/x", 308, format!("https://tls.test:{port}/x")),
        ("tls.test", "/.well-known/acme-challenge/token", 200, String::new()),
        ("moved.test", "/x", 301, "https://new.test/".to_owned()),
        ("root.test", "/", 302, "/app".to_owned()),
        ("root.test", "/other", 200, String::new()),
    ] {
        let reply = ask(world.http, host, path).await;
        assert_eq!((reply.status, reply.header("location")), (status, location.as_str()), "{host}{path}");
    }
}

#[tokio::test]
async fn bodies_are_limited() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.annotated(nginx(&[("proxy-body-size", "1k")]), &[&backend]).await;
    let post = |size: usize| {
        let request = Request::builder().method("POST").uri("/").header("host", "a.test");
        request.body(Full::new(Bytes::from(vec![b'y'; size]))).expect("a request")
    };
    assert_eq!(send(world.http, post(1024)).await.status, 200);
    assert_eq!(send(world.http, post(1025)).await.status, 413);
    let chunk = format!("400\r\n{}\r\n", "z".repeat(1024));
    let sent = format!("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n");
    let text = raw(world.http, sent.as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 413 "), "without a length it is noticed on the way: {text}");
}

#[tokio::test]
async fn addresses_are_let_in_or_kept_out() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.service("s", &[&backend]);
    let spec = |host: &str| json!({"rules": [rule(host, "/", "s")]});
    world.ingress("in", nginx(&[("whitelist-source-range", "10.0.0.0/8,127.0.0.0/8")]), spec("in.test"));
    world.ingress("out", nginx(&[("whitelist-source-range", "10.0.0.0/8")]), spec("out.test"));
    world.ingress("deny", nginx(&[("denylist-source-range", "127.0.0.1")]), spec("deny.test"));
    world.ingress("auth", nginx(&[("auth-url", "http://auth.test")]), spec("auth.test"));
    world.until("auth.test", "/", |reply| reply.status != 404).await;
    for (host, status) in [("in.test", 200), ("out.test", 403), ("deny.test", 403), ("auth.test", 503)] {
        let reply = send(world.http, with(host, "/", &[("x-forwarded-for", "10.0.0.1")])).await;
        assert_eq!(reply.status, status, "{host}");
    }
}

#[tokio::test]
async fn a_cookie_leads_back_to_the_same_endpoint() {
    let world = World::start().await;
    let backends = [Backend::start("one").await, Backend::start("two").await, Backend::start("three").await];
    let all: Vec<&Backend> = backends.iter().collect();
    let annotations =
        nginx(&[("affinity", "cookie"), ("session-cookie-name", "route"), ("session-cookie-max-age", "60")]);
    world.annotated(annotations, &all).await;
    let first = ask(world.http, "a.test", "/").await;
    let set = first.header("set-cookie").to_owned();
    assert!(set.starts_with("route=") && set.contains("; Path=/; Max-Age=60; HttpOnly"), "{set}");
    let cookie = set.split(';').next().expect("a cookie").to_owned();
    let mut connection = Connection::open(world.http).await.expect("a connection");
    for _ in 0..20 {
        let reply =
            connection.send(with("a.test", "/", &[("cookie", &format!("x=y; {cookie}"))])).await.expect("an answer");
        assert_eq!((reply.backend(), reply.header("set-cookie")), (first.backend(), ""));
    }
    let without: std::collections::BTreeSet<String> = {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..9 {
            seen.insert(connection.send(get("a.test", "/")).await.expect("an answer").backend().to_owned());
        }
        seen
    };
    assert_eq!(without.len(), 3, "without a cookie they take turns: {without:?}");
    // When the endpoint is gone another takes its place.
    let rest: Vec<&Backend> = all.into_iter().filter(|backend| backend.name != first.backend()).collect();
    world.endpoints("s", &rest);
    let gone = first.backend().to_owned();
    let deadline = tokio::time::Instant::now() + crate::world::PATIENCE;
    loop {
        let reply = send(world.http, with("a.test", "/", &[("cookie", &cookie)])).await;
        if reply.backend() != gone {
            assert!(reply.header("set-cookie").starts_with("route="));
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "still at {gone}");
    }
}
