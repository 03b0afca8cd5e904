//! A store that is killed at any moment has every write that it acknowledged.
//!
//! The child is this very test program, started again. It writes from many tasks and tells each acknowledgement on
//! its standard output; the parent kills it, opens the store and compares. `KNARR_SOAK_ROUNDS` sets the rounds.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use rand::Rng;
use store::embedded::{Config, EmbeddedStore};
use store::{Change, Expect, RangeRequest, Revision, Store, Written};

const CHILD_DIR: &str = "KNARR_CRASH_CHILD_DIR";
const ROUNDS: &str = "KNARR_SOAK_ROUNDS";
const ROUNDS_DEFAULT: usize = 20;
const WRITERS: usize = 32;

/// Small files, so that every round sees new segments, checkpoints and removals.
fn config(dir: &Path) -> Config {
    let (segment_bytes, allocate_bytes, checkpoint_bytes_min) = (512 << 10, 64 << 10, 1 << 20);
    let history_bytes = 1 << 20;
    Config { segment_bytes, allocate_bytes, checkpoint_bytes_min, history_bytes, ..Config::new(dir) }
}

fn key_of(writer: usize) -> String {
    format!("/registry/crash/{writer:03}")
}

/// The number, and bytes that follow from it, so that a mixed-up value is noticed.
fn value_of(number: u64) -> Bytes {
    let filler = (number.wrapping_mul(31) % 251) as u8;
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + (number % 97) as usize * 40, filler);
    value.into()
}

fn number_of(value: &Bytes) -> u64 {
    let number = u64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
    assert_eq!(*value, value_of(number), "the value is whole");
    number
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_kill() {
    let rounds = std::env::var(ROUNDS).ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS_DEFAULT);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut newest = Revision(1);
    let mut acknowledged_total = 0;
    for round in 0..rounds {
        let acknowledged = run_and_kill(dir.path());
        acknowledged_total += acknowledged.len();
        let store = EmbeddedStore::open(config(dir.path())).expect("it recovers");
        assert_eq!(store.damaged(), [], "a crash is no damage");
        check_history(&store, newest).await;
        newest = check_acknowledged(&store, round, &acknowledged).await;
    }
    println!("{rounds} kills, {acknowledged_total} acknowledged writes, newest revision {newest}");
    assert!(acknowledged_total > rounds, "the child was given time to write");
}

struct Acknowledged {
    writer: usize,
    revision: Revision,
    /// None for a deletion.
    number: Option<u64>,
}

fn run_and_kill(dir: &Path) -> Vec<Acknowledged> {
    let mut child = Command::new(std::env::current_exe().expect("the test program"))
        .args(["--exact", "child_writes_until_killed", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let stdout = child.stdout.take().expect("a pipe");
    let reader = std::thread::spawn(move || {
        // The last line may be cut by the kill; a line counts only with its end mark.
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        lines.filter_map(|line| parse(&line)).collect::<Vec<_>>()
    });
    let life = Duration::from_millis(rand::rng().random_range(30..300));
    std::thread::sleep(life);
    child.kill().expect("it was still running");
    child.wait().expect("it has ended");
    reader.join().expect("the acknowledgements can be read")
}

fn parse(line: &str) -> Option<Acknowledged> {
    let fields: Vec<_> = line.strip_prefix("ack ")?.strip_suffix(" .")?.split(' ').collect();
    let [writer, revision, number] = fields[..] else { return None };
    let revision = Revision(revision.parse().ok()?);
    Some(Acknowledged { writer: writer.parse().ok()?, revision, number: number.parse().ok() })
}

/// Each key has one writer that waits for each answer: the key holds its last acknowledged write, or the one behind.
async fn check_acknowledged(store: &EmbeddedStore, round: usize, acknowledged: &[Acknowledged]) -> Revision {
    let mut last: HashMap<usize, &Acknowledged> = HashMap::new();
    let mut highest = Revision(0);
    for one in acknowledged {
        let before = last.insert(one.writer, one);
        assert!(before.is_none_or(|before| before.revision < one.revision));
        highest = highest.max(one.revision);
    }
    let newest = store.revision().await.expect("it answers");
    assert!(newest >= highest, "round {round}: acknowledged up to {highest}, but the store is at {newest}");
    for (writer, one) in last {
        match store.get(&key_of(writer)).await.expect("no damage") {
            Some(entry) if entry.revision == one.revision => assert_eq!(Some(number_of(&entry.value)), one.number),
            Some(entry) => {
                assert!(entry.revision > one.revision, "round {round}: writer {writer} lost {}", one.revision)
            }
            None if one.number.is_none() => {}
            None => {
                // Gone only by a deletion that was written and not yet acknowledged.
                let before = RangeRequest { prefix: key_of(writer), at: Some(one.revision), ..RangeRequest::default() };
                let before = store.range(before).await.expect("the last writes are in the history");
                assert_eq!(before.entries[0].revision, one.revision, "round {round}: writer {writer}");
            }
        }
    }
    newest
}

/// A watch resumes over the crash: no gap and no repetition.
async fn check_history(store: &EmbeddedStore, after: Revision) {
    let newest = store.revision().await.expect("it answers");
    assert!(newest >= after, "the store went back from {after} to {newest}");
    // The history is bounded, so it may not reach back that far; then it does not claim to.
    let Ok(mut events) = store.watch_from(after).await else { return };
    let mut next = Revision(after.0 + 1);
    while next <= newest {
        for event in events.next().await.expect("a watch does not end").expect("the history is kept") {
            assert_eq!(event.revision, next);
            next = Revision(next.0 + 1);
        }
    }
}

/// Not a test of its own: does something only when it is started by the one above.
#[tokio::test(flavor = "multi_thread")]
async fn child_writes_until_killed() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let store = EmbeddedStore::open(config(Path::new(&dir))).expect("it recovers");
    let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write_forever(store.clone(), writer))).collect();
    for writer in writers {
        writer.await.expect("no writer ends");
    }
}

async fn write_forever(store: Arc<EmbeddedStore>, writer: usize) {
    let key = key_of(writer);
    let current = store.get(&key).await.expect("no damage");
    let mut number = current.as_ref().map_or(0, |entry| number_of(&entry.value));
    let mut expect = current.map_or(Expect::Absent, |entry| Expect::At(entry.revision));
    loop {
        number += 1;
        let delete = number % 13 == 0 && expect != Expect::Absent;
        let change = if delete { Change::Delete } else { Change::Put { value: value_of(number), ttl: None } };
        let Written::Done(revision) = store.write_if(&key, expect, change).await.expect("it takes writes") else {
            panic!("nobody else writes this key");
        };
        expect = if delete { Expect::Absent } else { Expect::At(revision) };
        let shown = if delete { "-".to_owned() } else { number.to_string() };
        println!("ack {writer} {revision} {shown} .");
    }
}
