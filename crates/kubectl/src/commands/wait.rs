//! `kubectl wait`: until an object is there, gone, has a condition, or a field has a value.

use std::time::Duration;

use machinery::jsonpath::Template;
use serde_json::Value;

use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output::{self, Format};
use crate::resource::Info;
use crate::resource::select::{FILES_RECURSIVE, Query, SELECTOR, Wanted};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "wait",
    group: super::ADVANCED,
    short: "Wait for a specific condition on one or many resources.",
    examples: "kubectl wait --for=condition=Ready pod/web\nkubectl wait --for=jsonpath='{.status.phase}'=Running pod/web\nkubectl wait --for=delete pod/web --timeout=60s",
    usage: "([-f FILENAME] | resource.group/resource.name | resource.group [(-l label | --all)]) [--for=create|--for=delete|--for condition=available|--for=jsonpath='{}'[=value]] [options]",
    flags: &[FLAGS, FILES_RECURSIVE, SELECTOR, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("all", "All objects of the type."),
    Flag::switch("all-namespaces", "In all namespaces.").short('A'),
    Flag::text("field-selector", "", "A selector of fields."),
    Flag::array("for", "What to wait for."),
    Flag::switch("local", "Only look at the files, ask no server."),
    Flag::duration("timeout", "30s", "How long to wait; 0 looks once, a negative value waits for a week."),
];

#[derive(Debug)]
pub(super) enum Until {
    Created,
    /// Gone, or another object of the same name; an empty uid stands for any.
    Deleted {
        uid: String,
    },
    Condition {
        name: String,
        value: String,
    },
    Field {
        path: Template,
        value: Option<String>,
    },
}

impl Until {
    fn parse(text: &str) -> Result<Until> {
        let lower = text.to_lowercase();
        if lower == "delete" {
            return Ok(Until::Deleted { uid: String::new() });
        }
        if lower == "create" {
            return Ok(Until::Created);
        }
        if let Some(condition) = text.strip_prefix("condition=") {
            let (name, value) = condition.split_once('=').unwrap_or((condition, "true"));
            return Ok(Until::Condition { name: name.into(), value: value.into() });
        }
        if let Some(path) = text.strip_prefix("jsonpath=") {
            return Until::field(path);
        }
        Err(Failure::message(format!("unrecognized condition: {text:?}")))
    }

    /// `{.a.b}` or `{.a.b}=value`. Two `=` in a row are part of what they stand in.
    fn field(text: &str) -> Result<Until> {
        let (path, value) = match &split(text)[..] {
            [path] => (path.clone(), None),
            [path, value] => (path.clone(), Some(value.trim_matches(['\'', '"']).to_owned())),
            _ => {
                return Err(Failure::message(
                    "jsonpath wait format must be --for=jsonpath='{.status.readyReplicas}'=3 or --for=jsonpath='{.status.readyReplicas}'",
                ));
            }
        };
        if path.is_empty() {
            return Err(Failure::message("jsonpath expression cannot be empty"));
        }
        let path = Template::relaxed(&path).map_err(Failure::of)?;
        if value.as_deref() == Some("") {
            return Err(Failure::message(
                "jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.readyReplicas}'=3",
            ));
        }
        Ok(Until::Field { path, value })
    }

    /// Is it so? `None` is an object that is not there.
    fn met(&self, object: Option<&Value>) -> Result<bool> {
        Ok(match (self, object) {
            (Until::Created, object) => object.is_some(),
            (Until::Deleted { uid }, Some(object)) => {
                !uid.is_empty() && object["metadata"]["uid"].as_str().is_some_and(|other| other != uid)
            }
            (Until::Deleted { .. }, None) => true,
            (_, None) => false,
            (Until::Condition { name, value }, Some(object)) => condition_met(object, name, value),
            (Until::Field { path, value }, Some(object)) => {
                let found = path.values(object).map_err(Failure::of)?;
                match (value, &found[..]) {
                    (_, []) => false,
                    (_, [_, _, ..]) => {
                        return Err(Failure::message("given jsonpath expression matches more than one value"));
                    }
                    (None, [_]) => true,
                    (Some(_), [Value::Object(_) | Value::Array(_)]) => {
                        return Err(Failure::message(
                            "jsonpath leads to a nested object or list which is not supported",
                        ));
                    }
                    (Some(wanted), [value]) => output::custom_columns::shown(value).trim() == wanted.trim(),
                }
            }
        })
    }
}

