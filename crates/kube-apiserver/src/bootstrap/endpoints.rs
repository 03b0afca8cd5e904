//! Where the Service `kubernetes` leads: to every API server that lives. Servers that share a store know each other by
//! keys that vanish unless they are renewed, and upstream's by the same: one for each address, with Endpoints as value.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use machinery::status::Status;
use serde_json::{Value, json};
use store::{Change, Entry, Expect, RangeRequest};
use tokio_util::sync::CancellationToken;

use super::create::{ensure, family};
use crate::app::App;
use crate::write::store_status;

const PREFIX: &str = "/registry/masterleases/";
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// How long a server counts as living after it was last heard of.
const LIFETIME: Duration = Duration::from_secs(15);

/// For a server that has its store to itself: it is the only one there is.
pub(crate) async fn only_this(app: &Arc<App>) -> Result<(), Status> {
    write(app, &[own(app)]).await
}

/// The same again whenever its address has changed, until it stops.
pub(crate) async fn follow_this(app: Arc<App>, shutdown: CancellationToken) {
    let mut changes = app.settings.advertise_address.changes();
    while let Some(Ok(())) = shutdown.run_until_cancelled(changes.changed()).await {
        while let Err(error) = only_this(&app).await {
            tracing::warn!(%error, "cannot write new address of this API server; retrying");
            tokio::time::sleep(RENEW_EVERY).await;
        }
    }
}

/// For servers that share a store: keeps this one in the list, and those that are gone out of it, until it stops.
pub async fn keep(app: Arc<App>, shutdown: CancellationToken) {
    loop {
        if let Err(error) = renew(&app).await {
            tracing::warn!(%error, "cannot renew lease of this API server; retrying");
        }
        tokio::select! {
            () = tokio::time::sleep(RENEW_EVERY) => {}
            () = shutdown.cancelled() => break,
        }
    }
    if let Err(error) = leave(&app).await {
        tracing::warn!(%error, "cannot delete lease of this API server; it expires on its own");
    }
}

fn own(app: &App) -> SocketAddr {
    SocketAddr::new(app.settings.advertise_address.get(), app.settings.https_port)
}

async fn renew(app: &Arc<App>) -> Result<(), Status> {
    let store = app.cache.store();
    let (key, there) = own_key(app).await?;
    let expect = there.map_or(Expect::Absent, |entry| Expect::At(entry.revision));
    let put = Change::Put { value: lease(own(app)).to_string().into(), ttl: Some(LIFETIME) };
    // A conflict can only be this server's own key that has just run out; the next round puts it again.
    store.write_if(&key, expect, put).await.map_err(store_status)?;
    write(app, &living(app).await?).await
}

/// Upstream's key has the address alone. Where another server of this address has it, ours has the port too.
async fn own_key(app: &Arc<App>) -> Result<(String, Option<Entry>), Status> {
    let (store, own) = (app.cache.store(), own(app));
    let usual = format!("{PREFIX}{}", own.ip());
    let there = store.get(&usual).await.map_err(store_status)?;
    let free = there.as_ref().is_none_or(|entry| port_of(&entry.value) == Some(own.port()));
    if free {
        return Ok((usual, there));
    }
    let key = format!("{PREFIX}{own}");
    let there = store.get(&key).await.map_err(store_status)?;
    Ok((key, there))
}

/// What upstream's servers say of themselves, and the port, which theirs do not say.
fn lease(server: SocketAddr) -> Value {
    json!({
        "kind": "Endpoints", "apiVersion": "v1", "metadata": {},
        "subsets": [{
            "addresses": [{"ip": server.ip().to_string()}],
            "ports": [{"name": "https", "port": server.port(), "protocol": "TCP"}],
        }],
    })
}

fn port_of(lease: &[u8]) -> Option<u16> {
    let lease: Value = serde_json::from_slice(lease).ok()?;
    lease.pointer("/subsets/0/ports/0/port")?.as_u64()?.try_into().ok()
}

/// The server that a lease is about. One that does not say its port has ours, as upstream takes it.
fn server_of(name: &str, lease: &[u8], own_port: u16) -> Option<SocketAddr> {
    let named = name.parse::<SocketAddr>().ok();
    let address = named.map(|server| server.ip()).or_else(|| name.parse().ok())?;
    let port = named.map(|server| server.port()).or_else(|| port_of(lease)).unwrap_or(own_port);
    Some(SocketAddr::new(address, port))
}

