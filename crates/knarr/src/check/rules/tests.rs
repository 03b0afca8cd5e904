//! One fault at a time on a host that is otherwise good: the first thing that is missing, as whoever starts a node is told.

use super::*;

fn good_host() -> Host {
    Host {
        is_root: true,
        capabilities: u64::MAX,
        release: "6.1.0-18-amd64".into(),
        has_overlay: true,
        cgroups: Cgroups { unified: Some("cpuset cpu io memory pids".into()), ..Cgroups::default() },
        has_bridge_rules: true,
        etcd: Some("/usr/bin/etcd".into()),
        disk: Disk { folder: "/var/lib".into(), free: Some(100 << 30), ..Disk::default() },
        ports: vec![Port::new("0.0.0.0:6443".parse().unwrap(), "the Kubernetes API", "--https-port")],
        ..Host::default()
    }
}

/// What a node on this host would be told, with its verdict.
fn told(host: &Host) -> (Verdict, String) {
    let findings = node(host);
    let bad = findings.iter().find(|finding| finding.verdict == Verdict::Missing);
    let bad = bad.or_else(|| findings.iter().find(|finding| finding.verdict == Verdict::Worse));
    bad.map_or((Verdict::Good, String::new()), |finding| {
        (finding.verdict, format!("{}: {}", finding.what, finding.detail))
    })
}

fn check(change: impl FnOnce(&mut Host), verdict: Verdict, sentence: &str) {
    let mut host = good_host();
    change(&mut host);
    assert_eq!(told(&host), (verdict, sentence.to_owned()));
}

#[test]
fn a_good_host_lacks_nothing() {
    check(|_| {}, Verdict::Good, "");
    assert!(all(&good_host()).iter().all(|finding| finding.verdict == Verdict::Good));
    assert_eq!(all(&good_host()).len(), node(&good_host()).len() + 2);
}

#[test]
fn what_makes_a_node_impossible_is_said_with_what_to_do() {
    use Verdict::Missing;
    check(|host| host.is_root = false, Missing, "root: only root can make containers: use sudo");
    check(
        |host| host.release = "4.19.0-27-amd64".into(),
        Missing,
        "kernel: Linux 4.19.0-27-amd64 is too old for containers of knarr: boot 5.12 or newer",
    );
    check(
        |host| host.calls_refused = vec!["openat2"],
        Missing,
        "kernel: openat2 may not be called here: take away the seccomp profile that filters them",
    );
    check(
        |host| {
            host.capabilities = 0xa804_25fb;
            host.container = Some("a Docker container");
        },
        Missing,
        "privileges: a Docker container is without CAP_SYS_ADMIN and CAP_NET_ADMIN: start it with --privileged",
    );
    check(
        |host| host.cgroups.is_read_only = true,
        Missing,
        "cgroups: /sys/fs/cgroup is read-only: whoever started this needs --privileged",
    );
    check(
        |host| host.cgroups.unified = Some("cpu pids".into()),
        Missing,
        "cgroups: version 2, without memory: add cgroup_enable=memory to the kernel's command line",
    );
    check(
        |host| host.nftables_error = Some(ErrorKind::Unsupported),
        Missing,
        "nftables: unsupported: modprobe nf_tables",
    );
}

#[test]
fn a_full_disk_stops_a_new_cluster_and_no_other() {
    check(
        |host| host.disk.free = Some(5 << 20),
        Verdict::Missing,
        "disk: 5 MiB free in /var/lib, and a new cluster needs 64: free some, or choose another folder with --data-dir",
    );
    let sentence =
        "disk: 5 MiB free in /var/lib; images want more: free some, or choose another folder with --data-dir";
    let used = |host: &mut Host| host.disk = Disk { is_used: true, free: Some(5 << 20), ..host.disk.clone() };
    check(used, Verdict::Worse, sentence);
    check(
        |host| host.disk.error = Some(ErrorKind::ReadOnlyFilesystem),
        Verdict::Missing,
        "disk: /var/lib: read-only filesystem or storage medium; choose another folder with --data-dir",
    );
}

#[test]
fn a_port_that_is_taken_is_named_with_its_flag() {
    let taken = |host: &mut Host| host.ports[0].error = Some(ErrorKind::AddrInUse);
    let sentence = "the Kubernetes API: port 6443 is taken by another program, perhaps another knarr: \
                    stop it (ss -ltnp names it), or choose another with --https-port";
    check(taken, Verdict::Missing, sentence);
    let spare = |host: &mut Host| {
        taken(host);
        host.ports[0].is_needed = false;
    };
    check(spare, Verdict::Worse, sentence);
    // A server alone is told of nothing else, and one with a node that it can do without.
    let mut host = Host { is_root: false, release: "4.4.0".into(), ..good_host() };
    assert!(server(&host).iter().all(|finding| finding.verdict == Verdict::Good));
    assert_eq!(refusal(&host, Starts::Server), None);
    let alone = "root: only root can make containers: use sudo, or run the control plane alone with --disable-agent";
    let refusal = |host: &Host, starts| super::refusal(host, starts).map(|refusal| refusal.to_string());
    assert_eq!(refusal(&host, Starts::ServerWithNode).as_deref(), Some(alone));
    assert_eq!(refusal(&host, Starts::Node).as_deref(), Some("root: only root can make containers: use sudo"));
    taken(&mut host);
    assert_eq!(refusal(&host, Starts::ServerWithNode).as_deref(), Some(sentence));
}

#[test]
fn a_foreign_firewall_is_a_warning_with_its_own_commands() {
    for (found, word) in [
        (Firewall::Firewalld, "firewall-cmd --permanent --zone=trusted --add-source=10.42.0.0/16"),
        (Firewall::Ufw, "ufw route allow from 10.42.0.0/16"),
        (Firewall::Drops { table: "filter".into(), chain: "FORWARD".into() }, "chain FORWARD of table filter drops"),
    ] {
        let (verdict, sentence) = told(&Host { firewall: Some(found), ..good_host() });
        assert!(verdict == Verdict::Worse && sentence.contains(word), "{sentence}");
    }
}

#[test]
fn only_another_kernel_helps_against_an_old_one() {
    let lasting = |change: fn(&mut Host)| {
        let mut host = good_host();
        change(&mut host);
        super::refusal(&host, Starts::Node).expect("it is refused").is_lasting
    };
    assert!(lasting(|host| host.release = "5.10.0-28-amd64".into()));
    assert!(lasting(|host| host.calls_refused = vec!["mount_setattr"]));
    assert!(!lasting(|host| host.is_root = false));
}
