//! The built-in network: one bridge per node, one pair of devices per pod.
//!
//! A pod's address has no neighbours (its prefix is a single address) and everything it sends goes to the bridge's
//! address first. So traffic between two pods of a node is routed by the node, not switched by the bridge: rules for
//! Services and policies see it, in both directions, whether or not the kernel has bridge netfilter.

mod claims;
mod config;
mod guard;
pub(crate) mod links;
mod rules;
mod sysctl;
#[cfg(test)]
pub(crate) mod hostile_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri::{Addresses, Network, SandboxNetwork};
use ipnet::IpNet;
use linux::sockets::{Listener, Listeners};
use reconcile::Shutdown;
use tokio::sync::Mutex;

use crate::policy::Policies;
use crate::{Error, Result, host_ports};
pub(crate) use claims::Port;
pub(crate) use claims::gateway;
use claims::{Claim, Claims};
pub use config::Config;
pub(crate) use links::{hash, set_loopback_up};
pub(crate) use rules::{connect, text_attribute};

/// How often we look for what the machine itself has begun or ceased to listen at: the kernel tells nobody.
const LOOK: Duration = Duration::from_secs(5);

pub struct Builtin {
    config: Config,
    /// Who is told of pods before their network is handed over.
    policies: Option<Arc<Policies>>,
    /// Claims and rules change one at a time. Pods' devices do not wait for each other: the kernel takes its time with them.
    state: Mutex<State>,
}

struct State {
    claims: Claims,
    /// The node's ranges, at most one of each family.
    ranges: Vec<IpNet>,
    /// The rules as they were last written, to leave them alone when nothing changes.
    written: Option<rules::Input>,
    /// Sandboxes that are being linked or unlinked right now: nobody else touches their devices.
    linking: BTreeSet<String>,
    /// Whether pods' ports are isolated, once that was looked at.
    isolated: Option<bool>,
    listeners: Listeners,
    /// What the machine itself listened at when we last looked.
    listening: BTreeSet<Listener>,
}

impl Builtin {
    /// Reads the claims and ranges that are there; touches nothing else yet. The ranges of the last run count until new
    /// ones are set: pods must not lose their way out because the node's object cannot be read after a restart.
    pub fn open(config: Config) -> Result<Builtin> {
        let claims = Claims::open(&config.state_dir)?;
        let path = ranges_path(&config);
        let ranges = match std::fs::read_to_string(&path) {
            Ok(text) => parse_ranges(text.trim())?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(Error::File { path, source }),
        };
        let state = State {
            claims,
            ranges,
            written: None,
            linking: BTreeSet::new(),
            isolated: None,
            listeners: Listeners::new(config.node_namespace.as_deref()),
            listening: BTreeSet::new(),
        };
        Ok(Builtin { config, policies: None, state: Mutex::new(state) })
    }

    /// The same with network policies, which learn of the pods that are there already.
    pub fn with_policies(mut self, policies: Arc<Policies>) -> Builtin {
        for (sandbox, claim) in self.state.get_mut().claims.iter() {
            policies.remember(sandbox, &claim.pod, &claim.addresses);
        }
        self.policies = Some(policies);
        self
    }

    async fn attach_pod(&self, pod: &SandboxNetwork) -> Result<Addresses> {
        crate::check_sandbox(&pod.sandbox)?;
        let (known, ranges, claim) = {
            let mut state = self.state.lock().await;
            if state.ranges.is_empty() {
                return Err(Error::NoRange);
            }
            // Someone may have taken away either, a firewall's reload for one.
            if !links::bridge_is_there(&self.config).await? || !rules::are_there(&self.config).await? {
                self.set_up(&mut state).await?;
            }
            let (known, ranges) = (state.claims.get(&pod.sandbox).is_some(), state.ranges.clone());
            let ports = ports_of(&pod.port_mappings);
            if !ports.is_empty() {
                self.look(&mut state)?;
            }
            // A pod that has its ports already keeps running; they lead into it no more while the machine listens there.
            if !known {
                check_ports(pod, &ports, &state.listening)?;
            }
            let wanted = Claim { addresses: Vec::new(), ports, pod: describe(pod), namespace: pod.netns.clone() };
            let claim = state.claims.claim(&pod.sandbox, &ranges, wanted)?;
            state.linking.insert(pod.sandbox.clone());
            (known, ranges, claim)
        };
        let linked = async {
            guard::admit(&self.config, &place(&pod.sandbox, &claim)).await?;
            links::link_pod(&self.config, &ranges, &pod.sandbox, &pod.netns, &claim.addresses).await?;
            self.write_rules(&mut *self.state.lock().await).await?;
            match &self.policies {
                Some(policies) => policies.admit(&pod.sandbox, &claim.pod, &claim.addresses).await,
                None => Ok(()),
            }
        };
        let linked = linked.await;
        self.state.lock().await.linking.remove(&pod.sandbox);
        if let Err(error) = linked {
            // A pod that was linked before keeps its address: its containers may be using it.
            if !known {
                self.release(&pod.sandbox).await?;
            }
            return Err(error);
        }
        self.forget_connections(&claim).await;
        Ok(Addresses { ips: claim.addresses })
    }

