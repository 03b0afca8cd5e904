//! Against Debian's plugins (bridge with host-local, portmap), and a script that writes down what it was asked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command as Process;
use std::time::Duration;

use cri::v1::PortMapping;
use linux::netns::Namespace;

use super::*;

/// Where distributions put the plugins.
const PLUGINS: &str = "/usr/lib/cni";

struct Machine {
    node: Namespace,
    folder: tempfile::TempDir,
    network: Exec,
}

impl Machine {
    fn start(configuration: Value, bin_dirs: Vec<PathBuf>) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let node = Namespace::create().unwrap();
        node.run(|| assert!(Process::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success())).unwrap();
        let conf_dir = folder.path().join("conf");
        std::fs::create_dir(&conf_dir).unwrap();
        std::fs::write(conf_dir.join("10-test.conflist"), configuration.to_string()).unwrap();
        let config =
            Config { conf_dir, bin_dirs, state_dir: folder.path().join("state"), node_namespace: Some(node.path()) };
        Machine { node, network: Exec::open(config).unwrap(), folder }
    }
}

fn pod(name: &str, namespace: &Namespace) -> SandboxNetwork {
    SandboxNetwork {
        sandbox: name.repeat(16),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: "uid".to_owned(),
        netns: namespace.path(),
        port_mappings: vec![PortMapping { protocol: 0, host_port: 8080, container_port: 80, host_ip: String::new() }],
        annotations: Default::default(),
    }
}

fn call(namespace: &Namespace, address: &str) -> std::io::Result<String> {
    let address: SocketAddr = address.parse().unwrap();
    namespace.run(|| {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(3))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    })?
}

#[tokio::test(flavor = "multi_thread")]
async fn debians_plugins_link_a_pod() {
    let data = tempfile::tempdir().unwrap();
    let configuration = json!({ "cniVersion": "1.0.0", "name": "test", "plugins": [
        { "type": "bridge", "bridge": "test0", "isGateway": true, "hairpinMode": true,
          "ipam": { "type": "host-local", "dataDir": data.path(), "ranges": [[{ "subnet": "10.88.0.0/24" }]],
                    "routes": [{ "dst": "0.0.0.0/0" }] } },
        { "type": "tuning", "sysctl": { "net.core.somaxconn": "500" } },
    ] });
    let machine = Machine::start(configuration, vec!["/nonexistent".into(), PLUGINS.into()]);
    assert_eq!(machine.network.not_ready().await, None);
    let (first, second) = (Namespace::create().unwrap(), Namespace::create().unwrap());
    // A name that can be taken away, as a runtime does when the sandbox ends.
    let path = machine.folder.path().join("second");
    std::os::unix::fs::symlink(second.path(), &path).unwrap();
    let (one, two) = (pod("a", &first), SandboxNetwork { netns: path.clone(), ..pod("b", &second) });
    let addresses = machine.network.attach(&one).await.unwrap();
    assert_eq!(addresses.ips, ["10.88.0.2".parse::<IpAddr>().unwrap()]);
    assert_eq!(machine.network.attach(&one).await.unwrap(), addresses, "the same again");
    machine.network.attach(&two).await.unwrap();
    machine.network.check(&one.sandbox).await.unwrap();
    let listener = first.run(|| TcpListener::bind("0.0.0.0:80").unwrap()).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(|stream| drop(write!(stream.unwrap(), "hello"))));
    assert_eq!(call(&second, "10.88.0.2:80").unwrap(), "hello");
    assert_eq!(call(&machine.node, "10.88.0.2:80").unwrap(), "hello");

    // What was lost is noticed, and given back all the same.
    let removed =
        first.run(|| Process::new("ip").args(["address", "flush", "dev", "eth0"]).status().unwrap().success());
    assert!(removed.unwrap());
    assert!(machine.network.check(&one.sandbox).await.is_err());
    std::fs::remove_file(path).unwrap();
    machine.network.keep_only(std::slice::from_ref(&one.sandbox)).await.unwrap();
    assert!(!data.path().join("test/10.88.0.3").exists() && data.path().join("test/10.88.0.2").exists());
    machine.network.detach(&one).await.unwrap();
    machine.network.detach(&one).await.unwrap();
    assert!(!data.path().join("test/10.88.0.2").exists());
    assert_eq!(machine.folder.path().join("state").read_dir().unwrap().count(), 0);
}

