//! Readers, writers, registrations and lost histories all at once: whatever a reader starts from, the changes it
//! is then shown lead it to the state that everyone else sees.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot::Sender;

use super::*;

const WRITERS: usize = 4;
const ROUNDS: usize = 200;
const NAMESPACES: usize = 3;

fn key(writer: usize, number: usize) -> String {
    format!("/registry/pods/n{}/{writer}-{}", number % NAMESPACES, number % 11)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_reader_arrives_at_the_same_state() {
    let memory = Memory::new();
    let cache = Cache::start(Arc::new(memory.clone())).await.expect("starts");
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (memory, stop) = (memory.clone(), stop.clone());
            tokio::spawn(async move {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let value = number.to_string();
                    memory.write(&[(&key(writer, number), (number % 3 > 0).then_some(&value))]);
                    if writer == 0 && number % 500 == 499 {
                        memory.lose();
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();

    let mut readers = Vec::new();
    for round in 0..ROUNDS {
        if round % 10 == 0 {
            cache.unregister("pods").await;
        }
        let pods = cache.register("pods", describe()).await.expect("loads");
        let scope = match round % 2 {
            0 => ALL,
            _ => scope(&format!("/registry/pods/n{}/", round % NAMESPACES)),
        };
        readers.push(tokio::spawn(read(pods, scope)));
        tokio::task::yield_now().await;
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.expect("no writer panics");
    }
    // The readers so far may all have been cut by a history that was lost at the end. This one is not.
    caught_up(&cache).await;
    let pods = cache.register("pods", describe()).await.expect("is there");
    let (subscribed, ready) = tokio::sync::oneshot::channel();
    readers.push(tokio::spawn(async move { read_telling(pods, ALL, Some(subscribed)).await }));
    ready.await.expect("it subscribes");
    for number in 0..100 {
        memory.write(&[(&key(0, number), Some("last"))]);
    }
    let revision = caught_up(&cache).await;
    let pods = cache.register("pods", describe()).await.expect("is there");
    let newest = pods.snapshot();
    assert_eq!(newest.revision, revision);
    let stored = memory.range(RangeRequest { prefix: "/registry/pods/".into(), ..Default::default() }).await;
    let stored = stored.expect("answers").entries;
    assert!(
        newest.items.values().map(|item| (&item.key, item.revision, item.created)).eq(stored.iter().map(|entry| (
            &entry.key,
            entry.revision,
            entry.created
        )))
    );
    cache.unregister("pods").await;
    let mut arrived = 0;
    for reader in readers {
        let (scope, ended_with, last) = reader.await.expect("no reader panics");
        // A reader whose resource was registered anew has seen only a part.
        if last == newest.revision {
            arrived += 1;
            let expected = newest.items.iter().filter(|(key, _)| key.starts_with(&scope));
            assert!(ended_with.iter().eq(expected.map(|(key, item)| (key, &item.revision))));
        }
    }
    assert!(arrived > 0, "the last registration was followed to its end");
}

/// Follows a resource to its end. Gives the scope, the keys it ends with, and the revision it has seen.
async fn read(pods: Arc<Resource>, scope: WatchScope) -> Seen {
    read_telling(pods, scope, None).await
}

type Seen = (String, BTreeMap<Arc<str>, Revision>, Revision);

async fn read_telling(pods: Arc<Resource>, scope: WatchScope, subscribed: Option<Sender<()>>) -> Seen {
    let prefix = scope.key_prefix.clone().unwrap_or_default();
    let (snapshot, mut watcher) = pods.list_and_watch(scope);
    // Nobody waits when the test has failed already.
    let _ = subscribed.map(|tell| tell.send(()));
    let items = snapshot.items.iter().filter(|(key, _)| key.starts_with(&prefix));
    let mut state: BTreeMap<Arc<str>, Revision> = items.map(|(key, item)| (key.clone(), item.revision)).collect();
    let mut last = snapshot.revision;
    let mut changes = Vec::new();
    while watcher.next_batch(7, &mut changes).await {
        for change in changes.drain(..) {
            assert!(change.revision >= last && change.revision > snapshot.revision);
            assert!(change.item.key.starts_with(&prefix));
            last = change.revision;
            let held = if change.deleted {
                state.remove(&change.item.key)
            } else {
                state.insert(change.item.key.clone(), change.revision)
            };
            assert_eq!(held, change.previous.as_ref().map(|item| item.revision));
        }
        let shown = watcher.revision();
        assert!(Revision(shown.0 + 1) >= last, "{shown} after {last}");
        last = last.max(shown);
    }
    (prefix, state, last)
}
