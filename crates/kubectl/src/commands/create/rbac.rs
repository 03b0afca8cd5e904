//! Roles and bindings.

use serde_json::{Value, json};

use super::{DRY_RUN, GENERATED, VALIDATE, generated, name};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::session::Session;
use crate::terminal;

pub(super) static ROLE: Command = Command {
    name: "role",
    short: "Create a role with a single rule.",
    usage: "NAME --verb=verb --resource=resource.group/subresource [--resource-name=resourcename] [options]",
    flags: &[RULES, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(role(session, "Role"))),
    ..Command::EMPTY
};
pub(super) static CLUSTER_ROLE: Command = Command {
    name: "clusterrole",
    short: "Create a cluster role.",
    usage: "NAME --verb=verb --resource=resource.group [--resource-name=resourcename] [options]",
    flags: &[RULES, CLUSTER, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(role(session, "ClusterRole"))),
    ..Command::EMPTY
};
pub(super) static ROLE_BINDING: Command = Command {
    name: "rolebinding",
    short: "Create a role binding for a particular role or cluster role.",
    usage: "NAME --clusterrole=NAME|--role=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [options]",
    flags: &[SUBJECTS, ROLE_FLAG, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(binding(session, "RoleBinding"))),
    ..Command::EMPTY
};
pub(super) static CLUSTER_ROLE_BINDING: Command = Command {
    name: "clusterrolebinding",
    short: "Create a cluster role binding for a particular cluster role.",
    usage: "NAME --clusterrole=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [options]",
    flags: &[SUBJECTS, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(binding(session, "ClusterRoleBinding"))),
    ..Command::EMPTY
};

const RULES: &[Flag] = &[
    Flag::list("verb", "What may be done."),
    Flag::list("resource", "With which resources, as resource.group/subresource."),
    Flag::array("resource-name", "With which objects only."),
];
const CLUSTER: &[Flag] = &[
    Flag::list("non-resource-url", "With which paths that are no resources."),
    Flag::plain("aggregation-rule", "Labels of roles to aggregate."),
];
/// `--user` is a global flag too: here it may be repeated, and names whom the role is for.
const SUBJECTS: &[Flag] = &[
    Flag::text("clusterrole", "", "The cluster role that is bound."),
    Flag::array("group", "Groups that get the role."),
    Flag::array("serviceaccount", "Service accounts that get the role, as namespace:name."),
    Flag::array("user", "Users that get the role."),
];
const ROLE_FLAG: &[Flag] = &[Flag::text("role", "", "The role that is bound.")];

const RESOURCE_VERBS: &[&str] = &[
    "*",
    "get",
    "delete",
    "list",
    "create",
    "update",
    "patch",
    "watch",
    "proxy",
    "redirect",
    "deletecollection",
    "use",
    "bind",
    "approve",
    "sign",
    "escalate",
    "impersonate",
];
const URL_VERBS: &[&str] = &["*", "get", "put", "post", "head", "options", "delete", "patch"];

