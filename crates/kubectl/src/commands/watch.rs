//! `kubectl get -w`: what is there, then what changes, until the server or the user has had enough.

use serde_json::{Value, json};

use super::get::{as_table, mapping_of, shape, table_call};
use crate::failure::{Failure, Result};
use crate::output::columns::Columns;
use crate::output::{self, Format, table};
use crate::resource::select::{Query, Wanted};
use crate::session::{Call, Session};
use crate::terminal;

pub(crate) async fn run(session: &Session, query: &Query, format: &Format) -> Result<()> {
    let watching = watch(session, query, format);
    match session.request_timeout()? {
        // The timeout is how long to watch, and its end is no failure.
        Some(limit) => tokio::time::timeout(limit, watching).await.unwrap_or(Ok(())),
        None => watching.await,
    }
}

async fn watch(session: &Session, query: &Query, format: &Format) -> Result<()> {
    let (wanted, failures) = session.wanted(query).await?;
    crate::failure::all(failures)?;
    let [wanted] = &wanted[..] else {
        if wanted.windows(2).any(|pair| mapping_of(&pair[0]) != mapping_of(&pair[1])) {
            return Err(Failure::message("you may only specify a single resource type"));
        }
        // Several of one kind are shown once before it is said that they cannot be watched.
        super::get::once(session, query, format).await?;
        return Err(Failure::message("you may only watch a single resource or type of resource at a time"));
    };
    if !session.flags.text("sort-by").is_empty() {
        terminal::errln("warning: --watch requested, --sort-by will be ignored for watch events received");
    }
    let mapping = mapping_of(wanted).clone();
    let mut call = table_call(session, query, wanted)?;
    if !format.is_human() {
        call.accept = crate::session::JSON;
    }
    let first = session.send(&call).await?;
    let revision = first["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string();
    let mut shape = shape(session, format);
    shape.namespace &= mapping.namespaced;
    let mut printer =
        Printer { session, format, shape, columns: Columns::table(), definitions: Value::Null, header: false };
    if session.flags.on("watch-only") {
        if format.is_human() {
            printer.definitions = as_table(first)["columnDefinitions"].clone();
        }
    } else {
        printer.print("ADDED", first)?;
    }
    let mut watch = match wanted {
        Wanted::List(_) => call.clone(),
        Wanted::Named { name, .. } => on_collection(session, &mapping, name, &call)?,
        Wanted::Local(info) => on_collection(session, &mapping, &info.name, &call)?,
    };
    watch = watch.with("watch", "true").with("resourceVersion", revision);
    let mut events = session.chunks(&watch).await?;
    while let Some(mut event) = events.event().await? {
        let kind = event["type"].as_str().unwrap_or_default().to_string();
        match kind.as_str() {
            "BOOKMARK" => {}
            "ERROR" => return Err(Failure::status(event["object"].take())),
            kind => printer.print(kind, event["object"].take())?,
        }
    }
    Ok(())
}

fn on_collection(
    session: &Session,
    mapping: &crate::resource::mapping::Mapping,
    name: &str,
    like: &Call,
) -> Result<Call> {
    let path = mapping.collection(session.namespace()?);
    Ok(Call::get(path).accept(like.accept).with("fieldSelector", format!("metadata.name={name}")))
}

struct Printer<'a> {
    session: &'a Session,
    format: &'a Format,
    shape: table::Shape,
    columns: Columns,
    /// Only the first table of a watch names its columns.
    definitions: Value,
    header: bool,
}

impl Printer<'_> {
    fn print(&mut self, event: &str, object: Value) -> Result<()> {
        if self.format.is_human() {
            let mut table = as_table(object);
            if table["columnDefinitions"].as_array().is_some_and(|columns| !columns.is_empty()) {
                self.definitions = table["columnDefinitions"].clone();
            } else {
                table["columnDefinitions"] = self.definitions.clone();
            }
            if table["rows"].as_array().is_none_or(Vec::is_empty) {
                return Ok(());
            }
            let text = table::lines(&table, &self.shape, !self.header, event);
            self.header = true;
            terminal::out(&self.columns.align(&text));
            return Ok(());
        }
        for mut object in crate::resource::flatten(object) {
            if self.format.leaves_out_managed_fields() && !self.session.flags.on("show-managed-fields") {
                output::without_managed_fields(&mut object);
            }
            if self.shape.events && !matches!(self.format, Format::Name) {
                object = json!({"type": event, "object": object});
            }
            let text = match self.format {
                Format::CustomColumns(columns) => {
                    let header = self.shape.headers && !self.header;
                    self.header = true;
                    columns.text(&object, header)?
                }
                Format::Yaml if self.header => format!("---\n{}", self.format.text(&object)?),
                format => format.text(&object)?,
            };
            self.header = true;
            terminal::out(&text);
        }
        Ok(())
    }
}
