//! Subsets in their smallest form: every address once per set of ports it has, and all in order.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};

/// One address with one port, or with none, and whether it is ready.
pub(super) struct Single {
    pub address: EndpointAddress,
    pub port: Option<EndpointPort>,
    pub ready: bool,
}

type PortKey = (Option<String>, i32, Option<String>, Option<String>);

/// An address, the pod behind it, and whether it is ready.
type Place = (String, Option<String>, bool);

pub(super) fn repack(singles: Vec<Single>) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<Place, (EndpointAddress, BTreeMap<PortKey, EndpointPort>)> = BTreeMap::new();
    for Single { address, port, ready } in singles {
        let uid = address.target_ref.as_ref().and_then(|target| target.uid.clone());
        let entry = addresses.entry((address.ip.clone(), uid, ready)).or_insert_with(|| (address, BTreeMap::new()));
        if let Some(port) = port {
            entry.1.insert(port_key(&port), port);
        }
    }
    let mut subsets: BTreeMap<Vec<PortKey>, EndpointSubset> = BTreeMap::new();
    for ((_, _, ready), (address, ports)) in addresses {
        let subset = subsets.entry(ports.keys().cloned().collect()).or_insert_with(|| EndpointSubset {
            ports: Some(ports.into_values().collect()).filter(|ports: &Vec<EndpointPort>| !ports.is_empty()),
            ..EndpointSubset::default()
        });
        let list = if ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        list.get_or_insert_default().push(address);
    }
    subsets.into_values().collect()
}

fn port_key(port: &EndpointPort) -> PortKey {
    (port.name.clone(), port.port, port.protocol.clone(), port.app_protocol.clone())
}

/// Leaves at most so many addresses, those that are ready first, each subset its share. Says whether any were left out.
pub(super) fn truncate(subsets: &mut [EndpointSubset], addresses_max: usize) -> bool {
    let total = |list: fn(&EndpointSubset) -> &Option<Vec<EndpointAddress>>, subsets: &[EndpointSubset]| {
        subsets.iter().map(|subset| list(subset).as_ref().map_or(0, Vec::len)).sum::<usize>()
    };
    let ready = total(|subset| &subset.addresses, subsets);
    let not_ready = total(|subset| &subset.not_ready_addresses, subsets);
    if ready + not_ready <= addresses_max {
        return false;
    }
    let ready_max = ready.min(addresses_max);
    share_out(subsets.iter_mut().map(|subset| &mut subset.addresses), ready, ready_max);
    share_out(subsets.iter_mut().map(|subset| &mut subset.not_ready_addresses), not_ready, addresses_max - ready_max);
    true
}

fn share_out<'a>(lists: impl Iterator<Item = &'a mut Option<Vec<EndpointAddress>>>, total: usize, kept_max: usize) {
    let mut room = kept_max;
    for list in lists {
        let Some(addresses) = list else { continue };
        let share = (addresses.len() * kept_max).div_ceil(total.max(1)).min(room);
        addresses.truncate(share);
        room -= addresses.len();
        if addresses.is_empty() {
            *list = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(ip: usize, port: i32, ready: bool) -> Single {
        let address = EndpointAddress { ip: format!("10.0.0.{ip}"), ..EndpointAddress::default() };
        Single { address, port: Some(EndpointPort { port, ..EndpointPort::default() }), ready }
    }

    fn shown(subsets: &[EndpointSubset]) -> String {
        let list = |list: &Option<Vec<EndpointAddress>>| {
            list.iter()
                .flatten()
                .map(|one| one.ip.trim_start_matches("10.0.0.").to_owned())
                .collect::<Vec<_>>()
                .join(",")
        };
        let show = |subset: &EndpointSubset| {
            let ports: Vec<String> = subset.ports.iter().flatten().map(|port| port.port.to_string()).collect();
            format!("{}:{}|{}", ports.join(","), list(&subset.addresses), list(&subset.not_ready_addresses))
        };
        subsets.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn equal_ports_share_a_subset() {
        let singles = vec![
            single(2, 80, true),
            single(1, 80, true),
            single(1, 81, true),
            single(2, 81, true),
            single(3, 80, false),
        ];
        assert_eq!(shown(&repack(singles)), "80:|3 80,81:1,2|");
    }

    #[test]
    fn ready_addresses_are_kept_first() {
        let mut subsets = repack((0..6).map(|ip| single(ip, 80, ip < 3)).collect());
        assert!(truncate(&mut subsets, 4));
        assert_eq!(shown(&subsets), "80:0,1,2|3");
        assert!(!truncate(&mut subsets, 4));
        assert!(truncate(&mut subsets, 2));
        assert_eq!(shown(&subsets), "80:0,1|");
    }
}
