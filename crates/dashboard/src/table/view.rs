//! From all rows to those that are looked at: filter, sort, window. Pure.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use machinery::selector::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

use super::row::{Column, Row};

/// The most rows that are sent at once.
pub(crate) const COUNT_MAX: usize = 200;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Sort {
    pub column: String,
    #[serde(default)]
    pub descending: bool,
}

/// What somebody wants to see of a list.
pub(crate) struct Wanted {
    pub labels: LabelSelector,
    /// In small letters; a row has each of them somewhere.
    pub words: Vec<String>,
    pub sort: Option<Sort>,
    pub from: usize,
    pub count: usize,
}

pub(crate) struct Window {
    pub matching: usize,
    pub from: usize,
    pub rows: Vec<Arc<Row>>,
}

/// Cores and bytes, by namespace and name.
pub(crate) type Usages = HashMap<String, (f64, f64)>;

pub(crate) fn words(text: &str) -> Vec<String> {
    text.to_lowercase().split_whitespace().map(str::to_owned).collect()
}

/// `rows` are sorted by namespace and name already.
pub(crate) fn view(rows: &[Arc<Row>], columns: &[Column], usages: &Usages, wanted: &Wanted) -> Window {
    let all = wanted.labels.matches_everything();
    let labelled = |row: &Row| all || wanted.labels.matches(|key| row.labels.get(key).map(String::as_str));
    let has_words = |row: &Row| wanted.words.iter().all(|word| row.lower.contains(word.as_str()));
    let mut matching: Vec<&Arc<Row>> = rows.iter().filter(|row| labelled(row) && has_words(row)).collect();
    match &wanted.sort {
        Some(sort) => order(&mut matching, columns, usages, sort),
        None => newest_first(&mut matching),
    }
    // A window behind the end, because rows have gone, shows the last ones.
    let count = wanted.count.min(COUNT_MAX);
    let from = wanted.from.min(matching.len().saturating_sub(count.min(matching.len())));
    let rows = matching.iter().skip(from).take(count).map(|row| Arc::clone(row)).collect();
    Window { matching: matching.len(), from, rows }
}

/// Events are read from the last one on. Everything else stays in the order of its names.
fn newest_first(rows: &mut [&Arc<Row>]) {
    if rows.first().is_some_and(|row| row.event().is_some()) {
        rows.sort_by(|one, other| other.seen().cmp(one.seen()));
    }
}

fn order(rows: &mut [&Arc<Row>], columns: &[Column], usages: &Usages, sort: &Sort) {
    let name = sort.column.to_ascii_lowercase();
    let by_usage = |row: &Row| usages.get(&row.key()).copied().unwrap_or_default();
    let position = columns.iter().position(|column| column.name.eq_ignore_ascii_case(&name));
    let compare = |one: &Row, other: &Row| match name.as_str() {
        "name" => natural(&one.name, &other.name),
        "namespace" => natural(&one.namespace, &other.namespace),
        // The younger has the smaller age, and the later time.
        "age" => other.created.cmp(&one.created),
        // What the server printed says how long ago it was then.
        "last seen" if one.event().is_some() => other.seen().cmp(one.seen()),
        "health" => one.health.cmp(&other.health),
        "cpu" => by_usage(one).0.total_cmp(&by_usage(other).0),
        "memory" => by_usage(one).1.total_cmp(&by_usage(other).1),
        _ => match position {
            Some(position) => cells(one.cells.get(position), other.cells.get(position)),
            None => Ordering::Equal,
        },
    };
    // Stable: equal rows stay in the order of their names.
    rows.sort_by(|one, other| {
        let ordering = compare(one, other);
        if sort.descending { ordering.reverse() } else { ordering }
    });
}

fn cells(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    match (one, other) {
        (Some(Value::Number(one)), Some(Value::Number(other))) => {
            one.as_f64().unwrap_or(0.0).total_cmp(&other.as_f64().unwrap_or(0.0))
        }
        (Some(Value::String(one)), Some(Value::String(other))) => natural(one, other),
        (one, other) => {
            let text = |value: Option<&Value>| value.map(ToString::to_string).unwrap_or_default();
            natural(&text(one), &text(other))
        }
    }
}

