//! Attacks on joining: with a text that was guessed, with Secrets that were read, with a token that was stolen, with the rights of
//! a node. Each of them got in once.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use testkit::attack::held;
use testkit::{Agent, Cluster, Machine, Options, Place, Server};

const PATIENCE: Duration = Duration::from_secs(90);

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What a guess at a text was before: one hash for each part.
fn legacy(purpose: &str, text: &str, length: usize) -> String {
    use sha2::Digest;
    let letters = b"abcdefghijklmnopqrstuvwxyz234567";
    let digest = sha2::Sha256::digest(format!("knarr {purpose}: {text}"));
    digest.iter().take(length).map(|byte| char::from(letters[usize::from(byte % 32)])).collect()
}

#[test]
fn a_text_is_neither_cracked_nor_kept_in_clear() {
    let text = "correct horse battery";
    let arguments = vec!["--token".to_owned(), text.to_owned()];
    let server = Server::start_with(Options { arguments, machine: None }).unwrap();
    let kubectl = server.kubectl();
    // Nothing that everybody may read depends on the text, so there is nothing to try guesses on.
    let public = kubectl.ok(&["get", "configmaps", "-n", "kube-public", "-o", "json"]);
    held(
        "signature with the server token over what everybody reads",
        !public.contains("jws-kubeconfig-server"),
        &public,
    );
    held("id of a token that follows from its text", !public.contains(&legacy("id", text, 6)), &public);
    // Neither Secrets nor, since they are the same, the store lead to the keys.
    let path = "{range .items[*]}{range .data.*}{@}{\"\\n\"}{end}{end}";
    let secrets = kubectl.ok(&["get", "secrets", "-n", "kube-system", "-o", &format!("jsonpath={path}")]);
    let kept = std::fs::read_to_string(server.data_dir().join("server/token")).unwrap();
    let kept = kept.trim().rsplit_once(':').unwrap().1.to_owned();
    assert_eq!(kept, text);
    let encode = |text: &str| {
        let mut command = Command::new("base64");
        let mut child = command
            .arg("-w0")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    for plain in [text.to_owned(), legacy("secret", text, 16), legacy("id", text, 6)] {
        held("token in a Secret", !secrets.lines().any(|line| line == encode(&plain)), &plain);
    }
    // The list of processes does not show it.
    let line = std::fs::read(format!("/proc/{}/cmdline", server.pid())).unwrap();
    let line = String::from_utf8_lossy(&line).into_owned();
    held("token in the process list", line.contains("--token") && !line.contains(text), &line);
}

#[test]
fn a_word_is_no_token() {
    let arguments = vec!["--token".to_owned(), "sunshine1".to_owned()];
    let refused = Server::start_with(Options { arguments, machine: None }).err().expect("it is refused").to_string();
    held("a word as a token", refused.contains("too easy to guess"), &refused);
}

#[test]
fn an_older_folder_goes_on_and_its_token_leaves_the_secrets() {
    let mut server = Server::start().unwrap();
    let hash = std::fs::read_to_string(server.data_dir().join("server/token")).unwrap();
    let hash = hash.split_once("::").unwrap().0.to_owned();
    server.kill().unwrap();
    // As older versions wrote it.
    std::fs::write(server.data_dir().join("server/token"), format!("{hash}::abcdef.0123456789abcdef\n")).unwrap();
    server.restart().unwrap();
    let secret = r#"{"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true"}}"#;
    server.kubectl().ok_with(&["create", "-f", "-"], secret);
    server.restart().unwrap();
    let secrets = server.kubectl().ok(&["get", "secrets", "-n", "kube-system", "-o", "name"]);
    held("token of an older folder in a Secret", !secrets.contains("bootstrap-token-abcdef"), &secrets);
    assert!(secrets.contains("bootstrap-token-server"), "{secrets}");
}

#[test]
fn a_stolen_token_takes_over_no_node() {
    let mut cluster = Cluster::start(2, 1, &[]).unwrap();
    let kubectl = cluster.server.kubectl();
    let token = cluster.server.data_dir().join("server/node-token").display().to_string();
    let url = cluster.server.url.replace("127.0.0.1", &cluster.server.machine().address());
    let machine = Arc::new(Machine::start_on(&cluster.hub, Place { link: 0, host: 9 }).unwrap());
    let join = |name: &str| {
        let arguments = ["--server", &url, "--token-file", &token].map(str::to_owned).to_vec();
        Agent::start(machine.clone(), name, arguments)
    };
    for name in ["node-1", "node-2"] {
        eventually("the node is there", || kubectl.run(&["get", "node", name]).unwrap().status.success());
        let refused = join(name).err().expect("it is refused").to_string();
        held(
            &format!("name {name} with a stolen token"),
            refused.contains("has joined from another machine"),
            &refused,
        );
    }
    // The name is free when its owner is gone and somebody has said so.
    cluster.agents[0].kill().unwrap();
    kubectl.ok(&["delete", "node", "node-2"]);
    let mut agent = None;
    eventually("the new machine gets the name", || join("node-2").map(|joined| agent = Some(joined)).is_ok());
    // The token of nodes has an end.
    let path = "{.items[?(@.type==\"bootstrap.kubernetes.io/token\")].data.expiration}";
    assert!(!kubectl.ok(&["get", "secrets", "-n", "kube-system", "-o", &format!("jsonpath={path}")]).trim().is_empty());
}

/// A request for a serving certificate, made with the rights and from the machine of a node.
struct Node<'a> {
    cluster: &'a Cluster,
    folder: tempfile::TempDir,
}

