//! `kubectl label` and `kubectl annotate`: the same, on two maps.

use serde_json::{Map, Value, json};

use super::change::{Change, DRY_RUN, MERGE};
use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::{Flag, Parsed};
use crate::output;
use crate::resource::Info;
use crate::resource::select::{FILES, Query, SELECTOR, Wanted};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static LABEL: Command = Command {
    name: "label",
    group: super::SETTINGS,
    short: "Update the labels on a resource.",
    examples: "kubectl label pod web tier=front\nkubectl label pod web tier-\nkubectl label pods --all status=new",
    usage: "[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version] [options]",
    flags: &[FLAGS, LABEL_FLAGS, FILES, SELECTOR, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(run(session, Which::Labels))),
    ..Command::EMPTY
};
pub(super) static ANNOTATE: Command = Command {
    name: "annotate",
    group: super::SETTINGS,
    short: "Update the annotations on a resource.",
    examples: "kubectl annotate pod web description='my site'\nkubectl annotate pod web description-",
    usage: "[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version] [options]",
    flags: &[FLAGS, ANNOTATE_FLAGS, FILES, SELECTOR, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(run(session, Which::Annotations))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("all", "All objects of the type."),
    Flag::switch("all-namespaces", "In all namespaces.").short('A'),
    Flag::text("field-selector", "", "A selector of fields."),
    Flag::switch("list", "Show what there is."),
    Flag::switch("local", "Only work on the files, ask no server."),
    Flag::switch("overwrite", "Replace values that are there."),
    Flag::text("resource-version", "", "Only where the object has this version."),
];
const LABEL_FLAGS: &[Flag] = &[Flag::text("field-manager", "kubectl-label", "Who owns the fields that are set.")];
const ANNOTATE_FLAGS: &[Flag] = &[Flag::text("field-manager", "kubectl-annotate", "Who owns the fields that are set.")];

#[derive(Clone, Copy, PartialEq)]
enum Which {
    Labels,
    Annotations,
}

impl Which {
    fn map(self) -> &'static str {
        if self == Which::Labels { "labels" } else { "annotations" }
    }

    fn singular(self) -> &'static str {
        if self == Which::Labels { "label" } else { "annotation" }
    }
}

async fn run(session: &Session, which: Which) -> Result<()> {
    let flags = &session.flags;
    check(flags, which)?;
    let change = Change::from(session)?;
    let mut query = Query { chunk: 500, ..Query::from(session) };
    // Pairs stand behind the resources; `key-` takes away.
    let is_pair = |argument: &&String| argument.contains('=') && !argument.starts_with('=') || argument.ends_with('-');
    let first = query.arguments.iter().position(|argument| is_pair(&argument)).unwrap_or(query.arguments.len());
    let pairs = query.arguments.split_off(first);
    if let Some(stray) = pairs.iter().find(|pair| !is_pair(pair)) {
        return Err(Failure::message(format!(
            "all resources must be specified before {} changes: {stray}",
            which.singular()
        )));
    }
    if flags.on("local") {
        check_local(flags, which, &query)?;
    } else if query.arguments.is_empty() && !query.has_files() {
        return Err(Failure::message(
            "one or more resources must be specified as <resource> <name> or <resource>/<name>",
        ));
    }
    let (set, removed) = parse(&pairs, which)?;
    if set.is_empty() && removed.is_empty() && !flags.on("list") {
        return Err(Failure::message(format!("at least one {} update is required", which.singular())));
    }
    let (wanted, mut failures) = session.wanted(&query).await?;
    let selective = flags.on("all") || !query.selector.is_empty() || !query.fields.is_empty();
    if !selective && wanted.iter().any(|wanted| matches!(wanted, Wanted::List(_))) {
        return Err(Failure::message("resource(s) were provided, but no name was specified"));
    }
    let one = matches!(&wanted[..], [Wanted::Named { .. } | Wanted::Local(_)]);
    if !one && flags.given("resource-version") {
        return Err(Failure::message("--resource-version may only be used with a single resource"));
    }
    for wanted in wanted {
        let infos = match (flags.on("local"), wanted) {
            (true, Wanted::Local(info)) => Ok(vec![info]),
            (_, wanted) => session.fetch(&query, wanted).await,
        };
        match infos {
            Err(failure) => failures.push(failure),
            Ok(infos) => {
                for info in infos {
                    if let Err(failure) = update(&change, &info, which, &set, &removed, one).await {
                        failures.push(failure);
                    }
                }
            }
        }
    }
    failure::all(failures)
}

/// Refuses flags that do not go together.
fn check(flags: &Parsed, which: Which) -> Result<()> {
    if which == Which::Annotations && flags.on("list") && flags.given("output") {
        return Err(Failure::message("--list and --output may not be specified together"));
    }
    for other in ["selector", "field-selector"] {
        if flags.on("all") && !flags.text(other).is_empty() {
            return Err(Failure::message(format!("cannot set --all and --{other} at the same time")));
        }
    }
    Ok(())
}

