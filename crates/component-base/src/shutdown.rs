//! The end of a component: one token that all of its parts wait for, and the signals that cancel it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::tasks;

/// Cancelled once, when a component is to stop. Clones are the same one.
pub type Shutdown = tokio_util::sync::CancellationToken;

/// SIGTERM and SIGINT, which end this process no more once somebody listens.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Until one of them comes.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The first signal cancels; the second one ends the process there and then, as upstream.
pub fn cancel_on_signal(shutdown: &Shutdown) -> io::Result<()> {
    let (mut signals, shutdown) = (Signals::listen()?, shutdown.clone());
    tasks::spawn(async move {
        signals.received().await;
        shutdown.cancel();
        signals.received().await;
        std::process::exit(1);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process that runs the test gets the signal: no other test in it listens.
    #[tokio::test]
    async fn a_signal_cancels() {
        let shutdown = Shutdown::new();
        cancel_on_signal(&shutdown).unwrap();
        assert!(!shutdown.is_cancelled());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        tokio::time::timeout(std::time::Duration::from_secs(10), shutdown.cancelled()).await.expect("cancelled");
    }
}
