//! What there is: files, flags in use, objects, sockets. Read once; rules only look at it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nlink::Connection;
use nlink::netlink::Nftables;
use serde_json::Value;

use super::{Place, probe};

/// Files below the data folder are looked at this far; what containers fill is not ours to judge.
const DEPTH_MAX: usize = 6;
const SKIPPED: [&str; 5] = ["runtime", "storage", "kubelet", "clusters", "images"];
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub struct State {
    pub data_dir: PathBuf,
    /// Below the data folder and in the places of the service, by full path.
    pub files: Vec<Seen>,
    /// None where this machine is no server, and no kubeconfig was given.
    pub cluster: Option<Cluster>,
    pub node: Option<Node>,
    /// Why the node of this machine could not be asked.
    pub node_error: Option<String>,
    /// On what TCP addresses this machine listens.
    pub listening: Vec<SocketAddr>,
    /// The arguments of the etcd that knarr runs here.
    pub etcd: Option<Vec<String>>,
    /// Tables of the kernel's packet filter.
    pub tables: Vec<String>,
}

/// A file or folder as it is on the disk.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub path: PathBuf,
    pub mode: u32,
    pub owner: (u32, u32),
    pub is_dir: bool,
}

/// What the API server says.
#[derive(Debug, Default)]
pub struct Cluster {
    /// What it runs with, as its `/flagz` has it.
    pub flags: BTreeMap<String, String>,
    /// By plural.
    pub objects: BTreeMap<&'static str, Vec<Value>>,
    /// How it answers a client that offers weak ciphers only.
    pub weak_ciphers: probe::Offered,
    /// What it answers whoever asks for a profile.
    pub profile_code: u16,
}

/// This machine's node.
#[derive(Debug, Default)]
pub struct Node {
    pub name: String,
    /// What its kubelet runs with, as its `/configz` has it.
    pub configuration: Value,
    pub weak_ciphers: probe::Offered,
    /// What its kubelet answers who shows no proof of who it is; none where it cannot be asked.
    pub anonymous_code: Option<u16>,
}

