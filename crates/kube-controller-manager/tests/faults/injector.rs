//! Stands between a controller and the API server and does the faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use kube_apiserver::loopback::Loopback;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tower::Service;

use crate::fault::Fault;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// How long events are held back, long enough for every decision in between to be made on old copies.
const STALE: Duration = Duration::from_millis(700);
const AWAY: Duration = Duration::from_secs(3);
/// A watch is cut this often; the waits between tries grow, and a run must end.
const CUTS_MAX: usize = 3;

/// What all clients of one run share.
pub struct Injector {
    pub fault: Fault,
    pub writes: AtomicUsize,
    /// What was created, by the path.
    pub created: Mutex<BTreeMap<String, usize>>,
    pub crashed: Notify,
    /// A fault that happens once has happened.
    done: AtomicBool,
    watches: AtomicUsize,
    /// Writes that the server is at.
    under_way: AtomicUsize,
    began: Instant,
}

impl Injector {
    pub fn new(fault: Fault) -> Arc<Injector> {
        Arc::new(Injector {
            fault,
            writes: AtomicUsize::new(0),
            created: Mutex::default(),
            crashed: Notify::new(),
            done: AtomicBool::new(false),
            watches: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            began: Instant::now(),
        })
    }

    fn is_away(&self) -> bool {
        let since = self.began.elapsed();
        self.fault == Fault::Away && (Duration::from_millis(100)..AWAY).contains(&since)
    }
}

/// One client's way to the server. It lives as long as one life of the controller.
#[derive(Clone)]
pub struct Way {
    pub server: Loopback,
    pub injector: Arc<Injector>,
    pub alive: Arc<AtomicBool>,
}

impl Service<Request<Body>> for Way {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let way = self.clone();
        async move { way.answer(request).await }.boxed()
    }
}

impl Way {
    async fn answer(mut self, request: Request<Body>) -> Result<Answer, BoxError> {
        if !self.alive.load(Ordering::SeqCst) {
            return futures::future::pending().await;
        }
        if self.injector.is_away() {
            return Err("connection refused".into());
        }
        let path = request.uri().path().to_owned();
        let watches =
            request.uri().query().is_some_and(|query| query.contains("watch=true") || query.contains("watch=1"));
        // Events about what happened are not what is to be reached, and reviews change nothing.
        let writes = request.method() != Method::GET && !path.ends_with("/events") && !path.contains("/events/");
        if !writes {
            let answer = infallible(self.server.call(request).await);
            return Ok(if watches { self.watched(answer) } else { boxed(answer) });
        }
        let injector = self.injector.clone();
        let number = injector.writes.fetch_add(1, Ordering::SeqCst) + 1;
        let method = request.method().clone();
        let fault = injector.fault;
        if fault == Fault::Refused && falls_on(number) {
            return Ok(status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"));
        }
        if fault == Fault::Conflicts && (method == Method::PUT || method == Method::PATCH) && falls_on(number) {
            return Ok(status(StatusCode::CONFLICT, "Conflict"));
        }
        injector.under_way.fetch_add(1, Ordering::SeqCst);
        let answer = infallible(self.server.call(request).await);
        injector.under_way.fetch_sub(1, Ordering::SeqCst);
        if method == Method::POST && answer.status() == StatusCode::CREATED {
            *injector.created.lock().entry(path).or_default() += 1;
        }
        match fault {
            Fault::Crash(at) if number >= at && !injector.done.swap(true, Ordering::SeqCst) => {
                self.alive.store(false, Ordering::SeqCst);
                // What had reached the server before the crash is done before the next life begins.
                while injector.under_way.load(Ordering::SeqCst) > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                injector.crashed.notify_one();
                futures::future::pending().await
            }
            Fault::Lost(at) if number >= at && !injector.done.swap(true, Ordering::SeqCst) => {
                Err("connection reset by peer".into())
            }
            _ if !self.alive.load(Ordering::SeqCst) => futures::future::pending().await,
            _ => Ok(boxed(answer)),
        }
    }

    fn watched<B>(&self, answer: Response<B>) -> Answer
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let fault = self.injector.fault;
        let number = self.injector.watches.fetch_add(1, Ordering::SeqCst);
        let touched = matches!(fault, Fault::Stale | Fault::Cut | Fault::Repeated | Fault::Away);
        if !touched || answer.status() != StatusCode::OK {
            return boxed(answer);
        }
        let (parts, body) = answer.into_parts();
        let (tx, rx) = mpsc::unbounded_channel();
        let injector = self.injector.clone();
        tokio::spawn(async move {
            let mut body = std::pin::pin!(body);
            let cut = async {
                match fault {
                    Fault::Cut if number < CUTS_MAX * 4 => {
                        tokio::time::sleep(Duration::from_millis(150 + 50 * (number as u64 % 5))).await;
                    }
                    Fault::Away if !injector.is_away() && injector.began.elapsed() < AWAY => {
                        while !injector.is_away() {
                            tokio::time::sleep(Duration::from_millis(10)).await;
                        }
                    }
                    _ => futures::future::pending().await,
                }
            };
            let mut cut = std::pin::pin!(cut);
            let mut rest = BytesMut::new();
            loop {
                let frame = tokio::select! {
                    frame = body.frame() => frame,
                    () = &mut cut => {
                        let last: Option<Result<Bytes, BoxError>> = match number % 3 {
                            0 => None,
                            1 => Some(Ok(expired())),
                            _ => Some(Err("connection reset by peer".into())),
                        };
                        if let Some(last) = last {
                            let _ = tx.send((Instant::now(), last));
                        }
                        return;
                    }
                };
                let Some(frame) = frame else { return };
                let Ok(data) = frame
                    .map_err(Into::into)
                    .and_then(|frame: Frame<Bytes>| frame.into_data().map_err(|_| -> BoxError { "trailers".into() }))
                else {
                    return;
                };
                rest.extend_from_slice(&data);
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line = rest.split_to(end + 1).freeze();
                    let at = if fault == Fault::Stale { Instant::now() + STALE } else { Instant::now() };
                    let times = if fault == Fault::Repeated { 2 } else { 1 };
                    for _ in 0..times {
                        // A client that has gone away needs no more.
                        if tx.send((at, Ok(line.clone()))).is_err() {
                            return;
                        }
                    }
                }
            }
        });
        let stream = futures::stream::unfold(rx, |mut rx| async move {
            let (at, line): (Instant, Result<Bytes, BoxError>) = rx.recv().await?;
            tokio::time::sleep_until(at.into()).await;
            Some((line, rx))
        });
        let body = StreamBody::new(stream.map(|line| line.map(Frame::data)));
        Response::from_parts(parts, BodyExt::boxed_unsync(body))
    }
}

/// Half of the writes, in no order that a controller could fall into step with.
fn falls_on(number: usize) -> bool {
    number == 1 || (number.wrapping_mul(2_654_435_761) >> 13) & 1 == 1
}

fn infallible<T>(outcome: Result<T, std::convert::Infallible>) -> T {
    match outcome {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

fn boxed<B>(answer: Response<B>) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    answer.map(|body| body.map_err(Into::into).boxed_unsync())
}

fn status(code: StatusCode, reason: &str) -> Answer {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code.as_u16(),
        "message": "a fault of the test"});
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())));
    *answer.status_mut() = code;
    boxed(answer)
}

fn expired() -> Bytes {
    let event = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "reason": "Expired", "code": 410, "message": "too old resource version"}});
    Bytes::from(format!("{event}\n"))
}
