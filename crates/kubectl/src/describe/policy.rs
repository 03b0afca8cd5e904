//! Namespaces, quotas, limits, roles, bindings, network policies, priorities, disruption budgets.

use machinery::quantity::Quantity;
use serde_json::Value;

use super::{Context, head, items, map, number, or, plain, tags, text};
use crate::failure::Result;
use crate::resource::select::Query;

pub(crate) async fn namespace(cx: &Context<'_>, object: &Value) -> Result<String> {
    let name = text(object, "/metadata/name");
    let mut out = format!("Name:\t{name}\n") + &tags(object);
    out += &format!("Status:\t{}\n", text(object, "/status/phase"));
    if !items(object, "/status/conditions").is_empty() {
        out += &super::timed_conditions(object);
    }
    let query = Query { chunk: 500, ..Query::default() };
    let quotas = cx.session.list(&cx.session.mapping("resourcequotas").await?, name, &query).await.unwrap_or_default();
    if quotas.is_empty() {
        out += "\nNo resource quota.\n";
    } else {
        out += "\nResource Quotas\n";
        for quota in &quotas {
            out += &format!("  Name:\t{}\n", text(quota, "/metadata/name"));
            out += &scopes(quota, "  ");
            out += "  Resource\tUsed\tHard\n  --------\t---\t---\n";
            for (resource, hard) in map(quota, "/status/hard") {
                out += &format!("  {resource}\t{}\t{}\n", plain(&quota["status"]["used"][&resource]), plain(&hard));
            }
        }
    }
    let ranges = cx.session.list(&cx.session.mapping("limitranges").await?, name, &query).await.unwrap_or_default();
    if ranges.is_empty() {
        out += "\nNo LimitRange resource.\n";
    } else {
        out += "\nResource Limits\n";
        out += " Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio\n";
        out += " ----\t--------\t---\t---\t---------------\t-------------\t-----------------------\n";
        ranges.iter().for_each(|range| out += &limits(range, " "));
    }
    Ok(out)
}

fn limits(range: &Value, indent: &str) -> String {
    let mut out = String::new();
    for limit in items(range, "/spec/limits") {
        let mut resources: Vec<String> = Vec::new();
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            for (resource, _) in map(limit, &format!("/{list}")) {
                if !resources.contains(&resource) {
                    resources.push(resource);
                }
            }
        }
        resources.sort();
        for resource in resources {
            let cell = |list: &str| or(&plain(&limit[list][&resource]), "-").to_string();
            out += &format!(
                "{indent}{}\t{resource}\t{}\t{}\t{}\t{}\t{}\n",
                text(limit, "/type"),
                cell("min"),
                cell("max"),
                cell("defaultRequest"),
                cell("default"),
                cell("maxLimitRequestRatio")
            );
        }
    }
    out
}

pub(super) fn limit_range(object: &Value) -> String {
    let mut out = head(object);
    out += "Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio\n";
    out += "----\t--------\t---\t---\t---------------\t-------------\t-----------------------\n";
    out + &limits(object, "")
}

/// What a quota counts, with what that means.
fn scopes(quota: &Value, indent: &str) -> String {
    let mut scopes: Vec<String> = items(quota, "/spec/scopes").iter().map(plain).collect();
    scopes.sort();
    if scopes.is_empty() {
        return String::new();
    }
    let mut out = format!("{indent}Scopes:\t{}\n", scopes.join(", "));
    for scope in &scopes {
        let meaning = match scope.as_str() {
            "Terminating" => {
                "Matches all pods that have an active deadline. These pods have a limited lifespan on a node before being actively terminated by the system."
            }
            "NotTerminating" => {
                "Matches all pods that do not have an active deadline. These pods usually include long running pods whose container command is not expected to terminate."
            }
            "BestEffort" => {
                "Matches all pods that do not have resource requirements set. These pods have a best effort quality of service."
            }
            "NotBestEffort" => {
                "Matches all pods that have at least one resource requirement set. These pods have a burstable or guaranteed quality of service."
            }
            _ => continue,
        };
        out += &format!("{} * {meaning}\n", indent.strip_prefix(' ').unwrap_or(indent));
    }
    out
}

