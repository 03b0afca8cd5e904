//! Keeps a table up to date: list in pages, watch from there, begin again when that ends. A refusal is told and asked again.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use http::{HeaderValue, Method};
use machinery::status::Status;
use serde_json::{Value, json};

use super::row::{Column, Row, each};
use super::{ROWS_MAX, Table};
use crate::kinds::Kind;

const TABLE: HeaderValue = HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
/// What nobody can watch.
const MEASUREMENTS: &str = "metrics.k8s.io";
const PAGE: usize = 500;
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Kinds that cannot be watched are listed so often.
const POLL: Duration = Duration::from_secs(15);
/// No event is longer: objects are at most 3 MiB, told once as an object and once as cells.
const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Measurements are printed for people; here their numbers are wanted.
fn accept(table: &Table) -> HeaderValue {
    match table.kind.group == MEASUREMENTS {
        true => HeaderValue::from_static("application/json"),
        false => TABLE,
    }
}

/// Never ends by itself.
pub(super) async fn follow(client: &kube::Client, table: &Table) {
    let mut retry = RETRY_FIRST;
    loop {
        match list_and_watch(client, table).await {
            // A watch ends now and then; that is no failure.
            Ok(()) => retry = RETRY_FIRST,
            Err(status) if status.code == 410 => retry = RETRY_FIRST,
            Err(status) => {
                table.fail(status);
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(RETRY_MAX);
            }
        }
    }
}

async fn list_and_watch(client: &kube::Client, table: &Table) -> Result<(), Status> {
    let mut revision = list(client, table).await?;
    if table.kind.group == MEASUREMENTS {
        tokio::time::sleep(POLL).await;
        return Ok(());
    }
    loop {
        match watch(client, table, &mut revision).await {
            Err(status) if matches!(status.code, 404 | 405) => {
                tokio::time::sleep(POLL).await;
                return Ok(());
            }
            Err(status) => return Err(status),
            // The server ends watches after a while; the next one begins where this one was.
            Ok(()) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn list(client: &kube::Client, table: &Table) -> Result<String, Status> {
    let path = crate::ask::path(&table.kind, &table.namespace, "");
    let (mut columns, mut rows) = (Vec::new(), BTreeMap::new());
    let mut next = String::new();
    loop {
        let query = crate::ask::query(&[
            ("limit", &PAGE.to_string()),
            ("includeObject", "Object"),
            ("fieldSelector", &table.fields),
            ("continue", &next),
        ]);
        let page = crate::ask::ask(client, Method::GET, &format!("{path}?{query}"), accept(table), None).await?;
        if columns.is_empty() {
            columns = columns_of(&page);
        }
        let page_rows: Vec<(String, Arc<Row>)> =
            rows_of(&table.kind, &page).map(|row| (row.key(), Arc::new(row))).collect();
        next = page["metadata"]["continue"].as_str().unwrap_or_default().to_string();
        if !next.is_empty() {
            table.show_first(&columns, &page_rows);
        }
        rows.extend(page_rows);
        if rows.len() > ROWS_MAX {
            return Err(Status::too_large(format!("this list has more than {ROWS_MAX} objects: choose a namespace")));
        }
        if next.is_empty() {
            let revision = page["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string();
            table.change(|state| {
                state.columns = Arc::new(columns);
                state.rows = rows;
                state.synced = true;
                state.problem = None;
            });
            return Ok(revision);
        }
    }
}

async fn watch(client: &kube::Client, table: &Table, revision: &mut String) -> Result<(), Status> {
    let path = crate::ask::path(&table.kind, &table.namespace, "");
    let query = crate::ask::query(&[
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("includeObject", "Object"),
        ("resourceVersion", revision),
        ("fieldSelector", &table.fields),
    ]);
    let answer = crate::ask::send(client, Method::GET, &format!("{path}?{query}"), accept(table), None).await?;
    let mut lines = pin!(crate::body::lines(answer.into_body(), EVENT_BYTES_MAX));
    while let Some(line) = lines.next().await {
        let line = line.map_err(|error| Status::unavailable(format!("the watch broke: {error}")))?;
        let event: Value = serde_json::from_slice(&line)
            .map_err(|error| Status::unavailable(format!("the watch sent no JSON: {error}")))?;
        apply(table, &event, revision)?;
    }
    Ok(())
}

fn apply(table: &Table, event: &Value, revision: &mut String) -> Result<(), Status> {
    let object = &event["object"];
    let kind = event["type"].as_str().unwrap_or_default();
    if kind == "ERROR" {
        let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
        return Err(Status::new(code, "Expired", object["message"].as_str().unwrap_or_default()));
    }
    let newest = |object: &Value| object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    let first = each(&object["rows"]).next().map(|row| &row["object"]);
    if let Some(seen) = first.and_then(newest).or_else(|| newest(object)).filter(|seen| !seen.is_empty()) {
        *revision = seen;
    }
    match kind {
        "BOOKMARK" => return Ok(()),
        "ADDED" | "MODIFIED" | "DELETED" => {}
        // A server that answers a watch with a list cannot watch.
        _ => return Err(Status::method_not_allowed()),
    }
    let rows: Vec<Row> = match object["kind"] == "Table" {
        true => rows_of(&table.kind, object).collect(),
        false => vec![plain(&table.kind, object)],
    };
    table.change(|state| {
        for row in rows {
            match kind {
                "DELETED" => _ = state.rows.remove(&row.key()),
                _ if state.rows.len() < ROWS_MAX => _ = state.rows.insert(row.key(), Arc::new(row)),
                _ => state.problem = Some(Status::too_large(format!("this list has more than {ROWS_MAX} objects"))),
            }
        }
    });
    Ok(())
}

fn columns_of(page: &Value) -> Vec<Column> {
    if page["kind"] != "Table" {
        let column =
            |name: &str| Column { name: name.into(), kind: "string".into(), priority: 0, description: String::new() };
        return vec![column("Name"), column("Age")];
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    each(&page["columnDefinitions"])
        .map(|column| Column {
            name: text(&column["name"]),
            kind: text(&column["type"]),
            priority: column["priority"].as_i64().unwrap_or(0),
            description: text(&column["description"]),
        })
        .collect()
}

/// A server that prints no tables answers with the objects themselves.
fn rows_of<'a>(kind: &'a Kind, page: &'a Value) -> impl Iterator<Item = Row> + 'a {
    let printed = each(&page["rows"]).map(move |row| {
        let cells = row["cells"].as_array().cloned().unwrap_or_default();
        Row::new(kind, &row["object"], cells)
    });
    printed.chain(each(&page["items"]).map(move |object| plain(kind, object)))
}

fn plain(kind: &Kind, object: &Value) -> Row {
    let meta = &object["metadata"];
    Row::new(kind, object, vec![json!(meta["name"]), json!(meta["creationTimestamp"])])
}
