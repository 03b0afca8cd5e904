//! `kubectl cordon`, `uncordon`, `drain` and `taint`.

use std::time::Duration;

use serde_json::{Value, json};

use super::change::{Change, DRY_RUN, DryRun, MERGE, STRATEGIC};
use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::resource::Info;
use crate::resource::select::{Query, SELECTOR};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static CORDON: Command = Command {
    name: "cordon",
    group: super::CLUSTER,
    short: "Mark node as unschedulable.",
    examples: "kubectl cordon node-1",
    usage: "NODE [options]",
    flags: &[DRY_RUN, SELECTOR],
    run: Some(|session| Box::pin(cordon(session, true))),
    ..Command::EMPTY
};
pub(super) static UNCORDON: Command = Command {
    name: "uncordon",
    group: super::CLUSTER,
    short: "Mark node as schedulable.",
    examples: "kubectl uncordon node-1",
    usage: "NODE [options]",
    flags: &[DRY_RUN, SELECTOR],
    run: Some(|session| Box::pin(cordon(session, false))),
    ..Command::EMPTY
};
pub(super) static DRAIN: Command = Command {
    name: "drain",
    group: super::CLUSTER,
    short: "Drain node in preparation for maintenance.",
    examples: "kubectl drain node-1 --ignore-daemonsets --delete-emptydir-data",
    usage: "NODE [options]",
    flags: &[DRAIN_FLAGS, DRY_RUN, SELECTOR],
    run: Some(|session| Box::pin(drain(session))),
    ..Command::EMPTY
};
pub(super) static TAINT: Command = Command {
    name: "taint",
    group: super::CLUSTER,
    short: "Update the taints on one or more nodes.",
    examples: "kubectl taint nodes node-1 dedicated=db:NoSchedule\nkubectl taint nodes node-1 dedicated-",
    usage: "NODE NAME KEY_1=VAL_1:TAINT_EFFECT_1 ... KEY_N=VAL_N:TAINT_EFFECT_N [options]",
    flags: &[TAINT_FLAGS, DRY_RUN, SELECTOR, super::change::VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(taint(session))),
    ..Command::EMPTY
};

const DRAIN_FLAGS: &[Flag] = &[
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
const TAINT_FLAGS: &[Flag] = &[
    Flag::switch("all", "All nodes."),
    Flag::text("field-manager", "kubectl-taint", "Who owns the fields that are set."),
    Flag::switch("overwrite", "Replace taints that are there."),
];

async fn nodes(session: &Session) -> Result<Vec<Info>> {
    let selector = session.flags.text("selector").to_string();
    if session.arguments().is_empty() && selector.is_empty() {
        return session.usage(format!("USAGE: {} NODE [flags]", session.path.trim_start_matches("kubectl ")));
    }
    if !session.arguments().is_empty() && !selector.is_empty() {
        return session.usage("cannot specify both a node name and a --selector option");
    }
    let mut arguments = session.arguments().to_vec();
    if !arguments.iter().any(|argument| argument.contains('/')) {
        arguments.insert(0, "nodes".into());
    }
    let query = Query { arguments, selector, chunk: 500, ..Query::default() };
    let (infos, failures) = session.infos(&query).await?;
    failure::all(failures)?;
    Ok(infos)
}

fn dry_text(dry: DryRun) -> &'static str {
    match dry {
        DryRun::No => "",
        DryRun::Client => " (dry run)",
        DryRun::Server => " (server dry run)",
    }
}

async fn cordon(session: &Session, wanted: bool) -> Result<()> {
    let dry = super::change::dry_run(session)?;
    for node in nodes(session).await? {
        cordon_one(session, &node, wanted, dry).await?;
    }
    Ok(())
}

