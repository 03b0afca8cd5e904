//! `kubectl auth`: can-i, whoami, reconcile.

use serde_json::{Value, json};

use super::change::DRY_RUN;
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output::columns::Columns;
use crate::output::{self, Format};
use crate::resource::select::FILES;
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "auth",
    group: super::CLUSTER,
    short: "Inspect authorization.",
    usage: "[flags] [options]",
    subcommands: &[&CAN_I, &RECONCILE, &WHOAMI],
    ..Command::EMPTY
};
static CAN_I: Command = Command {
    name: "can-i",
    short: "Check whether an action is allowed.",
    examples: "kubectl auth can-i create pods\nkubectl auth can-i --list",
    usage: "VERB [TYPE | TYPE/NAME | NONRESOURCEURL] [options]",
    flags: &[CAN_I_FLAGS],
    run: Some(|session| Box::pin(can_i(session))),
    ..Command::EMPTY
};
static WHOAMI: Command = Command {
    name: "whoami",
    short: "Check who the server thinks we are.",
    usage: "[options]",
    flags: &[output::FLAGS],
    run: Some(|session| Box::pin(whoami(session))),
    ..Command::EMPTY
};
static RECONCILE: Command = Command {
    name: "reconcile",
    short: "Reconcile rules for roles and bindings with what is in files.",
    usage: "-f FILENAME [options]",
    flags: &[RECONCILE_FLAGS, FILES, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(super::reconcile::run(session))),
    ..Command::EMPTY
};

const CAN_I_FLAGS: &[Flag] = &[
    Flag::switch("all-namespaces", "In all namespaces.").short('A'),
    Flag::switch("list", "All that is allowed."),
    Flag::switch("no-headers", "No line with the names of columns."),
    Flag::switch("quiet", "Only the exit code.").short('q'),
    Flag::text("subresource", "", "A subresource, such as log."),
];
const RECONCILE_FLAGS: &[Flag] = &[
    Flag::switch("remove-extra-permissions", "Take away what the files do not give."),
    Flag::switch("remove-extra-subjects", "Take away subjects the files do not name."),
];

async fn can_i(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let namespace = if flags.on("all-namespaces") { "" } else { session.namespace()? };
    if flags.on("list") {
        if !session.arguments().is_empty() {
            return Err(Failure::message("list option must be specified with no arguments"));
        }
        if flags.on("quiet") || flags.on("all-namespaces") || !flags.text("subresource").is_empty() {
            return Err(Failure::message(
                "list option can't be specified with neither quiet, all-namespaces nor subresource options",
            ));
        }
        return list(session, namespace).await;
    }
    let (verb, what) = match session.arguments() {
        [verb, what] => (verb, what.as_str()),
        _ => {
            return Err(Failure::message(
                "you must specify two arguments: verb resource or verb resource/resourceName.\nSee 'kubectl auth can-i -h' for help and examples.",
            ));
        }
    };
    can_i_one(session, namespace, verb, what).await
}

async fn can_i_one(session: &Session, namespace: &str, verb: &str, what: &str) -> Result<()> {
    let flags = &session.flags;
    let warn_unless = |known: bool| {
        if !known {
            terminal::errln(&format!("Warning: verb '{verb}' is not a known verb\n"));
        }
    };
    let spec = if what.starts_with('/') {
        if !flags.text("subresource").is_empty() {
            return Err(Failure::message("--subresource can not be used with NonResourceURL"));
        }
        warn_unless(PATH_VERBS.contains(&verb));
        json!({"nonResourceAttributes": {"path": what, "verb": verb}})
    } else {
        let (kind, name) = what.split_once('/').unwrap_or((what, ""));
        let (group, resource) = resource(session, kind, namespace).await;
        warn_unless(flags.on("all-namespaces") || RESOURCE_VERBS.contains(&verb));
        let mut attributes = json!({"verb": verb, "group": group, "resource": resource, "namespace": namespace});
        for (key, value) in [("name", name), ("subresource", flags.text("subresource"))] {
            if !value.is_empty() {
                attributes[key] = value.into();
            }
        }
        json!({"resourceAttributes": attributes})
    };
    if flags.on("no-headers") {
        return Err(Failure::message("--no-headers cannot be set without --list specified"));
    }
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec});
    let answer = session.send(&Call::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)).await?;
    if !flags.on("quiet") {
        terminal::outln(&decision(&answer["status"]));
    }
    if answer["status"]["allowed"] == true { Ok(()) } else { crate::exit(1) }
}

/// What upstream knows of resources, and of paths.
const RESOURCE_VERBS: &[&str] = &[
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "impersonate",
    "*",
    "approve",
    "sign",
    "escalate",
    "attest",
];
const PATH_VERBS: &[&str] = &["get", "put", "post", "head", "options", "delete", "patch", "*"];

