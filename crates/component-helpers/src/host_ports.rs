//! The ports of a node's addresses that its machine itself listens at. The kubelet writes them into the Node's annotation; no
//! Service may be given one of them at an address of that node.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;

/// `tcp:22,tcp:10250,udp:8472`.
pub const ANNOTATION: &str = "knarr.dev/ports-in-use";
/// More are not said; the lowest are, which are those that matter.
const PORTS_MAX: usize = 256;
/// The kubelet's where the Node does not say it, that by which the proxy is asked for its health, and that of ssh.
const KUBELET_PORT: u16 = 10250;
const USUAL_PORTS: [u16; 2] = [10256, 22];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    /// By the name that the API has for it; none is TCP.
    pub fn parse(name: Option<&str>) -> Option<Protocol> {
        let name = name.unwrap_or("TCP");
        Protocol::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(name))
    }

    /// By the number in packets.
    pub fn of_number(number: u8) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|one| one.number() == number)
    }

    fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }
}

pub type Ports = BTreeSet<(Protocol, u16)>;

/// What the annotation says.
pub fn text(ports: &Ports) -> String {
    let mut lowest: Vec<&(Protocol, u16)> = ports.iter().collect();
    lowest.sort_by_key(|(_, port)| *port);
    lowest.truncate(PORTS_MAX);
    lowest.sort();
    let words: Vec<String> = lowest.iter().map(|(protocol, port)| format!("{}:{port}", protocol.name())).collect();
    words.join(",")
}

/// What a node's machine listens at. One whose kubelet does not say it listens at what every node does.
pub fn of(node: &Node) -> Ports {
    let endpoints = node.status.as_ref().and_then(|status| status.daemon_endpoints.as_ref());
    let kubelet = endpoints.and_then(|endpoints| endpoints.kubelet_endpoint.as_ref()).map(|endpoint| endpoint.port);
    let kubelet = kubelet.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0).unwrap_or(KUBELET_PORT);
    let mut ports = Ports::from([(Protocol::Tcp, kubelet)]);
    match node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION)) {
        Some(text) => ports.extend(text.split(',').filter_map(read)),
        None => ports.extend(USUAL_PORTS.map(|port| (Protocol::Tcp, port))),
    }
    ports
}

fn read(word: &str) -> Option<(Protocol, u16)> {
    let (protocol, port) = word.split_once(':')?;
    Some((Protocol::parse(Some(protocol))?, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let ports = Ports::from([(Protocol::Tcp, 22), (Protocol::Udp, 8472), (Protocol::Sctp, 9)]);
        assert_eq!(text(&ports), "tcp:22,udp:8472,sctp:9");
        let mut node = Node::default();
        assert_eq!(text(&of(&node)), "tcp:22,tcp:10250,tcp:10256", "nobody says");
        node.metadata.annotations = Some([(ANNOTATION.to_owned(), format!("{},x:1,tcp:y", text(&ports)))].into());
        assert_eq!(text(&of(&node)), "tcp:22,tcp:10250,udp:8472,sctp:9");
        let many: Ports = (1..1000).map(|port| (Protocol::Tcp, port)).collect();
        assert_eq!(text(&many).split(',').count(), PORTS_MAX);
    }
}
