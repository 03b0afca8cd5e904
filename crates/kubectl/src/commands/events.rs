//! `kubectl events`.

use serde_json::Value;

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
    let namespace = if flags.on("all-namespaces") { String::new() } else { session.namespace()?.to_string() };
    let mut fields = String::new();
    let about = flags.text("for");
    if !about.is_empty() {
        let Some((kind, name)) = about.split_once('/') else {
            return Err(Failure::message("--for must be in resource/name form"));
        };
        let mapping = session.mapping(kind).await?;
        fields = format!("involvedObject.kind={},involvedObject.name={name}", mapping.kind);
        if !mapping.group.is_empty() {
            fields += &format!(",involvedObject.apiVersion={}", mapping.api_version());
        }
    }
    let types = flags.list("types");
    for kind in &types {
        if !["Normal", "Warning"].iter().any(|known| known.eq_ignore_ascii_case(kind)) {
            return Err(Failure::message("valid --types are Normal or Warning"));
        }
    }
    let wanted = |event: &Value| {
        types.is_empty()
            || types.iter().any(|kind| event["type"].as_str().is_some_and(|known| known.eq_ignore_ascii_case(kind)))
    };
    let mapping = session.mapping("events.v1.").await?;
    let query = Query { fields: fields.clone(), chunk: flags.integer("chunk-size"), ..Query::default() };
    let mut events = session.list(&mapping, &namespace, &query).await?;
    events.retain(wanted);
    events.sort_by_key(last_seen);
    let format = Format::from(flags, false)?;
    if events.is_empty() && !flags.on("watch") {
        terminal::errln(&if flags.on("all-namespaces") {
            "No events found.".to_string()
        } else {
            format!("No events found in {namespace} namespace.")
        });
        return Ok(());
    }
    if !format.is_human() {
        let mut list = serde_json::json!({"apiVersion": "v1", "kind": "EventList", "items": events, "metadata": {}});
        if format.leaves_out_managed_fields() && !flags.on("show-managed-fields") {
            crate::output::without_managed_fields(&mut list);
        }
        terminal::out(&format.typed_text(&list)?);
        return Ok(());
    }
    let mut columns = Columns::table();
    let with_namespace = flags.on("all-namespaces");
    let mut text = String::new();
    if !flags.on("no-headers") {
        text += if with_namespace { "NAMESPACE\t" } else { "" };
        text += "LAST SEEN\tTYPE\tREASON\tOBJECT\tMESSAGE\n";
    }
    events.iter().for_each(|event| text += &line(event, with_namespace));
    terminal::out(&columns.align(&text));
    if !flags.on("watch") {
        return Ok(());
    }
    let mut stream = session
        .chunks(&Call::get(mapping.collection(&namespace)).with("fieldSelector", fields).with("watch", "true"))
        .await?;
    let seen: Vec<Value> = events.iter().map(|event| event["metadata"]["resourceVersion"].clone()).collect();
    while let Some(event) = stream.event().await? {
        let object = &event["object"];
        if event["type"] != "DELETED"
            && event["type"] != "BOOKMARK"
            && wanted(object)
            && !seen.contains(&object["metadata"]["resourceVersion"])
        {
            terminal::out(&columns.align(&line(object, with_namespace)));
        }
    }
    Ok(())
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
