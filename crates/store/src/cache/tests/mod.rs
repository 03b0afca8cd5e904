//! The cache over a store in memory.

mod memory;
mod race;
mod undecrypted;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::budget::CHANGES_BYTES_MAX;
use super::history::HISTORY_BYTES_MAX;
use super::watcher::SCOPED_QUEUE_MAX;
use super::*;
use crate::RangeRequest;
use memory::Memory;

const POD_A: &str = "/registry/pods/default/a";
const POD_B: &str = "/registry/pods/default/b";
const POD_C: &str = "/registry/pods/other/c";
const SECRET: &str = "/registry/secrets/default/s";

/// Refuses values that begin with `bad`.
fn describe() -> Describe {
    Arc::new(|value: &Bytes| {
        if value.starts_with(b"bad") { Err(DescribeError::value("not an object")) } else { Ok(Description::default()) }
    })
}

async fn pods(memory: &Memory) -> (Arc<Cache>, Arc<Resource>) {
    let cache = Cache::start(Arc::new(memory.clone())).await.expect("starts");
    let pods = cache.register("pods", describe()).await.expect("loads");
    (cache, pods)
}

/// Waits until the cache has what the store has.
async fn caught_up(cache: &Cache) -> Revision {
    cache.fresh().await.expect("catches up")
}

fn scope(prefix: &str) -> WatchScope {
    WatchScope { key_prefix: Some(prefix.to_owned()), field: None }
}

const ALL: WatchScope = WatchScope { key_prefix: None, field: None };

/// `3 b=1 was -`: revision, name, value and previous value; `!` for a deletion.
fn text(change: &Change) -> String {
    let value = |item: &Item| String::from_utf8_lossy(&item.value).into_owned();
    assert_eq!(change.item.revision, change.revision);
    format!(
        "{} {}{}={} was {}",
        change.revision,
        if change.deleted { "!" } else { "" },
        change.item.key.rsplit('/').next().unwrap_or_default(),
        value(&change.item),
        change.previous.as_deref().map_or("-".to_owned(), value),
    )
}

/// Takes what is there now and compares.
async fn check(watcher: &mut Watcher, expected: &[&str]) {
    let mut changes = Vec::new();
    while changes.len() < expected.len() {
        let more = tokio::time::timeout(Duration::from_secs(5), watcher.next_batch(100, &mut changes)).await;
        assert_eq!(more, Ok(true), "after {:?}", changes.iter().map(|change| text(change)).collect::<Vec<_>>());
    }
    assert_eq!(changes.iter().map(|change| text(change)).collect::<Vec<_>>(), expected);
    let nothing = tokio::time::timeout(Duration::from_millis(10), watcher.next()).await;
    assert!(nothing.is_err(), "unexpected {:?}", nothing.map(|change| change.map(|change| text(&change))));
}

fn names(snapshot: &Snapshot) -> String {
    let name = |(key, item): (&Arc<str>, &Arc<Item>)| {
        format!("{}={}", key.rsplit('/').next().unwrap_or_default(), String::from_utf8_lossy(&item.value))
    };
    format!("{}: {}", snapshot.revision, snapshot.items.iter().map(name).collect::<Vec<_>>().join(" "))
}

#[tokio::test]
async fn watchers_of_a_value_see_what_has_it_or_had_it() {
    let memory = Memory::new();
    let cache = Cache::start(Arc::new(memory.clone())).await.expect("starts");
    // The value is the field, as a node's name is of its pods.
    let field = |value: &Bytes| Description {
        fields: vec![String::from_utf8_lossy(value).into_owned().into()],
        ..Description::default()
    };
    let pods = cache.register("pods", Arc::new(move |value: &Bytes| Ok(field(value)))).await.expect("loads");
    let of = |value: &str| WatchScope { field: Some((0, value.into())), ..scope("/registry/pods/") };
    let (_, mut one) = pods.list_and_watch(of("n1"));
    let (_, mut other) = pods.list_and_watch(of("n2"));
    let (_, mut elsewhere) = pods.list_and_watch(of("n3"));
    let (_, mut nowhere) = pods.list_and_watch(of(""));
    let (_, ended) = pods.list_and_watch(of("n2"));
    drop(ended);
    memory.write(&[(POD_A, Some(""))]);
    memory.write(&[(POD_A, Some("n1")), (POD_B, Some("n2"))]);
    memory.write(&[(POD_A, Some("n2"))]);
    memory.write(&[(POD_A, None), (POD_B, Some("n2"))]);
    caught_up(&cache).await;
    check(&mut nowhere, &["1 a= was -", "2 a=n1 was "]).await;
    check(&mut one, &["2 a=n1 was ", "3 a=n2 was n1"]).await;
    let changes = ["2 b=n2 was -", "3 a=n2 was n1", "4 !a=n2 was n2", "4 b=n2 was n2"];
    check(&mut other, &changes).await;
    check(&mut elsewhere, &[]).await;
    // What happened before is chosen the same way, and nobody else was woken.
    check(&mut pods.watch(Revision(0), of("n2")).expect("kept"), &changes).await;
    assert_eq!(elsewhere.revision(), Revision(4));
}