/// Digits count as numbers: `web-2` is before `web-10`, `0/1` before `1/1`.
pub(crate) fn natural(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one.as_bytes(), other.as_bytes());
    while let (Some(a), Some(b)) = (left.first(), right.first()) {
        let ordering = if a.is_ascii_digit() && b.is_ascii_digit() {
            let (x, y) = (number(&mut left), number(&mut right));
            x.len().cmp(&y.len()).then_with(|| x.cmp(y))
        } else {
            (left, right) = (&left[1..], &right[1..]);
            a.cmp(b)
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    left.len().cmp(&right.len())
}

/// Takes the digits at the front, without the zeros before them.
fn number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    let zeros = digits.iter().take_while(|byte| **byte == b'0').count();
    &digits[zeros.min(digits.len().saturating_sub(1))..]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Kind;

    fn rows() -> Vec<Arc<Row>> {
        let kind = Kind::new("", "v1", "pods");
        let row = |name: &str, app: &str, ready: &str, created: &str| {
            let object = json!({"metadata": {"name": name, "namespace": "a", "labels": {"app": app}, "creationTimestamp": created}});
            Arc::new(Row::new(&kind, &object, vec![json!(name), json!(ready)]))
        };
        vec![
            row("web-1", "web", "1/1", "2026-01-03"),
            row("web-10", "web", "0/1", "2026-01-01"),
            row("web-2", "web", "1/1", "2026-01-02"),
            row("db-0", "db", "1/1", "2026-01-04"),
        ]
    }

    fn check(labels: &str, text: &str, sort: Option<(&str, bool)>, window: (usize, usize), expected: &str) {
        let columns: Vec<Column> = ["Name", "Ready"]
            .map(|name| Column { name: name.into(), kind: "string".into(), priority: 0, description: String::new() })
            .into();
        let sort = sort.map(|(column, descending)| Sort { column: column.into(), descending });
        let labels = LabelSelector::parse(labels).unwrap();
        let wanted = Wanted { labels, words: words(text), sort, from: window.0, count: window.1 };
        let found = view(&rows(), &columns, &Usages::new(), &wanted);
        let names: Vec<&str> = found.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(format!("{}/{}@{}", names.join(" "), found.matching, found.from), expected);
    }

    #[test]
    fn windows() {
        check("", "", None, (0, 2), "web-1 web-10/4@0");
        check("", "", None, (2, 10), "/4@0".replace('/', "web-1 web-10 web-2 db-0/").as_str());
        check("", "", None, (3, 2), "web-2 db-0/4@2");
        check("app=web", "", Some(("Name", false)), (0, 10), "web-1 web-2 web-10/3@0");
        check("app!=web", "", None, (0, 10), "db-0/1@0");
        check("", "WEB 1/1", Some(("name", true)), (0, 10), "web-2 web-1/2@0");
        check("", "", Some(("Age", false)), (0, 10), "db-0 web-1 web-2 web-10/4@0");
        check("", "", Some(("ready", false)), (0, 1), "web-10/4@0");
        check("", "nothing", None, (0, 10), "/0@0");
        check("", "", Some(("no such column", false)), (0, 1), "web-1/4@0");
    }

    #[test]
    fn events_are_read_from_the_last_one_on() {
        let kind = Kind::new("", "v1", "events");
        let row = |name: &str, seen: &str| {
            let object = json!({"metadata": {"name": name, "namespace": "a"}, "lastTimestamp": seen});
            Arc::new(Row::new(&kind, &object, vec![json!("59s")]))
        };
        let rows =
            [row("a", "2026-01-01T00:00:09Z"), row("b", "2026-01-01T01:00:00Z"), row("c", "2026-01-01T00:59:00Z")];
        let column =
            Column { name: "Last Seen".into(), kind: "string".into(), priority: 0, description: String::new() };
        let names = |sort: Option<bool>| {
            let sort = sort.map(|descending| Sort { column: "Last Seen".into(), descending });
            let labels = LabelSelector::parse("").unwrap();
            let wanted = Wanted { labels, words: Vec::new(), sort, from: 0, count: 10 };
            let found = view(&rows, std::slice::from_ref(&column), &Usages::new(), &wanted);
            found.rows.iter().map(|row| row.name.clone()).collect::<String>()
        };
        assert_eq!((names(None), names(Some(false)), names(Some(true))), ("bca".into(), "bca".into(), "acb".into()));
        assert_eq!(rows[0].shown(None)["seen"], "2026-01-01T00:00:09Z");
    }

    #[test]
    fn numbers_in_names() {
        for (one, other) in [("a2", "a10"), ("a", "a1"), ("a01", "a2"), ("9/10", "10/10"), ("", "a")] {
            assert_eq!(natural(one, other), Ordering::Less, "{one} {other}");
        }
        assert_eq!(natural("a1", "a01"), Ordering::Equal);
    }

    #[test]
    fn thirty_thousand_rows_are_seen_at_once() {
        let kind = Kind::new("", "v1", "pods");
        let rows: Vec<Arc<Row>> = (0..30_000)
            .map(|number| {
                let object =
                    json!({"metadata": {"name": format!("pod-{number}"), "namespace": "a", "labels": {"n": "x"}}});
                Arc::new(Row::new(&kind, &object, vec![json!(format!("pod-{number}"))]))
            })
            .collect();
        let sort = Some(Sort { column: "name".into(), descending: true });
        let wanted =
            Wanted { labels: LabelSelector::parse("n=x").unwrap(), words: words("pod-2"), sort, from: 0, count: 60 };
        let found = view(&rows, &[], &Usages::new(), &wanted);
        assert_eq!((found.matching, found.rows.len(), found.rows[0].name.as_str()), (11_111, 60, "pod-29999"));
    }
}
