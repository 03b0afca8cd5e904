//! Packets walked through the rules, as the kernel would.

use serde_json::{Value, json};

use super::compile::{Direction, Table, compile};
use super::facts::{Facts, Local, SCTP, TCP, UDP};
use super::walk::{Packet, walk};
use super::*;

pub fn passes(table: &Table, packet: Packet) -> bool {
    if packet.source == packet.target {
        return true;
    }
    let ends = [(Direction::Egress, packet.source), (Direction::Ingress, packet.target)];
    ends.into_iter().all(|end| match table.pods.get(&end) {
        None => true,
        Some(chain) => walk(table, chain, packet).expect("a pod's chain decides"),
    })
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub fn pod(namespace: &str, name: &str, labels: Value, address: &str) -> Pod {
    object(json!({
        "metadata": {"namespace": namespace, "name": name, "uid": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "ports": [
            {"name": "web", "containerPort": if name == "api" { 8080 } else { 80 }},
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
        ]}]},
        "status": {"phase": "Running", "podIPs": [{"ip": address}]},
    }))
}

pub fn policy(namespace: &str, name: &str, spec: Value) -> NetworkPolicy {
    object(json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec}))
}

pub fn namespace(name: &str, labels: Value) -> Namespace {
    object(json!({"metadata": {"name": name, "labels": labels}}))
}

pub fn local(namespace: &str, name: &str, address: &str) -> Local {
    Local { pod: Key::new(namespace, name), uid: name.to_owned(), addresses: vec![address.parse().unwrap()] }
}

const WEB: &str = "10.0.0.2";
const API: &str = "10.0.0.3";
const DATABASE: &str = "10.0.0.4";
/// On another node, in another namespace.
const MONITOR: &str = "10.0.1.2";
const OUTSIDE: &str = "192.0.2.7";

/// Three pods here, one elsewhere.
fn cluster() -> Facts {
    let mut facts = Facts::default();
    facts.put_namespace(&namespace("shop", json!({"team": "shop"})));
    facts.put_namespace(&namespace("ops", json!({"team": "ops"})));
    for (name, address) in [("web", WEB), ("api", API), ("database", DATABASE)] {
        facts.put_pod(&pod("shop", name, json!({"app": name}), address));
        facts.local.insert(name.into(), local("shop", name, address));
    }
    facts.put_pod(&pod("ops", "monitor", json!({"app": "monitor"}), MONITOR));
    facts
}

fn goes(facts: &Facts, source: &str, target: &str, protocol: u8, port: u16) -> bool {
    let (source, target) = (source.parse().unwrap(), target.parse().unwrap());
    passes(&compile(facts), Packet { source, target, protocol, port })
}

/// Lines of `source target protocol port: yes|no`, under these policies of the namespace `shop`.
fn check(policies: &[Value], expected: &str) {
    let mut facts = cluster();
    for (number, spec) in policies.iter().enumerate() {
        facts.put_policy(&policy("shop", &format!("policy-{number}"), spec.clone()));
    }
    for line in expected.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (question, answer) = line.split_once(": ").unwrap();
        let words: Vec<&str> = question.split_whitespace().collect();
        let address = |name: &str| {
            match name {
                "web" => WEB,
                "api" => API,
                "database" => DATABASE,
                "monitor" => MONITOR,
                "outside" => OUTSIDE,
                address => return address.to_owned(),
            }
            .to_owned()
        };
        let protocol =
            [("tcp", TCP), ("udp", UDP), ("sctp", SCTP)].iter().find(|(name, _)| *name == words[2]).unwrap().1;
        let went = goes(&facts, &address(words[0]), &address(words[1]), protocol, words[3].parse().unwrap());
        assert_eq!(went, answer == "yes", "{line}");
    }
}

#[test]
fn without_a_policy_everything_goes() {
    check(&[], "web api tcp 80: yes\noutside web udp 53: yes\nweb outside tcp 443: yes");
}

#[test]
fn default_deny_isolates_in_the_directions_it_names() {
    check(
        &[json!({"podSelector": {}})],
        "web api tcp 80: no
         outside web tcp 80: no
         web outside tcp 80: yes
         web monitor tcp 80: yes
         web web tcp 80: yes",
    );
    check(
        &[json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"]})],
        "web api tcp 80: no
         web outside udp 53: no
         api web tcp 80: yes
         api outside tcp 80: yes",
    );
    check(
        &[json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})],
        "web api tcp 80: no\nmonitor web tcp 80: no\nweb monitor tcp 80: no\nmonitor outside tcp 80: yes",
    );
}

