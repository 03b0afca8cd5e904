//! `--disable`: which parts a machine leaves out, under our names or those of k3s, and that nothing of them stays behind.

mod remove;

use anyhow::bail;

pub use remove::remove;

/// A part by our name, by those that k3s has for it, and whether agents have it.
struct Part {
    name: &'static str,
    others: &'static [&'static str],
    on_agents: bool,
}

const fn part(name: &'static str, others: &'static [&'static str], on_agents: bool) -> Part {
    Part { name, others, on_agents }
}

static PARTS: [Part; 10] = [
    part("kube-controller-manager", &[], false),
    part("kube-scheduler", &[], false),
    part(CLOUD, &["servicelb"], false),
    part(LOCAL_STORAGE, &[], false),
    part("kube-proxy", &[], true),
    part(DNS, &["coredns"], true),
    part(INGRESS, &["traefik"], false),
    part(METRICS_SERVER, &[], false),
    part(NETWORK_POLICY, &[], true),
    part(DASHBOARD, &[], false),
];

const CLOUD: &str = "cloud-controller-manager";
const LOCAL_STORAGE: &str = "local-storage";
const DNS: &str = "dns";
const INGRESS: &str = "ingress";
const METRICS_SERVER: &str = "metrics-server";
pub const NETWORK_POLICY: &str = "network-policy";
pub const DASHBOARD: &str = "dashboard";

/// Our names of all parts that a server can disable.
#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|part| part.name)
}

/// What `--disable` means.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Disabled {
    /// By our own names.
    pub parts: Vec<String>,
    /// Files and folders of manifests.
    pub manifests: Vec<String>,
}

impl Disabled {
    /// What every node of the cluster then does without.
    pub fn on_all_nodes(&self) -> Vec<String> {
        let everywhere = |name: &&String| PARTS.iter().any(|part| part.on_agents && part.name == name.as_str());
        self.parts.iter().filter(everywhere).cloned().collect()
    }
}

/// Names that are neither a part of this command nor one of `manifests` are refused.
pub fn read(names: &[String], is_agent: bool, manifests: &[String]) -> anyhow::Result<Disabled> {
    let mut disabled = Disabled::default();
    let known = || PARTS.iter().filter(|part| part.on_agents || !is_agent);
    for name in names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        let is_it = |part: &&Part| part.name == name || part.others.contains(&name);
        match known().find(is_it) {
            Some(part) if disabled.parts.iter().any(|one| one == part.name) => {}
            Some(part) => disabled.parts.push(part.name.to_owned()),
            None if manifests.iter().any(|one| one == name) => disabled.manifests.push(name.to_owned()),
            None => {
                let names: Vec<&str> = known().flat_map(|part| [&[part.name], part.others].concat()).collect();
                let or = if is_agent { "" } else { "; or a file of <data-dir>/server/manifests, without its ending" };
                bail!("--disable: unknown component {name:?}; known components: {}{or}", names.join(", "));
            }
        }
    }
    Ok(disabled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn parts_have_the_names_of_k3s_too() {
        let names = texts(&["traefik", "coredns", "dns", "servicelb", "network-policy", "mine", ""]);
        let read = read(&names, false, &texts(&["mine"])).unwrap();
        assert_eq!(read.parts, ["ingress", "dns", "cloud-controller-manager", "network-policy"]);
        assert_eq!(read.manifests, ["mine"]);
        assert_eq!(read.on_all_nodes(), ["dns", "network-policy"]);
    }

    #[test]
    fn unknown_names_are_refused_with_those_there_are() {
        let error = read(&texts(&["treafik"]), false, &[]).unwrap_err().to_string();
        assert!(error.contains("\"treafik\"") && error.contains("traefik") && error.contains("servicelb"), "{error}");
        // An agent has no ingress to leave out.
        assert!(read(&texts(&["ingress"]), true, &[]).is_err());
        assert!(read(&texts(&["coredns", "kube-proxy"]), true, &[]).is_ok());
    }
}