async fn cordon_one(session: &Session, node: &Info, wanted: bool, dry: DryRun) -> Result<()> {
    let now = node.object["spec"]["unschedulable"] == true;
    let word = if wanted { "cordoned" } else { "uncordoned" };
    if now == wanted {
        terminal::outln(&format!("{} already {word}{}", node.shown(), dry_text(dry)));
        return Ok(());
    }
    if dry != DryRun::Client {
        let value = if wanted { json!(true) } else { Value::Null };
        let mut call = Call::patch(node.path(), STRATEGIC, &json!({"spec": {"unschedulable": value}}))
            .with("fieldManager", "kubectl-cordon");
        if dry == DryRun::Server {
            call = call.with("dryRun", "All");
        }
        session.send(&call).await?;
    }
    terminal::outln(&format!("{} {word}{}", node.shown(), dry_text(dry)));
    Ok(())
}

async fn drain(session: &Session) -> Result<()> {
    let dry = super::change::dry_run(session)?;
    let nodes = nodes(session).await?;
    for node in &nodes {
        cordon_one(session, node, true, dry).await?;
    }
    let seconds = session.flags.seconds("timeout");
    for (at, node) in nodes.iter().enumerate() {
        let draining = drain_one(session, node, dry);
        let drained = if seconds > 0.0 {
            tokio::time::timeout(Duration::from_secs_f64(seconds), draining).await.unwrap_or_else(|_| {
                Err(Failure::message(format!(
                    "unable to drain node {:?} due to error: global timeout reached: {}, continuing command...",
                    node.name,
                    go_duration(seconds)
                )))
            })
        } else {
            draining.await
        };
        match drained {
            Ok(()) => terminal::outln(&format!("{} drained{}", node.shown(), dry_text(dry))),
            Err(failure) => {
                let text = failure.text();
                let text = if text.starts_with("unable to drain") {
                    text
                } else {
                    format!("unable to drain node {:?} due to error: {text}, continuing command...", node.name)
                };
                terminal::errln(&format!("error: {text}"));
                terminal::errln("There are pending nodes to be drained:");
                nodes[at..].iter().for_each(|node| terminal::errln(&format!(" {}", node.name)));
                return Err(Failure::Plain(
                    text.split(" due to error: ")
                        .nth(1)
                        .unwrap_or(&text)
                        .trim_end_matches(", continuing command...")
                        .to_string(),
                ));
            }
        }
    }
    Ok(())
}

fn go_duration(seconds: f64) -> String {
    let whole = seconds as i64;
    match whole {
        _ if seconds.fract() != 0.0 => format!("{seconds}s"),
        whole if whole >= 3600 => format!("{}h{}m{}s", whole / 3600, whole % 3600 / 60, whole % 60),
        whole if whole >= 60 => format!("{}m{}s", whole / 60, whole % 60),
        whole => format!("{whole}s"),
    }
}

