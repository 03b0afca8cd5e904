//! `kubectl delete`, and waiting for what was deleted to be gone.

use std::time::Duration;

use serde_json::{Value, json};

use super::change::{DRY_RUN, DryRun, dry_run};
use super::wait::{self, Until};
use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::{Flag, Parsed};
use crate::resource::Info;
use crate::resource::select::{FILES, Query, SELECTOR, Wanted};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "delete",
    group: super::INTERMEDIATE,
    short: "Delete resources by file names, standard input, resources and names, or by resources and label selector.",
    examples: "kubectl delete -f web.yaml\nkubectl delete pod,service web\nkubectl delete pods -l app=web\nkubectl delete pod web --now",
    usage: "([-f FILENAME] | [-k DIRECTORY] | TYPE [(NAME | -l label | --all)]) [options]",
    flags: &[FLAGS, FILES, SELECTOR, DRY_RUN],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("all", "Everything of the type in the namespace."),
    Flag::switch("all-namespaces", "In all namespaces.").short('A'),
    Flag::optional(
        "cascade",
        "background",
        "background",
        "What happens to dependents: background, orphan or foreground.",
    ),
    Flag::text("field-selector", "", "A selector of fields."),
    Flag::switch("force", "Do not wait for the node to confirm."),
    Flag::integer("grace-period", "-1", "Seconds that the object has to end."),
    Flag::switch("ignore-not-found", "An object that is not there is no error."),
    Flag::switch("interactive", "Ask before deleting.").short('i'),
    Flag::switch("now", "Give it one second."),
    Flag::text("output", "", "name, for short output.").short('o'),
    Flag::text("raw", "", "A path to delete."),
    Flag::duration("timeout", "0s", "How long to wait for the end; 0 for as long as the objects say."),
    Flag::on("wait", "Wait for the objects to be gone."),
];

async fn run(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let query = Query { chunk: 500, ..Query::from(session) };
    if flags.given("raw") {
        return raw(session, &query.files).await;
    }
    let dry = dry_run(session)?;
    let grace = check(flags, &query)?;
    let (wanted, mut failures) = session.wanted(&query).await?;
    check_named(flags, &query, &wanted)?;
    if flags.on("force") && grace == 0 && dry != DryRun::Client {
        terminal::warn(
            "Immediate deletion does not wait for confirmation that the running resource has been terminated. The resource may continue to run on the cluster indefinitely.",
        );
    }
    let infos = fetch(session, &query, wanted, &mut failures).await?;
    if flags.on("interactive") && !infos.is_empty() && !confirmed(&infos) {
        terminal::outln("deletion is cancelled");
        return Ok(());
    }
    if infos.is_empty() && failures.is_empty() {
        terminal::outln("No resources found");
        return Ok(());
    }
    if session.settings()?.namespace_given && infos.iter().any(|info| !info.mapping.namespaced) {
        terminal::warn("deleting cluster-scoped resources, not scoped to the provided namespace");
    }
    let mut deleted = Vec::new();
    for info in infos {
        match delete(session, &info, grace, dry).await {
            Ok(uid) => deleted.push((info, uid)),
            Err(failure) if failure.is_not_found() && flags.on("ignore-not-found") => {}
            Err(failure) => failures.push(failure),
        }
    }
    if failures.is_empty() && flags.on("wait") && dry == DryRun::No {
        failures.extend(wait_for_end(session, deleted).await);
    }
    failure::all(failures)
}

/// `--raw`: a DELETE of a path, with the file's content as its body.
async fn raw(session: &Session, files: &[String]) -> Result<()> {
    let body = match files {
        [] => Vec::new(),
        [file] if file == "-" => terminal::input()?,
        [file, ..] => std::fs::read(file)?,
    };
    let call = Call::new(http::Method::DELETE, session.flags.text("raw")).with_body(body, crate::session::JSON);
    terminal::out_bytes(&session.bytes(&call).await?);
    Ok(())
}

/// What upstream refuses before it asks for anything. Answers with the grace period.
fn check(flags: &Parsed, query: &Query) -> Result<i64> {
    let output = flags.text("output");
    if !output.is_empty() && output != "name" {
        return Err(Failure::message(format!("unexpected -o output mode: {output}. We only support '-o name'")));
    }
    if flags.on("all") && !(query.selector.is_empty() && query.fields.is_empty()) {
        return Err(Failure::message("setting 'all' parameter but found a non empty selector. "));
    }
    if query.arguments.is_empty() && !query.has_files() {
        return Err(Failure::message(super::NO_RESOURCES));
    }
    let grace = grace(flags)?;
    if flags.on("force") && grace > 0 {
        return Err(Failure::message("--force and --grace-period greater than 0 cannot be specified together"));
    }
    Ok(grace)
}

