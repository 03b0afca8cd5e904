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
    let spec = spec(&rules, flags.text("class"), flags.text("default-backend"))?;
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec});
    generated(session, object, "failed to create ingress: ").await
}

fn spec(rules: &[String], class: &str, backend: &str) -> Result<Value> {
    let mut spec = json!({});
    if !class.is_empty() {
        spec["ingressClassName"] = class.into();
    }
    if !backend.is_empty() {
        spec["defaultBackend"] = self::backend(backend)?;
    }
    // Hosts in the order they come, each with its paths; secrets with their hosts.
    let mut hosts: Vec<(String, Vec<Value>)> = Vec::new();
    let mut secrets: Vec<(String, Vec<String>)> = Vec::new();
    for rule in rules {
        let (main, tls) = rule.split_once(',').map_or((rule.as_str(), None), |(main, tls)| (main, Some(tls)));
        let (address, service) = main
            .split_once('=')
            .filter(|(address, service)| address.contains('/') && service.contains(':'))
            .ok_or_else(|| {
                Failure::message(format!(
                    "rule {rule} is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]"
                ))
            })?;
        let (host, path) = address.split_once('/').unwrap_or((address, ""));
        let (path, kind) = match path.strip_suffix('*') {
            Some(prefix) => (format!("/{prefix}"), "Prefix"),
            None => (format!("/{path}"), "Exact"),
        };
        let entry = json!({"path": path, "pathType": kind, "backend": backend_of(service)?});
        match hosts.iter_mut().find(|(known, _)| known == host) {
            Some((_, paths)) => paths.push(entry),
            None => hosts.push((host.to_string(), vec![entry])),
        }
        if let Some(tls) = tls {
            let secret =
                tls.strip_prefix("tls").map(|rest| rest.trim_start_matches('=')).unwrap_or_default().to_string();
            match secrets.iter_mut().find(|(known, _)| *known == secret) {
                Some((_, names)) if names.iter().any(|known| known == host) => {}
                Some((_, names)) => names.push(host.to_string()),
                None => secrets.push((secret, vec![host.to_string()])),
            }
        }
    }
    if !hosts.is_empty() {
        let rules: Vec<Value> = hosts
            .into_iter()
            .map(|(host, paths)| {
                let mut rule = json!({"http": {"paths": paths}});
                if !host.is_empty() {
                    rule["host"] = host.into();
                }
                rule
            })
            .collect();
        spec["rules"] = rules.into();
    }
    if !secrets.is_empty() {
        let tls: Vec<Value> = secrets
            .into_iter()
            .map(|(secret, hosts)| {
                let mut entry = json!({});
                let hosts: Vec<String> = hosts.into_iter().filter(|host| !host.is_empty()).collect();
                if !hosts.is_empty() {
                    entry["hosts"] = hosts.into();
                }
                if !secret.is_empty() {
                    entry["secretName"] = secret.into();
                }
                entry
            })
            .collect();
        spec["tls"] = tls.into();
    }
    Ok(spec)
}

fn backend(text: &str) -> Result<Value> {
    backend_of(text)
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
        assert!(super::spec(&["nothing".to_string()], "", "").is_err());
    }
}
