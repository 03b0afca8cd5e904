//! Ingresses from rules such as `example.org/shop*=web:80,tls=cert`.

use serde_json::{Value, json};

use super::{DRY_RUN, GENERATED, VALIDATE, generated, name};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::session::Session;

pub(crate) static COMMAND: Command = Command {
    name: "ingress",
    aliases: &["ing"],
    short: "Create an ingress with the specified name.",
    usage: "NAME --rule=host/path=service:port[,tls[=secret]] [options]",
    flags: &[FLAGS, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::text("class", "", "The ingress class."),
    Flag::array("rule", "host/path=service:port[,tls[=secret]]."),
    Flag::text("default-backend", "", "service:port for everything else."),
    Flag::array("annotation", "key=value."),
];

async fn run(session: &Session) -> Result<()> {
    let name = name(session)?;
    let flags = &session.flags;
    let rules = flags.list("rule");
    if rules.is_empty() && flags.text("default-backend").is_empty() {
        return Err(Failure::message(
            "not enough information provided: every ingress has to either specify a default-backend (which catches all traffic) or a list of rules (which catch specific paths)",
        ));
    }
    let mut metadata = super::metadata(&name);
    for annotation in flags.list("annotation") {
        let Some((key, value)) = annotation.split_once('=') else {
            let text = format!("annotation {annotation} is invalid and should be in format key=[value]");
            return Err(Failure::message(text));
        };
        metadata["annotations"][key] = value.into();
    }
    let backend = flags.text("default-backend");
    if !backend.is_empty() && backend.split(':').count() != 2 {
        return Err(Failure::message("default-backend should be in format servicename:serviceport"));
    }
    let spec = spec(&rules, flags.text("class"), backend)?;
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec});
    generated(session, object, "failed to create ingress: ").await
}

fn spec(rules: &[String], class: &str, backend: &str) -> Result<Value> {
    let mut spec = json!({});
    if !class.is_empty() {
        spec["ingressClassName"] = class.into();
    }
    if !backend.is_empty() {
        spec["defaultBackend"] = backend_of(backend)?;
    }
    // Hosts in the order they come, each with its paths; secrets with their hosts.
    let mut hosts: Vec<(String, Vec<Value>)> = Vec::new();
    let mut secrets: Vec<(String, Vec<String>)> = Vec::new();
    for text in rules {
        let Rule { host, path, secret } = rule(text)?;
        match hosts.iter_mut().find(|(known, _)| known == host) {
            Some((_, paths)) => paths.push(path),
            None => hosts.push((host.to_string(), vec![path])),
        }
        let Some(secret) = secret else { continue };
        match secrets.iter_mut().find(|(known, _)| known == secret) {
            Some((_, names)) if names.iter().any(|known| known == host) => {}
            Some((_, names)) => names.push(host.to_string()),
            None => secrets.push((secret.to_string(), vec![host.to_string()])),
        }
    }
    if !hosts.is_empty() {
        spec["rules"] = hosts.into_iter().map(host_rule).collect();
    }
    if !secrets.is_empty() {
        spec["tls"] = secrets.into_iter().map(tls_entry).collect();
    }
    Ok(spec)
}

/// One rule of the command line.
struct Rule<'a> {
    host: &'a str,
    path: Value,
    /// The secret that terminates TLS; an empty one stands for the controller's own.
    secret: Option<&'a str>,
}

fn rule(text: &str) -> Result<Rule<'_>> {
    let (main, tls) = text.split_once(',').map_or((text, None), |(main, tls)| (main, Some(tls)));
    let parts = main.split_once('=').filter(|(address, service)| address.contains('/') && service.contains(':'));
    let Some((address, service)) = parts else {
        return Err(Failure::message(format!(
            "rule {text} is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]"
        )));
    };
    let (host, path) = address.split_once('/').unwrap_or((address, ""));
    let (path, kind) = path.strip_suffix('*').map_or((path, "Exact"), |prefix| (prefix, "Prefix"));
    let path = json!({"path": format!("/{path}"), "pathType": kind, "backend": backend_of(service)?});
    let secret = tls.map(|tls| tls.strip_prefix("tls").unwrap_or_default().trim_start_matches('='));
    Ok(Rule { host, path, secret })
}

fn host_rule((host, paths): (String, Vec<Value>)) -> Value {
    let mut rule = json!({"http": {"paths": paths}});
    if !host.is_empty() {
        rule["host"] = host.into();
    }
    rule
}

fn tls_entry((secret, hosts): (String, Vec<String>)) -> Value {
    let mut entry = json!({});
    let hosts: Vec<String> = hosts.into_iter().filter(|host| !host.is_empty()).collect();
    if !hosts.is_empty() {
        entry["hosts"] = hosts.into();
    }
    if !secret.is_empty() {
        entry["secretName"] = secret.into();
    }
    entry
}

fn backend_of(text: &str) -> Result<Value> {
    let Some((service, port)) = text.split_once(':').filter(|(service, port)| !service.is_empty() && !port.is_empty())
    else {
        return Err(Failure::message(format!(
            "backend {text} is invalid and should be in format servicename:serviceport"
        )));
    };
    let port = match port.parse::<i64>() {
        Ok(number) => json!({"number": number}),
        Err(_) => json!({"name": port}),
    };
    Ok(json!({"service": {"name": service, "port": port}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_become_hosts_and_paths() {
        let rules = ["a.org/x*=web:80,tls=cert".to_string(), "a.org/y=web:http".into(), "/*=all:1,tls".into()];
        let spec = spec(&rules, "main", "other:9").unwrap_or_default();
        assert_eq!(spec["rules"][0]["http"]["paths"][0]["pathType"], "Prefix");
        assert_eq!(spec["rules"][0]["http"]["paths"][1]["backend"]["service"]["port"]["name"], "http");
        assert_eq!(spec["rules"][1]["host"], Value::Null);
        assert_eq!(spec["tls"], json!([{"hosts": ["a.org"], "secretName": "cert"}, {}]));
        let refused = |rule: &str, backend: &str| super::spec(&[rule.to_string()], "", backend).unwrap_err().text();
        assert!(refused("nothing", "").starts_with("rule nothing is invalid and should be in format host/path="));
        assert!(refused("a/b=c:", "").starts_with("backend c: is invalid"));
        assert!(refused("a/b=c:1", "web").starts_with("backend web is invalid"));
        assert_eq!(spec["defaultBackend"]["service"], json!({"name": "other", "port": {"number": 9}}));
    }
}
