//! Probes against small servers on the loopback address.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

async fn serve(answer: &'static str) -> (u16, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.windows(4).any(|window| window == b"\r\n\r\n") {
            let count = stream.read(&mut buffer).await.expect("a request");
            if count == 0 {
                break;
            }
            request.extend_from_slice(&buffer[..count]);
        }
        stream.write_all(answer.as_bytes()).await.expect("an answer");
        String::from_utf8(request).expect("text")
    });
    (port, task)
}

fn asked(port: u16, path: &str) -> Get {
    let action =
        HTTPGetAction { path: Some(path.to_owned()), port: IntOrString::Int(i32::from(port)), ..Default::default() };
    request(&action, port, "127.0.0.1", Some("*/*"))
}

#[tokio::test]
async fn http_says_who_asks_and_judges_by_the_status() {
    let (port, server) = serve("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(http::ask(&asked(port, "/healthz"), Duration::from_secs(5)).await, Answer::Success);
    let request = server.await.expect("the request").to_ascii_lowercase();
    assert!(request.starts_with("get /healthz http/1.1\r\n"), "{request}");
    assert!(request.contains("user-agent: kube-probe/1.36\r\n"), "{request}");
    assert!(request.contains("accept: */*\r\n"), "{request}");

    let (port, _server) = serve("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n").await;
    let failure = Answer::Failure("HTTP probe failed with statuscode: 500".to_owned());
    assert_eq!(http::ask(&asked(port, "/"), Duration::from_secs(5)).await, failure);
}

#[tokio::test]
async fn a_redirect_elsewhere_counts_as_an_answer() {
    let (port, _server) =
        serve("HTTP/1.1 302 Found\r\nLocation: http://elsewhere.invalid/\r\nContent-Length: 5\r\n\r\nFound").await;
    let warning = Answer::Warning("Probe terminated redirects, Response body: Found".to_owned());
    assert_eq!(http::ask(&asked(port, "/"), Duration::from_secs(5)).await, warning);
    // It counts as a success all the same.
    let mut counter = Counter::new(Kind::Readiness, &Probe::default(), None);
    assert_eq!(counter.count(&warning), Some(Outcome::Success));
}

#[tokio::test]
async fn refused_connections_are_told_as_go_tells_them() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    drop(listener);
    let text = format!("Get \"http://127.0.0.1:{port}/\": dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(http::ask(&asked(port, "/"), Duration::from_secs(5)).await, Answer::Failure(text));
    let text = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(tcp::ask("127.0.0.1", port, Duration::from_secs(5)).await, Answer::Failure(text));
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let answer = http::ask(&asked(port, "/"), Duration::from_millis(200)).await;
    let Answer::Failure(text) = answer else { panic!("{answer:?}") };
    assert!(text.ends_with("context deadline exceeded (Client.Timeout exceeded while awaiting headers)"), "{text}");
}

#[test]
fn outcomes_change_at_their_thresholds() {
    let probe = Probe { failure_threshold: Some(2), success_threshold: Some(2), ..Default::default() };
    let mut readiness = Counter::new(Kind::Readiness, &probe, None);
    let failure = Answer::Failure(String::new());
    assert_eq!(readiness.count(&Answer::Success), None);
    assert_eq!(readiness.count(&failure), None);
    assert_eq!(readiness.count(&Answer::Success), None);
    assert_eq!(readiness.count(&Answer::Success), Some(Outcome::Success));
    assert_eq!(readiness.count(&failure), None);
    // What could not be asked neither counts nor ends a row.
    assert_eq!(readiness.count(&Answer::Error(String::new())), None);
    assert_eq!(readiness.count(&failure), Some(Outcome::Failure));
    let mut liveness = Counter::new(Kind::Liveness, &probe, None);
    assert_eq!([liveness.count(&Answer::Success), liveness.count(&Answer::Success)], [None, None]);
}

#[tokio::test]
async fn what_cannot_be_asked_is_tried_three_times() {
    let tries = async |answers: &[Answer]| {
        let mut asked = 0;
        let answer = ask_again(|| {
            asked += 1;
            std::future::ready(answers[asked - 1].clone())
        });
        (answer.await, asked)
    };
    let error = |number: u8| Answer::Error(number.to_string());
    assert_eq!(tries(&[error(1), Answer::Success]).await, (Answer::Success, 2));
    assert_eq!(tries(&[error(1), error(2), error(3), Answer::Success]).await, (error(3), 3));
    let failure = Answer::Failure(String::new());
    assert_eq!(tries(&[failure.clone(), Answer::Success]).await, (failure, 1));
}

#[test]
fn ports_by_number_and_name() {
    let container: Container = serde_json::from_value(serde_json::json!({
        "name": "c", "ports": [{"name": "web", "containerPort": 8080}]
    }))
    .expect("a container");
    assert_eq!(port_of(&IntOrString::String("web".to_owned()), &container), Some(8080));
    assert_eq!(port_of(&IntOrString::String("81".to_owned()), &container), Some(81));
    assert_eq!(port_of(&IntOrString::String("other".to_owned()), &container), None);
    assert_eq!(port_of(&IntOrString::Int(70000), &container), None);
}