/// A type alone means all of its objects, and that must be said.
fn check_named(flags: &Parsed, query: &Query, wanted: &[Wanted]) -> Result<()> {
    let named = wanted.iter().any(|wanted| matches!(wanted, Wanted::Named { .. }));
    if named && flags.on("all") {
        return Err(Failure::message("name cannot be provided when a selector is specified"));
    }
    if named && query.all_namespaces {
        return Err(Failure::message("a resource cannot be retrieved by name across all namespaces"));
    }
    let selective = flags.on("all") || !query.selector.is_empty() || !query.fields.is_empty();
    if !selective && wanted.iter().any(|wanted| matches!(wanted, Wanted::List(_))) {
        return Err(Failure::message("resource(s) were provided, but no name was specified"));
    }
    Ok(())
}

/// What is named need not be fetched to be deleted.
async fn fetch(
    session: &Session,
    query: &Query,
    wanted: Vec<Wanted>,
    failures: &mut Vec<Failure>,
) -> Result<Vec<Info>> {
    let mut infos = Vec::new();
    for wanted in wanted {
        match wanted {
            Wanted::Local(info) => infos.push(info),
            Wanted::Named { mapping, name } => {
                let namespace = if mapping.namespaced { session.namespace()?.to_string() } else { String::new() };
                infos.push(Info { mapping, namespace, name, object: Value::Null, source: String::new() });
            }
            list => match session.fetch(query, list).await {
                Ok(found) => infos.extend(found),
                Err(failure) => failures.push(failure),
            },
        }
    }
    Ok(infos)
}

async fn wait_for_end(session: &Session, deleted: Vec<(Info, String)>) -> Vec<Failure> {
    let seconds = session.flags.seconds("timeout");
    let limit = Duration::from_secs_f64(if seconds > 0.0 { seconds } else { WEEK });
    let mut failures = Vec::new();
    for (info, uid) in deleted {
        match wait::one(session, &info, &Until::Deleted { uid }, Some(limit)).await {
            // Whoever may delete need not be allowed to look.
            Err(failure) if matches!(failure.reason(), "Forbidden" | "MethodNotAllowed") => {}
            Err(failure) => failures.push(failure),
            Ok(_) => {}
        }
    }
    failures
}

const WEEK: f64 = 7.0 * 24.0 * 3600.0;

fn grace(flags: &Parsed) -> Result<i64> {
    let given = flags.integer("grace-period");
    if flags.on("now") {
        if given != -1 {
            return Err(Failure::message("--now and --grace-period cannot be specified together"));
        }
        return Ok(1);
    }
    if flags.on("force") {
        return Ok(if given < 0 { 0 } else { given });
    }
    // Without force a second is given, so that nobody loses data by a zero.
    Ok(if given == 0 { 1 } else { given })
}

/// The body of a deletion.
pub(crate) fn options(session: &Session, grace: i64) -> Result<Value> {
    options_of(session.flags.text("cascade"), grace)
}

fn options_of(cascade: &str, grace: i64) -> Result<Value> {
    let policy = match cascade {
        "background" | "" | "true" => "Background",
        "foreground" => "Foreground",
        "orphan" | "false" => "Orphan",
        other => {
            return Err(Failure::message(format!(
                "invalid cascade value ({other}). Must be \"background\", \"foreground\", or \"orphan\""
            )));
        }
    };
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
    if grace >= 0 {
        options["gracePeriodSeconds"] = grace.into();
    }
    Ok(options)
}

async fn delete(session: &Session, info: &Info, grace: i64, dry: DryRun) -> Result<String> {
    let mut uid = String::new();
    if dry != DryRun::Client {
        let mut call = Call::delete(info.path(), &options(session, grace)?);
        if dry == DryRun::Server {
            call = call.with("dryRun", "All");
        }
        let answer = session.send(&call).await.map_err(|failure| {
            if info.source.is_empty() { failure } else { failure.during("deleting", &info.source) }
        })?;
        let found = answer["metadata"]["uid"].as_str().or(answer["details"]["uid"].as_str());
        uid = found.unwrap_or_default().to_string();
    }
    tell(session, info, grace == 0, dry);
    Ok(uid)
}

fn tell(session: &Session, info: &Info, forced: bool, dry: DryRun) {
    if session.flags.text("output") == "name" {
        terminal::outln(&info.shown());
    } else {
        terminal::outln(&sentence(info, forced, dry));
    }
}

