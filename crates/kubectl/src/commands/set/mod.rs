//! `kubectl set`: image, env, resources, selector, serviceaccount, subject.

mod env;

use serde_json::{Value, json};

use crate::command::Command;
use crate::commands::change::{Change, DRY_RUN, STRATEGIC, as_go_writes};
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::resource::Info;
use crate::resource::mapping::Mapping;
use crate::resource::select::{FILES, FILES_RECURSIVE, Query, SELECTOR};
use crate::session::{Call, Session};

pub(super) static COMMAND: Command = Command {
    name: "set",
    group: crate::commands::BEGINNER,
    short: "Set specific features on objects.",
    usage: "SUBCOMMAND [options]",
    subcommands: &[&env::COMMAND, &IMAGE, &RESOURCES, &SELECTOR_OF, &SERVICE_ACCOUNT, &SUBJECT],
    ..Command::EMPTY
};
static IMAGE: Command = Command {
    name: "image",
    short: "Update the image of a pod template.",
    examples: "kubectl set image deployment/web nginx=nginx:1.9.1",
    usage: "(-f FILENAME | TYPE NAME) CONTAINER_NAME_1=CONTAINER_IMAGE_1 ... [options]",
    flags: &[COMMON, FILES, SELECTOR, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(image(session))),
    ..Command::EMPTY
};
static RESOURCES: Command = Command {
    name: "resources",
    short: "Update resource requests/limits on objects with pod templates.",
    examples: "kubectl set resources deployment web --limits=cpu=200m,memory=512Mi",
    usage: "(-f FILENAME | TYPE NAME) ([--limits=LIMITS & --requests=REQUESTS] [options]",
    flags: &[COMMON, RESOURCE_FLAGS, CONTAINERS, FILES, SELECTOR, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(resources(session))),
    ..Command::EMPTY
};
static SELECTOR_OF: Command = Command {
    name: "selector",
    short: "Set the selector on a resource.",
    usage: "(-f FILENAME | TYPE NAME) EXPRESSIONS [--resource-version=version] [options]",
    flags: &[COMMON, VERSION, FILES_RECURSIVE, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(selector(session))),
    ..Command::EMPTY
};
static SERVICE_ACCOUNT: Command = Command {
    name: "serviceaccount",
    aliases: &["sa"],
    short: "Update the service account of a resource.",
    usage: "(-f FILENAME | TYPE NAME) SERVICE_ACCOUNT [options]",
    flags: &[COMMON, FILES, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(service_account(session))),
    ..Command::EMPTY
};
static SUBJECT: Command = Command {
    name: "subject",
    short: "Update the user, group, or service account in a role binding or cluster role binding.",
    usage: "(-f FILENAME | TYPE NAME) [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [options]",
    flags: &[COMMON, SUBJECT_FLAGS, FILES, SELECTOR, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(subject(session))),
    ..Command::EMPTY
};

const COMMON: &[Flag] = &[
    Flag::switch("all", "All objects of the type."),
    Flag::text("field-manager", "kubectl-set", "Who owns the fields that are set."),
    Flag::switch("local", "Only work on the files, ask no server."),
];
const CONTAINERS: &[Flag] = &[Flag::text("containers", "*", "Which containers; * stands for any letters.").short('c')];
const RESOURCE_FLAGS: &[Flag] = &[
    Flag::text("limits", "", "Limits, as resource=quantity."),
    Flag::text("requests", "", "Requests, as resource=quantity."),
];
const VERSION: &[Flag] = &[Flag::text("resource-version", "", "Only where the object has this version.")];
const SUBJECT_FLAGS: &[Flag] = &[
    Flag::array("group", "Groups that get the role."),
    Flag::array("serviceaccount", "Service accounts that get the role, as namespace:name."),
    Flag::array("user", "Users that get the role."),
];

/// The objects that the arguments before the changes name.
async fn chosen(session: &Session, arguments: &[String]) -> Result<(Vec<Info>, Vec<Failure>)> {
    let query = Query { arguments: arguments.to_vec(), chunk: 500, ..Query::from(session) };
    if session.flags.on("local") {
        check_local(&query)?;
        return session.local(&query).await;
    }
    if query.arguments.is_empty() && !query.has_files() {
        return Err(Failure::message(crate::commands::NO_RESOURCES));
    }
    session.chosen(&query, session.flags.on("all")).await
}

