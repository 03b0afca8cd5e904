//! `kubectl apply`: makes what is there into what the files say, by a patch of our own or by the server.

use serde_json::{Value, json};

use super::applyset::{self, ApplySet};
use super::change::{self, APPLY, Change, DRY_RUN, LAST_APPLIED, MERGE, STRATEGIC, VALIDATE};
use super::upgrade;
use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::{Flag, Parsed};
use crate::merge;
use crate::output::{self, Format};
use crate::resource::Info;
use crate::resource::select::{FILES, Query, SELECTOR};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "apply",
    group: super::ADVANCED,
    short: "Apply a configuration to a resource by file name or standard input.",
    examples: "kubectl apply -f web.yaml\nkubectl apply -k overlays/production\nkubectl apply --server-side -f web.yaml",
    usage: "(-f FILENAME | -k DIRECTORY) [options]",
    flags: &[FLAGS, FILES, SELECTOR, DRY_RUN, VALIDATE, output::FLAGS],
    subcommands: &[&super::last_applied::EDIT, &super::last_applied::SET, &super::last_applied::VIEW],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("all", "With --prune: everything that was applied."),
    Flag::text("applyset", "", ""),
    Flag::optional(
        "cascade",
        "background",
        "background",
        "What happens to dependents: background, orphan or foreground.",
    ),
    Flag::text("field-manager", MANAGER, "Who owns the fields that are set."),
    Flag::switch("force", "Delete and create again where a change is refused."),
    Flag::switch("force-conflicts", "Take fields over from other managers."),
    Flag::integer("grace-period", "-1", "Seconds that a deleted object has to end."),
    Flag::on("openapi-patch", "Not used: patches are made from the kinds that are built in."),
    Flag::on("overwrite", "Our values win over values that were changed in between."),
    Flag::switch("prune", "Delete what was applied before and is not among the files."),
    Flag::array("prune-allowlist", "Kinds to prune, as group/version/kind."),
    Flag::switch("server-side", "Let the server merge."),
    Flag::text("subresource", "", "A subresource to apply to."),
    Flag::duration("timeout", "0s", "How long to wait for a deletion."),
    Flag::switch("wait", "Wait for deletions to end."),
];

async fn run(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let query = Query::from(session);
    check(flags, &query)?;
    let mut set = apply_set(session, &query).await?;
    if flags.on("prune") {
        super::prune::check_allowlist(session)?;
    }
    let change = Change::from(session)?;
    if change.local() && flags.on("server-side") {
        return Err(Failure::message(
            "--dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)",
        ));
    }
    let (mut infos, mut failures) = session.local(&query).await?;
    if infos.is_empty() && failures.is_empty() {
        return Err(Failure::message("no objects passed to apply"));
    }
    if let Some(set) = &mut set {
        infos.iter_mut().try_for_each(|info| set.add_label(info))?;
        set.begin(&change, &infos).await?;
    }
    let mut done = Vec::new();
    for info in infos {
        match apply(&change, &info).await {
            Ok(object) => done.push(Info { object, ..info }),
            Err(failure) => failures.push(failure),
        }
    }
    if !change.format.is_human() {
        print_objects(&change, &done)?;
    }
    if flags.on("prune") && failures.is_empty() {
        match &set {
            Some(set) => set.prune(&change, &done).await?,
            None => super::prune::prune(&change, &query, &done).await?,
        }
    }
    failure::all(failures)
}

/// What upstream refuses before it asks for anything, in its order.
fn check(flags: &Parsed, query: &Query) -> Result<()> {
    if !query.has_files() {
        return Err(Failure::message("must specify one of -f and -k"));
    }
    if !query.arguments.is_empty() {
        return Err(Failure::Usage(format!("Unexpected args: [{}]", query.arguments.join(" "))));
    }
    let wrong = [
        (flags.on("force-conflicts") && !flags.on("server-side"), "--force-conflicts only works with --server-side"),
        (flags.on("force") && flags.on("server-side"), "--force cannot be used with --server-side"),
        (flags.on("force") && flags.text("dry-run") == "server", "--dry-run=server cannot be used with --force"),
        (flags.on("all") && !query.selector.is_empty(), "cannot set --all and --selector at the same time"),
    ];
    if let Some((_, message)) = wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
        return Err(Failure::message(message));
    }
    if flags.given("applyset") && !applyset::enabled() {
        return Err(Failure::Plain("error: unknown flag: --applyset\nSee 'kubectl apply --help' for usage.".into()));
    }
    Ok(())
}

