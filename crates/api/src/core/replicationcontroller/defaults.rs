//! Defaults of ReplicationController: labels and selector come from the template.

use machinery::object::set_default;
use serde_json::{Map, Value, json};

use crate::common::pod_spec::defaults;

pub(super) fn defaults(controller: &mut Value) {
    set_default(controller, "spec", json!({}));
    set_default(controller, "status", json!({}));
    if controller.pointer("/spec/template").is_some_and(Value::is_object) {
        defaults::template(&mut controller["spec"]);
    }
    let labels = controller.pointer("/spec/template/metadata/labels").cloned();
    if let Some(labels) = labels.filter(|labels| labels.as_object().is_some_and(|labels| !labels.is_empty())) {
        set_if_empty(&mut controller["spec"], "selector", &labels);
        set_default(controller, "metadata", json!({}));
        set_if_empty(&mut controller["metadata"], "labels", &labels);
    }
    set_default(&mut controller["spec"], "replicas", 1);
}

fn set_if_empty(value: &mut Value, field: &str, labels: &Value) {
    if value.get(field).and_then(Value::as_object).is_none_or(Map::is_empty) {
        value[field] = labels.clone();
    }
}
