//! `kubectl events`.

use serde_json::{Value, json};

use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output::columns::Columns;
use crate::output::{self, Format};
use crate::resource::select::Query;
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "events",
    group: super::OTHER_BASIC,
    short: "List events.",
    examples: "kubectl events\nkubectl events --for pod/web --watch\nkubectl events --types=Warning",
    usage: "[(-o|--output=)json|yaml|...] [--for TYPE/NAME] [--watch] [--types=Normal,Warning] [options]",
    flags: &[FLAGS, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("all-namespaces", "In all namespaces.").short('A'),
    Flag::integer("chunk-size", "500", "How many are asked for at once."),
    Flag::text("for", "", "Only those about this object, as type/name."),
    Flag::switch("no-headers", "No line with the names of columns."),
    Flag::list("types", "Only those of these types."),
    Flag::switch("watch", "Go on with what happens.").short('w'),
];

async fn run(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let namespace = if flags.on("all-namespaces") { "" } else { session.namespace()? };
    let fields = involved(session, flags.text("for")).await?;
    let types = flags.list("types");
    check_types(&types)?;
    let mapping = session.mapping("events.v1.").await?;
    let query = Query { fields: fields.clone(), chunk: flags.integer("chunk-size"), ..Query::default() };
    let mut events = session.list(&mapping, namespace, &query).await?;
    events.retain(|event| is_of(event, &types));
    events.sort_by_key(last_seen);
    let format = Format::from(flags, false)?;
    if events.is_empty() && !flags.on("watch") {
        terminal::errln(&match namespace {
            "" => "No events found.".to_string(),
            namespace => format!("No events found in {namespace} namespace."),
        });
        return Ok(());
    }
    if !format.is_human() {
        let mut list = json!({"apiVersion": "v1", "kind": "EventList", "items": events, "metadata": {}});
        if format.leaves_out_managed_fields() && !flags.on("show-managed-fields") {
            crate::output::without_managed_fields(&mut list);
        }
        terminal::out(&format.typed_text(&list)?);
        return Ok(());
    }
    let mut columns = Columns::table();
    let mut text = if flags.on("no-headers") { String::new() } else { headers(namespace.is_empty()) };
    events.iter().for_each(|event| text += &line(event, namespace.is_empty()));
    terminal::out(&columns.align(&text));
    if !flags.on("watch") {
        return Ok(());
    }
    let call = Call::get(mapping.collection(namespace)).with("fieldSelector", fields).with("watch", "true");
    let mut stream = session.chunks(&call).await?;
    let seen: Vec<Value> = events.iter().map(|event| event["metadata"]["resourceVersion"].clone()).collect();
    while let Some(event) = stream.event().await? {
        let object = &event["object"];
        let told = event["type"] != "DELETED" && event["type"] != "BOOKMARK";
        if told && is_of(object, &types) && !seen.contains(&object["metadata"]["resourceVersion"]) {
            terminal::out(&columns.align(&line(object, namespace.is_empty())));
        }
    }
    Ok(())
}

/// The selector of fields for `--for`.
async fn involved(session: &Session, about: &str) -> Result<String> {
    if about.is_empty() {
        return Ok(String::new());
    }
    let Some((kind, name)) = about.split_once('/') else {
        return Err(Failure::message("--for must be in resource/name form"));
    };
    if name.contains('/') {
        return Err(Failure::message("arguments in resource/name form may not have more than one slash"));
    }
    let mapping = session.mapping(kind).await?;
    let mut fields = format!("involvedObject.kind={},involvedObject.name={name}", mapping.kind);
    if !mapping.group.is_empty() {
        fields += &format!(",involvedObject.apiVersion={}", mapping.api_version());
    }
    Ok(fields)
}

fn check_types(types: &[String]) -> Result<()> {
    let known = |kind: &String| ["Normal", "Warning"].iter().any(|known| known.eq_ignore_ascii_case(kind));
    if types.iter().all(known) { Ok(()) } else { Err(Failure::message("valid --types are Normal or Warning")) }
}

