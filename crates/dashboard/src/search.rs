//! Search over everything the user may list: a scan of the shared tables, which are kept for a while after each search so that
//! the next letter is answered from memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Dashboard;
use crate::kinds::{self, Described};
use crate::serve::Query;
use crate::session::SignedIn;
use crate::table::Look;
use crate::table::row::{Field, Row};
use crate::table::view::words;

const LIMIT_MAX: usize = 200;
const LIMIT: usize = 50;
/// How long the first search waits for tables that are not there yet; later ones find them.
const FIRST: Duration = Duration::from_secs(3);
const KINDS_KEPT: Duration = Duration::from_secs(60);
const QUERY_BYTES_MAX: usize = 200;
/// Namespaces that are searched one by one where not all may be listed at once.
const NAMESPACES_MAX: usize = 16;
/// Too many, too short-lived, or shown elsewhere.
const LEFT_OUT: [(&str, &str); 6] = [
    ("", "events"),
    ("events.k8s.io", "events"),
    ("coordination.k8s.io", "leases"),
    ("", "componentstatuses"),
    ("", "endpoints"),
    ("apps", "controllerrevisions"),
];

/// What discovery said, and when.
type Known = (Arc<Vec<Described>>, Instant);

/// Which kinds there are, by session.
#[derive(Default)]
pub(crate) struct Kinds {
    known: Mutex<HashMap<String, Known>>,
}

impl Kinds {
    async fn of(&self, signed_in: &SignedIn) -> Result<Arc<Vec<Described>>, Status> {
        if let Some((kinds, at)) = self.known.lock().get(&signed_in.session.id)
            && at.elapsed() < KINDS_KEPT
        {
            return Ok(kinds.clone());
        }
        let kinds = Arc::new(kinds::all(&signed_in.client).await?);
        let mut known = self.known.lock();
        known.retain(|_, (_, at)| at.elapsed() < KINDS_KEPT);
        known.insert(signed_in.session.id.clone(), (kinds.clone(), Instant::now()));
        Ok(kinds)
    }
}

pub(crate) async fn answer(dashboard: &Dashboard, signed_in: &SignedIn, query: &Query) -> Result<Value, Status> {
    let began = Instant::now();
    let text = query.get("q");
    if text.len() > QUERY_BYTES_MAX {
        return Err(Status::bad_request(format!("a search has at most {QUERY_BYTES_MAX} bytes")));
    }
    let limit = query.get("limit").parse().unwrap_or(LIMIT).min(LIMIT_MAX);
    let kinds = dashboard.kinds.of(signed_in).await?;
    let searched = kinds.iter().filter(|one| {
        let left_out = LEFT_OUT.iter().any(|(group, resource)| one.names.is(group, resource));
        one.has("list") && one.has("watch") && !left_out
    });
    let mut looks = Vec::new();
    for one in searched {
        looks.push((one, dashboard.tables.look(signed_in, &one.names, "", "")?));
    }
    futures::future::join_all(looks.iter().map(|(_, look)| look.settled(FIRST))).await;
    let namespaces = namespaces(signed_in, query);
    let refused: Vec<&Described> =
        looks.iter().filter(|(one, look)| one.namespaced && is_forbidden(look)).map(|(one, _)| *one).collect();
    let mut narrow = Vec::new();
    for one in refused {
        for namespace in &namespaces {
            narrow.push((one, dashboard.tables.look(signed_in, &one.names, namespace, "")?));
        }
    }
    futures::future::join_all(narrow.iter().map(|(_, look)| look.settled(FIRST))).await;
    looks.extend(narrow);
    let words = words(text);
    let mut found = Vec::new();
    for (one, look) in &looks {
        let (_, rows) = look.rows();
        found.extend(rows.into_iter().filter_map(|row| Some((rank(&row, &words)?, *one, row))));
    }
    let total = found.len();
    best(&mut found, limit);
    let results: Vec<Value> =
        found.iter().map(|(rank, one, row)| shown(row, one, matched(row, *rank, &words))).collect();
    // A list that nobody may see is no reason to say that something is missing.
    let complete = looks.iter().all(|(_, look)| look.is_synced() || look.problem().is_some());
    Ok(json!({
        "took_ms": began.elapsed().as_millis() as u64, "results": results, "total": total, "complete": complete,
    }))
}

fn is_forbidden(look: &Look) -> bool {
    look.problem().is_some_and(|status| status.code == 403)
}

/// Where somebody who may not list a kind everywhere may do so perhaps: the account's own, and what the page knows of.
fn namespaces(signed_in: &SignedIn, query: &Query) -> Vec<String> {
    let account = signed_in.user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split(':').next());
    let mut all: Vec<String> = account.into_iter().chain(query.all("namespace")).map(str::to_owned).collect();
    all.retain(|name| !name.is_empty());
    all.sort();
    all.dedup();
    all.truncate(NAMESPACES_MAX);
    all
}

/// Where the words were found. Small is good: the name itself, then how it begins, then what it holds, then everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Name,
    NameBegins,
    NameHolds,
    Label,
    Text,
    /// A cell, the namespace, or words in different places.
    Elsewhere,
}

