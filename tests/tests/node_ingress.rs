//! The ingress of a real node: an application is reached from outside by its name, with and without TLS, and a rolling update
//! of it is not noticed.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::machine::{ADDRESS, connect_within};
use testkit::{Kubectl, Server};

/// Debug builds on a machine that runs other tests, too.
const LONG: Duration = Duration::from_secs(90);

fn until(kubectl: &Kubectl, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + LONG;
    loop {
        let output = kubectl.run(arguments).expect("kubectl runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if wanted(&said) {
            return said;
        }
        assert!(Instant::now() < deadline, "{arguments:?} says {said:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What curl on the node says; its exit code where it fails.
fn curl(server: &Server, arguments: &[&str]) -> Result<String, String> {
    let output = server.beside("curl").args(["-sS", "--max-time", "20"]).args(arguments).output().expect("curl runs");
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn until_curl(server: &Server, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + LONG;
    loop {
        let said = curl(server, arguments);
        if let Ok(text) = &said
            && wanted(text)
        {
            return text.clone();
        }
        assert!(Instant::now() < deadline, "{arguments:?} says {said:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn web(version: &str) -> Value {
    let container = json!({
        "name": "web",
        "image": "knarr.dev/demo:latest",
        "imagePullPolicy": "Never",
        "env": [{"name": "VERSION", "value": version}],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 1},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
            },
        },
    })
}

const SERVICE: &str = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}, "ports": [{"name": "web", "port": 80, "targetPort": "http"}]}}"#;

fn ingress() -> Value {
    let backend = json!({"service": {"name": "web", "port": {"name": "web"}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "web"},
        "spec": {
            "rules": [
                {"host": "plain.test", "http": {"paths": [path]}},
                {"host": "secret.test", "http": {"paths": [path]}},
            ],
            "tls": [{"hosts": ["secret.test"], "secretName": "secret-test"}],
        },
    })
}

