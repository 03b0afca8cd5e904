//! Lists as the server prints them, followed by watches that everybody with the same credential shares.
//!
//! A table is kept while somebody looks at it and a little longer. `follow.rs` keeps it up to date.

pub(crate) mod row;
pub(crate) mod health;
pub(crate) mod view;
mod follow;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use machinery::status::Status;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::kinds::Kind;
use crate::session::SignedIn;
use row::{Column, Row};

/// Tables of all users together.
const TABLES_MAX: usize = 2048;
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
}

#[derive(Clone, Default)]
pub(crate) struct State {
    pub columns: Arc<Vec<Column>>,
    pub rows: BTreeMap<String, Arc<Row>>,
    /// Whether everything was listed once.
    pub synced: bool,
    /// Why nothing comes.
    pub problem: Option<Status>,
}

/// Somebody's look at a table; the table is kept as long as one is held.
pub(crate) struct Look(Arc<Table>);

impl Tables {
    pub fn new(shutdown: CancellationToken) -> Arc<Tables> {
        Arc::new(Tables { all: Mutex::default(), shutdown })
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
        let table = Arc::new(Table {
            kind: key.kind.clone(),
            namespace: key.namespace.clone(),
            fields: key.fields.clone(),
            state: Mutex::default(),
            changed: watch::Sender::new(0),
            users: Mutex::new((1, Instant::now())),
        });
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
    async fn unused(&self) {
        loop {
            tokio::time::sleep(KEPT / 4).await;
            let (users, since) = *self.users.lock();
            if users == 0 && since.elapsed() > KEPT {
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
    fn show_first(&self, columns: &[Column], rows: &[(String, Arc<Row>)]) {
        if self.state.lock().synced {
            return;
        }
        self.change(|state| {
            if state.columns.is_empty() {
                state.columns = Arc::new(columns.to_vec());
            }
            state.rows.extend(rows.iter().cloned());
        });
    }

    fn fail(&self, status: Status) {
        self.change(|state| state.problem = Some(status));
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
