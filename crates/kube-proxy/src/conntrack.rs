//! Connections that the kernel remembers and that lead to where nobody is any more.
//!
//! Only those of UDP: their senders would be led to an endpoint that is gone for as long as they go on sending. A TCP
//! connection ends by itself.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::Path;

use nlink::netlink::netfilter::{ConntrackEntry, ConntrackFilter, IpProtocol};
use nlink::netlink::types::AddressFamily;
use nlink::netlink::{Connection, Netfilter};

use crate::model::Family;
use crate::rules::Entrance;

/// Room for connections, for each processor and at least, as upstream has it.
const CONNECTIONS_PER_PROCESSOR: usize = 32768;
const CONNECTIONS_MIN: usize = 131_072;
/// How long connections are remembered on which nothing happens, and such as one side has closed.
const TIMEOUTS: [(&str, usize); 2] =
    [("nf_conntrack_tcp_timeout_established", 24 * 60 * 60), ("nf_conntrack_tcp_timeout_close_wait", 60 * 60)];

/// Makes room for as many connections as a node has. What the kernel refuses stays as it is.
pub fn make_room(namespace: Option<&Path>) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let room = CONNECTIONS_MIN.max(processors * CONNECTIONS_PER_PROCESSOR);
    let set = || {
        let path = |name: &str| format!("/proc/sys/net/netfilter/{name}");
        let read = |name: &str| std::fs::read_to_string(path(name)).ok()?.trim().parse::<usize>().ok();
        let write = |name: &str, value: usize| {
            if let Err(error) = std::fs::write(path(name), value.to_string()) {
                tracing::info!(name, value, %error, "the kernel's memory of connections cannot be set");
            }
        };
        // Someone may have asked for more.
        if read("nf_conntrack_max").is_some_and(|now| now < room) {
            write("nf_conntrack_max", room);
        }
        for (name, seconds) in TIMEOUTS {
            if read(name).is_some_and(|now| now != seconds) {
                write(name, seconds);
            }
        }
    };
    match namespace {
        // A path that is gone says so when the rules are written.
        Some(path) => _ = linux::netns::run_in(path, set),
        None => set(),
    }
}

/// The ways in of one Service before and after a change: which of them have connections that may have to be forgotten.
pub fn stale(
    old: &BTreeMap<Entrance, Vec<SocketAddr>>,
    new: &BTreeMap<Entrance, Vec<SocketAddr>>,
) -> Vec<(Entrance, Vec<SocketAddr>)> {
    let none = Vec::new();
    let mut found: Vec<(Entrance, Vec<SocketAddr>)> = Vec::new();
    for (entrance, before) in old {
        let now = new.get(entrance).unwrap_or(&none);
        // Those who sent while there was nobody have connections that lead nowhere.
        if before.iter().any(|endpoint| !now.contains(endpoint)) || (before.is_empty() && !now.is_empty()) {
            found.push((*entrance, now.clone()));
        }
    }
    let appeared = new.iter().filter(|(entrance, now)| !old.contains_key(entrance) && !now.is_empty());
    found.extend(appeared.map(|(entrance, now)| (*entrance, now.clone())));
    found
}

/// Forgets the connections through these ways in that lead elsewhere than to their endpoints.
pub async fn forget(
    entrances: Vec<(Entrance, Vec<SocketAddr>)>,
    families: &[Family],
    namespace: Option<&Path>,
) -> nlink::netlink::Result<usize> {
    let entrances: HashMap<Entrance, Vec<SocketAddr>> = entrances.into_iter().collect();
    let connection: Connection<Netfilter> = match namespace {
        Some(path) => Connection::new_in(path)?,
        None => Connection::<Netfilter>::new()?,
    };
    let mut forgotten = 0;
    for family in families {
        let filter = ConntrackFilter::new().proto(IpProtocol::Udp).family(match family {
            Family::V4 => AddressFamily::Inet,
            Family::V6 => AddressFamily::Inet6,
        });
        for entry in connection.get_conntrack_matching(&filter).await? {
            if leads_nowhere(&entry, *family, &entrances) {
                match connection.del_conntrack_entry(&entry).await {
                    Ok(()) => forgotten += 1,
                    // It ended by itself.
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(forgotten)
}

fn leads_nowhere(entry: &ConntrackEntry, family: Family, entrances: &HashMap<Entrance, Vec<SocketAddr>>) -> bool {
    let (Some(address), Some(port)) = (entry.orig.dst_ip, entry.orig.dst_port) else { return false };
    let live = entrances.get(&Entrance::Address(address, port));
    let Some(live) = live.or_else(|| entrances.get(&Entrance::NodePort(family, port))) else { return false };
    // Answers come from where the packets really went.
    let (Some(address), Some(port)) = (entry.reply.src_ip, entry.reply.src_port) else { return false };
    !live.contains(&SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ways_that_lost_an_endpoint_or_got_their_first_are_looked_at() {
        let endpoint = |last: u8| SocketAddr::from(([10, 0, 0, last], 53));
        let entrance = Entrance::Address([10, 96, 0, 1].into(), 53);
        let ways = |endpoints: &[u8]| {
            BTreeMap::from([(entrance, endpoints.iter().copied().map(endpoint).collect::<Vec<_>>())])
        };
        let nothing = BTreeMap::new();
        for (old, new, expected) in [
            (&ways(&[1]), &ways(&[1, 2]), None),
            (&ways(&[1]), &ways(&[1]), None),
            (&ways(&[1, 2]), &ways(&[2]), Some(vec![endpoint(2)])),
            (&ways(&[1]), &nothing, Some(vec![])),
            (&ways(&[]), &ways(&[1]), Some(vec![endpoint(1)])),
            (&nothing, &ways(&[1]), Some(vec![endpoint(1)])),
            (&nothing, &ways(&[]), None),
        ] {
            let found = stale(old, new);
            assert_eq!(found.first().map(|(_, live)| live.clone()), expected, "{old:?} {new:?}");
        }
    }
}
