//! Servers that go for good, and their members of etcd: none is removed where the rest would have no majority, and one that
//! was removed says what to do.

#[path = "support/servers.rs"]
mod servers;

use servers::{Servers, eventually};

fn members(all: &Servers, index: usize) -> Vec<String> {
    let (_, said) = all.knarr(index, &["etcd", "list"]);
    said.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn a_server_whose_node_is_deleted_leaves_etcd() {
    let mut all = Servers::start(3, &[]);
    let kubectl = all.servers[0].kubectl();
    let listed = all.knarr_ok(0, &["etcd", "list"]);
    assert_eq!(listed.matches("leader").count(), 1, "{listed}");
    assert_eq!(listed.matches("voter").count(), 2, "{listed}");
    let guard = ["get", "node", "server-3", "-o", "jsonpath={.metadata.finalizers}"];
    eventually("the Node waits for its member", || kubectl.ok(&guard).contains("knarr.dev/etcd-member"));

    // With one of the others dead the third is needed.
    all.kill(1);
    let (removed, said) = all.knarr(0, &["etcd", "remove", "server-3"]);
    assert!(!removed && said.contains("but a quorum needs 2"), "{said}");
    eventually("the deletion is taken", || {
        let deleted = kubectl.run(&["delete", "node", "server-3", "--wait=false", "--request-timeout=5s"]);
        deleted.is_ok_and(|output| output.status.success())
    });
    let events =
        ["get", "events", "-A", "--field-selector=reason=EtcdMemberNotRemoved", "-o", "jsonpath={.items[*].message}"];
    eventually("an Event says why the Node is kept", || kubectl.ok(&events).contains("a quorum needs"));
    assert_eq!(members(&all, 0).len(), 3);
    assert!(kubectl.ok(&["get", "node", "server-3", "-o", "name"]).contains("server-3"));

    // Once the other is back it goes by itself.
    all.servers[1].restart().unwrap();
    eventually("the member is gone", || members(&all, 0).len() == 2);
    eventually("the Node is gone", || !kubectl.ok(&["get", "nodes", "-o", "name"]).contains("server-3"));
    eventually("its server has ended", || all.log(2).contains("no longer a member of the cluster's etcd"));
    let refused = all.servers[2].restart().expect_err("it does not start").to_string();
    assert!(refused.contains("--cluster-reset") && refused.contains("--server"), "{refused}");

    // It does what it was told, and is one of them again.
    std::fs::remove_dir_all(all.servers[2].data_dir().join("etcd")).unwrap();
    all.servers[2].restart().unwrap();
    let mut now = members(&all, 2);
    now.sort();
    assert_eq!(now, ["server-1", "server-2", "server-3"]);
    kubectl.ok(&["wait", "--for=condition=Ready", "node/server-3", "--timeout=90s"]);

    // Who has lost its data becomes a new member in the place of the old one.
    all.kill(1);
    std::fs::remove_dir_all(all.servers[1].data_dir().join("etcd")).unwrap();
    all.servers[1].restart().unwrap();
    assert_eq!(members(&all, 1).len(), 3);

    // Who leaves by itself need not be asked twice, even where it leads.
    let left = all.knarr_ok(0, &["etcd", "leave"]);
    assert!(left.contains("removed etcd member server-1"), "{left}");
    eventually("two are left", || members(&all, 1).len() == 2);
    eventually("its server has ended", || all.log(0).contains("no longer a member of the cluster's etcd"));
    all.servers[1].kubectl().ok(&["create", "configmap", "without-the-first"]);
}
