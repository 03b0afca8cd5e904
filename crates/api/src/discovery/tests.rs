//! Rules of EndpointSlices in upstream's words.

use serde_json::{Value, json};

use crate::testing::Rules;

fn slice(address_type: &str, address: &str) -> Rules {
    Rules::of(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "s"},
        "addressType": address_type, "ports": [{"port": 80}], "endpoints": [{"addresses": [address]}],
    }))
}

fn endpoint(changes: Value, expected: &[&str]) {
    slice("IPv4", "10.0.0.1").create(json!({"endpoints": [changes]}), expected);
}

#[test]
fn addresses_are_of_their_type() {
    let address = |address: &str| json!({"addresses": [address]});
    endpoint(
        address("x"),
        &[
            "endpoints[0].addresses[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ],
    );
    endpoint(
        address("2001:db8::1"),
        &["endpoints[0].addresses: Invalid value: \"2001:db8::1\": must be an IPv4 address"],
    );
    // An address of the wrong family may also be one that no endpoint has.
    endpoint(
        address("::1"),
        &[
            "endpoints[0].addresses: Invalid value: \"::1\": must be an IPv4 address",
            "endpoints[0].addresses[0]: Invalid value: \"::1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ],
    );
    slice("IPv6", "2001:db8::1").create(
        json!({"endpoints": [address("2001:db8:0::1")]}),
        &["endpoints[0].addresses[0]: Invalid value: \"2001:db8:0::1\": must be in canonical form (\"2001:db8::1\")"],
    );
    slice("FQDN", "a.example.com").create(json!({"endpoints": [address("host")]}), &[
        "endpoints[0].addresses[0]: Invalid value: \"host\": should be a domain with at least two segments separated by dots",
    ]);
    endpoint(
        json!({"addresses": vec!["10.0.0.1"; 101]}),
        &["endpoints[0].addresses: Too many: 101: must have at most 100 items"],
    );
}

#[test]
fn hints() {
    let zones = |count: usize| (0..count).map(|zone| json!({"name": format!("z{zone}")})).collect::<Vec<_>>();
    endpoint(json!({"hints": {"forZones": zones(8), "forNodes": [{"name": "n1"}]}}), &[]);
    // Nothing else is said of hints that are too many.
    endpoint(
        json!({"hints": {"forZones": zones(9), "forNodes": [{"name": "N"}]}}),
        &["endpoints[0].hints.forZones: Too many: 9: must have at most 8 items"],
    );
    endpoint(
        json!({"hints": {"forZones": [{"name": "a"}, {"name": "a"}]}}),
        &["endpoints[0].hints.forZones[1].name: Duplicate value: \"a\""],
    );
}

#[test]
fn ports_come_before_endpoints() {
    slice("IPv4", "10.0.0.1").create(json!({"ports": [{"protocol": "ICMP"}], "endpoints": [{"addresses": ["x"]}]}), &[
        "ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        "endpoints[0].addresses[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    ]);
    slice("IPv4", "10.0.0.1").create(
        json!({"ports": [{"name": "a"}, {"name": "a", "port": 81}]}),
        &["ports[1].name: Duplicate value: \"a\""],
    );
}

#[test]
fn what_an_older_server_took_stays() {
    let old = json!({"endpoints": [{"addresses": ["010.0.0.1"]}]});
    let rules = slice("IPv4", "10.0.0.1");
    rules.update_from(&old, json!({"metadata": {"labels": {"a": "b"}}}), &[]);
    rules.update_from(
        &old,
        json!({"endpoints": [{"addresses": ["010.0.0.2"]}]}),
        &["endpoints[0].addresses[0]: Invalid value: \"010.0.0.2\": must not have leading 0s"],
    );
    rules.update(
        json!({"addressType": "FQDN", "endpoints": [{"addresses": ["a.example.com"]}]}),
        &["addressType: Invalid value: \"FQDN\": field is immutable"],
    );
}