fn is_of(event: &Value, types: &[String]) -> bool {
    let known = event["type"].as_str().unwrap_or_default();
    types.is_empty() || types.iter().any(|kind| known.eq_ignore_ascii_case(kind))
}

fn headers(with_namespace: bool) -> String {
    let namespace = if with_namespace { "NAMESPACE\t" } else { "" };
    format!("{namespace}LAST SEEN\tTYPE\tREASON\tOBJECT\tMESSAGE\n")
}

pub(crate) fn last_seen(event: &Value) -> String {
    let candidates = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    candidates.iter().find_map(|time| time.as_str()).unwrap_or_default().to_string()
}

/// `5s`, or `5s (x3 over 2m)` for what happened more than once.
pub(crate) fn interval(event: &Value) -> String {
    let now = jiff::Timestamp::now();
    let first = event["firstTimestamp"].as_str().or(event["eventTime"].as_str()).unwrap_or_default();
    let count = event["series"]["count"].as_i64().or(event["count"].as_i64()).unwrap_or(1);
    let last = machinery::kind::since(&last_seen(event), now);
    if count > 1 { format!("{last} (x{count} over {})", machinery::kind::since(first, now)) } else { last }
}

fn line(event: &Value, with_namespace: bool) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let about = &event["involvedObject"];
    let mut cells = Vec::new();
    if with_namespace {
        cells.push(text(&event["metadata"]["namespace"]));
    }
    cells.push(interval(event));
    cells.push(text(&event["type"]));
    cells.push(text(&event["reason"]));
    cells.push(format!("{}/{}", text(&about["kind"]), text(&about["name"])));
    cells.push(text(&event["message"]).trim().replace('\n', " "));
    format!("{}\n", cells.join("\t"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_known_in_any_case() {
        assert!(check_types(&["normal".into(), "WARNING".into()]).is_ok());
        assert!(check_types(&["Other".into()]).is_err());
        let event = json!({"type": "Warning"});
        assert!(is_of(&event, &[]) && is_of(&event, &["warning".into()]) && !is_of(&event, &["Normal".into()]));
    }

    #[test]
    fn the_last_time_is_the_newest_that_is_written() {
        let event = json!({"lastTimestamp": "b", "eventTime": "c", "metadata": {"creationTimestamp": "d"}});
        assert_eq!(last_seen(&event), "b");
        assert_eq!(last_seen(&json!({"series": {"lastObservedTime": "a"}, "lastTimestamp": "b"})), "a");
        assert_eq!(last_seen(&json!({"metadata": {"creationTimestamp": "d"}})), "d");
    }

    #[test]
    fn repeated_events_are_counted() {
        let now = jiff::Timestamp::now();
        let ago = |seconds: i64| (now - jiff::SignedDuration::from_secs(seconds)).to_string();
        let once = json!({"lastTimestamp": ago(5), "firstTimestamp": ago(5)});
        assert_eq!(interval(&once), "5s");
        let often = json!({"lastTimestamp": ago(5), "firstTimestamp": ago(300), "count": 3});
        assert_eq!(interval(&often), "5s (x3 over 5m)");
    }

    #[test]
    fn an_event_is_one_line() {
        let event = json!({"metadata": {"namespace": "team"}, "type": "Normal", "reason": "Pulled",
            "involvedObject": {"kind": "Pod", "name": "web"}, "message": " two\nlines "});
        let cells: Vec<String> = line(&event, true).trim_end().split('\t').map(str::to_string).collect();
        assert_eq!((cells[0].as_str(), cells[2].as_str(), cells[3].as_str()), ("team", "Normal", "Pulled"));
        assert_eq!((cells[4].as_str(), cells[5].as_str()), ("Pod/web", "two lines"));
        assert_eq!(headers(true).split('\t').count(), cells.len());
    }
}
