//! Tests of the embedded store that need its insides: injected faults, the clock, and files changed by hand.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::*;

/// Disk errors to come.
#[derive(Default)]
pub(crate) struct Faults {
    pub writes: AtomicUsize,
    pub syncs: AtomicUsize,
}

impl Faults {
    pub(super) fn take_write(&self) -> Option<io::Error> {
        take(&self.writes).then(|| io::Error::from(io::ErrorKind::StorageFull))
    }

    pub(super) fn take_sync(&self) -> Option<io::Error> {
        take(&self.syncs).then(|| io::Error::other("input/output error"))
    }
}

fn take(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

async fn put(store: &EmbeddedStore, key: &str, expect: Expect, value: &str) -> Result<Revision, StoreError> {
    let change = Change::Put { value: Bytes::copy_from_slice(value.as_bytes()), ttl: None };
    match store.write_if(key, expect, change).await? {
        Written::Done(revision) => Ok(revision),
        Written::Conflict(current) => panic!("conflict at {key} with {current:?}"),
    }
}

#[tokio::test]
async fn what_was_written_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(Config::new(dir.path())).unwrap();
    let first = put(&store, "/a", Expect::Absent, "one").await.unwrap();
    assert_eq!(first, Revision(2));
    let second = put(&store, "/a", Expect::At(first), "two").await.unwrap();
    put(&store, "/b", Expect::Absent, "three").await.unwrap();
    drop(store);
    let store = EmbeddedStore::open(Config::new(dir.path())).unwrap();
    let entry = store.get("/a").await.unwrap().unwrap();
    assert_eq!((&entry.value[..], entry.revision, entry.created), (&b"two"[..], second, first));
    assert_eq!(store.revision().await.unwrap(), Revision(4));
    let past = store.range(RangeRequest { at: Some(first), ..RangeRequest::default() }).await.unwrap();
    assert_eq!(past.entries.len(), 1);
    assert_eq!(&past.entries[0].value[..], b"one");
    let mut events = store.watch_from(first).await.unwrap();
    let batch = events.next().await.unwrap().unwrap();
    assert_eq!(batch.iter().map(|event| event.revision.0).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(batch[0].previous, Some((Bytes::from_static(b"one"), first)));
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let dir = tempfile::tempdir().unwrap();
    let stores = AtomicUsize::new(0);
    let make = async || {
        let dir = dir.path().join(stores.fetch_add(1, Ordering::SeqCst).to_string());
        EmbeddedStore::open(Config::new(dir)).unwrap() as std::sync::Arc<dyn Store>
    };
    crate::conformance::suite(make).await;
}
