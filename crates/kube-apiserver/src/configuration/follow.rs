//! Reads a configuration file again when it changes. A file that is wrong changes nothing: the old one stays in use, and
//! the log, the metrics and `/readyz?verbose` say so.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component_base::inotify;
use component_base::metrics::{Metric, Page};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio_util::sync::CancellationToken;

use crate::app::Clock;

/// How often the file is looked at besides, as upstream: the kernel does not tell of all changes, such as those behind a link or
/// on a network's file system.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The same where the kernel tells of none.
const LOOK_OFTEN: Duration = Duration::from_secs(1);
/// What could not be applied for reasons outside of the file (a provider that is down) is tried again after this.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// What is followed.
pub struct Follow {
    pub path: PathBuf,
    /// What was read last.
    pub text: String,
    /// For the log: `authorization configuration`.
    pub what: &'static str,
}

/// How reloads went, for `/metrics` and `/readyz`.
#[derive(Default)]
pub struct Reloads {
    succeeded: AtomicU64,
    failed: AtomicU64,
    last_success: AtomicU64,
    last_failure: AtomicU64,
    /// Of the text that is in use; empty where no file is.
    hash: Mutex<String>,
    /// Why the last reload was refused; nothing once one succeeds.
    wrong: Mutex<Option<String>>,
}

/// What became of a reload.
pub enum Applied {
    Yes,
    /// The file is wrong and will be until it changes.
    Refused(String),
    /// It may work later.
    NotNow(String),
}

/// Until the shutdown. `apply` gets each new text once, and once more now and then where it could not be applied yet.
pub async fn follow<F: Future<Output = Applied>>(
    mut followed: Follow,
    reloads: &Reloads,
    clock: &Clock,
    apply: impl Fn(String) -> F,
    shutdown: CancellationToken,
) {
    reloads.in_use(&followed.text);
    let changes = Changes::of([followed.path.as_path()]);
    // It may have changed before it was watched.
    let mut wait = Duration::ZERO;
    loop {
        tokio::select! {
            () = changes.wait(wait) => {}
            () = shutdown.cancelled() => return,
        }
        wait = changes.look_every();
        let text = match super::read(&followed.path) {
            Ok(text) if text == followed.text => continue,
            Ok(text) => text,
            Err(error) => {
                reloads.fail(followed.what, &error.to_string(), clock);
                wait = RETRY_AFTER;
                continue;
            }
        };
        match apply(text.clone()).await {
            Applied::Yes => {
                reloads.succeed(&text, clock);
                tracing::info!(path = %followed.path.display(), "reloaded {}", followed.what);
                followed.text = text;
            }
            Applied::Refused(why) => {
                reloads.fail(followed.what, &why, clock);
                followed.text = text;
            }
            Applied::NotNow(why) => {
                reloads.fail(followed.what, &why, clock);
                wait = RETRY_AFTER;
            }
        }
    }
}

/// Tells when files may have changed.
pub(crate) struct Changes(Option<inotify::Watcher>);

impl Changes {
    /// Their folders are watched: most programs put another file in the place of the old one. A file that is written in place counts
    /// once it is closed, so that half of it is not read.
    pub(crate) fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Changes {
        let folders: BTreeSet<&Path> = paths.into_iter().map(folder_of).collect();
        let watch = || {
            let watcher = inotify::Watcher::new()?;
            for folder in &folders {
                watcher.add(folder, inotify::What::CLOSE_WRITE | inotify::What::MOVED_TO)?;
            }
            Ok::<_, std::io::Error>(watcher)
        };
        let watcher = watch().inspect_err(|error| {
            tracing::warn!(?folders, %error, "cannot watch files; reading them every second");
        });
        Changes(watcher.ok())
    }

    /// How long to wait where nothing happens.
    pub(crate) fn look_every(&self) -> Duration {
        if self.0.is_some() { LOOK_EVERY } else { LOOK_OFTEN }
    }

