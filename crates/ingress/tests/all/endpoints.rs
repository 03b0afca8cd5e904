//! Endpoints that come, go, fail and end, under requests that must not notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use crate::backend::Backend;
use crate::client::{Connection, ask, get, send, try_send};
use crate::world::{PATIENCE, World, config};

#[tokio::test]
async fn requests_take_turns_and_follow_the_endpoints() {
    let world = World::start().await;
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    world.simple(&[&one, &two]).await;
    let before = (one.requests(), two.requests());
    for _ in 0..20 {
        ask(world.http, "a.test", "/").await;
    }
    assert_eq!((one.requests() - before.0, two.requests() - before.1), (10, 10));
    let three = Backend::start("three").await;
    world.endpoints("s", &[&three]);
    world.until("a.test", "/", |reply| reply.backend() == "three").await;
    for _ in 0..10 {
        assert_eq!(ask(world.http, "a.test", "/").await.backend(), "three");
    }
    world.endpoints("s", &[]);
    world.until("a.test", "/", |reply| reply.status == 503).await;
}

#[tokio::test]
async fn a_slow_endpoint_gets_fewer_requests() {
    let world = World::start().await;
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    world.simple(&[&one, &two]).await;
    // One of them is busy with four requests.
    let address = world.http;
    let busy: Vec<_> =
        (0..8).map(|_| tokio::spawn(async move { ask(address, "a.test", "/?wait=3000").await })).collect();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while one.requests() + two.requests() < 9 {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let third = Backend::start("three").await;
    world.endpoints("s", &[&one, &two, &third]);
    world.until("a.test", "/", |reply| reply.backend() == "three").await;
    for _ in 0..10 {
        assert_eq!(ask(world.http, "a.test", "/").await.backend(), "three", "the only one that is not busy");
    }
    for request in busy {
        assert_eq!(request.await.expect("a task").status, 200);
    }
}

#[tokio::test]
async fn a_request_in_flight_to_an_endpoint_that_goes_is_answered() {
    let world = World::start().await;
    let (old, new) = (Backend::start("old").await, Backend::start("new").await);
    world.simple(&[&old]).await;
    let address = world.http;
    let before = old.requests();
    let slow = tokio::spawn(async move { ask(address, "a.test", "/?wait=1500").await });
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while old.requests() == before {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.endpoints("s", &[&new]);
    world.until("a.test", "/", |reply| reply.backend() == "new").await;
    assert!(!slow.is_finished());
    assert_eq!(slow.await.expect("a task").backend(), "old");
}

/// Accepts connections and does nothing but what it is told: it closes them, at once or when a request has come.
async fn bad_endpoint(after_request: bool) -> (Backend, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            if after_request {
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer).await;
            }
        }
    });
    let mut backend = Backend::start("bad").await;
    backend.address = address;
    (backend, seen)
}

#[tokio::test]
async fn what_cannot_be_reached_is_left_for_another() {
    let world = World::start().await;
    let (good, gone) = (Backend::start("good").await, Backend::start("gone").await);
    gone.kill();
    // Nobody listens there any more.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while tokio::net::TcpStream::connect(gone.address).await.is_ok() {
        assert!(tokio::time::Instant::now() < deadline);
    }
    world.simple(&[&good, &gone]).await;
    for _ in 0..20 {
        assert_eq!(ask(world.http, "a.test", "/").await.backend(), "good");
        // Nothing was sent, so any request may go elsewhere, also one with a body.
        let post = Request::builder().method("POST").uri("/").header("host", "a.test");
        let reply = send(world.http, post.body(Full::new(Bytes::from("body"))).expect("a request")).await;
        assert_eq!((reply.backend(), reply.said()["bytes"].as_u64()), ("good", Some(4)));
    }
    world.endpoints("s", &[&gone]);
    world.until("a.test", "/", |reply| reply.status == 502).await;
}

