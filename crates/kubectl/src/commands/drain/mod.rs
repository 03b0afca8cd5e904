//! `kubectl drain`: takes the pods of nodes away, so that nobody misses them.

mod verdict;

use std::time::Duration;

use serde_json::{Value, json};

use self::verdict::{Options, Verdict, verdict};
use super::change::{self, DRY_RUN, DryRun};
use super::cordon::{dry_text, nodes, set_unschedulable};
use super::wait::{self, Until};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::resource::Info;
use crate::resource::mapping::Mapping;
use crate::resource::select::{self, Query, SELECTOR};
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
    for (at, node) in nodes.iter().enumerate() {
        match drain_in_time(session, node, dry).await {
            Ok(()) => terminal::outln(&format!("{} drained{}", node.shown(), dry_text(dry))),
            Err(failure) => return Err(give_up(failure, &nodes[at..])),
        }
    }
    Ok(())
}

async fn drain_in_time(session: &Session, node: &Info, dry: DryRun) -> Result<()> {
    let draining = drain(session, node, dry);
    let seconds = session.flags.seconds("timeout");
    if seconds <= 0.0 {
        return draining.await;
    }
    let limited = tokio::time::timeout(Duration::from_secs_f64(seconds), draining).await;
    limited.unwrap_or_else(|_| Err(Failure::message(format!("global timeout reached: {}", timeout_text(seconds)))))
}

fn timeout_text(seconds: f64) -> String {
    machinery::duration::written_positive(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// Tells of the nodes that are left.
fn give_up(failure: Failure, left: &[Info]) -> Failure {
    let why = failure.text();
    if let Some(node) = left.first() {
        let name = &node.name;
        terminal::errln(&format!("error: unable to drain node {name:?} due to error: {why}, continuing command..."));
    }
    terminal::errln("There are pending nodes to be drained:");
    left.iter().for_each(|node| terminal::errln(&format!(" {}", node.name)));
    Failure::Plain(why)
}

async fn drain(session: &Session, node: &Info, dry: DryRun) -> Result<()> {
    let mapping = session.mapping("pods").await?;
    let leaving = sort_out(session, fetch(session, &mapping, node).await?).await?;
    for pod in &leaving {
        announce(session, pod, dry);
        if dry == DryRun::No {
            evict(session, pod).await?;
        }
    }
    if dry != DryRun::No {
        return Ok(());
    }
    for pod in leaving {
        wait_for_end(session, &mapping, pod).await?;
    }
    Ok(())
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

/// The pods that go; an error where one is in the way.
async fn sort_out(session: &Session, pods: Vec<Value>) -> Result<Vec<Value>> {
    let flags = &session.flags;
    let options = Options {
        force: flags.on("force"),
        ignore_daemon_sets: flags.on("ignore-daemonsets"),
        delete_data: flags.on("delete-emptydir-data"),
    };
    let (mut refused, mut warned) = (Reasons::default(), Reasons::default());
    let mut leaving = Vec::new();
    for pod in pods {
        let shown = shown(&pod);
        match verdict(&pod, options, daemon_gone(session, &pod).await) {
            Verdict::Leave => {}
            Verdict::Evict => leaving.push(pod),
            Verdict::Warn(why) => {
                warned.add(why, shown);
                leaving.push(pod);
            }
            Verdict::LeaveAndWarn(why) => warned.add(why, shown),
            Verdict::Refuse(why) => refused.add(why, shown),
        }
    }
    refused.refuse()?;
    if !warned.0.is_empty() {
        terminal::warn(&warned.texts().join("; "));
    }
    Ok(leaving)
}

/// Pods by what is said of them, in the order it was first said.
#[derive(Default)]
struct Reasons(Vec<(&'static str, Vec<String>)>);

impl Reasons {
    fn add(&mut self, why: &'static str, pod: String) {
        match self.0.iter_mut().find(|(known, _)| *known == why) {
            Some((_, pods)) => pods.push(pod),
            None => self.0.push((why, vec![pod])),
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

/// Whoever deletes instead of evicting hears of it once it is done.
fn announce(session: &Session, pod: &Value, dry: DryRun) {
    let deletes = session.flags.on("disable-eviction");
    if deletes && dry == DryRun::No {
        return;
    }
    let word = if deletes { "deleting" } else { "evicting" };
    terminal::outln(&format!("{word} pod {}{}", shown(pod), dry_text(dry)));
}

async fn wait_for_end(session: &Session, pods: &Mapping, pod: Value) -> Result<()> {
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_string();
    let info = select::info_of(pods, pod);
    wait::one(session, &info, &Until::Deleted { uid }, None).await?;
    let word = if session.flags.on("disable-eviction") { "deleted" } else { "evicted" };
    terminal::outln(&format!("pod/{} {word}", info.name));
    Ok(())
}

async fn daemon_gone(session: &Session, pod: &Value) -> bool {
    let owner = pod["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|owner| owner["controller"] == true && owner["kind"] == "DaemonSet");
    let Some(owner) = owner else { return false };
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let path =
        format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{}", owner["name"].as_str().unwrap_or_default());
    matches!(session.send(&Call::get(path)).await, Err(failure) if failure.is_not_found())
}

/// A budget may forbid it for now; then it is tried again.
async fn evict(session: &Session, pod: &Value) -> Result<()> {
    let flags = &session.flags;
    let (namespace, name) = (
        pod["metadata"]["namespace"].as_str().unwrap_or_default(),
        pod["metadata"]["name"].as_str().unwrap_or_default(),
    );
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let mut options = json!({});
    if flags.integer("grace-period") >= 0 {
        options["gracePeriodSeconds"] = flags.integer("grace-period").into();
    }
    loop {
        let call = if flags.on("disable-eviction") {
            Call::delete(&path, &options)
        } else {
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}, "deleteOptions": options});
            Call::post(format!("{path}/eviction"), &eviction)
        };
        match session.send(&call).await {
            Ok(_) => return Ok(()),
            Err(failure) if failure.is_not_found() => return Ok(()),
            Err(failure) if failure.reason() == "TooManyRequests" => {
                terminal::errln(&format!(
                    "error when evicting pods/{name:?} -n {namespace:?} (will retry after 5s): {}",
                    failure.text()
                ));
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            Err(failure) => {
                return Err(Failure::message(format!(
                    "error when evicting pods/{name:?} -n {namespace:?}: {}",
                    failure.text()
                )));
            }
        }
    }
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
