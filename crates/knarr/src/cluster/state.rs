//! State of a local cluster on disk: a folder with one file, and a folder for each node.
//!
//! ```text
//! <dir>/<name>/cluster.json      this
//! <dir>/<name>/kubeconfig        for who uses it
//! <dir>/<name>/hub/              the switch between the nodes
//! <dir>/<name>/node-1/data/      the node's /var/lib/knarr
//! <dir>/<name>/node-1/log/       the node's /var/log
//! ```

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::ports::Port;

/// Each cluster has one of the 256 ranges in here.
const RANGES: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(172, 30, 0, 0), 16);
const RANGE_PREFIX: u8 = 24;
/// The last parts of addresses: nodes have 1 and on, these two the end.
const HUB: u8 = 253;
const HOST: u8 = 254;
pub const NODES_MAX: u8 = 200;
/// The name is part of names of cgroups and of folders with sockets.
const NAME_LENGTH_MAX: usize = 32;
const FILE: &str = "cluster.json";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cluster {
    pub name: String,
    #[serde(with = "crate::join::cluster::as_text")]
    pub range: Ipv4Net,
    /// The host's device on the nodes' link.
    pub device: String,
    /// Whether packets of the nodes may leave this machine.
    pub uplink: bool,
    pub nodes: Vec<Node>,
    /// More arguments of every `knarr server`.
    pub server_arguments: Vec<String>,
    /// More arguments of every `knarr agent`.
    pub agent_arguments: Vec<String>,
    /// Ports of the host that lead to nodes.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// Images that were loaded, for nodes that come later.
    #[serde(default)]
    pub images: Vec<String>,
    /// Whether the servers run etcd.
    #[serde(default)]
    pub etcd: bool,
    /// Whether all nodes have joined once.
    pub complete: bool,
    #[serde(skip)]
    pub folder: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    pub name: String,
    pub address: Ipv4Addr,
    pub is_server: bool,
}

/// Refuses what cannot be the name of a cluster.
pub fn check_name(name: &str) -> anyhow::Result<String> {
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = (1..=NAME_LENGTH_MAX).contains(&name.len())
        && name.bytes().all(|byte| letters(byte) || byte == b'-')
        && name.bytes().next().is_some_and(letters)
        && name.bytes().next_back().is_some_and(letters);
    if fits {
        Ok(name.to_owned())
    } else {
        bail!(
            "a name must consist of at most {NAME_LENGTH_MAX} lower case letters, digits and dashes, and must not start or end with a dash"
        )
    }
}

impl Cluster {
    pub fn new(dir: &Path, name: &str, nodes: u8, servers: u8, uplink: bool, range: Ipv4Net) -> Cluster {
        let nodes = (1..=nodes).map(|number| Node::new(range, number, number <= servers));
        let folder = dir.join(name);
        Cluster {
            name: name.to_owned(),
            range,
            // Clusters of one name in several folders have different ones.
            device: format!("knarr{:08x}", hash(&folder) as u32),
            uplink,
            nodes: nodes.collect(),
            server_arguments: Vec::new(),
            agent_arguments: Vec::new(),
            ports: Vec::new(),
            images: Vec::new(),
            etcd: servers > 1,
            complete: false,
            folder,
        }
    }

    pub fn load(dir: &Path, name: &str) -> anyhow::Result<Cluster> {
        let folder = dir.join(name);
        let file = folder.join(FILE);
        let text = match std::fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("cluster {name} not found: `knarr cluster list` shows all clusters")
            }
            other => other.with_context(|| format!("read {}", file.display()))?,
        };
        let cluster: Cluster = serde_json::from_str(&text).with_context(|| format!("read {}", file.display()))?;
        Ok(Cluster { folder, ..cluster })
    }

    /// What can be known of a cluster whose file is not there or cannot be read: enough to take it away.
    pub fn remains(dir: &Path, name: &str) -> anyhow::Result<Cluster> {
        let mut cluster = Cluster::new(dir, name, 0, 0, false, RANGES);
        let entries = std::fs::read_dir(&cluster.folder).with_context(|| format!("cluster {name} not found"))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let nodes = names.filter(|name| name.starts_with("node-"));
        cluster.nodes = nodes.map(|name| Node { name, address: Ipv4Addr::UNSPECIFIED, is_server: false }).collect();
        Ok(cluster)
    }

    /// All of a folder, also those that cannot be read.
    pub fn all(dir: &Path) -> anyhow::Result<Vec<(String, anyhow::Result<Cluster>)>> {
        let entries = match std::fs::read_dir(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.with_context(|| format!("read {}", dir.display()))?,
        };
        let clusters = entries.flatten().filter(|entry| entry.path().join(FILE).is_file());
        let mut names: Vec<String> = clusters.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names.into_iter().map(|name| (name.clone(), Cluster::load(dir, &name))).collect())
    }

    /// Whole or not at all.
    pub fn save(&self) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.folder).with_context(|| format!("create {}", self.folder.display()))?;
        let file = self.folder.join(FILE);
        let text = serde_json::to_vec_pretty(self)?;
        component_base::files::write_durably(&file, text, 0o644).with_context(|| format!("write {}", file.display()))
    }

    /// A node that is not there yet, with the first number that is free.
    pub fn new_node(&self, is_server: bool) -> anyhow::Result<Node> {
        let nodes = (1..=NODES_MAX).map(|number| Node::new(self.range, number, is_server));
        let free = nodes.into_iter().find(|node| self.nodes.iter().all(|other| other.name != node.name));
        free.with_context(|| format!("cluster {} already has the maximum of {NODES_MAX} nodes", self.name))
    }

    /// Only where servers run etcd more of them can join. Files of older versions do not say it.
    pub fn has_etcd(&self) -> bool {
        self.etcd || self.servers().count() > 1
    }

    pub fn node(&self, name: &str) -> anyhow::Result<&Node> {
        let found = self.nodes.iter().find(|node| node.name == name);
        found.with_context(|| {
            let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
            format!("cluster {} has no node {name}; it has {}", self.name, names.join(", "))
        })
    }

    pub fn servers(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.is_server)
    }

    pub fn hub_folder(&self) -> PathBuf {
        self.folder.join("hub")
    }

    pub fn node_folder(&self, node: &Node) -> PathBuf {
        self.folder.join(&node.name)
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    pub fn hub_address(&self) -> Ipv4Addr {
        address(self.range, HUB)
    }

    pub fn host_address(&self) -> Ipv4Addr {
        address(self.range, HOST)
    }

    /// The cgroup that holds all of a node's pods.
    pub fn control_group(&self, node: &Node) -> String {
        format!("knarr-{}-{}", self.name, node.name)
    }
}

