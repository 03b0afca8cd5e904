//! Questions and their whole answers, packet to packet. `testdata/cluster.yaml`-like objects stand in `cluster()`, the expected
//! texts in `testdata/answers.txt`; `UPDATE=1` writes them anew.

use std::fmt::Write;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::*;
use crate::metrics::{Metrics, Source, Transport};
use crate::resolver::{Resolver, Step};
use crate::wire::text::{ask, describe};

fn service(namespace: &str, name: &str, spec: Value) -> Service {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec}))
        .expect("a service")
}

fn slice(namespace: &str, name: &str, service: &str, rest: Value) -> EndpointSlice {
    let mut object = json!({
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
    });
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    serde_json::from_value(object).expect("a slice")
}

pub fn empty() -> Zone {
    let ranges = ["10.42.0.0/16", "10.43.0.0/16"].map(|range| range.parse().unwrap()).to_vec();
    Zone { serial: 1499347823, ..Zone::new(Name::parse("cluster.local").unwrap(), 30, ranges) }
}

/// A cluster with one of each sort.
pub fn cluster() -> Zone {
    let mut zone = empty();
    for namespace in ["default", "kube-system", "shop"] {
        zone.index.set_namespace(namespace, true);
    }
    let http = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    let two = json!([{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    for service in [
        service(
            "default",
            "kubernetes",
            json!({"clusterIP": "10.43.0.1", "clusterIPs": ["10.43.0.1"], "ports": [{"name": "https", "port": 443}]}),
        ),
        service(
            "kube-system",
            "kube-dns",
            json!({"clusterIP": "10.43.0.10", "clusterIPs": ["10.43.0.10"], "ports": two}),
        ),
        service("shop", "web", json!({"clusterIP": "10.43.0.20", "clusterIPs": ["10.43.0.20"], "ports": two})),
        service(
            "shop",
            "both",
            json!({"clusterIPs": ["10.43.0.21", "fd43::21"], "clusterIP": "10.43.0.21", "ports": http}),
        ),
        service("shop", "portless", json!({"clusterIP": "10.43.0.22"})),
        service("shop", "db", json!({"clusterIP": "None", "ports": [{"name": "sql", "port": 5432}]})),
        service("shop", "bare", json!({"clusterIP": "None"})),
        service("shop", "nobody", json!({"clusterIP": "None", "ports": http})),
        service("shop", "docs", json!({"type": "ExternalName", "externalName": "docs.example.org"})),
        service("shop", "shortcut", json!({"type": "ExternalName", "externalName": "web.shop.svc.cluster.local"})),
        service("shop", "again", json!({"type": "ExternalName", "externalName": "Shortcut.shop.svc.cluster.local."})),
        service("shop", "circle", json!({"type": "ExternalName", "externalName": "circle2.shop.svc.cluster.local"})),
        service("shop", "circle2", json!({"type": "ExternalName", "externalName": "circle.shop.svc.cluster.local"})),
        service("shop", "dangling", json!({"type": "ExternalName", "externalName": "gone.shop.svc.cluster.local"})),
        service("shop", "number", json!({"type": "ExternalName", "externalName": "192.0.2.1"})),
    ] {
        zone.index.set_service(None, Some(&service));
    }
    for slice in [
        slice(
            "shop",
            "db-1",
            "db",
            json!({
                "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
                "endpoints": [
                    {"addresses": ["10.42.0.5"], "hostname": "db-0", "conditions": {"ready": true}},
                    {"addresses": ["10.42.0.6"], "hostname": "db-1"},
                    {"addresses": ["10.42.0.7"], "hostname": "db-2", "conditions": {"ready": false}},
                ],
            }),
        ),
        slice(
            "shop",
            "db-2",
            "db",
            json!({
                "addressType": "IPv6",
                "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
                "endpoints": [{"addresses": ["fd42::5"], "hostname": "db-0"}, {"addresses": ["fd42::"]}],
            }),
        ),
        slice("shop", "bare-1", "bare", json!({"endpoints": [{"addresses": ["10.42.0.9"]}]})),
        slice(
            "shop",
            "web-1",
            "web",
            json!({
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                "endpoints": [{"addresses": ["10.42.0.11"]}],
            }),
        ),
        slice(
            "shop",
            "nobody-1",
            "nobody",
            json!({
                "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
                "endpoints": [{"addresses": ["10.42.0.12"], "conditions": {"ready": false}}],
            }),
        ),
    ] {
        zone.index.set_slice(None, Some(&slice));
    }
    zone
}

pub fn resolver(zone: Zone) -> Arc<Resolver> {
    let resolver = Resolver::new(zone, Arc::new(Metrics::default()), Vec::new());
    resolver.set_synced();
    resolver
}

/// The answer as text, addresses of one section in order because they come in any.
fn answer(resolver: &Resolver, packet: &[u8]) -> String {
    let mut out = Vec::new();
    match resolver.begin(packet, Transport::Stream, &mut out) {
        Step::Done(Source::Kubernetes) => {
            assert_eq!(out[..2], packet[..2], "the number of the question");
            let text = describe(&out);
            let mut lines: Vec<&str> = text.lines().collect();
            let aliases = lines.iter().position(|line| line.contains(" A ") || line.contains(" AAAA "));
            if let Some(first) = aliases.filter(|first| *first > 1) {
                let end = lines[first..].iter().take_while(|line| line.starts_with('=')).count();
                lines[first..first + end].sort();
            }
            lines.join("\n") + "\n"
        }
        Step::Done(_) => describe(&out),
        Step::Later(_) => "asked elsewhere\n".into(),
    }
}

const QUESTIONS: &[&str] = &[
    "kubernetes.default.svc.cluster.local A",
    "KuberNetes.Default.SVC.Cluster.Local A",
    "kubernetes.default.svc.cluster.local AAAA",
    "kubernetes.default.svc.cluster.local SRV",
    "kubernetes.default.svc.cluster.local TXT",
    "kubernetes.default.svc.cluster.local MX",
    "kubernetes.default.svc.cluster.local ANY",
    "kubernetes.default.svc.cluster.local CNAME",
    "kubernetes.default.svc.cluster.local AXFR",
    "web.shop.svc.cluster.local SRV",
    "_http._tcp.web.shop.svc.cluster.local SRV",
    "_HTTP._TCP.web.shop.svc.cluster.local SRV",
    "http.tcp.web.shop.svc.cluster.local SRV",
    "_dns._udp.web.shop.svc.cluster.local SRV",
    "_dns._tcp.web.shop.svc.cluster.local SRV",
    "_http._tcp.web.shop.svc.cluster.local A",
    "both.shop.svc.cluster.local A",
    "both.shop.svc.cluster.local AAAA",
    "both.shop.svc.cluster.local SRV",
    "portless.shop.svc.cluster.local A",
    "portless.shop.svc.cluster.local SRV",
    "db.shop.svc.cluster.local A",
    "db.shop.svc.cluster.local AAAA",
    "db.shop.svc.cluster.local SRV",
    "_sql._tcp.db.shop.svc.cluster.local SRV",
    "db-0.db.shop.svc.cluster.local A",
    "db-0.db.shop.svc.cluster.local AAAA",
    "db-1.db.shop.svc.cluster.local AAAA",
    "db-2.db.shop.svc.cluster.local A",
    "10-42-0-5.db.shop.svc.cluster.local A",
    "fd42--0.db.shop.svc.cluster.local AAAA",
    "bare.shop.svc.cluster.local A",
    "bare.shop.svc.cluster.local SRV",
    "10-42-0-9.bare.shop.svc.cluster.local A",
    "10-42-0-11.web.shop.svc.cluster.local A",
    "10-42-0-12.web.shop.svc.cluster.local A",
    "nobody.shop.svc.cluster.local A",
    "docs.shop.svc.cluster.local CNAME",
    "docs.shop.svc.cluster.local A",
    "docs.shop.svc.cluster.local SRV",
    "x.docs.shop.svc.cluster.local CNAME",
    "shortcut.shop.svc.cluster.local A",
    "shortcut.shop.svc.cluster.local AAAA",
    "again.shop.svc.cluster.local A",
    "circle.shop.svc.cluster.local A",
    "dangling.shop.svc.cluster.local A",
    "number.shop.svc.cluster.local A",
    "1-2-3-4.shop.pod.cluster.local A",
    "1-2-3-4.shop.pod.cluster.local AAAA",
    "fd42--7.shop.pod.cluster.local AAAA",
    "blah.shop.pod.cluster.local A",
    "1-2-3-4.nowhere.pod.cluster.local A",
    "1-2-3.shop.pod.cluster.local A",
    "shop.pod.cluster.local A",
    "shop.svc.cluster.local A",
    "nowhere.svc.cluster.local A",
    "web.nowhere.svc.cluster.local A",
    "gone.shop.svc.cluster.local A",
    "a.b.c.web.shop.svc.cluster.local A",
    "svc.cluster.local A",
    "pod.cluster.local A",
    "cluster.local A",
    "cluster.local SOA",
    "cluster.local NS",
    "web.shop.svc.cluster.local SOA",
    "svc.cluster.local NS",
    "foo.cluster.local NS",
    "ns.dns.cluster.local A",
    "dns-version.cluster.local TXT",
    "DNS-Version.Cluster.local TXT",
    "dns-version.cluster.local A",
    "x.dns-version.cluster.local TXT",
    "www.example.com.shop.svc.cluster.local A",
    "www.example.com.svc.cluster.local A",
    "www.example.com.cluster.local AAAA",
    "www.example.com A",
    ". NS",
    "20.0.43.10.in-addr.arpa PTR",
    "20.0.43.10.in-addr.arpa A",
    "99.0.43.10.in-addr.arpa PTR",
    "5.0.42.10.in-addr.arpa PTR",
    "7.0.42.10.in-addr.arpa PTR",
    "11.0.42.10.in-addr.arpa PTR",
    "1.2.0.192.in-addr.arpa PTR",
    "5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.2.4.d.f.ip6.arpa PTR",
    "0.43.10.in-addr.arpa PTR",
];

#[test]
fn every_question_has_its_answer() {
    let resolver = resolver(cluster());
    let mut text = String::new();
    for question in QUESTIONS {
        let (name, kind) = question.split_once(' ').expect("a name and a type");
        writeln!(text, "{}", answer(&resolver, &ask(name, kind, None))).unwrap();
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/zone/testdata/answers.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, &text).expect("the file is written");
    }
    let expected = std::fs::read_to_string(file).expect("the expected answers");
    for (got, wanted) in text.split("\n\n").zip(expected.split("\n\n")) {
        assert_eq!(got, wanted);
    }
    assert_eq!(text, expected);
}

#[test]
fn changes_come_and_go_without_a_trace() {
    let mut zone = empty();
    zone.index.set_namespace("shop", true);
    let web = service("shop", "web", json!({"clusterIP": "10.43.0.20", "ports": [{"port": 80}]}));
    let moved = service("shop", "web", json!({"clusterIP": "10.43.0.30", "ports": [{"port": 80}]}));
    let pods = |address: &str, host: &str| {
        slice("shop", "web-1", "web", json!({"endpoints": [{"addresses": [address], "hostname": host}]}))
    };
    let name = |text: &str| Name::parse(text).unwrap();
    let address = |zone: &Zone| zone.answer(&name("web.shop.svc.cluster.local"), kind::A);
    let pointer = |zone: &Zone, text: &str| zone.answer(&Name::reverse(text.parse().unwrap()), kind::PTR);
    let a = |text: &str| Answer::records(vec![Record { name: None, ttl: 30, data: Data::A(text.parse().unwrap()) }]);

    assert_eq!(address(&zone), Answer::NoName);
    zone.index.set_service(None, Some(&web));
    assert_eq!(address(&zone), a("10.43.0.20"));
    zone.index.set_service(Some(&web), Some(&moved));
    assert_eq!(address(&zone), a("10.43.0.30"));
    assert_eq!(pointer(&zone, "10.43.0.20"), Answer::NoName);
    assert!(matches!(pointer(&zone, "10.43.0.30"), Answer::Records { .. }));

    // An endpoint changes its address and then its slice; another slice takes it over before the first is gone.
    let (first, second) = (pods("10.42.0.5", "a"), pods("10.42.0.6", "a"));
    zone.index.set_slice(None, Some(&first));
    zone.index.set_slice(Some(&first), Some(&second));
    assert_eq!(pointer(&zone, "10.42.0.5"), Answer::NoName);
    let mut other = second.clone();
    other.metadata.name = Some("web-2".into());
    zone.index.set_slice(None, Some(&other));
    zone.index.set_slice(Some(&second), None);
    assert!(matches!(pointer(&zone, "10.42.0.6"), Answer::Records { .. }));
    // A slice that now belongs to another Service.
    let mut given = other.clone();
    given.metadata.labels.as_mut().unwrap().insert("kubernetes.io/service-name".into(), "api".into());
    zone.index.set_slice(Some(&other), Some(&given));
    assert_eq!(zone.answer(&name("a.web.shop.svc.cluster.local"), kind::A), Answer::NoName);

    zone.index.set_slice(Some(&given), None);
    zone.index.set_service(Some(&moved), None);
    zone.index.set_namespace("shop", false);
    assert!(zone.index.is_empty());
}

#[test]
fn a_name_is_denied_only_when_the_cluster_is_known() {
    let resolver = Resolver::new(cluster(), Arc::new(Metrics::default()), Vec::new());
    let text = |name: &str| answer(&resolver, &ask(name, "A", None));
    assert!(text("gone.shop.svc.cluster.local").starts_with("qr rd ra SERVFAIL"));
    assert!(text("web.shop.svc.cluster.local").contains("10.43.0.20"));
}

#[test]
fn large_answers_are_cut_at_what_the_asker_takes() {
    let mut zone = empty();
    zone.index.set_namespace("shop", true);
    let many = service("shop", "many", json!({"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}));
    zone.index.set_service(None, Some(&many));
    for part in 0..10 {
        let endpoints: Vec<Value> = (0..100).map(|n| json!({"addresses": [format!("10.42.{part}.{n}")]})).collect();
        let name = format!("many-{part}");
        let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
        zone.index
            .set_slice(None, Some(&slice("shop", &name, "many", json!({"ports": ports, "endpoints": endpoints}))));
    }
    let resolver = resolver(zone);
    let lines = |kind: &str, payload, transport| {
        let mut out = Vec::new();
        resolver.begin(&ask("many.shop.svc.cluster.local", kind, payload), transport, &mut out);
        let text = describe(&out);
        let count = |letter: char| text.lines().filter(|line| line.starts_with(letter)).count();
        (text.lines().next().unwrap().to_owned(), out.len(), count('='), count('+'))
    };
    let check = |kind, payload, transport, flags: &str, bytes_max: usize, answers: usize, additional: usize| {
        let got = lines(kind, payload, transport);
        assert_eq!((got.0.as_str(), got.2, got.3), (flags, answers, additional), "{kind} {payload:?} {transport:?}");
        assert!(got.1 <= bytes_max && got.1 > bytes_max.min(16000) - 64, "{got:?}");
    };
    use Transport::{Datagram, Stream};
    check("A", None, Datagram, "qr aa tc rd NOERROR", 512, 29, 0);
    check("A", Some(100), Datagram, "qr aa tc rd NOERROR", 512, 28, 1);
    check("A", Some(1232), Datagram, "qr aa tc rd NOERROR", 1232, 73, 1);
    check("A", Some(65535), Datagram, "qr aa tc rd NOERROR", 1232, 73, 1);
    check("A", Some(1232), Stream, "qr aa rd NOERROR", 16100, 1000, 1);
    // A thousand endpoints with whole names do not fit into any packet with all of their addresses.
    let (flags, bytes, answers, additional) = lines("SRV", Some(1232), Stream);
    assert_eq!((flags.as_str(), answers), ("qr aa tc rd NOERROR", 1000));
    assert!(bytes <= 65535 && additional > 100, "{bytes} {additional}");
}

#[test]
fn edns_is_answered_in_kind() {
    let resolver = resolver(cluster());
    let text = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = ask("web.shop.svc.cluster.local", "A", Some(1232));
        change(&mut packet);
        answer(&resolver, &packet)
    };
    let end = |packet: &[u8]| packet.len();
    assert!(
        text(&|_| {})
            .ends_with("= web.shop.svc.cluster.local. 30 A 10.43.0.20\n+ OPT payload 1232 extended 00000000\n")
    );
    let dnssec = text(&|packet| {
        let at = end(packet) - 4;
        packet[at] = 0x80
    });
    assert!(dnssec.ends_with("+ OPT payload 1232 extended 00008000\n"), "{dnssec}");
    let version = text(&|packet| {
        let at = end(packet) - 5;
        packet[at] = 1
    });
    assert_eq!(version, "qr rd ra NOERROR\n? web.shop.svc.cluster.local. A\n+ OPT payload 1232 extended 01000000\n");
    // Two of them are one too many.
    let twice = text(&|packet| {
        packet.extend([0, 0, 41, 4, 0, 0, 0, 0, 0, 0, 0]);
        packet[11] = 2;
    });
    assert_eq!(twice, "qr rd FORMERR\n");
}

#[test]
fn what_is_no_question_is_refused_or_ignored() {
    let resolver = resolver(cluster());
    let check = |change: &dyn Fn(&mut Vec<u8>), expected: &str| {
        let mut packet = ask("web.shop.svc.cluster.local", "A", None);
        change(&mut packet);
        let mut out = vec![1, 2, 3];
        assert!(matches!(resolver.begin(&packet, Transport::Datagram, &mut out), Step::Done(Source::Nobody)));
        let text = if out.is_empty() { String::new() } else { describe(&out) };
        assert_eq!(text.lines().next().unwrap_or(""), expected);
    };
    check(&|packet| packet[2] |= 0x80, "");
    check(&|packet| packet.truncate(11), "");
    check(&|packet| packet.truncate(20), "qr rd FORMERR");
    check(&|packet| packet[2] |= 0x28, "qr rd NOTIMP");
    check(&|packet| packet[5] = 0, "qr rd FORMERR");
    check(&|packet| packet[5] = 2, "qr rd FORMERR");
    check(&|packet| packet[7] = 9, "qr rd FORMERR");
    check(&|packet| packet[11] = 1, "qr rd FORMERR");
    // A name that points to itself, and one of a kind that does not exist.
    check(&|packet| packet[12..14].copy_from_slice(&[0xc0, 12]), "qr rd FORMERR");
    check(&|packet| packet[12] = 0x80, "qr rd FORMERR");
    // Of another class.
    check(&|packet| *packet.last_mut().unwrap() = 3, "qr rd ra REFUSED");
}

#[test]
fn no_packet_makes_it_panic() {
    use rand::{Rng, SeedableRng};
    let resolver = resolver(cluster());
    let mut random = rand::rngs::SmallRng::seed_from_u64(5);
    let mut out = Vec::new();
    for round in 0..100_000 {
        let mut packet = match round % 3 {
            0 => vec![0; random.random_range(0..80)],
            _ => {
                let (name, kind) = QUESTIONS[random.random_range(0..QUESTIONS.len())].split_once(' ').unwrap();
                ask(name, kind, (round % 2 == 0).then_some(4096))
            }
        };
        match round % 3 {
            0 => random.fill(&mut packet[..]),
            _ => {
                for _ in 0..random.random_range(1..6) {
                    let at = random.random_range(0..packet.len());
                    packet[at] = random.random();
                }
                packet.truncate(random.random_range(0..packet.len() * 2));
            }
        }
        if let Step::Done(_) = resolver.begin(&packet, Transport::Datagram, &mut out)
            && !out.is_empty()
        {
            assert!(out.len() <= 1232 && out[..2] == packet[..2] && out[2] & 0x80 != 0, "{packet:?}");
            describe(&out);
        }
    }
    assert!(resolver.metrics_text().contains("coredns_panics_total 0\n"));
}

#[test]
fn no_response_of_another_resolver_makes_it_panic() {
    use rand::{Rng, SeedableRng};
    let question = ask("a.example", "A", Some(1232));
    let query = crate::wire::read_query(&question).map_err(|_| ()).unwrap_or_else(|()| panic!("a question"));
    // An alias, an address and an SOA record, with names that point back, and an OPT record.
    let mut good = question[..question.len() - 11].to_vec();
    good[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 2, 0, 1, 0, 1]);
    good.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 4, 1, b'b', 0xc0, 14]);
    good.extend([0xc0, 39, 0, 1, 0, 1, 0, 0, 0, 50, 0, 4, 192, 0, 2, 1]);
    good.extend([0xc0, 14, 0, 6, 0, 1, 0, 0, 0, 40, 0, 24, 0xc0, 14, 0xc0, 14]);
    good.extend([0; 20]);
    good.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    let name = Name::parse("a.example").unwrap();
    let read = |packet: &[u8]| crate::wire::read_response(packet, 0x1234, &name, kind::A);
    let whole = read(&good).expect("a response");
    assert_eq!((whole.ttl, whole.answers, whole.ttls.len()), (Some(40), 2, 3));
    let addresses: Vec<Data> = whole.address_records().into_iter().map(|record| record.data).collect();
    assert_eq!(addresses, [Data::Cname(Name::parse("b.example").unwrap()), Data::A([192, 0, 2, 1].into())]);
    let mut random = rand::rngs::SmallRng::seed_from_u64(11);
    let (mut out, mut read_again) = (Vec::new(), 0);
    for _ in 0..100_000 {
        let mut packet = good.clone();
        for _ in 0..random.random_range(1..5) {
            let at = random.random_range(2..packet.len());
            packet[at] = random.random();
        }
        packet.truncate(random.random_range(12..packet.len() + 20));
        if let Some(relayed) = read(&packet) {
            read_again += 1;
            relayed.address_records();
            query.relay(&mut out, &relayed, Some(5), false);
            assert!(out.len() <= 1232 && out[..2] == question[..2]);
        }
    }
    assert!(read_again > 1000, "{read_again}");
}
