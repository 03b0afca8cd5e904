//! Revisions: one ordered, durable history of objects. Only kube-apiserver uses it.
//!
//! `Store` is the seam; `embedded` keeps the history on the local disk, `etcd` in a real etcd cluster. `cache`
//! stands over either and serves get, list and watch from memory. `conformance` is the one suite all pass.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;

pub mod cache;
pub mod conformance;
pub mod embedded;
pub mod etcd;
pub mod prefixed;

/// A point in the history. Every write makes the next one; they are shown to users as resourceVersion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key's value as of its last write. Keys are `/registry/<resource>/[<namespace>/]<name>`, as upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Arc<str>,
    pub value: Bytes,
    pub revision: Revision,
    pub created: Revision,
}

/// What a writer believes of the key. Every write states it; there is no unconditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Absent,
    At(Revision),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// With `ttl`, the key is deleted by itself once that time is over.
    Put {
        value: Bytes,
        ttl: Option<Duration>,
    },
    Delete,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Durable, at this revision.
    Done(Revision),
    /// Nothing was changed; this is what the key holds.
    Conflict(Option<Entry>),
}

/// One change, as watchers see it: in revision order, each revision once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub key: Arc<str>,
    pub revision: Revision,
    /// The new value, or none where the key was deleted.
    pub value: Option<Bytes>,
    /// What the key held before, where it held something.
    pub previous: Option<(Bytes, Revision)>,
}

#[derive(Clone, Debug, Default)]
pub struct RangeRequest {
    pub prefix: String,
    /// Only keys after this one, for paging.
    pub after: Option<String>,
    /// 0 for no limit.
    pub limit: usize,
    /// The state as of this revision; none for the newest, linearizably read.
    pub at: Option<Revision>,
}

#[derive(Clone, Debug, Default)]
pub struct Range {
    pub entries: Vec<Entry>,
    /// The revision that this answer shows.
    pub revision: Revision,
    pub more: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("required revision {wanted} has been compacted, the oldest kept is {oldest}")]
    Compacted { wanted: Revision, oldest: Revision },
    #[error("required revision {wanted} is a future revision, the newest is {newest}")]
    Future { wanted: Revision, newest: Revision },
    /// The disk refuses writes (full, read-only); reads go on.
    #[error("store refuses writes: {0}")]
    ReadOnly(String),
    /// It is not known whether the write happened; the caller must look.
    #[error("store did not answer: {0}")]
    Unavailable(String),
    #[error("damaged record in {file} at offset {offset}: {why}")]
    Damaged { file: String, offset: u64, why: String },
    #[error("{0}")]
    Other(String),
}

#[async_trait::async_trait]
pub trait Store: Send + Sync + 'static {
    /// Linearizable.
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError>;

    async fn range(&self, request: RangeRequest) -> Result<Range, StoreError>;

    /// Durable when it answers `Done`.
    async fn write_if(&self, key: &str, expect: Expect, change: Change) -> Result<Written, StoreError>;

    /// Writes a last value and deletes the key right behind it; watchers see both. Answers the revision of the deletion.
    async fn end_if(&self, key: &str, expect: Revision, last: Bytes) -> Result<Written, StoreError> {
        let put = Change::Put { value: last, ttl: None };
        match self.write_if(key, Expect::At(expect), put).await? {
            Written::Done(revision) => self.write_if(key, Expect::At(revision), Change::Delete).await,
            conflict => Ok(conflict),
        }
    }

    /// The newest revision, linearizably read.
    async fn revision(&self) -> Result<Revision, StoreError>;

    /// Every change of every key after that revision, in order, in batches as they were committed. The stream
    /// reconnects by itself and ends only with an error: `Compacted` where the history is gone.
    async fn watch_from(
        &self,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Vec<Event>, StoreError>>, StoreError>;

    /// Forgets history before that revision.
    async fn compact(&self, before: Revision) -> Result<(), StoreError>;

    /// Removes values from the disk that are no longer current, as far as this store decides that: the embedded one has none left
    /// when it answers, etcd removes them with its next compactions.
    async fn forget_past(&self) -> Result<(), StoreError>;

    /// How much room the store takes on disk, where it can say.
    async fn size_bytes(&self) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }
}
