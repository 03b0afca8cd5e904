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

/// Whether any file of a folder holds that text.
fn holds(dir: &Path, text: &str) -> bool {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    files.into_iter().any(|content| content.windows(text.len()).any(|window| window == text.as_bytes()))
}

#[tokio::test]
async fn a_forgotten_past_is_off_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(Config::new(dir.path())).unwrap();
    let first = put(&store, "/a", Expect::Absent, "the-old-value").await.unwrap();
    let second = put(&store, "/a", Expect::At(first), "the-new-value").await.unwrap();
    assert!(holds(dir.path(), "the-old-value"));
    store.forget_past().await.unwrap();
    assert!(!holds(dir.path(), "the-old-value"));
    assert!(matches!(store.watch_from(first).await, Err(StoreError::Compacted { .. })));
    // It can be asked for again, and writes go on.
    store.forget_past().await.unwrap();
    let third = put(&store, "/b", Expect::Absent, "another").await.unwrap();
    assert_eq!(third.0, second.0 + 1);
    drop(store);
    let store = EmbeddedStore::open(Config::new(dir.path())).unwrap();
    let values = [("/a".to_owned(), "the-new-value".into()), ("/b".to_owned(), "another".into())];
    assert_eq!(all(&store).await, values);
    assert_eq!(store.get("/a").await.unwrap().unwrap().revision, second);
    assert_eq!(store.damaged(), []);
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

fn small(dir: &Path) -> Config {
    let (segment_bytes, allocate_bytes, checkpoint_bytes_min) = (64 << 10, 16 << 10, 128 << 10);
    Config { segment_bytes, allocate_bytes, checkpoint_bytes_min, history_bytes: 64 << 10, ..Config::new(dir) }
}

async fn all(store: &EmbeddedStore) -> Vec<(String, Bytes)> {
    let range = store.range(RangeRequest::default()).await.unwrap();
    range.entries.into_iter().map(|entry| (entry.key.to_string(), entry.value)).collect()
}

#[tokio::test]
async fn a_failed_write_is_refused_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new(dir.path());
    let store = EmbeddedStore::open(config.clone()).unwrap();
    let first = put(&store, "/a", Expect::Absent, "one").await.unwrap();
    config.faults.writes.store(2, Ordering::SeqCst);
    for _ in 0..2 {
        let refused = put(&store, "/a", Expect::At(first), &"two".repeat(1000)).await;
        assert!(matches!(&refused, Err(StoreError::ReadOnly(text)) if text.contains(".log")), "{refused:?}");
        assert_eq!(&store.get("/a").await.unwrap().unwrap().value[..], b"one");
        assert_eq!(store.revision().await.unwrap(), first);
    }
    let third = put(&store, "/a", Expect::At(first), "three").await.unwrap();
    assert_eq!(third.0, first.0 + 1);
    drop(store);
    let store = EmbeddedStore::open(config).unwrap();
    assert_eq!(all(&store).await, [("/a".to_owned(), Bytes::from_static(b"three"))]);
    assert_eq!(store.damaged(), []);
}

#[tokio::test]
async fn after_a_failed_sync_the_store_starts_over() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new(dir.path());
    let store = EmbeddedStore::open(config.clone()).unwrap();
    let first = put(&store, "/a", Expect::Absent, "one").await.unwrap();
    config.faults.syncs.store(1, Ordering::SeqCst);
    let refused = put(&store, "/a", Expect::At(first), "two").await;
    assert!(matches!(&refused, Err(StoreError::ReadOnly(_))), "{refused:?}");
    // The old segment holds "two" in full, and yet nobody may ever see it.
    drop(store);
    let store = EmbeddedStore::open(config.clone()).unwrap();
    assert_eq!(all(&store).await, [("/a".to_owned(), Bytes::from_static(b"one"))]);
    let third = put(&store, "/a", Expect::At(first), "three").await.unwrap();
    assert_eq!(third.0, first.0 + 1);
    drop(store);
    let store = EmbeddedStore::open(config).unwrap();
    assert_eq!(all(&store).await, [("/a".to_owned(), Bytes::from_static(b"three"))]);
    let mut events = store.watch_from(Revision(1)).await.unwrap();
    let values: Vec<_> = events.next().await.unwrap().unwrap().into_iter().filter_map(|event| event.value).collect();
    assert_eq!(values, ["one", "three"]);
}

