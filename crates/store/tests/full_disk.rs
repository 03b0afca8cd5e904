//! A disk that is full: writes are refused with a clear text, reads go on, and when there is room it works again.
//!
//! Once with a limit on the size of files, which everyone may set, and once with a small file system, which needs
//! the right to mount. Both run in a child: this very test program, started again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::embedded::{Config, EmbeddedStore};
use store::{Change, Expect, RangeRequest, Revision, Store, StoreError, Written};

const CHILD_DIR: &str = "KNARR_FULL_DISK_CHILD_DIR";
const VALUE_BYTES: usize = 10_000;

#[test]
fn a_limit_on_the_size_of_files() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // The signal that comes with this limit would end the process; an ignored signal stays ignored over exec.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -S -f 1000; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().expect("the test program"))
        .args(["--exact", "child_meets_the_limit", "--nocapture"])
        .env(CHILD_DIR, dir.path())
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("was refused at"), "{text}");
}

/// Does something only when it is started by the test above.
#[tokio::test(flavor = "multi_thread")]
async fn child_meets_the_limit() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let more_room = || {
        let maximum = getrlimit(Resource::Fsize).maximum;
        setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum }).expect("the soft limit may be raised");
    };
    fill_up(Path::new(&dir), more_room).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_file_system() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let Some(mounted) = Mounted::new(dir.path()) else {
        println!("skipped: mounting a tmpfs is not allowed here");
        return;
    };
    // Room that is given back in the middle, as an operator would.
    let ballast = mounted.0.join("ballast");
    std::fs::write(&ballast, vec![1; 2 << 20]).expect("it fits");
    fill_up(&mounted.0.join("store"), || std::fs::remove_file(&ballast).expect("it is there")).await;
}

struct Mounted(PathBuf);

impl Mounted {
    fn new(dir: &Path) -> Option<Mounted> {
        let status =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(dir).output().ok()?.status;
        status.success().then(|| Mounted(dir.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily, because a failed test may still hold files in it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

async fn fill_up(dir: &Path, more_room: impl FnOnce()) {
    let store = EmbeddedStore::open(Config::new(dir)).expect("a new store");
    let mut written = 0;
    let refusal = loop {
        match put(&store, written).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1000, "the disk is never full");
    };
    println!("write {written} was refused at: {refusal}");
    assert!(matches!(&refusal, StoreError::ReadOnly(text) if text.contains(".log")), "{refusal:?}");
    assert!(written > 10, "there was room for some");
    // Many writers at once are all told, none waits forever, and nothing of theirs is seen.
    let refused = join_all((0..64).map(|number| put(&store, 5000 + number))).await;
    assert!(refused.iter().all(|one| matches!(one, Err(StoreError::ReadOnly(_)))));
    check(&store, written).await;
    assert_eq!(store.revision().await.expect("it answers"), Revision(1 + written as u64));
    // A full disk does not keep anyone from starting.
    drop(store);
    let store = EmbeddedStore::open(Config::new(dir)).expect("it opens");
    check(&store, written).await;

    more_room();
    for number in written..written + 20 {
        put(&store, number).await.expect("there is room again");
    }
    check(&store, written + 20).await;
    drop(store);
    let store = EmbeddedStore::open(Config::new(dir)).expect("it opens");
    check(&store, written + 20).await;
    assert_eq!(store.damaged(), []);
}

fn value_of(number: usize) -> Bytes {
    vec![(number % 251) as u8; VALUE_BYTES].into()
}

async fn put(store: &Arc<EmbeddedStore>, number: usize) -> Result<Revision, StoreError> {
    let change = Change::Put { value: value_of(number), ttl: None };
    match store.write_if(&format!("/registry/full/{number:06}"), Expect::Absent, change).await? {
        Written::Done(revision) => Ok(revision),
        Written::Conflict(current) => panic!("write {number} met {current:?}"),
    }
}

async fn check(store: &EmbeddedStore, written: usize) {
    let range = store.range(RangeRequest::default()).await.expect("reads go on");
    assert_eq!(range.entries.len(), written);
    for (number, entry) in range.entries.iter().enumerate() {
        assert_eq!(entry.value, value_of(number));
    }
}
