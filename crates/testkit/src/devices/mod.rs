//! A device plugin and a driver of claimed devices for tests: real gRPC on sockets, keeping what they were asked. Both can be told to
//! misbehave.

mod plugin;
mod driver;
mod resources;

pub use ::devices::dra::health::HealthStatus;
pub use driver::{Driver, DriverOptions};
pub use plugin::{Plugin, PluginOptions};
pub use resources::{allocatable, of_all_pods, of_pod};

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::sync::{Notify, oneshot};
use tonic::Status;

/// A state that is not reached in this time is never reached.
const LONG: Duration = Duration::from_secs(90);

/// What is done wrong when a call comes, until told otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Does nothing until it is released, then goes on as if nothing had been.
    Hang,
    /// Refuses.
    Refuse,
    /// Answers with nothing in it.
    Empty,
    /// Answers for somebody or something that nobody asked about.
    Lie,
    /// Dies before it answers.
    Die,
}

/// What tests see of either.
#[derive(Default)]
struct Seen {
    calls: Mutex<Vec<String>>,
    faults: Mutex<BTreeMap<String, Fault>>,
    registered: Mutex<Vec<(bool, String)>>,
    released: Notify,
    /// Ends the process from inside.
    dying: Notify,
}

impl Seen {
    /// Notes a call and does what is to go wrong with it. What is left of the fault is for the call itself.
    async fn take(&self, name: &str, call: String) -> Result<Option<Fault>, Status> {
        self.calls.lock().push(call);
        let fault = self.faults.lock().get(name).cloned();
        match fault {
            Some(Fault::Hang) => {
                self.released.notified().await;
                Ok(None)
            }
            Some(Fault::Refuse) => Err(Status::internal("told to refuse")),
            Some(Fault::Die) => {
                self.dying.notify_one();
                std::future::pending().await
            }
            other => Ok(other),
        }
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + LONG;
        while !holds() {
            if Instant::now() > deadline {
                bail!("never {what}: {:?} {:?}", self.registered.lock(), self.calls.lock());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// A process of its own, as far as the kubelet can tell.
struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    /// `serve` says when it is ready, and ends when told to.
    fn start<F>(
        serve: impl FnOnce(std::sync::mpsc::Sender<anyhow::Result<()>>, oneshot::Receiver<()>) -> F + Send + 'static,
    ) -> anyhow::Result<Running>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let told = ready.clone();
            let served = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Into::into);
            let served = served.and_then(|runtime| {
                let done = runtime.block_on(serve(ready, stopped));
                // What hangs goes down with the process.
                runtime.shutdown_background();
                done
            });
            if let Err(error) = served {
                // Nobody listens once it has started.
                let _ = told.send(Err(error));
            }
        });
        is_ready.recv().context("it did not start")??;
        Ok(Running { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Running {
    /// As a crash would: calls under way get no answer.
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // It may have ended by itself.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(socket: &Path) -> anyhow::Result<UnixListener> {
    std::fs::create_dir_all(socket.parent().context("a folder")?)?;
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    UnixListener::bind(socket).with_context(|| format!("bind {}", socket.display()))
}

fn incoming(
    listener: UnixListener,
) -> impl futures::Stream<Item = std::io::Result<tokio::net::UnixStream>> + Send + 'static {
    futures::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    })
}
