//! Three members, and the leader dies under load.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use store::cache::{Cache, Description, WatchScope};
use store::etcd::{Config, EtcdStore};
use store::{Change, Entry, Event, Expect, Revision, Store, StoreError, Written};

use crate::processes::{Etcd, installed};
use crate::without_compaction;

const WRITERS: usize = 32;
const PREFIX: &str = "/registry/load/";
/// How long the load runs before, during and after the leader's death.
const PHASE: Duration = Duration::from_secs(3);

/// What one writer was told.
#[derive(Default)]
struct Told {
    /// Revision and value of each acknowledged write; no value for a deletion.
    done: BTreeMap<Revision, (String, Option<Bytes>)>,
    unavailable: usize,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_dies_under_load() {
    if !installed() {
        return;
    }
    let mut etcd = Etcd::start(3, None).await;
    let (_, store) = with_leader_first(&etcd).await;
    let store: Arc<dyn Store> = Arc::new(store);
    let start = store.revision().await.expect("it serves");
    let mut live = store.watch_from(start).await.expect("it watches");
    let (seen_by, mut seen) = tokio::sync::mpsc::unbounded_channel::<Event>();
    let watcher = tokio::spawn(async move {
        while let Some(batch) = live.next().await {
            for event in batch.expect("a watch goes on over the leader's death") {
                let _ = seen_by.send(event);
            }
        }
    });
    let cache = Cache::start(store.clone()).await.expect("it serves");
    let resource = cache.register("load", Arc::new(|_| Ok(Description::default()))).await.expect("it loads");
    let (_, mut cached) = resource.list_and_watch(WatchScope::default());

    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| tokio::spawn(write(store.clone(), number, stop.clone(), acknowledged.clone())))
        .collect();
    tokio::time::sleep(PHASE).await;
    let leader = etcd.leader().await;
    etcd.kill(leader);
    let at_death = acknowledged.load(Ordering::Relaxed);
    tokio::time::sleep(PHASE).await;
    etcd.run(leader);
    tokio::time::sleep(PHASE).await;
    stop.store(true, Ordering::Relaxed);

    let mut told = Told::default();
    for writer in writers {
        let one = writer.await.expect("no writer panics");
        told.unavailable += one.unavailable;
        for (revision, write) in one.done {
            assert!(told.done.insert(revision, write).is_none(), "revision {revision} was given twice");
        }
    }
    let total = told.done.len();
    println!("{total} writes acknowledged, {at_death} before the death, {} of unknown fate", told.unavailable);
    assert!(total > at_death, "writes go on after the leader's death");

    // Everything that happened, read back from etcd itself.
    let newest = store.revision().await.expect("it serves");
    let history = history(&*store, start, newest).await;
    let happened: BTreeMap<Revision, &Event> = history.iter().map(|event| (event.revision, event)).collect();
    for (revision, (key, value)) in &told.done {
        let event = happened.get(revision).unwrap_or_else(|| panic!("acknowledged write {revision} is lost"));
        assert_eq!((&*event.key, &event.value), (key.as_str(), value));
    }

    // The watch that ran all the time saw the same, in the same order.
    let mut log = Vec::new();
    while log.len() < history.len() {
        let event = tokio::time::timeout(Duration::from_secs(20), seen.recv()).await.expect("all events come");
        log.push(event.expect("the watch goes on"));
    }
    assert!(log == history, "the watch missed, doubled or reordered events");
    watcher.abort();

    // And so did a watcher of the cache, whose state is the store's.
    cache.fresh().await.expect("it catches up");
    let mut changes = Vec::new();
    while changes.len() < history.len() {
        let more = tokio::time::timeout(Duration::from_secs(20), cached.next_batch(1000, &mut changes)).await;
        assert_eq!(more, Ok(true));
    }
    let shown = changes.iter().map(|change| (change.revision, &change.item.key, change.deleted));
    assert!(shown.eq(history.iter().map(|event| (event.revision, &event.key, event.value.is_none()))));
    let snapshot = resource.snapshot();
    let entries = all(&*store, Some(snapshot.revision)).await;
    assert_eq!(entries.len(), snapshot.items.len());
    for entry in entries {
        let item = &snapshot.items[&entry.key];
        assert_eq!((&item.value, item.revision, item.created), (&entry.value, entry.revision, entry.created));
    }
    // No write of unknown fate was done twice: every value was written once.
    let values: Vec<&Bytes> = history.iter().filter_map(|event| event.value.as_ref()).collect();
    assert_eq!(values.iter().collect::<BTreeSet<_>>().len(), values.len());
}