impl Node<'_> {
    fn new(cluster: &Cluster) -> Node<'_> {
        let folder = tempfile::tempdir().unwrap();
        let agent = cluster.agents[0].data_dir().join("agent");
        let url = cluster.server.url.replace("127.0.0.1", &cluster.server.machine().address());
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster: {{server: \"{url}\", certificate-authority: {0}/ca.crt}}\ncontexts:\n- name: c\n  context: {{cluster: c, user: u}}\nusers:\n- name: u\n  user: {{client-certificate: {0}/client-kubelet.crt, client-key: {0}/client-kubelet.key}}\n",
            agent.display()
        );
        std::fs::write(folder.path().join("kubeconfig"), text).unwrap();
        Node { cluster, folder }
    }

    fn kubectl(&self, arguments: &[&str], input: &str) -> std::process::Output {
        let mut command = self.cluster.machine(2).command(testkit::server::binary().unwrap());
        command.arg("kubectl").arg("--kubeconfig").arg(self.folder.path().join("kubeconfig")).args(arguments);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    fn request(&self, name: &str, names: &str) {
        let at = |file: &str| self.folder.path().join(file).display().to_string();
        let made = Command::new("openssl")
            .args([
                "req",
                "-new",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-keyout",
                &at("key"),
            ])
            .args(["-subj", "/O=system:nodes/CN=system:node:node-2", "-addext", &format!("subjectAltName={names}")])
            .args(["-out", &at("csr")])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let encoded = Command::new("base64").arg("-w0").arg(at("csr")).output().unwrap().stdout;
        let object = format!(
            r#"{{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {{"name": "{name}"}},
            "spec": {{"signerName": "kubernetes.io/kubelet-serving", "usages": ["digital signature", "server auth"],
            "extra": {{"knarr.dev/source-address": ["10.99.0.1"]}}, "request": "{}"}}}}"#,
            String::from_utf8(encoded).unwrap()
        );
        let output = self.kubectl(&["create", "-f", "-"], &object);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_node_gets_no_certificate_and_no_request_of_the_server() {
    let cluster = Cluster::start(2, 1, &[]).unwrap();
    let kubectl = cluster.server.kubectl();
    eventually("the node is there", || kubectl.run(&["get", "node", "node-2"]).unwrap().status.success());
    let node = Node::new(&cluster);
    let (server, own) = (cluster.server.machine().address(), cluster.machine(2).address());
    let attacks = [
        ("server", format!("DNS:node-2,IP:{server}")),
        ("service", "DNS:node-2,IP:10.43.0.1".into()),
        ("loopback", "DNS:node-2,IP:127.0.0.1".into()),
        ("localhost", "DNS:node-2,DNS:localhost".into()),
        ("kubernetes", "DNS:kubernetes.default.svc".into()),
        ("unproven", format!("DNS:node-2,IP:{own},IP:10.99.0.1")),
    ];
    for (name, names) in &attacks {
        node.request(name, names);
    }
    // By then the others were looked at, too.
    node.request("own", &format!("DNS:node-2,IP:{own}"));
    let certificate = |name: &str| kubectl.ok(&["get", "csr", name, "-o", "jsonpath={.status.certificate}"]);
    eventually("what is its own is issued", || !certificate("own").is_empty());
    std::thread::sleep(Duration::from_secs(2));
    for (name, _) in &attacks {
        held(&format!("certificate {name}"), certificate(name).is_empty(), "it was issued");
    }

    // It says that its kubelet is the API server: the server must not ask itself in its own name.
    let port = cluster.server.url.rsplit_once(':').unwrap().1;
    for address in [server.as_str(), "127.0.0.1", "localhost"] {
        let kind = if address == "localhost" { "Hostname" } else { "InternalIP" };
        let status = format!(
            r#"{{"status": {{"addresses": [{{"type": "{kind}", "address": "{address}"}}], "daemonEndpoints": {{"kubeletEndpoint": {{"Port": {port}}}}}}}}}"#
        );
        kubectl.ok(&["patch", "node", "node-2", "--subresource=status", "--type=merge", "-p", &status]);
        let answer = kubectl.run(&["get", "--raw", "/api/v1/nodes/node-2/proxy/api/v1/namespaces/kube-system/secrets"]);
        let answer = answer.unwrap();
        let seen = String::from_utf8_lossy(&answer.stdout);
        held(&format!("API server as a kubelet at {address}"), !answer.status.success(), seen);
    }
    // And where it does ask, it is nobody who may do everything.
    let file = cluster.server.data_dir().join("tls/apiserver-kubelet-client.crt");
    let subject = Command::new("openssl").args(["x509", "-noout", "-subject", "-in"]).arg(file).output().unwrap();
    let subject = String::from_utf8(subject.stdout).unwrap();
    let is_narrow = subject.contains("kube-apiserver-kubelet-client") && !subject.contains("system:masters");
    held("administrator towards kubelets", is_narrow, &subject);
}