/// The set of `--applyset`, once everything that does not go with it is refused.
async fn apply_set(session: &Session, query: &Query) -> Result<Option<ApplySet>> {
    let flags = &session.flags;
    if flags.text("applyset").is_empty() {
        if flags.on("prune") && !flags.on("all") && query.selector.is_empty() {
            return Err(Failure::message(
                "all resources selected for prune without explicitly passing --all. To prune all resources, pass the --all flag. If you did not mean to prune all resources, specify a label selector",
            ));
        }
        return Ok(None);
    }
    let set = ApplySet::from(session, flags.text("applyset")).await?;
    if !flags.on("prune") {
        return Err(Failure::message("--applyset requires --prune"));
    }
    set.check(session).await?;
    if flags.on("force") {
        return Err(Failure::message("--force cannot be used with --prune"));
    }
    for (flag, given) in [
        ("all", flags.on("all")),
        ("selector", !query.selector.is_empty()),
        ("prune-allowlist", flags.given("prune-allowlist")),
    ] {
        if given {
            return Err(Failure::message(format!("--{flag} is incompatible with --applyset")));
        }
    }
    Ok(Some(set))
}

async fn apply(change: &Change<'_>, info: &Info) -> Result<Value> {
    let metadata = &info.object["metadata"];
    if metadata["name"].is_null() && !metadata["generateName"].is_null() {
        return Err(Failure::message(format!(
            "from {}: cannot use generate name with apply",
            metadata["generateName"].as_str().unwrap_or_default()
        )));
    }
    if change.session.flags.on("server-side") { on_server(change, info).await } else { by_patch(change, info).await }
}

/// With a format, all objects are printed as one list.
fn print_objects(change: &Change<'_>, done: &[Info]) -> Result<()> {
    if matches!(change.format, Format::Name) {
        return Ok(());
    }
    let mut items: Vec<Value> = done.iter().map(|info| info.object.clone()).collect();
    let object = match items.len() {
        0 => return Ok(()),
        1 => items.remove(0),
        _ => json!({"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": ""}}),
    };
    change.report("", &object, "")
}

/// A sentence now, or the object later with the others.
fn tell(change: &Change<'_>, info: &Info, operation: &str) -> Result<()> {
    match change.format {
        Format::Human { .. } | Format::Name => change.report(&info.shown(), &info.object, operation),
        _ => Ok(()),
    }
}

