//! How a server is told what to do: by flags, variables, files, and a folder of manifests.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::server::{Options, binary};
use testkit::{Kubectl, Server};

const SOON: Duration = Duration::from_secs(30);

/// Asks until the answer is the wanted one.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {SOON:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn said(kubectl: &Kubectl, line: &str) -> String {
    let output = kubectl.run(&line.split(' ').collect::<Vec<_>>()).expect("kubectl runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// How a server ends that is told nonsense, and what it says.
fn refused(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let mut command = Command::new(binary().expect("knarr is built"));
    command.args(["server", "--disable-agent", "--https-port=0", "--data-dir"]).arg(&data).args(arguments);
    command.envs(variables.iter().copied()).stdin(Stdio::null());
    let output = command.output().expect("knarr runs");
    assert!(!output.status.success(), "{arguments:?}");
    assert!(!data.exists(), "nothing is started");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
    std::fs::write(path, text).expect("the file is written");
}

/// The names and addresses of the certificate that a server shows.
fn names(server: &Server) -> String {
    let pem = server.data_dir().join("tls/apiserver.crt");
    let output = Command::new("openssl").args(["x509", "-noout", "-ext", "subjectAltName", "-in"]).arg(pem).output();
    String::from_utf8_lossy(&output.expect("openssl runs").stdout).into_owned()
}

#[test]
fn a_flag_is_stronger_than_a_variable_and_that_than_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy/kubeconfig");
    let text = format!(
        "tls-san: [file.example.com]\nservice-cidr: 10.53.0.0/16\nevent-ttl: 30m\ncluster-domain: in.the.file\nwrite-kubeconfig: {}\n\
         disable: [coredns, servicelb, local-storage, metrics-server]\nservice-node-port-range: 31000-31001\n",
        copy.display()
    );
    write(folder.path(), "config.yaml", &text);
    write(folder.path(), "config.yaml.d/10.yaml", "tls-san+: [192.0.2.10]\nwrite-kubeconfig-mode: \"0640\"\n");
    write(folder.path(), "config.yaml.d/20.yaml", "cluster-domain: second.file\n");
    let config = format!("--config={}", folder.path().join("config.yaml").display());
    let arguments = |more: &[&str]| -> Vec<String> {
        [&config, "--disable-scheduler"].into_iter().chain(more.iter().copied()).map(str::to_owned).collect()
    };
    write(folder.path(), "token", "the text of the flag");
    let token = format!("--token-file={}", folder.path().join("token").display());
    let variables = [
        ("KNARR_CLUSTER_DOMAIN", "variable.example"),
        ("KNARR_SERVICE_CIDR", "10.63.0.0/16"),
        ("K3S_TOKEN", "the text of the variable"),
        ("K3S_AGENT_TOKEN", "the text of the nodes"),
    ];
    let options = Options { arguments: arguments(&["--service-cidr=10.73.0.0/16", &token]), ..Options::default() };
    let data = tempfile::tempdir().expect("a folder");
    let mut server = Server::start_told(data, options, &variables).expect("a server starts");
    let kubectl = server.kubectl();
    let get = |line: &str| said(&kubectl, line);
    assert_eq!(get("get service kubernetes -o jsonpath={.spec.clusterIP}"), "10.73.0.1");
    let found = names(&server);
    for name in ["file.example.com", "192.0.2.10", "kubernetes.default.svc.variable.example", "10.73.0.1"] {
        assert!(found.contains(name), "{name} in {found}");
    }
    assert_eq!(get("get storageclass,apiservice v1beta1.metrics.k8s.io --ignore-not-found -o name"), "");
    // The variable of a token gives way to the flag of its file.
    let tokens = "get secrets -n kube-system --field-selector type=bootstrap.kubernetes.io/token -o jsonpath={.items[*].data.token-secret}";
    let before = get(tokens);
    assert_eq!(before.split_whitespace().count(), 2, "{before}");
    let sealed = "get secrets -n kube-system --field-selector type=knarr.dev/servers -o jsonpath={.items[*].data}";
    let sealed_before = get(sealed);
    // Two ports for Services, and not one more.
    for (name, works) in [("a", true), ("b", true), ("c", false)] {
        let made = kubectl.run(&["create", "service", "nodeport", name, "--tcp=80"]).expect("kubectl runs");
        assert_eq!(made.status.success(), works, "{}", String::from_utf8_lossy(&made.stderr));
    }
    // The kubeconfig stands where it was wanted, for those who were meant.
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&copy).expect("it is there").permissions());
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(std::fs::read(&copy).expect("a file"), std::fs::read(server.kubeconfig()).expect("a file"));

    // A name that is added later is in the certificate, too. A token that is changed replaces the old one.
    write(folder.path(), "token", "another text of the flag");
    server.set_arguments(arguments(&[
        "--service-cidr=10.73.0.0/16",
        &token,
        "--tls-san=later.example.com,a.example.com",
    ]));
    server.restart().expect("it starts again");
    let found = names(&server);
    assert!(found.contains("later.example.com") && !found.contains("file.example.com"), "{found}");
    let after = said(&server.kubectl(), tokens);
    assert_eq!(after.split_whitespace().filter(|one| before.contains(*one)).count(), 1, "{before} and {after}");
    assert_eq!(after.split_whitespace().count(), 2, "{after}");
    assert_ne!(said(&server.kubectl(), sealed), sealed_before);
}