/// What is listed, and where.
const LISTS: [(&str, &str); 19] = [
    ("nodes", "/api/v1/nodes"),
    ("pods", "/api/v1/pods"),
    ("namespaces", "/api/v1/namespaces"),
    ("serviceaccounts", "/api/v1/serviceaccounts"),
    ("services", "/api/v1/services"),
    ("secrets", "/api/v1/namespaces/kube-system/secrets"),
    ("configmaps", "/api/v1/namespaces/default/configmaps"),
    ("deployments", "/apis/apps/v1/deployments"),
    ("statefulsets", "/apis/apps/v1/statefulsets"),
    ("daemonsets", "/apis/apps/v1/daemonsets"),
    ("jobs", "/apis/batch/v1/jobs"),
    ("networkpolicies", "/apis/networking.k8s.io/v1/networkpolicies"),
    ("certificatesigningrequests", "/apis/certificates.k8s.io/v1/certificatesigningrequests"),
    ("roles", "/apis/rbac.authorization.k8s.io/v1/roles"),
    ("clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ("rolebindings", "/apis/rbac.authorization.k8s.io/v1/rolebindings"),
    ("clusterrolebindings", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    ("validatingwebhookconfigurations", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"),
    ("validatingadmissionpolicies", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"),
];

const FLAGZ: &str = "application/json;as=Flagz;g=config.k8s.io;v=v1beta1";

impl State {
    pub async fn look(place: &Place) -> anyhow::Result<State> {
        let data_dir = std::path::absolute(&place.data_dir).context("find data directory")?;
        ensure!(rustix::process::geteuid().is_root(), "only root can read the cluster's files: use sudo");
        ensure!(data_dir.is_dir(), "{} is not a data directory: set --data-dir", data_dir.display());
        let mut files = Vec::new();
        walk(&data_dir, DEPTH_MAX, &mut files);
        // What the network of a node that runs knows is gone with the machine's power, and lies elsewhere.
        for part in ["network", "cni"] {
            walk(&crate::node::state_dir(&data_dir).join(part), DEPTH_MAX, &mut files);
        }
        for path in ["/etc/knarr", "/etc/systemd/system/knarr.service", "/etc/systemd/system/knarr-agent.service"] {
            see(Path::new(path), &mut files);
        }
        let kubeconfig = place.kubeconfig.clone().unwrap_or_else(|| data_dir.join("admin.kubeconfig"));
        let mut state = State {
            etcd: etcd_arguments(&data_dir),
            listening: listening(),
            tables: tables().await,
            data_dir,
            files,
            ..State::default()
        };
        if kubeconfig.is_file() {
            let config = read(&kubeconfig).await?;
            let client = kube::Client::try_from(config.clone()).context("create client")?;
            let cluster = Cluster::look(&client, &config).await?;
            match Node::look(&client, &cluster, place.node_name.as_deref()).await {
                Ok(node) => state.node = node,
                Err(error) => state.node_error = Some(format!("{error:#}")),
            }
            state.cluster = Some(cluster);
        } else if place.kubeconfig.is_some() || !state.data_dir.join("agent").is_dir() {
            bail!("cannot find {}: set --data-dir or --kubeconfig", kubeconfig.display());
        }
        Ok(state)
    }

    pub fn flag(&self, name: &str) -> Option<&str> {
        self.cluster.as_ref()?.flags.get(name).map(String::as_str)
    }

    /// The objects of a kind; none where no server was asked.
    pub fn objects(&self, plural: &str) -> &[Value] {
        self.cluster.as_ref().and_then(|cluster| cluster.objects.get(plural)).map_or(&[], Vec::as_slice)
    }
}

impl Cluster {
    async fn look(client: &kube::Client, config: &kube::Config) -> anyhow::Result<Cluster> {
        let flagz: Value = serde_json::from_str(&get(client, "/flagz", FLAGZ).await?).context("read /flagz")?;
        let flags = serde_json::from_value(flagz["flags"].clone()).context("read /flagz")?;
        let mut objects = BTreeMap::new();
        for (plural, path) in LISTS {
            let list: Value = serde_json::from_str(&get(client, path, "application/json").await?)?;
            objects.insert(plural, list["items"].as_array().cloned().unwrap_or_default());
        }
        let profile = get(client, "/debug/pprof/", "*/*").await;
        Ok(Cluster {
            flags,
            objects,
            weak_ciphers: probe::weak_ciphers(&config.cluster_url).await,
            profile_code: if profile.is_ok() { 200 } else { 404 },
        })
    }
}

impl Node {
    /// The one that was named, or of this machine's name, or the only one.
    async fn look(client: &kube::Client, cluster: &Cluster, named: Option<&str>) -> anyhow::Result<Option<Node>> {
        let nodes = cluster.objects.get("nodes").map_or(&[][..], Vec::as_slice);
        let wanted = named.map(str::to_owned).unwrap_or_else(crate::server::host_name);
        let found = nodes.iter().find(|node| node["metadata"]["name"] == wanted.as_str());
        let node = match (found, named, nodes) {
            (Some(node), _, _) => node,
            (None, Some(name), _) => bail!("node {name} not found"),
            (None, None, [node]) => node,
            (None, None, _) => return Ok(None),
        };
        let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let path = format!("/api/v1/nodes/{name}/proxy/configz");
        let configz: Value = serde_json::from_str(&get(client, &path, "application/json").await?)?;
        let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
        let address = addresses.filter(|one| one["type"] == "InternalIP").find_map(|one| one["address"].as_str());
        let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().unwrap_or(10250);
        let url = match address.unwrap_or_default() {
            address if address.contains(':') => format!("https://[{address}]:{port}"),
            address => format!("https://{address}:{port}"),
        };
        Ok(Some(Node {
            name,
            configuration: configz["kubeletconfig"].clone(),
            anonymous_code: probe::anonymous_code(&url, "/pods").await,
            weak_ciphers: match url.parse() {
                Ok(url) => probe::weak_ciphers(&url).await,
                Err(_) => probe::Offered::default(),
            },
        }))
    }
}

async fn read(path: &Path) -> anyhow::Result<kube::Config> {
    let read = kube::config::Kubeconfig::read_from(path).with_context(|| format!("read {}", path.display()))?;
    kube::Config::from_custom_kubeconfig(read, &Default::default()).await.context("load kubeconfig")
}

async fn get(client: &kube::Client, path: &str, accept: &str) -> anyhow::Result<String> {
    let request = http::Request::get(path).header(http::header::ACCEPT, accept).body(Vec::new())?;
    let answered = tokio::time::timeout(ANSWER_TIMEOUT, client.request_text(request)).await;
    let answered = answered.with_context(|| format!("no answer to {path}: is the server running?"))?;
    answered.with_context(|| format!("get {path} from the API server: is it running?"))
}

fn walk(folder: &Path, depth: usize, seen: &mut Vec<Seen>) {
    see(folder, seen);
    // What goes away while it is looked at is not there.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let skipped = SKIPPED.iter().any(|name| entry.file_name() == *name);
        if is_dir && !skipped && depth > 0 { walk(&entry.path(), depth - 1, seen) } else { see(&entry.path(), seen) }
    }
}

fn see(path: &Path, seen: &mut Vec<Seen>) {
    let Ok(found) = std::fs::symlink_metadata(path) else { return };
    seen.push(Seen {
        path: path.to_owned(),
        mode: found.mode() & 0o7777,
        owner: (found.uid(), found.gid()),
        is_dir: found.is_dir(),
    });
}

/// The first process whose data are in our folder of etcd.
fn etcd_arguments(data_dir: &Path) -> Option<Vec<String>> {
    let folder = data_dir.join("etcd");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let arguments = lines.map(|line| -> Vec<String> {
        line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    });
    let is_ours = |line: &Vec<String>| {
        let program = line.first().map(Path::new).and_then(Path::file_name);
        program.is_some_and(|name| name == "etcd") && line.iter().any(|word| word.contains(&*folder.to_string_lossy()))
    };
    arguments.into_iter().find(is_ours)
}

fn listening() -> Vec<SocketAddr> {
    const LISTEN: &str = "0A";
    let table = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let both = table("/proc/net/tcp") + &table("/proc/net/tcp6");
    let one = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(3) == Some(&LISTEN)).then(|| probe::kernel_address(words.get(1)?)).flatten()
    };
    both.lines().filter_map(one).collect()
}

async fn tables() -> Vec<String> {
    let Ok(connection) = Connection::<Nftables>::new() else { return Vec::new() };
    let chains = connection.list_chains().await.unwrap_or_default();
    let mut tables: Vec<String> = chains.into_iter().map(|chain| chain.table).collect();
    tables.sort();
    tables.dedup();
    tables
}
