//! The kernel's own notifications: who changes devices, routes or rules under our hands wakes whoever keeps them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use nlink::netlink::events::NetworkEvent;
use nlink::netlink::nftables::{NftablesEvent, NftablesGroup};
use nlink::netlink::{Connection, Nftables, Route, RtnetlinkGroup};
use reconcile::Shutdown;
use tokio::sync::Notify;

/// When notifications were lost or cannot be had, everything is looked at anew, but not all the time.
const AGAIN: Duration = Duration::from_secs(1);

/// Wakes with every event of links, addresses, routes and neighbours that matters.
pub async fn links(
    namespace: Option<PathBuf>,
    matters: impl Fn(&NetworkEvent) -> bool + Send + 'static,
    woken: Arc<Notify>,
    shutdown: Shutdown,
) {
    let groups = [
        RtnetlinkGroup::Link,
        RtnetlinkGroup::Ipv4Addr,
        RtnetlinkGroup::Ipv6Addr,
        RtnetlinkGroup::Ipv4Route,
        RtnetlinkGroup::Ipv6Route,
        RtnetlinkGroup::Neigh,
    ];
    loop {
        let connection = open_links(namespace.as_deref());
        let following = async {
            let connection = connection?;
            connection.subscribe(&groups)?;
            // Something may have changed since the last look.
            woken.notify_one();
            let mut events = connection.into_events().await;
            while let Some(event) = events.next().await {
                if matters(&event?) {
                    woken.notify_one();
                }
            }
            nlink::netlink::Result::Ok(())
        };
        if ended(following, "devices and routes", &shutdown).await {
            return;
        }
        woken.notify_one();
    }
}

/// Wakes with every change of rules that matters.
pub async fn rules(
    namespace: Option<PathBuf>,
    matters: impl Fn(&NftablesEvent) -> bool + Send + 'static,
    woken: Arc<Notify>,
    shutdown: Shutdown,
) {
    loop {
        let connection = open_rules(namespace.as_deref());
        let following = async {
            let connection = connection?;
            connection.subscribe(&[NftablesGroup::All])?;
            woken.notify_one();
            let mut events = connection.into_events().await;
            while let Some(event) = events.next().await {
                if matters(&event?) {
                    woken.notify_one();
                }
            }
            nlink::netlink::Result::Ok(())
        };
        if ended(following, "rules", &shutdown).await {
            return;
        }
        woken.notify_one();
    }
}

/// The table that something was deleted from, by whomever.
pub(crate) fn deleted_from(event: &NftablesEvent) -> Option<&str> {
    match event {
        NftablesEvent::DelTable(table) => Some(&table.name),
        NftablesEvent::DelChain(chain) => Some(&chain.table),
        NftablesEvent::DelRule(rule) => Some(&rule.table),
        NftablesEvent::DelSet(set) => Some(&set.table),
        NftablesEvent::DelSetElements(elements) => Some(&elements.table),
        _ => None,
    }
}

fn open_links(namespace: Option<&Path>) -> nlink::netlink::Result<Connection<Route>> {
    match namespace {
        Some(path) => Connection::new_in(path),
        None => Connection::<Route>::new(),
    }
}

fn open_rules(namespace: Option<&Path>) -> nlink::netlink::Result<Connection<Nftables>> {
    match namespace {
        Some(path) => Connection::new_in(path),
        None => Connection::<Nftables>::new(),
    }
}

/// Follows until the stream breaks; whether it is time to stop.
async fn ended(
    following: impl Future<Output = nlink::netlink::Result<()>>,
    what: &'static str,
    shutdown: &Shutdown,
) -> bool {
    tokio::select! {
        () = shutdown.cancelled() => return true,
        result = following => {
            if let Err(error) = result {
                tracing::warn!(%error, what, "netlink notifications lost; subscribing again");
            }
        }
    }
    tokio::select! {
        () = shutdown.cancelled() => true,
        () = tokio::time::sleep(AGAIN) => false,
    }
}
