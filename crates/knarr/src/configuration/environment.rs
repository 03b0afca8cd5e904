//! Every flag's environment variable, and those that users of k3s have.

use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, Command};

const PREFIX: &str = "KNARR_";

/// Components that run alone. They read no file, but their flags are variables as well.
pub const ALONE: [&str; 9] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "cloud-controller-manager",
    "kubelet",
    "kube-proxy",
    "dns",
    "ingress",
    "hollow-nodes",
];

/// What k3s calls the same thing. Its folder and its file are its own, so these two are not taken.
const OF_K3S: [(&str, &str); 10] = [
    ("server", "K3S_URL"),
    ("token", "K3S_TOKEN"),
    ("token-file", "K3S_TOKEN_FILE"),
    ("agent-token", "K3S_AGENT_TOKEN"),
    ("agent-token-file", "K3S_AGENT_TOKEN_FILE"),
    ("node-name", "K3S_NODE_NAME"),
    ("cluster-init", "K3S_CLUSTER_INIT"),
    ("resolv-conf", "K3S_RESOLV_CONF"),
    ("write-kubeconfig", "K3S_KUBECONFIG_OUTPUT"),
    ("write-kubeconfig-mode", "K3S_KUBECONFIG_MODE"),
];

/// Gives every flag its variable: its own, unless only that of k3s is set.
pub fn attach(command: Command, is_set: impl Fn(&str) -> bool) -> Command {
    command.mut_args(|flag| {
        let Some(own) = own(&flag) else { return flag };
        let chosen = match of_k3s(&flag).filter(|other| !is_set(&own) && is_set(other)) {
            Some(other) => other.to_owned(),
            None => own,
        };
        flag.env(chosen)
    })
}

/// The names of the variables that set a flag, the strongest first.
#[cfg(test)]
pub fn variables(flag: &Arg) -> Vec<String> {
    own(flag).into_iter().chain(of_k3s(flag).map(str::to_owned)).collect()
}

fn own(flag: &Arg) -> Option<String> {
    let long = flag.get_long().filter(|long| !matches!(*long, "help" | "version"))?;
    let written = flag.get_env().and_then(|name| name.to_str()).filter(|name| name.starts_with(PREFIX));
    Some(written.map_or_else(|| format!("{PREFIX}{}", long.to_uppercase().replace('-', "_")), str::to_owned))
}

fn of_k3s(flag: &Arg) -> Option<&'static str> {
    let long = flag.get_long()?;
    OF_K3S.iter().find(|(name, _)| *name == long).map(|(_, variable)| *variable)
}

/// A switch can also be switched off, `--disable-agent=false`, so that a flag can overrule a file.
pub fn switches(command: Command) -> Command {
    command.mut_args(|flag| match flag.get_action() {
        ArgAction::SetTrue => flag
            .action(ArgAction::Set)
            .value_parser(BoolishValueParser::new())
            .value_name("true|false")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .default_value("false")
            .hide_default_value(true)
            .hide_possible_values(true),
        _ => flag,
    })
}
