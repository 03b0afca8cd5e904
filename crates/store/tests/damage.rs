//! Files that were changed behind the store's back: a torn tail is cut, damage is told, no wrong value is served.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::StreamExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use store::embedded::{Config, EmbeddedStore};
use store::{Change, Expect, RangeRequest, Revision, Store, StoreError, Written};

const FLIPS: usize = 400;

/// Every value that a key has had, by the revision that made it.
type Truth = BTreeMap<(String, Revision), Option<Bytes>>;

#[derive(Clone, Copy)]
struct Shape {
    keys: usize,
    writes: usize,
    value_bytes: usize,
    segment_bytes: u64,
    checkpoint_bytes_min: u64,
    /// Small where checkpoints shall replace the log, large where the history shall keep it.
    history_bytes: usize,
}

const ONE_SEGMENT: Shape = Shape {
    keys: 7,
    writes: 40,
    value_bytes: 700,
    segment_bytes: 1 << 20,
    checkpoint_bytes_min: 1 << 20,
    history_bytes: 1 << 20,
};

fn config(dir: &Path, shape: Shape) -> Config {
    let Shape { segment_bytes, checkpoint_bytes_min, history_bytes, .. } = shape;
    Config { segment_bytes, checkpoint_bytes_min, history_bytes, allocate_bytes: 16 << 10, ..Config::new(dir) }
}

/// Fills a store, closes it, and tells what is in it.
async fn fill(dir: &Path, shape: Shape) -> Truth {
    let store = EmbeddedStore::open(config(dir, shape)).expect("a new store");
    let mut truth = Truth::new();
    let mut expected = BTreeMap::new();
    for write in 0..shape.writes {
        let key = format!("/registry/damage/{}", write % shape.keys);
        let expect = expected.get(&key).map_or(Expect::Absent, |revision| Expect::At(*revision));
        let delete = write % 11 == 10 && expect != Expect::Absent;
        let value = Bytes::from(format!("{write}-").repeat(shape.value_bytes / 3));
        let change = if delete { Change::Delete } else { Change::Put { value: value.clone(), ttl: None } };
        let Written::Done(revision) = store.write_if(&key, expect, change).await.expect("it takes writes") else {
            panic!("a conflict with nobody");
        };
        truth.insert((key.clone(), revision), (!delete).then_some(value));
        if delete {
            expected.remove(&key)
        } else {
            expected.insert(key, revision)
        };
    }
    truth
}

/// What the keys hold at that revision.
fn state_at(truth: &Truth, at: Revision) -> BTreeMap<String, Bytes> {
    let mut state = BTreeMap::new();
    let mut writes: Vec<_> = truth.iter().filter(|((_, revision), _)| *revision <= at).collect();
    writes.sort_by_key(|((_, revision), _)| *revision);
    for ((key, _), value) in writes {
        match value {
            Some(value) => state.insert(key.clone(), value.clone()),
            None => state.remove(key),
        };
    }
    state
}

async fn read_all(store: &EmbeddedStore, at: Option<Revision>) -> Result<BTreeMap<String, Bytes>, StoreError> {
    let range = store.range(RangeRequest { at, ..RangeRequest::default() }).await?;
    Ok(range.entries.into_iter().map(|entry| (entry.key.to_string(), entry.value)).collect())
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for file in std::fs::read_dir(from).expect("a directory") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), to.join(file.file_name())).expect("a copy");
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(dir).expect("a directory").map(|file| file.expect("a file").path());
    let mut files: Vec<_> = found.filter(|path| !path.ends_with("lock")).collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_tail_cut_at_every_byte_costs_only_what_was_cut() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let shape = Shape { writes: 6, ..ONE_SEGMENT };
    let truth = fill(&dir.path().join("whole"), shape).await;
    // Opening trims the room that was allocated and not used, so that the file ends with the last record.
    drop(EmbeddedStore::open(config(&dir.path().join("whole"), shape)).expect("it opens"));
    let log = files(&dir.path().join("whole")).pop().expect("a segment");
    let bytes = std::fs::read(&log).expect("the segment");
    let newest = Revision(1 + shape.writes as u64);
    let last_bytes = truth
        .iter()
        .find(|((_, revision), _)| *revision == newest)
        .map(|((key, _), value)| 64 + key.len() + value.as_ref().map_or(0, Bytes::len));
    let last_start = bytes.len() - last_bytes.expect("the last write");
    let expected = state_at(&truth, Revision(newest.0 - 1));

    let broken = dir.path().join("broken");
    copy(&dir.path().join("whole"), &broken);
    let target = broken.join(log.file_name().expect("a name"));
    let mut cut: Vec<Vec<u8>> = (last_start..bytes.len()).map(|end| bytes[..end].to_vec()).collect();
    // A power cut leaves sectors unwritten instead, in any order.
    let sectors = last_start.next_multiple_of(512)..bytes.len();
    for sector in sectors.step_by(512) {
        let mut torn = bytes.clone();
        torn[sector..(sector + 512).min(bytes.len())].fill(0);
        cut.push(torn.clone());
        torn[sector..].fill(0);
        cut.push(torn);
    }
    for (number, bytes) in cut.iter().enumerate() {
        std::fs::write(&target, bytes).expect("it can be changed");
        let store = EmbeddedStore::open(config(&broken, shape)).unwrap_or_else(|error| panic!("cut {number}: {error}"));
        assert_eq!(store.revision().await.expect("it answers"), Revision(newest.0 - 1), "cut {number}");
        assert_eq!(read_all(&store, None).await.expect("it answers"), expected, "cut {number}");
        assert_eq!(store.damaged(), []);
    }
    // And it goes on from there.
    let store = EmbeddedStore::open(config(&broken, shape)).expect("it opens");
    let change = Change::Put { value: Bytes::from_static(b"x"), ttl: None };
    assert_eq!(store.write_if("/new", Expect::Absent, change).await.expect("it takes writes"), Written::Done(newest));
}