/// Without a server there are only files.
fn check_local(query: &Query) -> Result<()> {
    if query.arguments.is_empty() && query.has_files() {
        return Ok(());
    }
    Err(Failure::message(
        "you must specify resources by --filename when --local is set.\nExample resource specifications include:\n   \
         '-f rsrc.yaml'\n   '--filename=rsrc.json'",
    ))
}

/// What is wrong with one object. Its name is that of the collection, or without a server, that of the kind, behind
/// which upstream ends the line if the kind has a group.
fn failed(session: &Session, info: &Info, why: impl std::fmt::Display) -> Failure {
    let mapping = &info.mapping;
    let name = match (session.flags.on("local"), mapping.group.as_str()) {
        (false, _) => format!("{}/{}", mapping.plural, info.name),
        (true, "") => info.shown(),
        (true, _) => format!("{}\n", info.shown()),
    };
    Failure::message(format!("{name} {why}"))
}

/// Where the pod's spec stands in an object.
fn pod_spec(info: &mut Info) -> Option<&mut Value> {
    let path = match info.mapping.plural.as_str() {
        "pods" => "/spec",
        "cronjobs" => "/spec/jobTemplate/spec/template/spec",
        _ => "/spec/template/spec",
    };
    info.object.pointer_mut(path)
}

fn no_template(session: &Session, info: &Info) -> Failure {
    let Mapping { version, kind, .. } = &info.mapping;
    failed(session, info, format!("the object is not a pod or does not have a pod template: *{version}.{kind}"))
}

/// Sends what differs, and says so.
async fn save(change: &Change<'_>, before: &Info, after: Info, outcome: &str) -> Result<()> {
    if before.object == after.object {
        return Ok(());
    }
    let local = change.local() || change.session.flags.on("local");
    let object = if local {
        as_go_writes(after.object.clone())
    } else {
        change.send(patch(before, &after), "kubectl-set").await?
    };
    change.report_typed(&after.shown(), &object, outcome)
}

/// A request for what differs: who may only patch can do this, and nothing that somebody else changed is lost.
fn patch(before: &Info, after: &Info) -> Call {
    let (patch, kind) = crate::commands::apply::patch(before, &before.object, &after.object, &before.object);
    Call::patch(after.path(), kind, &patch)
}

fn containers<'a>(spec: &'a mut Value, pattern: &str) -> Vec<&'a mut Value> {
    let matches = |name: &str| match pattern.split_once('*') {
        Some((start, end)) => name.starts_with(start) && name.ends_with(end),
        None => name == pattern,
    };
    let mut found = Vec::new();
    let Some(spec) = spec.as_object_mut() else { return found };
    for (key, list) in spec.iter_mut() {
        if key == "containers" || key == "initContainers" {
            found.extend(
                list.as_array_mut()
                    .into_iter()
                    .flatten()
                    .filter(|container| container["name"].as_str().is_some_and(matches)),
            );
        }
    }
    found
}

async fn image(session: &Session) -> Result<()> {
    let change = Change::from(session)?;
    let arguments = session.arguments();
    let first = arguments.iter().position(|argument| argument.contains('=')).unwrap_or(arguments.len());
    let (resources, pairs) = arguments.split_at(first);
    if resources.is_empty() && !session.flags.given("filename") {
        return Err(Failure::message(crate::commands::NO_RESOURCES));
    }
    if session.flags.on("local") {
        check_local(&Query { arguments: resources.to_vec(), ..Query::from(session) })?;
    }
    if pairs.is_empty() {
        session.wanted(&Query { arguments: resources.to_vec(), ..Query::from(session) }).await?;
        return Err(Failure::message("at least one image update is required"));
    }
    if pairs.len() > 1 && pairs.iter().any(|pair| pair.starts_with("*=")) {
        return Err(Failure::message(
            "all containers are already specified by *, but saw more than one container_name=container_image pairs",
        ));
    }
    let (infos, mut failures) = chosen(session, resources).await?;
    for before in infos {
        let mut after = before.clone();
        let Some(spec) = pod_spec(&mut after) else {
            failures.push(no_template(session, &before));
            continue;
        };
        for pair in pairs {
            let (name, image) = pair.split_once('=').unwrap_or((pair, ""));
            let found = containers(spec, name);
            if found.is_empty() && name != "*" {
                failures.push(Failure::message(format!("unable to find container named {name:?}")));
                continue;
            }
            found.into_iter().for_each(|container| container["image"] = image.into());
        }
        if let Err(failure) = save(&change, &before, after, "image updated").await {
            failures.push(failure);
        }
    }
    failure::all(failures)
}