async fn on_server(change: &Change<'_>, info: &Info) -> Result<Value> {
    let flags = &change.session.flags;
    let mut path = info.path();
    if !flags.text("subresource").is_empty() {
        path = format!("{path}/{}", flags.text("subresource"));
    }
    let mut object = info.object.clone();
    // Who manages what is the server's own business.
    object["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
    let mut call = Call::patch(&path, APPLY, &object);
    if flags.on("force-conflicts") {
        call = call.with("force", "true");
    }
    let applied = change.send(call.clone(), SERVER_SIDE_MANAGER).await.map_err(|failure| match failure.reason() {
        "Conflict" => conflict(&failure),
        _ => failure,
    })?;
    // It is looked at afterwards whether an apply of the old kind was before this one, so that the usual apply is one
    // request. Whatever fails here is tried again by the next apply.
    let migrated = migrate(change, info, &path, call, applied.clone()).await;
    let applied = migrated.unwrap_or_else(|(step, failure)| {
        terminal::warn(&format!(
            "{step}. This is non-fatal and will be retried next time you apply. Error: {}",
            failure.text()
        ));
        applied
    });
    tell(change, info, "serverside-applied")?;
    Ok(applied)
}

/// Hands over what an apply of the old kind had, and answers with the object afterwards, or with the step that failed.
async fn migrate(
    change: &Change<'_>,
    info: &Info,
    path: &str,
    again: Call,
    applied: Value,
) -> std::result::Result<Value, (&'static str, Failure)> {
    let flags = &change.session.flags;
    let manager = if flags.given("field-manager") { flags.text("field-manager") } else { SERVER_SIDE_MANAGER };
    let object = upgrade::keep_annotation(change, info, path, applied, manager).await.map_err(|failure| {
        ("failed to migrate kubectl.kubernetes.io/last-applied-configuration for Server-Side Apply", failure)
    })?;
    let (object, changed) = upgrade::managers(change, info, object, manager)
        .await
        .map_err(|failure| ("server rejected managed fields migration to Server-Side Apply", failure))?;
    if !changed {
        return Ok(object);
    }
    // Once more, for fields that the old manager had and the file has not.
    change
        .send(again, SERVER_SIDE_MANAGER)
        .await
        .map_err(|failure| ("failed to re-apply configuration after performing Server-Side Apply migration", failure))
}

fn conflict(failure: &Failure) -> Failure {
    Failure::Message(format!(
        "{}\n\
         Please review the fields above--they currently have other managers. Here\n\
         are the ways you can resolve this warning:\n\
         * If you intend to manage all of these fields, please re-run the apply\n  \
           command with the `--force-conflicts` flag.\n\
         * If you do not intend to manage all of the fields, please edit your\n  \
           manifest to remove references to the fields that should keep their\n  \
           current managers.\n\
         * You may co-own fields by updating your manifest to match the existing\n  \
           value; in this case, you'll become the manager if the other manager(s)\n  \
           stop managing the field (remove it from their configuration).\n\
         See https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts",
        failure.text()
    ))
}

const MANAGER: &str = "kubectl-client-side-apply";

/// Who applies on the server, unless somebody else is named.
pub(super) const SERVER_SIDE_MANAGER: &str = "kubectl";

/// How often a patch is made anew when somebody else was faster.
const TRIES: usize = 5;

async fn by_patch(change: &Change<'_>, info: &Info) -> Result<Value> {
    let session = change.session;
    let wanted = change::with_last_applied(&info.object);
    if info.name.is_empty() {
        return Err(Failure::message(format!("{}resource name may not be empty", retrieving(info))));
    }
    let mut tries = 0;
    loop {
        let current = match session.send(&Call::get(info.path())).await {
            Ok(current) => current,
            Err(failure) if failure.is_not_found() => return create(change, info, wanted).await,
            Err(Failure::Status { status, .. }) => {
                return Err(Failure::Status { prefix: retrieving(info), status });
            }
            Err(other) => return Err(other),
        };
        let annotation = current["metadata"]["annotations"][LAST_APPLIED].as_str();
        if annotation.is_none() && tries == 0 {
            terminal::warn(&format!(
                "resource {}/{} is missing the {LAST_APPLIED} annotation which is required by kubectl apply. kubectl apply should only be used on resources created declaratively by either kubectl create --save-config or kubectl apply. The missing annotation will be patched automatically.",
                info.mapping.plural, info.name
            ));
        }
        let original: Value = annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
        let (patch, kind) = patch(info, &original, &wanted, &current);
        if patch.as_object().is_some_and(serde_json::Map::is_empty) {
            tell(change, info, "unchanged")?;
            return Ok(current);
        }
        if change.local() {
            tell(change, info, "configured")?;
            return patched(info, current, &patch, kind);
        }
        match change.send(Call::patch(info.path(), kind, &patch), MANAGER).await {
            Ok(applied) => {
                tell(change, info, "configured")?;
                return Ok(applied);
            }
            Err(failure) if failure.reason() == "Conflict" && tries < TRIES => tries += 1,
            Err(failure) if session.flags.on("force") && matches!(failure.reason(), "Invalid" | "Conflict") => {
                super::delete::and_wait(session, info).await?;
                let created = change.send(Call::post(info.collection(), &wanted), MANAGER).await?;
                tell(change, info, "configured")?;
                return Ok(created);
            }
            Err(failure) => return Err(patching(info, &patch, failure)),
        }
    }
}

async fn create(change: &Change<'_>, info: &Info, wanted: Value) -> Result<Value> {
    let created = if change.local() {
        wanted
    } else {
        let sent = change.send(Call::post(info.collection(), &wanted), MANAGER).await;
        sent.map_err(|failure| failure.during("creating", &info.source))?
    };
    tell(change, info, "created")?;
    Ok(created)
}

/// The object as the server would make it, by a patch that is not sent.
fn patched(info: &Info, mut object: Value, patch: &Value, kind: &str) -> Result<Value> {
    let mapping = &info.mapping;
    let ty = api::schema::type_named(&mapping.group, &mapping.version, &mapping.kind);
    let done = match ty.filter(|_| kind == super::change::STRATEGIC) {
        Some(ty) => machinery::patch::strategic::apply(ty, &mut object, patch).map_err(Failure::of),
        None => machinery::patch::merge::apply(&mut object, patch).map_err(Failure::of),
    };
    done?;
    Ok(object)
}

fn described(info: &Info) -> String {
    let version = info.mapping.api_version_with_slash();
    format!(
        "Resource: {:?}, GroupVersionKind: {:?}\nName: {:?}, Namespace: {:?}",
        format!("{version}, Resource={}", info.mapping.plural),
        format!("{version}, Kind={}", info.mapping.kind),
        info.name,
        info.namespace
    )
}

fn retrieving(info: &Info) -> String {
    format!(
        "error when retrieving current configuration of:\n{}\nfrom server for: {:?}: ",
        described(info),
        info.source
    )
}

/// What was sent, to what, and what came of it.
fn patching(info: &Info, patch: &Value, failure: Failure) -> Failure {
    let prefix = format!(
        "error when applying patch:\n{}\nto:\n{}\nfor: {source:?}: error when patching {source:?}: ",
        output::json::compact(patch),
        described(info),
        source = info.source
    );
    match failure {
        Failure::Status { status, .. } => Failure::Status { status, prefix },
        other => other,
    }
}

/// The patch and its type: strategic for built-in kinds.
pub(crate) fn patch(info: &Info, original: &Value, wanted: &Value, current: &Value) -> (Value, &'static str) {
    match api::schema::type_named(&info.mapping.group, &info.mapping.version, &info.mapping.kind) {
        Some(ty) => (merge::strategic(ty, original, wanted, current), STRATEGIC),
        None => (merge::plain(original, wanted, current), MERGE),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn flags(line: &str) -> Parsed {
        let line: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Parsed::parse(COMMAND.flags, &line).unwrap()
    }

    fn files() -> Query {
        Query { files: vec!["a.yaml".into()], ..Query::default() }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let refused = |line: &str, query: &Query| check(&flags(line), query).unwrap_err().text();
        assert!(check(&flags("-f a.yaml"), &files()).is_ok());
        assert_eq!(refused("", &Query::default()), "must specify one of -f and -k");
        let more = Query { arguments: vec!["x".into()], ..files() };
        assert_eq!(refused("-f a.yaml x", &more), "Unexpected args: [x]");
        let selected = Query { selector: "a=b".into(), ..files() };
        assert_eq!(refused("--all", &selected), "cannot set --all and --selector at the same time");
        assert_eq!(refused("--force-conflicts", &files()), "--force-conflicts only works with --server-side");
        assert_eq!(refused("--force --server-side", &files()), "--force cannot be used with --server-side");
    }

    fn info(group: &str, kind: &str, object: Value) -> Info {
        let mapping = crate::resource::mapping::Mapping {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            plural: format!("{}s", kind.to_lowercase()),
            ..Default::default()
        };
        Info { mapping, namespace: "team".into(), name: "web".into(), object, source: "a.yaml".into() }
    }

    #[test]
    fn known_kinds_are_merged_by_their_keys() {
        let container = |image: &str| json!({"spec": {"containers": [{"name": "a", "image": image}]}});
        let pod = info("", "Pod", Value::Null);
        let (difference, kind) = patch(&pod, &container("1"), &container("2"), &container("1"));
        assert_eq!((kind, &difference["spec"]["containers"][0]["image"]), (STRATEGIC, &json!("2")));
        let widget = info("example.com", "Widget", Value::Null);
        let (difference, kind) =
            patch(&widget, &json!({"a": 1, "b": 1}), &json!({"a": 2}), &json!({"a": 1, "b": 1, "c": 1}));
        assert_eq!((kind, difference), (MERGE, json!({"a": 2, "b": null})));
    }

    #[test]
    fn a_dry_run_patches_here() {
        let pod = info("", "Pod", Value::Null);
        let object = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}});
        let difference = json!({"spec": {"containers": [{"name": "a", "image": "2"}]}});
        let done = patched(&pod, object, &difference, STRATEGIC).unwrap();
        assert_eq!(done["spec"]["containers"], json!([{"name": "a", "image": "2"}, {"name": "b"}]));
    }

    #[test]
    fn failures_name_what_was_sent() {
        let pod = info("", "Pod", Value::Null);
        let failure = Failure::status(json!({"message": "no"}));
        let text = patching(&pod, &json!({"a": 1}), failure).text();
        assert!(
            text.starts_with("error when applying patch:\n{\"a\":1}\nto:\nResource: \"/v1, Resource=pods\""),
            "{text}"
        );
        assert!(text.ends_with("for: \"a.yaml\": error when patching \"a.yaml\": no"), "{text}");
        assert!(retrieving(&pod).ends_with("from server for: \"a.yaml\": "));
    }
}
