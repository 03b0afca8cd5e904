//! `kubectl drain`: takes the pods of nodes away, so that nobody misses them.

mod removal;
mod verdict;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use self::removal::Removal;
use self::verdict::{Daemon, Options, Verdict, verdict};
use super::change::{self, DRY_RUN, DryRun};
use super::cordon::{dry_text, nodes, set_unschedulable};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::resource::Info;
use crate::resource::mapping::Mapping;
use crate::resource::select::{Query, SELECTOR};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "drain",
    group: super::CLUSTER,
    short: "Drain node in preparation for maintenance.",
    examples: "kubectl drain node-1 --ignore-daemonsets --delete-emptydir-data",
    usage: "NODE [options]",
    flags: &[FLAGS, DRY_RUN, SELECTOR],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::integer("chunk-size", "500", "How many pods are asked for at once."),
    Flag::switch("delete-emptydir-data", "Go on even where pods keep data in emptyDir volumes."),
    Flag::switch("disable-eviction", "Delete instead of evict, whatever disruption budgets say."),
    Flag::switch("force", "Go on even where pods belong to nobody."),
    Flag::integer("grace-period", "-1", "Seconds each pod has to end; -1 for what it says itself."),
    Flag::switch("ignore-daemonsets", "Leave the pods of DaemonSets where they are."),
    Flag::text("pod-selector", "", "Only pods with these labels."),
    Flag::integer("skip-wait-for-delete-timeout", "0", "Do not wait for pods that are being deleted for longer."),
    Flag::duration("timeout", "0s", "How long it may take; 0 for as long as it needs."),
];

