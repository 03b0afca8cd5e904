//! Keeps a table up to date: list in pages, watch from there, begin again when that ends. A refusal is told and asked again.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use http::{HeaderValue, Method};
use machinery::status::Status;
use serde_json::Value;

use super::page::{Event, Keyed, Page, Slim};
use super::{ROWS_MAX, Table};

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
    if table.kind.group == MEASUREMENTS { HeaderValue::from_static("application/json") } else { TABLE }
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
        let mut page: Page =
            crate::ask::ask_for(client, Method::GET, &format!("{path}?{query}"), accept(table), None).await?;
        if columns.is_empty() {
            columns = page.columns();
        }
        let revision = page.list_revision().to_string();
        next = page.next().to_string();
        let page_rows = page.into_rows(&table.kind);
        if !next.is_empty() {
            table.show_first(&columns, &page_rows)?;
        }
        rows.extend(page_rows);
        if rows.len() > ROWS_MAX {
            return Err(Status::too_large(format!("this list has more than {ROWS_MAX} objects: choose a namespace")));
        }
        if next.is_empty() {
            table.replace(columns, rows)?;
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
        apply(table, &line, revision)?;
    }
    Ok(())
}

fn apply(table: &Table, line: &[u8], revision: &mut String) -> Result<(), Status> {
    let broken = |error: serde_json::Error| Status::unavailable(format!("the watch sent no JSON: {error}"));
    let event: Event = serde_json::from_slice(line).map_err(broken)?;
    if event.kind == "ERROR" {
        let said: Value = serde_json::from_str(event.object.get()).map_err(broken)?;
        let code = said["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
        return Err(Status::new(code, "Expired", said["message"].as_str().unwrap_or_default()));
    }
    let (seen, rows) = told(table, event.object.get()).map_err(broken)?;
    if !seen.is_empty() {
        *revision = seen;
    }
    match event.kind.as_str() {
        "BOOKMARK" => {}
        "ADDED" | "MODIFIED" => table.put(rows),
        "DELETED" => table.remove(&rows),
        // A server that answers a watch with a list cannot watch.
        _ => return Err(Status::method_not_allowed()),
    }
    Ok(())
}

/// The revision and the rows of an event: a table, or the object itself from a server that prints none.
fn told(table: &Table, text: &str) -> Result<(String, Vec<Keyed>), serde_json::Error> {
    if let Ok(page) = serde_json::from_str::<Page>(text)
        && page.is_table()
    {
        return Ok((page.revision().to_string(), page.into_rows(&table.kind)));
    }
    let object: Slim = serde_json::from_str(text)?;
    let revision = object.0["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string();
    let row = object.into_row(&table.kind);
    Ok((revision, vec![(row.key(), Arc::new(row))]))
}