#[test]
fn nonsense_stops_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |text: &str, expected: &[&str]| {
        write(folder.path(), "bad.yaml", text);
        let error = refused(&["--config", folder.path().join("bad.yaml").to_str().expect("a path")], &[]);
        for part in [&["bad.yaml"][..], expected].concat() {
            assert!(error.contains(part), "{text:?}: {error}");
        }
    };
    check("tls-sans: [a]\n", &["tls-sans", "did you mean \"tls-san\"?"]);
    check("max-pods: many\n", &["max-pods", "many"]);
    check("write-kubeconfig-mode: 0640\n", &["quotes"]);
    check("a: b: c\n", &["yaml"]);
    let error = refused(&["--config=/nowhere/config.yaml"], &[]);
    assert!(error.contains("/nowhere/config.yaml"), "{error}");
    let error = refused(&["--disable=treafik"], &[]);
    assert!(error.contains("treafik") && error.contains("traefik") && error.contains("servicelb"), "{error}");
    let error = refused(&["--disable-agent=false", "--node-taint=a=b:Never"], &[]);
    assert!(error.contains("--node-taint"), "{error}");
    let error = refused(&["--controllers=no-such-controller"], &[]);
    assert!(error.contains("no-such-controller"), "{error}");
    let error = refused(&[], &[("KNARR_KUBELET_ARG", "no-such-flag=1")]);
    assert!(error.contains("no-such-flag") && error.contains("max-pods"), "{error}");
}

#[test]
fn what_is_disabled_leaves_nothing_behind() {
    let mut server = Server::start_node(&[]).expect("a node starts");
    let kubectl = server.kubectl();
    let ours = "get -n kube-system service/knarr-ingress service/kube-dns ingressclass/knarr storageclass/local-path \
                apiservice/v1beta1.metrics.k8s.io --ignore-not-found -o name";
    let ours = ours.split_whitespace().collect::<Vec<_>>().join(" ");
    until("everything is there", || said(&kubectl, &ours).lines().count() == 5);
    let roles =
        said(&kubectl, "get node node-1 -o jsonpath={.metadata.labels.node-role\\.kubernetes\\.io/control-plane}");
    assert_eq!(roles, "true");
    kubectl.ok(&["create", "service", "loadbalancer", "web", "--tcp=8081:8080"]);
    let balanced = "get service web -o jsonpath={.status.loadBalancer.ingress[*].ip}";
    until("the load balancer is there", || !said(&kubectl, balanced).is_empty());

    // One of them is somebody else's by now.
    kubectl.ok(&["annotate", "storageclass", "local-path", "mine=yes"]);
    let names = "--disable=traefik,coredns,local-storage,metrics-server,servicelb";
    server.set_arguments(vec![names.into(), "--node-external-ip=203.0.113.7".into(), "--pause-image=x".into()]);
    server.restart().expect("it starts again");
    until("all but that one are gone", || said(&kubectl, &ours) == "storageclass.storage.k8s.io/local-path");
    until("nobody balances any more", || said(&kubectl, balanced).is_empty());
    kubectl.ok(&["delete", "service", "web", "--timeout=20s"]);
    until("the world's address is shown", || {
        said(&kubectl, "get node node-1 -o jsonpath={.status.addresses[?(@.type==\"ExternalIP\")].address}")
            == "203.0.113.7"
    });
}

