//! Ports of the node that lead into pods, and the machine's own sockets, which come first: no pod may answer in the place of the
//! kubelet or of ssh.

use std::collections::BTreeSet;
use std::net::IpAddr;

use linux::sockets::Listener;

use crate::builtin::Port;

/// Whether the machine itself listens where the port would be mapped. What listens at a loopback address alone is no reason to
/// refuse a pod: it is left out of the mapping.
pub fn is_taken(port: &Port, listeners: &BTreeSet<Listener>) -> bool {
    same(port, listeners).any(|listener| match port.host_address {
        Some(address) => listener.answers_at(&address),
        None => !listener.address.is_loopback(),
    })
}

/// The loopback addresses at which somebody listens on a port that is mapped at every address.
pub(crate) fn kept_addresses(port: &Port, listeners: &BTreeSet<Listener>) -> Vec<IpAddr> {
    if port.host_address.is_some() {
        return Vec::new();
    }
    same(port, listeners).map(|listener| listener.address).filter(IpAddr::is_loopback).collect()
}

fn same<'a>(port: &Port, listeners: &'a BTreeSet<Listener>) -> impl Iterator<Item = &'a Listener> {
    let key = (port.protocol, port.host_port);
    listeners.iter().filter(move |listener| (listener.protocol, listener.port) == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_comes_first() {
        let listener = |address: &str, port| Listener { protocol: 6, address: address.parse().unwrap(), port };
        let listeners: BTreeSet<Listener> = [
            listener("0.0.0.0", 22),
            listener("::", 10250),
            listener("192.0.2.1", 2379),
            listener("127.0.0.1", 2379),
            listener("127.0.0.53", 53),
        ]
        .into();
        let port = |host_port, host: Option<&str>| Port {
            protocol: 6,
            host_port,
            container_port: 80,
            host_address: host.map(|text| text.parse().unwrap()),
        };
        for (number, host, taken) in [
            (22, None, true),
            (22, Some("127.0.0.1"), true),
            (10250, Some("192.0.2.1"), true),
            (2379, None, true),
            (2379, Some("192.0.2.9"), false),
            (2379, Some("127.0.0.1"), true),
            (53, None, false),
            (53, Some("127.0.0.53"), true),
            (8080, None, false),
        ] {
            assert_eq!(is_taken(&port(number, host), &listeners), taken, "{number} {host:?}");
        }
        let udp = Port { protocol: 17, ..port(22, None) };
        assert!(!is_taken(&udp, &listeners));
        assert_eq!(kept_addresses(&port(53, None), &listeners), ["127.0.0.53".parse::<IpAddr>().unwrap()]);
    }
}
