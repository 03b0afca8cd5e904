//! `kubectl taint`.

use serde_json::{Value, json};

use super::change::{Change, DRY_RUN, DryRun, MERGE};
use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::resource::Info;
use crate::resource::select::{Query, SELECTOR};
use crate::session::{Call, Session};

pub(super) static COMMAND: Command = Command {
    name: "taint",
    group: super::CLUSTER,
    short: "Update the taints on one or more nodes.",
    examples: "kubectl taint nodes node-1 dedicated=db:NoSchedule\nkubectl taint nodes node-1 dedicated-",
    usage: "NODE NAME KEY_1=VAL_1:TAINT_EFFECT_1 ... KEY_N=VAL_N:TAINT_EFFECT_N [options]",
    flags: &[FLAGS, DRY_RUN, SELECTOR, super::change::VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("all", "All nodes."),
    Flag::text("field-manager", "kubectl-taint", "Who owns the fields that are set."),
    Flag::switch("overwrite", "Replace taints that are there."),
];

async fn run(session: &Session) -> Result<()> {
    let change = Change::from(session)?;
    let (resources, taints) = check(session.arguments())?;
    if let Some(kind) = resources.first().filter(|kind| !kind.contains('/')) {
        let mapping = session.mapping(kind).await?;
        if !mapping.is("", "nodes") {
            return Err(Failure::message(format!(
                "invalid resource type {}, only node types are supported",
                mapping.plural
            )));
        }
    }
    let (all, selector) = (session.flags.on("all"), session.flags.text("selector"));
    check_chosen(resources, all, selector)?;
    let query = Query {
        arguments: if all { resources[..1].to_vec() } else { resources.to_vec() },
        selector: selector.into(),
        chunk: 500,
        ..Query::default()
    };
    let (infos, mut failures) = session.infos(&query).await?;
    for node in infos {
        if !node.mapping.is("", "nodes") {
            return session.usage(format!("invalid resource type {}, only node(s) is supported", node.mapping.plural));
        }
        if let Err(failure) = taint(&change, &node, &taints).await {
            failures.push(failure);
        }
    }
    failure::all(failures)
}

/// Nodes are named, selected, or all of them are meant expressly.
fn check_chosen(resources: &[String], all: bool, selector: &str) -> Result<()> {
    if all && !selector.is_empty() {
        return Err(Failure::message("setting 'all' parameter with a non empty selector is prohibited"));
    }
    let named = resources.len() > 1 || resources.first().is_some_and(|first| first.contains('/'));
    if !all && selector.is_empty() && !named {
        return Err(Failure::message("at least one resource name must be specified since 'all' parameter is not set"));
    }
    Ok(())
}

/// What to add and what to take away.
#[derive(Debug, Default, PartialEq)]
struct Taints {
    added: Vec<Value>,
    removed: Vec<Value>,
}

/// The words before the first taint, and the taints.
fn check(arguments: &[String]) -> Result<(&[String], Taints)> {
    let is_taint = |text: &String| text.contains(':') || text.contains('=') || text.ends_with('-');
    let first = arguments.iter().position(is_taint).unwrap_or(arguments.len());
    let (resources, taints) = arguments.split_at(first);
    if let Some(stray) = taints.iter().find(|text| !is_taint(text)) {
        return Err(Failure::message(format!("all resources must be specified before taint changes: {stray}")));
    }
    if resources.is_empty() {
        return Err(Failure::message("one or more resources must be specified as <resource> <name>"));
    }
    if taints.is_empty() {
        return Err(Failure::message("at least one taint update is required"));
    }
    let taints = parse(taints)?;
    let gone = |taint: &&Value| taints.removed.iter().any(|gone| same(gone, taint));
    if let Some(taint) = taints.added.iter().find(gone) {
        return Err(Failure::message(format!(
            "can not both modify and remove the following taint(s) in the same command: {}={}",
            taint["key"].as_str().unwrap_or_default(),
            taint["effect"].as_str().unwrap_or_default()
        )));
    }
    Ok((resources, taints))
}

/// A taint without an effect stands for all of its key.
fn same(one: &Value, other: &Value) -> bool {
    one["key"] == other["key"] && (one["effect"].is_null() || one["effect"] == other["effect"])
}

/// `key=value:effect`, `key:effect`; `key-`, `key:effect-` and `key=value:effect-` take away.
fn parse(texts: &[String]) -> Result<Taints> {
    let mut taints = Taints::default();
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
        let problems = machinery::names::label_value(value);
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
            taints.removed.push(taint);
        } else {
            if taints.added.iter().any(|other| other["key"] == taint["key"] && other["effect"] == taint["effect"]) {
                let shown = format!("{{{key} {value} {effect} <nil>}}");
                return Err(Failure::Usage(format!("duplicated taints with the same key and effect: {shown}")));
            }
            if !value.is_empty() {
                taint["value"] = value.into();
            }
            taints.added.push(taint);
        }
    }
    Ok(taints)
}

