//! What listens in a network namespace, read off `/proc/thread-self/net`: the ports that are taken, whoever has them.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const SCTP: u8 = 132;

/// The kernel's numbers for a socket that listens, and for one of datagrams that is connected to nobody.
const LISTENS: &str = "0A";
const UNCONNECTED: &str = "07";
/// Where the kernel takes ports from for those who name none, unless told otherwise.
const PASSING_PORTS: (u16, u16) = (32768, 60999);

/// A socket that takes what comes from anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    pub protocol: u8,
    /// The unspecified address means every address; that of IPv6 those of IPv4, too.
    pub address: IpAddr,
    pub port: u16,
}

impl Listener {
    /// Whether it takes packets to this address.
    pub fn answers_at(&self, address: &IpAddr) -> bool {
        match self.address {
            IpAddr::V4(own) if own.is_unspecified() => address.is_ipv4(),
            // Whether it is for IPv6 alone is not told, so it counts for both.
            IpAddr::V6(own) if own.is_unspecified() => true,
            own => own == *address,
        }
    }
}

/// Looks at a namespace again and again.
#[derive(Debug)]
pub struct Listeners {
    /// That of the caller unless there is one.
    namespace: Option<PathBuf>,
    /// Ports of datagrams that were there the last time and may be gone the next.
    passing: BTreeSet<Listener>,
}

impl Listeners {
    pub fn new(namespace: Option<&Path>) -> Listeners {
        Listeners { namespace: namespace.map(Path::to_owned), passing: BTreeSet::new() }
    }

    /// What listens now. A socket of datagrams at a port that the kernel may have chosen itself counts when it is seen for
    /// the second time: those who only ask something have one, too, for a moment.
    pub fn look(&mut self) -> io::Result<BTreeSet<Listener>> {
        let (mut all, (first, last)) = match &self.namespace {
            Some(path) => crate::netns::run_in(path, read)??,
            None => read()?,
        };
        let passing = all.iter().filter(|one| one.protocol == UDP && (first..=last).contains(&one.port));
        let passing: BTreeSet<Listener> = passing.copied().collect();
        all.retain(|one| !passing.contains(one) || self.passing.contains(one));
        self.passing = passing;
        Ok(all)
    }
}

fn read() -> io::Result<(BTreeSet<Listener>, (u16, u16))> {
    let mut found = BTreeSet::new();
    for (file, protocol) in [("tcp", TCP), ("tcp6", TCP), ("udp", UDP), ("udp6", UDP)] {
        read_file(file, |lines| internet(protocol, lines), &mut found)?;
    }
    read_file("sctp/eps", endpoints, &mut found)?;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
    Ok((found, range.as_deref().and_then(port_range).unwrap_or(PASSING_PORTS)))
}

/// What the kernel does not have, nobody listens with.
fn read_file<F>(name: &str, parse: F, found: &mut BTreeSet<Listener>) -> io::Result<()>
where
    F: FnOnce(&mut dyn Iterator<Item = String>) -> Vec<Listener>,
{
    match std::fs::File::open(Path::new("/proc/thread-self/net").join(name)) {
        Ok(file) => {
            found.extend(parse(&mut BufReader::new(file).lines().map_while(Result::ok)));
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn internet(protocol: u8, lines: &mut dyn Iterator<Item = String>) -> Vec<Listener> {
    let mut found = Vec::new();
    for line in lines.skip(1) {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (Some(local), Some(state)) = (words.next(), words.nth(1)) else { continue };
        match (protocol, state) {
            (TCP, LISTENS) | (UDP, UNCONNECTED) => {}
            // Those that listen come first; there may be very many others behind them.
            (TCP, _) => break,
            _ => continue,
        }
        let Some((address, port)) = local.split_once(':') else { continue };
        let (Some(address), Ok(port)) = (hexadecimal(address), u16::from_str_radix(port, 16)) else { continue };
        if port != 0 {
            found.push(Listener { protocol, address, port });
        }
    }
    found
}

/// Of SCTP: the port is the sixth word, and from the ninth on come addresses.
fn endpoints(lines: &mut dyn Iterator<Item = String>) -> Vec<Listener> {
    let mut found = Vec::new();
    for line in lines.skip(1) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let Some(port) = words.get(5).and_then(|port| port.parse().ok()).filter(|port| *port != 0) else { continue };
        let addresses = words.iter().skip(8).filter_map(|word| word.parse::<IpAddr>().ok());
        found.extend(addresses.map(|address| Listener { protocol: SCTP, address, port }));
    }
    found
}

/// Words of four bytes, each in the order of this machine.
fn hexadecimal(text: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(text.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (place, at) in bytes.chunks_exact_mut(4).zip((0..).step_by(8)) {
                place.copy_from_slice(&word(at)?);
            }
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

fn port_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.trim().split_once(char::is_whitespace)?;
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_read() {
        let text = "  sl  local_address rem_address   st tx_queue\n   \
            0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000\n   \
            1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000\n   \
            2: 0100007F:0050 0100007F:9C40 01 00000000:00000000 00:00000000\n";
        let found = internet(TCP, &mut text.lines().map(str::to_owned));
        let at = |address: &str, port| Listener { protocol: TCP, address: address.parse().unwrap(), port };
        if cfg!(target_endian = "little") {
            assert_eq!(found, [at("0.0.0.0", 22), at("127.0.0.1", 8080)]);
            let mapped = "0000000000000000FFFF00000100007F";
            assert_eq!(hexadecimal(mapped), Some("127.0.0.1".parse().unwrap()));
        }
        let text = " ENDPT     SOCK   STY SST HBKT LPORT   UID INODE LADDRS\n\
            ffff8 ffff9 0   10  29   11111     0 1077 0.0.0.0 ::1\n";
        let found = endpoints(&mut text.lines().map(str::to_owned));
        assert_eq!(found.iter().map(|one| (one.protocol, one.port)).collect::<Vec<_>>(), [(SCTP, 11111); 2]);
        assert_eq!(port_range("32768\t60999\n"), Some((32768, 60999)));
    }

    #[test]
    fn wildcards_answer_at_every_address() {
        let answers = |own: &str, at: &str| {
            Listener { protocol: TCP, address: own.parse().unwrap(), port: 1 }.answers_at(&at.parse().unwrap())
        };
        assert!(answers("0.0.0.0", "192.0.2.1") && !answers("0.0.0.0", "fd00::1"));
        assert!(answers("::", "192.0.2.1") && answers("::", "fd00::1"));
        assert!(answers("192.0.2.1", "192.0.2.1") && !answers("127.0.0.1", "192.0.2.1"));
    }

    #[test]
    fn a_namespace_shows_its_own_sockets_and_passing_ones_count_the_second_time() {
        let namespace = crate::netns::Namespace::create().unwrap();
        let sockets = namespace.run(|| {
            let datagrams = std::net::UdpSocket::bind("[::]:0").unwrap();
            (std::net::TcpListener::bind("0.0.0.0:6443").unwrap(), datagrams)
        });
        let (_listener, datagrams) = sockets.unwrap();
        let passing = datagrams.local_addr().unwrap().port();
        let mut listeners = Listeners::new(Some(&namespace.path()));
        let ports = |listeners: &mut Listeners| -> Vec<u16> {
            listeners.look().unwrap().iter().map(|listener| listener.port).collect()
        };
        assert_eq!(ports(&mut listeners), [6443]);
        assert_eq!(ports(&mut listeners), [6443, passing]);
    }
}