const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boxes.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boxes, singular: box, kind: Box, listKind: BoxList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

fn map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: {value:?}}}\n---\n")
}

#[test]
fn manifests_are_in_the_cluster() {
    let folder = tempfile::Builder::new().prefix("knarr-test-").tempdir().expect("a folder");
    let data = folder.path().to_owned();
    let put = |name: &str, text: &str| write(&data.join("server/manifests"), name, text);
    // The object stands before its kind, and its namespace in a later file.
    let object = "apiVersion: example.com/v1\nkind: Box\nmetadata: {name: one, namespace: later}\nsize: 1\n---\n";
    put("10-boxes.yaml", &format!("{object}{DEFINITION}"));
    put("20-sub/space.json", r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}}"#);
    put("30-maps.yml", &(map("first", "1") + &map("second", "1")));
    put("40-broken.yaml", "kind: ConfigMap\n  bad: [\n");
    put("50-refused.yaml", &(map("Not_A_Name", "1") + &map("good", "1")));
    put("60-skipped.yaml", &map("skipped", "1"));
    put("60-skipped.yaml.skip", "");
    let arguments = |more: &[&str]| -> Vec<String> {
        let parts = "--disable=kube-scheduler,cloud-controller-manager,local-storage,dns,metrics-server";
        let few = "--controllers=garbage-collector-controller,namespace-controller";
        [parts, few].into_iter().chain(more.iter().copied()).map(str::to_owned).collect()
    };
    let options = Options { arguments: arguments(&[]), ..Options::default() };
    let mut server = Server::start_in(folder, options).expect("a server starts");
    let kubectl = server.kubectl();
    let get = |line: &str| said(&kubectl, line);
    let value = |name: &str| get(&format!("get configmap {name} --ignore-not-found -o jsonpath={{.data.a}}"));

    until("the box is there", || get("get box one -n later -o jsonpath={.size}") == "1");
    until("the maps are there", || value("first") == "1" && value("second") == "1");
    until("the rest of a file that is refused in part", || value("good") == "1");
    let failures =
        "get events -n kube-system --field-selector reason=ApplyManifestFailed -o jsonpath={.items[*].message}";
    until("both are told", || {
        let told = get(failures);
        told.contains("40-broken.yaml") && told.contains("50-refused.yaml") && told.contains("Not_A_Name")
    });
    let applied = "get events -n kube-system --field-selector reason=AppliedManifest -o jsonpath={.items[*].message}";
    until("so is what went well", || {
        get(applied).contains("10-boxes.yaml") && get(applied).contains("20-sub/space.json")
    });
    assert_eq!(value("skipped"), "");

    // What changes in a file changes, what leaves it is deleted, and what moves to another file is not.
    let uid = get("get configmap second -o jsonpath={.metadata.uid}");
    put("30-maps.yml", &map("third", "1"));
    put("05-moved.yaml", &map("second", "2"));
    until("the files are applied", || value("second") == "2" && value("third") == "1");
    until("what left is deleted", || value("first").is_empty());
    assert_eq!(get("get configmap second -o jsonpath={.metadata.uid}"), uid);
    put("40-broken.yaml", &map("whole", "1"));
    until("a mended file is applied", || value("whole") == "1");

    // Also while nobody looked. A file that is gone leaves its objects, and one that is disabled takes them away.
    assert!(server.terminate().expect("it stops"));
    put("05-moved.yaml", &map("fourth", "1"));
    std::fs::remove_file(data.join("server/manifests/40-broken.yaml")).expect("the file goes");
    server.set_arguments(arguments(&["--disable=30-maps", "--disable=20-sub"]));
    server.restart().expect("it starts again");
    until("what left is deleted", || value("fourth") == "1" && value("second").is_empty());
    until("what is disabled is deleted", || value("third").is_empty() && get("get namespace later -o name").is_empty());
    assert_eq!((value("whole"), value("good")), ("1".to_owned(), "1".to_owned()));
    assert!(data.join("server/manifests/30-maps.yml").exists());
}
