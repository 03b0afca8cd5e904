//! The machines that tests of several nodes stand on: do they reach each other, and can they be cut off?

use std::sync::Arc;

use testkit::{Hub, Machine, Place};

/// Nobody listens there: whoever is reached says so.
fn reaches(from: &Machine, address: &str) -> bool {
    let said = from.shell(&format!("timeout 5 bash -c '</dev/tcp/{address}/9' 2>&1 || true")).unwrap();
    said.contains("refused")
}

#[test]
fn machines_reach_each_other_until_they_are_cut() {
    let hub = Arc::new(Hub::start(2).unwrap());
    let start = |link, host| Machine::start_on(&hub, Place { link, host }).unwrap();
    let (a, b, far) = (start(0, 1), start(0, 2), start(1, 1));
    assert_eq!([a.address(), b.address(), far.address()], ["172.29.0.1", "172.29.0.2", "172.29.1.1"]);
    assert!(reaches(&a, &b.address()), "on one link");
    assert!(a.shell("ip route get 172.29.0.2").unwrap().contains("dev uplink0"));
    assert!(!a.shell("ip route get 172.29.0.2").unwrap().contains("via"));
    assert!(reaches(&a, &far.address()), "across links");
    assert!(a.shell("ip route get 172.29.1.1").unwrap().contains("via 172.29.0.254"));

    b.cut().unwrap();
    assert!(!reaches(&a, "172.29.0.2") && !reaches(&b, "172.29.0.1"));
    b.uncut().unwrap();
    assert!(reaches(&a, "172.29.0.2"));
    b.readdress(7).unwrap();
    assert_eq!(b.address(), "172.29.0.7");
    assert!(reaches(&a, "172.29.0.7") && !reaches(&a, "172.29.0.2"));
    assert!(reaches(&b, &far.address()), "with its default route");

    // Nothing leads out of the hub.
    let routes = hub.shell("ip route").unwrap();
    assert!(!routes.contains("default"), "{routes}");
    drop(a);
    drop(b);
    let ports = hub.shell("ip -o link").unwrap();
    assert_eq!(ports.matches("@if").count(), 1, "a dead machine's cable goes: {ports}");
}
