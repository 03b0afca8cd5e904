//! `/healthz`, `/livez`, `/readyz`: named checks, each of which can be asked for by itself or left out.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::query::Query;
use crate::respond::{self, Reply};

#[derive(Default)]
pub struct Health {
    /// Objects that must be there from the first start are there.
    pub bootstrapped: AtomicBool,
    /// Cancelled when the server is told to stop: it takes no more requests, and watches end.
    pub stopping: CancellationToken,
}

/// A check answers why it fails, if it does.
type Check = fn(&App) -> Result<(), String>;

const PING: (&str, Check) = ("ping", |_| Ok(()));
const LOG: (&str, Check) = ("log", |_| Ok(()));
const STORE: (&str, Check) = ("etcd", |_| Ok(()));
const BOOTSTRAP: (&str, Check) =
    ("poststarthook/rbac/bootstrap-roles", |app| match app.health.bootstrapped.load(Ordering::Acquire) {
        true => Ok(()),
        false => Err("not finished".into()),
    });
const PRIORITY: (&str, Check) = ("poststarthook/scheduling/bootstrap-system-priority-classes", BOOTSTRAP.1);
const INFORMERS: (&str, Check) = ("informer-sync", BOOTSTRAP.1);
const SHUTDOWN: (&str, Check) = ("shutdown", |app| match app.health.stopping.is_cancelled() {
    true => Err("process is shutting down".into()),
    false => Ok(()),
});

const LIVE: &[(&str, Check)] = &[PING, LOG, STORE, BOOTSTRAP, PRIORITY];
const READY: &[(&str, Check)] = &[PING, LOG, STORE, INFORMERS, BOOTSTRAP, PRIORITY, SHUTDOWN];

/// Answers a health path, or none where the path names no check.
pub async fn answer(app: &App, path: &str, query: &Query) -> Option<Reply> {
    let mut parts = path.trim_matches('/').splitn(2, '/');
    let endpoint = parts.next()?;
    let checks = match endpoint {
        "livez" | "healthz" => LIVE,
        "readyz" => READY,
        _ => return None,
    };
    if let Some(name) = parts.next() {
        let (_, check) = checks.iter().find(|(known, _)| *known == name)?;
        return Some(match run(app, name, check).await {
            Ok(()) => respond::text(200, "ok"),
            Err(why) => respond::text(500, format!("internal server error: {why}\n")),
        });
    }
    let excluded = query.all("exclude");
    let (mut report, mut failed) = (String::new(), Vec::new());
    for (name, check) in checks {
        if excluded.contains(name) {
            report += &format!("[+]{name} excluded: ok\n");
            continue;
        }
        match run(app, name, check).await {
            Ok(()) => report += &format!("[+]{name} ok\n"),
            Err(why) => {
                tracing::warn!(check = name, why, "health check failed");
                report += &format!("[-]{name} failed: reason withheld\n");
                failed.push(*name);
            }
        }
    }
    // Only people ask for the report, and they may have mistyped a name.
    let unknown: Vec<String> = excluded
        .iter()
        .filter(|name| !checks.iter().any(|(known, _)| known == *name))
        .map(|name| format!("{name:?}"))
        .collect();
    if !unknown.is_empty() {
        report += &format!("warn: some health checks cannot be excluded: no matches for {}\n", unknown.join(","));
    }
    Some(match failed.is_empty() {
        true if query.has("verbose") => respond::text(200, format!("{report}{endpoint} check passed\n")),
        true => respond::text(200, "ok"),
        false => respond::text(500, format!("{report}{endpoint} check failed\n")),
    })
}

/// The store is asked for real; the rest are flags.
async fn run(app: &App, name: &str, check: &Check) -> Result<(), String> {
    const STORE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);
    if name == STORE.0 {
        let asked = tokio::time::timeout(STORE_TIMEOUT, app.cache.store().revision()).await;
        return match asked {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the store did not answer in time".into()),
        };
    }
    check(app)
}
