//! Values that cannot be decrypted now and may be later, without being written again.

use std::sync::atomic::AtomicBool;

use super::*;

/// Values that begin with `locked` cannot be decrypted until the key is there.
fn locked(has_key: &Arc<AtomicBool>) -> Describe {
    let has_key = has_key.clone();
    Arc::new(move |value: &Bytes| {
        if value.starts_with(b"locked") && !has_key.load(Ordering::Relaxed) {
            Err(DescribeError::Undecrypted("no key".to_owned()))
        } else {
            Ok(Description::default())
        }
    })
}

#[tokio::test]
async fn they_are_told_apart_and_taken_in_when_they_can_be_read() {
    let (memory, has_key) = (Memory::new(), Arc::new(AtomicBool::new(false)));
    memory.write(&[(POD_A, Some("locked 1"))]);
    memory.write(&[(POD_C, Some("2"))]);
    let cache = Cache::start(Arc::new(memory.clone())).await.expect("starts");
    let pods = cache.register("pods", locked(&has_key)).await.expect("loads");
    assert!(pods.damaged().is_empty(), "they are no damage");
    assert_eq!(pods.undecrypted("/registry/pods/"), Some((POD_A.into(), "no key".to_owned())));
    assert_eq!(pods.undecrypted("/registry/pods/other/"), None);
    cache.repair().await.expect("nothing to do yet");
    assert!(pods.get(POD_A).is_none());
    let mut watcher = pods.watch(Revision(2), ALL).expect("kept");
    has_key.store(true, Ordering::Relaxed);
    cache.repair().await.expect("reads it again");
    let item = pods.get(POD_A).expect("it is there");
    assert_eq!((&item.value[..], item.revision, item.created), (&b"locked 1"[..], Revision(1), Revision(1)));
    assert_eq!(pods.undecrypted(""), None);
    // Who watched has not seen it, and must list.
    assert!(watcher.next().await.is_none());
    assert!(matches!(pods.watch(Revision(1), ALL), Err(StoreError::Compacted { .. })));
    assert!(pods.watch(pods.snapshot().revision, ALL).is_ok());
}

#[tokio::test]
async fn a_value_that_becomes_unreadable_is_no_deletion() {
    let (memory, has_key) = (Memory::new(), Arc::new(AtomicBool::new(false)));
    memory.write(&[(POD_A, Some("1"))]);
    let cache = Cache::start(Arc::new(memory.clone())).await.expect("starts");
    let pods = cache.register("pods", locked(&has_key)).await.expect("loads");
    let mut watcher = pods.watch(Revision(1), ALL).expect("kept");
    memory.write(&[(POD_A, Some("locked 2"))]);
    caught_up(&cache).await;
    assert!(watcher.next().await.is_none(), "cut, and not told of a deletion");
    assert!(pods.undecrypted(POD_A).is_some());
    // Written again by somebody, it is as any other; what was read meanwhile is not put over it.
    memory.write(&[(POD_A, Some("3"))]);
    caught_up(&cache).await;
    has_key.store(true, Ordering::Relaxed);
    cache.repair().await.expect("nothing to do");
    let item = pods.get(POD_A).expect("it is there");
    assert_eq!((&item.value[..], item.created), (&b"3"[..], Revision(1)));
    memory.write(&[(POD_A, Some("locked 4"))]);
    memory.write(&[(POD_A, None)]);
    caught_up(&cache).await;
    assert_eq!(pods.undecrypted(""), None);
}
