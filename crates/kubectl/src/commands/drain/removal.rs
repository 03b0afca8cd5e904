//! Takes pods away: by eviction, which budgets may hold back, or by deletion, and waits for their end.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::change::DryRun;
use super::super::wait::{self, Until};
use super::verdict::{is_stuck, stuck_in};
use super::{EVICT_AGAIN, Limit, name_of, options, shown};
use crate::failure::{Failure, Result};
use crate::resource::mapping::Mapping;
use crate::resource::select;
use crate::session::{Call, Session};
use crate::terminal;

#[derive(Clone, Copy)]
pub(super) struct Removal<'a> {
    pub(super) session: &'a Session,
    pub(super) mapping: &'a Mapping,
    pub(super) dry: DryRun,
    pub(super) limit: Limit,
}

/// What the server says of an eviction.
enum Answer {
    Gone,
    Accepted,
    /// To be tried again, after this was said.
    NotYet(String),
}

impl Removal<'_> {
    /// Evicts one pod, as often as it takes, and waits for its end.
    pub(super) async fn evict(self, mut pod: Value) -> Result<()> {
        let (namespace, name) = name_of(&pod);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let failed = |why: &str| Failure::message(format!("error when evicting pods/{name:?} -n {namespace:?}: {why}"));
        loop {
            let dry = if self.dry == DryRun::Server { " (server dry run)" } else { "" };
            terminal::outln(&format!("evicting pod {}{dry}", shown(&pod)));
            if let Some(why) = self.limit.is_over() {
                return Err(failed(&why));
            }
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace}, "deleteOptions": self.delete_options()});
            let answer = self.session.send(&Call::post(format!("{path}/eviction"), &eviction)).await;
            match judge(answer, &pod).map_err(|failure| failed(&failure.text()))? {
                Answer::Gone => return Ok(()),
                Answer::Accepted => break,
                Answer::NotYet(said) => {
                    terminal::errln(&said);
                    tokio::time::sleep(EVICT_AGAIN).await;
                }
            }
            // What cannot be read now, the next eviction will tell.
            if let Ok(fresh) = self.session.send(&Call::get(path.as_str())).await {
                pod = fresh;
            }
        }
        if self.dry == DryRun::Server {
            return Ok(());
        }
        let waited = self.limit.hold(self.wait_for_end(pod, "evicted")).await;
        waited.map_err(|failure| {
            let why = failure.text();
            Failure::message(format!(
                "error when waiting for pod {name:?} in namespace {namespace:?} to terminate: {why}"
            ))
        })
    }

    /// Deletes all pods, then waits for all of them.
    pub(super) async fn delete_all(self, pods: Vec<Value>) -> Result<()> {
        let options = self.delete_options();
        for pod in &pods {
            let (namespace, name) = name_of(pod);
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
            match self.session.send(&Call::delete(path, &options)).await {
                Err(failure) if !failure.is_not_found() => return Err(failure),
                _ => {}
            }
        }
        if self.dry == DryRun::Server {
            return Ok(());
        }
        let waiting = async {
            for pod in pods {
                self.wait_for_end(pod, "deleted").await?;
            }
            Ok(())
        };
        self.limit.hold(waiting).await
    }

    fn delete_options(self) -> Value {
        let mut options = json!({});
        let grace = self.session.flags.integer("grace-period");
        if grace >= 0 {
            options["gracePeriodSeconds"] = grace.into();
        }
        if self.dry == DryRun::Server {
            options["dryRun"] = json!(["All"]);
        }
        options
    }

    async fn wait_for_end(self, pod: Value, done: &str) -> Result<()> {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_string();
        let info = select::info_of(self.mapping, pod);
        let (until, path) = (Until::Deleted { uid }, info.path());
        let ended = wait::one(self.session, &info, &until, None);
        tokio::select! {
            ended = ended => {
                ended?;
                terminal::outln(&format!("pod/{} {done}", info.name));
            }
            () = self.stuck(&path) => {
                let seconds = options(self.session).skip_deleted_seconds;
                let name = &info.name;
                terminal::outln(&format!("pod {name:?} has DeletionTimestamp older than {seconds} seconds, skipping"));
            }
        }
        Ok(())
    }

    /// Until the pod has been deleted for longer than anybody wants to wait; for ever where they want to.
    async fn stuck(self, path: &str) {
        let options = options(self.session);
        if options.skip_deleted_seconds <= 0 {
            return std::future::pending().await;
        }
        loop {
            let mut pause = Duration::from_secs(1);
            if let Ok(pod) = self.session.send(&Call::get(path)).await {
                let now = Timestamp::now();
                if is_stuck(&pod, options, now) {
                    return;
                }
                pause = pause.max(stuck_in(&pod, options, now));
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// What an answer to an eviction means for a pod.
fn judge(answer: Result<Value>, pod: &Value) -> Result<Answer> {
    let Err(failure) = answer else { return Ok(Answer::Accepted) };
    if failure.is_not_found() {
        return Ok(Answer::Gone);
    }
    let ((namespace, name), why) = (name_of(pod), failure.text());
    if failure.reason() == "TooManyRequests" {
        let said = format!("error when evicting pods/{name:?} -n {namespace:?} (will retry after 5s): {why}");
        return Ok(Answer::NotYet(said));
    }
    if failure.reason() == "Forbidden" && failure.has_cause("NamespaceTerminating") {
        // The namespace's end is the pod's; it is only waited for.
        if pod["metadata"]["deletionTimestamp"].is_string() {
            return Ok(Answer::Accepted);
        }
        return Ok(Answer::NotYet(format!(
            "error when evicting pod {name:?} from terminating namespace {namespace:?} (will retry after 5s): {why}"
        )));
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: i64, reason: &str, cause: &str) -> Result<Value> {
        let mut status =
            json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "why"});
        if !cause.is_empty() {
            status["details"] = json!({"causes": [{"reason": cause, "message": "m"}]});
        }
        Err(Failure::status(status))
    }

    fn told(answer: Result<Value>, deleted: bool) -> String {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "n"}});
        if deleted {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        match judge(answer, &pod) {
            Ok(Answer::Gone) => "gone".into(),
            Ok(Answer::Accepted) => "accepted".into(),
            Ok(Answer::NotYet(said)) => said,
            Err(failure) => format!("failed: {}", failure.text()),
        }
    }

    #[test]
    fn evictions_are_tried_again_where_that_may_help() {
        assert_eq!(told(Ok(Value::Null), false), "accepted");
        assert_eq!(told(refused(404, "NotFound", ""), false), "gone");
        let later = "error when evicting pods/\"p\" -n \"n\" (will retry after 5s): why";
        assert_eq!(told(refused(429, "TooManyRequests", ""), false), later);
        assert_eq!(told(refused(500, "InternalError", ""), false), "failed: why");
    }

    #[test]
    fn a_namespace_that_ends_takes_its_pods_along() {
        let ending = || refused(403, "Forbidden", "NamespaceTerminating");
        let later = "error when evicting pod \"p\" from terminating namespace \"n\" (will retry after 5s): why";
        assert_eq!(told(ending(), false), later);
        assert_eq!(told(ending(), true), "accepted");
        assert_eq!(told(refused(403, "Forbidden", ""), true), "failed: why");
    }
}
