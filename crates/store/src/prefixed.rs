//! A store whose keys lie elsewhere than below `/registry`, so that several clusters can share one etcd.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::{Change, Entry, Event, Expect, Range, RangeRequest, Revision, Store, StoreError, Written};

/// Where everybody else believes that keys lie.
const USUAL: &str = "/registry";
/// Where keys of others seem to lie. They are passed on, because their revisions count, but are nobody's.
const ELSEWHERE: &str = "/elsewhere";

pub struct Prefixed {
    store: Arc<dyn Store>,
    prefix: String,
}

impl Prefixed {
    /// With `/registry` itself, the store is left as it is.
    pub fn wrap(store: Arc<dyn Store>, prefix: &str) -> Arc<dyn Store> {
        let prefix = format!("/{}", prefix.trim_matches('/'));
        match prefix.as_str() {
            USUAL => store,
            _ => Arc::new(Prefixed { store, prefix }),
        }
    }

    fn inner(&self, key: &str) -> String {
        below(key, USUAL).map_or_else(|| key.to_owned(), |rest| format!("{}{rest}", self.prefix))
    }

    fn entry(&self, entry: Entry) -> Entry {
        Entry { key: outer(&self.prefix, &entry.key), ..entry }
    }
}

/// What stands behind the prefix, where the key lies below it.
fn below<'a>(key: &'a str, prefix: &str) -> Option<&'a str> {
    key.strip_prefix(prefix).filter(|rest| rest.starts_with('/'))
}

fn outer(prefix: &str, key: &str) -> Arc<str> {
    match below(key, prefix) {
        Some(rest) => format!("{USUAL}{rest}").into(),
        None => format!("{ELSEWHERE}{key}").into(),
    }
}

#[async_trait::async_trait]
impl Store for Prefixed {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        Ok(self.store.get(&self.inner(key)).await?.map(|entry| self.entry(entry)))
    }

    async fn range(&self, request: RangeRequest) -> Result<Range, StoreError> {
        let prefix = self.inner(&request.prefix);
        let after = request.after.as_deref().map(|key| self.inner(key));
        let range = self.store.range(RangeRequest { prefix, after, ..request }).await?;
        Ok(Range { entries: range.entries.into_iter().map(|entry| self.entry(entry)).collect(), ..range })
    }

    async fn write_if(&self, key: &str, expect: Expect, change: Change) -> Result<Written, StoreError> {
        Ok(match self.store.write_if(&self.inner(key), expect, change).await? {
            Written::Conflict(held) => Written::Conflict(held.map(|entry| self.entry(entry))),
            done => done,
        })
    }

    async fn end_if(&self, key: &str, expect: Revision, last: Bytes) -> Result<Written, StoreError> {
        Ok(match self.store.end_if(&self.inner(key), expect, last).await? {
            Written::Conflict(held) => Written::Conflict(held.map(|entry| self.entry(entry))),
            done => done,
        })
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.store.revision().await
    }

    async fn watch_from(
        &self,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Vec<Event>, StoreError>>, StoreError> {
        let prefix = self.prefix.clone();
        let shown = move |event: Event| Event { key: outer(&prefix, &event.key), ..event };
        let batches = self.store.watch_from(after).await?;
        Ok(batches.map(move |batch| batch.map(|batch| batch.into_iter().map(&shown).collect())).boxed())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::{Config, EmbeddedStore};

    #[tokio::test]
    async fn two_prefixes_in_one_store_do_not_see_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = EmbeddedStore::open(Config::new(folder.path().join("store"))).unwrap();
        let (usual, other) = (Prefixed::wrap(store.clone(), "/registry/"), Prefixed::wrap(store.clone(), "other"));
        let now = other.revision().await.unwrap();
        let mut events = other.watch_from(now).await.unwrap();
        let key = "/registry/pods/default/a";
        for (view, value) in [(&usual, "1"), (&other, "2")] {
            let put = Change::Put { value: value.into(), ttl: None };
            assert!(matches!(view.write_if(key, Expect::Absent, put).await.unwrap(), Written::Done(_)));
        }
        assert_eq!(store.get("/other/pods/default/a").await.unwrap().unwrap().value, "2");
        let request = RangeRequest { prefix: "/registry/pods/".into(), ..RangeRequest::default() };
        let range = other.range(request).await.unwrap();
        let found: Vec<(&str, &[u8])> = range.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
        assert_eq!(found, [(key, &b"2"[..])]);
        let mut seen = Vec::new();
        while seen.len() < 2 {
            seen.extend(events.next().await.unwrap().unwrap().into_iter().map(|event| event.key.to_string()));
        }
        assert_eq!(seen, ["/elsewhere/registry/pods/default/a", key]);
        let put = Change::Put { value: "3".into(), ttl: None };
        let Written::Conflict(Some(held)) = other.write_if(key, Expect::Absent, put).await.unwrap() else {
            panic!("the key is there")
        };
        assert_eq!(&*held.key, key);
    }
}
