//! Pods of several nodes reach each other under their own addresses, directly and through the tunnel, and go on doing so
//! whatever happens to nodes, links and knarr.

#[path = "support/several_nodes.rs"]
mod several_nodes;

use several_nodes::{eventually, run_pods, seen, server_pod, start};
use testkit::Cluster;

fn every_pod_reaches_every_other(cluster: &Cluster) {
    let kubectl = cluster.server.kubectl();
    let pods = ["a1", "b1", "c2", "d3"].map(|name| server_pod(name, name[1..].parse().unwrap()));
    let addresses = run_pods(&kubectl, &pods);
    for (from, source) in &addresses {
        for target in addresses.values() {
            assert_eq!(seen(&kubectl, from, target, 8080).as_ref(), Some(source), "{from} to {target}");
        }
    }
    // From the nodes, too.
    for number in 1..=3 {
        for target in addresses.values() {
            let script = format!("exec 3<>/dev/tcp/{target}/8080 && echo open");
            let said = cluster.machine(number).shell(&format!("timeout 5 bash -c '{script}'")).unwrap();
            assert_eq!(said.trim(), "open", "node-{number} to {target}");
        }
    }
    // Who is nobody's pod is refused here, and does not leave by the uplink.
    let refused = kubectl.run(&["exec", "a1", "--", "connect", "10.42.250.9:80", "--timeout", "5"]).unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).to_lowercase();
    assert!(said.contains("unreachable") || said.contains("no route"), "{said}");
}

fn route(cluster: &Cluster, from: usize, to: usize) -> String {
    let range = cluster.server.kubectl().ok(&["get", "node", &format!("node-{to}"), "-o", "jsonpath={.spec.podCIDR}"]);
    cluster.machine(from).shell(&format!("ip route show {range}")).unwrap()
}

#[test]
fn the_way_is_chosen_for_each_node() {
    // 1 and 3 are on one link, 2 is behind the router.
    let cluster = start(3, 2, &[]);
    every_pod_reaches_every_other(&cluster);
    assert!(route(&cluster, 1, 3).contains("via 172.29.0.3 dev uplink0"), "{}", route(&cluster, 1, 3));
    assert!(route(&cluster, 1, 2).contains("dev knarr-vxlan"), "{}", route(&cluster, 1, 2));
    assert!(route(&cluster, 2, 3).contains("dev knarr-vxlan"), "{}", route(&cluster, 2, 3));
}

#[test]
fn always_directly_when_told() {
    let cluster = start(3, 1, &["--network-backend=host-gw"]);
    every_pod_reaches_every_other(&cluster);
    for number in 1..=3 {
        assert!(!cluster.machine(number).shell("ip link").unwrap().contains("knarr-vxlan"));
    }
    // Nothing is put around packets, so they may be as large as the link takes.
    let mtu = cluster.server.kubectl().ok(&["exec", "a1", "--", "cat", "/sys/class/net/eth0/mtu"]);
    assert_eq!(mtu.trim(), "1500");
}

#[test]
fn what_breaks_is_repaired() {
    let mut cluster = start(3, 1, &["--network-backend=vxlan"]);
    every_pod_reaches_every_other(&cluster);
    assert!(route(&cluster, 1, 2).contains("dev knarr-vxlan"));
    let kubectl = cluster.server.kubectl();
    let address = |name: &str| kubectl.ok(&["get", "pod", name, "-o", "jsonpath={.status.podIP}"]);
    let (a1, b1, c2, d3) = (address("a1"), address("b1"), address("c2"), address("d3"));

    for taken in
        ["ip link del knarr0", "ip link del knarr-vxlan", "ip route del unreachable 10.42.0.0/16", "nft flush ruleset"]
    {
        let before = cluster.agents[0].log().len();
        cluster.machine(2).shell(taken).unwrap();
        let took = eventually(&format!("{taken}: said in the log"), || {
            let log = cluster.agents[0].log();
            ["restored ", "restoring "].iter().any(|word| log[before..].contains(word))
        });
        println!("{taken}: repaired after {took:?}");
        eventually(taken, || seen(&kubectl, "a1", &c2, 8080).as_ref() == Some(&a1));
        assert_eq!(seen(&kubectl, "c2", &d3, 8080).as_ref(), Some(&c2), "{taken}");
    }

    // A node is cut off: its pods are away, the others stay in touch, and it comes back.
    cluster.machine(3).cut().unwrap();
    assert_eq!(seen(&kubectl, "a1", &d3, 8080), None);
    assert_eq!(seen(&kubectl, "a1", &c2, 8080).as_ref(), Some(&a1));
    cluster.machine(3).uncut().unwrap();
    eventually("the node is back", || seen(&kubectl, "a1", &d3, 8080).as_ref() == Some(&a1));

    // It comes back with another address.
    cluster.machine(3).readdress(77).unwrap();
    cluster.agents[1].restart().unwrap();
    eventually("all know the new address", || seen(&kubectl, "c2", &d3, 8080).as_ref() == Some(&c2));
    eventually("in both directions", || seen(&kubectl, "d3", &a1, 8080).as_ref() == Some(&d3));
    let forwarding = cluster.machine(1).shell("bridge fdb show dev knarr-vxlan").unwrap();
    assert!(forwarding.contains("172.29.0.77") && !forwarding.contains("172.29.0.3 "), "{forwarding}");

    // knarr dies; its pods do not notice, and it finds everything again.
    cluster.agents[0].kill().unwrap();
    assert_eq!(seen(&kubectl, "a1", &c2, 8080).as_ref(), Some(&a1));
    assert_eq!(seen(&kubectl, "b1", &a1, 8080).as_ref(), Some(&b1));
    let links = |cluster: &Cluster| cluster.machine(2).shell("ip -o link | cut -d: -f2 | sort").unwrap();
    let before = links(&cluster);
    cluster.agents[0].restart().unwrap();
    run_pods(&kubectl, &[server_pod("later", 2)]);
    assert_eq!(seen(&kubectl, "c2", &a1, 8080).as_ref(), Some(&c2));
    assert_eq!(seen(&kubectl, "later", &c2, 8080), Some(address("later")));
    // It dies while a pod goes: nothing of it stays.
    let name = address("later");
    kubectl.ok(&["delete", "pod", "later", "--wait=false"]);
    cluster.agents[0].kill().unwrap();
    cluster.agents[0].restart().unwrap();
    eventually("the pod is gone", || kubectl.ok(&["get", "pods", "-o", "name"]).lines().count() == 4);
    eventually("its device is gone", || links(&cluster) == before);
    eventually("its rules are gone", || {
        !cluster.machine(2).shell("nft list ruleset").unwrap().contains(&format!("{name} "))
    });

    // A node that is removed is forgotten.
    cluster.agents[1].kill().unwrap();
    kubectl.ok(&["delete", "node", "node-3"]);
    eventually("the routes to it go", || {
        !cluster.machine(1).shell("ip route").unwrap().contains(&d3[..d3.rfind('.').unwrap()])
    });
}
