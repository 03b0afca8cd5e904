//! What every store promises, as one suite. The tests of each backend, and of the cache over it, call `suite`.
//!
//! Each part makes its own keys and ignores all others, so the stores that `make` hands out may share one backend
//! and need not be empty. Nothing else may compact that backend meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{BoxStream, StreamExt};

use crate::{Change, Entry, Event, Expect, Range, RangeRequest, Revision, Store, StoreError, Written};

/// No backend may take longer to show what it has promised.
const PATIENCE: Duration = Duration::from_secs(30);
const BIG_BYTES: usize = 1 << 20;

pub async fn suite(make: impl AsyncFn() -> Arc<dyn Store>) {
    get_put_delete(&Case::new(make().await)).await;
    expectations(&Case::new(make().await)).await;
    ranges(&Case::new(make().await)).await;
    prefix_edges(&Case::new(make().await)).await;
    pages_of_one_revision(&Case::new(make().await)).await;
    reads_of_the_past(&Case::new(make().await)).await;
    watch_order_and_previous_values(&Case::new(make().await)).await;
    watch_resumes_from_any_revision(&Case::new(make().await)).await;
    future_revisions(&Case::new(make().await)).await;
    one_winner_each_round(&Case::new(make().await)).await;
    last_values(&Case::new(make().await)).await;
    big_values(&Case::new(make().await)).await;
    watch_under_load(&Case::new(make().await)).await;
    keys_delete_themselves(&Case::new(make().await)).await;
    compaction(&Case::new(make().await)).await;
}

/// A store, and a prefix that nobody else uses.
struct Case {
    store: Arc<dyn Store>,
    prefix: String,
}

type Events = BoxStream<'static, Result<Vec<Event>, StoreError>>;

