//! Three servers on one real etcd: what one acknowledges, all know; a killed one takes nothing with it.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use testkit::{Client, Etcd, Options, Server};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Cluster {
    etcd: Etcd,
    servers: Vec<Server>,
    clients: Vec<Client>,
}

fn start() -> Cluster {
    let etcd = Etcd::start().unwrap().expect("etcd is installed: run `make tools`");
    let options = Options { arguments: vec!["--etcd-servers".into(), etcd.endpoint.clone()], ..Options::default() };
    let servers: Vec<Server> = (0..3).map(|_| Server::start_with(options.clone()).unwrap()).collect();
    let clients = servers.iter().map(|server| server.client().unwrap()).collect();
    Cluster { etcd, servers, clients }
}

async fn revision(client: &Client) -> u64 {
    let list = client.get(&format!("{CONFIG_MAPS}?limit=1")).await.unwrap().json();
    list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_write_through_one_is_read_through_another_at_once() {
    let cluster = start();
    for round in 0..60 {
        let writer = &cluster.clients[round % 3];
        let reader = &cluster.clients[(round + 1) % 3];
        let name = format!("seen-{round}");
        let body = json!({"metadata": {"name": name, "labels": {"round": round.to_string()}}});
        let made = writer.post(CONFIG_MAPS, &body).await.unwrap();
        assert_eq!(made.code, 201, "{}", made.text());
        let path = format!("{CONFIG_MAPS}/{name}");
        let read = reader.get(&path).await.unwrap();
        assert_eq!((read.code, read.json()), (200, made.json()), "round {round}");
        let listed = reader.get(&format!("{CONFIG_MAPS}?labelSelector=round={round}")).await.unwrap().json();
        assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "round {round}: {listed}");

        // A change made through the reader is a conflict for who has not seen it.
        let mut changed = read.json();
        changed["data"] = json!({"by": "reader"});
        assert_eq!(reader.put(&path, &changed).await.unwrap().code, 200);
        let stale = writer.put(&path, &made.json()).await.unwrap();
        assert_eq!(stale.code, 409, "{}", stale.text());
        if round % 2 == 0 {
            assert_eq!(writer.delete(&path).await.unwrap().code, 200);
            assert_eq!(reader.get(&path).await.unwrap().code, 404, "round {round}");
        }
    }
}

#[tokio::test]
async fn watches_through_all_see_one_order() {
    const WRITERS: usize = 6;
    const WRITES: usize = 30;
    let cluster = start();
    let from = revision(&cluster.clients[0]).await;
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={from}&labelSelector=load=yes");
    let mut watches = Vec::new();
    for client in &cluster.clients {
        watches.push(client.watch(&path).await.unwrap());
    }
    let writing: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let client = cluster.clients[writer % 3].clone();
            tokio::spawn(async move {
                let name = format!("writer-{writer}");
                for number in 0..WRITES {
                    let metadata = json!({"name": name, "labels": {"load": "yes"}});
                    let reply = if number == 0 {
                        client.post(CONFIG_MAPS, &json!({"metadata": metadata})).await.unwrap()
                    } else {
                        let patch = json!({"data": {"n": number.to_string()}}).to_string();
                        let path = format!("{CONFIG_MAPS}/{name}");
                        client.send("PATCH", &path, "application/merge-patch+json", patch).await.unwrap()
                    };
                    assert!(matches!(reply.code, 200 | 201), "{}", reply.text());
                }
            })
        })
        .collect();
    for writer in writing {
        writer.await.unwrap();
    }
    let mut histories = Vec::new();
    for watch in &mut watches {
        histories.push(watch.take(WRITERS * WRITES, Duration::from_secs(30)).await.unwrap());
    }
    assert!(histories[0].is_sorted_by(|one, next| one.revision < next.revision));
    assert_eq!(histories[0], histories[1]);
    assert_eq!(histories[0], histories[2]);
}

