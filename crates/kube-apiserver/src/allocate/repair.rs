//! At start: claims that no Service holds are given back, Services without their claim get it.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;
use store::RangeRequest;

use super::claim::{self, Claim, Holder, PORTS_PREFIX};
use super::claims_of;
use crate::app::App;
use crate::write::store_status;

/// A claim this young may belong to a Service that another server is about to write.
const YOUNG_SECONDS: i64 = 60;

pub async fn repair(app: &Arc<App>) -> Result<(), Status> {
    let mut held: HashSet<String> = HashSet::new();
    for service in app.views.all("services", "") {
        let holder = Holder { namespace: service.namespace().into(), name: service.name().into() };
        for claim in claims_of(&service) {
            held.insert(format!("{claim:?}"));
            if !claim::is_taken(app, &claim).await? && claim::take(app, &claim, &holder).await? {
                tracing::info!(?claim, service = holder.name, "a Service's address or port was not claimed; it is now");
            }
        }
    }
    for (claim, since) in claims(app).await? {
        let old = since.is_none_or(|since| app.clock.now().as_second() - since.as_second() > YOUNG_SECONDS);
        if old && !held.contains(&format!("{claim:?}")) {
            tracing::info!(?claim, "no Service holds this address or port; it is free again");
            claim::release(app, &claim).await?;
        }
    }
    Ok(())
}

/// Every claim there is, and since when.
async fn claims(app: &Arc<App>) -> Result<Vec<(Claim, Option<Timestamp>)>, Status> {
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
    let ports = RangeRequest { prefix: PORTS_PREFIX.into(), ..RangeRequest::default() };
    for entry in app.cache.store().range(ports).await.map_err(store_status)?.entries {
        let Some(Ok(port)) = entry.key.strip_prefix(PORTS_PREFIX).map(str::parse) else { continue };
        let value: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        found.push((Claim::Port(port), time(&value["since"])));
    }
    Ok(found)
}