/// One request after the other until told to stop, on connections that stay or on a new one each; how many were answered.
fn load(network: PathBuf, stop: &AtomicBool, answered: &AtomicUsize, keep: bool) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let open = |network: &Path| {
        let stream = connect_within(network, &format!("{ADDRESS}:80")).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(LONG)).map_err(text)?;
        Ok::<_, String>(stream)
    };
    let mut stream = open(&network)?;
    while !stop.load(Ordering::Relaxed) {
        if !keep {
            stream = open(&network)?;
        }
        stream.write_all(b"GET /hostname HTTP/1.1\r\nHost: plain.test\r\n\r\n").map_err(text)?;
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).map_err(text)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        if !head.starts_with("http/1.1 200 ") {
            return Err(head);
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        let mut body = vec![0; length.ok_or_else(|| format!("no length in {head}"))?];
        stream.read_exact(&mut body).map_err(text)?;
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[test]
fn an_application_is_reached_by_its_name_and_updated_unnoticed() {
    let server = Server::start_node(&["--ingress-metrics-address=127.0.0.1:10254"]).expect("a node starts");
    let kubectl = server.kubectl();
    let class = ["get", "ingressclass", "knarr", "-o", "jsonpath={.spec.controller}"];
    until(&kubectl, &class, |controller| controller == "knarr.dev/ingress");
    let classes = kubectl.ok(&["get", "ingressclass"]);
    assert!(classes.contains("knarr.dev/ingress"), "{classes}");
    assert_eq!(
        curl(&server, &["-o", "/dev/null", "-w", "%{http_code}", "http://172.29.0.1/"]).expect("an answer"),
        "404",
        "the port is open from the start"
    );

    // First the Ingress: it has no class, so it gets ours, and what it misses is said.
    let folder = tempfile::tempdir().expect("a folder");
    kubectl.ok_with(&["create", "-f", "-"], &ingress().to_string());
    let name = kubectl.ok(&["get", "ingress", "web", "-o", "jsonpath={.spec.ingressClassName}"]);
    assert_eq!(name, "knarr");
    until(&kubectl, &["describe", "ingress", "web"], |text| {
        text.contains("ServiceNotFound") && text.contains("service \"default/web\" not found")
    });
    let plain = ["--connect-to", "plain.test:80:172.29.0.1:80", "http://plain.test/hello"];
    let code = ["-o", "/dev/null", "-w", "%{http_code}", plain[0], plain[1], plain[2]];
    assert_eq!(curl(&server, &code).expect("an answer"), "503");
    let address = ["get", "ingress", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"];
    until(&kubectl, &address, |address| address == "172.29.0.1");
    let shown = kubectl.ok(&["get", "ingress", "web"]);
    assert!(
        shown.contains("plain.test,secret.test") && shown.contains("172.29.0.1") && shown.contains("80, 443"),
        "{shown}"
    );

    // Then what is behind it.
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(vec!["secret.test".to_owned()]).expect("names");
    let certificate = parameters.self_signed(&key).expect("a certificate").pem();
    let (certificate_path, key_path) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&certificate_path, &certificate).expect("written");
    std::fs::write(&key_path, key.serialize_pem()).expect("written");
    let (certificate_path, key_path) = (certificate_path.display().to_string(), key_path.display().to_string());
    kubectl.ok(&["create", "secret", "tls", "secret-test", "--cert", &certificate_path, "--key", &key_path]);
    kubectl.ok_with(&["create", "-f", "-"], SERVICE);
    kubectl.ok_with(&["create", "-f", "-"], &web("1").to_string());
    let said = until_curl(&server, &plain, |text| text.contains("pod: web-"));
    for part in
        ["request: GET /hello HTTP/1.1", "header: x-forwarded-for: 172.29.0.1", "header: x-forwarded-proto: http\n"]
    {
        assert!(said.to_ascii_lowercase().contains(&part.to_ascii_lowercase()), "no {part:?} in {said}");
    }
    assert!(said.contains("address: 10.42.0."), "the pod itself is asked: {said}");

    // With TLS, as browsers do it, and without it sent there.
    let connect = "secret.test:443:172.29.0.1:443";
    let secret =
        ["--cacert", &certificate_path, "--connect-to", connect, "-w", "%{http_version}", "https://secret.test/"];
    let said = until_curl(&server, &secret, |text| text.contains("pod: web-"));
    assert!(said.ends_with('2') && said.to_ascii_lowercase().contains("x-forwarded-proto: https"), "{said}");
    let redirect =
        ["-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", "-H", "Host: secret.test", "http://172.29.0.1/a?b"];
    assert_eq!(curl(&server, &redirect).expect("an answer"), "308 https://secret.test/a?b");

    // A rolling update under load.
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=90s"]);
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let network = server.machine().network();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..6)
            .map(|number| {
                let network = network.clone();
                let (stop, answered) = (&stop, &answered);
                scope.spawn(move || load(network, stop, answered, number % 2 == 0))
            })
            .collect();
        kubectl.ok_with(&["apply", "-f", "-"], &web("2").to_string());
        kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=90s"]);
        // The last of the old pods is gone, too.
        until(&kubectl, &["get", "pods", "-l", "app=web", "--no-headers"], |pods| pods.lines().count() == 3);
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("a client").expect("no request fails");
        }
    });
    assert!(answered.load(Ordering::Relaxed) > 100, "{} requests", answered.load(Ordering::Relaxed));
    let metrics = curl(&server, &["http://127.0.0.1:10254/metrics"]).expect("metrics");
    assert!(metrics.contains("nginx_ingress_controller_requests{namespace=\"default\",ingress=\"web\""), "{metrics}");
}

#[test]
fn a_node_without_ingress_has_no_open_port() {
    let server = Server::start_node(&["--disable=ingress"]).expect("a node starts");
    let kubectl = server.kubectl();
    until(&kubectl, &["get", "nodes"], |nodes| nodes.contains(" Ready"));
    assert!(curl(&server, &["http://172.29.0.1/"]).is_err());
    assert_eq!(kubectl.ok(&["get", "ingressclass", "-o", "name"]), "");
}
