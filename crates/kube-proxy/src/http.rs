//! HTTP listeners for health and metrics: a listener, perhaps in another network namespace.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use component_base::status_page::{Answer, StatusCode};
use component_helpers::zpages::Page;
use tokio::net::TcpListener;

pub fn health(is_good: bool, body: String) -> Answer {
    let status = if is_good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Answer::json(status, body)
}

pub fn page(page: Page) -> Answer {
    let status = StatusCode::from_u16(page.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Answer::new(status, page.content_type, page.body).warning(page.warning)
}

pub fn listen(address: SocketAddr, namespace: Option<&Path>) -> io::Result<TcpListener> {
    let open = || std::net::TcpListener::bind(address);
    let listener = match namespace {
        Some(path) => linux::netns::run_in(path, open)??,
        None => open()?,
    };
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
