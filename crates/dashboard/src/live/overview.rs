//! The overview, whenever something in it changes.

use std::time::Duration;

use futures::FutureExt;
use serde_json::{Value, json};

use super::Context;
use super::list::usages;
use crate::event::time;
use crate::kinds::Kind;
use crate::overview::{LISTS, Listed, overview};
use crate::table::Look;

const PAUSE: Duration = Duration::from_secs(1);
const WARNINGS_MAX: usize = 50;
/// How long the first answer waits for all of its lists.
const FIRST: Duration = Duration::from_secs(3);

pub(super) async fn run(context: Context) {
    let (tables, signed_in) = (&context.dashboard.tables, &context.signed_in);
    let look = |group: &str, version: &str, resource: &str, fields: &str| {
        tables.look(signed_in, &Kind::new(group, version, resource), "", fields)
    };
    let lists: Result<Vec<Look>, _> =
        LISTS.iter().map(|(group, version, resource, _)| look(group, version, resource, "")).collect();
    let (lists, warnings, usage) =
        match (lists, look("", "v1", "events", "type=Warning"), look("metrics.k8s.io", "v1beta1", "nodes", "")) {
            (Ok(lists), Ok(warnings), Ok(usage)) => (lists, warnings, usage),
            (Err(status), ..) | (_, Err(status), _) | (.., Err(status)) => {
                context.fail(&status).await;
                return;
            }
        };
    futures::future::join_all(lists.iter().map(|list| list.settled(FIRST))).await;
    let mut last = Value::Null;
    loop {
        let mut changes: Vec<_> = lists.iter().chain([&warnings, &usage]).map(Look::changes).collect();
        let shown = assemble(&context, &lists, &warnings, &usage).await;
        if shown != last {
            if !context.tell(shown.clone()).await {
                return;
            }
            last = shown;
        }
        tokio::time::sleep(PAUSE).await;
        let any = changes.iter_mut().map(|changes| changes.changed().boxed());
        futures::future::select_all(any).await.0.ok();
    }
}

async fn assemble(context: &Context, lists: &[Look], warnings: &Look, usage: &Look) -> Value {
    let mut forbidden = Vec::new();
    let mut listed = Vec::new();
    for ((group, version, resource, name), look) in LISTS.iter().zip(lists) {
        if look.is_synced() {
            listed.push(Listed { kind: Kind::new(group, version, resource), name, rows: look.rows().1 })
        } else {
            forbidden.push(*resource)
        }
    }
    let mut shown = overview(&listed, &usages(Some(usage)));
    shown["warnings"] = newest_warnings(warnings).into();
    shown["forbidden"] = json!(forbidden);
    // Who may see nodes may know when the servers' certificates end.
    let sees_nodes = listed.iter().any(|list| list.kind.is("", "nodes"));
    shown["certificates"] = if sees_nodes { json!(context.dashboard.certificates()) } else { json!([]) };
    shown["version"] = json!(context.dashboard.config.version);
    shown
}

fn newest_warnings(look: &Look) -> Vec<Value> {
    let (_, rows) = look.rows();
    let mut events: Vec<&Value> = rows.iter().filter_map(|row| row.event()).collect();
    events.sort_by(|one, other| time(other).cmp(time(one)));
    events.truncate(WARNINGS_MAX);
    events.into_iter().cloned().collect()
}