#[test]
fn peers_are_pods_namespaces_and_blocks() {
    let api_for_web = json!({
        "podSelector": {"matchLabels": {"app": "api"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}],
    });
    check(
        std::slice::from_ref(&api_for_web),
        "web api tcp 80: yes
         web api sctp 9: yes
         database api tcp 80: no
         monitor api tcp 80: no
         outside api tcp 80: no
         outside web tcp 80: yes",
    );
    // Several policies allow what any of them allows.
    let api_for_ops = json!({
        "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["api", "web"]}]},
        "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}]}],
    });
    check(
        &[api_for_web, api_for_ops],
        "web api tcp 80: yes\nmonitor api tcp 80: yes\nmonitor web tcp 80: yes\ndatabase web tcp 80: no",
    );
    let both_selectors = |app: &str| {
        json!({
            "podSelector": {},
            "ingress": [{"from": [{
                "namespaceSelector": {"matchLabels": {"team": "ops"}}, "podSelector": {"matchLabels": {"app": app}},
            }]}],
        })
    };
    check(&[both_selectors("monitor")], "monitor api tcp 80: yes\nweb api tcp 80: no");
    check(&[both_selectors("web")], "monitor api tcp 80: no\nweb api tcp 80: no");
    check(
        &[json!({
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.8/29"]}}]}],
            "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}, {"podSelector": {"matchLabels": {"app": "api"}}}]}],
        })],
        "outside web tcp 80: yes
         192.0.2.9 web tcp 80: no
         192.0.2.16 web tcp 80: yes
         192.0.3.1 web tcp 80: no
         web outside tcp 80: yes
         web 10.9.9.9 tcp 80: no
         web monitor tcp 80: no
         web api tcp 80: no",
    );
}

#[test]
fn ports_are_numbers_ranges_names_and_protocols() {
    check(
        &[json!({
            "podSelector": {},
            "ingress": [
                {"ports": [{"port": 80}, {"protocol": "UDP", "port": 5000, "endPort": 5010}, {"protocol": "SCTP"}]},
                {"from": [{"podSelector": {"matchLabels": {"app": "web"}}}], "ports": [{"port": "web"}, {"protocol": "UDP", "port": "dns"}]},
            ],
        })],
        "outside api tcp 80: yes
         outside api tcp 81: no
         outside api udp 80: no
         outside api udp 5000: yes
         outside api udp 5010: yes
         outside api udp 5011: no
         outside api tcp 5005: no
         outside api sctp 9999: yes
         outside api tcp 8080: no
         web api tcp 8080: yes
         web database tcp 8080: no
         web api udp 53: yes
         web api tcp 53: no
         database api tcp 8080: no",
    );
    // On the way out a name is that of the target's port.
    check(
        &[json!({
            "podSelector": {"matchLabels": {"app": "web"}},
            "policyTypes": ["Egress"],
            "egress": [{"to": [{"podSelector": {}}], "ports": [{"port": "web"}]}, {"ports": [{"protocol": "UDP", "port": "dns"}]}],
        })],
        "web api tcp 8080: yes
         web api tcp 80: no
         web database tcp 80: yes
         web database tcp 8080: no
         web monitor tcp 80: no
         web monitor udp 53: yes
         web outside udp 53: no",
    );
}

#[test]
fn both_ends_must_agree() {
    let out = json!({
        "podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"],
        "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "api"}}}]}],
    });
    let into = |app: &str| {
        json!({
            "podSelector": {"matchLabels": {"app": "api"}},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": app}}}], "ports": [{"port": 8080}]}],
        })
    };
    check(&[out.clone(), into("web")], "web api tcp 8080: yes\nweb api tcp 80: no\nweb database tcp 80: no");
    check(&[out, into("database")], "web api tcp 8080: no\ndatabase api tcp 8080: yes");
}

#[test]
fn pods_and_namespaces_change() {
    let mut facts = cluster();
    facts.put_policy(&policy(
        "shop",
        "one",
        json!({"podSelector": {"matchLabels": {"app": "api"}}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}]}]}),
    ));
    assert!(goes(&facts, MONITOR, API, TCP, 80) && !goes(&facts, WEB, API, TCP, 80));
    assert!(facts.put_namespace(&namespace("ops", json!({"team": "other"}))));
    assert!(!goes(&facts, MONITOR, API, TCP, 80));
    assert!(facts.put_namespace(&namespace("ops", json!({"team": "ops"}))));
    // What has ended has given its address back.
    let mut ended = pod("ops", "monitor", json!({"app": "monitor"}), MONITOR);
    assert!(!facts.put_pod(&ended), "nothing that counts has changed");
    ended.status.as_mut().unwrap().phase = Some("Failed".into());
    assert!(facts.put_pod(&ended));
    assert!(!goes(&facts, MONITOR, API, TCP, 80));
    // A pod on the node's network is nobody's pod.
    let mut on_the_node = pod("ops", "agent", json!({}), "192.0.2.7");
    on_the_node.spec.as_mut().unwrap().host_network = Some(true);
    facts.put_pod(&on_the_node);
    assert!(!goes(&facts, OUTSIDE, API, TCP, 80));
    assert!(facts.put_pod(&pod("shop", "api", json!({"app": "free"}), API)), "no policy selects it any more");
    assert!(goes(&facts, OUTSIDE, API, TCP, 80));
}