    /// Device, claim and rules. The claim goes after the device: while it is there, nobody else gets the address.
    async fn release(&self, sandbox: &str) -> Result<()> {
        // A repair would take the device for one that another program removed, and join it again when its address is free.
        self.state.lock().await.linking.insert(sandbox.to_owned());
        let unlinked = links::unlink_pod(&self.config, sandbox).await;
        let mut state = self.state.lock().await;
        state.linking.remove(sandbox);
        unlinked?;
        self.dismiss(&mut state, sandbox).await?;
        self.write_rules(&mut state).await
    }

    /// The claim, and the right to use the bridge.
    async fn dismiss(&self, state: &mut State, sandbox: &str) -> Result<()> {
        if let Some(claim) = state.claims.get(sandbox) {
            guard::dismiss(&self.config, &place(sandbox, claim)).await?;
            for address in &claim.addresses {
                if let Err(error) = links::forget_address(&self.config, *address).await {
                    tracing::debug!(%error, %address, "cannot remove conntrack entries of ended pod");
                }
            }
        }
        if let Some(policies) = &self.policies {
            policies.dismiss(sandbox);
        }
        state.claims.release(sandbox)
    }

    async fn detach_pod(&self, pod: &SandboxNetwork) -> Result<()> {
        crate::check_sandbox(&pod.sandbox)?;
        self.release(&pod.sandbox).await
    }

    async fn keep(&self, sandboxes: &[String]) -> Result<()> {
        let mut state = self.state.lock().await;
        let kept: BTreeSet<&str> = sandboxes.iter().map(String::as_str).collect();
        let gone: Vec<String> =
            state.claims.iter().map(|(sandbox, _)| sandbox.clone()).filter(|id| !kept.contains(id.as_str())).collect();
        links::unlink_others(&self.config, &kept).await?;
        for sandbox in gone {
            // Also one that had not been joined to the bridge yet.
            links::unlink_pod(&self.config, &sandbox).await?;
            self.dismiss(&mut state, &sandbox).await?;
        }
        self.write_rules(&mut state).await
    }

    async fn set_ranges(&self, text: &str) -> Result<()> {
        let ranges = parse_ranges(text)?;
        let mut state = self.state.lock().await;
        crate::write_atomically(&ranges_path(&self.config), text.as_bytes())?;
        state.ranges = ranges;
        self.set_up(&mut state).await
    }

    /// The node's side of the network, from whatever is there to what should be.
    async fn set_up(&self, state: &mut State) -> Result<()> {
        sysctl::set_up(&self.config, &state.ranges)?;
        links::set_up_bridge(&self.config, &state.ranges).await?;
        // These exist only once the bridge does.
        sysctl::set_up_bridge(&self.config)?;
        state.written = None;
        if state.claims.iter().any(|(_, claim)| !claim.ports.is_empty()) {
            self.look(state)?;
        }
        guard::write(&self.config, &places(state)).await?;
        self.write_rules(state).await
    }

