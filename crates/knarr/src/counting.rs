//! A client that counts its requests: `rest_client_*` of the components that run alone.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use reconcile::Metrics;
use tokio::time::Instant;
use tower::{Layer, Service};

/// Counts what goes to one host.
#[derive(Clone)]
pub struct Counting {
    metrics: Arc<Metrics>,
    host: Arc<str>,
}

impl Counting {
    pub fn new(metrics: Arc<Metrics>, config: &kube::Config) -> Counting {
        let host = config.cluster_url.authority().map_or("", |authority| authority.as_str());
        Counting { metrics, host: host.into() }
    }
}

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, counting: self.clone() }
    }
}

#[derive(Clone)]
pub struct Counted<S> {
    inner: S,
    counting: Counting,
}

impl<S, A, B> Service<Request<A>> for Counted<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (counting, method, began) = (self.counting.clone(), request.method().clone(), Instant::now());
        let sent = self.inner.call(request);
        Box::pin(async move {
            let answer = sent.await;
            let code = answer.as_ref().map_or("<error>", |answer| code(answer.status()));
            counting.metrics.answered(&counting.host, method.as_str(), code, began.elapsed());
            answer
        })
    }
}

/// Codes that no server should send count together.
fn code(status: http::StatusCode) -> &'static str {
    const KNOWN: [(u16, &str); 22] = [
        (101, "101"),
        (200, "200"),
        (201, "201"),
        (202, "202"),
        (204, "204"),
        (304, "304"),
        (400, "400"),
        (401, "401"),
        (403, "403"),
        (404, "404"),
        (405, "405"),
        (406, "406"),
        (409, "409"),
        (410, "410"),
        (413, "413"),
        (415, "415"),
        (422, "422"),
        (429, "429"),
        (500, "500"),
        (502, "502"),
        (503, "503"),
        (504, "504"),
    ];
    KNOWN.iter().find(|(known, _)| *known == status.as_u16()).map_or("other", |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use component_base::metrics::Page;

    use super::*;

    #[tokio::test]
    async fn requests_count_by_what_came_back() {
        let metrics = Arc::new(Metrics::default());
        let config = kube::Config::new("https://10.0.0.1:6443/".parse().unwrap());
        let inner = tower::service_fn(async |request: Request<u16>| match *request.body() {
            0 => Err("gone"),
            code => Ok(Response::builder().status(code).body(()).unwrap()),
        });
        let mut counted = Counting::new(metrics.clone(), &config).layer(inner);
        for code in [200, 200, 404, 0, 299] {
            // Which of them fail is the point.
            let _ = counted.call(Request::get("/").body(code).unwrap()).await;
        }
        let mut page = Page::default();
        metrics.render(&mut page);
        let text = page.text();
        for (code, count) in [("200", 2), ("404", 1), ("<error>", 1), ("other", 1)] {
            let line =
                format!("rest_client_requests_total{{code=\"{code}\",host=\"10.0.0.1:6443\",method=\"GET\"}} {count}");
            assert!(text.contains(&line), "{line}\n{text}");
        }
    }
}