async fn run(session: &Session) -> Result<()> {
    let dry = change::dry_run(session)?;
    let nodes = nodes(session).await?;
    for node in &nodes {
        set_unschedulable(session, node, true, dry).await?;
    }
    let mut failed: Vec<(&str, String)> = Vec::new();
    for node in &nodes {
        match drain(session, node, dry).await {
            Ok(()) => terminal::outln(&format!("{} drained{}", node.shown(), dry_text(dry))),
            // The other nodes may go all the same.
            Err(failure) => {
                let (name, why) = (node.name.as_str(), failure.text());
                terminal::errln(&format!(
                    "error: unable to drain node {name:?} due to error: {why}, continuing command..."
                ));
                failed.push((name, why));
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    terminal::errln("There are pending nodes to be drained:");
    failed.iter().for_each(|(name, _)| terminal::errln(&format!(" {name}")));
    let whys: Vec<String> = failed.into_iter().map(|(_, why)| why).collect();
    Err(Failure::Plain(whys.join("\n")))
}

/// Until when it may take, and how that is said; none for as long as it needs.
#[derive(Clone, Copy)]
struct Limit(Option<(tokio::time::Instant, f64)>);

impl Limit {
    fn of(session: &Session) -> Limit {
        let seconds = session.flags.seconds("timeout");
        let until = || tokio::time::Instant::now() + Duration::try_from_secs_f64(seconds).unwrap_or(DAY * 365);
        Limit((seconds > 0.0).then(|| (until(), seconds)))
    }

    fn is_over(self) -> Option<String> {
        let (until, seconds) = self.0?;
        (tokio::time::Instant::now() >= until).then(|| format!("global timeout reached: {}", timeout_text(seconds)))
    }

    async fn hold<T>(self, doing: impl Future<Output = Result<T>>) -> Result<T> {
        match self.0 {
            None => doing.await,
            Some((until, _)) => match tokio::time::timeout_at(until, doing).await {
                Ok(done) => done,
                Err(_) => Err(Failure::message("context deadline exceeded")),
            },
        }
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long a pod that may not be evicted yet is left alone.
const EVICT_AGAIN: Duration = Duration::from_secs(5);

fn timeout_text(seconds: f64) -> String {
    machinery::duration::written_positive(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

async fn drain(session: &Session, node: &Info, dry: DryRun) -> Result<()> {
    let mapping = session.mapping("pods").await?;
    let Sorted { leaving, warnings } = sort_out(session, fetch(session, &mapping, node).await?).await?;
    if !warnings.is_empty() {
        terminal::warn(&warnings.join("; "));
    }
    if dry == DryRun::Client {
        leaving.iter().for_each(|pod| terminal::outln(&format!("evicting pod {} (dry run)", shown(pod))));
        return Ok(());
    }
    let removal = Removal { session, mapping: &mapping, dry, limit: Limit::of(session) };
    let outcome = if session.flags.on("disable-eviction") {
        removal.delete_all(leaving).await
    } else {
        // Each by itself: one that a budget holds back is in nobody's way.
        let all = futures::future::join_all(leaving.into_iter().map(|pod| removal.evict(pod))).await;
        together(all.into_iter().filter_map(Result::err).collect())
    };
    if let Err(failure) = &outcome {
        tell_pending(session, &mapping, node, failure).await;
    }
    outcome
}

/// Several errors as upstream joins them.
fn together(failures: Vec<Failure>) -> Result<()> {
    let mut texts: Vec<String> = Vec::new();
    for text in failures.iter().map(Failure::text) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match &texts[..] {
        [] => Ok(()),
        [one] => Err(Failure::message(one)),
        many => Err(Failure::message(format!("[{}]", many.join(", ")))),
    }
}

/// Names the pods that are still there.
async fn tell_pending(session: &Session, pods: &Mapping, node: &Info, failure: &Failure) {
    let left = async { sort_out(session, fetch(session, pods, node).await?).await };
    match left.await {
        Ok(Sorted { leaving, .. }) if leaving.is_empty() => {}
        Ok(Sorted { leaving, .. }) => {
            terminal::errln(&format!(
                "There are pending pods in node {:?} when an error occurred: {}",
                node.name,
                failure.text()
            ));
            leaving.iter().for_each(|pod| terminal::errln(&format!("pod/{}", name_of(pod).1)));
        }
        Err(failure) => terminal::errln(&format!(
            "Following errors occurred while getting the list of pods to delete:\n{}",
            failure.text()
        )),
    }
}

async fn fetch(session: &Session, pods: &Mapping, node: &Info) -> Result<Vec<Value>> {
    let query = Query {
        fields: format!("spec.nodeName={}", node.name),
        selector: session.flags.text("pod-selector").into(),
        chunk: session.flags.integer("chunk-size"),
        ..Query::default()
    };
    session.list(pods, "", &query).await
}

fn options(session: &Session) -> Options {
    let flags = &session.flags;
    Options {
        force: flags.on("force"),
        ignore_daemon_sets: flags.on("ignore-daemonsets"),
        delete_data: flags.on("delete-emptydir-data"),
        skip_deleted_seconds: flags.integer("skip-wait-for-delete-timeout"),
    }
}

/// The pods that go, and what is to be said of some.
struct Sorted {
    leaving: Vec<Value>,
    warnings: Vec<String>,
}

/// An error where a pod is in the way.
async fn sort_out(session: &Session, pods: Vec<Value>) -> Result<Sorted> {
    let (options, now) = (options(session), Timestamp::now());
    let (mut refused, mut warned) = (Reasons::default(), Reasons::default());
    let mut leaving = Vec::new();
    for pod in pods {
        let shown = shown(&pod);
        let daemon = look_for_daemon(session, &pod).await;
        match verdict(&pod, options, daemon.as_ref(), now) {
            Verdict::Leave => {}
            Verdict::Evict => leaving.push(pod),
            Verdict::Warn(why) => {
                warned.add(why, shown);
                leaving.push(pod);
            }
            Verdict::LeaveAndWarn(why) => warned.add(why, shown),
            Verdict::Refuse(why) => refused.add(&why, shown),
        }
    }
    refused.refuse()?;
    Ok(Sorted { leaving, warnings: warned.texts() })
}

/// Pods by what is said of them, in the order it was first said.
#[derive(Default)]
struct Reasons(Vec<(String, Vec<String>)>);

impl Reasons {
    fn add(&mut self, why: &str, pod: String) {
        match self.0.iter_mut().find(|(known, _)| known == why) {
            Some((_, pods)) => pods.push(pod),
            None => self.0.push((why.to_owned(), vec![pod])),
        }
    }

    fn texts(&self) -> Vec<String> {
        self.0.iter().map(|(why, pods)| format!("{why}: {}", pods.join(", "))).collect()
    }

    fn refuse(&self) -> Result<()> {
        match &self.texts()[..] {
            [] => Ok(()),
            [one] => Err(Failure::message(one)),
            many => Err(Failure::message(format!("[{}]", many.join(", ")))),
        }
    }
}

fn name_of(pod: &Value) -> (&str, &str) {
    let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

fn shown(pod: &Value) -> String {
    let (namespace, name) = name_of(pod);
    format!("{namespace}/{name}")
}

async fn look_for_daemon(session: &Session, pod: &Value) -> Option<Daemon> {
    let (namespace, name) = (name_of(pod).0, verdict::daemon_of(pod)?);
    let path = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}");
    Some(match session.send(&Call::get(path)).await {
        Ok(_) => Daemon::There,
        Err(failure) if failure.is_not_found() => Daemon::Gone(failure.text()),
        Err(failure) => Daemon::Unknown(failure.text()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_named_under_what_is_said_of_them() {
        let mut reasons = Reasons::default();
        assert!(reasons.refuse().is_ok());
        reasons.add("in the way", "a/b".into());
        reasons.add("in the way", "a/c".into());
        assert_eq!(reasons.refuse().unwrap_err().text(), "in the way: a/b, a/c");
        reasons.add("too large", "x/y".into());
        assert_eq!(reasons.refuse().unwrap_err().text(), "[in the way: a/b, a/c, too large: x/y]");
    }

    #[test]
    fn durations_are_written_as_gos() {
        for (seconds, text) in [(5.0, "5s"), (0.5, "500ms"), (90.0, "1m30s"), (3600.0, "1h0m0s")] {
            assert_eq!(timeout_text(seconds), text);
        }
    }
}
