//! NetworkPolicy: which packets reach and leave the pods of this node.
//!
//! [`facts`] reads the objects, [`compile`] turns them into rules, [`nftables`] writes what differs. A pod's rules are in
//! the kernel before its network is handed over, so that not even its first packet goes without them. When knarr ends, the
//! rules stay.

mod compile;
mod facts;
mod walk;
mod explain;
mod nftables;
mod cut;
mod ranges;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use nlink::netlink::nftables::NftablesEvent;
use parking_lot::Mutex;
use reconcile::{Cluster, Key, Kind, Shutdown};
use tokio::sync::{Notify, watch};

use crate::{Error, Result};
pub use explain::Explained;
pub use explain::{Side, explain};

use compile::Table;
use facts::{Facts, Local};
use nftables::Writer;

#[derive(Clone, Debug)]
pub struct Config {
    /// The nftables table, ours alone.
    pub table: String,
    /// The node's own network namespace when it is not that of this process.
    pub node_namespace: Option<PathBuf>,
    /// Protocols and ports of this node that its pods may ask under any policy, such as those of the cluster's DNS.
    pub node_ports: Vec<(u8, u16)>,
}

impl Config {
    pub fn new(node_namespace: Option<PathBuf>) -> Config {
        Config { table: "knarr-policy".to_owned(), node_namespace, node_ports: Vec::new() }
    }
}

/// Changes come in crowds; written at once they would cost more and come no sooner.
const QUIET: Duration = Duration::from_millis(10);
const RETRY: Duration = Duration::from_secs(1);
/// All connections are looked at after a change, but no more often than this.
const BETWEEN_CUTS: Duration = Duration::from_millis(500);
/// A pod whose object has not come by then has no packet pass until it does.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than this no pod waits for its rules; its network is then not handed over.
const WRITTEN_TIMEOUT: Duration = Duration::from_secs(20);

/// The policies of a node. Whoever connects pods tells it of them.
pub struct Policies {
    writer: Writer,
    facts: Mutex<Facts>,
    /// Counts the changes of facts.
    changed: watch::Sender<u64>,
    /// The newest change that is in the kernel; 0 until everything was read once.
    written: watch::Sender<u64>,
    /// What was written last.
    is: Mutex<Option<Arc<Table>>>,
    /// The rules may have been changed by someone else.
    disturbed: Arc<Notify>,
    /// Connections may exist that the rules do not allow any more.
    tightened: Notify,
}

impl Policies {
    pub fn new(config: Config) -> Arc<Policies> {
        Arc::new(Policies {
            writer: Writer { table: config.table, namespace: config.node_namespace, node_ports: config.node_ports },
            facts: Mutex::default(),
            changed: watch::Sender::new(1),
            written: watch::Sender::new(0),
            is: Mutex::default(),
            disturbed: Arc::default(),
            tightened: Notify::new(),
        })
    }

    /// A pod that was connected before this process began.
    pub(crate) fn remember(&self, sandbox: &str, pod: &str, addresses: &[IpAddr]) {
        if let Some(local) = read_description(pod, addresses) {
            self.change(|facts| facts.local.insert(sandbox.to_owned(), local.clone()) != Some(local));
        }
    }

    /// Returns when the rules of the pod are in the kernel.
    pub(crate) async fn admit(&self, sandbox: &str, pod: &str, addresses: &[IpAddr]) -> Result<()> {
        let Some(local) = read_description(pod, addresses) else { return Ok(()) };
        self.change(|facts| facts.local.insert(sandbox.to_owned(), local.clone()) != Some(local.clone()));
        let known = |facts: &Facts| facts.pod_of(&local).is_some() || !facts.has_policies(&local.pod.namespace);
        if tokio::time::timeout(KNOWN_TIMEOUT, self.until(known)).await.is_err() {
            tracing::warn!(
                pod,
                "pod not in the cache yet; dropping its traffic until NetworkPolicies can be evaluated"
            );
        }
        if *self.written.borrow() == 0 {
            // No server has answered yet. Rules that an earlier process wrote stay, and the pod waits behind its own.
            return self.writer.isolate(addresses).await;
        }
        let wanted = *self.changed.borrow();
        let mut written = self.written.subscribe();
        let written = tokio::time::timeout(WRITTEN_TIMEOUT, written.wait_for(|newest| *newest >= wanted)).await;
        written.map_err(|_| Error::NoPolicies { pod: pod.to_owned() }).map(drop)
    }

    pub(crate) fn dismiss(&self, sandbox: &str) {
        self.change(|facts| facts.local.remove(sandbox).is_some());
    }

