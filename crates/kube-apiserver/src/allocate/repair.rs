//! At start: claims that no Service holds are given back, Services without their claim get it.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use jiff::Timestamp;
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;
use store::{Change, Expect, RangeRequest};
use tokio_util::sync::CancellationToken;

use super::claim::{self, Claim, Holder};
use super::{claims_of, ports};
use crate::app::App;
use crate::write::store_status;

/// A claim this young may belong to a Service that another server is about to write.
const YOUNG_SECONDS: i64 = 60;
/// Earlier versions kept a key for each port here.
const FORMER_PORTS_PREFIX: &str = "/registry/ranges/servicenodeports/";

pub async fn repair(app: &Arc<App>, shutdown: &CancellationToken) -> Result<(), Status> {
    let held = held(app);
    for (claim, holder) in &held {
        if !claim::is_taken(app, claim).await? && claim::take(app, claim, holder).await? {
            tracing::info!(
                ?claim,
                service = holder.name,
                "repaired missing allocation of a Service's ClusterIP or node port"
            );
        }
    }
    let held: HashSet<&Claim> = held.iter().map(|(claim, _)| claim).collect();
    for (claim, since) in addresses(app)? {
        let old = since.is_none_or(|since| app.clock.now().as_second() - since.as_second() > YOUNG_SECONDS);
        if old && !held.contains(&claim) {
            tracing::info!(?claim, "released ClusterIP that no Service uses");
            claim::release(app, &claim).await?;
        }
    }
    forget_former_ports(app).await?;
    release_ports_later(app, &held, shutdown).await
}

/// What Services hold by their specs. A port outside of the range is nobody's to claim.
fn held(app: &Arc<App>) -> Vec<(Claim, Holder)> {
    let mut held = Vec::new();
    for service in app.views.all("services", "") {
        let holder = Holder { namespace: service.namespace().into(), name: service.name().into() };
        held.extend(claims_of(&service).into_iter().map(|claim| (claim, holder.clone())));
    }
    held.retain(|(claim, _)| match claim {
        Claim::Port(port) => app.settings.node_ports.contains(port),
        Claim::Address(_) => true,
    });
    held
}

/// Ports that no Service holds are looked at again when they cannot be young any more: their bits do not say since when
/// they are set.
async fn release_ports_later(
    app: &Arc<App>,
    held: &HashSet<&Claim>,
    shutdown: &CancellationToken,
) -> Result<(), Status> {
    let taken = ports::current(app).await?;
    let leaked: Vec<u16> = taken.taken().filter(|port| !held.contains(&Claim::Port(*port))).collect();
    if leaked.is_empty() {
        return Ok(());
    }
    let (app, shutdown) = (app.clone(), shutdown.clone());
    tasks::spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(YOUNG_SECONDS as u64)) => {}
            () = shutdown.cancelled() => return,
        }
        let held: HashSet<Claim> = self::held(&app).into_iter().map(|(claim, _)| claim).collect();
        for claim in leaked.into_iter().map(Claim::Port).filter(|claim| !held.contains(claim)) {
            match claim::release(&app, &claim).await {
                Ok(()) => tracing::info!(?claim, "released node port that no Service uses"),
                Err(error) => tracing::warn!(?claim, %error, "cannot release node port that no Service uses"),
            }
        }
    });
    Ok(())
}

/// Every address that is claimed, and since when.
fn addresses(app: &Arc<App>) -> Result<Vec<(Claim, Option<Timestamp>)>, Status> {
    let time = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
    let mut found = Vec::new();
    let addresses = {
        let table = app.table.load();
        let resource = table.get("networking.k8s.io", "v1", "ipaddresses").ok_or_else(Status::no_such_resource)?;
        resource.state()?.snapshot()
    };
    for item in addresses.items.values() {
        let Ok(object) = serde_json::from_slice::<Value>(&item.value) else { continue };
        let managed = object.label("ipaddress.kubernetes.io/managed-by") == Some("ipallocator.k8s.io");
        if let (true, Ok(address)) = (managed, object.name().parse::<IpAddr>()) {
            found.push((Claim::Address(address), time(&object["metadata"]["creationTimestamp"])));
        }
    }
    Ok(found)
}

/// Their Services have the bits now.
async fn forget_former_ports(app: &Arc<App>) -> Result<(), Status> {
    let store = app.cache.store();
    let request = RangeRequest { prefix: FORMER_PORTS_PREFIX.into(), ..RangeRequest::default() };
    for entry in store.range(request).await.map_err(store_status)?.entries {
        // Another server that starts at the same time may have been faster.
        store.write_if(&entry.key, Expect::At(entry.revision), Change::Delete).await.map_err(store_status)?;
    }
    Ok(())
}
