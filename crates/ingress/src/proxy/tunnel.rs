//! Connections that are no longer HTTP: WebSockets and whatever else was agreed on. Bytes go both ways until one side ends or
//! neither has said anything for too long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::pool::Lease;
use crate::metrics::{Gauge, Metrics};

pub async fn run(client: OnUpgrade, backend: OnUpgrade, idle: Duration, lease: Lease, metrics: Arc<Metrics>) {
    let _counted = Gauge::new(&metrics, |metrics| &metrics.tunnels);
    let (client, backend) = match futures::future::try_join(client, backend).await {
        Ok(both) => both,
        Err(error) => return tracing::debug!(%error, "cannot upgrade connection"),
    };
    let moved = Arc::new(AtomicU64::new(0));
    let mut client = Active { stream: TokioIo::new(client), moved: moved.clone() };
    let mut backend = Active { stream: TokioIo::new(backend), moved: moved.clone() };
    let copying = tokio::io::copy_bidirectional(&mut client, &mut backend);
    let silence = async {
        let mut before = u64::MAX;
        loop {
            let now = moved.load(Ordering::Relaxed);
            if now == before {
                return;
            }
            before = now;
            tokio::time::sleep(idle).await;
        }
    };
    tokio::select! {
        // How it ended is for those at its ends to know.
        _ = copying => {}
        () = silence => tracing::debug!("closing idle upgraded connection"),
    }
    // The endpoint has one request less only now.
    drop(lease);
}

/// Counts what is read.
struct Active<S> {
    stream: S,
    moved: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Active<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let active = self.get_mut();
        let read = Pin::new(&mut active.stream).poll_read(cx, buffer);
        if read.is_ready() {
            active.moved.fetch_add(1, Ordering::Relaxed);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Active<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
