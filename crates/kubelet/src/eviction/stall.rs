//! The kernel's word that tasks wait for memory (PSI), so that a shortage is looked at at once and not at the next turn.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

const FILE: &str = "/proc/pressure/memory";
/// Some task waited for a tenth of two seconds; the window is one that the kernel also grants without special rights.
const TRIGGER: &str = "some 200000 2000000";
/// Under lasting pressure the kernel tells every two seconds; a look needs no more than that.
const QUIET_AFTER: Duration = Duration::from_secs(1);

pub(super) struct Stalls(Option<AsyncFd<OwnedFd>>);

impl Stalls {
    /// On kernels without it nothing is ever told, and only the timer looks.
    pub(super) fn listen() -> Stalls {
        match open() {
            Ok(file) => Stalls(Some(file)),
            Err(error) => {
                tracing::info!(%error, "kernel has no memory pressure (PSI) notifications; polling every ten seconds");
                Stalls(None)
            }
        }
    }

    /// Until tasks wait for memory.
    pub(super) async fn next(&self) {
        let Some(file) = &self.0 else { return std::future::pending().await };
        match file.ready(Interest::PRIORITY).await {
            Ok(mut ready) => ready.clear_ready(),
            Err(error) => {
                tracing::warn!(%error, "cannot wait for memory pressure (PSI) notifications");
                std::future::pending::<()>().await;
            }
        }
        sleep(QUIET_AFTER).await;
    }
}

fn open() -> std::io::Result<AsyncFd<OwnedFd>> {
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut file = std::fs::OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open(FILE)?;
    // The kernel wants the text with its closing zero.
    file.write_all(format!("{TRIGGER}\0").as_bytes())?;
    // The newer way to make one is unsafe for the sake of types that may close their descriptor; an owned one does not.
    #[allow(deprecated)]
    AsyncFd::with_interest(OwnedFd::from(file), Interest::PRIORITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_understands_the_trigger() {
        if let Err(error) = open() {
            // Kernels may lack it or grant it to nobody; what they may not do is find it malformed.
            assert_ne!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
        }
    }
}
