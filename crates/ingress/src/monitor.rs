//! `/metrics` and `/healthz`, for those who watch over the ingress.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component_base::tasks;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use reconcile::Shutdown;
use tokio::net::TcpListener;

use crate::Config;
use crate::metrics::Metrics;

const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTIONS_MAX: usize = 64;
const AGAIN: Duration = Duration::from_millis(100);

pub async fn run(config: Arc<Config>, metrics: Arc<Metrics>, shutdown: Shutdown) {
    let Some(address) = config.monitoring else { return };
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%address, %error, "the ingress' metrics cannot be served"),
    };
    config.bound.send_modify(|bound| bound.monitoring = listener.local_addr().ok());
    let places = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let metrics = metrics.clone();
        tasks::spawn(async move {
            let _place = place;
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer(&request, &metrics);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
            // Whoever asked may be gone.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, text) = match request.uri().path() {
        "/metrics" => (StatusCode::OK, metrics.text()),
        "/healthz" => (StatusCode::OK, "ok".to_owned()),
        _ => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}
