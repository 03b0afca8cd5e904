//! The columns of `kubectl get hpa`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

/// As many metrics are shown, and the rest is counted.
const METRICS_MAX: usize = 2;
const UNKNOWN: &str = "<unknown>";

pub(crate) fn row(autoscaler: &Value, now: Timestamp) -> Vec<Cell> {
    let (spec, status) = (&autoscaler["spec"], &autoscaler["status"]);
    let target = &spec["scaleTargetRef"];
    let min = spec["minReplicas"].as_i64().map_or("<unset>".to_string(), |count| count.to_string());
    vec![
        autoscaler.name().into(),
        format!("{}/{}", text(&target["kind"]), text(&target["name"])).into(),
        metrics(&spec["metrics"], &status["currentMetrics"]).into(),
        min.into(),
        spec["maxReplicas"].as_i64().unwrap_or(0).into(),
        status["currentReplicas"].as_i64().unwrap_or(0).into(),
        age(autoscaler, now),
    ]
}

fn metrics(specs: &Value, current: &Value) -> String {
    let Some(specs) = specs.as_array().filter(|specs| !specs.is_empty()) else { return "<none>".into() };
    let shown: Vec<String> =
        specs.iter().enumerate().take(METRICS_MAX).map(|(index, spec)| metric(spec, &current[index])).collect();
    let list = shown.join(", ");
    match specs.len() {
        count if count > METRICS_MAX => format!("{list} + {} more...", count - METRICS_MAX),
        _ => list,
    }
}

/// What is measured and what is wanted: `cpu: 12%/80%`, `10/100 (avg)`.
fn metric(spec: &Value, status: &Value) -> String {
    let field = match text(&spec["type"]) {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".into(),
    };
    let (source, current) = (&spec[field], &status[field]["current"]);
    let target = &source["target"];
    let amount = |value: &Value| value.as_str().unwrap_or(UNKNOWN).to_string();
    match field {
        "pods" => format!("{}/{}", amount(&current["averageValue"]), text(&target["averageValue"])),
        "external" | "object" if target["averageValue"].is_string() => {
            format!("{}/{} (avg)", amount(&current["averageValue"]), text(&target["averageValue"]))
        }
        "external" | "object" => format!("{}/{}", amount(&current["value"]), text(&target["value"])),
        _ if target["averageValue"].is_string() => {
            let now = amount(&current["averageValue"]);
            format!("{}: {now}/{}", text(&source["name"]), text(&target["averageValue"]))
        }
        _ => {
            let percent =
                |value: &Value, none: &str| value.as_i64().map_or(none.to_string(), |part| format!("{part}%"));
            let now = percent(&current["averageUtilization"], UNKNOWN);
            let wanted = percent(&target["averageUtilization"], "<auto>");
            format!("{}: {now}/{wanted}", text(&source["name"]))
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}
