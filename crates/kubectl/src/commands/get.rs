//! `kubectl get`: tables from the server, or objects in any format; once, or as they change.

use serde_json::{Value, json};

use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output::columns::Columns;
use crate::output::table::{self, Shape};
use crate::output::{self, Format};
use crate::resource::mapping::Mapping;
use crate::resource::select::{FILES, Query, SELECTOR, Wanted, unable};
use crate::session::{Call, Session, TABLE};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "get",
    group: super::BEGINNER,
    short: "Display one or many resources.",
    examples: "kubectl get pods\nkubectl get pods -o wide\nkubectl get deployment/web service/web\nkubectl get pods -l app=web -w",
    usage: "(TYPE[.VERSION][.GROUP] [NAME | -l label] | TYPE[.VERSION][.GROUP]/NAME ...) [flags] [options]",
    flags: &[FLAGS, FILES, SELECTOR, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("all-namespaces", "Look into all namespaces.").short('A'),
    Flag::integer("chunk-size", "500", "How many objects are asked for at once; 0 for all."),
    Flag::text("field-selector", "", "A selector of fields."),
    Flag::switch("ignore-not-found", "An object that is not there is no error."),
    Flag::list("label-columns", "Labels that become columns.").short('L'),
    Flag::switch("no-headers", "No line with the names of columns."),
    Flag::switch("output-watch-events", "Show what happened to each object."),
    Flag::text("raw", "", "A path to ask the server for."),
    Flag::on("server-print", "Let the server make the table."),
    Flag::switch("show-kind", "Name the kind of each object."),
    Flag::switch("show-labels", "A last column with all labels."),
    Flag::text("sort-by", "", "A field to sort by, as a JSONPath."),
    Flag::text("subresource", "", "A subresource to ask for: status, scale."),
    Flag::switch("watch", "Go on with what changes.").short('w'),
    Flag::switch("watch-only", "Only what changes, not what is there."),
];

async fn run(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let query = Query { chunk: flags.integer("chunk-size"), ..Query::from(session) };
    if flags.given("raw") {
        raw_alone(session)?;
        let bytes = session.bytes(&Call::get(flags.text("raw"))).await?;
        terminal::out_bytes(&bytes);
        return Ok(());
    }
    let watching = flags.on("watch") || flags.on("watch-only");
    if flags.on("output-watch-events") && !watching {
        return Err(Failure::message("--output-watch-events option can only be used with --watch or --watch-only"));
    }
    if query.arguments.is_empty() && !query.has_files() {
        terminal::err(
            "You must specify the type of resource to get. Use \"kubectl api-resources\" for a complete list of supported resources.\n\n",
        );
        return session.usage("Required resource not specified.\nUse \"kubectl explain <resource>\" for a detailed description of that resource (e.g. kubectl explain pods).");
    }
    if flags.on("show-labels") && !["", "wide"].contains(&flags.text("output")) {
        let output = flags.text("output");
        return Err(Failure::message(format!("--show-labels option cannot be used with {output} printer")));
    }
    let format = Format::from(flags, true)?;
    if watching {
        return super::watch::run(session, &query, &format).await;
    }
    once(session, &query, &format).await
}

pub(super) async fn once(session: &Session, query: &Query, format: &Format) -> Result<()> {
    if format.is_human() { human(session, query, format).await } else { objects(session, query, format).await }
}

/// A path is asked for as it is: nothing else may be asked for with it.
fn raw_alone(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let no = |text: &str| Err(Failure::message(text));
    if flags.on("watch") || flags.on("watch-only") || flags.given("selector") {
        return no("--raw may not be specified with other flags that filter the server request or alter the output");
    }
    if flags.given("output") {
        return no("--raw and --output are mutually exclusive");
    }
    if !flags.arguments.is_empty() {
        return no("arguments may not be passed when --raw is specified");
    }
    match flags.text("raw") {
        path if path.starts_with('/') || path.contains("://") => Ok(()),
        path => no(&format!("--raw must be a valid URL path: parse {path:?}: invalid URI for request")),
    }
}

/// What the flags say of every table; the kind is added where several are shown.
pub(super) fn shape(session: &Session, format: &Format) -> Shape {
    let flags = &session.flags;
    Shape {
        wide: matches!(format, Format::Human { wide: true }),
        namespace: flags.on("all-namespaces"),
        kind: String::new(),
        labels: flags.on("show-labels"),
        label_columns: flags.list("label-columns"),
        headers: !flags.on("no-headers"),
        events: flags.on("output-watch-events"),
    }
}