#[tokio::test]
async fn objects_of_a_value_are_found_without_the_others() {
    let memory = Memory::new();
    let cache = Cache::start(Arc::new(memory.clone())).await.expect("starts");
    let fields = |value: &Bytes| {
        let text = String::from_utf8_lossy(value).into_owned();
        let parts = text.split(' ').map(Into::into);
        Description { fields: parts.collect(), ..Description::default() }
    };
    memory.write(&[(POD_A, Some("n1 up")), (POD_C, Some("n1 down"))]);
    let pods = cache.register("pods", Arc::new(move |value: &Bytes| Ok(fields(value)))).await.expect("loads");
    let found = |at: usize, value: &str, prefix: &str| {
        let (revision, items) = pods.having(at, value, prefix);
        let names: Vec<&str> = items.iter().filter_map(|item| item.key.rsplit('/').next()).collect();
        format!("{revision}: {}", names.join(" "))
    };
    assert_eq!(found(0, "n1", "/registry/pods/"), "1: a c");
    assert_eq!(found(0, "n1", "/registry/pods/other/"), "1: c");
    memory.write(&[(POD_A, Some("n2 up")), (POD_B, Some("n1 up"))]);
    caught_up(&cache).await;
    assert_eq!(found(0, "n1", "/registry/pods/"), "2: b c");
    // Another field than the one that is kept is found by looking at all.
    assert_eq!(found(1, "up", "/registry/pods/"), "2: a b");
    let scope = WatchScope { field: Some((0, "n1".into())), ..scope("/registry/pods/") };
    let (revision, items, mut watcher) = pods.having_and_watch(scope).expect("a field and a prefix");
    assert_eq!((revision, items.len()), (Revision(2), 2));
    memory.write(&[(POD_B, None), (POD_C, Some("n3 up"))]);
    caught_up(&cache).await;
    check(&mut watcher, &["3 !b=n1 up was n1 up", "3 c=n3 up was n1 down"]).await;
    assert_eq!(found(0, "n1", "/registry/pods/"), "3: ");
    assert_eq!(found(0, "n3", "/registry/pods/"), "3: c");
}

#[tokio::test]
async fn get_list_and_watch() {
    let memory = Memory::new();
    memory.write(&[(POD_A, Some("1"))]);
    let (cache, pods) = pods(&memory).await;
    let (snapshot, mut all) = pods.list_and_watch(ALL);
    let (_, mut namespace) = pods.list_and_watch(scope("/registry/pods/default/"));
    let (_, mut object) = pods.list_and_watch(scope(POD_A));
    assert_eq!(names(&snapshot), "1: a=1");

    memory.write(&[(POD_B, Some("1"))]);
    memory.write(&[(POD_A, Some("2")), (POD_C, Some("1")), (SECRET, Some("1"))]);
    memory.write(&[(POD_A, None)]);
    memory.write(&[(SECRET, Some("2"))]);
    assert_eq!(caught_up(&cache).await, Revision(5));
    assert_eq!(names(&pods.snapshot()), "5: b=1 c=1");
    assert_eq!(pods.last_changed(), Revision(4));
    assert_eq!(pods.get(POD_B).map(|item| item.created), Some(Revision(2)));
    assert!(pods.get(POD_A).is_none());

    assert_eq!(all.revision(), Revision(1));
    check(&mut all, &["2 b=1 was -", "3 a=2 was 1", "3 c=1 was -", "4 !a=2 was 2"]).await;
    check(&mut namespace, &["2 b=1 was -", "3 a=2 was 1", "4 !a=2 was 2"]).await;
    check(&mut object, &["3 a=2 was 1", "4 !a=2 was 2"]).await;
    assert_eq!((all.revision(), namespace.revision(), object.revision()), (Revision(5), Revision(5), Revision(5)));

    for (at, expected) in [(1, "1: a=1"), (2, "2: a=1 b=1"), (3, "3: a=2 b=1 c=1"), (5, "5: b=1 c=1")] {
        assert_eq!(names(&pods.snapshot_at(Revision(at)).expect("kept")), expected);
    }
    assert!(matches!(pods.snapshot_at(Revision(0)), Err(StoreError::Compacted { .. })));
    assert!(matches!(pods.snapshot_at(Revision(6)), Err(StoreError::Future { .. })));
    assert!(matches!(pods.watch(Revision(0), ALL), Err(StoreError::Compacted { .. })));

    let mut late = pods.watch(Revision(3), ALL).expect("kept");
    check(&mut late, &["4 !a=2 was 2"]).await;
    let mut late = pods.watch(Revision(2), scope(POD_A)).expect("kept");
    check(&mut late, &["3 a=2 was 1", "4 !a=2 was 2"]).await;
}

