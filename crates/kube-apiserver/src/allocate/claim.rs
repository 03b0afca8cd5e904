//! Claims: an IPAddress object per address, as upstream has them, and a key per node port. Whoever creates it has it.

use std::net::IpAddr;
use std::sync::Arc;

use machinery::status::Status;
use serde_json::{Value, json};
use store::{Change, Expect, Written};

use crate::app::App;
use crate::call::Call;
use crate::write::{self, Owner, store_status};

#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Node ports have no kind of their own; their claims stand beside the objects.
pub const PORTS_PREFIX: &str = "/registry/ranges/servicenodeports/";

fn port_key(port: u16) -> String {
    format!("{PORTS_PREFIX}{port}")
}

pub async fn is_taken(app: &Arc<App>, claim: &Claim) -> Result<bool, Status> {
    match claim {
        Claim::Address(address) => {
            let table = app.table.load();
            let resource = table.get("networking.k8s.io", "v1", "ipaddresses").ok_or_else(Status::no_such_resource)?;
            Ok(resource.state()?.get(&resource.key("", &address.to_string())?).is_some())
        }
        Claim::Port(port) => Ok(app.cache.store().get(&port_key(*port)).await.map_err(store_status)?.is_some()),
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
            match Box::pin(write::create(&call, &call.resource, "", object, &owner, false)).await {
                Ok(_) => Ok(true),
                Err(status) if status.reason == "AlreadyExists" => Ok(false),
                Err(status) => Err(status),
            }
        }
        Claim::Port(port) => {
            let value =
                json!({"namespace": holder.namespace, "name": holder.name, "since": app.clock.stamp()}).to_string();
            let put = Change::Put { value: value.into(), ttl: None };
            let written =
                app.cache.store().write_if(&port_key(*port), Expect::Absent, put).await.map_err(store_status)?;
            Ok(matches!(written, Written::Done(_)))
        }
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
        "spec": {"parentRef": {"group": "", "resource": "services", "namespace": holder.namespace, "name": holder.name}},
    })
}

/// Gives claims back. Nobody waits for it; what a crash leaves behind is found by the repair at the next start.
pub fn release_later(app: &Arc<App>, claims: Vec<Claim>) {
    if claims.is_empty() {
        return;
    }
    let app = app.clone();
    tasks::spawn(async move {
        for claim in claims {
            if let Err(error) = release(&app, &claim).await {
                tracing::warn!(?claim, %error, "a Service's address or port could not be given back yet");
            }
        }
    });
}

pub async fn release(app: &Arc<App>, claim: &Claim) -> Result<(), Status> {
    let key = match claim {
        Claim::Address(address) => format!("/registry/ipaddresses/{address}"),
        Claim::Port(port) => port_key(*port),
    };
    let store = app.cache.store();
    while let Some(entry) = store.get(&key).await.map_err(store_status)? {
        let written = store.write_if(&key, Expect::At(entry.revision), Change::Delete).await.map_err(store_status)?;
        if matches!(written, Written::Done(_)) {
            break;
        }
    }
    Ok(())
}