async fn resources(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let change = Change::from(session)?;
    if flags.text("limits").is_empty() && flags.text("requests").is_empty() {
        return Err(Failure::message(
            "you must specify an update to requests or limits (in the form of --requests/--limits)",
        ));
    }
    let amounts = |flag: &str| match flags.text(flag) {
        "" => Ok(Value::Null),
        text => crate::commands::create::quantities(text),
    };
    let (limits, requests) = (amounts("limits")?, amounts("requests")?);
    let (infos, mut failures) = chosen(session, session.arguments()).await?;
    for before in infos {
        let mut after = before.clone();
        let Some(spec) = pod_spec(&mut after) else {
            failures.push(no_template(session, &before));
            continue;
        };
        let found = containers(spec, flags.text("containers"));
        if found.is_empty() {
            failures.push(Failure::message(format!("unable to find container named {}", flags.text("containers"))));
            continue;
        }
        for container in found {
            for (key, amounts) in [("limits", &limits), ("requests", &requests)] {
                for (resource, amount) in amounts.as_object().into_iter().flatten() {
                    container["resources"][key][resource.as_str()] = amount.clone();
                }
            }
        }
        if let Err(failure) = save(&change, &before, after, "resource requirements updated").await {
            failures.push(failure);
        }
    }
    failure::all(failures)
}

async fn selector(session: &Session) -> Result<()> {
    let change = Change::from(session)?;
    let Some((expression, resources)) = session.arguments().split_last() else {
        return Err(Failure::message("one selector is required"));
    };
    equalities_only(expression)?;
    let labels = crate::commands::expose::labels(expression)?;
    let (infos, mut failures) = chosen(session, resources).await?;
    for before in infos {
        let mut after = before.clone();
        if before.mapping.plural != "services" {
            failures.push(Failure::message("setting a selector is only supported for Services"));
            continue;
        }
        after.object["spec"]["selector"] = labels.clone().into();
        if !session.flags.text("resource-version").is_empty() {
            after.object["metadata"]["resourceVersion"] = session.flags.text("resource-version").into();
        }
        let object = if change.local() || session.flags.on("local") {
            as_go_writes(after.object.clone())
        } else {
            change.send(patch(&before, &after), "kubectl-set").await?
        };
        if let Err(failure) = change.report_typed(&after.shown(), &object, "selector updated") {
            failures.push(failure);
        }
    }
    failure::all(failures)
}

/// A Service knows no selector but labels that have a value.
fn equalities_only(expression: &str) -> Result<()> {
    let refused = |key: &str, operator: &str, values: &str| {
        let text = format!("match expression [{{{key} {operator} [{values}]}}] not supported on this object");
        Err(Failure::message(text))
    };
    if let Some((key, values)) = expression.split_once(" in (") {
        return refused(key, "In", &values.trim_end_matches(')').replace(',', " "));
    }
    if let Some((key, values)) = expression.split_once(" notin (") {
        return refused(key, "NotIn", &values.trim_end_matches(')').replace(',', " "));
    }
    if expression.split(',').any(|part| part.contains("!=")) {
        return Err(Failure::message("\"!=\" is not a valid label selector operator"));
    }
    match expression.split(',').find(|part| !part.contains('=')) {
        Some(key) => {
            refused(key.trim_start_matches('!'), if key.starts_with('!') { "DoesNotExist" } else { "Exists" }, "")
        }
        None => Ok(()),
    }
}

