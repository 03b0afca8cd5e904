//! Lists as the server prints them, followed by watches that everybody with the same credential shares.
//!
//! A table is kept while somebody looks at it and a little longer. `follow.rs` keeps it up to date.

pub(crate) mod row;
pub(crate) mod health;
pub(crate) mod view;
mod page;
mod follow;
mod bytes;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use machinery::status::Status;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::kinds::Kind;
use crate::session::SignedIn;
use bytes::{Bytes, Share};
use page::Keyed;
use row::{Column, Row};

/// Tables of all users together.
const TABLES_MAX: usize = 2048;
/// What the rows of all tables take together, about: thirty thousand pods are some 60 MiB.
const BYTES_MAX: usize = 512 * 1024 * 1024;
/// Rows of one table.
const ROWS_MAX: usize = 200_000;
/// How long a table is kept when nobody looks any more: a page comes back, a search is refined.
const KEPT: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// A hash of the credential: rights are those of whoever asks.
    who: Vec<u8>,
    kind: Kind,
    namespace: String,
    fields: String,
}

pub(crate) struct Tables {
    all: Mutex<HashMap<Key, Arc<Table>>>,
    /// What the rows of all of them take.
    bytes: Arc<Bytes>,
    shutdown: CancellationToken,
}

pub(crate) struct Table {
    kind: Kind,
    namespace: String,
    fields: String,
    state: Mutex<State>,
    /// Counts changes.
    changed: watch::Sender<u64>,
    /// How many look, and since when nobody does.
    users: Mutex<(usize, Instant)>,
    bytes: Arc<Bytes>,
}

struct State {
    columns: Arc<Vec<Column>>,
    rows: BTreeMap<String, Arc<Row>>,
    /// Whether everything was listed once.
    synced: bool,
    /// Why nothing comes.
    problem: Option<Status>,
    /// Of the bytes of all tables.
    share: Share,
}

/// Somebody's look at a table; the table is kept as long as one is held.
pub(crate) struct Look(Arc<Table>);

impl Tables {
    pub fn new(shutdown: CancellationToken) -> Arc<Tables> {
        Arc::new(Tables { all: Mutex::default(), bytes: Bytes::new(BYTES_MAX), shutdown })
    }

    /// The table of that list, which is begun where nobody looks at it yet.
    pub fn look(
        self: &Arc<Tables>,
        signed_in: &SignedIn,
        kind: &Kind,
        namespace: &str,
        fields: &str,
    ) -> Result<Look, Status> {
        let who = who(signed_in);
        let key = Key { who, kind: kind.clone(), namespace: namespace.into(), fields: fields.into() };
        let mut all = self.all.lock();
        if let Some(table) = all.get(&key) {
            table.users.lock().0 += 1;
            return Ok(Look(table.clone()));
        }
        if all.len() >= TABLES_MAX {
            return Err(Status::too_many_requests("too many lists are followed by the dashboard", 10));
        }
        let table = Arc::new(Table::new(&key, self.bytes.clone()));
        all.insert(key.clone(), table.clone());
        let (tables, client, followed) = (self.clone(), signed_in.client.clone(), table.clone());
        tasks::spawn(async move {
            tokio::select! {
                () = follow::follow(&client, &followed) => {}
                () = followed.unused() => {}
                () = tables.shutdown.cancelled() => {}
            }
            tables.all.lock().remove(&key);
            // Whoever began to look in this very moment is told, and looks again.
            followed.fail(Status::unavailable("this list is no longer followed"));
        });
        Ok(Look(table))
    }
}

fn who(signed_in: &SignedIn) -> Vec<u8> {
    let text = serde_json::to_vec(&signed_in.session.credential).unwrap_or_default();
    ring::digest::digest(&ring::digest::SHA256, &text).as_ref().to_vec()
}

impl Table {
    fn new(key: &Key, bytes: Arc<Bytes>) -> Table {
        let state = State {
            columns: Arc::default(),
            rows: BTreeMap::new(),
            synced: false,
            problem: None,
            share: bytes.share(),
        };
        Table {
            kind: key.kind.clone(),
            namespace: key.namespace.clone(),
            fields: key.fields.clone(),
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
            users: Mutex::new((1, Instant::now())),
            bytes,
        }
    }

