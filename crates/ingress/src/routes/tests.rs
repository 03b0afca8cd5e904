//! The rules of Ingresses, as tables of hosts and paths.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use reconcile::Key;
use serde_json::{Value, json};

use super::*;

fn object<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).expect("an object"))
}

fn class(name: &str, controller: &str, is_default: bool) -> Arc<IngressClass> {
    let annotations = json!({"ingressclass.kubernetes.io/is-default-class": is_default.to_string()});
    object(json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"controller": controller}}))
}

/// The names of ports are those of their Services.
fn path(kind: &str, path: &str, service: &str) -> Value {
    json!({"path": path, "pathType": kind, "backend": backend(service)})
}

fn backend(service: &str) -> Value {
    json!({"service": {"name": service, "port": {"number": 80}}})
}

fn rule(host: &str, paths: Value) -> Value {
    match host {
        "" => json!({"http": {"paths": paths}}),
        host => json!({"host": host, "http": {"paths": paths}}),
    }
}

/// Later ones are younger.
struct World {
    ingresses: Vec<Arc<Ingress>>,
    classes: Vec<Arc<IngressClass>>,
    missing: Vec<&'static str>,
}

impl World {
    fn new() -> World {
        World { ingresses: vec![], classes: vec![class("knarr", crate::CONTROLLER, true)], missing: vec![] }
    }

    fn with(mut self, name: &str, spec: Value) -> World {
        let number = self.ingresses.len();
        self.add(name, &format!("2026-01-01T00:00:{number:02}Z"), json!({}), spec);
        self
    }

    fn annotated(mut self, name: &str, annotations: Value, spec: Value) -> World {
        let number = self.ingresses.len();
        self.add(name, &format!("2026-01-01T00:00:{number:02}Z"), annotations, spec);
        self
    }

    fn add(&mut self, name: &str, created: &str, annotations: Value, spec: Value) {
        self.ingresses.push(object(json!({
            "metadata": {"namespace": "a", "name": name, "creationTimestamp": created, "annotations": annotations},
            "spec": spec,
        })));
    }

    fn table(&self) -> Table {
        build(&Objects {
            ingresses: &self.ingresses,
            classes: &self.classes,
            service: &|key| {
                let known = !self.missing.contains(&key.name.as_str());
                known.then(|| {
                    let ports = json!([
                        {"name": "web", "port": 80},
                        {"name": "grpc", "port": 90, "appProtocol": "kubernetes.io/h2c"},
                    ]);
                    let kind = if key.name == "external" { "ExternalName" } else { "ClusterIP" };
                    object::<Service>(json!({"metadata": {"name": key.name}, "spec": {"type": kind, "ports": ports}}))
                })
            },
            secret_fault: &|key| (key.name == "missing").then_some(crate::certificates::SecretFault::NotFound),
        })
    }

    /// Lines of `host/path service`; `-` where nothing answers.
    fn check(&self, expected: &str) {
        let table = self.table();
        for line in expected.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (target, service) = line.split_once(' ').expect("a target and a service");
            let (host, path) = target.split_at(target.find('/').expect("a path"));
            let found = table.find(host, path).map_or("-", |found| found.route.service.as_str());
            assert_eq!(found, service.trim(), "{target}");
        }
    }

    fn problems(&self) -> Vec<String> {
        let all = self.table().problems;
        all.into_iter().map(|problem| format!("{} {}: {}", problem.ingress, problem.reason, problem.message)).collect()
    }
}

#[test]
fn prefixes_match_whole_elements() {
    // The examples of the documentation.
    for (kind, rule_path, asked, matches) in [
        ("Prefix", "/", "/any/path", true),
        ("Exact", "/foo", "/foo", true),
        ("Exact", "/foo", "/bar", false),
        ("Exact", "/foo", "/foo/", false),
        ("Exact", "/foo/", "/foo", false),
        ("Prefix", "/foo", "/foo", true),
        ("Prefix", "/foo", "/foo/", true),
        ("Prefix", "/foo/", "/foo", true),
        ("Prefix", "/foo/", "/foo/", true),
        ("Prefix", "/aaa/bb", "/aaa/bbb", false),
        ("Prefix", "/aaa/bbb", "/aaa/bbb", true),
        ("Prefix", "/aaa/bbb/", "/aaa/bbb", true),
        ("Prefix", "/aaa/bbb", "/aaa/bbb/", true),
        ("Prefix", "/aaa/bbb", "/aaa/bbb/ccc", true),
        ("Prefix", "/aaa/bbb", "/aaa/bbbxyz", false),
        ("Prefix", "/aaa", "/AAA", false),
        ("ImplementationSpecific", "/foo", "/foo/bar", true),
        ("ImplementationSpecific", "/foo", "/foobar", false),
    ] {
        let world = World::new().with("i", json!({"rules": [rule("h", json!([path(kind, rule_path, "s")]))]}));
        let found = world.table().find("h", asked).is_some();
        assert_eq!(found, matches, "{kind} {rule_path} for {asked}");
    }
}

