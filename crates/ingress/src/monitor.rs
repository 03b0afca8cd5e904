//! `/metrics` and `/healthz`, for those who watch over the ingress.

use std::sync::Arc;

use component_base::status_page::{self, Answer};
use reconcile::Shutdown;
use tokio::net::TcpListener;

use crate::Config;
use crate::metrics::Metrics;

pub async fn run(config: Arc<Config>, metrics: Arc<Metrics>, shutdown: Shutdown) {
    let Some(address) = config.monitoring else { return };
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%address, %error, "cannot serve health and metrics of ingress"),
    };
    config.bound.send_modify(|bound| bound.monitoring = listener.local_addr().ok());
    status_page::serve(listener, Arc::new(move |request| answer(&request.path, &metrics)), shutdown).await;
}

fn answer(path: &str, metrics: &Metrics) -> Answer {
    match path {
        "/metrics" => Answer::ok(metrics.text()),
        "/healthz" => Answer::ok("ok"),
        _ => Answer::not_found(),
    }
}