async fn leave(app: &Arc<App>) -> Result<(), Status> {
    let store = app.cache.store();
    let (key, there) = own_key(app).await?;
    if let Some(entry) = there {
        store.write_if(&key, Expect::At(entry.revision), Change::Delete).await.map_err(store_status)?;
    }
    let others = living(app).await?;
    // The last one leaves its address behind: an empty list would help nobody.
    if others.is_empty() {
        return Ok(());
    }
    write(app, &others).await
}

async fn living(app: &Arc<App>) -> Result<Vec<SocketAddr>, Status> {
    let request = RangeRequest { prefix: PREFIX.into(), ..RangeRequest::default() };
    let range = app.cache.store().range(request).await.map_err(store_status)?;
    let server = |entry: &Entry| server_of(entry.key.strip_prefix(PREFIX)?, &entry.value, own(app).port());
    let mut servers: Vec<SocketAddr> = range.entries.iter().filter_map(server).collect();
    servers.sort();
    servers.dedup();
    Ok(servers)
}

async fn write(app: &Arc<App>, servers: &[SocketAddr]) -> Result<(), Status> {
    // Loopback addresses cannot be endpoints: a host that has no other is reached by nobody else anyway.
    let mut servers: Vec<SocketAddr> = servers.iter().copied().filter(|server| !server.ip().is_loopback()).collect();
    servers.sort();
    if servers.is_empty() {
        return Ok(());
    }
    ensure(app, endpoints(&servers)).await?;
    ensure(app, endpoint_slice(&servers)).await
}

/// One subset per port, since a subset's ports are those of all its addresses.
fn endpoints(servers: &[SocketAddr]) -> Value {
    let mut ports: Vec<u16> = servers.iter().map(SocketAddr::port).collect();
    ports.sort();
    ports.dedup();
    let subset = |port: &u16| {
        let addresses: Vec<Value> =
            addresses(servers, *port).map(|address| json!({"ip": address.to_string()})).collect();
        json!({"addresses": addresses, "ports": [{"name": "https", "port": port, "protocol": "TCP"}]})
    };
    json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": ports.iter().map(subset).collect::<Vec<_>>(),
    })
}

/// A slice has one list of ports: servers on another port than the first are in Endpoints only.
fn endpoint_slice(servers: &[SocketAddr]) -> Value {
    let port = servers[0].port();
    let endpoint = |address: IpAddr| json!({"addresses": [address.to_string()], "conditions": {"ready": true}});
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family(servers[0].ip()),
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "endpoints": addresses(servers, port).map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    })
}

fn addresses(servers: &[SocketAddr], port: u16) -> impl Iterator<Item = IpAddr> {
    servers.iter().filter(move |server| server.port() == port).map(SocketAddr::ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_tells_its_server() {
        let ours = lease("10.0.0.1:6443".parse().unwrap()).to_string();
        // As upstream stores it.
        let theirs = json!({"kind": "Endpoints", "apiVersion": "v1", "metadata": {"generation": 7},
            "subsets": [{"addresses": [{"ip": "10.0.0.2"}]}]})
        .to_string();
        let check = |name: &str, lease: &str, expected: Option<&str>| {
            let found = server_of(name, lease.as_bytes(), 443).map(|server| server.to_string());
            assert_eq!(found.as_deref(), expected, "{name}");
        };
        check("10.0.0.1", &ours, Some("10.0.0.1:6443"));
        check("10.0.0.2", &theirs, Some("10.0.0.2:443"));
        check("10.0.0.1:7443", &theirs, Some("10.0.0.1:7443"));
        check("fd00::1", &theirs, Some("[fd00::1]:443"));
        check("somebody", &theirs, None);
    }

    #[test]
    fn servers_on_several_ports() {
        let servers: Vec<SocketAddr> =
            ["10.0.0.1:6443", "10.0.0.1:7443", "10.0.0.2:6443"].map(|text| text.parse().unwrap()).into();
        let object = endpoints(&servers);
        assert_eq!(object["subsets"][0]["addresses"], json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]));
        assert_eq!(object["subsets"][1]["ports"][0]["port"], 7443);
        assert_eq!(endpoint_slice(&servers)["endpoints"].as_array().unwrap().len(), 2);
    }
}
