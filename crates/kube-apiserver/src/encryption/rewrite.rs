//! Brings stored values into the form in which they would be written today, in the background: after a key was made, and after a
//! start that may have interrupted that. A value is written only where nobody else writes it at the same time.

use std::sync::Arc;
use std::time::Duration;

use ::store::{RangeRequest, StoreError};
use machinery::status::GroupResource;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Encryption;
use super::store::{Encrypted, Rewritten};
use crate::app::App;

const PAGE: usize = 500;
/// How soon a pass that met an error or lost a race is made again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Events have a time to live, which another write would take away; they are gone within the hour anyway.
const PASSING: &str = "events";

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub is_running: bool,
    /// Of the pass that runs, or ran last.
    pub seen: usize,
    pub rewritten: usize,
    pub total: usize,
    pub error: Option<String>,
    /// Whether a pass has ended that found nothing left to do.
    pub is_done: bool,
}

#[derive(Default)]
pub(super) struct Rewriting {
    wanted: Notify,
    progress: Mutex<Progress>,
}

impl Encryption {
    pub fn progress(&self) -> Progress {
        self.rewriting.progress.lock().clone()
    }

    /// Looks at every value again.
    pub fn start_rewriting(&self) {
        *self.rewriting.progress.lock() = Progress { is_running: true, ..Progress::default() };
        self.rewriting.wanted.notify_one();
    }

    fn note(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.rewriting.progress.lock());
    }
}

/// Until the shutdown.
pub async fn keep(app: Arc<App>, shutdown: CancellationToken) {
    let encryption = app.encrypted.encryption().clone();
    if !encryption.own_keys().is_empty() {
        encryption.start_rewriting();
    }
    loop {
        tokio::select! {
            () = encryption.rewriting.wanted.notified() => {}
            () = shutdown.cancelled() => return,
        }
        tokio::select! {
            () = until_done(&app, &encryption) => {}
            () = shutdown.cancelled() => return,
        }
    }
}

async fn until_done(app: &App, encryption: &Encryption) {
    loop {
        match pass(app, encryption).await {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot rewrite stored values; retrying");
                encryption.note(|progress| progress.error = Some(error.to_string()));
            }
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
    if let Err(error) = finish(app, encryption).await {
        tracing::error!(%error, "cannot finish rewriting stored values");
        let error = Some(error.to_string());
        encryption.note(|progress| *progress = Progress { is_running: false, error, ..progress.clone() });
        return;
    }
    encryption.note(|progress| {
        *progress = Progress { is_running: false, is_done: true, error: None, ..progress.clone() };
    });
    let progress = encryption.progress();
    tracing::info!(seen = progress.seen, rewritten = progress.rewritten, "rewrote stored values with the current key");
}

/// Takes away what nothing needs any more: values of the time before, and only then the keys that they were written with.
async fn finish(app: &App, encryption: &Encryption) -> Result<(), FinishError> {
    if encryption.is_unfinished() || encryption.progress().rewritten > 0 {
        ::store::Store::forget_past(&*app.encrypted).await?;
    }
    encryption.forget_old_keys().await?;
    Ok(encryption.finish()?)
}

#[derive(Debug, thiserror::Error)]
enum FinishError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Keys(#[from] super::OwnFileError),
}

/// Looks at every value once. True where nothing is left to do.
async fn pass(app: &App, encryption: &Encryption) -> Result<bool, StoreError> {
    let table = app.table.load_full();
    let mut storages: Vec<String> = Vec::new();
    for resource in table.resources() {
        let kind = &resource.stored;
        let name = GroupResource { group: kind.group, resource: kind.plural };
        let storage = kind.storage.to_owned();
        if resource.state.is_some() && storage != PASSING && encryption.active.load().rules.concerns(name) {
            storages.push(storage);
        }
    }
    storages.sort();
    storages.dedup();
    let count = |storage: &String| {
        let named = table.resources().iter().find(|resource| resource.kind.storage == storage);
        named.and_then(|resource| Some(resource.state.as_ref()?.snapshot().items.len())).unwrap_or_default()
    };
    let total = storages.iter().map(count).sum();
    encryption.note(|progress| {
        let rewritten = progress.rewritten;
        *progress = Progress { is_running: true, total, rewritten, ..Progress::default() };
    });
    let mut is_done = true;
    for storage in storages {
        is_done &= pass_over(&app.encrypted, encryption, &format!("/registry/{storage}/")).await?;
    }
    Ok(is_done)
}

async fn pass_over(store: &Encrypted, encryption: &Encryption, prefix: &str) -> Result<bool, StoreError> {
    let (mut after, mut is_done) = (None, true);
    loop {
        let request = RangeRequest { prefix: prefix.to_owned(), after, limit: PAGE, at: None };
        let range = store.stored(request).await?;
        after = range.entries.last().map(|entry| entry.key.to_string());
        for entry in range.entries {
            let rewritten = store.rewrite(entry).await?;
            // Who has lost a race finds the value fresh next time.
            is_done &= rewritten != Rewritten::Lost;
            encryption.note(|progress| {
                progress.seen += 1;
                progress.rewritten += usize::from(rewritten == Rewritten::Done);
            });
            tokio::task::yield_now().await;
        }
        if !range.more || after.is_none() {
            return Ok(is_done);
        }
    }
}
