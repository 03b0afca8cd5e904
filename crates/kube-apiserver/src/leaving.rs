//! How the server leaves. By default it takes no more requests once it stops; with `--shutdown-send-retry-after` it listens until
//! those at work have ended, and tells new ones to try again elsewhere.

use std::time::Duration;

use component_base::tasks;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT, X_CONTENT_TYPE_OPTIONS};
use http::{Request, Response, StatusCode};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::body::Body;
use crate::respond::Reply;

/// Requests that a load balancer or monitoring sends are answered to the end.
const ALWAYS_ANSWERED: [&str; 4] = ["/readyz", "/livez", "/healthz", "/metrics"];
/// As upstream's servers name themselves to themselves.
const OWN_AGENT: &str = "kube-apiserver/";
const RETRY_AFTER_SECONDS: &str = "5";
const MESSAGE: &str = "The apiserver is shutting down, please try again later.\n";
/// No request is at work for longer.
const WORK_MAX: Duration = crate::serve::REQUEST_TIMEOUT;

pub struct Leaving {
    stopping: CancellationToken,
    sends_retry_after: bool,
    at_work: TaskTracker,
}

impl Leaving {
    pub fn new(stopping: CancellationToken, sends_retry_after: bool) -> Leaving {
        Leaving { stopping, sends_retry_after, at_work: TaskTracker::new() }
    }

    /// Whether a request comes too late.
    pub fn turns_away<B>(&self, request: &Request<B>) -> bool {
        let is_own = || {
            let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
            agent.is_some_and(|agent| agent.starts_with(OWN_AGENT))
        };
        let path = request.uri().path();
        self.sends_retry_after
            && self.stopping.is_cancelled()
            && !ALWAYS_ANSWERED.iter().any(|prefix| path.starts_with(prefix))
            && !is_own()
    }

    /// A request is at work until this is dropped.
    pub fn begin(&self) -> TaskTrackerToken {
        self.at_work.token()
    }

    /// Cancelled when connections are to end.
    pub fn closing(&self) -> CancellationToken {
        if !self.sends_retry_after {
            return self.stopping.clone();
        }
        let (stopping, at_work, closing) = (self.stopping.clone(), self.at_work.clone(), CancellationToken::new());
        let ended = closing.clone();
        tasks::spawn(async move {
            stopping.cancelled().await;
            at_work.close();
            if tokio::time::timeout(WORK_MAX, at_work.wait()).await.is_err() {
                tracing::warn!(requests = at_work.len(), "requests still at work; closing connections");
            }
            ended.cancel();
        });
        closing
    }
}

/// What a request that comes too late is told.
pub fn refusal() -> Reply {
    let mut reply = Response::new(Body::full(MESSAGE));
    *reply.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = reply.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_come_too_late_are_turned_away() {
        let stopping = CancellationToken::new();
        let (patient, plain) = (Leaving::new(stopping.clone(), true), Leaving::new(stopping.clone(), false));
        let asked = |path: &str, agent: &str| Request::get(path).header(USER_AGENT, agent).body(()).unwrap();
        assert!(!patient.turns_away(&asked("/api/v1/pods", "kubectl/v1.36.4")));
        stopping.cancel();
        for (path, agent, expected) in [
            ("/api/v1/pods?watch=true", "kubectl/v1.36.4", true),
            ("/version", "", true),
            ("/readyz?verbose", "curl", false),
            ("/metrics/slis", "prometheus", false),
            ("/api/v1/pods", "kube-apiserver/v1.36.4", false),
        ] {
            assert_eq!(patient.turns_away(&asked(path, agent)), expected, "{path} {agent}");
            assert!(!plain.turns_away(&asked(path, agent)), "{path}");
        }
        let refused = refusal();
        assert_eq!((refused.status().as_u16(), &refused.headers()[RETRY_AFTER]), (429, &HeaderValue::from_static("5")));
    }

    #[tokio::test(start_paused = true)]
    async fn connections_end_when_nothing_is_at_work() {
        let stopping = CancellationToken::new();
        let leaving = Leaving::new(stopping.clone(), true);
        let (request, closing) = (leaving.begin(), leaving.closing());
        stopping.cancel();
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!closing.is_cancelled());
        drop(request);
        tokio::time::timeout(Duration::from_secs(1), closing.cancelled()).await.unwrap();
        // One that never ends keeps nobody for longer than a request may take.
        let stuck = Leaving::new(stopping.clone(), true);
        let _request = stuck.begin();
        tokio::time::timeout(WORK_MAX + Duration::from_secs(1), stuck.closing().cancelled()).await.unwrap();
        // Without the setting nothing is waited for.
        assert!(Leaving::new(stopping, false).closing().is_cancelled());
    }
}