/// A store that asks the leader first, so that it must turn to another when the leader fails.
async fn with_leader_first(etcd: &Etcd) -> (usize, EtcdStore) {
    etcd.connect(without_compaction()).await;
    let leader = etcd.leader().await;
    let mut endpoints = etcd.endpoints();
    endpoints.swap(0, leader);
    let config = Config { endpoints, ..without_compaction() };
    (leader, EtcdStore::connect(config).await.expect("it serves"))
}

/// Creates, changes and deletes keys of its own without pause. Nobody else touches them, so a conflict can only
/// come from a write of its own that it was not told of.
async fn write(store: Arc<dyn Store>, writer: usize, stop: Arc<AtomicBool>, acknowledged: Arc<AtomicUsize>) -> Told {
    let key = format!("{PREFIX}{writer}");
    let mut told = Told::default();
    let mut expect = Expect::Absent;
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let value = match (number % 7, expect) {
            (0, Expect::At(_)) => None,
            _ => Some(Bytes::from(format!("{writer}-{number}"))),
        };
        let change = value.clone().map_or(Change::Delete, |value| Change::Put { value, ttl: None });
        match store.write_if(&key, expect, change).await {
            Ok(Written::Done(revision)) => {
                acknowledged.fetch_add(1, Ordering::Relaxed);
                expect = value.as_ref().map_or(Expect::Absent, |_| Expect::At(revision));
                told.done.insert(revision, (key.clone(), value));
            }
            Ok(Written::Conflict(met)) => panic!("false conflict: expected {expect:?}, met {met:?}"),
            Err(StoreError::Unavailable(_)) => {
                told.unavailable += 1;
                expect = look(&*store, &key, expect).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
    told
}

/// After a write of unknown fate the key is looked at. What was sent may still be under way, so it is looked at
/// until a write of ours with that expectation is out of question: here simply by waiting.
async fn look(store: &dyn Store, key: &str, before: Expect) -> Expect {
    tokio::time::sleep(Duration::from_secs(1)).await;
    loop {
        match store.get(key).await {
            Ok(Some(entry)) => return Expect::At(entry.revision),
            Ok(None) => return Expect::Absent,
            Err(StoreError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(other) => panic!("{other}, expecting {before:?}"),
        }
    }
}

async fn history(store: &dyn Store, after: Revision, newest: Revision) -> Vec<Event> {
    let mut events = store.watch_from(after).await.expect("it watches");
    let mut all = Vec::new();
    let mut last = after;
    while last < newest {
        for event in events.next().await.expect("it goes on").expect("nothing was compacted") {
            assert!(event.revision > last);
            last = event.revision;
            all.push(event);
        }
    }
    all
}

async fn all(store: &dyn Store, at: Option<Revision>) -> Vec<Entry> {
    let request = store::RangeRequest { prefix: PREFIX.to_owned(), at, ..Default::default() };
    store.range(request).await.expect("it serves").entries
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_hangs_is_left() {
    if !installed() {
        return;
    }
    let etcd = Etcd::start(3, None).await;
    let (leader, store) = with_leader_first(&etcd).await;
    let start = store.revision().await.expect("it serves");
    let mut events = store.watch_from(start).await.expect("it watches");
    let put = |value: &'static str| Change::Put { value: Bytes::from_static(value.as_bytes()), ttl: None };
    let Ok(Written::Done(_)) = store.write_if("/registry/load/a", Expect::Absent, put("1")).await else {
        panic!("it takes writes")
    };
    assert_eq!(events.next().await.expect("it goes on").expect("it goes on")[0].value.as_deref(), Some(&b"1"[..]));
    etcd.hang(leader, true);
    let began = std::time::Instant::now();
    let entry = store.get("/registry/load/a").await.expect("another member answers").expect("it was written");
    let written = store.write_if("/registry/load/a", Expect::At(entry.revision), put("2")).await;
    let event = tokio::time::timeout(Duration::from_secs(10), events.next()).await;
    etcd.hang(leader, false);
    assert!(matches!(written, Ok(Written::Done(_))), "{written:?}");
    let event = event.expect("the watch moves too").expect("it goes on").expect("it goes on");
    assert_eq!(event[0].value.as_deref(), Some(&b"2"[..]));
    println!("went on after {:?}", began.elapsed());
}

/// A follower hands what it is asked to do to the leader. Where that one has just gone, nothing comes back; the writer hears
/// of none of it.
#[tokio::test(flavor = "multi_thread")]
async fn changes_outlive_the_leader() {
    if !installed() {
        return;
    }
    let etcd = Etcd::start(3, None).await;
    let (leader, _) = with_leader_first(&etcd).await;
    let mut endpoints = etcd.endpoints();
    // The one that is gone comes next.
    endpoints.rotate_left((leader + 2) % 3);
    let store = EtcdStore::connect(Config { endpoints, ..without_compaction() }).await.expect("it serves");
    let put = |value: &'static str| Change::Put { value: Bytes::from_static(value.as_bytes()), ttl: None };
    let Ok(Written::Done(first)) = store.write_if("/registry/load/a", Expect::Absent, put("1")).await else {
        panic!("it takes writes")
    };
    etcd.hang(leader, true);
    let began = std::time::Instant::now();
    let changed = store.write_if("/registry/load/a", Expect::At(first), put("2")).await;
    let made = store.write_if("/registry/load/b", Expect::Absent, put("3")).await;
    let took = began.elapsed();
    etcd.hang(leader, false);
    assert!(matches!(changed, Ok(Written::Done(_))), "{changed:?}");
    assert!(matches!(made, Ok(Written::Done(_))), "{made:?}");
    // Etcd alone would have let them wait for seven seconds before it said that it does not know.
    assert!(took < Duration::from_millis(6500), "{took:?}");
    println!("went on after {took:?}");
}

/// Nothing was sent to a member that refuses the connection, so the write goes to the next one.
#[tokio::test(flavor = "multi_thread")]
async fn writers_do_not_notice_a_member_that_is_gone() {
    if !installed() {
        return;
    }
    let mut etcd = Etcd::start(3, None).await;
    let (leader, _) = with_leader_first(&etcd).await;
    let follower = (leader + 1) % 3;
    let mut endpoints = etcd.endpoints();
    endpoints.swap(0, follower);
    // Alone at first, so that it is surely the one being asked.
    let alone = Config { endpoints: endpoints[..1].to_vec(), ..without_compaction() };
    while EtcdStore::connect(alone.clone()).await.is_err() {}
    let store = EtcdStore::connect(Config { endpoints, ..without_compaction() }).await.expect("it serves");
    etcd.kill(follower);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let change = Change::Put { value: Bytes::from_static(b"x"), ttl: None };
    let written = store.write_if("/registry/load/a", Expect::Absent, change).await;
    assert!(matches!(written, Ok(Written::Done(_))), "{written:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_was_put_back_ends_watchers() {
    if !installed() {
        return;
    }
    let mut etcd = Etcd::start(1, None).await;
    let store: Arc<dyn Store> = Arc::new(etcd.connect(without_compaction()).await);
    let cache = Cache::start(store.clone()).await.expect("it serves");
    let resource = cache.register("load", Arc::new(|_| Ok(Description::default()))).await.expect("it loads");
    let put = || Change::Put { value: Bytes::from_static(b"x"), ttl: None };
    for number in 0..10 {
        let key = format!("{PREFIX}{number}");
        store.write_if(&key, Expect::Absent, put()).await.expect("it takes writes");
    }
    cache.fresh().await.expect("it catches up");
    let (snapshot, mut watcher) = resource.list_and_watch(WatchScope::default());
    assert_eq!(snapshot.items.len(), 10);
    etcd.kill(0);
    etcd.wipe(0);
    etcd.run(0);
    let end = tokio::time::timeout(Duration::from_secs(30), watcher.next()).await.expect("the watcher learns of it");
    assert!(end.is_none());
    let written = store.write_if("/registry/load/new", Expect::Absent, put()).await;
    let Ok(Written::Done(revision)) = written else { panic!("{written:?}") };
    assert!(revision < snapshot.revision);
    cache.fresh().await.expect("it catches up");
    let snapshot = resource.snapshot();
    assert_eq!(snapshot.items.keys().map(|key| &**key).collect::<Vec<_>>(), ["/registry/load/new"]);
    assert_eq!(snapshot.revision, revision);
}