    /// Until everything was read once and the facts are so.
    async fn until(&self, reached: impl Fn(&Facts) -> bool) {
        let (mut changes, mut written) = (self.changed.subscribe(), self.written.subscribe());
        // The senders are part of `self`, so they live.
        let _ = written.wait_for(|newest| *newest > 0).await;
        while !reached(&self.facts.lock()) {
            let _ = changes.changed().await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Facts) -> bool) {
        if change(&mut self.facts.lock()) {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Keeps the rules right until told to stop; then leaves them as they are.
    pub async fn run(self: Arc<Policies>, cluster: Cluster, shutdown: Shutdown) {
        let caches = cluster.caches();
        let (namespaces, policies) = (caches.start::<Namespace>(""), caches.start::<NetworkPolicy>(""));
        follow(&self, &namespaces, Facts::put_namespace, Facts::remove_namespace);
        follow(&self, &policies, Facts::put_policy, Facts::remove_policy);
        // Half of the objects would make rules that deny what shall pass, or worse.
        let synced = async {
            namespaces.synced().await;
            policies.synced().await;
        };
        tokio::select! {
            () = synced => {}
            () = shutdown.cancelled() => return,
        }
        tokio::select! {
            () = self.keep(Some(&cluster), shutdown.clone()) => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// A node need not know the pods of the whole cluster while no policy asks for them.
    async fn know_pods(self: &Arc<Policies>, cluster: &Cluster) {
        let pods = cluster.caches().start::<Pod>("");
        follow(self, &pods, Facts::put_pod, Facts::remove_pod);
        pods.synced().await;
    }

    /// Without a cluster the pods are told by someone else.
    async fn keep(self: &Arc<Policies>, cluster: Option<&Cluster>, shutdown: Shutdown) {
        let kept = self.clone();
        let matters = move |event: &_| kept.is_missed(event);
        let namespace = self.writer.namespace.clone();
        tasks::spawn(crate::watch::rules(namespace, matters, self.disturbed.clone(), shutdown.clone()));
        tasks::spawn(self.clone().cut_connections(shutdown.clone()));
        let mut changes = self.changed.subscribe();
        let (mut look, mut unread) = (false, cluster);
        loop {
            let count = *changes.borrow_and_update();
            // Looked at together with the policies, or one that comes in between would find no pods.
            let should = self.compile(unread.is_none());
            let Some(should) = should else {
                if let Some(cluster) = unread.take() {
                    self.know_pods(cluster).await;
                }
                continue;
            };
            let again = match self.write(should, look).await {
                Ok(()) => {
                    self.written.send_replace(count);
                    None
                }
                Err(error) => {
                    tracing::error!(%error, "cannot write NetworkPolicy rules; retrying");
                    // Nobody knows what the kernel has now.
                    *self.is.lock() = None;
                    Some(RETRY)
                }
            };
            look = tokio::select! {
                () = shutdown.cancelled() => return,
                _ = changes.changed() => false,
                () = self.disturbed.notified() => true,
                () = crate::after(again) => false,
            };
            tokio::time::sleep(QUIET).await;
        }
    }

    /// Nothing when that needs the pods, and they are not known.
    fn compile(&self, pods_known: bool) -> Option<Table> {
        let facts = self.facts.lock();
        (pods_known || facts.policies.is_empty()).then(|| compile::compile(&facts))
    }

    async fn write(&self, should: Table, look: bool) -> Result<()> {
        let before = self.is.lock().clone();
        match &before {
            Some(before) if look && !self.writer.has(before).await? => {
                tracing::warn!(table = self.writer.table, "restored NetworkPolicy rules that another program removed");
                self.writer.replace(&should).await?;
            }
            Some(before) => self.writer.change(before, &should).await?,
            None => self.writer.replace(&should).await?,
        }
        let tightened = cut::tightens(before.as_deref(), &should);
        *self.is.lock() = Some(Arc::new(should));
        if tightened {
            self.tightened.notify_one();
        }
        Ok(())
    }

    /// Ends what a new policy forbids, until told to stop.
    async fn cut_connections(self: Arc<Policies>, shutdown: Shutdown) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.tightened.notified() => {}
            }
            let Some(table) = self.is.lock().clone() else { continue };
            match cut::cut(self.writer.namespace.as_deref(), &table, &self.writer.node_ports).await {
                Ok(0) => {}
                Ok(count) => tracing::info!(count, "closed connections denied by NetworkPolicies"),
                Err(error) => {
                    tracing::warn!(%error, "cannot close connections denied by NetworkPolicies; retrying");
                    self.tightened.notify_one();
                }
            }
            tokio::time::sleep(BETWEEN_CUTS).await;
        }
    }

    /// Whether something was deleted that should be there. What we delete ourselves, we do not miss.
    fn is_missed(&self, event: &NftablesEvent) -> bool {
        if crate::watch::deleted_from(event) != Some(self.writer.table.as_str()) {
            return false;
        }
        let Some(is) = self.is.lock().clone() else { return false };
        match event {
            NftablesEvent::DelRule(rule) => nftables::has_chain(&is, &rule.chain),
            NftablesEvent::DelChain(chain) => nftables::has_chain(&is, &chain.name),
            NftablesEvent::DelSetElements(gone) => nftables::has_any(&is, &gone.set, &gone.elements),
            _ => true,
        }
    }
}

fn follow<K: Kind>(
    policies: &Arc<Policies>,
    cache: &reconcile::Cache<K>,
    put: fn(&mut Facts, &K) -> bool,
    remove: fn(&mut Facts, &K) -> bool,
) {
    let policies = policies.clone();
    cache.listen(move |old, new| {
        policies.change(|facts| match (old, new) {
            (_, Some(new)) => put(facts, new),
            (Some(old), None) => remove(facts, old),
            (None, None) => false,
        });
    });
}

/// `namespace/name uid`, as claims describe pods.
fn read_description(text: &str, addresses: &[IpAddr]) -> Option<Local> {
    let (pod, uid) = text.split_once(' ')?;
    let (namespace, name) = pod.split_once('/')?;
    Some(Local { pod: Key::new(namespace, name), uid: uid.to_owned(), addresses: addresses.to_vec() })
}