async fn human(session: &Session, query: &Query, format: &Format) -> Result<()> {
    let flags = &session.flags;
    let (wanted, mut failures) = session.wanted(query).await?;
    let mappings: Vec<&Mapping> = wanted.iter().map(mapping_of).collect();
    let several = mappings.windows(2).any(|pair| pair[0] != pair[1]) || flags.on("show-kind");
    let mut all_namespaced = !query.all_namespaces;
    let base = shape(session, format);
    let mut written = false;
    let mut group: Option<Group> = None;
    for wanted in wanted {
        let mapping = mapping_of(&wanted).clone();
        all_namespaced &= mapping.namespaced;
        let mut tables = match tables(session, query, &wanted).await {
            Ok(tables) => tables,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        if !flags.text("sort-by").is_empty() {
            // A table that has nothing to sort by is left out, as upstream does.
            tables.retain_mut(|table| super::sort::sort_rows(table, flags.text("sort-by")).is_ok());
        }
        if group.as_ref().is_none_or(|group| group.mapping != mapping) {
            written |= finish(group.take(), written && base.headers);
            let mut shape = base.clone();
            shape.namespace &= mapping.namespaced;
            if several {
                shape.kind = mapping.shown();
            }
            group = Some(Group { mapping, shape, text: String::new() });
        }
        if let Some(group) = &mut group {
            for table in &tables {
                let rows = table["rows"].as_array().map_or(0, Vec::len);
                if rows > 0 {
                    group.text += &table::lines(table, &group.shape, group.text.is_empty(), "");
                }
            }
        }
    }
    written |= finish(group, written && base.headers);
    if flags.on("ignore-not-found") {
        failures.retain(|failure| !failure.is_not_found());
    } else if !written && failures.is_empty() {
        terminal::errln(&if all_namespaced {
            format!("No resources found in {} namespace.", session.namespace()?)
        } else {
            "No resources found".into()
        });
    }
    failure::all(failures)
}

/// Rows of one kind that stand under one header.
struct Group {
    mapping: Mapping,
    shape: Shape,
    text: String,
}

/// Prints a group, after an empty line where something stands before it. Answers whether there was anything.
fn finish(group: Option<Group>, separate: bool) -> bool {
    let Some(group) = group.filter(|group| !group.text.is_empty()) else { return false };
    let text = Columns::table().align(&group.text);
    terminal::out(&if separate { format!("\n{text}") } else { text });
    true
}

pub(super) fn mapping_of(wanted: &Wanted) -> &Mapping {
    match wanted {
        Wanted::Named { mapping, .. } | Wanted::List(mapping) => mapping,
        Wanted::Local(info) => &info.mapping,
    }
}

/// The request that answers with tables, without paging.
pub(super) fn table_call(session: &Session, query: &Query, wanted: &Wanted) -> Result<Call> {
    let mut path = match wanted {
        Wanted::Local(info) => info.path(),
        Wanted::List(mapping) => mapping.collection(&session.scope(query)?),
        Wanted::Named { mapping, name } => {
            if query.all_namespaces && mapping.namespaced {
                return Err(Failure::message("a resource cannot be retrieved by name across all namespaces"));
            }
            mapping.object(session.namespace()?, name)
        }
    };
    if !query.subresource.is_empty() {
        path = format!("{path}/{}", query.subresource);
    }
    if !query.subresource.is_empty() && matches!(wanted, Wanted::List(_)) {
        return Err(Failure::message("subresource cannot be used when bulk resources are specified"));
    }
    let accept = if session.flags.on("server-print") { TABLE } else { crate::session::JSON };
    let mut call = Call::get(path).accept(accept);
    if !session.flags.text("sort-by").is_empty() {
        call = call.with("includeObject", "Object");
    }
    if matches!(wanted, Wanted::List(_)) {
        call = call.with("labelSelector", query.selector.as_str()).with("fieldSelector", query.fields.as_str());
    }
    Ok(call)
}

async fn tables(session: &Session, query: &Query, wanted: &Wanted) -> Result<Vec<Value>> {
    let call = table_call(session, query, wanted)?;
    // What is sorted must be there as a whole.
    let chunk = if session.flags.text("sort-by").is_empty() { query.chunk } else { 0 };
    let mut found = Vec::new();
    let mut next = String::new();
    loop {
        let mut call = call.clone();
        if matches!(wanted, Wanted::List(_)) && chunk > 0 {
            call = call.with("limit", chunk.to_string()).with("continue", next.as_str());
        }
        let answer = match (session.send(&call).await, wanted) {
            (Ok(answer), _) => answer,
            (Err(failure), Wanted::List(mapping)) => return Err(unable(mapping, query, failure)),
            (Err(failure), Wanted::Named { mapping, .. }) => {
                return Err(session.or_no_namespace(mapping, failure).await);
            }
            (Err(failure), _) => return Err(failure),
        };
        next = answer["metadata"]["continue"].as_str().unwrap_or_default().to_string();
        found.push(as_table(answer));
        if next.is_empty() {
            return Ok(found);
        }
    }
}

pub(super) fn as_table(answer: Value) -> Value {
    if answer["kind"] == "Table" {
        return answer;
    }
    table::made(&crate::resource::flatten(answer), jiff::Timestamp::now())
}

async fn objects(session: &Session, query: &Query, format: &Format) -> Result<()> {
    let flags = &session.flags;
    let (wanted, mut failures) = session.wanted(query).await?;
    let single = wanted.len() == 1 && !matches!(wanted[0], Wanted::List(_));
    if !query.subresource.is_empty() && wanted.iter().any(|wanted| matches!(wanted, Wanted::List(_))) {
        return Err(Failure::message("subresource cannot be used when bulk resources are specified"));
    }
    let mut items = Vec::new();
    for wanted in wanted {
        match session.fetch(query, wanted).await {
            Ok(found) => items.extend(found.into_iter().map(|info| info.object)),
            Err(failure) => failures.push(failure),
        }
    }
    if !flags.text("sort-by").is_empty() {
        super::sort::sort_objects(&mut items, flags.text("sort-by"))?;
    }
    if flags.on("ignore-not-found") {
        failures.retain(|failure| !failure.is_not_found());
    }
    if items.is_empty() && (!failures.is_empty() || single) {
        return failure::all(failures);
    }
    let mut object = match items.len() {
        1 if single => items.remove(0),
        _ => json!({"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": ""}}),
    };
    if format.leaves_out_managed_fields() && !flags.on("show-managed-fields") {
        output::without_managed_fields(&mut object);
    }
    terminal::out(&match format {
        Format::CustomColumns(columns) => columns.text(&object, !flags.on("no-headers"))?,
        format => format.text(&object)?,
    });
    failure::all(failures)
}