/// Group and resource that a word means. One that the server does not know is asked about all the same.
async fn resource(session: &Session, kind: &str, namespace: &str) -> (String, String) {
    let of_group = |group: &str| if group.is_empty() { String::new() } else { format!(" in group '{group}'") };
    if kind == "*" {
        return ("*".into(), "*".into());
    }
    match session.mapping(kind).await {
        Ok(mapping) => {
            if !mapping.namespaced && !namespace.is_empty() {
                let (plural, group) = (&mapping.plural, of_group(&mapping.group));
                terminal::errln(&format!("Warning: resource '{plural}' is not namespace scoped{group}\n"));
            }
            (mapping.group, mapping.plural)
        }
        Err(_) => {
            let (resource, group) = kind.split_once('.').unwrap_or((kind, ""));
            let shown = of_group(group);
            terminal::errln(&format!("Warning: the server doesn't have a resource type '{resource}'{shown}\n"));
            (group.to_string(), resource.to_string())
        }
    }
}

/// `yes`, or `no` with why not.
fn decision(status: &Value) -> String {
    let allowed = status["allowed"] == true;
    let mut text = String::from(if allowed { "yes" } else { "no" });
    let given = |key: &str| status[key].as_str().filter(|text| !text.is_empty());
    if let Some(reason) = given("reason").filter(|_| !allowed) {
        text += &format!(" - {reason}");
    }
    if let Some(error) = given("evaluationError") {
        text += &format!(" - {error}");
    }
    text
}

/// Group and resource, paths, names, verbs.
pub(crate) type RuleRow = ((String, String), String, String, Vec<String>);

async fn list(session: &Session, namespace: &str) -> Result<()> {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}});
    let answer = session.send(&Call::post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review)).await?;
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect()
    };
    let listed = |texts: &[String]| format!("[{}]", texts.join(" "));
    let mut rows: Vec<RuleRow> = Vec::new();
    for rule in answer["status"]["resourceRules"].as_array().into_iter().flatten() {
        let (groups, resources) = (texts(&rule["apiGroups"]), texts(&rule["resources"]));
        for group in &groups {
            for resource in &resources {
                let shown = (group.clone(), resource.clone());
                let names = listed(&texts(&rule["resourceNames"]));
                match rows.iter_mut().find(|row| row.0 == shown && row.2 == names) {
                    Some(row) => {
                        for verb in texts(&rule["verbs"]) {
                            if !row.3.contains(&verb) {
                                row.3.push(verb);
                            }
                        }
                    }
                    None => rows.push((shown, "[]".into(), names, texts(&rule["verbs"]))),
                }
            }
        }
    }
    for rule in answer["status"]["nonResourceRules"].as_array().into_iter().flatten() {
        for path in texts(&rule["nonResourceURLs"]) {
            rows.push((Default::default(), format!("[{path}]"), "[]".into(), texts(&rule["verbs"])));
        }
    }
    rows.sort_by_key(rule_order);
    let mut text = String::new();
    if !session.flags.on("no-headers") {
        text += "Resources\tNon-Resource URLs\tResource Names\tVerbs\n";
    }
    for ((group, resource), urls, names, verbs) in rows {
        let resource = if group.is_empty() { resource } else { format!("{resource}.{group}") };
        text += &format!("{resource}\t{urls}\t{names}\t{}\n", listed(&verbs));
    }
    terminal::out(&Columns::table().align(&text));
    if answer["status"]["incomplete"] == true
        && let Some(error) = answer["status"]["evaluationError"].as_str()
    {
        terminal::err(&format!("warning: the list may be incomplete: {error}\n"));
    }
    Ok(())
}

/// Upstream sorts rules by what they look like when printed, and there the verbs come first.
pub(crate) fn rule_order(((group, resource), urls, names, verbs): &RuleRow) -> String {
    format!("[{}],[{group}],[{resource}],{names},{urls}", verbs.join(" "))
}

async fn whoami(session: &Session) -> Result<()> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = session.send(&Call::post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)).await?;
    let format = Format::from(&session.flags, false)?;
    if let Format::Json = format {
        let order = &["kind", "apiVersion", "metadata", "username", "uid", "groups", "extra"];
        terminal::outln(&crate::output::json::pretty_in_order(&answer, order));
        return Ok(());
    }
    if !format.is_human() {
        terminal::out(&format.text(&answer)?);
        return Ok(());
    }
    let user = &answer["status"]["userInfo"];
    let mut text = String::from("ATTRIBUTE\tVALUE\n");
    let listed = |value: &Value| {
        let items: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        format!("[{}]", items.join(" "))
    };
    if let Some(name) = user["username"].as_str().filter(|name| !name.is_empty()) {
        text += &format!("Username\t{name}\n");
    }
    if let Some(uid) = user["uid"].as_str().filter(|uid| !uid.is_empty()) {
        text += &format!("UID\t{uid}\n");
    }
    if user["groups"].as_array().is_some_and(|groups| !groups.is_empty()) {
        text += &format!("Groups\t{}\n", listed(&user["groups"]));
    }
    for (key, value) in user["extra"].as_object().into_iter().flatten() {
        text += &format!("Extra: {key}\t{}\n", listed(value));
    }
    terminal::out(&Columns::table().align(&text));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_says_why() {
        let check = |status: Value, text: &str| assert_eq!(decision(&status), text);
        check(json!({"allowed": true, "reason": "role"}), "yes");
        check(json!({"allowed": false}), "no");
        check(json!({"allowed": false, "reason": "no role"}), "no - no role");
        check(json!({"allowed": true, "evaluationError": "broken"}), "yes - broken");
    }
}
