//! Memory that is no longer needed: what only the start has used, and what the allocator keeps after it was freed.

use std::time::Duration;

use component_base::tasks;

/// By then everything has been started, and what is used from now on is what running needs.
const REST: Duration = Duration::from_secs(15);

/// How often glibc is told to give back what was freed. A server that has been busy otherwise keeps as much again as it uses.
#[cfg(not(feature = "jemalloc"))]
const TRIM_INTERVAL: Duration = Duration::from_secs(60);

/// Gives back, a while from now, the pages of the program that nobody uses.
pub fn give_back_later() {
    tasks::spawn(async {
        tokio::time::sleep(REST).await;
        let forgotten = tokio::task::spawn_blocking(linux::program::forget_pages).await;
        match forgotten {
            Ok(Ok(bytes)) => tracing::debug!(bytes, "released unused pages of the program"),
            Ok(Err(error)) => tracing::debug!(%error, "cannot release unused pages of the program"),
            Err(error) => tracing::warn!(%error, "cannot release unused pages of the program"),
        }
        give_back_freed().await;
    });
}

// Here and not when the program begins: shims are this program, too, and a thread costs more memory than they have to give back.
#[cfg(feature = "jemalloc")]
async fn give_back_freed() {
    if let Err(error) = linux::program::purge_in_background() {
        tracing::debug!(%error, "cannot start jemalloc's background threads");
    }
}

#[cfg(not(feature = "jemalloc"))]
async fn give_back_freed() {
    loop {
        tokio::time::sleep(TRIM_INTERVAL).await;
        if let Err(error) = tokio::task::spawn_blocking(linux::program::trim_heap).await {
            tracing::warn!(%error, "cannot return freed memory to the kernel");
        }
    }
}