/// The parts between single `=`.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut rest) = (vec![String::new()], text);
    while let Some(character) = rest.chars().next() {
        let last = parts.len() - 1;
        if let Some(after) = rest.strip_prefix("==") {
            parts[last].push_str("==");
            rest = after;
            continue;
        }
        rest = &rest[character.len_utf8()..];
        if character == '=' { parts.push(String::new()) } else { parts[last].push(character) }
    }
    parts
}

/// A condition counts only for the generation it was made for.
fn condition_met(object: &Value, name: &str, value: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(condition) = conditions
        .iter()
        .find(|condition| condition["type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case(name)))
    else {
        return false;
    };
    let generation = object["metadata"]["generation"].as_i64();
    let observed = condition["observedGeneration"].as_i64().or(object["status"]["observedGeneration"].as_i64());
    if let (Some(generation), Some(observed)) = (generation, observed)
        && observed < generation
    {
        return false;
    }
    condition["status"].as_str().is_some_and(|status| status.eq_ignore_ascii_case(value))
}

async fn run(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let conditions = conditions(&flags.list("for"))?;
    let format = Format::from(flags, false)?;
    let query = Query { chunk: 500, ..Query::from(session) };
    if query.arguments.is_empty() && !query.has_files() {
        return Err(Failure::message(super::NO_RESOURCES));
    }
    let (wanted, mut failures) = session.wanted(&query).await?;
    let selective = flags.on("all") || !query.selector.is_empty() || !query.fields.is_empty();
    if !selective && wanted.iter().any(|wanted| matches!(wanted, Wanted::List(_))) {
        return Err(Failure::message("resource(s) were provided, but no name was specified"));
    }
    let deadline = Deadline::from(flags.seconds("timeout"));
    // All are looked at before the first is waited for: one may go while another is waited for.
    let mut waited_for = Vec::new();
    for wanted in wanted {
        match fetch(session, &query, wanted, &conditions).await {
            Ok(infos) => waited_for.extend(infos),
            Err(failure) => failures.push(failure),
        }
    }
    if waited_for.is_empty() && failures.is_empty() {
        let deleting = conditions.iter().any(|until| matches!(until, Until::Deleted { .. }));
        return if deleting { Ok(()) } else { Err(Failure::message("no matching resources found")) };
    }
    for info in waited_for {
        for until in &conditions {
            match one(session, &info, until, deadline.left()).await {
                // Each condition is told of as it is met; behind one that is not, nobody looks.
                Ok(object) => tell(&format, &info, &object)?,
                Err(failure) => {
                    failures.push(failure);
                    break;
                }
            }
        }
    }
    failure::all(failures)
}

fn conditions(texts: &[String]) -> Result<Vec<Until>> {
    if texts.is_empty() {
        return Err(Failure::message("unrecognized condition: []"));
    }
    texts.iter().map(|text| Until::parse(text)).collect()
}

/// Until when all objects together may be waited for. None stands for a negative limit.
struct Deadline {
    at: Option<tokio::time::Instant>,
    /// A limit of zero looks once.
    once: bool,
}

impl Deadline {
    fn from(seconds: f64) -> Deadline {
        let at = (seconds >= 0.0).then(|| tokio::time::Instant::now() + Duration::from_secs_f64(seconds));
        Deadline { at, once: seconds == 0.0 }
    }

    fn left(&self) -> Option<Duration> {
        let left = self.at?.saturating_duration_since(tokio::time::Instant::now());
        // A limit that others have used up is not one of zero, which only looks once.
        Some(if self.once { left } else { left.max(Duration::from_millis(1)) })
    }
}

/// The objects as they are now, as far as the conditions need them to be there.
async fn fetch(session: &Session, query: &Query, wanted: Wanted, conditions: &[Until]) -> Result<Vec<Info>> {
    let creating = conditions.iter().any(|until| matches!(until, Until::Created));
    let deleting = conditions.iter().any(|until| matches!(until, Until::Deleted { .. }));
    match wanted {
        Wanted::Named { mapping, name } if creating || deleting => {
            let namespace = if mapping.namespaced { session.namespace()?.to_string() } else { String::new() };
            let mut info = Info { mapping, namespace, name, object: Value::Null, source: String::new() };
            if !creating {
                // What is not there is gone already, and nothing needs to be said.
                info.object = match session.send(&Call::get(info.path())).await {
                    Err(failure) if failure.is_not_found() => return Ok(Vec::new()),
                    other => other?,
                };
            }
            Ok(vec![info])
        }
        Wanted::Local(info) if creating || deleting => Ok(vec![info]),
        wanted => session.fetch(query, wanted).await,
    }
}

fn tell(format: &Format, info: &Info, object: &Value) -> Result<()> {
    match format {
        Format::Human { .. } => terminal::outln(&format!("{} condition met", info.shown())),
        Format::Name => terminal::outln(&info.shown()),
        format => terminal::out(&format.text(object)?),
    }
    Ok(())
}

/// Waits for one object and answers with it, as far as it is known. No limit stands for a week.
pub(crate) async fn one(session: &Session, info: &Info, until: &Until, limit: Option<Duration>) -> Result<Value> {
    let limit = limit.unwrap_or(Duration::from_secs(7 * 24 * 3600));
    let waiting = look_and_watch(session, info, until);
    // One look is always taken, whatever the limit.
    match tokio::time::timeout(limit.max(Duration::from_millis(500)), waiting).await {
        Ok(answer) => answer,
        Err(_) if limit.is_zero() => {
            Err(Failure::message(format!("condition not met for {}/{}", info.mapping.plural, info.name)))
        }
        Err(_) if matches!(until, Until::Created) => Err(Failure::message("timed out waiting for the condition")),
        Err(_) => Err(Failure::message(format!(
            "timed out waiting for the condition on {}/{}",
            info.mapping.plural, info.name
        ))),
    }
}

async fn look_and_watch(session: &Session, info: &Info, until: &Until) -> Result<Value> {
    let field = format!("metadata.name={}", info.name);
    loop {
        let list = match session.send(&Call::get(info.collection()).with("fieldSelector", field.as_str())).await {
            Ok(list) => list,
            Err(failure) if failure.is_not_found() && matches!(until, Until::Deleted { .. }) => return Ok(Value::Null),
            Err(failure) => return Err(failure),
        };
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string();
        let items = crate::resource::flatten(list);
        let object = items.first();
        if until.met(object)? {
            return Ok(object.cloned().unwrap_or_default());
        }
        let call = Call::get(info.collection())
            .with("fieldSelector", field.as_str())
            .with("watch", "true")
            .with("resourceVersion", revision);
        let mut events = session.chunks(&call).await?;
        while let Some(event) = events.event().await? {
            let object = &event["object"];
            let met = match event["type"].as_str().unwrap_or_default() {
                "DELETED" => until.met(None)?,
                "ERROR" => break,
                "BOOKMARK" => false,
                _ => until.met(Some(object))?,
            };
            if met {
                return Ok(object.clone());
            }
        }
        // The server ended the watch: look again, but not in a circle.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_are_met_or_not() {
        let pod = json!({
            "metadata": {"uid": "1", "generation": 2},
            "status": {"phase": "Running", "observedGeneration": 2, "conditions": [{"type": "Ready", "status": "True"},
                {"type": "Old", "status": "True", "observedGeneration": 1}], "list": [1, 2]},
        });
        let check = |text: &str, met: bool| {
            let until = Until::parse(text).unwrap_or_else(|failure| panic!("{text}: {}", failure.text()));
            assert_eq!(until.met(Some(&pod)).unwrap_or_else(|failure| panic!("{}", failure.text())), met, "{text}");
        };
        check("condition=Ready", true);
        check("condition=ready=true", true);
        check("condition=Ready=False", false);
        check("condition=Old", false);
        check("condition=None", false);
        check("jsonpath={.status.phase}=Running", true);
        check("jsonpath='{.status.phase}'=Running".replace('\'', "").as_str(), true);
        check("jsonpath={.status.phase}", true);
        check("jsonpath={.status.phase}=Failed", false);
        check("delete", false);
        check("create", true);
        assert!(Until::parse("never").is_err());
        let two = Until::parse("jsonpath={.status.list[*]}=1").unwrap_or_else(|_| panic!());
        assert!(two.met(Some(&pod)).is_err());
    }

    #[test]
    fn paths_and_values_are_parted_by_one_equal_sign() {
        let value = |text: &str| match Until::parse(text).unwrap() {
            Until::Field { value, .. } => value,
            _ => panic!("{text}"),
        };
        assert_eq!(value("jsonpath={.a}=b==c"), Some("b==c".into()));
        assert_eq!(value("jsonpath=.a=b"), Some("b".into()));
        assert_eq!(value("jsonpath={.a}"), None);
        assert_eq!(value("jsonpath={.a}='b'"), Some("b".into()));
        assert_eq!(value(r#"jsonpath={.a}="b"'"#), Some("b".into()));
        assert_eq!(value(r#"jsonpath={.a[?(@.b=="c")].d}"#), None);
        assert_eq!(value(r#"jsonpath={.a[?(@.b=="c")].d}=e"#), Some("e".into()));
        let refused = |text: &str| Until::parse(text).unwrap_err().text();
        let none =
            "jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.readyReplicas}'=3";
        for text in ["jsonpath={.a}=", "jsonpath={.a}=''"] {
            assert_eq!(refused(text), none, "{text}");
        }
        assert!(refused("jsonpath={.a}=b=c").starts_with("jsonpath wait format must be --for=jsonpath="));
    }

    #[test]
    fn values_are_compared_as_go_prints_them() {
        let object = json!({"text": " x ", "number": 3, "yes": true, "map": {"b": 1}, "many": [1, 2]});
        let met = |text: &str| {
            let until =
                Until::parse(&format!("jsonpath={text}")).unwrap_or_else(|failure| panic!("{}", failure.text()));
            until.met(Some(&object)).map_err(|failure| failure.text())
        };
        assert_eq!(met("{.text}=x"), Ok(true));
        assert_eq!(met("{.number}=3"), Ok(true));
        assert_eq!(met("{.number}=3.0"), Ok(false));
        assert_eq!(met("{.yes}=true"), Ok(true));
    }

    #[test]
    fn an_object_of_the_same_name_is_another_one() {
        let until = Until::Deleted { uid: "1".into() };
        let met = |object: Option<Value>| until.met(object.as_ref()).unwrap();
        assert!(met(None) && met(Some(json!({"metadata": {"uid": "2"}}))));
        assert!(!met(Some(json!({"metadata": {"uid": "1"}}))));
        assert!(!Until::Created.met(None).unwrap());
    }

    #[tokio::test]
    async fn a_used_up_limit_is_not_zero() {
        assert_eq!(Deadline::from(-1.0).left(), None);
        assert_eq!(Deadline::from(0.0).left(), Some(Duration::ZERO));
        let used = Deadline { at: Some(tokio::time::Instant::now()), once: false };
        assert_eq!(used.left(), Some(Duration::from_millis(1)));
    }

    #[test]
    fn something_must_be_waited_for() {
        assert_eq!(conditions(&[]).err().map(|failure| failure.text()).unwrap(), "unrecognized condition: []");
        assert_eq!(conditions(&["delete".into(), "condition=Ready".into()]).unwrap().len(), 2);
    }
}
