//! Connections that the kernel remembers and that lead to where nobody is any more.
//!
//! Only those of UDP: their senders would be led to an endpoint that is gone for as long as they go on sending. A TCP
//! connection ends by itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use nlink::netlink::netfilter::{ConntrackEntry, ConntrackFilter, IpProtocol};
use nlink::netlink::types::AddressFamily;
use nlink::netlink::{Connection, Netfilter};

use crate::model::Family;
use crate::rules::Entrance;

/// What the kernel remembers of connections, and for how long. What is `None` or zero stays as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conntrack {
    /// Room for connections for each processor, and at least.
    pub max_per_core: u32,
    pub min: u32,
    /// Whether that room is meant exactly; otherwise a kernel that has more keeps it.
    pub exact: bool,
    /// Connections on which nothing happens, and such as one side has closed.
    pub tcp_established: Option<Duration>,
    pub tcp_close_wait: Option<Duration>,
    /// Take packets that are outside of a connection's window.
    pub tcp_be_liberal: bool,
    /// Datagrams that were not answered, and such as were.
    pub udp: Option<Duration>,
    pub udp_stream: Option<Duration>,
}

impl Default for Conntrack {
    /// As upstream.
    fn default() -> Conntrack {
        Conntrack {
            max_per_core: 32768,
            min: 131_072,
            exact: false,
            tcp_established: Some(Duration::from_secs(24 * 60 * 60)),
            tcp_close_wait: Some(Duration::from_secs(60 * 60)),
            tcp_be_liberal: false,
            udp: None,
            udp_stream: None,
        }
    }
}

impl Conntrack {
    /// The settings of the kernel, by name, on a machine with so many processors.
    fn settings(&self, processors: u64) -> Vec<(&'static str, u64)> {
        let room = u64::from(self.max_per_core) * processors;
        let room = (room > 0).then(|| room.max(self.min.into()));
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs()).filter(|seconds| *seconds > 0);
        let all = [
            ("nf_conntrack_max", room),
            ("nf_conntrack_tcp_timeout_established", seconds(self.tcp_established)),
            ("nf_conntrack_tcp_timeout_close_wait", seconds(self.tcp_close_wait)),
            ("nf_conntrack_tcp_be_liberal", self.tcp_be_liberal.then_some(1)),
            ("nf_conntrack_udp_timeout", seconds(self.udp)),
            ("nf_conntrack_udp_timeout_stream", seconds(self.udp_stream)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Tells the kernel. What it refuses stays as it is.
    pub(crate) fn apply(&self, namespace: Option<&Path>) {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let set = || {
            for (name, value) in self.settings(processors) {
                let path = format!("/proc/sys/net/netfilter/{name}");
                let now = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
                // Someone may have asked for more.
                let has_room = name == "nf_conntrack_max" && !self.exact && now.is_some_and(|now| now > value);
                if now.is_none() || now == Some(value) || has_room {
                    continue;
                }
                if let Err(error) = std::fs::write(&path, value.to_string()) {
                    tracing::info!(name, value, %error, "cannot set conntrack sysctl");
                }
            }
        };
        match namespace {
            // A path that is gone says so when the rules are written.
            Some(path) => _ = linux::netns::run_in(path, set),
            None => set(),
        }
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
    entrances: BTreeMap<Entrance, Vec<SocketAddr>>,
    families: &[Family],
    namespace: Option<&Path>,
) -> nlink::netlink::Result<usize> {
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

fn leads_nowhere(entry: &ConntrackEntry, family: Family, entrances: &BTreeMap<Entrance, Vec<SocketAddr>>) -> bool {
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
    fn the_kernel_has_room_by_processor_and_at_least() {
        let of = |max_per_core: u32, min: u32, processors: u64| {
            let conntrack = Conntrack { max_per_core, min, udp: Some(Duration::ZERO), ..Conntrack::default() };
            conntrack.settings(processors)
        };
        let times = [("nf_conntrack_tcp_timeout_established", 86_400), ("nf_conntrack_tcp_timeout_close_wait", 3600)];
        assert_eq!(of(0, 500, 4), times);
        assert_eq!(of(100, 500, 4)[0], ("nf_conntrack_max", 500));
        assert_eq!(of(100, 500, 6)[0], ("nf_conntrack_max", 600));
    }

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
