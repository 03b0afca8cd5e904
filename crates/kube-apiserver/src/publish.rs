//! Publishes what changed to others through the API, until it is there: a write that fails is tried again, later each time.

use std::sync::Arc;
use std::time::Duration;

use machinery::status::Status;
use tokio::sync::watch;

use crate::pki::Credentials;

/// The first pause after a failed write, and the longest: the store may be away for a while.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Publishes the CAs of every change. Runs until nobody sends changes any more. Only the newest one is published.
pub(crate) async fn keep_published(
    mut changes: watch::Receiver<Arc<Credentials>>,
    publish: impl AsyncFn(&Credentials) -> Result<(), Status>,
) {
    while changes.changed().await.is_ok() {
        let mut failures = 0;
        loop {
            let credentials = changes.borrow_and_update().clone();
            let Err(error) = publish(&credentials).await else { break };
            let after = pause(failures);
            tracing::error!(
                %error, retry_after = ?after, "cannot publish new client CAs to extension-apiserver-authentication"
            );
            tokio::select! {
                () = tokio::time::sleep(after) => failures += 1,
                // What came in the meantime is tried at once.
                Ok(()) = changes.changed() => failures = 0,
            }
        }
        tracing::info!("published client CAs to extension-apiserver-authentication");
    }
}

/// Twice as long after each failure.
fn pause(failures: u32) -> Duration {
    RETRY_MIN.saturating_mul(1 << failures.min(16)).min(RETRY_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;
    use crate::pki::tests::credentials;

    /// What was tried at which second, and whether it was the newest.
    type Tries = Arc<Mutex<Vec<(Duration, String)>>>;

    async fn published(
        failing: usize,
        changes: impl AsyncFnOnce(&watch::Sender<Arc<Credentials>>),
    ) -> Vec<(Duration, String)> {
        let (sender, receiver) = watch::channel(Arc::new(credentials()));
        let (tries, began) = (Tries::default(), Instant::now());
        let told = tries.clone();
        let publish = async move |credentials: &Credentials| {
            let mut tries = told.lock().unwrap();
            tries.push((began.elapsed(), credentials.client_ca.clone().unwrap_or_default()));
            if tries.len() > failing { Ok(()) } else { Err(Status::internal("the store is away")) }
        };
        let task = tokio::spawn(keep_published(receiver, publish));
        changes(&sender).await;
        drop(sender);
        task.await.unwrap();
        Arc::try_unwrap(tries).unwrap().into_inner().unwrap()
    }

    fn send(sender: &watch::Sender<Arc<Credentials>>, ca: &str) {
        sender.send_replace(Arc::new(Credentials { client_ca: Some(ca.into()), ..credentials() }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_fails_is_tried_again_later_each_time() {
        let tries = published(12, async |sender| {
            send(sender, "new");
            tokio::time::sleep(Duration::from_secs(600)).await;
        })
        .await;
        let times: Vec<u128> = tries.iter().map(|(at, _)| at.as_millis()).collect();
        let expected = [0, 200, 600, 1_400, 3_000, 6_200, 12_600, 25_400, 51_000, 102_200, 162_200, 222_200, 282_200];
        assert_eq!(times, expected, "and never again once it is published");
        assert!(tries.iter().all(|(_, ca)| ca == "new"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_change_is_tried_at_once_and_instead() {
        let tries = published(6, async |sender| {
            send(sender, "first");
            tokio::time::sleep(Duration::from_secs(5)).await;
            send(sender, "second");
            tokio::time::sleep(Duration::from_secs(60)).await;
        })
        .await;
        let told: Vec<(u128, &str)> = tries.iter().map(|(at, ca)| (at.as_millis(), ca.as_str())).collect();
        let first = [0, 200, 600, 1_400, 3_000].map(|at| (at, "first"));
        assert_eq!(told[..5], first);
        assert_eq!(told[5..], [(5_000, "second"), (5_200, "second")]);
    }
}