    /// Until nobody has looked for a while, or nobody looks and somebody else needs its memory.
    async fn unused(&self) {
        loop {
            let needed = tokio::select! {
                () = tokio::time::sleep(KEPT / 4) => false,
                () = self.bytes.needed() => true,
            };
            let (users, since) = *self.users.lock();
            if users == 0 && (needed || since.elapsed() > KEPT) {
                return;
            }
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let outcome = change(&mut self.state.lock());
        self.changed.send_modify(|count| *count += 1);
        outcome
    }

    /// A long list is looked at while it is still read for the first time.
    fn show_first(&self, columns: &[Column], rows: &[Keyed]) -> Result<(), Status> {
        if self.state.lock().synced {
            return Ok(());
        }
        let fits = self.change(|state| {
            if state.columns.is_empty() {
                state.columns = Arc::new(columns.to_vec());
            }
            rows.iter().all(|(key, row)| state.insert(key, row))
        });
        if fits { Ok(()) } else { Err(self.too_large()) }
    }

    /// Everything there is, from now on.
    fn replace(&self, columns: Vec<Column>, rows: BTreeMap<String, Arc<Row>>) -> Result<(), Status> {
        let fits = self.change(|state| {
            if !state.share.set(rows.values().map(|row| row.bytes).sum()) {
                return false;
            }
            state.columns = Arc::new(columns);
            state.rows = rows;
            state.synced = true;
            state.problem = None;
            true
        });
        if fits { Ok(()) } else { Err(self.too_large()) }
    }

    fn put(&self, rows: Vec<Keyed>) {
        let fits = self.change(|state| {
            rows.iter().all(|(key, row)| {
                let room = state.rows.len() < ROWS_MAX || state.rows.contains_key(key);
                room && state.insert(key, row)
            })
        });
        if !fits {
            self.bytes.need();
            self.fail(Status::too_large("this list has become too long to be followed: choose a namespace"));
        }
    }

    fn remove(&self, rows: &[Keyed]) {
        self.change(|state| {
            for (key, _) in rows {
                if let Some(old) = state.rows.remove(key) {
                    state.share.shrink(old.bytes);
                }
            }
        });
    }

    /// What does not fit is not kept in part. Tables that nobody looks at make room for the next attempt.
    fn too_large(&self) -> Status {
        self.change(|state| {
            state.rows.clear();
            state.share.set(0);
            state.synced = false;
        });
        self.bytes.need();
        let most = self.bytes.max() / (1024 * 1024);
        Status::too_large(format!("open lists exceed {most} MiB: choose a namespace"))
    }

    fn fail(&self, status: Status) {
        self.change(|state| state.problem = Some(status));
    }
}

impl State {
    /// False, and nothing done, where there is no room.
    fn insert(&mut self, key: &str, row: &Arc<Row>) -> bool {
        let replaced = self.rows.get(key).map_or(0, |old| old.bytes);
        if !self.share.set(self.share.taken() - replaced + row.bytes) {
            return false;
        }
        self.rows.insert(key.to_string(), row.clone());
        true
    }
}

impl Look {
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// The rows as they are now; each is shared, none is copied.
    pub fn rows(&self) -> (Arc<Vec<Column>>, Vec<Arc<Row>>) {
        let state = self.0.state.lock();
        (state.columns.clone(), state.rows.values().cloned().collect())
    }

    /// Those of the rows that there are.
    pub fn find(&self, keys: impl Iterator<Item = String>) -> impl Iterator<Item = Arc<Row>> {
        let state = self.0.state.lock();
        let found: Vec<Arc<Row>> = keys.filter_map(|key| state.rows.get(&key).cloned()).collect();
        found.into_iter()
    }

    pub fn is_synced(&self) -> bool {
        self.0.state.lock().synced
    }

    pub fn problem(&self) -> Option<Status> {
        self.0.state.lock().problem.clone()
    }

    /// Until everything was listed once, or it is known why not.
    pub async fn settled(&self, timeout: Duration) {
        let mut changes = self.changes();
        let settled = async {
            while !self.is_synced() && self.problem().is_none() {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        // Whoever waits shows what there is by then.
        let _ = tokio::time::timeout(timeout, settled).await;
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        let mut users = self.0.users.lock();
        *users = (users.0.saturating_sub(1), Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(numbers: std::ops::Range<usize>) -> Vec<Keyed> {
        let kind = Kind::new("", "v1", "configmaps");
        let row = |number| Arc::new(Row::new(&kind, &json!({"metadata": {"name": format!("n-{number:04}")}}), vec![]));
        numbers.map(row).map(|row: Arc<Row>| (row.key(), row)).collect()
    }

    fn table(bytes: &Arc<Bytes>) -> Table {
        let key = Key {
            who: vec![],
            kind: Kind::new("", "v1", "configmaps"),
            namespace: String::new(),
            fields: String::new(),
        };
        Table::new(&key, bytes.clone())
    }

    fn count(table: &Table) -> usize {
        table.state.lock().rows.len()
    }

    #[test]
    fn all_tables_together_take_no_more_than_they_may() {
        let one = rows(0..1)[0].1.bytes;
        let bytes = Bytes::new(150 * one);
        let (first, second) = (table(&bytes), table(&bytes));
        first.replace(vec![], rows(0..100).into_iter().collect()).unwrap();
        assert_eq!(second.replace(vec![], rows(0..51).into_iter().collect()).unwrap_err().code, 413);
        second.replace(vec![], rows(0..50).into_iter().collect()).unwrap();
        assert!(second.state.lock().synced);
        // What changes takes no more; what is new does not fit, and that is said.
        second.put(rows(0..50));
        assert_eq!(count(&second), 50);
        assert_eq!(second.state.lock().problem, None);
        second.put(rows(50..51));
        assert_eq!(second.state.lock().problem.as_ref().map(|status| status.code), Some(413));
        first.remove(&rows(0..10));
        second.put(rows(50..60));
        assert_eq!((count(&first), count(&second)), (90, 60));
        // A list that grows too long while it is read for the first time is not shown in part.
        drop(second);
        let third = table(&bytes);
        assert_eq!(third.show_first(&[], &rows(0..61)).unwrap_err().code, 413);
        assert_eq!(count(&third), 0);
        third.show_first(&[], &rows(0..60)).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_not_looked_at_makes_room_at_once() {
        let bytes = Bytes::new(1);
        let (seen, unseen) = (table(&bytes), table(&bytes));
        unseen.users.lock().0 = 0;
        let asks = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            bytes.need();
        };
        let soon = Duration::from_secs(2);
        let (gone, kept, ()) =
            tokio::join!(tokio::time::timeout(soon, unseen.unused()), tokio::time::timeout(soon, seen.unused()), asks);
        assert!(gone.is_ok() && kept.is_err());
    }
}
