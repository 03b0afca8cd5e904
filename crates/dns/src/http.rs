//! `/metrics`, `/health` and `/ready`, as CoreDNS has them on its ports.

use std::net::SocketAddr;
use std::sync::Arc;

use component_base::status_page::{self, Answer, StatusCode};
use reconcile::Shutdown;
use tokio::net::TcpListener;

use crate::resolver::Resolver;

/// Answers until shutdown. Being unable to is no reason to answer no questions.
pub async fn serve(address: SocketAddr, resolver: Arc<Resolver>, shutdown: Shutdown) {
    match TcpListener::bind(address).await {
        Ok(listener) => {
            status_page::serve(listener, Arc::new(move |request| answer(&request.path, &resolver)), shutdown).await
        }
        Err(error) => tracing::warn!(%address, %error, "cannot serve health and metrics of DNS"),
    }
}

fn answer(path: &str, resolver: &Resolver) -> Answer {
    match path {
        "/metrics" => Answer::ok(resolver.metrics_text()),
        "/health" => Answer::ok("OK"),
        "/ready" if resolver.is_synced() => Answer::ok("OK"),
        "/ready" => Answer::text(StatusCode::SERVICE_UNAVAILABLE, "kubernetes"),
        _ => Answer::not_found(),
    }
}