async fn service_account(session: &Session) -> Result<()> {
    let change = Change::from(session)?;
    let Some((account, resources)) = session.arguments().split_last() else {
        return Err(Failure::message("serviceaccount is required"));
    };
    let (infos, mut failures) = chosen(session, resources).await?;
    for before in infos {
        let mut after = before.clone();
        let Some(spec) = pod_spec(&mut after) else {
            failures.push(no_template(session, &before));
            continue;
        };
        spec["serviceAccountName"] = account.clone().into();
        spec.as_object_mut().map(|spec| spec.remove("serviceAccount"));
        let patch = json!({"spec": {"template": {"spec": {"serviceAccountName": account}}}});
        let object = if change.local() || session.flags.on("local") {
            as_go_writes(after.object.clone())
        } else {
            match change.send(Call::patch(after.path(), STRATEGIC, &patch), "kubectl-set").await {
                Ok(object) => object,
                Err(failure) => {
                    failures.push(failure);
                    continue;
                }
            }
        };
        change.report_typed(&after.shown(), &object, "serviceaccount updated")?;
    }
    failure::all(failures)
}

async fn subject(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let change = Change::from(session)?;
    let group = "rbac.authorization.k8s.io";
    let mut added: Vec<Value> = Vec::new();
    added.extend(flags.list("user").iter().map(|name| json!({"kind": "User", "apiGroup": group, "name": name})));
    added.extend(flags.list("group").iter().map(|name| json!({"kind": "Group", "apiGroup": group, "name": name})));
    for account in flags.list("serviceaccount") {
        let parts = account.split_once(':').filter(|(_, name)| !name.is_empty() && !name.contains(':'));
        let Some((namespace, name)) = parts else {
            return Err(Failure::message("serviceaccount must be <namespace>:<name>"));
        };
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        added.push(json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}));
    }
    if added.is_empty() {
        return Err(Failure::message("you must specify at least one value of user, group or serviceaccount"));
    }
    let (infos, mut failures) = chosen(session, session.arguments()).await?;
    for before in infos {
        let mut after = before.clone();
        if !["rolebindings", "clusterrolebindings"].contains(&before.mapping.plural.as_str()) {
            let why = "setting subjects is only supported for RoleBinding/ClusterRoleBinding";
            failures.push(failed(session, &before, why));
            continue;
        }
        let mut subjects = before.object["subjects"].as_array().cloned().unwrap_or_default();
        for subject in &added {
            if !subjects.contains(subject) {
                subjects.push(subject.clone());
            }
        }
        after.object["subjects"] = subjects.into();
        if after.object == before.object {
            continue;
        }
        let object = if change.local() || flags.on("local") {
            after.object.clone()
        } else {
            match change.send(patch(&before, &after), "kubectl-set").await {
                Ok(object) => object,
                Err(failure) => {
                    failures.push(failure);
                    continue;
                }
            }
        };
        change.report_typed(&after.shown(), &object, "subjects updated")?;
    }
    failure::all(failures)
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
    fn templates_stand_in_different_places() {
        let spec = json!({"containers": []});
        for (plural, object) in [
            ("pods", json!({"spec": spec})),
            ("deployments", json!({"spec": {"template": {"spec": spec}}})),
            ("cronjobs", json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}})),
        ] {
            assert_eq!(pod_spec(&mut info(plural, object)), Some(&mut spec.clone()), "{plural}");
        }
        assert_eq!(pod_spec(&mut info("services", json!({"spec": {}}))), None);
    }

    #[test]
    fn containers_are_chosen_by_a_pattern() {
        let mut spec = json!({"containers": [{"name": "app"}, {"name": "side-a"}], "initContainers": [{"name": "side-b"}],
            "other": [{"name": "app"}]});
        let mut names = |pattern: &str| -> Vec<String> {
            let found = containers(&mut spec, pattern);
            found.iter().filter_map(|container| container["name"].as_str()).map(str::to_string).collect()
        };
        assert_eq!(names("*"), ["app", "side-a", "side-b"]);
        assert_eq!(names("side-*"), ["side-a", "side-b"]);
        assert_eq!(names("app"), ["app"]);
        assert!(names("none").is_empty());
    }

    #[test]
    fn services_select_by_values_only() {
        let refused = |text: &str| equalities_only(text).err().map(|failure| failure.text());
        assert_eq!(refused("a=b,c=d"), None);
        let sentence = |what: &str| Some(format!("match expression [{{{what}}}] not supported on this object"));
        assert_eq!(refused("a in (b,c)"), sentence("a In [b c]"));
        assert_eq!(refused("a notin (b)"), sentence("a NotIn [b]"));
        assert_eq!(refused("a"), sentence("a Exists []"));
        assert_eq!(refused("!a"), sentence("a DoesNotExist []"));
    }
}