/// `pod "web" deleted from default namespace`
fn sentence(info: &Info, forced: bool, dry: DryRun) -> String {
    let mut operation = if forced { "force deleted".to_string() } else { "deleted".into() };
    if info.mapping.namespaced {
        operation += &format!(" from {} namespace", info.namespace);
    }
    operation += match dry {
        DryRun::No => "",
        DryRun::Client => " (dry run)",
        DryRun::Server => " (server dry run)",
    };
    format!("{} {:?} {operation}", info.mapping.shown(), info.name)
}

fn confirmed(infos: &[Info]) -> bool {
    terminal::outln(&format!("You are about to delete the following {} resource(s):", infos.len()));
    infos.iter().for_each(|info| terminal::outln(&info.shown()));
    terminal::out("Do you want to continue? (y/N): ");
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    answer.trim().eq_ignore_ascii_case("y")
}

/// Deletes one object quietly, for commands that make it anew.
pub(super) async fn and_wait(session: &Session, info: &Info) -> Result<()> {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    let answer = match session.send(&Call::delete(info.path(), &options)).await {
        Err(failure) if failure.is_not_found() => return Ok(()),
        other => other?,
    };
    let uid = answer["metadata"]["uid"].as_str().or(answer["details"]["uid"].as_str()).unwrap_or_default().to_string();
    wait::one(session, info, &Until::Deleted { uid }, Some(Duration::from_secs_f64(WEEK))).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::mapping::Mapping;

    fn flags(line: &str) -> Parsed {
        let line: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Parsed::parse(COMMAND.flags, &line).unwrap()
    }

    fn pods() -> Query {
        Query { arguments: vec!["pods".into()], ..Query::default() }
    }

    #[test]
    fn the_grace_period_is_never_zero_without_force() {
        let check = |line: &str, seconds: i64| assert_eq!(grace(&flags(line)).unwrap(), seconds, "{line}");
        check("pod a", -1);
        check("pod a --grace-period=0", 1);
        check("pod a --grace-period=5", 5);
        check("pod a --now", 1);
        check("pod a --force", 0);
        check("pod a --force --grace-period=0", 0);
        assert!(grace(&flags("pod a --now --grace-period=3")).is_err());
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let refused = |line: &str, query: &Query| super::check(&flags(line), query).unwrap_err().text();
        assert_eq!(refused("pods -o yaml", &pods()), "unexpected -o output mode: yaml. We only support '-o name'");
        let selected = Query { selector: "a=b".into(), ..pods() };
        assert!(refused("pods --all", &selected).starts_with("setting 'all' parameter"));
        assert_eq!(refused("", &Query::default()), super::super::NO_RESOURCES);
        assert!(refused("pods a --force --grace-period=2", &pods()).starts_with("--force and --grace-period"));
        assert_eq!(super::check(&flags("pods a"), &pods()).unwrap(), -1);
    }

    #[test]
    fn a_type_alone_is_not_enough() {
        let list = [Wanted::List(Mapping::default())];
        let named = [Wanted::Named { mapping: Mapping::default(), name: "a".into() }];
        assert!(check_named(&flags("pods"), &pods(), &list).is_err());
        assert!(check_named(&flags("pods --all"), &pods(), &list).is_ok());
        assert!(check_named(&flags("pods"), &Query { selector: "a=b".into(), ..pods() }, &list).is_ok());
        assert!(check_named(&flags("pods a"), &pods(), &named).is_ok());
        assert!(check_named(&flags("pods a --all"), &pods(), &named).is_err());
        assert!(check_named(&flags("pods a -A"), &Query { all_namespaces: true, ..pods() }, &named).is_err());
    }

    #[test]
    fn dependents_follow_the_cascade() {
        let policy = |text: &str| options_of(text, -1).map(|options| options["propagationPolicy"].clone()).ok();
        assert_eq!(policy("background"), Some("Background".into()));
        assert_eq!(policy("foreground"), Some("Foreground".into()));
        assert_eq!(policy("orphan"), Some("Orphan".into()));
        assert_eq!(policy("never"), None);
        assert_eq!(options_of("", 3).unwrap()["gracePeriodSeconds"], 3);
        assert!(options_of("", -1).unwrap()["gracePeriodSeconds"].is_null());
    }

    #[test]
    fn a_deletion_is_told_with_its_namespace() {
        let mapping = Mapping { kind: "Pod".into(), namespaced: true, ..Default::default() };
        let info =
            Info { mapping, namespace: "team".into(), name: "web".into(), object: Value::Null, source: String::new() };
        assert_eq!(sentence(&info, false, DryRun::No), "pod \"web\" deleted from team namespace");
        let tried = "pod \"web\" force deleted from team namespace (server dry run)";
        assert_eq!(sentence(&info, true, DryRun::Server), tried);
    }
}
