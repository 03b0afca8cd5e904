//! Every command, in the order of `kubectl help`.

mod get;
mod watch;
mod sort;
mod create;
mod apply;
mod upgrade;
mod last_applied;
mod prune;
mod applyset;
mod delete;
mod wait;
mod describe;
mod logs;
mod exec;
mod stream;
pub(crate) mod pods;
mod rollout;
mod scale;
mod autoscale;
mod label;
mod patch;
mod replace;
mod edit;
mod diff;
mod cordon;
mod drain;
mod taint;
pub(crate) mod auth;
mod reconcile;
pub(crate) mod api_resources;
mod version;
mod explain;
mod explain_v2;
mod config;
mod kuberc;
mod expose;
mod run;
mod set;
mod port_forward;
mod proxy;
mod cp;
mod debug;
mod certificate;
mod cluster_info;
mod kustomize;
mod options;
mod top;
mod completion;
mod help;
pub(crate) mod events;
pub(crate) mod change;
pub(crate) mod plugin;
#[cfg(test)]
mod example;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::command::Command;

const BEGINNER: &str = "Basic Commands (Beginner):";
const INTERMEDIATE: &str = "Basic Commands (Intermediate):";
const DEPLOY: &str = "Deploy Commands:";
const CLUSTER: &str = "Cluster Management Commands:";
const TROUBLE: &str = "Troubleshooting and Debugging Commands:";
const ADVANCED: &str = "Advanced Commands:";
const SETTINGS: &str = "Settings Commands:";
const OTHER: &str = "Other Commands:";
const OTHER_BASIC: &str = TROUBLE;
/// Not shown.
pub(crate) const HIDDEN: &str = "hidden";

pub(crate) static ROOT: Command = Command {
    name: "kubectl",
    short: "kubectl controls the Kubernetes cluster manager.",
    usage: "[flags] [options]",
    subcommands: &[
        &create::COMMAND,
        &expose::COMMAND,
        &run::COMMAND,
        &set::COMMAND,
        &explain::COMMAND,
        &get::COMMAND,
        &edit::COMMAND,
        &delete::COMMAND,
        &rollout::COMMAND,
        &scale::COMMAND,
        &autoscale::COMMAND,
        &certificate::COMMAND,
        &cluster_info::COMMAND,
        &top::COMMAND,
        &cordon::CORDON,
        &cordon::UNCORDON,
        &drain::COMMAND,
        &taint::COMMAND,
        &describe::COMMAND,
        &logs::COMMAND,
        &exec::ATTACH,
        &exec::EXEC,
        &port_forward::COMMAND,
        &proxy::COMMAND,
        &cp::COMMAND,
        &debug::COMMAND,
        &auth::COMMAND,
        &events::COMMAND,
        &diff::COMMAND,
        &apply::COMMAND,
        &patch::COMMAND,
        &replace::COMMAND,
        &wait::COMMAND,
        &kustomize::COMMAND,
        &label::LABEL,
        &label::ANNOTATE,
        &completion::COMMAND,
        &api_resources::RESOURCES,
        &api_resources::VERSIONS,
        &config::COMMAND,
        &kuberc::COMMAND,
        &plugin::COMMAND,
        &version::COMMAND,
        &options::COMMAND,
        &help::COMMAND,
        &help::ALPHA,
    ],
    ..Command::EMPTY
};

const NO_RESOURCES: &str = "You must provide one or more resources by argument or filename.\nExample resource specifications include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'\n   '<resource> <name>'\n   '<resource>'";

/// A selector of labels, as an object, in the form that `-l` takes: requirements in the order of their keys, as upstream shows them.
pub(crate) fn selector_text(selector: &Value) -> String {
    let mut parts: Vec<(&str, String)> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        parts.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let text = match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_string(),
            "DoesNotExist" => format!("!{key}"),
            _ => continue,
        };
        parts.push((key, text));
    }
    parts.sort_by_key(|(key, _)| *key);
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}
