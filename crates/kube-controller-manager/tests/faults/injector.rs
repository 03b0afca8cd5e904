//! Stands between a controller and the API server and does the faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use kube_apiserver::local::Loopback;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tower::Service;

use crate::fault::Fault;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// How long events are held back, long enough for every decision in between to be made on old copies.
const STALE: Duration = Duration::from_secs(7);
const AWAY: Duration = Duration::from_secs(60);
/// More than any controller needs. One that asks on and on without waiting would let no time pass, and the run never end.
const REQUESTS_MAX: usize = 150_000;

/// What all clients of one run share.
pub struct Injector {
    pub fault: Fault,
    pub writes: AtomicUsize,
    /// What was created, by the path.
    pub created: Mutex<BTreeMap<String, usize>>,
    pub crashed: Notify,
    /// What other servers behind the API server would answer, by path.
    answers: BTreeMap<String, Value>,
    requests: AtomicUsize,
    /// A fault that happens once has happened.
    done: AtomicBool,
    /// How many watches of a path there were.
    watches: Mutex<BTreeMap<String, usize>>,
    /// Writes that the server is at.
    under_way: AtomicUsize,
    /// Since when nothing is answered.
    away: watch::Sender<Option<Instant>>,
}

impl Injector {
    pub fn new(fault: Fault, answers: BTreeMap<String, Value>) -> Arc<Injector> {
        let away = if fault == Fault::Away(0) { Some(Instant::now()) } else { None };
        Arc::new(Injector {
            fault,
            writes: AtomicUsize::new(0),
            created: Mutex::default(),
            crashed: Notify::new(),
            answers,
            requests: AtomicUsize::new(0),
            done: AtomicBool::new(away.is_some()),
            watches: Mutex::default(),
            under_way: AtomicUsize::new(0),
            away: watch::Sender::new(away),
        })
    }

    fn is_away(&self) -> bool {
        self.away.borrow().is_some_and(|since| since.elapsed() < AWAY)
    }

    /// Whether the controller has asked more than anybody reasonable would.
    pub fn is_mad(&self) -> bool {
        self.requests.load(Ordering::SeqCst) > REQUESTS_MAX
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
        let injector = self.injector.clone();
        injector.requests.fetch_add(1, Ordering::SeqCst);
        if !self.alive.load(Ordering::SeqCst) || injector.is_mad() {
            return futures::future::pending().await;
        }
        let path = request.uri().path().to_owned();
        let watches =
            request.uri().query().is_some_and(|query| query.contains("watch=true") || query.contains("watch=1"));
        // Events about what happened are not what is to be reached, and reviews change nothing.
        let told = path.ends_with("/events") || path.contains("/events/") || path.contains("/authorization.k8s.io/");
        let writes = request.method() != Method::GET && !told;
        let number = if writes { injector.writes.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 };
        let fault = injector.fault;
        if matches!(fault, Fault::Away(at) if number >= at) && writes && !injector.done.swap(true, Ordering::SeqCst) {
            injector.away.send_replace(Some(Instant::now()));
        }
        if injector.is_away() {
            return Err("connection refused".into());
        }
        if let Some(answer) = injector.answers.get(&path) {
            return Ok(boxed(Response::new(Full::new(Bytes::from(answer.to_string())))));
        }
        if !writes {
            let answer = infallible(self.server.call(request).await);
            return Ok(if watches { self.watched(&path, answer) } else { boxed(answer) });
        }
        let method = request.method().clone();
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

    fn watched<B>(&self, path: &str, answer: Response<B>) -> Answer
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let fault = self.injector.fault;
        let touched = matches!(fault, Fault::Stale | Fault::Cut | Fault::Repeated | Fault::Away(_));
        if !touched || answer.status() != StatusCode::OK {
            return boxed(answer);
        }
        let (parts, body) = answer.into_parts();
        let (tx, rx) = mpsc::unbounded_channel();
        let mut cut =
            Cut::new(fault, *self.injector.watches.lock().entry(path.into()).and_modify(|n| *n += 1).or_default());
        let mut away = self.injector.away.subscribe();
        tokio::spawn(async move {
            let mut body = std::pin::pin!(body);
            let mut rest = BytesMut::new();
            loop {
                let frame = tokio::select! {
                    frame = body.frame() => frame,
                    Ok(()) = away.changed() => {
                        // Nobody may be there any more to hear of it.
                        let _ = tx.send((Instant::now(), Err("connection reset by peer".into())));
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
                    let cuts = cut.after(&line);
                    for _ in 0..times {
                        // A client that has gone away needs no more.
                        if tx.send((at, Ok(line.clone()))).is_err() {
                            return;
                        }
                    }
                    if let Some(last) = cuts {
                        if let Some(last) = last {
                            let _ = tx.send((at, last));
                        }
                        return;
                    }
                }
            }
        });
        let stream = futures::stream::unfold(rx, |mut rx| async move {
            let (at, line): (Instant, Result<Bytes, BoxError>) = rx.recv().await?;
            tokio::time::sleep_until(at).await;
            Some((line, rx))
        });
        let body = StreamBody::new(stream.map(|line| line.map(Frame::data)));
        Response::from_parts(parts, BodyExt::boxed_unsync(body))
    }
}

/// When and how a watch ends early: the first of a kind within its list, those after it so many events later.
struct Cut {
    /// Which watch of its kind this is; none where it is not cut.
    number: Option<usize>,
    listed: bool,
    events: usize,
}

impl Cut {
    /// The watches of a kind that are cut.
    const WATCHES: usize = 5;

    fn new(fault: Fault, number: usize) -> Cut {
        let number = (fault == Fault::Cut && number < Cut::WATCHES).then_some(number);
        Cut { number, listed: false, events: 0 }
    }

    /// Whether the watch ends after this line, and with what last words.
    fn after(&mut self, line: &Bytes) -> Option<Option<Result<Bytes, BoxError>>> {
        let number = self.number?;
        // A watch that goes on where another ended has no list.
        let goes_on = !self.listed && number > 0 && self.events == 0 && !line.starts_with(b"{\"type\":\"ADDED\"");
        if self.listed || number == 0 || goes_on {
            self.events += 1;
        }
        let marker = b"initial-events-end";
        self.listed |= goes_on || line.windows(marker.len()).any(|part| part == marker);
        (self.events >= number.max(1)).then(|| match number % 3 {
            0 => None,
            1 => Some(Ok(expired())),
            _ => Some(Err("connection reset by peer".into())),
        })
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