/// What is to happen to a pod of the node.
#[derive(Debug, PartialEq)]
enum Verdict {
    Evict,
    /// Evict, but say so.
    Warn(&'static str),
    Leave,
    LeaveAndWarn(&'static str),
    Refuse(&'static str),
}

const UNMANAGED: &str = "cannot delete Pods that declare no controller (use --force to override)";
const DAEMON: &str = "cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore)";
const LOCAL: &str = "cannot delete Pods with local storage (use --delete-emptydir-data to override)";

/// `daemon_gone` is set where the DaemonSet that owned the pod is no longer there.
fn verdict(pod: &Value, force: bool, ignore_daemons: bool, delete_data: bool, daemon_gone: bool) -> Verdict {
    let metadata = &pod["metadata"];
    if metadata["annotations"]["kubernetes.io/config.mirror"].is_string() {
        return Verdict::Leave;
    }
    let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let owner = metadata["ownerReferences"].as_array().into_iter().flatten().find(|owner| owner["controller"] == true);
    let mut verdict = Verdict::Evict;
    match owner {
        Some(owner) if owner["kind"] == "DaemonSet" && !finished => {
            if daemon_gone {
                return if force {
                    Verdict::Warn("deleting Pods that declare no controller")
                } else {
                    Verdict::Refuse(UNMANAGED)
                };
            }
            return if ignore_daemons {
                Verdict::LeaveAndWarn("ignoring DaemonSet-managed Pods")
            } else {
                Verdict::Refuse(DAEMON)
            };
        }
        None if !finished => {
            if !force {
                return Verdict::Refuse(UNMANAGED);
            }
            verdict = Verdict::Warn("deleting Pods that declare no controller");
        }
        _ => {}
    }
    let local = pod["spec"]["volumes"].as_array().into_iter().flatten().any(|volume| volume["emptyDir"].is_object());
    if local && !finished {
        if !delete_data {
            return Verdict::Refuse(LOCAL);
        }
        return Verdict::Warn("deleting Pods with local storage");
    }
    verdict
}

async fn drain_one(session: &Session, node: &Info, dry: DryRun) -> Result<()> {
    let flags = &session.flags;
    let pods = session.mapping("pods").await?;
    let query = Query {
        fields: format!("spec.nodeName={}", node.name),
        selector: flags.text("pod-selector").into(),
        chunk: flags.integer("chunk-size"),
        ..Query::default()
    };
    let mut leaving = Vec::new();
    let mut refused: Vec<(&str, Vec<String>)> = Vec::new();
    let mut warned: Vec<(&str, Vec<String>)> = Vec::new();
    let add = |list: &mut Vec<(&'static str, Vec<String>)>, why: &'static str, pod: &str| match list
        .iter_mut()
        .find(|(known, _)| *known == why)
    {
        Some((_, pods)) => pods.push(pod.to_string()),
        None => list.push((why, vec![pod.to_string()])),
    };
    for pod in session.list(&pods, "", &query).await? {
        let shown = format!(
            "{}/{}",
            pod["metadata"]["namespace"].as_str().unwrap_or_default(),
            pod["metadata"]["name"].as_str().unwrap_or_default()
        );
        let gone = daemon_gone(session, &pod).await;
        match verdict(&pod, flags.on("force"), flags.on("ignore-daemonsets"), flags.on("delete-emptydir-data"), gone) {
            Verdict::Leave => {}
            Verdict::Evict => leaving.push(pod),
            Verdict::Warn(why) => {
                add(&mut warned, why, &shown);
                leaving.push(pod);
            }
            Verdict::LeaveAndWarn(why) => add(&mut warned, why, &shown),
            Verdict::Refuse(why) => add(&mut refused, why, &shown),
        }
    }
    let sentence = |list: &[(&str, Vec<String>)]| {
        let parts: Vec<String> = list.iter().map(|(why, pods)| format!("{why}: {}", pods.join(", "))).collect();
        parts.join("; ")
    };
    if !refused.is_empty() {
        let text = sentence(&refused);
        return Err(Failure::message(if refused.len() > 1 { format!("[{}]", text.replace("; ", ", ")) } else { text }));
    }
    if !warned.is_empty() {
        terminal::warn(&sentence(&warned));
    }
    for pod in &leaving {
        let shown = format!(
            "{}/{}",
            pod["metadata"]["namespace"].as_str().unwrap_or_default(),
            pod["metadata"]["name"].as_str().unwrap_or_default()
        );
        let word = if flags.on("disable-eviction") { "deleting" } else { "evicting" };
        // Whoever deletes instead of evicting hears of it once it is done.
        match (flags.on("disable-eviction"), dry) {
            (true, DryRun::No) => {}
            (false, DryRun::No) => terminal::outln(&format!("{word} pod {shown}")),
            _ => terminal::outln(&format!("{word} pod {shown}{}", dry_text(dry))),
        }
        if dry == DryRun::No {
            evict(session, pod).await?;
        }
    }
    if dry != DryRun::No {
        return Ok(());
    }
    for pod in &leaving {
        let info = crate::resource::select::info_of(&pods, pod.clone());
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_string();
        super::wait::one(session, &info, &super::wait::Until::Deleted { uid }, None).await?;
        let word = if flags.on("disable-eviction") { "deleted" } else { "evicted" };
        terminal::outln(&format!("pod/{} {word}", info.name));
    }
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

/// `key=value:effect`, `key:effect`; `key-`, `key:effect-` and `key=value:effect-` take away.
fn parse_taints(texts: &[String]) -> Result<(Vec<Value>, Vec<Value>)> {
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for text in texts {
        let (body, remove) = text.strip_suffix('-').map_or((text.as_str(), false), |body| (body, true));
        let (pair, effect) = body.split_once(':').map_or((body, ""), |(pair, effect)| (pair, effect));
        // Without an effect all of it is a key.
        let (key, value) = pair.split_once('=').filter(|_| body.contains(':')).unwrap_or((pair, ""));
        if body.matches(':').count() > 1 || pair.matches('=').count() > 1 {
            return Err(Failure::Usage(format!("invalid taint spec: {text}")));
        }
        let problems = machinery::names::qualified_name(key);
        if !problems.is_empty() {
            return Err(Failure::Usage(format!("invalid taint spec: {text}, {}", problems.join("; "))));
        }
        let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if (!effect.is_empty() || !remove) && !known.contains(&effect) {
            return Err(Failure::Usage(match effect {
                "" => format!("invalid taint spec: {text}"),
                effect => format!("invalid taint effect: {effect}, unsupported taint effect"),
            }));
        }
        let mut taint = json!({"key": key});
        if !effect.is_empty() {
            taint["effect"] = effect.into();
        }
        if remove {
            removed.push(taint);
        } else {
            if !value.is_empty() {
                taint["value"] = value.into();
            }
            added.push(taint);
        }
    }
    Ok((added, removed))
}

async fn taint(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let change = Change::from(session)?;
    let is_taint = |text: &String| text.contains(':') || text.contains('=') || text.ends_with('-');
    let first = session.arguments().iter().position(is_taint).unwrap_or(session.arguments().len());
    let (resources, taints) = session.arguments().split_at(first);
    if resources.is_empty() {
        return Err(Failure::message("one or more resources must be specified as <resource> <name>"));
    }
    if taints.is_empty() {
        return Err(Failure::message("at least one taint update is required"));
    }
    let (added, removed) = parse_taints(taints)?;
    let both = added.iter().find(|taint| {
        removed
            .iter()
            .any(|gone| gone["key"] == taint["key"] && (gone["effect"].is_null() || gone["effect"] == taint["effect"]))
    });
    if let Some(taint) = both {
        return Err(Failure::message(format!(
            "can not both modify and remove the following taint(s) in the same command: {}={}",
            taint["key"].as_str().unwrap_or_default(),
            taint["effect"].as_str().unwrap_or_default()
        )));
    }
    if let Some(kind) = resources.first().filter(|kind| !kind.contains('/')) {
        let mapping = session.mapping(kind).await?;
        if !mapping.is("", "nodes") {
            return Err(Failure::message(format!(
                "invalid resource type {}, only node types are supported",
                mapping.plural
            )));
        }
    }
    let query = Query {
        arguments: resources.to_vec(),
        selector: flags.text("selector").into(),
        chunk: 500,
        ..Query::default()
    };
    let (infos, mut failures) = session.infos(&query).await?;
    for node in infos {
        if !node.mapping.is("", "nodes") {
            return session.usage(format!("invalid resource type {}, only node(s) is supported", node.mapping.plural));
        }
        if let Err(failure) = taint_one(&change, &node, &added, &removed).await {
            failures.push(failure);
        }
    }
    failure::all(failures)
}

async fn taint_one(change: &Change<'_>, node: &Info, added: &[Value], removed: &[Value]) -> Result<()> {
    let mut taints = node.object["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let same = |one: &Value, other: &Value| {
        one["key"] == other["key"] && (one["effect"].is_null() || one["effect"] == other["effect"])
    };
    let mut overwritten = false;
    for taint in added {
        if let Some(old) = taints.iter_mut().find(|old| same(taint, old)) {
            if !change.session.flags.on("overwrite") {
                return Err(Failure::message(format!(
                    "node {} already has {} taint(s) with same effect(s) and --overwrite is false",
                    node.name,
                    taint["key"].as_str().unwrap_or_default()
                )));
            }
            overwritten |= *old != *taint;
            *old = taint.clone();
        } else {
            taints.insert(0, taint.clone());
        }
    }
    for taint in removed {
        let before = taints.len();
        taints.retain(|old| !same(taint, old));
        if taints.len() == before {
            let mut shown = taint["key"].as_str().unwrap_or_default().to_string();
            if let Some(effect) = taint["effect"].as_str() {
                shown += &format!(":{effect}");
            }
            return Err(Failure::message(format!("taint {shown:?} not found")));
        }
    }
    let outcome = match (added.is_empty(), removed.is_empty(), overwritten) {
        (false, true, true) => "modified",
        (false, true, false) => "tainted",
        (true, false, _) => "untainted",
        _ => "modified",
    };
    let object = if change.local() {
        let mut object = node.object.clone();
        object["spec"]["taints"] = if taints.is_empty() { Value::Null } else { taints.into() };
        object
    } else {
        let patch = json!({"metadata": {"resourceVersion": node.object["metadata"]["resourceVersion"]}, "spec": {"taints": if taints.is_empty() { Value::Null } else { taints.into() }}});
        change.send(Call::patch(node.path(), MERGE, &patch), "kubectl-taint").await?
    };
    // Upstream does not say of a taint that the server only tried it.
    let told =
        Change { dry: DryRun::No, format: crate::output::Format::from(&change.session.flags, false)?, ..*change };
    let change = if change.dry == DryRun::Server { &told } else { change };
    change.report(&node.shown(), &object, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_evicted_left_or_in_the_way() {
        let pod = |owner: &str, phase: &str, volume: bool| {
            let mut pod = json!({"metadata": {}, "status": {"phase": phase}, "spec": {}});
            if !owner.is_empty() {
                pod["metadata"]["ownerReferences"] = json!([{"kind": owner, "controller": true}]);
            }
            if volume {
                pod["spec"]["volumes"] = json!([{"emptyDir": {}}]);
            }
            pod
        };
        assert_eq!(verdict(&pod("ReplicaSet", "Running", false), false, false, false, false), Verdict::Evict);
        assert_eq!(verdict(&pod("", "Running", false), false, true, false, false), Verdict::Refuse(UNMANAGED));
        assert!(matches!(verdict(&pod("", "Running", false), true, true, false, false), Verdict::Warn(_)));
        assert_eq!(verdict(&pod("DaemonSet", "Running", false), false, false, false, false), Verdict::Refuse(DAEMON));
        assert!(matches!(
            verdict(&pod("DaemonSet", "Running", false), false, true, false, false),
            Verdict::LeaveAndWarn(_)
        ));
        assert_eq!(verdict(&pod("ReplicaSet", "Running", true), true, true, false, false), Verdict::Refuse(LOCAL));
        assert!(matches!(verdict(&pod("ReplicaSet", "Running", true), true, true, true, false), Verdict::Warn(_)));
        assert_eq!(verdict(&pod("", "Failed", false), false, false, false, false), Verdict::Evict);
    }

    #[test]
    fn taints_are_parsed() {
        let parse = |text: &str| parse_taints(&[text.to_string()]).map_err(|failure| failure.text());
        assert_eq!(parse("a=b:NoSchedule").unwrap().0, [json!({"key": "a", "value": "b", "effect": "NoSchedule"})]);
        assert_eq!(parse("a:NoExecute").unwrap().0, [json!({"key": "a", "effect": "NoExecute"})]);
        assert_eq!(parse("a-").unwrap().1, [json!({"key": "a"})]);
        assert_eq!(parse("a:NoExecute-").unwrap().1, [json!({"key": "a", "effect": "NoExecute"})]);
        assert_eq!(parse("a=b:Never").unwrap_err(), "invalid taint effect: Never, unsupported taint effect");
        assert!(parse("a=b").is_err());
    }
}
