//! `kubectl expose`: a Service in front of pods.

use serde_json::{Map, Value, json};

use super::change::{Change, DRY_RUN};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::resource::Info;
use crate::resource::select::{FILES, Query};
use crate::session::{Call, Session};

pub(super) static COMMAND: Command = Command {
    name: "expose",
    group: super::BEGINNER,
    short: "Take a replication controller, service, deployment or pod and expose it as a new Kubernetes service.",
    examples: "kubectl expose deployment web --port=80 --target-port=8080",
    usage: "(-f FILENAME | TYPE NAME) [--port=port] [--protocol=TCP|UDP|SCTP] [--target-port=number-or-name] [--name=name] [--type=type] [options]",
    flags: &[FLAGS, FILES, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::text("cluster-ip", "", "The address to have, or None for a headless service."),
    Flag::text("external-ip", "", "Another address that nodes take connections for."),
    Flag::text("field-manager", "kubectl-expose", "Who owns the fields that are set."),
    Flag::text("labels", "", "Labels of the service.").short('l'),
    Flag::text("load-balancer-ip", "", "The address the load balancer is to have."),
    Flag::text("name", "", "The name of the service."),
    Flag::text("override-type", "merge", "How --overrides is merged: json, merge or strategic."),
    Flag::text("overrides", "", "JSON to change the service by."),
    Flag::text("port", "", "The port, or several between commas."),
    Flag::text("protocol", "", "The protocol."),
    Flag::switch("save-config", "Keep the object in an annotation, for a later apply."),
    Flag::text("selector", "", "The labels of the pods."),
    Flag::text("session-affinity", "", "None or ClientIP."),
    Flag::text("target-port", "", "The port of the container, by number or name."),
    Flag::text("type", "", "ClusterIP, NodePort, LoadBalancer or ExternalName."),
];

async fn run(session: &Session) -> Result<()> {
    let change = Change::from(session)?;
    let query = Query { chunk: 500, selector: String::new(), ..Query::from(session) };
    if query.arguments.is_empty() && !query.has_files() {
        return Err(Failure::message(super::NO_RESOURCES));
    }
    let (infos, failures) = session.infos(&query).await?;
    crate::failure::all(failures)?;
    for info in infos {
        let service = service(session, &info)?;
        let name = service["metadata"]["name"].as_str().unwrap_or_default().to_string();
        let service = super::run::overridden(session, service, ("", "v1", "Service"))?;
        let mut service = super::change::as_go_writes(service);
        let shown = format!("service/{name}");
        let settings = session.settings()?;
        if change.local() {
            if settings.namespace_given {
                service["metadata"]["namespace"] = settings.namespace.clone().into();
            }
            change.report_typed(&shown, &service, "exposed")?;
            continue;
        }
        if session.flags.on("save-config") {
            service = super::change::with_last_applied_typed(&service);
        }
        let path = format!("/api/v1/namespaces/{}/services", info.namespace);
        let created = change.send(Call::post(path, &service), "kubectl-expose").await?;
        change.report_typed(&shown, &created, "exposed")?;
    }
    Ok(())
}

pub(crate) fn labels(text: &str) -> Result<Map<String, Value>> {
    let mut found = Map::new();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Failure::message(format!("unexpected label spec: {pair}")));
        };
        found.insert(key.into(), value.into());
    }
    Ok(found)
}

fn selector(info: &Info) -> Result<Map<String, Value>> {
    let object = &info.object;
    let found = match info.mapping.plural.as_str() {
        "pods" => object["metadata"]["labels"].as_object().cloned(),
        "services" | "replicationcontrollers" => object["spec"]["selector"].as_object().cloned(),
        "deployments" | "replicasets" => {
            if object["spec"]["selector"]["matchExpressions"].as_array().is_some_and(|list| !list.is_empty()) {
                return Err(Failure::message("couldn't convert expressions - \"matchExpressions\" is not supported"));
            }
            object["spec"]["selector"]["matchLabels"].as_object().cloned()
        }
        _ => return Err(Failure::message(format!("cannot expose a {}", info.mapping.kind))),
    };
    match found.filter(|labels| !labels.is_empty()) {
        Some(labels) => Ok(labels),
        None if info.mapping.plural == "pods" => Err(Failure::message("couldn't retrieve selectors via --selector flag or introspection: the pod has no labels and cannot be exposed".to_string())),
        None => Err(Failure::message("couldn't retrieve selectors via --selector flag or introspection: invalid selector")),
    }
}

/// Ports that the object itself names, with their protocols.
fn known_ports(info: &Info) -> Vec<(String, String)> {
    let object = &info.object;
    if info.mapping.plural == "services" {
        let ports = object["spec"]["ports"].as_array().into_iter().flatten();
        return ports
            .map(|port| (port["port"].to_string(), port["protocol"].as_str().unwrap_or("TCP").into()))
            .collect();
    }
    let spec = if info.mapping.plural == "pods" { &object["spec"] } else { &object["spec"]["template"]["spec"] };
    let containers = spec["containers"].as_array().into_iter().flatten();
    let ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    ports.map(|port| (port["containerPort"].to_string(), port["protocol"].as_str().unwrap_or("TCP").into())).collect()
}

