//! Whether one pod may talk to another and by which rule, found out by the same rules that nodes put into their kernels:
//! each rule is compiled by itself, and a packet is walked through it.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use reconcile::Key;

use super::compile::{Direction, compile};
use super::facts::{Facts, Local, Policy, SCTP, TCP, UDP};
use super::walk::{Packet, walk};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    pub egress: Side,
    pub ingress: Side,
}

/// One end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Policies that speak about the pod in this direction, as `namespace/name`.
    pub isolated_by: Vec<String>,
    /// The policies and the numbers of their rules that let the connection pass.
    pub allowed_by: Vec<(String, usize)>,
}

/// None where one of the pods has no address of its own: policies do not speak about it then.
pub fn explain(
    from: &Pod,
    to: &Pod,
    (protocol, port): (&str, u16),
    policies: &[NetworkPolicy],
    namespaces: &[Namespace],
) -> Option<Explained> {
    let mut facts = Facts::default();
    namespaces.iter().for_each(|namespace| _ = facts.put_namespace(namespace));
    [from, to].iter().for_each(|pod| _ = facts.put_pod(pod));
    let (source, target) = addresses(&facts, from, to)?;
    let protocol = match protocol {
        "UDP" => UDP,
        "SCTP" => SCTP,
        _ => TCP,
    };
    let packet = Packet { source, target, protocol, port };
    for (name, pod, address) in [("from", from, source), ("to", to, target)] {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        facts.local.insert(name.into(), Local { pod: Key::of(&pod.metadata), uid, addresses: vec![address] });
    }
    let mut all = Facts::default();
    policies.iter().for_each(|policy| _ = all.put_policy(policy));
    let mut explained = Explained::default();
    for (key, policy) in &all.policies {
        judge(&facts, key, policy, (Direction::Egress, source), packet, &mut explained.egress);
        judge(&facts, key, policy, (Direction::Ingress, target), packet, &mut explained.ingress);
    }
    Some(explained)
}

fn judge(facts: &Facts, key: &Key, policy: &Policy, end: (Direction, IpAddr), packet: Packet, side: &mut Side) {
    let name = format!("{}/{}", key.namespace, key.name);
    let rules = match end.0 {
        Direction::Egress => policy.egress.as_deref(),
        Direction::Ingress => policy.ingress.as_deref(),
    };
    let passes = |policy: Policy| {
        let mut alone = facts.clone();
        alone.policies.insert(key.clone(), policy);
        let table = compile(&alone);
        table.pods.get(&end).map(|chain| walk(&table, chain, packet).unwrap_or(false))
    };
    // A policy that does not select the pod gives it no chain.
    if passes(policy.clone()).is_none() {
        return;
    }
    side.isolated_by.push(name.clone());
    for (number, rule) in rules.unwrap_or_default().iter().enumerate() {
        let mut only = policy.clone();
        let place = match end.0 {
            Direction::Egress => &mut only.egress,
            Direction::Ingress => &mut only.ingress,
        };
        *place = Some(vec![rule.clone()]);
        if passes(only) == Some(true) {
            side.allowed_by.push((name.clone(), number));
        }
    }
}

/// Of the same family, as a connection has them.
fn addresses(facts: &Facts, from: &Pod, to: &Pod) -> Option<(IpAddr, IpAddr)> {
    let of = |pod: &Pod| facts.pods.get(&Key::of(&pod.metadata)).map(|pod| pod.addresses.clone());
    let (sources, targets) = (of(from)?, of(to)?);
    sources.iter().find_map(|source| {
        let target = targets.iter().find(|target| target.is_ipv4() == source.is_ipv4())?;
        Some((*source, *target))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{namespace, pod, policy};
    use super::*;

    #[test]
    fn rules_are_named() {
        let (web, api) = (
            pod("shop", "web", json!({"app": "web"}), "10.0.0.2"),
            pod("shop", "api", json!({"app": "api"}), "10.0.0.3"),
        );
        let monitor = pod("ops", "monitor", json!({"app": "monitor"}), "10.0.1.2");
        let namespaces = [namespace("shop", json!({"team": "shop"})), namespace("ops", json!({"team": "ops"}))];
        let policies = [
            policy("shop", "closed", json!({"podSelector": {}, "policyTypes": ["Ingress"]})),
            policy(
                "shop",
                "open",
                json!({"podSelector": {"matchLabels": {"app": "api"}}, "ingress": [
                    {"from": [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}]},
                    {"from": [{"podSelector": {"matchLabels": {"app": "web"}}}], "ports": [{"port": "web"}]},
                ]}),
            ),
        ];
        let check = |from: &Pod, to: &Pod, port: u16, expected: (&[&str], &[(&str, usize)])| {
            let found = explain(from, to, ("TCP", port), &policies, &namespaces).unwrap();
            let isolated: Vec<&str> = found.ingress.isolated_by.iter().map(String::as_str).collect();
            let allowed: Vec<(&str, usize)> =
                found.ingress.allowed_by.iter().map(|(name, rule)| (name.as_str(), *rule)).collect();
            assert_eq!((&isolated[..], &allowed[..]), expected);
            assert_eq!(found.egress, Side::default());
        };
        let both: &[&str] = &["shop/closed", "shop/open"];
        check(&web, &api, 8080, (both, &[("shop/open", 1)]));
        check(&web, &api, 9090, (both, &[]));
        check(&monitor, &api, 9090, (both, &[("shop/open", 0)]));
        check(&api, &web, 80, (&["shop/closed"], &[]));
        check(&web, &monitor, 80, (&[], &[]));
    }
}