#[tokio::test]
async fn requests_are_sent_twice_only_where_that_does_no_harm() {
    let world = World::start_with(ingress::Config { worker_threads: 1, ..config() }).await;
    let good = Backend::start("good").await;
    let (bad, seen) = bad_endpoint(true).await;
    world.simple(&[&bad]).await;
    seen.store(0, Ordering::SeqCst);
    // Tries end: one endpoint, no answer.
    assert_eq!(ask(world.http, "a.test", "/").await.status, 502);
    assert!(seen.load(Ordering::SeqCst) <= 2);
    seen.store(0, Ordering::SeqCst);
    let post = || Request::builder().method("POST").uri("/").header("host", "a.test").body(Full::new(Bytes::from("x")));
    assert_eq!(send(world.http, post().expect("a request")).await.status, 502);
    assert_eq!(seen.load(Ordering::SeqCst), 1, "it may have been done, so it is not done again");
    world.endpoints("s", &[&bad, &good]);
    world.until("a.test", "/", |reply| reply.backend() == "good").await;
    for _ in 0..10 {
        assert_eq!(ask(world.http, "a.test", "/").await.backend(), "good");
    }
}

#[tokio::test]
async fn a_connection_that_ended_while_it_waited_is_no_failure() {
    let world = World::start_with(ingress::Config { worker_threads: 1, ..config() }).await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let mut connection = Connection::open(world.http).await.expect("a connection");
    for round in 0..10 {
        assert_eq!(connection.send(get("a.test", "/")).await.expect("an answer").status, 200, "round {round}");
        // All connections to the old one end, and the next request goes to another on the very next moment.
        let next = Backend::start(&format!("b{round}")).await;
        world.endpoints("s", &[&next, &backend]);
        if round == 5 {
            backend.kill();
        }
        drop(next);
        let reply = connection.send(get("a.test", "/")).await.expect("an answer");
        if round < 5 {
            assert_eq!(reply.status, 200, "round {round}");
        }
        if round >= 5 {
            break;
        }
    }
}

/// As a rolling update does it: a new pod is ready, then an old one leaves the endpoints and is told to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_update_under_load_fails_no_request() {
    let world = World::start().await;
    let mut backends = vec![Backend::start("0").await, Backend::start("1").await, Backend::start("2").await];
    world.simple(&backends.iter().collect::<Vec<_>>()).await;
    let (address, stop, done) = (world.http, Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..12 {
        let (stop, done) = (stop.clone(), done.clone());
        clients.spawn(async move {
            let mut connection = Connection::open(address).await?;
            while !stop.load(Ordering::Relaxed) {
                let request = match number % 3 {
                    0 => get("a.test", "/?wait=2"),
                    1 => get("a.test", "/?bytes=100000"),
                    _ => get("a.test", "/"),
                };
                // A third has a new connection for every request.
                let reply = match number % 3 {
                    2 => try_send(address, request).await?,
                    _ => connection.send(request).await?,
                };
                if reply.status != 200 {
                    return Err(format!("{}: {:?}", reply.status, reply.body));
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    for number in 3..15 {
        let new = Backend::start(&number.to_string()).await;
        let old = backends.remove(0);
        backends.push(new);
        let mut all: Vec<&Backend> = backends.iter().collect();
        all.push(&old);
        world.endpoints("s", &all);
        tokio::time::sleep(Duration::from_millis(40)).await;
        // The pod is told to end in the moment it leaves the endpoints, and stops accepting at once.
        world.endpoints("s", &backends.iter().collect::<Vec<_>>());
        old.stop();
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client.expect("a task").expect("no request fails");
    }
    assert!(done.load(Ordering::Relaxed) > 200, "{} requests", done.load(Ordering::Relaxed));
}

#[tokio::test]
async fn the_end_of_the_ingress_waits_for_running_requests() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    let address = world.http;
    let before = backend.requests();
    let slow = tokio::spawn(async move { ask(address, "a.test", "/?wait=1000").await });
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while backend.requests() == before {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut idle = Connection::open(world.http).await.expect("a connection");
    idle.send(get("a.test", "/")).await.expect("an answer");
    world.begin_to_stop();
    world.stop().await;
    assert_eq!(slow.await.expect("a task").status, 200);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !idle.is_closed() {
        assert!(tokio::time::Instant::now() < deadline, "an idle connection is closed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
