//! Whether one pod may talk to another, and by which rule of which NetworkPolicy.

use machinery::status::Status;
use serde_json::{Value, json};

use super::Asker;
use crate::Dashboard;
use crate::insight::{Side, Traffic};
use crate::kinds::Kind;
use crate::serve::Query;
use crate::session::SignedIn;

pub(crate) async fn answer(dashboard: &Dashboard, signed_in: &SignedIn, query: &Query) -> Result<Value, Status> {
    let Some(policy) = &dashboard.config.policy else {
        let message = "this dashboard does not have the rules of a policy compiler";
        return Err(Status::new(501, "NotImplemented", message));
    };
    let asker = Asker::new(dashboard, signed_in, "");
    let (from, to) = (place(query.get("from"))?, place(query.get("to"))?);
    let port: u16 = query.get("port").parse().map_err(|_| Status::bad_request("port is a number from 1 to 65535"))?;
    let protocol = match query.get("protocol") {
        "" => "TCP",
        known @ ("TCP" | "UDP" | "SCTP") => known,
        other => return Err(Status::bad_request(format!("{other:?} is none of TCP, UDP and SCTP"))),
    };
    let pods = Kind::new("", "v1", "pods");
    let policies = Kind::new("networking.k8s.io", "v1", "networkpolicies");
    let mut all = asker.list(&policies, from.0).await?;
    if from.0 != to.0 {
        all.extend(asker.list(&policies, to.0).await?);
    }
    let mut namespaces = Vec::new();
    for name in [from.0, to.0] {
        // Who may not read a namespace knows at least its name, which is a label too.
        let found = asker.get(&Kind::new("", "v1", "namespaces"), "", name).await;
        namespaces.push(
            found.unwrap_or_else(
                |_| json!({"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}),
            ),
        );
    }
    let asked = Traffic {
        from: asker.get(&pods, from.0, from.1).await?,
        to: asker.get(&pods, to.0, to.1).await?,
        port,
        protocol: protocol.into(),
        policies: all,
        namespaces,
    };
    let verdict = policy.verdict(&asked)?;
    let allowed = verdict.egress.is_allowed() && verdict.ingress.is_allowed();
    Ok(json!({
        "allowed": allowed,
        "egress": side(&verdict.egress, query.get("from"), "leave"),
        "ingress": side(&verdict.ingress, query.get("to"), "reach"),
        "unread": asker.unread(),
    }))
}

fn place(text: &str) -> Result<(&str, &str), Status> {
    let parts = text.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    parts.ok_or_else(|| Status::bad_request("name pods as namespace/name"))
}

fn side(side: &Side, pod: &str, does: &str) -> Value {
    let by: Vec<Value> = side.allowed_by.iter().map(|(policy, rule)| json!({"policy": policy, "rule": rule})).collect();
    let sentence = match (side.isolated_by.as_slice(), side.allowed_by.as_slice()) {
        ([], _) => format!("No NetworkPolicy speaks about {pod} here: everything may {does} it"),
        (policies, []) => format!("{} isolate {pod}, and no rule of them lets this {does} it", policies.join(", ")),
        (_, [(policy, rule), ..]) => format!("Rule {rule} of {policy} lets this {does} {pod}"),
    };
    json!({"allowed": side.is_allowed(), "by": by, "isolatedBy": side.isolated_by, "sentence": sentence})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences() {
        let of = |isolated: &[&str], allowed: &[(&str, usize)]| {
            let isolated_by = isolated.iter().map(|name| name.to_string()).collect();
            let allowed_by = allowed.iter().map(|(name, rule)| (name.to_string(), *rule)).collect();
            side(&Side { isolated_by, allowed_by }, "a/p", "reach")
        };
        assert_eq!(of(&[], &[])["allowed"], true);
        assert_eq!(of(&["a/x"], &[])["sentence"], "a/x isolate a/p, and no rule of them lets this reach it");
        assert_eq!(of(&["a/x"], &[("a/x", 2)])["sentence"], "Rule 2 of a/x lets this reach a/p");
        assert!(place("a").is_err() && place("/b").is_err());
    }
}