fn rank(row: &Row, words: &[String]) -> Option<Rank> {
    let first = words.first()?;
    if !words.iter().all(|word| row.lower.contains(word.as_str())) {
        return None;
    }
    // All that can be found of a row begins with its name.
    let name = row.lower.lines().next().unwrap_or_default();
    if words.iter().all(|word| name.contains(word.as_str())) {
        return Some(if name == first {
            Rank::Name
        } else if name.starts_with(first.as_str()) {
            Rank::NameBegins
        } else {
            Rank::NameHolds
        });
    }
    Some(match (label(row, first), text_with(row, first)) {
        (Some(_), _) => Rank::Label,
        (None, Some(_)) => Rank::Text,
        (None, None) => Rank::Elsewhere,
    })
}

fn label(row: &Row, word: &str) -> Option<String> {
    let mut labels = row.labels.iter().map(|(key, value)| format!("{key}={value}"));
    labels.find(|label| label.to_lowercase().contains(word))
}

fn text_with<'a>(row: &'a Row, word: &str) -> Option<&'a (Field, String)> {
    row.texts.iter().find(|(_, text)| text.to_lowercase().contains(word))
}

type Found<'a> = (Rank, &'a Described, Arc<Row>);

/// Only what is shown is sorted: a common word is found in everything.
fn best(found: &mut Vec<Found>, limit: usize) {
    let order = |(rank, kind, row): &Found, (other_rank, other_kind, other): &Found| {
        rank.cmp(other_rank).then_with(|| (&kind.kind, &row.name).cmp(&(&other_kind.kind, &other.name)))
    };
    if limit < found.len() {
        found.select_nth_unstable_by(limit, order);
        found.truncate(limit);
    }
    found.sort_by(order);
}

/// The field and its text, as they are shown.
fn matched(row: &Row, rank: Rank, words: &[String]) -> (Field, String) {
    let first = words.first().map(String::as_str).unwrap_or_default();
    let found = match rank {
        Rank::Label => label(row, first).map(|label| (Field::Label, label)),
        Rank::Text => text_with(row, first).cloned(),
        Rank::Name | Rank::NameBegins | Rank::NameHolds | Rank::Elsewhere => None,
    };
    found.unwrap_or_else(|| (Field::Name, row.name.clone()))
}

fn shown(row: &Row, one: &Described, (field, text): (Field, String)) -> Value {
    json!({
        "kind": one.kind, "group": one.names.group, "version": one.names.version, "resource": one.names.resource,
        "namespace": row.namespace, "name": row.name, "health": row.health, "field": field, "match": text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kind;

    fn row(name: &str, app: &str, image: &str) -> Arc<Row> {
        let object = json!({"metadata": {"name": name, "namespace": "shop", "labels": {"app": app}},
            "spec": {"containers": [{"image": image}]}, "status": {"podIP": "10.0.0.9"}});
        Arc::new(Row::new(&Kind::new("", "v1", "pods"), &object, Vec::new()))
    }

    #[test]
    fn names_come_first_and_everything_is_found() {
        let row = row("web-1", "front", "registry.example/nginx:1.27");
        let check = |text: &str, expected: Option<(Rank, Field)>| {
            let words = words(text);
            let found = rank(&row, &words).map(|rank| (rank, matched(&row, rank, &words).0));
            assert_eq!(found, expected, "{text}");
        };
        check("WEB-1", Some((Rank::Name, Field::Name)));
        check("web", Some((Rank::NameBegins, Field::Name)));
        check("1", Some((Rank::NameHolds, Field::Name)));
        check("app=front", Some((Rank::Label, Field::Label)));
        check("nginx", Some((Rank::Text, Field::Image)));
        check("10.0.0.9", Some((Rank::Text, Field::Address)));
        check("web nginx", Some((Rank::Elsewhere, Field::Name)));
        check("shop", Some((Rank::Elsewhere, Field::Name)));
        check("mysql", None);
        check("", None);
    }

    fn pods() -> Described {
        Described {
            names: Kind::new("", "v1", "pods"),
            kind: "Pod".into(),
            namespaced: true,
            verbs: vec![],
            short_names: vec![],
            categories: vec![],
            custom: false,
        }
    }

    #[test]
    fn ten_thousand_objects_are_searched_in_no_time() {
        let rows: Vec<Arc<Row>> = (0..10_000).map(|number| row(&format!("web-{number}"), "front", "nginx")).collect();
        let kind = pods();
        let check = |text: &str, expected: (usize, &str)| {
            let words = words(text);
            let began = std::time::Instant::now();
            let found = rows.iter().filter_map(|row| Some((rank(row, &words)?, &kind, row.clone())));
            let mut found: Vec<Found> = found.collect();
            let total = found.len();
            best(&mut found, 50);
            assert_eq!((total, found[0].2.name.as_str(), found.len()), (expected.0, expected.1, 50));
            // Without optimisation and beside other tests; the bound for users is 50 ms.
            assert!(began.elapsed() < Duration::from_secs(2), "{text}: {:?}", began.elapsed());
        };
        check("web-99 nginx", (111, "web-99"));
        check("web", (10_000, "web-0"));
        check("nginx", (10_000, "web-0"));
    }
}
