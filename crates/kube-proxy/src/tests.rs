//! Real packets through real rules: a node, its pods and others, as network namespaces that these tests make. The other
//! node is a namespace that the first one can reach, with an endpoint in it.

mod lab;

use std::time::Duration;

use lab::{Lab, NODE, OUTSIDE, REMOTE, Server};
use serde_json::json;

const POLL: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn cluster_addresses_from_pod_node_and_outside() {
    let lab = Lab::start().await;
    lab.service(json!({"name": "web", "ip": "10.43.0.1", "port": 80}));
    lab.service(json!({"name": "empty", "ip": "10.43.0.2", "port": 80}));
    let (a, b) = (lab.pod("a").await, lab.pod("b").await);
    a.serve(8080);
    lab.endpoints("web", &[&a]);
    lab.settled().await;
    assert_eq!(b.call("10.43.0.1:80").unwrap(), format!("a {}", b.address), "the pod's own address is seen");
    assert_eq!(lab.node_call("10.43.0.1:80").unwrap(), "a 10.42.1.1");
    assert_eq!(a.call("10.43.0.1:80").unwrap(), "a 10.42.1.1", "a pod reaches itself through the node");
    assert_eq!(lab.outside_call("10.43.0.1:80").unwrap(), "a 10.42.1.1", "others are masqueraded");
    for address in ["10.43.0.1:81", "10.43.0.2:80"] {
        for error in [b.call(address), lab.node_call(address), lab.outside_call(address)] {
            assert_eq!(error.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused, "{address}");
        }
    }
    // A second endpoint takes its share, and the first goes.
    b.serve(8080);
    lab.endpoints("web", &[&a, &b]);
    lab.settled().await;
    let names = lab.names(|| lab.node_call("10.43.0.1:80"), 40);
    assert_eq!(names, ["a", "b"]);
    lab.endpoints("web", &[&b]);
    lab.settled().await;
    assert_eq!(lab.names(|| lab.node_call("10.43.0.1:80"), 10), ["b"]);
    lab.endpoints("web", &[]);
    lab.settled().await;
    assert_eq!(lab.node_call("10.43.0.1:80").unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_ports_and_balancers_under_both_policies() {
    let lab = Lab::start().await;
    let a = lab.pod("a").await;
    a.serve(8080);
    let remote = lab.remote_server(8080);
    for (name, ip, policy, port) in [("spread", "10.43.0.1", "Cluster", 30080), ("near", "10.43.0.2", "Local", 30081)] {
        lab.service(json!({
            "name": name, "ip": ip, "port": port - 30000, "type": "LoadBalancer", "nodePort": port,
            "externalTrafficPolicy": policy, "balancer": NODE,
        }));
        lab.slices(name, &[a.endpoint(), remote.clone()]);
    }
    lab.service(json!({
        "name": "far", "ip": "10.43.0.3", "port": 82, "type": "LoadBalancer", "nodePort": 30082,
        "externalTrafficPolicy": "Local", "balancer": NODE,
    }));
    lab.slices("far", &[remote]);
    lab.settled().await;
    for address in [format!("{NODE}:30080"), format!("{NODE}:80")] {
        assert_eq!(lab.names(|| lab.outside_call(&address), 40), ["a", "remote"], "{address}");
        assert_eq!(lab.names(|| a.call(&address), 40), ["a", "remote"], "{address}");
    }
    for address in [format!("{NODE}:30081"), format!("{NODE}:81")] {
        for _ in 0..10 {
            assert_eq!(
                lab.outside_call(&address).unwrap(),
                format!("a {OUTSIDE}"),
                "the client's address is preserved"
            );
        }
        // Pods and the node itself are not limited to this node.
        assert_eq!(lab.names(|| lab.node_call(&address), 40), ["a", "remote"], "{address}");
    }
    for address in [format!("{NODE}:30082"), format!("{NODE}:82")] {
        let error = lab.outside_call(&address).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "dropped, so that a balancer tries another node");
        assert!(lab.node_call(&address).unwrap().starts_with("remote "), "{address}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_of_a_balancer_are_limited() {
    let lab = Lab::start().await;
    let a = lab.pod("a").await;
    a.serve(8080);
    for (name, port, sources) in [("open", 80, "192.0.2.0/24"), ("shut", 81, "198.51.100.0/24")] {
        lab.service(json!({
            "name": name, "ip": format!("10.43.0.{port}"), "port": port, "type": "LoadBalancer", "balancer": NODE,
            "loadBalancerSourceRanges": [sources],
        }));
        lab.endpoints(name, &[&a]);
    }
    lab.settled().await;
    assert!(lab.outside_call(&format!("{NODE}:80")).is_ok());
    assert_eq!(lab.outside_call(&format!("{NODE}:81")).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_stay_where_they_were() {
    let lab = Lab::start().await;
    let pods = [lab.pod("a").await, lab.pod("b").await, lab.pod("c").await];
    pods.iter().for_each(|pod| pod.serve(8080));
    lab.service(
        json!({"name": "web", "ip": "10.43.0.1", "port": 80, "stay": 600, "type": "NodePort", "nodePort": 30080}),
    );
    lab.endpoints("web", &[&pods[0], &pods[1], &pods[2]]);
    lab.settled().await;
    let first = lab.names(|| lab.outside_call("10.43.0.1:80"), 30);
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(lab.names(|| lab.outside_call(&format!("{NODE}:30080")), 20), first, "by another way in too");
    // Without its endpoint it finds another one, and stays there although the first comes back.
    let rest: Vec<_> = pods.iter().filter(|pod| pod.name != first[0]).collect();
    lab.endpoints("web", &rest);
    lab.settled().await;
    let second = lab.names(|| lab.outside_call("10.43.0.1:80"), 20);
    assert!(second.len() == 1 && second != first, "{second:?}");
    lab.endpoints("web", &[&pods[0], &pods[1], &pods[2]]);
    lab.settled().await;
    assert_eq!(lab.names(|| lab.outside_call("10.43.0.1:80"), 20), second);
    // After the time is over, it may be any.
    lab.service(json!({"name": "web", "ip": "10.43.0.1", "port": 80, "stay": 1}));
    lab.settled().await;
    lab.until(|| {
        std::thread::sleep(Duration::from_millis(1100));
        lab.names(|| lab.outside_call("10.43.0.1:80"), 1) != second
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_follow_their_endpoints() {
    let lab = Lab::start().await;
    let (a, b) = (lab.pod("a").await, lab.pod("b").await);
    a.serve_udp(5353);
    b.serve_udp(5353);
    let ask = |sender: &std::net::UdpSocket| {
        sender.send_to(b"hello", "10.43.0.10:53").unwrap();
        let mut buffer = [0; 64];
        let (length, from) = sender.recv_from(&mut buffer)?;
        assert_eq!(from.to_string(), "10.43.0.10:53");
        std::io::Result::Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    };
    // One sender, always from the same port: the kernel takes it for one connection.
    let sender = lab.node_udp();
    sender.send_to(b"too early", "10.43.0.10:53").ok();
    lab.service(json!({"name": "dns", "ip": "10.43.0.10", "port": 53, "protocol": "UDP"}));
    lab.udp_endpoints("dns", 5353, &[&a]);
    lab.settled().await;
    // The rules come first and old connections are forgotten right after: a datagram between them still goes astray.
    // What was sent before the Service was there is forgotten.
    lab.until(|| ask(&sender).is_ok_and(|answer| answer.starts_with("a "))).await;
    lab.udp_endpoints("dns", 5353, &[&b]);
    lab.settled().await;
    // So is the endpoint that is gone.
    lab.until(|| ask(&sender).is_ok_and(|answer| answer.starts_with("b "))).await;
    assert!((0..5).all(|_| ask(&sender).unwrap().starts_with("b ")), "nobody is led back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_start_takes_the_rules_over() {
    let mut lab = Lab::start().await;
    let (a, b) = (lab.pod("a").await, lab.pod("b").await);
    a.serve(8080);
    b.serve(8080);
    lab.service(json!({"name": "web", "ip": "10.43.0.1", "port": 80, "type": "NodePort", "nodePort": 30080}));
    lab.service(json!({"name": "old", "ip": "10.43.0.2", "port": 80}));
    lab.endpoints("web", &[&a]);
    lab.endpoints("old", &[&a]);
    lab.settled().await;
    let mut kept = Server::connect(&b.namespace, "10.43.0.1:80");
    lab.stop().await;
    assert!(lab.node_call("10.43.0.1:80").is_ok(), "the rules go on without the proxy");
    kept.exchange();
    let handles = lab.rule_handles();
    // Meanwhile one Service goes, one comes, one changes.
    lab.delete("old");
    lab.service(json!({"name": "new", "ip": "10.43.0.3", "port": 80}));
    lab.endpoints("new", &[&b]);
    lab.run();
    lab.settled().await;
    assert_eq!(lab.rule_handles(), handles, "no rule was written again");
    assert!(lab.node_call("10.43.0.3:80").unwrap().starts_with("b "));
    assert_eq!(lab.node_call("10.43.0.2:80").unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    kept.exchange();
    // And what someone did to the rules meanwhile is found.
    lab.stop().await;
    lab.nft("flush map ip knarr-proxy addresses");
    lab.nft("flush chain ip knarr-proxy services");
    assert!(lab.node_call("10.43.0.1:80").is_err());
    lab.run();
    lab.settled().await;
    assert!(lab.node_call("10.43.0.1:80").is_ok());
    kept.exchange();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_break_is_repaired() {
    let lab = Lab::start().await;
    let a = lab.pod("a").await;
    a.serve(8080);
    lab.service(json!({"name": "web", "ip": "10.43.0.1", "port": 80, "type": "NodePort", "nodePort": 30080}));
    lab.service(json!({"name": "empty", "ip": "10.43.0.2", "port": 80}));
    lab.endpoints("web", &[&a]);
    lab.settled().await;
    let before = lab.rules();
    for damage in [
        "flush ruleset",
        "delete table ip knarr-proxy",
        "flush table ip knarr-proxy",
        "flush chain ip knarr-proxy services",
        "flush map ip knarr-proxy endpoints",
        "flush set ip knarr-proxy cluster-addresses",
        "flush set ip knarr-proxy pod-ranges",
        "add chain ip knarr-proxy foreign",
        "add element ip knarr-proxy cluster-addresses { 192.0.2.77 }",
        "insert rule ip knarr-proxy services drop",
    ] {
        lab.nft(damage);
        lab.until(|| lab.rules() == before).await;
        lab.until(|| lab.node_call("10.43.0.1:80").is_ok()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_metrics_are_told() {
    let lab = Lab::start().await;
    let a = lab.pod("a").await;
    a.serve(8080);
    lab.service(json!({
        "name": "web", "ip": "10.43.0.1", "port": 80, "type": "LoadBalancer", "nodePort": 30080,
        "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000,
    }));
    lab.settled().await;
    let get = |port: u16, path: &str| lab.http(port, path);
    let (status, body) = get(32000, "/");
    assert_eq!((status, body["localEndpoints"].as_u64()), (503, Some(0)), "{body}");
    lab.endpoints("web", &[&a]);
    lab.settled().await;
    let (status, body) = get(32000, "/");
    assert_eq!(status, 200);
    let expected =
        json!({"service": {"namespace": "default", "name": "web"}, "localEndpoints": 1, "serviceProxyHealthy": true});
    assert_eq!(body, expected);
    let (status, body) = get(10256, "/healthz");
    assert_eq!((status, body["nodeEligible"].as_bool()), (200, Some(true)), "{body}");
    assert_eq!(get(10256, "/livez").0, 200);
    assert_eq!(get(10256, "/nonsense").0, 404);
    lab.taint("ToBeDeletedByClusterAutoscaler");
    lab.until(|| get(10256, "/healthz").0 == 503).await;
    assert_eq!(get(10256, "/livez").0, 200, "the proxy itself is well");
    let metrics = lab.text(10249, "/metrics");
    assert!(metrics.contains("kubeproxy_sync_proxy_rules_duration_seconds_count"), "{metrics}");
    lab.delete("web");
    lab.until(|| lab.connect_fails(32000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_prefer_their_own_nodes_endpoint_and_fall_back() {
    let lab = Lab::start().await;
    let a = lab.pod("a").await;
    a.serve(8080);
    let remote = lab.remote_server(8080);
    lab.service(json!({"name": "dns", "ip": "10.43.0.10", "port": 53}));
    let hinted = |mut endpoint: serde_json::Value, node: &str| {
        endpoint["hints"] = json!({"forNodes": [{"name": node}]});
        endpoint
    };
    let (near, far) = (hinted(a.endpoint(), "n1"), hinted(remote, "n2"));
    lab.slices("dns", &[near, far.clone()]);
    lab.settled().await;
    assert_eq!(lab.names(|| lab.node_call("10.43.0.10:53"), 20), ["a"]);
    lab.slices("dns", &[far]);
    lab.settled().await;
    assert_eq!(lab.names(|| lab.node_call("10.43.0.10:53"), 5), ["remote"]);
    let _ = REMOTE;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_families_in_the_kernel() {
    let lab = Lab::start_with(true).await;
    let (a, b) = (lab.pod("a").await, lab.pod("b").await);
    a.serve(8080);
    lab.service(json!({"name": "web", "ip": "10.43.0.1,fd43::1", "port": 80, "type": "NodePort", "nodePort": 30080, "stay": 60}));
    lab.endpoints("web", &[&a]);
    lab.settled().await;
    // A device takes its time before it uses an address of this family.
    lab.until(|| b.call("[fd42::2]:8080").is_ok()).await;
    assert_eq!(b.call("[fd43::1]:80").unwrap(), format!("a {}", b.address6.unwrap()));
    assert_eq!(a.call("[fd43::1]:80").unwrap(), "a fd42::1", "to itself");
    assert_eq!(lab.outside_call("[2001:db8::1]:30080").unwrap(), "a fd42::1");
    for _ in 0..10 {
        // Also when asked often, which the kernel would not answer with ICMP each time.
        assert_eq!(b.call("[fd43::1]:81").unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    }
    assert_eq!(b.call("10.43.0.1:80").unwrap(), format!("a {}", b.address));
}