#[test]
fn the_exact_path_and_then_the_longest_wins() {
    let paths = json!([
        path("Prefix", "/", "root"),
        path("Prefix", "/aaa", "short"),
        path("Prefix", "/aaa/bbb", "long"),
        path("Exact", "/aaa/bbb", "exact"),
        path("ImplementationSpecific", "/ccc/ddd", "ours"),
        path("Prefix", "/ccc", "theirs"),
    ]);
    World::new().with("i", json!({"rules": [rule("h", paths)]})).check(
        "h/ root
         h/aaa/ccc short
         h/aaa/bbb exact
         h/aaa/bbb/ long
         h/aaa/bbb/ccc long
         h/ccc theirs
         h/ccc/ddd/e ours
         h/zzz root
         other/ -",
    );
}

#[test]
fn hosts_are_exact_then_wildcards_then_any() {
    let rules = json!([
        rule("a.example.com", json!([path("Prefix", "/", "exact")])),
        rule("*.example.com", json!([path("Prefix", "/", "wildcard")])),
        rule("Upper.Example.com", json!([path("Prefix", "/", "upper")])),
        rule("only.example.com", json!([path("Prefix", "/only", "only")])),
        rule("", json!([path("Prefix", "/", "any")])),
    ]);
    World::new().with("i", json!({"rules": rules})).check(
        "a.example.com/ exact
         b.example.com/x wildcard
         b.a.example.com/ any
         example.com/ any
         .example.com/ any
         upper.example.com/ upper
         only.example.com/only only
         only.example.com/other -
         elsewhere.org/ any
         10.0.0.1/ any",
    );
}

#[test]
fn default_backends_take_what_is_left() {
    let world = World::new()
        .with(
            "own",
            json!({
                "defaultBackend": backend("left-of-own"),
                "rules": [rule("own.com", json!([path("Exact", "/x", "x")])), {"host": "bare.com"}],
            }),
        )
        .with("plain", json!({"rules": [rule("plain.com", json!([path("Exact", "/x", "x")]))]}))
        .with("all", json!({"defaultBackend": backend("left-of-all")}));
    world.check(
        "own.com/x x
         own.com/y left-of-own
         bare.com/ left-of-own
         plain.com/y left-of-own
         unknown.com/ left-of-own",
    );
    let world = World::new().with("all", json!({"defaultBackend": backend("left-of-all")}));
    world.check("unknown.com/x left-of-all");
}

#[test]
fn the_older_ingress_has_the_first_word() {
    let spec = |service: &str| json!({"rules": [rule("h", json!([path("Prefix", "/x", service)]))]});
    let mut world = World::new();
    world.add("young", "2026-01-02T00:00:00Z", json!({}), spec("young"));
    world.add("old", "2026-01-01T00:00:00Z", json!({}), spec("old"));
    world.check("h/x old");
    assert_eq!(world.problems(), ["a/young Conflict: path /x of host h belongs to Ingress a/old"]);
    let mut world = World::new();
    for name in ["b", "a"] {
        world.add(name, "2026-01-01T00:00:00Z", json!({}), spec(name));
    }
    world.check("h/x a");
}

#[test]
fn only_ingresses_of_our_classes_are_served() {
    let spec = |class: Option<&str>| {
        let mut spec = json!({"rules": [rule("h", json!([path("Prefix", "/", "s")]))]});
        if let Some(class) = class {
            spec["ingressClassName"] = class.into();
        }
        spec
    };
    let cases = [
        (json!({}), Some("knarr"), true, true),
        (json!({}), Some("second"), true, true),
        (json!({}), Some("nginx"), true, false),
        (json!({}), Some("unknown"), true, false),
        (json!({}), None, true, true),
        (json!({}), None, false, false),
        (json!({"kubernetes.io/ingress.class": "knarr"}), None, false, true),
        (json!({"kubernetes.io/ingress.class": "nginx"}), None, true, false),
        (json!({"kubernetes.io/ingress.class": "nginx"}), Some("knarr"), true, false),
    ];
    for (annotations, name, is_default, served) in cases {
        let mut world = World::new().annotated("i", annotations.clone(), spec(name));
        world.classes = vec![
            class("knarr", crate::CONTROLLER, is_default),
            class("second", crate::CONTROLLER, false),
            class("nginx", "k8s.io/ingress-nginx", !is_default),
        ];
        assert_eq!(world.table().find("h", "/").is_some(), served, "{annotations} {name:?} default {is_default}");
        assert_eq!(world.table().ingresses.len(), usize::from(served));
    }
}

