//! What was acknowledged stays: over kills of the whole server under load, snapshots and full disks.
//!
//! Writers keep books of what the server acknowledged. After each kill the books are compared with what a restarted
//! server holds, and with what a watch tells that goes on from before the kill. `KNARR_SOAK_ROUNDS` sets the rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::watch::Seen;
use testkit::{Client, Options, Server};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LOADED: &str = "/api/v1/namespaces/default/configmaps?labelSelector=load=yes";
const WRITERS: usize = 6;
const NAMES_PER_WRITER: usize = 5;

/// What one writer knows of one object: the value it was last told, none where it was deleted.
#[derive(Clone, Debug, Default)]
struct Entry {
    known: Option<String>,
    /// A write that was on its way when the server died: it may or may not have happened.
    doubtful: Option<Option<String>>,
}

#[derive(Debug, Default)]
struct Books {
    entries: BTreeMap<String, Entry>,
    /// Revisions of acknowledged creates and updates of this round.
    revisions: BTreeSet<u64>,
    deletions: usize,
    count: u64,
}

fn revision_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a revision")
}

/// Creates, updates and deletes until the server goes silent.
async fn write(client: Client, writer: usize, mut books: Books) -> Books {
    // A server that died before it was reached has nothing to be asked about.
    let Ok(mut connection) = client.connection().await else { return books };
    loop {
        books.count += 1;
        let name = format!("w{writer}-{}", books.count as usize % NAMES_PER_WRITER);
        let path = format!("{CONFIG_MAPS}/{name}");
        let value = books.count.to_string();
        let entry = books.entries.entry(name.clone()).or_default();
        let (reply, wanted) = if entry.known.is_none() {
            let body = json!({"metadata": {"name": name, "labels": {"load": "yes"}}, "data": {"value": value}});
            (connection.send("POST", CONFIG_MAPS, "application/json", body.to_string()).await, Some(value))
        } else if books.count.is_multiple_of(7) {
            (connection.send("DELETE", &path, "", "").await, None)
        } else {
            let patch = json!({"data": {"value": value}}).to_string();
            (connection.send("PATCH", &path, "application/merge-patch+json", patch).await, Some(value))
        };
        match reply {
            Ok(reply) if matches!(reply.code, 200 | 201) => {
                match &wanted {
                    Some(_) => _ = books.revisions.insert(revision_of(&reply.json())),
                    None => books.deletions += 1,
                }
                entry.known = wanted;
            }
            Ok(reply) => panic!("{name}: {}", reply.text()),
            Err(_) => {
                entry.doubtful = Some(wanted);
                return books;
            }
        }
    }
}

/// Compares the books with what the server holds now, and closes what was doubtful.
fn settle(books: &mut Books, held: &BTreeMap<String, String>) {
    for (name, entry) in &mut books.entries {
        let actual = held.get(name).cloned();
        let possible = actual == entry.known || entry.doubtful.as_ref() == Some(&actual);
        assert!(possible, "{name}: acknowledged {:?}, doubtful {:?}, held {actual:?}", entry.known, entry.doubtful);
        *entry = Entry { known: actual, doubtful: None };
    }
}

