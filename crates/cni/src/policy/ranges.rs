//! Ranges of addresses as pairs of ends: less what is excepted, joined where they touch.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// First and last address.
pub type Range = (IpAddr, IpAddr);

/// A range without the exceptions inside it.
pub fn without(range: &IpNet, except: &[IpNet]) -> Vec<Range> {
    let mut left = vec![(number(range.network()), number(range.broadcast()))];
    for hole in except.iter().filter(|hole| hole.addr().is_ipv4() == range.addr().is_ipv4()) {
        let (first, last) = (number(hole.network()), number(hole.broadcast()));
        left = left.into_iter().flat_map(|part| subtract(part, first, last)).flatten().collect();
    }
    let back = |at: u128| address(at, range.addr().is_ipv4());
    left.into_iter().map(|(first, last)| (back(first), back(last))).collect()
}

fn subtract((first, last): (u128, u128), from: u128, to: u128) -> [Option<(u128, u128)>; 2] {
    if to < first || last < from {
        return [Some((first, last)), None];
    }
    let before = (first < from).then(|| (first, from - 1));
    let after = (to < last).then(|| (to + 1, last));
    [before, after]
}

/// All of these, without overlaps: the kernel refuses those. They must be of one family.
pub fn union(all: impl Iterator<Item = Vec<Range>>) -> Vec<Range> {
    let mut sorted: Vec<Range> = all.flatten().collect();
    sorted.sort();
    let mut joined: Vec<Range> = Vec::new();
    for (first, last) in sorted {
        match joined.last_mut() {
            Some((_, end)) if number(first) <= number(*end).saturating_add(1) => *end = (*end).max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn address(number: u128, four: bool) -> IpAddr {
    if four { Ipv4Addr::from(number as u32).into() } else { Ipv6Addr::from(number).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_cut_and_neighbours_joined() {
        let range = |text: &str| text.parse::<IpNet>().unwrap();
        let show = |ranges: Vec<Range>| ranges.iter().map(|(a, b)| format!("{a}-{b}")).collect::<Vec<_>>().join(" ");
        for (block, except, expected) in [
            ("10.0.0.0/8", vec![], "10.0.0.0-10.255.255.255"),
            ("10.0.0.0/24", vec!["10.0.0.64/26"], "10.0.0.0-10.0.0.63 10.0.0.128-10.0.0.255"),
            ("10.0.0.0/24", vec!["10.0.0.0/25", "10.0.0.128/32"], "10.0.0.129-10.0.0.255"),
            ("10.0.0.0/24", vec!["10.0.0.0/24"], ""),
            ("10.0.0.0/24", vec!["10.9.0.0/24", "fd00::/8"], "10.0.0.0-10.0.0.255"),
            ("0.0.0.0/0", vec!["0.0.0.0/1"], "128.0.0.0-255.255.255.255"),
            ("::/0", vec!["8000::/1"], "::-7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            let except: Vec<IpNet> = except.into_iter().map(range).collect();
            assert_eq!(show(without(&range(block), &except)), expected, "{block}");
        }
        let blocks = ["10.0.1.0/24", "10.0.0.0/24", "10.0.0.128/25", "10.0.3.0/24"];
        let joined = union(blocks.iter().map(|block| without(&range(block), &[])));
        assert_eq!(show(joined), "10.0.0.0-10.0.1.255 10.0.3.0-10.0.3.255");
        assert_eq!(
            show(union(["::/0", "fd00::/8"].iter().map(|block| without(&range(block), &[])))).matches('-').count(),
            1
        );
    }
}