impl Node {
    fn new(range: Ipv4Net, number: u8, is_server: bool) -> Node {
        Node { name: format!("node-{number}"), address: address(range, number), is_server }
    }

    pub fn url(&self) -> String {
        format!("https://{}:{}", self.address, super::API_PORT)
    }
}

fn address(range: Ipv4Net, last: u8) -> Ipv4Addr {
    let [first, second, third, _] = range.network().octets();
    Ipv4Addr::new(first, second, third, last)
}

/// A range that overlaps nothing this machine has a route for, and no other cluster's. The search begins at a place that
/// depends on the folder, so that clusters that are stopped elsewhere are seldom in the way of each other.
pub fn free_range(folder: &Path, taken: &[ipnet::IpNet]) -> anyhow::Result<Ipv4Net> {
    let ranges: Vec<Ipv4Net> = RANGES.subnets(RANGE_PREFIX)?.collect();
    let first = hash(folder) as usize % ranges.len();
    let is_free = |range: &&Ipv4Net| {
        let range = ipnet::IpNet::V4(**range);
        !taken.iter().any(|other| other.contains(&range) || range.contains(other))
    };
    let found = ranges[first..].iter().chain(&ranges[..first]).find(is_free).copied();
    found.with_context(|| format!("every subnet of {RANGES} is in use on this machine"))
}

/// Who else uses the addresses of a cluster that was stopped for a while.
pub fn check_range(range: Ipv4Net, taken: &[ipnet::IpNet]) -> anyhow::Result<()> {
    let range = ipnet::IpNet::V4(range);
    let other = taken.iter().find(|other| other.contains(&range) || range.contains(*other));
    ensure!(
        other.is_none(),
        "subnet {range} of the cluster is now used by something else: see `ip route`, and stop that first"
    );
    Ok(())
}

/// A route of this machine; those to everywhere take nothing away.
pub fn taken(network: IpAddr, prefix: u8) -> Option<ipnet::IpNet> {
    ipnet::IpNet::new(network, prefix).ok().filter(|range| range.prefix_len() > 0)
}

fn hash(folder: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fit_into_names_of_other_things() {
        for good in ["t", "my-cluster", "a1", &"a".repeat(32)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a/b", "..", "a b", "a_b", &"a".repeat(33)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_free_range_overlaps_nothing() {
        let folder = Path::new("/somewhere/t");
        let first = free_range(folder, &[]).unwrap();
        assert!(RANGES.contains(&first) && first.prefix_len() == 24);
        assert_eq!(free_range(folder, &[]).unwrap(), first);
        // One address in it is enough, and what lies beyond is of no matter.
        let taken = [format!("{}/32", address(first, 9)), "10.0.0.0/8".into()].map(|text| text.parse().unwrap());
        let next = free_range(folder, &taken).unwrap();
        assert_ne!(next, first);
        assert!(check_range(first, &taken).is_err() && check_range(next, &taken).is_ok());
        let all = ["172.16.0.0/12".parse().unwrap()];
        assert!(free_range(folder, &all).is_err());
        assert_eq!(super::taken(IpAddr::from([0, 0, 0, 0]), 0), None);
    }

    #[test]
    fn a_cluster_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let range = "172.30.7.0/24".parse().unwrap();
        let cluster = Cluster::new(dir.path(), "t", 4, 3, false, range);
        assert!(Cluster::load(dir.path(), "t").is_err());
        cluster.save().unwrap();
        let read = Cluster::load(dir.path(), "t").unwrap();
        assert_eq!((&read.folder, read.range), (&cluster.folder, range));
        assert_eq!(read.node("node-4").unwrap().address, Ipv4Addr::new(172, 30, 7, 4));
        assert_eq!(read.servers().count(), 3);
        assert!(read.node("node-5").unwrap_err().to_string().contains("node-1, node-2"));
        assert!(read.device.len() <= 15);
        assert_eq!(read.new_node(false).unwrap().name, "node-5");
        let without =
            Cluster { nodes: read.nodes.iter().filter(|node| node.name != "node-2").cloned().collect(), ..read };
        let added = without.new_node(true).unwrap();
        assert_eq!(
            (added.name.as_str(), added.address, added.is_server),
            ("node-2", Ipv4Addr::new(172, 30, 7, 2), true)
        );
        std::fs::create_dir(dir.path().join("something-else")).unwrap();
        std::fs::create_dir(dir.path().join("half")).unwrap();
        std::fs::write(dir.path().join("half").join(FILE), "{").unwrap();
        let all = Cluster::all(dir.path()).unwrap();
        assert!(matches!(&all[..], [(half, Err(_)), (t, Ok(_))] if half == "half" && t == "t"));
    }
}