/// Files alone are changed without a server.
fn check_local(flags: &Parsed, which: Which, query: &Query) -> Result<()> {
    let example = if which == Which::Labels { "pod" } else { "rsrc" };
    let files = format!("-f {example}.yaml or --filename={example}.json");
    let why = if flags.text("dry-run") == "server" {
        "cannot specify --local and --dry-run=server - did you mean --dry-run=client?".to_owned()
    } else if !query.arguments.is_empty() {
        format!("can only use local files by {files} when --local=true is set")
    } else if !query.has_files() {
        format!("one or more files must be specified as {files}")
    } else {
        return Ok(());
    };
    Err(Failure::message(why))
}

type Pairs = Vec<(String, String)>;

fn parse(pairs: &[String], which: Which) -> Result<(Pairs, Vec<String>)> {
    let (mut set, mut removed): (Pairs, Vec<String>) = Default::default();
    for pair in pairs {
        match pair.split_once('=') {
            Some((key, value)) => {
                let problems = machinery::names::label_value(value);
                if which == Which::Labels && value.contains('=') {
                    return Err(Failure::message(format!("invalid label spec: {pair}")));
                }
                if !problems.is_empty() && which == Which::Labels {
                    return Err(Failure::message(format!("invalid label value: {pair:?}: {}", problems.join(";"))));
                }
                set.push((key.into(), value.into()));
            }
            None => removed.push(pair.strip_suffix('-').unwrap_or(pair).into()),
        }
    }
    if let Some((key, _)) = set.iter().find(|(key, _)| removed.contains(key)) {
        return Err(Failure::message(match which {
            Which::Labels => "can not both modify and remove a label in the same command".to_string(),
            Which::Annotations => {
                format!("can not both modify and remove the following annotation(s) in the same command: {key}")
            }
        }));
    }
    Ok((set, removed))
}

fn label_outcome(changes: &Map<String, Value>) -> &'static str {
    let (removed, added) = (changes.values().any(Value::is_null), changes.values().any(|value| !value.is_null()));
    match (added, removed) {
        (true, true) => "modified",
        (true, false) => "labeled",
        (false, true) => "unlabeled",
        (false, false) => "not labeled",
    }
}

async fn update(
    change: &Change<'_>,
    info: &Info,
    which: Which,
    set: &Pairs,
    removed: &[String],
    one: bool,
) -> Result<()> {
    let flags = &change.session.flags;
    let old = info.object["metadata"][which.map()].as_object().cloned().unwrap_or_default();
    if !flags.on("overwrite") {
        check_overwrite(&old, which, set)?;
    }
    let changes = changes(&old, set, removed);
    let stays_here = change.local() || flags.on("local");
    if which == Which::Labels && !stays_here && !flags.on("list") {
        for key in removed.iter().filter(|key| !old.contains_key(*key)) {
            terminal::outln(&format!("label {key:?} not found."));
        }
    }
    let outcome = match which {
        Which::Annotations => "annotated",
        Which::Labels => label_outcome(&changes),
    };
    let mut object = info.object.clone();
    for (key, value) in &changes {
        match value {
            Value::Null => _ = object["metadata"][which.map()].as_object_mut().map(|map| map.remove(key)),
            value => object["metadata"][which.map()][key.as_str()] = value.clone(),
        }
    }
    if !flags.text("resource-version").is_empty() && stays_here {
        object["metadata"]["resourceVersion"] = flags.text("resource-version").into();
    }
    let only_listed = flags.on("list") && set.is_empty() && removed.is_empty();
    let nothing = changes.is_empty() && which == Which::Labels;
    if !(stays_here || only_listed || nothing) {
        let mut patch = json!({"metadata": {which.map(): changes}});
        if !flags.text("resource-version").is_empty() {
            patch["metadata"]["resourceVersion"] = flags.text("resource-version").into();
        }
        let patched = change.send(Call::patch(info.path(), MERGE, &patch), flags.text("field-manager")).await?;
        // `label` shows what it made, `annotate` what the server made of it.
        if which == Which::Annotations {
            object = patched;
        }
    }
    if flags.on("list") {
        terminal::out(&listed(info, &object, which, one));
        return Ok(());
    }
    change.report(&info.shown(), &object, outcome)
}

/// Refuses to replace a value without `--overwrite`.
fn check_overwrite(old: &Map<String, Value>, which: Which, set: &Pairs) -> Result<()> {
    // Why a change was made may be told anew with every change.
    let guarded = set.iter().filter(|(key, _)| which == Which::Labels || key != CHANGE_CAUSE);
    let taken = guarded.filter_map(|(key, value)| {
        let known = old.get(key).and_then(Value::as_str).filter(|known| known != value)?;
        Some(format!("'{key}' already has a value ({known})"))
    });
    let taken: Vec<String> = taken.collect();
    if taken.is_empty() {
        return Ok(());
    }
    Err(Failure::message(match (which, &taken[..]) {
        (Which::Labels, [one]) => format!("{one}, and --overwrite is false"),
        (Which::Labels, many) => {
            let each: Vec<String> = many.iter().map(|one| format!("{one}, and --overwrite is false")).collect();
            format!("[{}]", each.join(", "))
        }
        (Which::Annotations, many) => {
            format!("--overwrite is false but found the following declared annotation(s): {}", many.join("; "))
        }
    }))
}

