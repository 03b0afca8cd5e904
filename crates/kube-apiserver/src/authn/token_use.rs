//! Which tokens of Secrets are used: noted on the Secret, once a day, so that those nobody uses can be told and removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use machinery::object::Meta;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::call::Call;
use crate::write::{self, Owner, Part, Update};

pub const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const MANAGER: &str = "kube-apiserver";
/// Uses that wait to be written; others are noted when they are used again.
const WAITING_MAX: usize = 1024;

/// Noting is a matter of memory; writing happens beside the requests.
#[derive(Default)]
pub struct Uses {
    /// Namespace and name of the Secret.
    waiting: Mutex<BTreeSet<(String, String)>>,
    noted: Notify,
}

impl Uses {
    /// A token of that Secret was used today.
    pub fn note(&self, secret: &Value, now: Timestamp) {
        if secret.label(LAST_USED) == Some(&day(now)) {
            return;
        }
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAITING_MAX {
            waiting.insert((secret.namespace().into(), secret.name().into()));
            self.noted.notify_one();
        }
    }

    async fn next(&self) -> BTreeSet<(String, String)> {
        loop {
            let waiting = std::mem::take(&mut *self.waiting.lock());
            if !waiting.is_empty() {
                return waiting;
            }
            self.noted.notified().await;
        }
    }
}

/// As the label and the ConfigMap carry it.
pub fn day(now: Timestamp) -> String {
    now.strftime("%Y-%m-%d").to_string()
}

/// Writes what was noted, until the server stops.
pub async fn follow(app: Arc<App>, shutdown: CancellationToken) {
    let work = async {
        loop {
            for (namespace, name) in app.authenticator.service_accounts().uses().next().await {
                if let Err(status) = write_label(&app, &namespace, &name).await {
                    tracing::warn!(
                        namespace,
                        secret = name,
                        error = status.message,
                        "cannot label legacy service account token as used"
                    );
                }
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = shutdown.cancelled() => {}
    }
}

async fn write_label(app: &Arc<App>, namespace: &str, name: &str) -> Result<(), machinery::status::Status> {
    let call = Call::internal(app, &json!({"apiVersion": "v1", "kind": "Secret"}))?;
    let resource = call.resource.clone();
    let owner = Owner::Update(MANAGER.into());
    let update =
        Update { call: &call, resource: &resource, namespace, name, part: Part::Main, owner: &owner, dry_run: false };
    let today = day(app.clock.now());
    let change = |current: &Value| {
        let mut next = current.clone();
        next["metadata"]["labels"][LAST_USED] = today.clone().into();
        Ok(next)
    };
    match write::update(update, change).await {
        Err(status) if status.reason == "NotFound" => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_use_is_noted_once_a_day() {
        let uses = Uses::default();
        let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
        let secret = |used: &str| json!({"metadata": {"namespace": "a", "name": used, "labels": {LAST_USED: used}}});
        for used in ["2026-06-01", "2026-05-31", "2026-05-31", "never"] {
            uses.note(&secret(used), now);
        }
        let waiting = uses.next().await;
        let names: Vec<&str> = waiting.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["2026-05-31", "never"]);
    }
}