    /// Looks at what the kernel has of this network, puts back what is missing, and says what that was.
    pub async fn repair(&self) -> Result<Vec<String>> {
        let mut state = self.state.lock().await;
        if state.ranges.is_empty() {
            return Ok(Vec::new());
        }
        let mut missing = links::missing(&self.config, &state.ranges).await?;
        let rules = state.written.as_ref().map_or(0, |input| rules::rules(input).len());
        if state.written.is_some() && !rules::are_complete(&self.config, rules).await? {
            missing.push(format!("the rules of table {}", self.config.table));
        }
        if state.written.is_some() && !guard::is_there(&self.config, &places(&state)).await? {
            missing.push(format!("the bridge's rules of table {}", self.config.table));
        }
        // After a start nothing is missing, but it was not looked at yet.
        if !missing.is_empty() || state.written.is_none() {
            self.set_up(&mut state).await?;
        }
        let joined = links::joined(&self.config).await?;
        // Bridge netfilter may have come with another program.
        sysctl::set_up(&self.config, &state.ranges)?;
        let isolated = !sysctl::bridged_packets_pass_rules(&self.config)?;
        let changed = state.isolated.replace(isolated) != Some(isolated);
        let claims: Vec<(String, Claim)> = state.claims.iter().map(|(id, claim)| (id.clone(), claim.clone())).collect();
        for (sandbox, claim) in claims.into_iter().filter(|(sandbox, _)| !state.linking.contains(sandbox)) {
            if joined.contains(&links::device_name(&sandbox)) {
                if changed {
                    links::set_port(&self.config, &sandbox, isolated).await?;
                }
                continue;
            }
            // A namespace that is gone belongs to a pod that is about to be taken away.
            if std::fs::File::open(&claim.namespace).is_ok() {
                let done =
                    links::link_pod(&self.config, &state.ranges, &sandbox, &claim.namespace, &claim.addresses).await;
                match done {
                    Ok(()) => missing.push(format!("the device of pod {}", claim.pod)),
                    Err(error) => tracing::warn!(%error, pod = claim.pod, "cannot reconnect pod to the bridge"),
                }
            }
        }
        Ok(missing)
    }

    /// The largest packet of pods.
    pub async fn mtu(&self) -> Result<u32> {
        links::mtu(&self.config, &links::node(&self.config)?).await
    }

    /// The names of our tables.
    pub fn tables(&self) -> Vec<String> {
        vec![self.config.table.clone()]
    }

    /// Keeps host ports out of the machine's own way until told to stop.
    pub(crate) async fn watch_ports(self: Arc<Builtin>, shutdown: Shutdown) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            let mut state = self.state.lock().await;
            if state.ranges.is_empty() || !state.claims.iter().any(|(_, claim)| !claim.ports.is_empty()) {
                continue;
            }
            let looked = self.look(&mut state);
            let written = match looked {
                Ok(()) => self.write_rules(&mut state).await,
                failed => failed,
            };
            if let Err(error) = written {
                tracing::warn!(%error, "cannot compare hostPorts with listening sockets; retrying");
            }
        }
    }

    fn look(&self, state: &mut State) -> Result<()> {
        let mut listening = state.listeners.look().map_err(Error::Sockets)?;
        let everywhere = IpAddr::from(std::net::Ipv6Addr::UNSPECIFIED);
        let reserved = self.config.reserved_ports.iter();
        listening.extend(reserved.map(|port| Listener { protocol: claims::TCP, address: everywhere, port: *port }));
        state.listening = listening;
        Ok(())
    }

    async fn write_rules(&self, state: &mut State) -> Result<()> {
        let mut pods: Vec<Claim> = state.claims.iter().map(|(_, claim)| claim.clone()).collect();
        let mut kept = BTreeSet::new();
        for pod in &mut pods {
            pod.ports.retain(|port| !host_ports::is_taken(port, &state.listening));
            for port in &pod.ports {
                let addresses = host_ports::kept_addresses(port, &state.listening);
                kept.extend(addresses.into_iter().map(|address| (address, port.protocol, port.host_port)));
            }
        }
        pods.retain(|pod| !pod.ports.is_empty());
        let input = rules::Input {
            table: self.config.table.clone(),
            bridge: self.config.bridge.clone(),
            ranges: state.ranges.clone(),
            cluster_ranges: self.config.cluster_ranges.clone(),
            service_ranges: self.config.service_ranges.clone(),
            pods,
            kept: kept.into_iter().collect(),
        };
        if state.written.as_ref() != Some(&input) {
            rules::write(&input, &self.config).await?;
            state.written = Some(input);
        }
        Ok(())
    }

    /// A sender of datagrams that tried before the port was mapped has an entry that leads nowhere, and would keep it.
    async fn forget_connections(&self, claim: &Claim) {
        for port in claim.ports.iter().filter(|port| port.protocol == claims::UDP) {
            if let Err(error) = links::forget_udp(&self.config, port.host_port).await {
                tracing::debug!(%error, port = port.host_port, "cannot remove conntrack entries of hostPort");
            }
        }
    }
}

