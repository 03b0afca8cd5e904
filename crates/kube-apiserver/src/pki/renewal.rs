//! Keeps the leaves fresh while the server runs, so that a cluster that never restarts never expires.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use super::{Leaf, Material, Options, ServingCertificate, renew_if_needed};

/// A machine may sleep or change its clock; looking a few times a day costs nothing and catches both.
const SLEEP_MAX: Duration = Duration::from_secs(6 * 3600);
/// After a full disk or the like, and where the authority itself is about to end.
const SLEEP_MIN: Duration = Duration::from_secs(60);

/// Runs until it is dropped. Leaves are issued again for an address that is new, too. New material is shown through `material`, and new connections get the new certificate.
pub(crate) async fn renewal_task(
    material: watch::Sender<Arc<Material>>,
    mut options: Options,
    mut addresses: watch::Receiver<IpAddr>,
    serving: Arc<ServingCertificate>,
    now: impl Fn() -> Timestamp + Send,
) {
    let (given, mut former) = (options.extra_addresses.clone(), None);
    loop {
        let current = material.borrow().clone();
        tokio::select! {
            () = tokio::time::sleep(time_to_sleep(&current, now())) => {}
            Ok(()) = addresses.changed() => {
                let address = *addresses.borrow_and_update();
                options.extra_addresses = given.iter().copied().chain(former).chain([address]).collect();
                // It stays in for one more change: some may still come that way.
                former = Some(address);
            }
        }
        match renew_if_needed(&current, &options, now()) {
            Ok(None) => {}
            Ok(Some(renewed)) => {
                if let Err(error) = serving.replace(renewed.leaf(Leaf::Serving)) {
                    tracing::error!(%error, "cannot use renewed serving certificate");
                }
                tracing::info!(until = %renewed.leaf(Leaf::Serving).not_after, "renewed certificates");
                material.send_replace(Arc::new(renewed));
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "cannot renew certificates; retrying");
            }
        }
    }
}

fn time_to_sleep(material: &Material, now: Timestamp) -> Duration {
    let until = material.next_renewal().duration_since(now);
    Duration::try_from(until).unwrap_or(Duration::ZERO).clamp(SLEEP_MIN, SLEEP_MAX)
}
