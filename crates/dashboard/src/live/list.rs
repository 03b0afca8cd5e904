//! A virtual list: only the window that is looked at is sent, and only when it is another.

use std::sync::Arc;
use std::time::Duration;

use machinery::selector::LabelSelector;
use machinery::status::Status;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Asked, Context};
use crate::kinds::Kind;
use crate::table::Look;
use crate::table::row::{Facts, Row};
use crate::table::view::{Usages, Wanted, view, words};

/// At most so often a window is sent.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn run(context: Context, mut wanted: watch::Receiver<Asked>) {
    loop {
        let asked = wanted.borrow_and_update().clone();
        match follow(&context, asked, &mut wanted).await {
            Ok(Ended::Other) => {}
            Ok(Ended::Gone) => return,
            Err(status) => {
                // What cannot be shown waits until something else is asked for.
                if !context.fail(&status).await || wanted.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

enum Ended {
    /// Another list is asked for under the same number.
    Other,
    /// The page is.
    Gone,
}

async fn follow(context: &Context, mut asked: Asked, wanted: &mut watch::Receiver<Asked>) -> Result<Ended, Status> {
    let tables = &context.dashboard.tables;
    let look = tables.look(&context.signed_in, &asked.resource, &asked.namespace, &asked.fields)?;
    let usage = usage_of(&asked.resource)
        .map(|kind| tables.look(&context.signed_in, &kind, &asked.namespace, ""))
        .transpose()?;
    let mut changes = look.changes();
    let mut usage_changes = usage.as_ref().map(Look::changes);
    let mut said = Said::default();
    loop {
        let labels =
            LabelSelector::parse(&asked.labels).map_err(|why| Status::bad_request(format!("labels: {why}")))?;
        changes.mark_unchanged();
        for frame in said.next(&look, usage.as_ref(), &asked, labels) {
            if !context.tell(frame).await {
                return Ok(Ended::Gone);
            }
        }
        let pause = Instant::now() + PAUSE;
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return Ok(Ended::Other) },
            () = changed(&mut usage_changes) => {}
            changed = wanted.changed() => {
                if changed.is_err() {
                    return Ok(Ended::Gone);
                }
                let next = wanted.borrow_and_update().clone();
                let same = |one: &Asked| (one.resource.clone(), one.namespace.clone(), one.fields.clone());
                if same(&next) != same(&asked) {
                    return Ok(Ended::Other);
                }
                asked = next;
                // Who scrolls does not wait.
                continue;
            }
        }
        sleep_until(pause).await;
    }
}

async fn changed(receiver: &mut Option<watch::Receiver<u64>>) {
    if let Some(receiver) = receiver
        && receiver.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Where the usage of a kind's objects is told.
fn usage_of(kind: &Kind) -> Option<Kind> {
    let known = kind.group.is_empty() && matches!(kind.resource.as_str(), "pods" | "nodes");
    known.then(|| Kind::new("metrics.k8s.io", "v1beta1", &kind.resource))
}

pub(super) fn usages(look: Option<&Look>) -> Usages {
    look.map(|look| look.rows().1).unwrap_or_default().into_iter().filter_map(used).collect()
}

fn used(row: Arc<Row>) -> Option<(String, (f64, f64))> {
    match row.facts {
        Facts::Usage { cpu, memory } => Some((row.key(), (cpu, memory))),
        _ => None,
    }
}

/// What the page was told last.
#[derive(Default)]
struct Said {
    columns: Option<Value>,
    window: Option<Value>,
    problem: Option<Status>,
}

impl Said {
    fn next(&mut self, look: &Look, usage: Option<&Look>, asked: &Asked, labels: LabelSelector) -> Vec<Value> {
        let mut frames = Vec::new();
        let problem = look.problem();
        if problem != self.problem {
            // A list that was shown stays on the page while it is out of date.
            frames.extend(match (&problem, look.is_synced()) {
                (Some(status), false) => Some(json!({"error": status.to_value()})),
                (Some(_), true) => Some(json!({"state": "disconnected"})),
                (None, _) => Some(json!({"state": "connected"})),
            });
            self.problem = problem;
        }
        let complete = look.is_synced();
        let (columns, rows) = look.rows();
        if !complete && rows.is_empty() {
            return frames;
        }
        let by_usage = asked
            .sort
            .as_ref()
            .is_some_and(|sort| ["cpu", "memory"].iter().any(|name| sort.column.eq_ignore_ascii_case(name)));
        let mut usages = if by_usage { usages(usage) } else { Usages::new() };
        let wanted = Wanted {
            labels,
            words: words(&asked.text),
            sort: asked.sort.clone(),
            from: asked.from,
            count: asked.count,
        };
        let window = view(&rows, &columns, &usages, &wanted);
        if let Some(look) = usage.filter(|_| !by_usage) {
            usages = look.find(window.rows.iter().map(|row| row.key())).filter_map(used).collect();
        }
        let shown: Vec<Value> = window.rows.iter().map(|row| row.shown(usages.get(&row.key()).copied())).collect();
        let mut frame = json!({
            "total": rows.len(), "matching": window.matching, "from": window.from, "rows": shown, "complete": complete,
        });
        let columns = json!(*columns);
        let other_columns = self.columns.as_ref() != Some(&columns);
        if !other_columns && self.window.as_ref() == Some(&frame) {
            return frames;
        }
        self.window = Some(frame.clone());
        if other_columns {
            frame["columns"] = columns.clone();
            self.columns = Some(columns);
        }
        frames.push(frame);
        frames
    }
}
