//! The addresses that the node announces: those that were given, or the one that packets to the world would leave from. The
//! latter is followed, since a machine may boot before it has an address and may get another one.

mod events;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use ipnet::IpNet;
use reconcile::Shutdown;
use tokio::sync::watch;
use tokio::time::sleep;

/// Addresses of documentation networks: no packet is sent, the kernel only chooses a route and with it our address.
const ELSEWHERE: [&str; 2] = ["192.0.2.1:9", "[2001:db8::1]:9"];
/// How long a start waits for a machine that has no address yet.
const WAIT_MAX: Duration = Duration::from_secs(15);
const WAIT_STEP: Duration = Duration::from_millis(200);
/// Addresses, routes and duplicate detection come one after the other.
const SETTLE: Duration = Duration::from_millis(500);
/// Routes change without a word about addresses.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What is announced now, and whoever wants to know of a change.
#[derive(Clone)]
pub struct Addresses(Arc<watch::Sender<Vec<IpAddr>>>);

impl Addresses {
    /// Those that were given, for good.
    pub fn fixed(addresses: Vec<IpAddr>) -> Addresses {
        Addresses(Arc::new(watch::Sender::new(addresses)))
    }

    /// This machine's own, followed until shutdown. Those in the ranges are of pods and Services.
    pub fn follow(ranges: Vec<IpNet>, shutdown: Shutdown) -> Addresses {
        let addresses = Addresses::fixed(find(&ranges));
        tasks::spawn(shutdown.run_until_cancelled_owned(addresses.clone().keep(ranges)));
        addresses
    }

    pub fn get(&self) -> Vec<IpAddr> {
        self.0.borrow().clone()
    }

    pub fn changes(&self) -> watch::Receiver<Vec<IpAddr>> {
        self.0.subscribe()
    }

    async fn keep(self, ranges: Vec<IpNet>) {
        let mut events = events::Events::open();
        if let Err(error) = &events {
            tracing::warn!(%error, "cannot subscribe to address changes; checking every {LOOK_AGAIN:?}");
        }
        loop {
            let heard = async {
                match &mut events {
                    Ok(events) => events.changed().await,
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = heard => sleep(SETTLE).await,
                () = sleep(LOOK_AGAIN) => {}
            }
            let current = self.get();
            if let Some(new) = next(&current, &local(), route(), &ranges) {
                tracing::info!(before = ?current, now = ?new, "node address changed");
                self.0.send_replace(new);
            }
        }
    }
}

/// Until the machine has an address, or has had time enough to get one.
pub async fn wait(ranges: &[IpNet]) {
    let has_one = || first(route(), &local(), ranges).is_some();
    if has_one() {
        return;
    }
    tracing::warn!("this machine has no IP address yet; waiting up to {WAIT_MAX:?} for one");
    let until_one = async {
        while !has_one() {
            sleep(WAIT_STEP).await;
        }
    };
    if tokio::time::timeout(WAIT_MAX, until_one).await.is_err() {
        tracing::warn!("this machine still has no IP address; using 127.0.0.1 until it has one");
    }
}

/// Never empty: a machine with no network at all still has itself.
pub fn find(ranges: &[IpNet]) -> Vec<IpAddr> {
    vec![first(route(), &local(), ranges).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))]
}

/// What to announce instead of `current`, if anything: an address stays for as long as the machine has it, whatever its routes
/// do, and a machine without any keeps the last.
fn next(current: &[IpAddr], local: &[IpAddr], route: Option<IpAddr>, ranges: &[IpNet]) -> Option<Vec<IpAddr>> {
    let stays = current.first().is_some_and(|address| !address.is_loopback() && local.contains(address));
    let found = first(route, local, ranges).filter(|_| !stays)?;
    (current != [found]).then(|| vec![found])
}

fn first(route: Option<IpAddr>, local: &[IpAddr], ranges: &[IpNet]) -> Option<IpAddr> {
    let usable = |address: &IpAddr| !ranges.iter().any(|range| range.contains(address));
    let plain = |address: &&IpAddr| match address {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(_) => false,
    };
    route.filter(usable).or_else(|| local.iter().filter(plain).copied().find(usable))
}