    /// Until something happened in the folders, or that time has passed.
    pub(crate) async fn wait(&self, longest: Duration) {
        let Some(watcher) = &self.0 else { return tokio::time::sleep(longest).await };
        tokio::select! {
            changed = watcher.changed() => {
                if let Err(error) = changed {
                    tracing::warn!(%error, "cannot watch files");
                    tokio::time::sleep(LOOK_OFTEN).await;
                }
            }
            () = tokio::time::sleep(longest) => {}
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Reloads {
    pub(crate) fn in_use(&self, text: &str) {
        *self.hash.lock() = hash(text);
    }

    fn succeed(&self, text: &str, clock: &Clock) {
        self.in_use(text);
        self.succeeded.fetch_add(1, Ordering::Relaxed);
        self.last_success.store(seconds(clock), Ordering::Relaxed);
        *self.wrong.lock() = None;
    }

    fn fail(&self, what: &str, why: &str, clock: &Clock) {
        tracing::error!(error = why, "cannot reload {what}; keeping the old one");
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.last_failure.store(seconds(clock), Ordering::Relaxed);
        *self.wrong.lock() = Some(why.to_owned());
    }

    /// Why the file on disk is not the one in use.
    pub fn wrong(&self) -> Option<String> {
        self.wrong.lock().clone()
    }

    /// `what` is `authentication` or `authorization`, `server` the hash of this server's identity.
    pub fn render(&self, page: &mut Page, what: &str, server: &str) {
        let config = self.hash.lock().clone();
        if config.is_empty() {
            return;
        }
        let server = ("apiserver_id_hash", server);
        let counted = [("failure", &self.failed, &self.last_failure), ("success", &self.succeeded, &self.last_success)];
        let some = || counted.iter().filter(|(_, count, _)| count.load(Ordering::Relaxed) > 0);
        let name = format!("apiserver_{what}_config_controller_automatic_reloads_total");
        let help = format!(
            "Total number of automatic reloads of {what} configuration split by status and apiserver identity."
        );
        let metric = Metric::counter(&name, &help);
        let mut family = page.family(&metric);
        for (status, count, _) in some() {
            family.sample(&[server, ("status", status)], count.load(Ordering::Relaxed));
        }
        let name = format!("apiserver_{what}_config_controller_automatic_reload_last_timestamp_seconds");
        let help = format!(
            "Timestamp of the last automatic reload of {what} configuration split by status and apiserver identity."
        );
        let metric = Metric::gauge(&name, &help);
        let mut family = page.family(&metric);
        for (status, _, at) in some() {
            family.sample(&[server, ("status", status)], at.load(Ordering::Relaxed));
        }
        let name = format!("apiserver_{what}_config_controller_last_config_info");
        let help = format!(
            "Information about the last applied {what} configuration with hash as label, split by apiserver identity."
        );
        page.family(&Metric::gauge(&name, &help)).sample(&[server, ("hash", &config)], 1);
    }
}

/// As upstream shows one: `sha256:...`.
pub fn hash(text: &str) -> String {
    let hex: String = digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn seconds(clock: &Clock) -> u64 {
    u64::try_from(clock.now().as_second()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written in place and put in its place, as editors do and as ConfigMaps are mounted; a look a minute would be too late.
    #[tokio::test]
    async fn changes_are_told_by_the_kernel() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, "one").expect("it is written");
        let followed = Follow { path: path.clone(), text: "one".into(), what: "test configuration" };
        let (told, mut heard) = tokio::sync::mpsc::channel(8);
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let following = tokio::spawn(async move {
            let apply = |text: String| {
                let told = told.clone();
                async move {
                    told.send(text).await.expect("somebody listens");
                    Applied::Yes
                }
            };
            follow(followed, &Reloads::default(), &Clock::system(), apply, stop).await;
        });
        // What happens before the folder is watched is found by the first look.
        std::fs::write(&path, "two").expect("it is written");
        assert_eq!(next(&mut heard).await, "two");
        let other = folder.path().join("other");
        std::fs::write(&other, "three").expect("it is written");
        std::fs::rename(&other, &path).expect("it is renamed");
        assert_eq!(next(&mut heard).await, "three");
        shutdown.cancel();
        following.await.expect("it ends");
    }

    async fn next(heard: &mut tokio::sync::mpsc::Receiver<String>) -> String {
        let soon = tokio::time::timeout(Duration::from_secs(20), heard.recv()).await;
        soon.expect("it is told long before the next look").expect("the other end is there")
    }
}
