//! Roles and bindings.

use serde_json::{Value, json};

use super::{DRY_RUN, GENERATED, VALIDATE, generated, name};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::{Flag, Parsed};
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
        object["aggregationRule"] = aggregation(flags)?;
        object["rules"] = Value::Null;
        return generated(session, object, "").await;
    }
    let verbs = verbs(&flags.list("verb"));
    let (resources, urls) = (flags.list("resource"), flags.list("non-resource-url"));
    check(kind, &verbs, &resources, &urls)?;
    let mut rules = Vec::new();
    for (group, plurals) in groups(session, &resources).await? {
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

fn aggregation(flags: &Parsed) -> Result<Value> {
    if ["non-resource-url", "verb", "resource", "resource-name"].iter().any(|flag| flags.given(flag)) {
        return Err(Failure::message(
            "aggregation rule must be specified without nonResourceURLs, verbs, resources or resourceNames",
        ));
    }
    let pairs = flags.text("aggregation-rule").split(',').filter_map(|pair| pair.split_once('='));
    let labels: serde_json::Map<String, Value> = pairs.map(|(key, value)| (key.to_string(), value.into())).collect();
    Ok(json!({"clusterRoleSelectors": [{"matchLabels": labels}]}))
}

/// Each verb once; a star stands for all others.
fn verbs(given: &[String]) -> Vec<String> {
    if given.iter().any(|verb| verb == "*") {
        return vec!["*".into()];
    }
    let mut verbs: Vec<String> = Vec::new();
    for verb in given {
        if !verbs.contains(verb) {
            verbs.push(verb.clone());
        }
    }
    verbs
}

fn check(kind: &str, verbs: &[String], resources: &[String], urls: &[String]) -> Result<()> {
    if verbs.is_empty() {
        return Err(Failure::message("at least one verb must be specified"));
    }
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
    match verbs.iter().find(|verb| !URL_VERBS.contains(&verb.as_str())) {
        Some(verb) if !urls.is_empty() => Err(Failure::message(format!("invalid verb: '{verb}' for nonResourceURL"))),
        _ => urls.iter().try_for_each(|url| check_url(url)),
    }
}

/// A path may end with `*`, which stands for all that begin so.
fn check_url(url: &str) -> Result<()> {
    if url == "*" {
        return Ok(());
    }
    if !url.starts_with('/') {
        return Err(Failure::message("nonResourceURL should start with /"));
    }
    if url.strip_suffix('*').unwrap_or(url).contains('*') {
        return Err(Failure::message("nonResourceURL only supports wildcard matches when '*' is at the end"));
    }
    Ok(())
}

/// The resources of each group, sorted by groups: they become one rule each.
async fn groups(session: &Session, resources: &[String]) -> Result<Vec<(String, Vec<String>)>> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for resource in resources {
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
    Ok(groups)
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
    let group = GROUP;
    let subjects = subjects(&flags.list("user"), &flags.list("group"), &flags.list("serviceaccount"))?;
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

const GROUP: &str = "rbac.authorization.k8s.io";

/// Who gets the role: users, groups, and service accounts as `namespace:name`.
fn subjects(users: &[String], groups: &[String], accounts: &[String]) -> Result<Vec<Value>> {
    let mut subjects: Vec<Value> = Vec::new();
    for (kind, names) in [("User", users), ("Group", groups)] {
        subjects.extend(names.iter().map(|name| json!({"kind": kind, "apiGroup": GROUP, "name": name})));
    }
    for account in accounts {
        let Some((namespace, name)) =
            account.split_once(':').filter(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains(':'))
        else {
            return Err(Failure::message("serviceaccount must be <namespace>:<name>"));
        };
        subjects.push(json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}));
    }
    Ok(subjects)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn a_star_is_all_verbs() {
        assert_eq!(verbs(&words("get list get")), words("get list"));
        assert_eq!(verbs(&words("get * list")), words("*"));
    }

    #[test]
    fn roles_need_verbs_and_something_to_do_them_to() {
        let refused = |kind: &str, verbs: &str, resources: &str, urls: &str| {
            check(kind, &words(verbs), &words(resources), &words(urls)).unwrap_err().text()
        };
        assert_eq!(refused("Role", "", "pods", ""), "at least one verb must be specified");
        assert_eq!(refused("Role", "get", "", ""), "at least one resource must be specified");
        let either = "one of resource or nonResourceURL must be specified";
        assert_eq!(refused("ClusterRole", "get", "", ""), either);
        assert_eq!(refused("ClusterRole", "watch", "", "/metrics"), "invalid verb: 'watch' for nonResourceURL");
        assert!(check("ClusterRole", &words("get"), &words("pods"), &words("/metrics")).is_ok());
    }

    #[test]
    fn an_aggregation_rule_stands_alone() {
        let flags = |line: &str| Parsed::parse(CLUSTER_ROLE.flags, &words(line)).unwrap();
        let rule = aggregation(&flags("a --aggregation-rule=x=1,y=2")).unwrap();
        assert_eq!(rule, json!({"clusterRoleSelectors": [{"matchLabels": {"x": "1", "y": "2"}}]}));
        assert!(aggregation(&flags("a --aggregation-rule=x=1 --verb=get")).is_err());
    }

    #[test]
    fn subjects_have_their_kind() {
        let found = subjects(&words("jane"), &words("admins"), &words("team:robot")).unwrap();
        let kinds: Vec<&Value> = found.iter().map(|subject| &subject["kind"]).collect();
        assert_eq!(kinds, ["User", "Group", "ServiceAccount"]);
        assert_eq!((&found[2]["namespace"], &found[2]["name"]), (&json!("team"), &json!("robot")));
        for wrong in ["robot", ":robot", "team:", "a:b:c"] {
            assert!(subjects(&[], &[], &words(wrong)).is_err(), "{wrong}");
        }
    }
}