async fn role(session: &Session, kind: &str) -> Result<()> {
    let name = name(session)?;
    let flags = &session.flags;
    let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
    if !flags.text("aggregation-rule").is_empty() {
        if ["non-resource-url", "verb", "resource", "resource-name"].iter().any(|flag| flags.given(flag)) {
            return Err(Failure::message(
                "aggregation rule must be specified without nonResourceURLs, verbs, resources or resourceNames",
            ));
        }
        let pairs = flags.text("aggregation-rule").split(',').filter_map(|pair| pair.split_once('='));
        let labels: serde_json::Map<String, Value> =
            pairs.map(|(key, value)| (key.to_string(), value.into())).collect();
        object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
        object["rules"] = Value::Null;
        return generated(session, object, "").await;
    }
    let mut verbs: Vec<String> = Vec::new();
    for verb in flags.list("verb") {
        if verb == "*" {
            verbs = vec![verb];
            break;
        }
        if !verbs.contains(&verb) {
            verbs.push(verb);
        }
    }
    if verbs.is_empty() {
        return Err(Failure::message("at least one verb must be specified"));
    }
    let urls = flags.list("non-resource-url");
    let resources = flags.list("resource");
    if resources.is_empty() && urls.is_empty() {
        return Err(Failure::message(if kind == "Role" {
            "at least one resource must be specified"
        } else {
            "one of resource or nonResourceURL must be specified"
        }));
    }
    if !resources.is_empty() {
        for verb in verbs.iter().filter(|verb| !RESOURCE_VERBS.contains(&verb.as_str())) {
            terminal::warn(&format!("'{verb}' is not a standard resource verb"));
        }
    }
    if let (false, Some(verb)) = (urls.is_empty(), verbs.iter().find(|verb| !URL_VERBS.contains(&verb.as_str()))) {
        return Err(Failure::message(format!("invalid verb: '{verb}' for nonResourceURL")));
    }
    let mut rules: Vec<Value> = Vec::new();
    // One rule for each group, in the order the groups are named.
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for resource in &resources {
        let (resource, subresource) =
            resource.split_once('/').map_or((resource.as_str(), None), |(resource, sub)| (resource, Some(sub)));
        let (group, plural) = if resource == "*" {
            (String::new(), "*".to_string())
        } else {
            let mapping = session.mapping(resource).await.map_err(|failure| Failure::Plain(failure.text()))?;
            (mapping.group, mapping.plural)
        };
        let plural = subresource.map_or(plural.clone(), |subresource| format!("{plural}/{subresource}"));
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, plurals)) if plurals.contains(&plural) => {}
            Some((_, plurals)) => plurals.push(plural),
            None => groups.push((group, vec![plural])),
        }
    }
    groups.sort_by(|one, other| one.0.cmp(&other.0));
    for (group, plurals) in groups {
        let mut rule = json!({"apiGroups": [group], "resources": plurals, "verbs": verbs});
        if flags.given("resource-name") {
            rule["resourceNames"] = flags.list("resource-name").into();
        }
        rules.push(rule);
    }
    if !urls.is_empty() {
        rules.push(json!({"nonResourceURLs": urls, "verbs": verbs}));
    }
    object["rules"] = rules.into();
    generated(session, object, "").await
}

async fn binding(session: &Session, kind: &str) -> Result<()> {
    let name = name(session)?;
    let flags = &session.flags;
    let (role, cluster_role) = (flags.text("role"), flags.text("clusterrole"));
    if kind == "RoleBinding" && role.is_empty() == cluster_role.is_empty() {
        return Err(Failure::message("exactly one of clusterrole or role must be specified"));
    }
    if kind == "ClusterRoleBinding" && cluster_role.is_empty() {
        return Err(Failure::message("required flag(s) \"clusterrole\" not set"));
    }
    let (role_kind, role) = if role.is_empty() { ("ClusterRole", cluster_role) } else { ("Role", role) };
    let mut subjects: Vec<Value> = Vec::new();
    let group = "rbac.authorization.k8s.io";
    for user in flags.list("user") {
        subjects.push(json!({"kind": "User", "apiGroup": group, "name": user}));
    }
    for name in flags.list("group") {
        subjects.push(json!({"kind": "Group", "apiGroup": group, "name": name}));
    }
    for account in flags.list("serviceaccount") {
        let Some((namespace, name)) =
            account.split_once(':').filter(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains(':'))
        else {
            return Err(Failure::message("serviceaccount must be <namespace>:<name>"));
        };
        subjects.push(json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}));
    }
    let mut object = json!({
        "apiVersion": format!("{group}/v1"),
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": role_kind, "name": role},
    });
    if !subjects.is_empty() {
        object["subjects"] = subjects.into();
    }
    generated(session, object, &format!("failed to create {}: ", kind.to_lowercase())).await
}