#[test]
fn a_pod_that_nobody_knows_waits_outside() {
    let mut facts = cluster();
    facts.local.insert("new".into(), local("shop", "new", "10.0.0.9"));
    assert!(goes(&facts, "10.0.0.9", OUTSIDE, TCP, 80), "no policy could concern it");
    facts.put_policy(&policy("shop", "one", json!({"podSelector": {"matchLabels": {"app": "api"}}})));
    assert!(!goes(&facts, "10.0.0.9", OUTSIDE, TCP, 80) && !goes(&facts, OUTSIDE, "10.0.0.9", TCP, 80));
    facts.put_pod(&pod("shop", "new", json!({}), "10.0.0.9"));
    assert!(goes(&facts, "10.0.0.9", OUTSIDE, TCP, 80));
    // Another pod of the same name is another pod.
    facts.local.insert("new".into(), Local { uid: "later".into(), ..local("shop", "new", "10.0.0.9") });
    assert!(!goes(&facts, "10.0.0.9", OUTSIDE, TCP, 80));
}

#[test]
fn addresses_of_local_pods_need_no_status() {
    let mut facts = cluster();
    let mut starting = pod("shop", "web", json!({"app": "web"}), WEB);
    starting.status = None;
    facts.put_pod(&starting);
    facts.put_policy(&policy(
        "shop",
        "one",
        json!({"podSelector": {"matchLabels": {"app": "api"}}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}]}),
    ));
    assert!(goes(&facts, WEB, API, TCP, 80));
}

#[test]
fn a_thousand_pods_cost_one_lookup() {
    let mut facts = cluster();
    for number in 0..1000 {
        let address = format!("10.1.{}.{}", number / 250, number % 250 + 1);
        facts.put_pod(&pod("ops", &format!("p{number}"), json!({}), &address));
    }
    facts.put_policy(&policy(
        "shop",
        "one",
        json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": 80}]}]}),
    ));
    let table = compile(&facts);
    let chain = &table.pods[&(Direction::Ingress, API.parse().unwrap())];
    assert!(table.pods.values().all(|other| other == chain), "pods with the same policies share a chain");
    let rules: usize = table.chains.values().map(Vec::len).sum();
    assert_eq!((rules, table.sets.len()), (3, 1), "one jump, one rule, the end; one set");
    assert!(goes(&facts, "10.1.3.250", API, TCP, 80) && !goes(&facts, "10.1.3.251", API, TCP, 80));
}

#[test]
fn both_families() {
    let mut facts = cluster();
    let mut api = pod("shop", "api", json!({"app": "api"}), API);
    api.status = object(json!({"podIPs": [{"ip": API}, {"ip": "fd00::3"}]}));
    facts.put_pod(&api);
    facts.local.insert(
        "api".into(),
        Local { addresses: vec![API.parse().unwrap(), "fd00::3".parse().unwrap()], ..local("shop", "api", API) },
    );
    let mut web = pod("shop", "web", json!({"app": "web"}), WEB);
    web.status = object(json!({"podIPs": [{"ip": WEB}, {"ip": "fd00::2"}]}));
    facts.local.remove("web");
    facts.put_pod(&web);
    facts.put_policy(&policy(
        "shop",
        "one",
        json!({"podSelector": {"matchLabels": {"app": "api"}}, "ingress": [
            {"from": [{"podSelector": {"matchLabels": {"app": "web"}}}, {"ipBlock": {"cidr": "2001:db8::/32", "except": ["2001:db8:1::/48"]}}], "ports": [{"port": "web"}]},
        ]}),
    ));
    assert!(goes(&facts, "fd00::2", "fd00::3", TCP, 8080) && goes(&facts, WEB, API, TCP, 8080));
    assert!(goes(&facts, "2001:db8::1", "fd00::3", TCP, 8080));
    for (source, port) in [("fd00::4", 8080), ("2001:db8:1::1", 8080), ("fd00::2", 80)] {
        assert!(!goes(&facts, source, "fd00::3", TCP, port), "{source} {port}");
    }
}