#[tokio::test]
async fn half_a_revision_is_not_a_bookmark() {
    let memory = Memory::new();
    let (cache, pods) = pods(&memory).await;
    let mut watcher = pods.watch(Revision(0), ALL).expect("kept");
    memory.write(&[(POD_A, Some("1")), (POD_B, Some("1"))]);
    caught_up(&cache).await;
    watcher.next().await.expect("a");
    assert_eq!(watcher.revision(), Revision(0));
    watcher.next().await.expect("b");
    assert_eq!(watcher.revision(), Revision(1));
}

#[tokio::test]
async fn resources_come_and_go() {
    let memory = Memory::new();
    let (cache, pods) = pods(&memory).await;
    memory.write(&[(SECRET, Some("1"))]);
    let secrets = cache.register("secrets", describe()).await.expect("loads");
    let again = cache.register("secrets", describe()).await.expect("is there");
    assert!(Arc::ptr_eq(&secrets, &again));
    assert_eq!(names(&secrets.snapshot()), "1: s=1");
    let mut all = secrets.watch(Revision(1), ALL).expect("kept");
    let mut one = secrets.watch(Revision(1), scope(SECRET)).expect("kept");
    memory.write(&[(SECRET, Some("2"))]);
    caught_up(&cache).await;
    cache.unregister("secrets").await;
    memory.write(&[(SECRET, Some("3"))]);
    caught_up(&cache).await;
    for watcher in [&mut all, &mut one] {
        assert_eq!(watcher.next().await.map(|change| text(&change)).as_deref(), Some("2 s=2 was 1"));
        // What comes after the end is not shown, and must not be claimed to be.
        assert!(watcher.revision() <= Revision(2));
        assert!(watcher.next().await.is_none());
        assert!(watcher.revision() <= Revision(2));
    }
    let secrets = cache.register("secrets", describe()).await.expect("loads again");
    assert_eq!(names(&secrets.snapshot()), "3: s=3");
    assert_eq!(pods.snapshot().revision, Revision(3));
}

#[tokio::test]
async fn damaged_values_are_left_out_and_reported() {
    let memory = Memory::new();
    memory.write(&[(POD_B, Some("bad 1"))]);
    let (cache, pods) = pods(&memory).await;
    let mut watcher = pods.watch(Revision(1), ALL).expect("kept");
    memory.write(&[(POD_A, Some("1"))]);
    memory.write(&[(POD_A, Some("bad 2"))]);
    memory.write(&[(POD_A, Some("3"))]);
    memory.write(&[(POD_B, Some("bad 4"))]);
    memory.write(&[(POD_A, Some("bad 5"))]);
    memory.write(&[(POD_A, None)]);
    caught_up(&cache).await;
    check(&mut watcher, &["2 a=1 was -", "3 !a=1 was 1", "4 a=3 was -", "6 !a=3 was 3"]).await;
    assert_eq!(pods.damaged(), [(POD_B.into(), "not an object".to_owned())]);
    memory.write(&[(POD_B, Some("2"))]);
    caught_up(&cache).await;
    check(&mut watcher, &["8 b=2 was -"]).await;
    assert_eq!(pods.get(POD_B).map(|item| item.created), Some(Revision(1)));
    assert!(pods.damaged().is_empty());
}