/// A sector that reads as zero is a torn tail only at the very end. Before that, acknowledged writes are behind it.
#[tokio::test]
async fn a_lost_sector_in_the_middle_is_told() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let whole = dir.path().join("whole");
    let truth = fill(&whole, ONE_SEGMENT).await;
    let newest = Revision(1 + ONE_SEGMENT.writes as u64);
    let log = files(&whole).pop().expect("a segment");
    let bytes = std::fs::read(&log).expect("the segment");
    let used = bytes.iter().rposition(|byte| *byte != 0).expect("records");
    let broken = dir.path().join("broken");
    copy(&whole, &broken);
    let target = broken.join(log.file_name().expect("a name"));
    for sector in (0..used - 2 * ONE_SEGMENT.value_bytes).step_by(512) {
        let mut torn = bytes.clone();
        torn[sector..sector + 512].fill(0);
        std::fs::write(&target, &torn).expect("it can be changed");
        let place = format!("sector at {sector}");
        match EmbeddedStore::open(config(&broken, ONE_SEGMENT)) {
            Err(StoreError::Damaged { offset, .. }) => assert!(offset < sector as u64 + 512, "{place}: {offset}"),
            Err(other) => panic!("{place}: {other}"),
            Ok(store) => {
                assert_ne!(store.damaged(), [], "{place}");
                check_served(&store, &truth, &state_at(&truth, newest), newest, &place).await;
            }
        }
    }
}

/// Flips one bit at a time in any file and opens the store.
async fn check_flips(shape: Shape, seed: u64) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let whole = dir.path().join("whole");
    let truth = fill(&whole, shape).await;
    let newest = Revision(1 + shape.writes as u64);
    let all = state_at(&truth, newest);
    let mut random = StdRng::seed_from_u64(seed);
    let mut told = 0;
    for _ in 0..FLIPS {
        let broken = dir.path().join("broken");
        copy(&whole, &broken);
        let files = files(&broken);
        let file = &files[random.random_range(0..files.len())];
        let mut bytes = std::fs::read(file).expect("it can be read");
        let bit = random.random_range(0..bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(file, &bytes).expect("it can be changed");
        let place = format!("bit {} of byte {} of {}", bit % 8, bit / 8, file.display());
        match EmbeddedStore::open(config(&broken, shape)) {
            Err(StoreError::Damaged { file: named, offset, .. }) => {
                assert!(Path::new(&named) == file && offset <= bit as u64 / 8, "{place} was told as {named} {offset}");
                told += 1;
            }
            Err(other) => panic!("{place}: {other}"),
            Ok(store) => {
                told += usize::from(!store.damaged().is_empty());
                check_served(&store, &truth, &all, newest, &place).await;
            }
        }
        std::fs::remove_dir_all(&broken).expect("it can be removed");
    }
    println!("{told} of {FLIPS} flipped bits were told, the others were harmless");
    assert!(told > 0);
}

