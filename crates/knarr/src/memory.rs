//! Memory that only the start has needed.

use std::time::Duration;

use component_base::tasks;

/// By then everything has been started, and what is used from now on is what running needs.
const REST: Duration = Duration::from_secs(15);

/// Gives back, a while from now, the pages of the program that nobody uses.
pub fn give_back_later() {
    tasks::spawn(async {
        tokio::time::sleep(REST).await;
        let forgotten = tokio::task::spawn_blocking(linux::program::forget_pages).await;
        match forgotten {
            Ok(Ok(bytes)) => tracing::debug!(bytes, "pages of the program were given back"),
            Ok(Err(error)) => tracing::debug!(%error, "pages of the program stay"),
            Err(error) => tracing::warn!(%error, "pages of the program stay"),
        }
    });
}
