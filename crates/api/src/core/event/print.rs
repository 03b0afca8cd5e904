//! The columns of `kubectl get events`, for both groups that serve them.

use jiff::Timestamp;
use machinery::kind::since;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::core::print::text;

pub(crate) fn row(event: &Value, now: Timestamp) -> Vec<Cell> {
    let age = |time: &str| since(time, now);
    let first = age(first_of(event, "/firstTimestamp", "/eventTime"));
    let (last, count) = match (event.get("series"), text(event, "/lastTimestamp")) {
        (Some(series), _) if series.is_object() => {
            (age(text(series, "/lastObservedTime")), series["count"].as_i64().unwrap_or(0))
        }
        (_, "") => (first.clone(), count(event)),
        (_, time) => (age(time), count(event)),
    };
    let kind = text(event, "/involvedObject/kind").to_lowercase();
    let object = match text(event, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        last.into(),
        text(event, "/type").into(),
        text(event, "/reason").into(),
        object.into(),
        text(event, "/involvedObject/fieldPath").into(),
        source(event).into(),
        text(event, "/message").trim().into(),
        first.into(),
        count.into(),
        event.name().into(),
    ]
}

/// Events of the new kind that happened once have no count.
fn count(event: &Value) -> i64 {
    event.get("count").and_then(Value::as_i64).unwrap_or(0).max(1)
}

fn source(event: &Value) -> String {
    let component = first_of(event, "/source/component", "/reportingComponent");
    match first_of(event, "/source/host", "/reportingInstance") {
        "" => component.into(),
        host => format!("{component}, {host}"),
    }
}

/// The first of two texts that is not empty.
pub(super) fn first_of<'a>(event: &'a Value, one: &str, other: &str) -> &'a str {
    match text(event, one) {
        "" => text(event, other),
        text => text,
    }
}