/// A plugin that writes down its input and answers with an address; its name decides what it is.
fn script(folder: &std::path::Path, name: &str, body: &str) {
    let path = folder.join(name);
    let log = folder.join("log");
    let text = format!(
        "#!/bin/sh\ninput=$(cat)\necho \"$CNI_COMMAND {name} $CNI_IFNAME $CNI_ARGS $input\" >> {}\n{body}\n",
        log.display()
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_are_asked_by_the_letter_of_the_protocol() {
    let bin = tempfile::tempdir().unwrap();
    let result = r#"[ $CNI_COMMAND = ADD ] && echo '{"cniVersion":"1.1.0","interfaces":[{"name":"h"},{"name":"eth0","sandbox":"x"}],"ips":[{"address":"10.0.0.1/24","interface":0},{"address":"10.0.0.9/24","interface":1}]}'; exit 0"#;
    script(bin.path(), "first", result);
    script(bin.path(), "second", result);
    let plugins =
        json!([{ "type": "first" }, { "type": "second", "capabilities": { "portMappings": true, "ipRanges": true } }]);
    let configuration = json!({ "cniVersion": "1.1.0", "name": "n", "plugins": plugins });
    let machine = Machine::start(configuration, vec![bin.path().into()]);
    machine.network.set_pod_cidr("10.0.0.0/24").await.unwrap();
    let namespace = Namespace::create().unwrap();
    let pod = pod("a", &namespace);
    assert_eq!(machine.network.attach(&pod).await.unwrap().ips, ["10.0.0.9".parse::<IpAddr>().unwrap()]);
    machine.network.check(&pod.sandbox).await.unwrap();
    machine.network.keep_only(std::slice::from_ref(&pod.sandbox)).await.unwrap();
    assert_eq!(machine.network.not_ready().await, None);
    machine.network.detach(&pod).await.unwrap();

    let log = std::fs::read_to_string(bin.path().join("log")).unwrap();
    let calls: Vec<String> = log.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "ADD first",
        "ADD second",
        "CHECK first",
        "CHECK second",
        "GC first",
        "GC second",
        "STATUS first",
        "STATUS second",
        "DEL second",
        "DEL first",
    ];
    assert_eq!(calls, expected);
    let input = |index: usize| -> Value {
        serde_json::from_str(&log.lines().nth(index).unwrap()[log.lines().nth(index).unwrap().find('{').unwrap()..])
            .unwrap()
    };
    assert!(log.starts_with("ADD first eth0 IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;"));
    assert_eq!(input(0), json!({ "cniVersion": "1.1.0", "name": "n", "type": "first" }));
    assert_eq!(input(1)["prevResult"]["ips"][1]["address"], "10.0.0.9/24");
    assert_eq!(input(1)["runtimeConfig"]["portMappings"][0]["hostPort"], 8080);
    assert_eq!(input(1)["runtimeConfig"]["ipRanges"], json!([[{ "subnet": "10.0.0.0/24" }]]));
    assert_eq!(input(4)["cni.dev/valid-attachments"][0]["containerID"], pod.sandbox);
    assert_eq!(input(9)["prevResult"]["ips"][0]["address"], "10.0.0.1/24");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_told_and_taken_back() {
    let bin = tempfile::tempdir().unwrap();
    script(bin.path(), "good", "[ $CNI_COMMAND = ADD ] && echo '{}'; exit 0");
    script(
        bin.path(),
        "bad",
        "[ $CNI_COMMAND = DEL ] && exit 0; echo '{\"code\":11,\"msg\":\"no luck\",\"details\":\"today\"}'; exit 1",
    );
    let plugins = json!([{ "type": "good" }, { "type": "bad" }]);
    let machine =
        Machine::start(json!({ "cniVersion": "1.1.0", "name": "n", "plugins": plugins }), vec![bin.path().into()]);
    let namespace = Namespace::create().unwrap();
    let error = machine.network.attach(&pod("a", &namespace)).await.unwrap_err();
    assert_eq!(error.message, "plugin type=\"bad\" failed (add): no luck; today");
    let log = std::fs::read_to_string(bin.path().join("log")).unwrap();
    assert!(log.contains("\nDEL bad") && log.contains("\nDEL good"), "{log}");
    assert_eq!(machine.network.not_ready().await.unwrap(), "plugin type=\"bad\" failed (status): no luck; today");
    std::fs::remove_file(bin.path().join("good")).unwrap();
    assert!(machine.network.not_ready().await.unwrap().starts_with("plugin good not found"));
}

#[test]
fn bandwidth_is_read_from_annotations() {
    let read = |text: &str| bandwidth(&HashMap::from([("kubernetes.io/egress-bandwidth".to_owned(), text.to_owned())]));
    assert_eq!(read("10M"), Some(json!({ "egressRate": 10_000_000, "egressBurst": i32::MAX })));
    assert_eq!(read("1.5Ki").unwrap()["egressRate"], 1536);
    assert_eq!((read("5"), read("x"), read("2P"), bandwidth(&HashMap::new())), (None, None, None, None));
}
