//! When an event happened, which its two versions and its two ways to count repetitions tell in different places. Pure.

use serde_json::Value;

/// When it happened last, so that a later one is greater. Some times have fractions and some have none: without the `Z` behind
/// them, texts are in the order of their times.
pub(crate) fn time(event: &Value) -> &str {
    let places = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["deprecatedLastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    places.into_iter().find_map(Value::as_str).unwrap_or_default().trim_end_matches('Z')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::time;

    #[test]
    fn later_is_greater() {
        let in_order = [
            json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:04Z"}, "lastTimestamp": null}),
            json!({"lastTimestamp": "2026-01-01T00:00:05Z"}),
            json!({"eventTime": "2026-01-01T00:00:05.000001Z", "lastTimestamp": null}),
            json!({"deprecatedLastTimestamp": "2026-01-01T00:00:06Z"}),
            json!({"eventTime": "2026-01-01T00:00:01.000000Z", "series": {"lastObservedTime": "2026-01-01T00:00:06.5Z"}}),
        ];
        assert!(
            in_order.windows(2).all(|pair| time(&pair[0]) < time(&pair[1])),
            "{:?}",
            in_order.map(|one| time(&one).to_string())
        );
    }
}