pub(crate) fn quota(object: &Value) -> String {
    let mut out = head(object) + &scopes(object, "");
    out += "Resource\tUsed\tHard\n--------\t----\t----\n";
    for (resource, hard) in map(object, "/status/hard") {
        out += &format!("{resource}\t{}\t{}\n", used(&object["status"]["used"][&resource], &hard), plain(&hard));
    }
    out
}

/// In the units of the limit, so that both can be compared.
fn used(used: &Value, hard: &Value) -> String {
    match (Quantity::from_value(used), Quantity::from_value(hard)) {
        (Ok(used), Ok(hard)) if used.format != hard.format => Quantity::from_int(used.value(), hard.format).canonical(),
        _ => plain(used),
    }
}

pub(crate) fn role(object: &Value) -> String {
    let mut out = format!("Name:\t{}\n", text(object, "/metadata/name")) + &tags(object);
    out += "PolicyRule:\n  Resources\tNon-Resource URLs\tResource Names\tVerbs\n  ---------\t-----------------\t--------------\t-----\n";
    // One line for each resource, those with the same verbs and names together.
    let mut rows: Vec<crate::commands::auth::RuleRow> = Vec::new();
    for rule in items(object, "/rules") {
        let verbs: Vec<String> = items(rule, "/verbs").iter().map(plain).collect();
        for group in items(rule, "/apiGroups") {
            for resource in items(rule, "/resources") {
                let shown = (plain(group), plain(resource));
                // A line for each name, where there are names.
                let names: Vec<String> =
                    items(rule, "/resourceNames").iter().map(|name| format!("[{}]", plain(name))).collect();
                let names = if names.is_empty() { vec!["[]".to_string()] } else { names };
                for names in names {
                    match rows.iter_mut().find(|row| row.0 == shown && row.2 == names) {
                        Some(row) => {
                            row.3.extend(verbs.iter().filter(|verb| !row.3.contains(verb)).cloned().collect::<Vec<_>>())
                        }
                        None => rows.push((shown.clone(), "[]".into(), names, verbs.clone())),
                    }
                }
            }
        }
        for url in items(rule, "/nonResourceURLs") {
            rows.push((Default::default(), format!("[{}]", plain(url)), "[]".into(), verbs.clone()));
        }
    }
    rows.sort_by_key(crate::commands::auth::rule_order);
    for ((group, resource), urls, names, verbs) in rows {
        // A subresource stands behind the group.
        let resource = match (group.is_empty(), resource.split_once('/')) {
            (true, _) => resource,
            (false, Some((resource, inner))) => format!("{resource}.{group}/{inner}"),
            (false, None) => format!("{resource}.{group}"),
        };
        out += &format!("  {resource}\t{urls}\t{names}\t[{}]\n", verbs.join(" "));
    }
    out
}

