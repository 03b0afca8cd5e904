//! The columns of `kubectl get ingressclass`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

pub(super) fn row(class: &Value, now: Timestamp) -> Vec<Cell> {
    let spec = &class["spec"];
    let parameters = &spec["parameters"];
    let text = |field: &str| parameters[field].as_str().unwrap_or("");
    let shown = match (parameters.is_object(), text("apiGroup")) {
        (false, _) => "<none>".to_string(),
        (true, "") => format!("{}/{}", text("kind"), text("name")),
        (true, group) => format!("{}.{group}/{}", text("kind"), text("name")),
    };
    vec![class.name().into(), spec["controller"].as_str().unwrap_or("").into(), shown.into(), age(class, now)]
}