#[async_trait]
impl Network for Builtin {
    async fn attach(&self, pod: &SandboxNetwork) -> cri::Result<Addresses> {
        Ok(self.attach_pod(pod).await?)
    }

    async fn detach(&self, pod: &SandboxNetwork) -> cri::Result<()> {
        Ok(self.detach_pod(pod).await?)
    }

    async fn keep_only(&self, sandboxes: &[String]) -> cri::Result<()> {
        Ok(self.keep(sandboxes).await?)
    }

    async fn set_pod_cidr(&self, pod_cidr: &str) -> cri::Result<()> {
        Ok(self.set_ranges(pod_cidr).await?)
    }

    async fn not_ready(&self) -> Option<String> {
        if self.state.lock().await.ranges.is_empty() {
            return Some(Error::NoRange.to_string());
        }
        // What someone removed comes back with the next pod; that is no reason to send none.
        None
    }
}

fn place(sandbox: &str, claim: &Claim) -> guard::Place {
    guard::Place { sandbox: sandbox.to_owned(), addresses: claim.addresses.clone() }
}

fn places(state: &State) -> Vec<guard::Place> {
    state.claims.iter().map(|(sandbox, claim)| place(sandbox, claim)).collect()
}

fn ranges_path(config: &Config) -> PathBuf {
    config.state_dir.join("ranges")
}

/// One range, or one of each family with a comma between.
fn parse_ranges(text: &str) -> Result<Vec<IpNet>> {
    let bad = || Error::Range { text: text.to_owned() };
    let mut ranges: Vec<IpNet> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let range = part.parse::<IpNet>().map_err(|_| bad())?.trunc();
        let twice = ranges.iter().any(|other| other.addr().is_ipv4() == range.addr().is_ipv4());
        // Network, gateway, one pod, and in IPv4 the broadcast address.
        if twice || range.max_prefix_len() - range.prefix_len() < 2 {
            return Err(bad());
        }
        ranges.push(range);
    }
    Ok(ranges)
}

pub(crate) fn ports_of(mappings: &[cri::v1::PortMapping]) -> Vec<Port> {
    let number = |port: i32| u16::try_from(port).ok().filter(|port| *port != 0);
    let port = |mapping: &cri::v1::PortMapping| {
        let protocol = match mapping.protocol {
            1 => claims::UDP,
            2 => claims::SCTP,
            _ => claims::TCP,
        };
        Some(Port {
            protocol,
            host_port: number(mapping.host_port)?,
            container_port: number(mapping.container_port)?,
            // The unspecified address means every address.
            host_address: mapping.host_ip.parse().ok().filter(|address: &std::net::IpAddr| !address.is_unspecified()),
        })
    };
    // Without a host port it is only a note for readers.
    mappings.iter().filter_map(port).collect()
}

/// Refuses a pod that wants a port of the machine.
pub(crate) fn check_ports(pod: &SandboxNetwork, ports: &[Port], listening: &BTreeSet<Listener>) -> Result<()> {
    let Some(port) = ports.iter().find(|port| host_ports::is_taken(port, listening)) else { return Ok(()) };
    let protocol = match port.protocol {
        claims::UDP => "UDP",
        claims::SCTP => "SCTP",
        _ => "TCP",
    };
    Err(Error::PortInUse { pod: format!("{}/{}", pod.namespace, pod.name), port: port.host_port, protocol })
}

fn describe(pod: &SandboxNetwork) -> String {
    format!("{}/{} {}", pod.namespace, pod.name, pod.uid)
}
