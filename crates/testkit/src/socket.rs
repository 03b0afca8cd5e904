//! A gRPC service on a unix socket, on a thread of its own, until it is dropped.

use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tonic::transport::server::Router;

pub(crate) struct Serving {
    socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Serving {
    pub(crate) fn start(socket: &Path, services: Router) -> anyhow::Result<Serving> {
        let listener = std::os::unix::net::UnixListener::bind(socket)
            .with_context(|| format!("listen on {}", socket.display()))?;
        listener.set_nonblocking(true)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = UnixListener::from_std(listener).expect("a listener");
                let incoming = futures::stream::unfold(listener, |listener| async {
                    let accepted = listener.accept().await.map(|(stream, _)| stream);
                    Some((accepted, listener))
                });
                tokio::select! {
                    served = services.serve_with_incoming(incoming) => served.expect("the service runs"),
                    // The sender is dropped to stop it.
                    _ = stopped => {}
                }
            });
            // Whatever still waits to answer does not hold up the test.
            runtime.shutdown_background();
        });
        Ok(Serving { socket: socket.to_owned(), stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Serving {
    /// Connections break, and nobody listens any more.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the service does not panic");
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}