/// Each key is right or told as damaged, and so is the past.
async fn check_served(
    store: &EmbeddedStore,
    truth: &Truth,
    all: &BTreeMap<String, Bytes>,
    newest: Revision,
    place: &str,
) {
    assert_eq!(store.revision().await.expect("it answers"), newest, "{place}");
    let damaged = store.damaged();
    let lost: Vec<_> = damaged.iter().filter_map(|damage| damage.key.as_deref()).collect();
    for (key, _) in truth.keys() {
        match store.get(key).await {
            Ok(entry) => assert_eq!(entry.map(|entry| entry.value), all.get(key).cloned(), "{place}"),
            Err(StoreError::Damaged { .. }) => assert!(lost.contains(&key.as_str()), "{place}"),
            Err(other) => panic!("{place}: {other}"),
        }
    }
    let mut expected = all.clone();
    expected.retain(|key, _| !lost.contains(&key.as_str()));
    assert_eq!(read_all(store, None).await.expect("it answers"), expected, "{place}");
    for at in 2..=newest.0 {
        match read_all(store, Some(Revision(at))).await {
            Err(StoreError::Compacted { .. }) => {}
            Err(other) => panic!("{place}: {other}"),
            Ok(past) => {
                let mut expected = state_at(truth, Revision(at));
                expected.retain(|key, _| !lost.contains(&key.as_str()));
                assert_eq!(past, expected, "{place} at {at}");
            }
        }
        if at == newest.0 {
            continue;
        }
        let Ok(mut events) = store.watch_from(Revision(at)).await else { continue };
        for event in events.next().await.expect("events").expect("they are kept") {
            assert_eq!(truth.get(&(event.key.to_string(), event.revision)), Some(&event.value), "{place}");
        }
    }
}

#[tokio::test]
async fn flipped_bits_in_one_segment() {
    check_flips(ONE_SEGMENT, 1).await;
}

#[tokio::test]
async fn flipped_bits_in_many_segments_and_checkpoints() {
    let shape = Shape { writes: 90, segment_bytes: 8 << 10, checkpoint_bytes_min: 16 << 10, ..ONE_SEGMENT };
    check_flips(shape, 2).await;
    check_flips(Shape { history_bytes: 4 << 10, ..shape }, 3).await;
}

#[tokio::test]
async fn a_lost_value_is_told_and_can_be_repaired() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let shape = Shape { keys: 3, writes: 3, ..ONE_SEGMENT };
    fill(dir.path(), shape).await;
    let log = files(dir.path()).pop().expect("a segment");
    let mut bytes = std::fs::read(&log).expect("the segment");
    let at = bytes.windows(4).position(|four| four == b"1-1-").expect("the second value");
    bytes[at] ^= 1;
    std::fs::write(&log, &bytes).expect("it can be changed");
    let key = "/registry/damage/1";
    let mut lost_at = None;
    // The damage is known over restarts, and a checkpoint does not lose it.
    for _ in 0..2 {
        let store = EmbeddedStore::open(config(dir.path(), shape)).expect("it opens");
        let damage = store.damaged().pop().expect("damage");
        assert_eq!(
            (damage.key.as_deref(), damage.revision, &damage.file),
            (Some(key), Revision(3), &log.display().to_string())
        );
        assert!(matches!(store.get(key).await, Err(StoreError::Damaged { .. })));
        assert!(matches!(store.write_if(key, Expect::Absent, Change::Delete).await, Err(StoreError::Damaged { .. })));
        assert_eq!(read_all(&store, None).await.expect("it answers").len(), 2);
        let saved = dir.path().join("saved");
        store.snapshot_save(&saved).await.expect("a snapshot");
        let restored = store::embedded::snapshot::restore(&saved, &dir.path().join("restored"));
        assert!(matches!(restored, Err(StoreError::Damaged { .. })), "{restored:?}");
        lost_at = Some(damage.revision);
    }
    let store = EmbeddedStore::open(config(dir.path(), shape)).expect("it opens");
    let change = Change::Put { value: Bytes::from_static(b"repaired"), ttl: None };
    let repaired = store.write_if(key, Expect::At(lost_at.expect("damage")), change).await.expect("it takes writes");
    assert_eq!(repaired, Written::Done(Revision(5)));
    drop(store);
    let store = EmbeddedStore::open(config(dir.path(), shape)).expect("it opens");
    assert_eq!(&store.get(key).await.expect("it is repaired").expect("it exists").value[..], b"repaired");
    assert!(store.damaged().iter().all(|damage| damage.key.is_none()), "it is still told, but nothing is lost");
}