pub(crate) fn binding(object: &Value) -> String {
    let mut out = format!("Name:\t{}\n", text(object, "/metadata/name")) + &tags(object);
    out += &format!("Role:\n  Kind:\t{}\n  Name:\t{}\n", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    out += "Subjects:\n  Kind\tName\tNamespace\n  ----\t----\t---------\n";
    for subject in items(object, "/subjects") {
        out += &format!("  {}\t{}\t{}\n", text(subject, "/kind"), text(subject, "/name"), text(subject, "/namespace"));
    }
    out
}

pub(crate) fn priority_class(object: &Value) -> String {
    let mut out = format!("Name:\t{}\n", text(object, "/metadata/name"));
    out += &format!("Value:\t{}\n", number(object, "/value"));
    out += &format!("GlobalDefault:\t{}\n", object["globalDefault"] == true);
    out += &format!("PreemptionPolicy:\t{}\n", text(object, "/preemptionPolicy"));
    out += &format!("Description:\t{}\n", text(object, "/description"));
    out + &format!("Annotations:\t{}\n", super::in_line(&map(object, "/metadata/annotations")))
}

pub(crate) fn disruption_budget(object: &Value) -> String {
    let mut out = head(object);
    let limits = [("Min available", "minAvailable"), ("Max unavailable", "maxUnavailable")];
    if let Some((title, key)) = limits.iter().find(|(_, key)| !object["spec"][key].is_null()) {
        out += &format!("{title}:\t{}\n", plain(&object["spec"][key]));
    }
    let selector = if object["spec"]["selector"].is_object() {
        super::selector(&object["spec"]["selector"])
    } else {
        "<unset>".into()
    };
    out += &format!("Selector:\t{selector}\n");
    out += "Status:\n";
    for (title, key) in [
        ("Allowed disruptions", "/status/disruptionsAllowed"),
        ("Current", "/status/currentHealthy"),
        ("Desired", "/status/desiredHealthy"),
        ("Total", "/status/expectedPods"),
    ] {
        out += &format!("    {title}:\t{}\n", number(object, key));
    }
    out
}

fn policy_port(port: &Value) -> String {
    // Go's word for a port that is not named.
    let first = if port["port"].is_null() { "<nil>".to_string() } else { plain(&port["port"]) };
    let protocol = or(text(port, "/protocol"), "TCP");
    match port["endPort"].as_i64() {
        Some(last) => format!("    To Port Range: {first}-{last}/{protocol}\n"),
        None => format!("    To Port: {first}/{protocol}\n"),
    }
}

pub(super) fn network_policy(object: &Value) -> String {
    let mut out = head(object);
    out += &format!(
        "Created on:\t{}\n",
        text(object, "/metadata/creationTimestamp").replace('T', " ").replace('Z', " +0000 UTC")
    );
    out += &tags(object);
    out += "Spec:\n";
    let selector = super::selector(&object["spec"]["podSelector"]);
    let all = if selector == "<none>" { " (Allowing the specific traffic to all pods in this namespace)" } else { "" };
    out += &format!("  PodSelector:     {selector}{all}\n");
    let types: Vec<String> = items(object, "/spec/policyTypes").iter().map(plain).collect();
    for direction in DIRECTIONS {
        out += &direction.text(object, &types);
    }
    out + &format!("  Policy Types: {}\n", types.join(", "))
}

/// Where the rules of one direction stand, and the words for it.
struct Direction {
    kind: &'static str,
    traffic: &'static str,
    rules: &'static str,
    peers: &'static str,
    word: &'static str,
    other_end: &'static str,
}

const DIRECTIONS: &[Direction] = &[
    Direction {
        kind: "Ingress",
        traffic: "ingress",
        rules: "/spec/ingress",
        peers: "/from",
        word: "From",
        other_end: "source",
    },
    Direction {
        kind: "Egress",
        traffic: "egress",
        rules: "/spec/egress",
        peers: "/to",
        word: "To",
        other_end: "destination",
    },
];

impl Direction {
    fn text(&self, object: &Value, types: &[String]) -> String {
        let traffic = self.traffic;
        if !types.iter().any(|known| known == self.kind) {
            return format!("  Not affecting {traffic} traffic\n");
        }
        let rules: Vec<String> = items(object, self.rules).iter().map(|rule| self.rule(rule)).collect();
        let none = format!("    <none> (Selected pods are isolated for {traffic} connectivity)\n");
        let shown = if rules.is_empty() { none } else { rules.join("    ----------\n") };
        format!("  Allowing {traffic} traffic:\n{shown}")
    }

    fn rule(&self, rule: &Value) -> String {
        let (word, ports, peers) = (self.word, items(rule, "/ports"), items(rule, self.peers));
        let mut out: String = ports.iter().map(policy_port).collect();
        if ports.is_empty() {
            out += "    To Port: <any> (traffic allowed to all ports)\n";
        }
        if peers.is_empty() {
            out += &format!("    {word}: <any> (traffic not restricted by {})\n", self.other_end);
        }
        peers.iter().for_each(|peer| out += &format!("    {word}:\n{}", policy_peer(peer)));
        out
    }
}

fn policy_peer(peer: &Value) -> String {
    let mut out = String::new();
    for (title, key) in [("NamespaceSelector", "namespaceSelector"), ("PodSelector", "podSelector")] {
        if peer[key].is_object() {
            out += &format!("      {title}: {}\n", super::selector(&peer[key]));
        }
    }
    if peer["ipBlock"].is_object() {
        let except: Vec<String> = items(peer, "/ipBlock/except").iter().map(plain).collect();
        out += &format!(
            "      IPBlock:\n        CIDR: {}\n        Except: {}\n",
            text(peer, "/ipBlock/cidr"),
            except.join(", ")
        );
    }
    out
}
