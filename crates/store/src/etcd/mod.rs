//! The store over a real etcd cluster. Keys and leases lie as upstream lays them, so that its tools can read them.
//!
//! What etcd answers is passed on; what it does not answer is `Unavailable`. A change that has no answer is sent again, since
//! one that was on its way to a leader who is gone never gets any. It happens only once, for its condition is the revision
//! before it; where the second finds the first one's traces, it has happened, and where it cannot tell, it says so instead of
//! a conflict that the caller never had. A key is made by one try only.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component_base::tasks;
use futures::stream::BoxStream;
use tokio::task::JoinHandle;

use crate::{Change, Entry, Event, Expect, Range, RangeRequest, Revision, Store, StoreError, Written};

pub mod client;
mod cluster;
mod compact;
mod failure;
mod lease;
mod patience;
mod watch;
mod watchdog;

use client::{Compare, KeyValue, RangeResponse, RequestOp, ResponseHeader, TxnRequest};
use cluster::{Answer, Cluster};
use failure::Failure;
use lease::Leases;
use patience::Patience;

/// How many entries are asked for at once where the caller wants all.
const RANGE_PAGE: usize = 1_000;
/// How long a small read may take.
const READ_PATIENCE: Patience = Patience::in_tries(Duration::from_secs(5));
/// How long a page of a range may take.
const RANGE_PATIENCE: Patience = Patience::at_once(Duration::from_secs(30));
/// How long a write may take. Longer than etcd's own patience (about seven seconds), so that its word is heard.
const WRITE_PATIENCE: Patience = Patience::in_tries(Duration::from_secs(10));

/// Not printable, since it holds a private key.
#[derive(Clone)]
pub struct Config {
    /// `http://` or `https://` addresses of the members, the nearest first.
    pub endpoints: Vec<String>,
    /// PEM of the authority that signed the members' certificates.
    pub ca: Option<Vec<u8>>,
    /// PEM of our certificate and its key, where etcd asks for one.
    pub cert: Option<Vec<u8>>,
    pub key: Option<Vec<u8>>,
    pub connect_timeout: Duration,
    /// How often old history is forgotten; none where something else does it.
    pub compaction_interval: Option<Duration>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            endpoints: Vec::new(),
            ca: None,
            cert: None,
            key: None,
            connect_timeout: Duration::from_secs(2),
            compaction_interval: Some(Duration::from_secs(5 * 60)),
        }
    }
}

pub struct EtcdStore {
    cluster: Arc<Cluster>,
    leases: Leases,
    tasks: Vec<JoinHandle<()>>,
}

impl EtcdStore {
    /// Answers once a member has answered.
    pub async fn connect(config: Config) -> Result<EtcdStore, StoreError> {
        let cluster = Arc::new(Cluster::new(&config).await?);
        let tasks = vec![tasks::spawn(watchdog::run(cluster.clone()))];
        let mut store = EtcdStore { cluster, leases: Leases::default(), tasks };
        newest_revision(&store.cluster).await?;
        let compactor = |interval| tasks::spawn(compact::run(store.cluster.clone(), interval));
        store.tasks.extend(config.compaction_interval.map(compactor));
        Ok(store)
    }

    /// From now on these are the members, the nearest first.
    pub async fn set_endpoints(&self, endpoints: &[String]) -> Result<(), StoreError> {
        self.cluster.set_endpoints(endpoints).await
    }

    async fn try_write(&self, key: &str, expect: Expect, change: &Change) -> Result<Written, Failure> {
        let put = match change {
            Change::Put { value, ttl: None } => Some((value, 0)),
            Change::Put { value, ttl: Some(ttl) } => Some((value, self.leases.get(&self.cluster, *ttl).await?)),
            Change::Delete => None,
        };
        // A revision never comes back. A key that was made, and that someone else has deleted since, would be made again.
        let twice = matches!(expect, Expect::At(_));
        let expected = match expect {
            // A key that is not there has modification revision 0.
            Expect::Absent => 0,
            Expect::At(revision) => number(revision),
        };
        let operation = match &put {
            Some((value, lease)) => RequestOp::put(key, value.to_vec(), *lease),
            None => RequestOp::delete(key),
        };
        let txn = TxnRequest {
            compare: vec![Compare::mod_revision(key, expected)],
            success: vec![operation],
            failure: vec![RequestOp::get(key)],
        };
        let call = |mut member: cluster::Member| {
            let txn = txn.clone();
            async move { member.client.txn(txn).await }
        };
        let Answer { answer: response, may_have_happened } = self.cluster.write(WRITE_PATIENCE, twice, call).await?;
        if response.succeeded {
            return Ok(Written::Done(header_revision(response.header.as_ref())?));
        }
        let found = response.into_found().into_iter().next().map(entry);
        if !may_have_happened {
            return Ok(Written::Conflict(found));
        }
        match (&put, found) {
            // It stands in its own way.
            (Some((value, _)), Some(found)) if found.value == **value => Ok(Written::Done(found.revision)),
            _ => Err(Failure::Unknown(format!("{key}: an earlier try had no answer, and something has changed since"))),
        }
    }

