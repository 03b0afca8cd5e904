//! Services of every type.

use serde_json::{Value, json};

use super::{DRY_RUN, GENERATED, VALIDATE, generated, name, required};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::session::Session;

pub(crate) static COMMAND: Command = Command {
    name: "service",
    aliases: &["svc"],
    short: "Create a service using a specified subcommand.",
    usage: "[flags]",
    subcommands: &[&CLUSTER_IP, &EXTERNAL_NAME, &LOAD_BALANCER, &NODE_PORT],
    ..Command::EMPTY
};

static CLUSTER_IP: Command = Command {
    name: "clusterip",
    short: "Create a ClusterIP service.",
    usage: "NAME [--tcp=<port>:<targetPort>] [options]",
    flags: &[TCP, ADDRESS, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(run(session, "ClusterIP"))),
    ..Command::EMPTY
};
static NODE_PORT: Command = Command {
    name: "nodeport",
    short: "Create a NodePort service.",
    usage: "NAME [--tcp=port:targetPort] [options]",
    flags: &[TCP, PORT, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(run(session, "NodePort"))),
    ..Command::EMPTY
};
static LOAD_BALANCER: Command = Command {
    name: "loadbalancer",
    short: "Create a LoadBalancer service.",
    usage: "NAME [--tcp=port:targetPort] [options]",
    flags: &[TCP, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(run(session, "LoadBalancer"))),
    ..Command::EMPTY
};
static EXTERNAL_NAME: Command = Command {
    name: "externalname",
    short: "Create an ExternalName service.",
    usage: "NAME --external-name external.name [options]",
    flags: &[TCP, EXTERNAL, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(run(session, "ExternalName"))),
    ..Command::EMPTY
};

const TCP: &[Flag] = &[Flag::list("tcp", "Ports, as port or port:targetPort.")];
const ADDRESS: &[Flag] = &[Flag::text("clusterip", "", "The address to have, or None for a headless service.")];
const PORT: &[Flag] = &[Flag::integer("node-port", "0", "The port on every node.")];
const EXTERNAL: &[Flag] = &[Flag::text("external-name", "", "The name to point at.")];

async fn run(session: &Session, kind: &str) -> Result<()> {
    let name = name(session)?;
    let flags = &session.flags;
    if kind == "ExternalName" {
        required(session, &["external-name"])?;
        let external = flags.text("external-name");
        if !machinery::names::dns_subdomain(external).is_empty() {
            return Err(Failure::message(format!("invalid service external name {external}")));
        }
    }
    let ports = flags.list("tcp");
    if ports.is_empty() && kind != "ExternalName" && flags.text("clusterip") != "None" {
        return Err(Failure::message("at least one tcp port specifier must be provided"));
    }
    let mut specs = Vec::new();
    for port in &ports {
        let mut spec = port_spec(port)?;
        if kind == "NodePort" && flags.integer("node-port") > 0 {
            spec["nodePort"] = flags.integer("node-port").into();
        }
        specs.push(spec);
    }
    let labels = json!({"app": name});
    let mut spec = json!({"type": kind, "selector": labels});
    if !specs.is_empty() {
        spec["ports"] = specs.into();
    }
    match kind {
        "ClusterIP" if !flags.text("clusterip").is_empty() => spec["clusterIP"] = flags.text("clusterip").into(),
        "ExternalName" => spec["externalName"] = flags.text("external-name").into(),
        _ => {}
    }
    let object =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels}, "spec": spec});
    generated(session, object, &format!("failed to create {kind} service: ")).await
}

/// `80`, `80:8080`, `80:http`.
fn port_spec(text: &str) -> Result<Value> {
    let mut parts = text.split(':');
    let (port, target) = (parts.next().unwrap_or_default(), parts.next());
    let number = |text: &str| -> Result<i64> {
        let why = match text.parse::<u64>() {
            Ok(port @ 0..=65535) => return Ok(port as i64),
            Ok(_) => "value out of range",
            Err(_) => "invalid syntax",
        };
        Err(Failure::message(format!("strconv.ParseUint: parsing {text:?}: {why}")))
    };
    let port = number(port)?;
    let target: Value = match target.map(|target| (target, target.parse::<i64>())) {
        None => port.into(),
        Some((_, Ok(number @ 1..=65535))) => number.into(),
        Some((_, Ok(_))) => return Err(Failure::message("must be between 1 and 65535, inclusive")),
        Some((name, Err(_))) => {
            let problems = machinery::names::port_name(name);
            if !problems.is_empty() {
                return Err(Failure::message(problems.join(",")));
            }
            name.into()
        }
    };
    Ok(json!({"name": text.replace(':', "-"), "port": port, "protocol": "TCP", "targetPort": target}))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_have_targets() {
        let port = |text: &str| port_spec(text).map_err(|failure| failure.text());
        assert_eq!(port("80"), Ok(json!({"name": "80", "port": 80, "protocol": "TCP", "targetPort": 80})));
        assert_eq!(port("80:8080"), Ok(json!({"name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080})));
        assert_eq!(port("80:http").unwrap()["targetPort"], "http");
        assert_eq!(port("x"), Err("strconv.ParseUint: parsing \"x\": invalid syntax".into()));
        assert_eq!(port("70000"), Err("strconv.ParseUint: parsing \"70000\": value out of range".into()));
    }
}
