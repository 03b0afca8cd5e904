//! Claims: an IPAddress object per address, and a bit of a RangeAllocation per node port, both as upstream has them.
//! Whoever writes it first has it.

use std::net::IpAddr;
use std::sync::Arc;

use component_base::tasks;
use machinery::status::Status;
use serde_json::{Value, json};
use store::{Change, Expect, Written};
use tokio::task::JoinHandle;

use super::ports;
use crate::app::App;
use crate::call::Call;
use crate::write::{self, Owner, store_status};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    Address(IpAddr),
    Port(u16),
}

/// The Service that a claim is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub namespace: String,
    pub name: String,
}

pub async fn is_taken(app: &Arc<App>, claim: &Claim) -> Result<bool, Status> {
    match claim {
        Claim::Address(address) => {
            let table = app.table.load();
            let resource = table.get("networking.k8s.io", "v1", "ipaddresses").ok_or_else(Status::no_such_resource)?;
            let key = resource.key("", &address.to_string())?;
            // The cache may not have seen yet that it was given back.
            Ok(resource.state()?.get(&key).is_some()
                && app.cache.store().get(&key).await.map_err(store_status)?.is_some())
        }
        Claim::Port(port) => Ok(!ports::current(app).await?.is_free(*port)),
    }
}

/// Whether the claim is ours now; false where somebody else has it.
pub async fn take(app: &Arc<App>, claim: &Claim, holder: &Holder) -> Result<bool, Status> {
    match claim {
        Claim::Address(address) => {
            let object = ip_address(*address, holder);
            let call = Call::internal(app, &object)?;
            let owner = Owner::Update("kube-apiserver".into());
            // Boxed: writing a Service leads here, and writing an IPAddress would lead to writing a Service.
            match Box::pin(write::create_own(&call, object, &owner)).await {
                Ok(_) => Ok(true),
                Err(status) if status.reason == "AlreadyExists" => Ok(false),
                Err(status) => Err(status),
            }
        }
        Claim::Port(port) => ports::change(app, |ports| ports.is_free(*port) && ports.set(*port, true)).await,
    }
}

pub fn ip_address(address: IpAddr, holder: &Holder) -> Value {
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {
            "name": address.to_string(),
            "labels": {"ipaddress.kubernetes.io/ip-family": family, "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"},
        },
        "spec": {"parentRef": {"resource": "services", "namespace": holder.namespace, "name": holder.name}},
    })
}

/// Gives claims back. Who waits for it is answered when others can have them; it goes on when nobody waits any more, and what a
/// crash leaves behind is found by the repair at the next start.
pub(crate) async fn release_all(app: &Arc<App>, claims: Vec<Claim>) {
    if claims.is_empty() {
        return;
    }
    if let Err(error) = release_later(app, claims).await {
        tracing::warn!(%error, "task that releases ClusterIPs and node ports failed");
    }
}

/// The same for who cannot wait.
pub(crate) fn release_later(app: &Arc<App>, claims: Vec<Claim>) -> JoinHandle<()> {
    let app = app.clone();
    tasks::spawn(async move {
        for claim in claims {
            if let Err(error) = release(&app, &claim).await {
                tracing::warn!(?claim, %error, "cannot release ClusterIP or node port of Service yet");
            }
        }
    })
}

pub async fn release(app: &Arc<App>, claim: &Claim) -> Result<(), Status> {
    let address = match claim {
        Claim::Address(address) => address,
        Claim::Port(port) => return ports::change(app, |ports| ports.set(*port, false)).await.map(|_| ()),
    };
    let key = format!("/registry/ipaddresses/{address}");
    let store = app.cache.store();
    while let Some(entry) = store.get(&key).await.map_err(store_status)? {
        let written = store.write_if(&key, Expect::At(entry.revision), Change::Delete).await.map_err(store_status)?;
        if matches!(written, Written::Done(_)) {
            break;
        }
    }
    Ok(())
}