    async fn page(
        &self,
        from: &[u8],
        end: &[u8],
        limit: usize,
        at: Option<Revision>,
    ) -> Result<RangeResponse, StoreError> {
        let request = client::RangeRequest {
            key: from.to_vec(),
            range_end: end.to_vec(),
            limit: limit as i64,
            revision: at.map_or(0, number),
            count_only: false,
        };
        let call = |mut member: cluster::Member| {
            let request = request.clone();
            async move { member.client.range(request).await }
        };
        let result = self.cluster.read(RANGE_PATIENCE, call).await;
        match result {
            Err(Failure::Compacted) => Err(compact::compacted(&self.cluster, at.unwrap_or_default()).await),
            Err(Failure::Future) => {
                let newest = newest_revision(&self.cluster).await?;
                Err(StoreError::Future { wanted: at.unwrap_or_default(), newest })
            }
            result => Ok(result?),
        }
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[async_trait::async_trait]
impl Store for EtcdStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        let call =
            |mut member: cluster::Member| async move { member.client.range(client::RangeRequest::one(key)).await };
        let found = self.cluster.read(READ_PATIENCE, call).await?;
        Ok(found.kvs.into_iter().next().map(entry))
    }

    async fn range(&self, request: RangeRequest) -> Result<Range, StoreError> {
        let prefix = request.prefix.as_bytes();
        let end = end_of_prefix(prefix);
        let after = request.after.as_deref().map_or(Vec::new(), |after| next_key(after.as_bytes()));
        // Etcd takes no empty key. Where the start lies behind the end, it finds nothing, as it should be.
        let mut from = after.max(prefix.to_vec()).max(vec![0]);
        let mut at = request.at;
        let mut entries = Vec::new();
        loop {
            let limit = match request.limit {
                0 => RANGE_PAGE,
                limit => RANGE_PAGE.min(limit - entries.len()),
            };
            let page = self.page(&from, &end, limit, at).await?;
            // The first page decides which state the others show.
            let revision = match at {
                Some(revision) => revision,
                None => header_revision(page.header.as_ref())?,
            };
            at = Some(revision);
            let more = page.more;
            entries.extend(page.kvs.into_iter().map(entry));
            let full = request.limit > 0 && entries.len() >= request.limit;
            match entries.last() {
                Some(last) if more && !full => from = next_key(last.key.as_bytes()),
                _ => return Ok(Range { entries, revision, more }),
            }
        }
    }

    async fn write_if(&self, key: &str, expect: Expect, change: Change) -> Result<Written, StoreError> {
        match self.try_write(key, expect, &change).await {
            // The shared lease ended early; nothing was written. A new one is asked for.
            Err(Failure::LeaseGone) => {
                self.leases.forget_all().await;
                Ok(self.try_write(key, expect, &change).await?)
            }
            result => Ok(result?),
        }
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        newest_revision(&self.cluster).await
    }

    async fn watch_from(
        &self,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Vec<Event>, StoreError>>, StoreError> {
        Ok(watch::follow(self.cluster.clone(), after))
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        compact_at(&self.cluster, before).await
    }

    /// etcd is compacted as it goes (`compact.rs`); to force it would end the watches of every other server.
    async fn forget_past(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// As the member that is asked has it: each has its own file.
    async fn size_bytes(&self) -> Result<Option<u64>, StoreError> {
        let call = |mut member: cluster::Member| async move { member.client.status().await };
        let status = self.cluster.read(READ_PATIENCE, call).await?;
        Ok(u64::try_from(status.db_size).ok())
    }
}

async fn newest_revision(cluster: &Cluster) -> Result<Revision, StoreError> {
    let call = |mut member: cluster::Member| async move { member.client.range(count_request(0)).await };
    let found = cluster.read(READ_PATIENCE, call).await?;
    Ok(header_revision(found.header.as_ref())?)
}

/// The smallest question: is this revision there (0: the newest), and which is the newest?
fn count_request(revision: i64) -> client::RangeRequest {
    client::RangeRequest { revision, count_only: true, ..client::RangeRequest::one(compact::KEY) }
}

async fn compact_at(cluster: &Cluster, before: Revision) -> Result<(), StoreError> {
    let call = |mut member: cluster::Member| async move { member.client.compact(number(before)).await };
    // Compacting twice does no harm, so it is tried again like a read.
    match cluster.read(WRITE_PATIENCE, call).await {
        Ok(_) | Err(Failure::Compacted) => Ok(()),
        Err(Failure::Future) => Err(StoreError::Future { wanted: before, newest: newest_revision(cluster).await? }),
        Err(failure) => Err(failure.into()),
    }
}

/// Etcd's revisions are signed and begin at 1; no more than that half of ours is ever used.
fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or_default())
}

fn header_revision(header: Option<&ResponseHeader>) -> Result<Revision, Failure> {
    let header = header.ok_or_else(|| Failure::Unknown("answer without a header".to_owned()))?;
    Ok(revision(header.revision))
}

fn entry(kv: KeyValue) -> Entry {
    let (modified, created) = (revision(kv.mod_revision), revision(kv.create_revision));
    Entry { key: text(&kv.key), value: Bytes::from(kv.value), revision: modified, created }
}

/// Foreign keys need not be text. They are of no interest, only their revisions are.
fn text(key: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(key).into()
}

/// The first key behind this one.
fn next_key(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}

/// The first key behind all that begin with the prefix; a zero byte where there is none.
fn end_of_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}