#[test]
fn ports_are_found_by_name_and_number() {
    let table = |port: Value| {
        let paths = json!([{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": port}}}]);
        World::new().with("i", json!({"rules": [rule("h", paths)]})).table()
    };
    let by_name = table(json!({"name": "grpc"}));
    assert_eq!(
        by_name.backends,
        [Backend { service: Key::new("a", "s"), port: "grpc".into(), protocol: Protocol::H2c }]
    );
    let by_number = table(json!({"number": 80}));
    assert_eq!(
        by_number.backends,
        [Backend { service: Key::new("a", "s"), port: "web".into(), protocol: Protocol::Http }]
    );
    let wrong = table(json!({"number": 81}));
    assert_eq!(wrong.problems[0].message, "service \"a/s\" has no port \"81\"");
    assert_eq!(wrong.find("h", "/").expect("a route").route.backend, None);
}

#[test]
fn what_is_missing_is_said_and_the_rest_served() {
    let mut world = World::new().with(
        "i",
        json!({
            "rules": [rule("h", json!([
                path("Prefix", "/gone", "gone"),
                path("Prefix", "/external", "external"),
                path("Prefix", "/there", "there"),
                {"path": "/bucket", "pathType": "Prefix", "backend": {"resource": {"kind": "Bucket", "name": "b"}}},
            ]))],
            "tls": [{"hosts": ["h"], "secretName": "missing"}],
        }),
    );
    world.missing = vec!["gone"];
    assert_eq!(
        world.problems(),
        [
            "a/i ServiceNotFound: service \"a/gone\" not found",
            "a/i Backend: service \"a/external\" is of type ExternalName, which has no endpoints",
            "a/i Backend: only Services are supported as backends",
            "a/i Certificate: secret \"a/missing\" not found",
        ]
    );
    world.check("h/there there");
    let table = world.table();
    assert!(table.find("h", "/gone").expect("a route").route.backend.is_none());
    assert!(table.services.contains(&Key::new("a", "gone")), "its arrival must be noticed");
    assert!(table.secrets.contains(&Key::new("a", "missing")));
    assert!(table.find("h", "/there").expect("a route").tls, "without its certificate the host still has TLS");
}

#[test]
fn certificates_belong_to_hosts() {
    let table = World::new()
        .with("one", json!({
            "rules": [rule("a.com", json!([path("Prefix", "/", "s")]))],
            "tls": [{"hosts": ["A.com", "*.b.com"], "secretName": "first"}],
        }))
        .with("two", json!({
            "rules": [rule("a.com", json!([path("Prefix", "/2", "s")])), rule("c.com", json!([path("Prefix", "/", "s")]))],
            "tls": [{"secretName": "second"}],
        }))
        .table();
    let certificates: Vec<String> =
        table.certificates.iter().map(|(host, secret)| format!("{host} {}", secret.name)).collect();
    assert_eq!(certificates, ["*.b.com first", "a.com first", "c.com second"]);
}

#[test]
fn annotations_become_settings() {
    let read = |name: &str, value: &str| {
        let annotations = BTreeMap::from([(format!("nginx.ingress.kubernetes.io/{name}"), value.to_owned())]);
        Settings::read(&annotations)
    };
    assert_eq!(read("proxy-body-size", "8m").0.body_limit, Some(8 << 20));
    assert_eq!(read("proxy-body-size", "0").0.body_limit, Some(0));
    assert_eq!(read("proxy-body-size", "many").1.len(), 1);
    assert_eq!(read("proxy-read-timeout", "3600").0.read_timeout.map(|time| time.as_secs()), Some(3600));
    assert_eq!(read("proxy-read-timeout", "5m").0.read_timeout.map(|time| time.as_secs()), Some(300));
    assert!(!read("ssl-redirect", "false").0.ssl_redirect);
    assert!(read("force-ssl-redirect", "true").0.force_ssl_redirect);
    assert_eq!(read("backend-protocol", "grpc").0.protocol, Some(Protocol::H2c));
    assert_eq!(read("backend-protocol", "FCGI").1.len(), 1);
    assert_eq!(read("whitelist-source-range", "10.0.0.0/8, 1.2.3.4").0.allow.len(), 2);
    assert_eq!(
        read("permanent-redirect", "https://x").0.redirect,
        Some((http::StatusCode::MOVED_PERMANENTLY, "https://x".into()))
    );
    let (settings, problems) = read("affinity", "cookie");
    assert_eq!(settings.affinity.map(|affinity| affinity.cookie).as_deref(), Some("INGRESSCOOKIE"));
    assert!(problems.is_empty());
    // What would keep somebody out and is not understood keeps everybody out.
    for (name, value) in [("auth-url", "http://x"), ("auth-type", "basic"), ("whitelist-source-range", "10.0.0.0/33")] {
        let (settings, problems) = read(name, value);
        assert!(settings.refused.is_some() && problems.len() == 1, "{name}: {problems:?}");
    }
    assert_eq!(
        read("configuration-snippet", "x").1,
        ["annotation configuration-snippet is not supported and has no effect"]
    );
}

#[test]
fn patterns_are_patterns_where_annotations_say_so() {
    let annotations = json!({"nginx.ingress.kubernetes.io/rewrite-target": "/$2"});
    let paths = json!([path("ImplementationSpecific", "/api(/|$)(.*)", "api"), path("Prefix", "/", "root"),]);
    let world = World::new().annotated("i", annotations, json!({"rules": [rule("h", paths)]}));
    world.check(
        "h/api api
         h/API/users api
         h/apix root
         h/ root",
    );
    let annotations = json!({"nginx.ingress.kubernetes.io/use-regex": "true"});
    let world = World::new().annotated(
        "i",
        annotations,
        json!({"rules": [rule("h", json!([path("ImplementationSpecific", "/a(", "s")]))]}),
    );
    assert_eq!(world.problems().len(), 1);
    world.check("h/a -");
}

/// Endpoints as `address flags`: ready, serving, terminating.
fn slice(family: &str, port_name: &str, port: u16, all: &[(&str, &str)]) -> Arc<EndpointSlice> {
    let endpoints: Vec<Value> = all
        .iter()
        .map(|(address, flags)| {
            let conditions = json!({
                "ready": flags.contains('r'), "serving": flags.contains('s'), "terminating": flags.contains('t'),
            });
            json!({"addresses": [address], "conditions": conditions})
        })
        .collect();
    let ports = json!([{"name": "other", "port": 1}, {"name": port_name, "port": port, "protocol": "TCP"}]);
    object(json!({"addressType": family, "ports": ports, "endpoints": endpoints}))
}

#[test]
fn requests_go_to_those_that_are_ready() {
    let service = |spec: Value| object::<Service>(json!({"spec": spec}));
    let check = |service: &Service, slices: &[Arc<EndpointSlice>], expected: &[&str]| {
        let found: Vec<String> = endpoints(service, "web", slices).iter().map(|address| address.to_string()).collect();
        assert_eq!(found, expected);
    };
    let plain = service(json!({}));
    let mixed =
        slice("IPv4", "web", 8080, &[("10.0.0.2", "rs"), ("10.0.0.1", "rs"), ("10.0.0.3", "st"), ("10.0.0.4", "")]);
    check(&plain, std::slice::from_ref(&mixed), &["10.0.0.1:8080", "10.0.0.2:8080"]);
    // Where nobody is ready, those that end but still answer are better than nobody.
    let ending = slice("IPv4", "web", 8080, &[("10.0.0.3", "st"), ("10.0.0.4", "t")]);
    check(&plain, &[ending], &["10.0.0.3:8080"]);
    check(&plain, &[slice("IPv4", "http", 8080, &[("10.0.0.1", "rs")])], &[]);
    check(&plain, &[], &[]);
    let eager = service(json!({"publishNotReadyAddresses": true}));
    check(&eager, std::slice::from_ref(&mixed), &["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080", "10.0.0.4:8080"]);
    // Pods of a cluster with two families are there twice.
    let six = slice("IPv6", "web", 8080, &[("fd00::1", "rs")]);
    check(&plain, &[six.clone(), mixed.clone()], &["10.0.0.1:8080", "10.0.0.2:8080"]);
    check(&service(json!({"ipFamilies": ["IPv6", "IPv4"]})), &[six, mixed], &["[fd00::1]:8080"]);
    // One pod may have another number for a named port.
    let one = slice("IPv4", "web", 8080, &[("10.0.0.1", "rs")]);
    let other = slice("IPv4", "web", 9090, &[("10.0.0.2", "rs")]);
    check(&plain, &[one, other], &["10.0.0.1:8080", "10.0.0.2:9090"]);
}