#[tokio::test]
async fn a_lost_history_becomes_differences() {
    let memory = Memory::new();
    memory.write(&[(POD_A, Some("1"))]);
    memory.write(&[(POD_B, Some("1"))]);
    memory.write(&[(POD_C, Some("1"))]);
    let (cache, pods) = pods(&memory).await;
    let (_, mut all) = pods.list_and_watch(ALL);
    let (_, mut object) = pods.list_and_watch(scope(POD_A));
    memory.write_quietly(&[(POD_A, None)]);
    memory.write_quietly(&[(POD_A, Some("2"))]);
    memory.write_quietly(&[(POD_B, None)]);
    memory.write_quietly(&[(POD_C, Some("2"))]);
    memory.lose();
    caught_up(&cache).await;
    check(&mut all, &["4 !a=1 was 1", "5 a=2 was -", "7 !b=1 was 1", "7 c=2 was 1"]).await;
    check(&mut object, &["4 !a=1 was 1", "5 a=2 was -"]).await;
    // What lay between is not known exactly, so nobody may start there.
    assert!(matches!(pods.watch(Revision(5), ALL), Err(StoreError::Compacted { .. })));
    memory.write(&[(POD_C, Some("3"))]);
    check(&mut all, &["8 c=3 was 2"]).await;
}

#[tokio::test]
async fn a_store_put_back_ends_all_watchers() {
    let memory = Memory::new();
    memory.write(&[(POD_A, Some("1"))]);
    memory.write(&[(POD_A, Some("2"))]);
    let (cache, pods) = pods(&memory).await;
    let (_, mut all) = pods.list_and_watch(ALL);
    let (_, mut object) = pods.list_and_watch(scope(POD_A));
    memory.put_back();
    assert!(all.next().await.is_none());
    assert!(object.next().await.is_none());
    memory.write(&[(POD_B, Some("1"))]);
    caught_up(&cache).await;
    assert_eq!(names(&pods.snapshot()), "2: b=1");
}

#[tokio::test]
async fn a_slow_watcher_is_cut_and_others_go_on() {
    let memory = Memory::new();
    let (cache, pods) = pods(&memory).await;
    let mut slow = pods.watch(Revision(0), scope(POD_A)).expect("kept");
    let mut slow_all = pods.watch(Revision(0), ALL).expect("kept");
    let mut quiet = pods.watch(Revision(0), scope(POD_B)).expect("kept");
    let big = "x".repeat(HISTORY_BYTES_MAX / SCOPED_QUEUE_MAX * 2);
    for _ in 0..=SCOPED_QUEUE_MAX {
        memory.write(&[(POD_A, Some(&big))]);
    }
    caught_up(&cache).await;
    assert_eq!((slow.revision(), slow_all.revision()), (Revision(0), Revision(0)));
    assert!(slow.next().await.is_none());
    assert!(slow_all.next().await.is_none());
    memory.write(&[(POD_B, Some("1"))]);
    assert!(quiet.next().await.is_some());
    assert!(matches!(pods.watch(Revision(1), ALL), Err(StoreError::Compacted { .. })));
}

#[tokio::test(start_paused = true)]
async fn old_changes_are_let_go() {
    let memory = Memory::new();
    let (cache, pods) = pods(&memory).await;
    memory.write(&[(POD_A, Some("1"))]);
    caught_up(&cache).await;
    assert!(pods.watch(Revision(0), ALL).is_ok());
    tokio::time::sleep(HISTORY_AGE_MAX + Duration::from_secs(60)).await;
    assert!(matches!(pods.watch(Revision(0), ALL), Err(StoreError::Compacted { .. })));
    assert!(pods.watch(Revision(1), ALL).is_ok());
}

/// Upstream compacts etcd every five minutes: a page of a list can be continued for so long and no longer, whether or
/// not the listed resource has changed. Watches go on from where they were.
#[tokio::test(start_paused = true)]
async fn exact_lists_expire_with_the_store_and_watches_do_not() {
    let memory = Memory::new();
    let (cache, pods) = pods(&memory).await;
    memory.write(&[(POD_A, Some("1"))]);
    let listed = caught_up(&cache).await;
    assert!(pods.snapshot_at(listed).is_ok());
    memory.write(&[(SECRET, Some("1"))]);
    let newest = caught_up(&cache).await;
    tokio::time::sleep(HISTORY_AGE_MAX - Duration::from_secs(60)).await;
    assert!(pods.snapshot_at(listed).is_ok());
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(matches!(pods.snapshot_at(listed), Err(StoreError::Compacted { .. })));
    assert!(pods.snapshot_at(newest).is_ok());
    assert!(pods.watch(listed, ALL).is_ok());
}