#[tokio::test]
async fn keys_in_etcd_are_upstreams() {
    let cluster = start();
    cluster.servers[0].default_account("default").unwrap();
    let client = &cluster.clients[0];
    let container = json!([{"name": "a", "image": "b"}]);
    for (path, object) in [
        (CONFIG_MAPS, json!({"metadata": {"name": "settings"}})),
        ("/api/v1/namespaces/default/pods", json!({"metadata": {"name": "web"}, "spec": {"containers": container}})),
        ("/api/v1/nodes", json!({"metadata": {"name": "one"}})),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
                     "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": container}}}}),
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}),
        ),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", json!({"metadata": {"name": "mine"}})),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", json!({"metadata": {"name": "mine"}})),
        (
            "/apis/networking.k8s.io/v1/ingressclasses",
            json!({"metadata": {"name": "mine"}, "spec": {"controller": "example.org/x"}}),
        ),
    ] {
        let reply = client.post(path, &object).await.unwrap();
        assert_eq!(reply.code, 201, "{path}: {}", reply.text());
    }
    let output = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &cluster.etcd.endpoint, "get", "/registry", "--prefix", "--keys-only"])
        .output()
        .expect("etcdctl is installed: run `make tools`");
    let text = String::from_utf8_lossy(&output.stdout);
    let keys: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    for key in [
        "/registry/configmaps/default/settings",
        "/registry/pods/default/web",
        "/registry/minions/one",
        "/registry/deployments/default/web",
        "/registry/services/specs/default/web",
        "/registry/services/specs/default/kubernetes",
        "/registry/clusterroles/mine",
        "/registry/leases/default/mine",
        "/registry/ingressclasses/mine",
        "/registry/namespaces/kube-system",
        "/registry/priorityclasses/system-node-critical",
        "/registry/serviceaccounts/default/default",
    ] {
        assert!(keys.contains(&key), "{key} is missing among {keys:#?}");
    }
}

#[tokio::test]
async fn a_killed_server_takes_nothing_with_it() {
    let mut cluster = start();
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged: Vec<Arc<AtomicUsize>> = (0..3).map(|_| Arc::default()).collect();
    let load: Vec<_> = (0..3)
        .map(|server| {
            let (client, stop, count) = (cluster.clients[server].clone(), stop.clone(), acknowledged[server].clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let number = count.load(Ordering::Relaxed);
                    let body =
                        json!({"metadata": {"name": format!("load-{server}-{number}"), "labels": {"load": "yes"}}});
                    match client.post(CONFIG_MAPS, &body).await {
                        Ok(reply) if reply.code == 201 => _ = count.fetch_add(1, Ordering::Relaxed),
                        Ok(reply) => panic!("{}", reply.text()),
                        // Only the killed one may go silent.
                        Err(error) => return assert_eq!(server, 2, "{error}"),
                    }
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.servers[2].kill().unwrap();
    let before: usize = acknowledged[..2].iter().map(|count| count.load(Ordering::Relaxed)).sum();
    tokio::time::sleep(Duration::from_secs(2)).await;
    stop.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap();
    }
    let after: usize = acknowledged[..2].iter().map(|count| count.load(Ordering::Relaxed)).sum();
    assert!(after > before, "the others stopped too");
    cluster.servers[2].restart().unwrap();
    for client in &cluster.clients {
        let list = client.get(&format!("{CONFIG_MAPS}?labelSelector=load=yes")).await.unwrap().json();
        let names: Vec<&str> =
            list["items"].as_array().unwrap().iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
        for (server, count) in acknowledged.iter().enumerate() {
            for number in 0..count.load(Ordering::Relaxed) {
                let name = format!("load-{server}-{number}");
                assert!(names.contains(&name.as_str()), "{name} was acknowledged and is gone");
            }
        }
    }
}

/// The Service `kubernetes` leads to the servers that live: all three, and without the one that stopped.
#[tokio::test]
async fn the_servers_know_each_other() {
    let etcd = Etcd::start().unwrap().expect("etcd is installed: run `make tools`");
    // An address for documentation: nothing is sent there, it is only written down.
    let arguments = ["--etcd-servers", &etcd.endpoint, "--advertise-address", "192.0.2.10"];
    let options = Options { arguments: arguments.map(String::from).into(), ..Options::default() };
    let mut servers: Vec<Server> = (0..3).map(|_| Server::start_with(options.clone()).unwrap()).collect();
    let client = servers[0].client().unwrap();
    let port = |server: &Server| -> u64 { server.url.rsplit(':').next().unwrap().parse().unwrap() };
    let mut expected: Vec<u64> = servers.iter().map(port).collect();
    wait_for_ports(&client, &mut expected).await;
    let stopped = port(&servers[2]);
    assert!(servers[2].terminate().unwrap(), "it ends by itself");
    expected.retain(|port| *port != stopped);
    wait_for_ports(&client, &mut expected).await;
}

async fn wait_for_ports(client: &Client, expected: &mut [u64]) {
    expected.sort();
    let until = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let endpoints = client.get("/api/v1/namespaces/default/endpoints/kubernetes").await.unwrap().json();
        let subsets = endpoints["subsets"].as_array().cloned().unwrap_or_default();
        let mut ports: Vec<u64> = subsets.iter().filter_map(|subset| subset["ports"][0]["port"].as_u64()).collect();
        ports.sort();
        if ports == expected {
            return;
        }
        assert!(std::time::Instant::now() < until, "{ports:?} instead of {expected:?}: {endpoints}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
