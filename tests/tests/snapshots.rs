//! A cluster of servers goes back to a snapshot: one starts with what it holds, the others join again.

#[path = "support/servers.rs"]
mod servers;

use servers::{Servers, eventually, named};
use testkit::{Options, Server};

fn exists(server: &Server, name: &str) -> bool {
    server.kubectl().run(&["get", "configmap", name]).unwrap().status.success()
}

fn voters(all: &Servers, index: usize) -> usize {
    let (_, said) = all.knarr(index, &["etcd", "list"]);
    said.matches("voter").count() + said.matches("leader").count()
}

/// The flags of a reset, as one would add them to those of the server.
fn reset(all: &Servers, index: usize, more: &[&str]) -> String {
    let address = all.servers[index].machine().address();
    let mut line = vec!["server".to_owned(), "--cluster-reset".into(), "--node-ip".into(), address];
    line.extend(named(index as u8));
    line.extend(more.iter().map(|argument| argument.to_string()));
    all.knarr_ok(index, &line.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_cluster_goes_back_to_a_snapshot_and_servers_join_again() {
    let mut all = Servers::start(2, &["--etcd-snapshot-schedule-cron=@every 2s", "--etcd-snapshot-retention=2"]);
    let first = all.servers[0].kubectl();
    first.ok(&["create", "configmap", "old"]);
    let version = |name: &str| -> u64 {
        first.ok(&["get", "configmap", name, "-o", "jsonpath={.metadata.resourceVersion}"]).parse().unwrap()
    };
    let saved_at = version("old");
    let said = all.knarr_ok(0, &["snapshot", "save"]);
    let file = said.split_whitespace().find(|word| word.contains("/server/snapshots/")).unwrap().to_owned();
    assert!(all.knarr_ok(0, &["snapshot", "list"]).contains(&file));

    // The same etcd is one that somebody else runs, to who has a certificate.
    let tls = all.servers[0].data_dir().join("tls").display().to_string();
    let other = all.servers[0].data_dir().join("by-hand").display().to_string();
    let (url, ca) = (
        format!("--etcd-servers=https://{}:2379", all.servers[0].machine().address()),
        format!("--etcd-cafile={tls}/etcd-ca.crt"),
    );
    let (certificate, key) =
        (format!("--etcd-certfile={tls}/etcd-member.crt"), format!("--etcd-keyfile={tls}/etcd-member.key"));
    all.knarr_ok(0, &["snapshot", "save", &other, &url, &ca, &certificate, &key]);
    assert!(std::fs::metadata(&other).unwrap().len() > 0);

    // Those of the schedule come and go.
    let folder = all.servers[0].data_dir().join("server/snapshots");
    let scheduled = || {
        let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("etcd-snapshot-server-1-")).collect();
        names.sort();
        names
    };
    eventually("a snapshot is saved by itself", || scheduled().iter().any(|name| !name.ends_with("partial")));
    let oldest = scheduled().remove(0);
    eventually("an old one is removed", || !scheduled().contains(&oldest));
    assert!(scheduled().len() <= 3, "{:?}", scheduled());

    first.ok(&["create", "configmap", "new"]);
    first.ok(&["delete", "configmap", "old"]);
    let ahead = version("new");
    let (refused, said) = all.knarr(0, &["snapshot", "restore", &file]);
    assert!(!refused && said.contains("already running"), "{said}");
    all.kill(1);
    all.kill(0);
    let said = reset(&all, 0, &[&format!("--cluster-reset-restore-path={file}")]);
    assert!(said.contains("one member now, server-1"), "{said}");

    // The old world, in which time goes on.
    all.servers[0].restart().unwrap();
    assert!(exists(&all.servers[0], "old") && !exists(&all.servers[0], "new"));
    assert_eq!(voters(&all, 0), 1);
    first.ok(&["create", "configmap", "newer"]);
    let now = version("newer");
    assert!(now > saved_at, "{now} after {saved_at}");
    let watch =
        |from: u64| format!("/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&resourceVersion={from}");
    let seen = first.ok(&["get", "--raw", &watch(now - 1)]);
    assert!(seen.contains("ADDED") && seen.contains("newer"), "{seen}");
    // Who has seen more than there is now hears so, and does not wait for ever.
    let told = first.run(&["get", "--raw", &watch(ahead + 1_000_000)]).unwrap();
    let told = [told.stdout, told.stderr].concat();
    assert!(
        String::from_utf8_lossy(&told).contains("Too large resource version"),
        "{}",
        String::from_utf8_lossy(&told)
    );

    // The other one knows that it is not of this world, and joins it.
    let refused = all.servers[1].restart().expect_err("it does not start").to_string();
    assert!(refused.contains("no longer a member of the cluster's etcd"), "{refused}");
    std::fs::remove_dir_all(all.servers[1].data_dir().join("etcd")).unwrap();
    all.servers[1].restart().unwrap();
    assert_eq!(voters(&all, 1), 2);
    assert!(exists(&all.servers[1], "old") && !exists(&all.servers[1], "new"));

    // Without the first the second has no majority; it can go on alone.
    all.kill(0);
    all.kill(1);
    reset(&all, 1, &[]);
    all.servers[1].set_arguments(named(1));
    all.servers[1].restart().unwrap();
    assert!(exists(&all.servers[1], "newer"));
    assert_eq!(voters(&all, 1), 1);
}

#[test]
fn a_snapshot_and_the_token_make_the_cluster_on_another_machine() {
    let all = Servers::start(1, &[]);
    all.servers[0].kubectl().ok(&["create", "configmap", "kept"]);
    let file = all.servers[0].data_dir().join("saved").display().to_string();
    all.knarr_ok(0, &["snapshot", "save", &file]);
    let folder = tempfile::Builder::new().prefix("knarr-test-").tempdir().unwrap();
    let machine = all.machine(8);
    let line = ["server", "--cluster-reset", "--node-name=server-9", "--node-ip", &machine.address()];
    let mut command = machine.command(testkit::server::binary().unwrap());
    command.args(line).arg(format!("--cluster-reset-restore-path={file}")).arg("--data-dir").arg(folder.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut arguments = named(8);
    arguments.push("--cluster-init".into());
    let other = Server::start_in(folder, Options { arguments, machine: Some(machine) }).unwrap();
    assert!(exists(&other, "kept"));
    let read = |server: &Server, name: &str| std::fs::read_to_string(server.data_dir().join("tls").join(name)).unwrap();
    for name in ["ca.crt", "ca.key", "sa.key"] {
        assert_eq!(read(&all.servers[0], name), read(&other, name), "{name}");
    }
}