/// Where packets to the world would come from.
fn route() -> Option<IpAddr> {
    ELSEWHERE.iter().find_map(|to| source_towards(to.parse().ok()?))
}

fn source_towards(to: SocketAddr) -> Option<IpAddr> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    let from = socket.local_addr().ok()?.ip();
    (!from.is_loopback() && !from.is_unspecified()).then_some(from)
}

/// All addresses of this machine's devices, as the kernel lists them.
fn local() -> Vec<IpAddr> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut all: Vec<IpAddr> = local_v4(&read("/proc/net/fib_trie")).into_iter().map(IpAddr::V4).collect();
    all.extend(local_v6(&read("/proc/net/if_inet6")).into_iter().map(IpAddr::V6));
    all
}

/// The addresses of this host in the kernel's routing tree, each once.
fn local_v4(trie: &str) -> Vec<Ipv4Addr> {
    let (mut last, mut found) = (None, Vec::new());
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if let Some(address) = last.filter(|address| line.contains("host LOCAL") && !found.contains(address)) {
            found.push(address);
        }
    }
    found
}

/// `20010db8000000000000000000000001 02 40 00 80 eth0`
fn local_v6(table: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| u128::from_str_radix(line.split_whitespace().next()?, 16).ok().map(Ipv6Addr::from);
    table.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn local_addresses_in_the_kernels_tables() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 192.168.77.1\n        /32 host LOCAL\nLocal:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 192.168.77.0\n        /24 link UNICAST\n     |-- 192.168.77.1\n        /32 host LOCAL\n";
        assert_eq!(local_v4(trie), [Ipv4Addr::new(192, 168, 77, 1), Ipv4Addr::LOCALHOST]);
        assert_eq!(local_v4("Main:\n"), [] as [Ipv4Addr; 0]);
        let table = "20010db8000000000000000000000001 02 40 00 80     eth0\nnonsense\n";
        assert_eq!(local_v6(table), ["2001:db8::1".parse::<Ipv6Addr>().unwrap()]);
        assert_eq!(find(&[]).len(), 1);
    }

    #[test]
    fn the_first_address_is_none_of_pods() {
        let pods = ["10.42.0.0/16".parse().unwrap()];
        let check = |route: Option<&str>, local: &[&str], expected: Option<&str>| {
            let found = first(route.map(|text| text.parse().unwrap()), &all(local), &pods);
            assert_eq!(found, expected.map(|text| text.parse().unwrap()), "{route:?} {local:?}");
        };
        check(Some("192.0.2.5"), &["10.42.0.1", "192.0.2.5"], Some("192.0.2.5"));
        check(None, &["127.0.0.1", "10.42.0.1", "192.0.2.6"], Some("192.0.2.6"));
        check(None, &["127.0.0.1", "10.42.0.1", "169.254.7.7", "fe80::1"], None);
        check(Some("2001:db8::5"), &["2001:db8::5"], Some("2001:db8::5"));
    }

    #[test]
    fn an_address_stays_until_it_is_gone() {
        let check = |current: &str, local: &[&str], route: Option<&str>, expected: Option<&str>| {
            let route = route.map(|text| text.parse().unwrap());
            let new = next(&all(&[current]), &all(local), route, &["10.42.0.0/16".parse().unwrap()]);
            assert_eq!(new, expected.map(|text| all(&[text])), "{current} {local:?} {route:?}");
        };
        // It booted without one, and then got one.
        check("127.0.0.1", &["127.0.0.1"], None, None);
        check("127.0.0.1", &["127.0.0.1", "192.0.2.5"], Some("192.0.2.5"), Some("192.0.2.5"));
        check("127.0.0.1", &["127.0.0.1", "10.42.0.1"], None, None);
        // A second one comes, with the better route.
        check("192.0.2.5", &["192.0.2.5", "198.51.100.5"], Some("198.51.100.5"), None);
        // It is replaced.
        check("192.0.2.5", &["192.0.2.77"], Some("192.0.2.77"), Some("192.0.2.77"));
        // The cable is out for a while.
        check("192.0.2.5", &["127.0.0.1", "10.42.0.1"], None, None);
    }
}
