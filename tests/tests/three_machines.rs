//! Three machines make a cluster with three commands: each runs a server and a member of etcd. Any one of them can die.

use std::sync::Arc;
use std::time::{Duration, Instant};

use testkit::{Hub, Kubectl, Machine, Options, Place, Server};

const PATIENCE: Duration = Duration::from_secs(120);

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

struct Servers {
    servers: Vec<Server>,
    _hub: Arc<Hub>,
}

fn start(count: u8) -> Servers {
    let hub = Arc::new(Hub::start(1).unwrap());
    let mut servers: Vec<Server> = Vec::new();
    for index in 0..count {
        let machine = Arc::new(Machine::start_on(&hub, Place { link: 0, host: index + 1 }).unwrap());
        let mut arguments =
            vec!["--node-name".to_owned(), format!("server-{}", index + 1), "--token".into(), "shared by all".into()];
        match servers.first() {
            None => arguments.push("--cluster-init".into()),
            Some(first) => {
                let url = first.url.replace("127.0.0.1", &first.machine().address());
                arguments.extend(["--server".to_owned(), url]);
            }
        }
        servers.push(Server::start_with(Options { arguments, machine: Some(machine) }).unwrap());
    }
    Servers { servers, _hub: hub }
}

fn writes(kubectl: &Kubectl, name: &str) -> bool {
    kubectl.run(&["create", "configmap", name, "--request-timeout=5s"]).is_ok_and(|output| output.status.success())
}

#[test]
fn three_servers_survive_the_end_of_any_one() {
    let Servers { mut servers, _hub } = start(3);
    let kubectls: Vec<Kubectl> = servers.iter().map(|server| server.kubectl()).collect();
    eventually("three nodes are ready", || {
        kubectls[2].ok(&["get", "nodes", "--no-headers"]).lines().filter(|line| line.contains(" Ready")).count() == 3
    });
    let mut acknowledged = Vec::new();
    let mut write = |kubectl: &Kubectl, name: String| {
        let done = writes(kubectl, &name);
        if done {
            acknowledged.push(name);
        }
        done
    };
    for (index, kubectl) in kubectls.iter().enumerate() {
        assert!(write(kubectl, format!("before-{index}")));
    }
    for dead in 0..3 {
        // The whole machine: knarr, etcd and all.
        servers[dead].kill().unwrap();
        servers[dead].machine().cut().unwrap();
        let other = &kubectls[(dead + 1) % 3];
        let mut number = 0;
        eventually("the others go on", || {
            number += 1;
            write(other, format!("without-{dead}-{number}"))
        });
        servers[dead].machine().uncut().unwrap();
        servers[dead].restart().unwrap();
        eventually("it is back", || {
            write(&kubectls[dead], format!("back-{dead}-{}", Instant::now().elapsed().as_nanos()))
        });
    }
    for kubectl in &kubectls {
        let listed = kubectl.ok(&["get", "configmaps", "-o", "name"]);
        for name in &acknowledged {
            assert!(listed.contains(&format!("configmap/{name}\n")), "{name} is lost");
        }
    }
    // The member that outlived its knarr was taken over, not started a second time.
    let log = std::fs::read_to_string(servers[0].data_dir().join("log")).unwrap();
    assert!(log.contains("etcd is already running"), "{log}");
}

#[test]
fn a_server_takes_its_objects_along_to_etcd() {
    let hub = Arc::new(Hub::start(1).unwrap());
    let machine = Arc::new(Machine::start_on(&hub, Place { link: 0, host: 1 }).unwrap());
    let mut server = Server::start_with(Options { arguments: Vec::new(), machine: Some(machine.clone()) }).unwrap();
    server.kubectl().ok(&["create", "configmap", "kept", "--from-literal=a=b"]);
    let uid = server.kubectl().ok(&["get", "configmap", "kept", "-o", "jsonpath={.metadata.uid}"]);
    assert!(server.terminate().unwrap());
    server.set_arguments(vec!["--cluster-init".into()]);
    server.restart().unwrap();
    assert_eq!(
        server.kubectl().ok(&["get", "configmap", "kept", "-o", "jsonpath={.metadata.uid}{.data.a}"]),
        format!("{uid}b")
    );
    // From then on it needs no flag.
    assert!(server.terminate().unwrap());
    server.set_arguments(Vec::new());
    server.restart().unwrap();
    assert!(server.kubectl().ok(&["get", "configmap", "kept"]).contains("kept"));
}