const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// New values, and null for what goes. What is as it should be is no change.
fn changes(old: &Map<String, Value>, set: &Pairs, removed: &[String]) -> Map<String, Value> {
    let differs = |(key, value): &&(String, String)| old.get(key).and_then(Value::as_str) != Some(value);
    let set = set.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone().into()));
    let removed = removed.iter().filter(|key| old.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    set.chain(removed).collect()
}

/// The lines of `--list`; with several objects each has a title.
fn listed(info: &Info, object: &Value, which: Which, one: bool) -> String {
    let mut text = String::new();
    if !one {
        text += &format!("Listing {} for {}.{}/{}:\n", which.map(), info.mapping.kind, info.mapping.group, info.name);
    }
    let indent = if one { "" } else { " " };
    for (key, value) in object["metadata"][which.map()].as_object().into_iter().flatten() {
        text += &format!("{indent}{key}={}\n", value.as_str().unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn pairs_set_and_a_dash_takes_away() {
        let (set, removed) = parse(&words("a=b c="), Which::Labels).unwrap();
        assert_eq!((set.len(), removed.len()), (2, 0));
        let (set, removed) = parse(&words("a=b c-"), Which::Labels).unwrap();
        assert_eq!((set, removed), (vec![("a".into(), "b".into())], words("c")));
        let refused = |line: &str, which| parse(&words(line), which).unwrap_err().text();
        assert!(refused("a=b/c", Which::Labels).starts_with("invalid label value: \"a=b/c\": "));
        let both = "can not both modify and remove a label in the same command";
        assert_eq!(refused("a=b a-", Which::Labels), both);
        assert!(refused("a=b a-", Which::Annotations).ends_with("annotation(s) in the same command: a"));
        assert!(parse(&words("a=b/c"), Which::Annotations).is_ok());
        assert_eq!(refused("a=b=c", Which::Labels), "invalid label spec: a=b=c");
        let (set, _) = parse(&words("a=b=c"), Which::Annotations).unwrap();
        assert_eq!(set, [("a".to_string(), "b=c".to_string())]);
        // Only one dash is the sign.
        assert_eq!(parse(&words("a--"), Which::Labels).unwrap().1, ["a-"]);
    }

    #[test]
    fn only_what_differs_is_sent() {
        let old = json!({"a": "1", "b": "2"});
        let old = old.as_object().unwrap();
        let set = vec![("a".to_string(), "1".to_string()), ("c".into(), "3".into())];
        let found = changes(old, &set, &words("b none"));
        assert_eq!(Value::from(found.clone()), json!({"b": null, "c": "3"}));
        assert_eq!(label_outcome(&found), "modified");
        assert_eq!(label_outcome(&changes(old, &set, &[])), "labeled");
        assert_eq!(label_outcome(&changes(old, &vec![], &words("a"))), "unlabeled");
        assert_eq!(label_outcome(&Map::new()), "not labeled");
    }

    #[test]
    fn values_are_not_replaced_unasked() {
        let old = json!({"a": "1"});
        let old = old.as_object().unwrap();
        let set = |value: &str| vec![("a".to_string(), value.to_string())];
        assert!(check_overwrite(old, Which::Labels, &set("1")).is_ok());
        let refused = check_overwrite(old, Which::Labels, &set("2")).unwrap_err().text();
        assert_eq!(refused, "'a' already has a value (1), and --overwrite is false");
        let refused = check_overwrite(old, Which::Annotations, &set("2")).unwrap_err().text();
        assert!(refused.starts_with("--overwrite is false but found the following declared annotation(s): 'a'"));
        let old = json!({"a": "1", "b": "2", "kubernetes.io/change-cause": "first"});
        let old = old.as_object().unwrap();
        let both = vec![("a".to_string(), "x".to_string()), ("b".into(), "y".into())];
        let told = |which| check_overwrite(old, which, &both).unwrap_err().text();
        assert_eq!(
            told(Which::Labels),
            "['a' already has a value (1), and --overwrite is false, 'b' already has a value (2), and --overwrite is false]"
        );
        assert_eq!(
            told(Which::Annotations),
            "--overwrite is false but found the following declared annotation(s): 'a' already has a value (1); 'b' already has a value (2)"
        );
        let cause = vec![(CHANGE_CAUSE.to_string(), "second".to_string())];
        assert!(check_overwrite(old, Which::Annotations, &cause).is_ok());
        assert!(check_overwrite(old, Which::Labels, &cause).is_err());
    }

    #[test]
    fn several_objects_are_listed_with_titles() {
        let object = json!({"metadata": {"labels": {"a": "b"}}});
        let mut info = Info {
            mapping: Default::default(),
            namespace: String::new(),
            name: "web".into(),
            object: object.clone(),
            source: String::new(),
        };
        (info.mapping.kind, info.mapping.group) = ("Deployment".into(), "apps".into());
        assert_eq!(listed(&info, &object, Which::Labels, true), "a=b\n");
        assert_eq!(listed(&info, &object, Which::Labels, false), "Listing labels for Deployment.apps/web:\n a=b\n");
    }
}