/// The history holds few of many writes, and who reads in pages must not begin again for that.
#[tokio::test(start_paused = true)]
async fn a_state_that_is_read_in_pages_outlives_the_history() {
    let memory = Memory::new();
    let (cache, pods) = pods(&memory).await;
    memory.write(&[(POD_A, Some("1"))]);
    let listed = caught_up(&cache).await;
    let before = pods.snapshot();
    let large = "x".repeat(1 << 20);
    let overflow = async || {
        for _ in 0..HISTORY_BYTES_MAX >> 20 {
            memory.write(&[(POD_A, Some(&large))]);
        }
        caught_up(&cache).await
    };
    overflow().await;
    assert!(matches!(pods.snapshot_at(listed), Err(StoreError::Compacted { .. })));
    pods.keep_for_pages(before);
    overflow().await;
    let kept = pods.snapshot_at(listed).expect("kept for the next page");
    assert_eq!(kept.items.values().next().map(|item| item.value.len()), Some(1));
    tokio::time::sleep(HISTORY_AGE_MAX + Duration::from_secs(60)).await;
    assert!(matches!(pods.snapshot_at(listed), Err(StoreError::Compacted { .. })));
}

/// Each resource alone would be within its bounds.
#[tokio::test]
async fn histories_share_one_bound() {
    let memory = Memory::new();
    let cache = Cache::start(Arc::new(memory.clone())).await.expect("starts");
    let big = "x".repeat(1 << 20);
    let mut resources = Vec::new();
    for name in ["a", "b", "c", "d"] {
        resources.push(cache.register(name, describe()).await.expect("loads"));
        let key = format!("/registry/{name}/default/x");
        for _ in 0..CHANGES_BYTES_MAX / (1 << 20) / 4 {
            memory.write(&[(&key, Some(&big))]);
        }
        caught_up(&cache).await;
    }
    assert!(resources[3].watch(caught_up(&cache).await, ALL).is_ok());
    // Value and previous value count, so that half of what was written fills the bound.
    assert!(cache.budget.held() <= CHANGES_BYTES_MAX + 4 * (1 << 20), "{}", cache.budget.held());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_revision_that_does_not_come() {
    let memory = Memory::new();
    let (cache, _) = pods(&memory).await;
    let error = cache.wait_for(Revision(7), Duration::from_secs(3)).await;
    assert!(matches!(error, Err(StoreError::Future { wanted: Revision(7), newest: Revision(0) })));
}

#[tokio::test]
async fn readers_share_a_question_put_after_they_came() {
    let memory = Memory::new();
    let (cache, _) = pods(&memory).await;
    memory.asked.store(0, Ordering::SeqCst);
    let permits = memory.answers.available_permits();
    memory.answers.forget_permits(permits);
    let ask = || {
        let cache = cache.clone();
        tokio::spawn(async move { cache.fresh().await })
    };
    let first = ask();
    tokio::task::yield_now().await;
    // The first question is on its way with the old answer; these came after the write and must see it.
    let written = memory.write(&[(POD_A, Some("1"))]);
    let later: Vec<_> = (0..100).map(|_| ask()).collect();
    tokio::task::yield_now().await;
    memory.answers.add_permits(2);
    assert_eq!(first.await.expect("runs").expect("answers"), Revision(0));
    for reader in later {
        assert_eq!(reader.await.expect("runs").expect("answers"), written);
    }
    assert_eq!(memory.asked.load(Ordering::SeqCst), 2);
}

#[test]
fn resource_version_is_spliced_in() {
    for (value, expected) in [
        (r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"resourceVersion":"120","name":"a"}}"#),
        (r#"{"metadata":{},"x":1}"#, r#"{"metadata":{"resourceVersion":"120"},"x":1}"#),
    ] {
        let splice = value.find("{\"metadata\":{").map_or(0, |at| at + "{\"metadata\":{".len()) as u32;
        let description = Description { splice, ..Description::default() };
        let value = Bytes::from_static(value.as_bytes());
        let item = Item::new(POD_A.into(), value, Revision(120), Revision(1), description);
        assert_eq!(item.encoded(), expected);
    }
}
