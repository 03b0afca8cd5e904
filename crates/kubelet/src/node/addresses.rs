//! Which address to announce when none is told: the one that packets to the world would leave from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// Addresses of documentation networks: no packet is sent, the kernel only chooses a route and with it our address.
const ELSEWHERE: [&str; 2] = ["192.0.2.1:9", "[2001:db8::1]:9"];

/// Never empty: a machine with no network at all still has itself.
pub fn find() -> Vec<IpAddr> {
    let routed = ELSEWHERE.iter().find_map(|to| source_towards(to.parse().ok()?));
    let local = || first_local(&std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default()).map(IpAddr::V4);
    vec![routed.or_else(local).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))]
}

fn source_towards(to: SocketAddr) -> Option<IpAddr> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    let from = socket.local_addr().ok()?.ip();
    (!from.is_loopback() && !from.is_unspecified()).then_some(from)
}

/// The first address of this host in the kernel's routing tree that is not a loopback one.
fn first_local(trie: &str) -> Option<Ipv4Addr> {
    let mut last = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line.contains("host LOCAL") && last.is_some_and(|address| !address.is_loopback()) {
            return last;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_address_in_the_routing_tree() {
        let trie = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 192.168.77.0\n        /24 link UNICAST\n     |-- 192.168.77.1\n        /32 host LOCAL\n";
        assert_eq!(first_local(trie), Some(Ipv4Addr::new(192, 168, 77, 1)));
        assert_eq!(first_local("Main:\n"), None);
        assert_eq!(find().len(), 1);
    }
}