impl Case {
    fn new(store: Arc<dyn Store>) -> Case {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        Case { store, prefix: format!("/registry/conformance-{now}-{number}/") }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    async fn write(&self, name: &str, expect: Expect, change: Change) -> Written {
        self.store.write_if(&self.key(name), expect, change).await.expect("the store takes writes")
    }

    async fn put(&self, name: &str, expect: Expect, value: &str) -> Revision {
        done(self.write(name, expect, value_of(value)).await)
    }

    async fn create(&self, name: &str, value: &str) -> Revision {
        self.put(name, Expect::Absent, value).await
    }

    async fn delete(&self, name: &str, at: Revision) -> Revision {
        done(self.write(name, Expect::At(at), Change::Delete).await)
    }

    async fn get(&self, name: &str) -> Option<Entry> {
        self.store.get(&self.key(name)).await.expect("the store answers")
    }

    async fn range(&self, request: RangeRequest) -> Range {
        self.store.range(request).await.expect("the store answers")
    }

    fn request(&self) -> RangeRequest {
        RangeRequest { prefix: self.prefix.clone(), ..RangeRequest::default() }
    }

    async fn watch(&self, after: Revision) -> Events {
        self.store.watch_from(after).await.expect("the revision is kept")
    }

    /// The next events of this case's keys.
    async fn events(&self, events: &mut Events, count: usize) -> Vec<Event> {
        let mut seen = Vec::new();
        let mut last = Revision::default();
        let collect = async {
            while seen.len() < count {
                let batch = events.next().await.expect("a watch does not end").expect("nothing was compacted");
                for event in batch {
                    assert!(event.revision > last, "{} comes after {last}", event.revision);
                    last = event.revision;
                    if event.key.starts_with(&self.prefix) {
                        seen.push(event);
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, collect).await.expect("the events come");
        seen
    }
}

fn value_of(value: &str) -> Change {
    Change::Put { value: Bytes::copy_from_slice(value.as_bytes()), ttl: None }
}

fn done(written: Written) -> Revision {
    match written {
        Written::Done(revision) => revision,
        Written::Conflict(current) => panic!("the write was as expected, yet it met {current:?}"),
    }
}

fn conflict(written: Written) -> Option<Entry> {
    match written {
        Written::Done(revision) => panic!("the write did not meet its expectation, yet it made {revision}"),
        Written::Conflict(current) => current,
    }
}

/// Key (without the prefix) and value of each entry, as `name=value`.
fn shown(case: &Case, range: &Range) -> Vec<String> {
    let show = |entry: &Entry| {
        format!(
            "{}={}",
            entry.key.strip_prefix(&case.prefix).unwrap_or(&entry.key),
            String::from_utf8_lossy(&entry.value)
        )
    };
    range.entries.iter().map(show).collect()
}

async fn get_put_delete(case: &Case) {
    assert_eq!(case.get("a").await, None);
    let before = case.store.revision().await.expect("the store answers");
    let first = case.create("a", "one").await;
    assert!(first > before && first > Revision(1), "a write makes a new revision");
    let entry = case.get("a").await.expect("it was written");
    assert_eq!(*entry.key, *case.key("a"));
    assert_eq!((&entry.value[..], entry.revision, entry.created), (&b"one"[..], first, first));
    let second = case.put("a", Expect::At(first), "two").await;
    assert!(second > first);
    let entry = case.get("a").await.expect("it was written");
    assert_eq!((&entry.value[..], entry.revision, entry.created), (&b"two"[..], second, first));
    assert!(case.store.revision().await.expect("the store answers") >= second);
    let third = case.delete("a", second).await;
    assert!(third > second);
    assert_eq!(case.get("a").await, None);
    let fourth = case.create("a", "").await;
    let entry = case.get("a").await.expect("an empty value is a value");
    assert_eq!((&entry.value[..], entry.revision, entry.created), (&b""[..], fourth, fourth));
}

async fn expectations(case: &Case) {
    let nothing = || case.write("none", Expect::At(Revision(2)), value_of("x"));
    assert_eq!(conflict(nothing().await), None, "an update of what does not exist");
    assert_eq!(conflict(case.write("none", Expect::At(Revision(2)), Change::Delete).await), None);
    assert_eq!(case.get("none").await, None);

    let first = case.create("a", "one").await;
    let met = conflict(case.write("a", Expect::Absent, value_of("x")).await).expect("it exists");
    assert_eq!((&met.value[..], met.revision, met.created), (&b"one"[..], first, first));
    let second = case.put("a", Expect::At(first), "two").await;
    for stale in [first, Revision(second.0 + 1)] {
        for change in [value_of("x"), Change::Delete] {
            let met = conflict(case.write("a", Expect::At(stale), change).await).expect("it exists");
            assert_eq!((&met.value[..], met.revision, met.created), (&b"two"[..], second, first));
        }
    }
    assert_eq!(&case.get("a").await.expect("it exists").value[..], b"two");
    case.delete("a", second).await;
    assert_eq!(conflict(case.write("a", Expect::At(second), value_of("x")).await), None, "it was deleted");
}

async fn ranges(case: &Case) {
    assert!(case.range(case.request()).await.entries.is_empty());
    for name in ["b", "a", "d", "c"] {
        case.create(name, name).await;
    }
    let all = case.range(case.request()).await;
    assert_eq!(shown(case, &all), ["a=a", "b=b", "c=c", "d=d"]);
    assert!(!all.more);
    assert!(all.revision >= all.entries.iter().map(|entry| entry.revision).max().expect("four entries"));
    for (after, limit, expected, more) in [
        (None, 2, &["a=a", "b=b"][..], true),
        (None, 4, &["a=a", "b=b", "c=c", "d=d"], false),
        (None, 9, &["a=a", "b=b", "c=c", "d=d"], false),
        (Some("b"), 0, &["c=c", "d=d"], false),
        (Some("b"), 1, &["c=c"], true),
        (Some("bb"), 1, &["c=c"], true),
        (Some("d"), 1, &[], false),
        (Some("zz"), 0, &[], false),
    ] {
        let request = RangeRequest { after: after.map(|after| case.key(after)), limit, ..case.request() };
        let range = case.range(request).await;
        assert_eq!(
            (shown(case, &range), range.more),
            (expected.iter().map(|&s| s.to_owned()).collect(), more),
            "{after:?} {limit}"
        );
    }
}

async fn prefix_edges(case: &Case) {
    // '0' is the character behind '/', so these are the neighbours that a careless end of a range includes.
    for name in ["a", "a/", "a/1", "a/é", "a/\u{10ffff}", "a0", "a-", "b"] {
        case.create(name, "").await;
    }
    for (prefix, expected) in [
        ("a/", &["a/=", "a/1=", "a/é=", "a/\u{10ffff}="][..]),
        ("a/1", &["a/1="]),
        ("a0", &["a0="]),
        ("a", &["a=", "a-=", "a/=", "a/1=", "a/é=", "a/\u{10ffff}=", "a0="]),
        ("c", &[]),
    ] {
        let range = case.range(RangeRequest { prefix: case.key(prefix), ..RangeRequest::default() }).await;
        assert_eq!(shown(case, &range), expected, "{prefix}");
    }
    // A key to go on after that lies before the prefix changes nothing.
    let request = RangeRequest { prefix: case.key("a/"), after: Some(case.key("a")), ..RangeRequest::default() };
    assert_eq!(case.range(request).await.entries.len(), 4);
}

async fn pages_of_one_revision(case: &Case) {
    for number in 0..25 {
        case.create(&format!("{number:02}"), "first").await;
    }
    let mut page = case.range(RangeRequest { limit: 10, ..case.request() }).await;
    let at = page.revision;
    let mut seen = page.entries.clone();
    while page.more {
        // Changes between the pages are not seen in them.
        let number = seen.len();
        let changed = case.get("24").await.expect("it exists");
        case.put("24", Expect::At(changed.revision), "changed").await;
        case.create(&format!("{number:02}-new"), "new").await;
        let after = seen.last().map(|entry| entry.key.to_string());
        page = case.range(RangeRequest { after, limit: 10, at: Some(at), ..case.request() }).await;
        assert_eq!(page.revision, at);
        seen.extend(page.entries.iter().cloned());
    }
    assert_eq!(seen.len(), 25);
    assert!(seen.iter().all(|entry| &entry.value[..] == b"first" && entry.revision <= at));
}

async fn reads_of_the_past(case: &Case) {
    let one = case.create("a", "a1").await;
    let two = case.create("b", "b1").await;
    let three = case.put("a", Expect::At(one), "a2").await;
    let four = case.delete("b", two).await;
    let five = case.create("b", "b2").await;
    let six = case.delete("a", three).await;
    for (at, expected) in [
        (one, &["a=a1"][..]),
        (two, &["a=a1", "b=b1"]),
        (three, &["a=a2", "b=b1"]),
        (four, &["a=a2"]),
        (five, &["a=a2", "b=b2"]),
        (six, &["b=b2"]),
    ] {
        let range = case.range(RangeRequest { at: Some(at), ..case.request() }).await;
        assert_eq!((shown(case, &range), range.revision), (expected.iter().map(|&s| s.to_owned()).collect(), at));
    }
    let range = case.range(RangeRequest { at: Some(three), limit: 1, ..case.request() }).await;
    assert_eq!((range.entries[0].revision, range.entries[0].created, range.more), (three, one, true));
}

async fn watch_order_and_previous_values(case: &Case) {
    let mut live = case.watch(case.store.revision().await.expect("the store answers")).await;
    let one = case.create("a", "1").await;
    let two = case.put("a", Expect::At(one), "2").await;
    let three = case.create("b", "b").await;
    let four = case.delete("a", two).await;
    let five = case.create("a", "3").await;
    let event = |name: &str, revision, value: Option<&str>, previous: Option<(&str, Revision)>| Event {
        key: case.key(name).into(),
        revision,
        value: value.map(|value| Bytes::copy_from_slice(value.as_bytes())),
        previous: previous.map(|(value, revision)| (Bytes::copy_from_slice(value.as_bytes()), revision)),
    };
    let expected = [
        event("a", one, Some("1"), None),
        event("a", two, Some("2"), Some(("1", one))),
        event("b", three, Some("b"), None),
        event("a", four, None, Some(("2", two))),
        event("a", five, Some("3"), None),
    ];
    assert_eq!(case.events(&mut live, 5).await, expected);
    // A conflict makes no event.
    conflict(case.write("a", Expect::Absent, value_of("x")).await);
    let six = case.put("a", Expect::At(five), "4").await;
    assert_eq!(case.events(&mut live, 1).await, [event("a", six, Some("4"), Some(("3", five)))]);
}

async fn watch_resumes_from_any_revision(case: &Case) {
    let start = case.store.revision().await.expect("the store answers");
    let mut revisions = Vec::new();
    for number in 0..20 {
        revisions.push(case.create(&format!("{number}"), "").await);
    }
    for (at, after) in std::iter::once(start).chain(revisions.iter().copied()).enumerate() {
        let expected = &revisions[at..];
        let mut events = case.watch(after).await;
        let seen = case.events(&mut events, expected.len()).await;
        assert_eq!(seen.iter().map(|event| event.revision).collect::<Vec<_>>(), expected);
    }
}

async fn future_revisions(case: &Case) {
    let newest = case.create("a", "").await;
    let wanted = Revision(newest.0 + 1_000_000);
    let read = case.store.range(RangeRequest { at: Some(wanted), ..case.request() }).await;
    match read {
        Err(StoreError::Future { wanted: told, newest: known }) => assert!(told == wanted && known >= newest),
        other => panic!("a read of the future gave {other:?}"),
    }
}

async fn one_winner_each_round(case: &Case) {
    const WRITERS: usize = 64;
    let mut at = case.create("a", "start").await;
    for round in 0..5 {
        let attempts = (0..WRITERS).map(|writer| {
            let store = case.store.clone();
            let key = case.key("a");
            tokio::spawn(async move {
                let value = Bytes::from(format!("{round}-{writer}"));
                store.write_if(&key, Expect::At(at), Change::Put { value, ttl: None }).await.expect("it takes writes")
            })
        });
        let mut winner = None;
        let mut losers = Vec::new();
        for (writer, outcome) in join_all(attempts).await.into_iter().enumerate() {
            match outcome.expect("no writer panics") {
                Written::Done(revision) => {
                    assert_eq!(winner.replace((revision, format!("{round}-{writer}"))), None, "one winner only");
                }
                Written::Conflict(met) => losers.push(met.expect("the key exists")),
            }
        }
        let (revision, value) = winner.expect("someone wins");
        assert!(losers.iter().all(|met| met.revision == revision && met.value == value.as_bytes()));
        assert_eq!(case.get("a").await.expect("it exists").value, value.as_bytes());
        at = revision;
    }
}

async fn last_values(case: &Case) {
    let first = case.create("a", "one").await;
    let mut events = case.watch(first).await;
    let key = case.key("a");
    let end = |at| case.store.end_if(&key, at, Bytes::from_static(b"last"));
    let held = conflict(end(Revision(first.0 + 1)).await.expect("the store takes writes"));
    assert_eq!(held.map(|entry| entry.revision), Some(first), "nothing was written");
    let gone = done(end(first).await.expect("the store takes writes"));
    assert_eq!(case.get("a").await, None);
    let seen = case.events(&mut events, 2).await;
    let values: Vec<Option<&[u8]>> = seen.iter().map(|event| event.value.as_deref()).collect();
    assert_eq!(values, [Some(&b"last"[..]), None]);
    assert_eq!(seen[1].revision, gone);
    assert_eq!(seen[1].previous, Some((Bytes::from_static(b"last"), seen[0].revision)));
    assert_eq!(conflict(end(first).await.expect("the store takes writes")), None);
    let again = case.create("a", "two").await;
    assert_eq!(case.get("a").await.map(|entry| entry.created), Some(again));
}

async fn big_values(case: &Case) {
    let after = case.store.revision().await.expect("the store answers");
    let value: Bytes = (0..BIG_BYTES).map(|at| (at % 251) as u8).collect::<Vec<_>>().into();
    for name in ["a", "b", "c"] {
        done(case.write(name, Expect::Absent, Change::Put { value: value.clone(), ttl: None }).await);
    }
    assert_eq!(case.get("b").await.expect("it exists").value, value);
    let mut events = case.watch(after).await;
    let seen = case.events(&mut events, 3).await;
    assert!(seen.iter().all(|event| event.value.as_ref() == Some(&value)));
    let range = case.range(case.request()).await;
    assert!(range.entries.len() == 3 && range.entries.iter().all(|entry| entry.value == value));
}

/// Many writers, a watcher that was there before them and one that comes in the middle: both see each change once.
async fn watch_under_load(case: &Case) {
    const WRITERS: usize = 16;
    const WRITES: usize = 50;
    let start = case.store.revision().await.expect("the store answers");
    let mut early = case.watch(start).await;
    let writers = (0..WRITERS).map(|writer| {
        let store = case.store.clone();
        let key = case.key(&format!("{writer}"));
        tokio::spawn(async move {
            let mut revisions = Vec::new();
            let mut expect = Expect::Absent;
            for number in 0..WRITES {
                let change = match number % 10 {
                    9 => Change::Delete,
                    _ => Change::Put { value: Bytes::from(format!("{number}")), ttl: None },
                };
                let deleted = change == Change::Delete;
                let revision = done(store.write_if(&key, expect, change).await.expect("the store takes writes"));
                expect = if deleted { Expect::Absent } else { Expect::At(revision) };
                revisions.push(revision);
            }
            revisions
        })
    });
    let writers = writers.collect::<Vec<_>>();
    let first = case.events(&mut early, WRITERS * WRITES / 4).await;
    let middle = first.last().expect("there were events").revision;
    let mut late = case.watch(middle).await;
    let mut written = BTreeSet::new();
    for revisions in join_all(writers).await {
        written.extend(revisions.expect("no writer panics"));
    }
    assert_eq!(written.len(), WRITERS * WRITES, "each write has its own revision");
    let rest = case.events(&mut early, WRITERS * WRITES - first.len()).await;
    let seen: Vec<_> = first.iter().chain(&rest).map(|event| event.revision).collect();
    assert_eq!(seen, written.iter().copied().collect::<Vec<_>>(), "no gap, no repetition, in order");
    assert_eq!(case.events(&mut late, rest.len()).await, rest);
}

async fn keys_delete_themselves(case: &Case) {
    let change = |ttl| Change::Put { value: Bytes::from_static(b"x"), ttl };
    let ttl = Some(Duration::from_secs(1));
    let kept = done(case.write("kept", Expect::Absent, change(ttl)).await);
    let gone = done(case.write("gone", Expect::Absent, change(ttl)).await);
    // A write without a time to live takes it away.
    let kept = case.put("kept", Expect::At(kept), "y").await;
    assert!(case.get("gone").await.is_some(), "it still has its time");
    let mut events = case.watch(kept).await;
    let seen = case.events(&mut events, 1).await;
    assert_eq!((&*seen[0].key, &seen[0].value), (&*case.key("gone"), &None));
    assert_eq!(seen[0].previous, Some((Bytes::from_static(b"x"), gone)));
    assert_eq!(case.get("gone").await, None);
    assert_eq!(case.get("kept").await.expect("it stays").revision, kept);
    case.create("gone", "again").await;
}

async fn compaction(case: &Case) {
    let one = case.create("a", "1").await;
    let two = case.put("a", Expect::At(one), "2").await;
    let three = case.put("a", Expect::At(two), "3").await;
    case.store.compact(two).await.expect("it can be compacted");
    match case.store.range(RangeRequest { at: Some(one), ..case.request() }).await {
        Err(StoreError::Compacted { .. }) => {}
        other => panic!("a read of what was compacted gave {other:?}"),
    }
    assert!(is_compacted(case, one).await, "a watch from what was compacted");
    let range = case.range(RangeRequest { at: Some(two), ..case.request() }).await;
    assert_eq!(shown(case, &range), ["a=2"], "the compacted revision itself can be read");
    let mut events = case.watch(two).await;
    assert_eq!(case.events(&mut events, 1).await[0].revision, three);
    assert_eq!(&case.get("a").await.expect("the newest is never compacted").value[..], b"3");
}

/// Whether a watch is refused, at once or with its first item.
async fn is_compacted(case: &Case, after: Revision) -> bool {
    let mut events = match case.store.watch_from(after).await {
        Err(StoreError::Compacted { .. }) => return true,
        Err(other) => panic!("a watch from what was compacted gave {other}"),
        Ok(events) => events,
    };
    let first = tokio::time::timeout(PATIENCE, events.next()).await.expect("a watch says that it cannot go on");
    matches!(first, Some(Err(StoreError::Compacted { .. })))
}