/// The taints of a node afterwards, and the word for what happened to them.
fn updated(node: &Info, taints: &Taints, overwrite: bool) -> Result<(Vec<Value>, &'static str)> {
    let mut after = node.object["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let mut overwritten = false;
    for taint in &taints.added {
        let Some(old) = after.iter_mut().find(|old| same(taint, old)) else {
            after.insert(0, taint.clone());
            continue;
        };
        if !overwrite {
            return Err(Failure::message(format!(
                "node {} already has {} taint(s) with same effect(s) and --overwrite is false",
                node.name,
                taint["key"].as_str().unwrap_or_default()
            )));
        }
        overwritten |= *old != *taint;
        *old = taint.clone();
    }
    for taint in &taints.removed {
        let before = after.len();
        after.retain(|old| !same(taint, old));
        if after.len() == before {
            return Err(Failure::message(format!("taint {:?} not found", shown(taint))));
        }
    }
    let outcome = match (taints.added.is_empty(), taints.removed.is_empty(), overwritten) {
        (false, true, false) => "tainted",
        (true, false, _) => "untainted",
        _ => "modified",
    };
    Ok((after, outcome))
}

fn shown(taint: &Value) -> String {
    let key = taint["key"].as_str().unwrap_or_default();
    taint["effect"].as_str().map_or_else(|| key.to_string(), |effect| format!("{key}:{effect}"))
}

async fn taint(change: &Change<'_>, node: &Info, taints: &Taints) -> Result<()> {
    let flags = &change.session.flags;
    let (after, outcome) = updated(node, taints, flags.on("overwrite"))?;
    let after = if after.is_empty() { Value::Null } else { after.into() };
    let object = if change.local() {
        let mut object = node.object.clone();
        object["spec"]["taints"] = after;
        object
    } else {
        let version = &node.object["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": after}});
        change.send(Call::patch(node.path(), MERGE, &patch), "kubectl-taint").await?
    };
    // Upstream does not say of a taint that the server only tried it.
    let told = Change { dry: DryRun::No, format: output::Format::from(flags, false)?, ..*change };
    let change = if change.dry == DryRun::Server { &told } else { change };
    change.report(&node.shown(), &object, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_are_parsed() {
        let parse = |text: &str| super::parse(&[text.to_string()]).map_err(|failure| failure.text());
        assert_eq!(parse("a=b:NoSchedule").unwrap().added, [json!({"key": "a", "value": "b", "effect": "NoSchedule"})]);
        assert_eq!(parse("a:NoExecute").unwrap().added, [json!({"key": "a", "effect": "NoExecute"})]);
        assert_eq!(parse("a-").unwrap().removed, [json!({"key": "a"})]);
        assert_eq!(parse("a:NoExecute-").unwrap().removed, [json!({"key": "a", "effect": "NoExecute"})]);
        assert_eq!(parse("a=b:Never").unwrap_err(), "invalid taint effect: Never, unsupported taint effect");
        assert!(parse("a=b").is_err());
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn resources_stand_before_taints() {
        let line = words("nodes a dedicated=db:NoSchedule old-");
        let (resources, taints) = check(&line).unwrap();
        assert_eq!(resources, words("nodes a"));
        assert_eq!((taints.added.len(), taints.removed.len()), (1, 1));
        let refused = |line: &str| check(&words(line)).unwrap_err().text();
        assert_eq!(refused("a=b:NoSchedule"), "one or more resources must be specified as <resource> <name>");
        assert_eq!(refused("nodes a"), "at least one taint update is required");
        let both = "can not both modify and remove the following taint(s) in the same command: k=NoExecute";
        assert_eq!(refused("nodes a k=v:NoExecute k-"), both);
    }

    fn node(taints: Value) -> Info {
        Info {
            mapping: Default::default(),
            namespace: String::new(),
            name: "n".into(),
            object: json!({"spec": {"taints": taints}}),
            source: String::new(),
        }
    }

    #[test]
    fn taints_are_added_replaced_and_taken_away() {
        let old = json!({"key": "k", "value": "old", "effect": "NoSchedule"});
        let node = node(json!([old]));
        let after = |line: &str, overwrite: bool| {
            updated(&node, &super::parse(&words(line)).unwrap(), overwrite).map_err(|failure| failure.text())
        };
        let new = json!({"key": "k", "value": "new", "effect": "NoSchedule"});
        assert_eq!(after("k=new:NoSchedule", true), Ok((vec![new], "modified")));
        let refused = "node n already has k taint(s) with same effect(s) and --overwrite is false";
        assert_eq!(after("k=new:NoSchedule", false), Err(refused.into()));
        let other = json!({"key": "k", "effect": "NoExecute"});
        assert_eq!(after("k:NoExecute", false), Ok((vec![other, old], "tainted")));
        assert_eq!(after("k-", false), Ok((vec![], "untainted")));
        assert_eq!(after("k:NoExecute-", false), Err("taint \"k:NoExecute\" not found".into()));
    }
}
