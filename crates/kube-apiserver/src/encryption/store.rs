//! A store whose values are encrypted on their way in and decrypted on their way out. It stands below the cache: what is kept in
//! memory is in clear, what the store writes to disk, to its log and into snapshots is not.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use store::{Change, Entry, Event, Expect, Range, RangeRequest, Revision, Store, StoreError, Written};

use super::Encryption;
use super::envelope::Patience;

/// In the place of a value that cannot be decrypted; no object begins like this.
const MARK: &[u8] = b"\0cannot decrypt: ";
/// How many values are decrypted before others run.
const OPEN_AT_ONCE_MAX: usize = 200;

pub struct Encrypted {
    store: Arc<dyn Store>,
    encryption: Arc<Encryption>,
}

/// Why a value could not be decrypted, if it is the mark of one.
pub fn reason(value: &[u8]) -> Option<String> {
    value.strip_prefix(MARK).map(|why| String::from_utf8_lossy(why).into_owned())
}

/// What became of a value that was looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// It is as it would be written today, or gone.
    Fresh,
    Done,
    /// Somebody else has written it meanwhile, or the store holds another one now.
    Lost,
}

impl Encrypted {
    pub fn new(store: Arc<dyn Store>, encryption: Arc<Encryption>) -> Arc<Encrypted> {
        Arc::new(Encrypted { store, encryption })
    }

    /// Whether a value would be written in another way today; then a write that changes nothing is a write all the same.
    pub async fn is_stale(&self, key: &str) -> Result<bool, StoreError> {
        if !self.encryption.concerns(key) {
            return Ok(false);
        }
        let Some(entry) = self.store.get(key).await? else { return Ok(false) };
        let opened = self.encryption.open(key, entry.value, Patience::Full).await;
        opened.map(|(_, stale)| stale).map_err(|error| StoreError::Other(error.to_string()))
    }

    /// Writes a value again where it would be written in another way today.
    pub async fn rewrite(&self, entry: Entry) -> Result<Rewritten, StoreError> {
        let refused = |error: super::TransformError| StoreError::Other(error.to_string());
        let (text, stale) = self.encryption.open(&entry.key, entry.value, Patience::Full).await.map_err(refused)?;
        if !stale {
            return Ok(Rewritten::Fresh);
        }
        let value = self.encryption.seal(&entry.key, text).map_err(refused)?;
        let put = Change::Put { value, ttl: None };
        Ok(match self.store.write_if(&entry.key, Expect::At(entry.revision), put).await? {
            Written::Done(_) => Rewritten::Done,
            Written::Conflict(None) => Rewritten::Fresh,
            Written::Conflict(Some(_)) => Rewritten::Lost,
        })
    }

    /// Values as they are stored.
    pub async fn stored(&self, request: RangeRequest) -> Result<Range, StoreError> {
        self.store.range(request).await
    }

    pub fn encryption(&self) -> &Arc<Encryption> {
        &self.encryption
    }

    fn seal(&self, key: &str, value: Bytes) -> Result<Bytes, StoreError> {
        self.encryption.seal(key, value).map_err(|error| StoreError::Other(error.to_string()))
    }

    async fn written(&self, written: Written) -> Written {
        match written {
            Written::Conflict(Some(held)) => Written::Conflict(Some(self.entry(held).await)),
            other => other,
        }
    }

    async fn entry(&self, entry: Entry) -> Entry {
        let value = readable(&self.encryption, &entry.key, entry.value, Patience::Full).await;
        Entry { value, ..entry }
    }
}

/// The value in clear, or the mark of one that cannot be.
async fn readable(encryption: &Encryption, key: &str, value: Bytes, patience: Patience) -> Bytes {
    match encryption.open(key, value, patience).await {
        Ok((text, _)) => text,
        Err(error) => {
            tracing::debug!(key, %error, "cannot decrypt stored value");
            [MARK, error.to_string().as_bytes()].concat().into()
        }
    }
}

async fn event(encryption: &Encryption, event: Event) -> Event {
    let value = match event.value {
        Some(value) => Some(readable(encryption, &event.key, value, Patience::Short).await),
        None => None,
    };
    let previous = match event.previous {
        Some((value, revision)) => Some((readable(encryption, &event.key, value, Patience::Short).await, revision)),
        None => None,
    };
    Event { value, previous, ..event }
}

async fn events(encryption: Arc<Encryption>, batch: Result<Vec<Event>, StoreError>) -> Result<Vec<Event>, StoreError> {
    let mut shown = Vec::new();
    for one in batch? {
        shown.push(event(&encryption, one).await);
    }
    Ok(shown)
}

#[async_trait::async_trait]
impl Store for Encrypted {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        match self.store.get(key).await? {
            Some(entry) => Ok(Some(self.entry(entry).await)),
            None => Ok(None),
        }
    }

    async fn range(&self, request: RangeRequest) -> Result<Range, StoreError> {
        let range = self.store.range(request).await?;
        let mut entries = Vec::with_capacity(range.entries.len());
        for (number, entry) in range.entries.into_iter().enumerate() {
            if number % OPEN_AT_ONCE_MAX == OPEN_AT_ONCE_MAX - 1 {
                tokio::task::yield_now().await;
            }
            entries.push(self.entry(entry).await);
        }
        Ok(Range { entries, ..range })
    }

    async fn write_if(&self, key: &str, expect: Expect, change: Change) -> Result<Written, StoreError> {
        let change = match change {
            Change::Put { value, ttl } => Change::Put { value: self.seal(key, value)?, ttl },
            Change::Delete => Change::Delete,
        };
        let written = self.store.write_if(key, expect, change).await?;
        Ok(self.written(written).await)
    }

    async fn end_if(&self, key: &str, expect: Revision, last: Bytes) -> Result<Written, StoreError> {
        let written = self.store.end_if(key, expect, self.seal(key, last)?).await?;
        Ok(self.written(written).await)
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.store.revision().await
    }

    async fn watch_from(
        &self,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Vec<Event>, StoreError>>, StoreError> {
        let encryption = self.encryption.clone();
        let batches = self.store.watch_from(after).await?;
        Ok(batches.then(move |batch| events(encryption.clone(), batch).boxed()).boxed())
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.store.compact(before).await
    }

    async fn forget_past(&self) -> Result<(), StoreError> {
        self.store.forget_past().await
    }

    async fn size_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.store.size_bytes().await
    }
}