#[tokio::test]
async fn keys_delete_themselves_also_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock::ManualClock::at(1_000_000);
    let config = Config { clock: clock.clone(), ..Config::new(dir.path()) };
    let store = EmbeddedStore::open(config.clone()).unwrap();
    let timed = |seconds| Change::Put { value: Bytes::from_static(b"x"), ttl: Some(Duration::from_secs(seconds)) };
    for (key, seconds) in [("/ten", 10), ("/twenty", 20), ("/thirty", 30)] {
        store.write_if(key, Expect::Absent, timed(seconds)).await.unwrap();
    }
    let mut events = store.watch_from(Revision(4)).await.unwrap();
    clock.advance(Duration::from_secs(9));
    assert_eq!(all(&store).await.len(), 3);
    clock.advance(Duration::from_secs(2));
    let batch = events.next().await.unwrap().unwrap();
    assert_eq!((&*batch[0].key, &batch[0].value, batch[0].revision), ("/ten", &None, Revision(5)));
    drop((events, store));
    clock.advance(Duration::from_secs(10));
    let store = EmbeddedStore::open(config).unwrap();
    let mut events = store.watch_from(Revision(5)).await.unwrap();
    let batch = events.next().await.unwrap().unwrap();
    assert_eq!((&*batch[0].key, batch[0].revision), ("/twenty", Revision(6)));
    assert_eq!(all(&store).await.len(), 1);
}

#[tokio::test]
async fn history_grows_old() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock::ManualClock::at(1_000_000);
    let config = Config { clock: clock.clone(), ..Config::new(dir.path()) };
    let store = EmbeddedStore::open(config.clone()).unwrap();
    let first = put(&store, "/a", Expect::Absent, "one").await.unwrap();
    clock.advance(Duration::from_secs(240));
    let second = put(&store, "/a", Expect::At(first), "two").await.unwrap();
    assert!(store.watch_from(Revision(1)).await.is_ok());
    clock.advance(Duration::from_secs(62));
    // The clock wakes the writer thread; this waits until it has been there.
    let forgotten = async || {
        while store.watch_from(Revision(1)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), forgotten()).await.expect("the first write is five minutes old");
    assert!(store.watch_from(first).await.is_ok());
    drop(store);
    // And recovery does not bring back what is older.
    clock.advance(Duration::from_secs(300));
    let store = EmbeddedStore::open(config).unwrap();
    let old = async || {
        while store.watch_from(first).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), old()).await.expect("all history is older than five minutes");
    assert!(store.watch_from(second).await.is_ok());
}

#[tokio::test]
async fn files_shrink_by_themselves_and_the_state_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(small(dir.path())).unwrap();
    let mut at = Expect::Absent;
    let kept = put(&store, "/kept", Expect::Absent, "kept").await.unwrap();
    let mut slow = store.watch_from(kept).await.unwrap();
    for number in 0..1500 {
        at = Expect::At(put(&store, "/a", at, &format!("{number}-").repeat(200)).await.unwrap());
    }
    assert!(matches!(slow.next().await, Some(Err(StoreError::Compacted { .. }))), "it has slept for too long");
    let newest = store.revision().await.unwrap();
    drop(store);
    let size = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>();
    assert!(size < 600 << 10, "{size} bytes for two keys, after a megabyte of writes");
    let store = EmbeddedStore::open(small(dir.path())).unwrap();
    assert_eq!(store.revision().await.unwrap(), newest);
    assert_eq!(all(&store).await.len(), 2);
    let entry = store.get("/kept").await.unwrap().unwrap();
    assert_eq!((entry.revision, entry.created), (kept, kept));
    assert!(store.watch_from(Revision(newest.0 - 10)).await.is_ok(), "a checkpoint does not cost the history");
}

#[tokio::test]
async fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(Config::new(dir.path())).unwrap();
    let second = EmbeddedStore::open(Config::new(dir.path())).err().map(|error| error.to_string());
    assert!(second.is_some_and(|text| text.contains("in use by another process")));
    drop(store);
    assert!(EmbeddedStore::open(Config::new(dir.path())).is_ok());
}

#[tokio::test]
async fn a_snapshot_is_restored_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(Config::new(dir.path().join("store"))).unwrap();
    for number in 0..100 {
        put(&store, &format!("/{number}"), Expect::Absent, &number.to_string()).await.unwrap();
    }
    let file = dir.path().join("saved");
    let saved = store.snapshot_save(&file).await.unwrap();
    put(&store, "/later", Expect::Absent, "").await.unwrap();
    let target = dir.path().join("restored");
    assert_eq!(snapshot::restore(&file, &target).unwrap(), saved);
    assert!(snapshot::restore(&file, &target).unwrap_err().to_string().contains("not empty"));
    let restored = EmbeddedStore::open(Config::new(&target)).unwrap();
    assert_eq!(restored.revision().await.unwrap(), saved);
    assert_eq!(all(&restored).await.len(), 100);
    assert_eq!(put(&restored, "/new", Expect::Absent, "").await.unwrap().0, saved.0 + 1);
    drop(restored);
    assert_eq!(all(&EmbeddedStore::open(Config::new(&target)).unwrap()).await.len(), 101);

    let whole = std::fs::read(&file).unwrap();
    for at in (0..whole.len()).step_by(37) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&file, &bytes).unwrap();
        let refused = snapshot::restore(&file, &dir.path().join("other"));
        assert!(matches!(refused, Err(StoreError::Damaged { .. })), "byte {at}: {refused:?}");
        std::fs::write(&file, &whole[..at]).unwrap();
        assert!(snapshot::restore(&file, &dir.path().join("other")).is_err(), "cut at {at}");
    }
    assert!(!dir.path().join("other").exists());
}