fn service(session: &Session, info: &Info) -> Result<Value> {
    let flags = &session.flags;
    let selector = match flags.text("selector") {
        "" => selector(info)?,
        given => labels(given)?,
    };
    let name = if flags.text("name").is_empty() { info.name.clone() } else { flags.text("name").to_string() };
    let known = known_ports(info);
    let ports: Vec<String> = match flags.text("port") {
        "" if flags.text("cluster-ip") == "None" => known.iter().map(|(port, _)| port.clone()).collect(),
        "" if known.is_empty() => return Err(Failure::message("couldn't find port via --port flag or introspection")),
        "" => known.iter().map(|(port, _)| port.clone()).collect(),
        given => given.split(',').map(str::to_string).collect(),
    };
    let mut specs = Vec::new();
    for (at, port) in ports.iter().enumerate() {
        let number: i64 =
            port.parse().map_err(|_| Failure::message(format!("strconv.Atoi: parsing {port:?}: invalid syntax")))?;
        let own = known.iter().find(|(known, _)| known == port).map(|(_, protocol)| protocol.as_str());
        let protocol = match flags.text("protocol") {
            "" => own.unwrap_or("TCP"),
            given => given,
        };
        let target: Value = match flags.text("target-port") {
            "" => number.into(),
            given => given.parse::<i64>().map(Value::from).unwrap_or_else(|_| given.into()),
        };
        let mut spec = json!({"port": number, "protocol": protocol, "targetPort": target});
        if ports.len() > 1 {
            spec["name"] = format!("port-{}", at + 1).into();
        }
        specs.push(spec);
    }
    let mut metadata = json!({"name": name});
    let own = match flags.text("labels") {
        "" => info.object["metadata"]["labels"].as_object().cloned().unwrap_or_default(),
        given => labels(given)?,
    };
    if !own.is_empty() {
        metadata["labels"] = own.into();
    }
    let mut spec = json!({"selector": selector});
    if !specs.is_empty() {
        spec["ports"] = specs.into();
    }
    for (flag, key) in [
        ("type", "type"),
        ("session-affinity", "sessionAffinity"),
        ("cluster-ip", "clusterIP"),
        ("load-balancer-ip", "loadBalancerIP"),
    ] {
        if !flags.text(flag).is_empty() {
            spec[key] = flags.text(flag).into();
        }
    }
    if !flags.text("external-ip").is_empty() {
        spec["externalIPs"] = json!([flags.text("external-ip")]);
    }
    Ok(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::mapping::Mapping;

    fn info(plural: &str, object: Value) -> Info {
        let mapping = Mapping { plural: plural.into(), ..Default::default() };
        Info { mapping, namespace: String::new(), name: "web".into(), object, source: String::new() }
    }

    #[test]
    fn labels_are_pairs() {
        assert_eq!(Value::from(labels("a=b,c=").unwrap()), json!({"a": "b", "c": ""}));
        assert!(labels("a").is_err());
    }

    #[test]
    fn selectors_come_from_the_object() {
        let found = |plural: &str, object: Value| selector(&info(plural, object)).map(Value::from);
        let labels = json!({"app": "web"});
        assert_eq!(found("pods", json!({"metadata": {"labels": labels}})).unwrap(), labels);
        assert_eq!(found("services", json!({"spec": {"selector": labels}})).unwrap(), labels);
        assert_eq!(found("deployments", json!({"spec": {"selector": {"matchLabels": labels}}})).unwrap(), labels);
        let expressions = json!({"spec": {"selector": {"matchExpressions": [{}]}}});
        assert!(
            found("deployments", expressions).unwrap_err().text().contains("\"matchExpressions\" is not supported")
        );
        assert!(found("pods", json!({})).unwrap_err().text().ends_with("the pod has no labels and cannot be exposed"));
        assert!(found("nodes", json!({})).unwrap_err().text().starts_with("cannot expose a "));
    }

    #[test]
    fn ports_come_from_containers_or_services() {
        let ports = json!([{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}]);
        let spec = json!({"containers": [{"ports": ports}]});
        let expected = vec![("80".to_string(), "TCP".to_string()), ("53".into(), "UDP".into())];
        assert_eq!(known_ports(&info("pods", json!({"spec": spec}))), expected);
        assert_eq!(known_ports(&info("deployments", json!({"spec": {"template": {"spec": spec}}}))), expected);
        let service = json!({"spec": {"ports": [{"port": 80}]}});
        assert_eq!(known_ports(&info("services", service)), expected[..1]);
    }
}