/// What a watch tells that goes on from before the kill; none where the server says that the client must list anew,
/// which is the other answer the API allows. What it may never do is go on with a gap.
async fn resume(client: &Client, revision: u64) -> Option<Vec<Seen>> {
    let path = format!("{LOADED}&watch=true&resourceVersion={revision}&timeoutSeconds=1");
    let told = match client.watch(&path).await {
        Ok(mut watch) => watch.take(usize::MAX, Duration::from_secs(30)).await,
        Err(error) => Err(error),
    };
    match told {
        Ok(seen) => Some(seen),
        Err(error) if error.to_string().contains("too old resource version") => None,
        Err(error) => panic!("{error:#}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_under_load_lose_nothing() {
    let rounds: usize = std::env::var("KNARR_SOAK_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let mut server = Server::start().unwrap();
    let client = server.client().unwrap();
    let mut books: Vec<Books> = (0..WRITERS).map(|_| Books::default()).collect();
    let mut watched = revision_of(&client.get(LOADED).await.unwrap().json());
    let mut total = 0;
    for round in 0..rounds {
        let writing: Vec<_> = books
            .drain(..)
            .enumerate()
            .map(|(writer, books)| tokio::spawn(write(client.clone(), writer, books)))
            .collect();
        // Kills at different moments, so that they meet different steps of a write.
        tokio::time::sleep(Duration::from_millis(150 + (round as u64 * 37) % 300)).await;
        server.kill().unwrap();
        for writer in writing {
            books.push(writer.await.unwrap());
        }
        server.restart().unwrap();

        let list = client.get(LOADED).await.unwrap().json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let items = list["items"].as_array().expect("a list");
        let held = items.iter().map(|item| (text(&item["metadata"]["name"]), text(&item["data"]["value"]))).collect();
        books.iter_mut().for_each(|books| settle(books, &held));
        let acknowledged: BTreeSet<u64> =
            books.iter_mut().flat_map(|books| std::mem::take(&mut books.revisions)).collect();
        let deletions: usize = books.iter_mut().map(|books| std::mem::take(&mut books.deletions)).sum();
        let highest = acknowledged.last().copied().unwrap_or(0);
        assert!(revision_of(&list) >= highest, "revisions went back from {highest} to {}", revision_of(&list));
        total += acknowledged.len() + deletions;

        watched = match resume(&client, watched).await {
            Some(seen) => {
                let mut last = watched;
                for event in &seen {
                    assert!(event.revision > last, "round {round}: {event:?} came after {last}");
                    last = event.revision;
                }
                let told: BTreeSet<u64> = seen.iter().map(|event| event.revision).collect();
                let missed: Vec<_> = acknowledged.difference(&told).collect();
                assert!(missed.is_empty(), "round {round}: the watch missed {missed:?}");
                assert!(seen.iter().filter(|event| event.event == "DELETED").count() >= deletions);
                last
            }
            // The list above is where a client would go on from.
            None => revision_of(&list),
        };
    }
    println!("{total} acknowledged writes over {rounds} kills");
    assert!(total > rounds, "hardly anything was written");
}

#[tokio::test]
async fn a_snapshot_of_a_running_server_starts_another() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let before = json!({"metadata": {"name": "before", "labels": {"load": "yes"}}, "data": {"a": "b"}});
    let made = client.post(CONFIG_MAPS, &before).await.unwrap().json();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("snapshot");
    let knarr = |arguments: &[&Path]| {
        let output = Command::new(testkit::server::binary().unwrap()).arg("snapshot").args(arguments).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (saved, text) = knarr(&["save".as_ref(), &file, "--data-dir".as_ref(), server.data_dir()]);
    assert!(saved && text.contains("saved revision"), "{text}");
    client.post(CONFIG_MAPS, &json!({"metadata": {"name": "after", "labels": {"load": "yes"}}})).await.unwrap();

    let target = tempfile::Builder::new().prefix("knarr-test-").tempdir().unwrap();
    let (restored, text) = knarr(&["restore".as_ref(), &file, "--data-dir".as_ref(), target.path()]);
    assert!(restored && text.contains("restored revision"), "{text}");
    // A second restore would mix two histories.
    let (again, text) = knarr(&["restore".as_ref(), &file, "--data-dir".as_ref(), target.path()]);
    assert!(!again, "{text}");
    let second = Server::start_in(target, Options::default()).unwrap();
    let list = second.client().unwrap().get(LOADED).await.unwrap().json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
    let mut item = list["items"][0].clone();
    // A list does not repeat the kind.
    item["kind"] = json!("ConfigMap");
    item["apiVersion"] = json!("v1");
    assert_eq!(item, made);
    let next = second.client().unwrap().post(CONFIG_MAPS, &json!({"metadata": {"name": "next"}})).await.unwrap().json();
    assert!(revision_of(&next) > revision_of(&made));

    let (missing, text) = knarr(&["restore".as_ref(), "/nowhere".as_ref(), "--data-dir".as_ref(), folder.path()]);
    assert!(!missing && !text.is_empty());
}

/// A small file system, which goes when this is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(folder: &Path) -> Option<Mounted> {
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"]).arg(folder).output().ok()?;
        mount.status.success().then(|| Mounted(folder.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily, because a failed test may still hold files in it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::new(folder.path()) else {
        println!("not run: mounting a tmpfs is not allowed here");
        return;
    };
    let server = Server::start_in(tempfile::tempdir_in(&mounted.0).unwrap(), Options::default()).unwrap();
    let client = server.client().unwrap();
    let object =
        |number: usize| json!({"metadata": {"name": format!("o{number}")}, "data": {"a": "x".repeat(200_000)}});
    // What is left of the disk goes to something else, as it happens.
    let ballast = mounted.0.join("ballast");
    let fill =
        Command::new("dd").args(["if=/dev/zero", "bs=64k"]).arg(format!("of={}", ballast.display())).output().unwrap();
    assert!(!fill.status.success(), "the disk did not get full");

    let mut written = 0;
    let refused = loop {
        let reply = client.post(CONFIG_MAPS, &object(written)).await.unwrap();
        if reply.code != 201 {
            break reply;
        }
        written += 1;
        assert!(written < 2_000, "a disk of 96 MiB took {written} objects");
    };
    let status = refused.json();
    assert!(refused.code >= 500, "{}", refused.text());
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Failure")));
    let message = status["message"].as_str().unwrap_or_default().to_lowercase();
    assert!(message.contains("space") || message.contains("disk"), "{message}");
    // Reads go on, and the refused object is not there.
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/o{written}")).await.unwrap().code, 404);
    for number in 0..written {
        assert_eq!(client.get(&format!("{CONFIG_MAPS}/o{number}")).await.unwrap().code, 200, "o{number}");
    }
    assert_eq!(client.get(CONFIG_MAPS).await.unwrap().code, 200);
    assert_eq!(client.get("/livez").await.unwrap().code, 200);

    std::fs::remove_file(&ballast).unwrap();
    let mut reply = client.post(CONFIG_MAPS, &object(written)).await.unwrap();
    for _ in 0..100 {
        if reply.code == 201 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        reply = client.post(CONFIG_MAPS, &object(written)).await.unwrap();
    }
    assert_eq!(reply.code, 201, "{}", reply.text());
}
