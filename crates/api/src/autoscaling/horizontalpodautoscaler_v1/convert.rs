//! autoscaling/v1 to the stored v2 and back. What v1 has no field for travels in annotations: metrics beside the CPU,
//! current metrics, conditions and behavior.

use machinery::object::Meta;
use serde_json::{Map, Value, json};

use super::behavior;
use super::metrics;
use crate::autoscaling::horizontalpodautoscaler::default_metric;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

pub(super) fn to_storage(mut object: Value) -> Value {
    object["apiVersion"] = "autoscaling/v2".into();
    let carried = take_annotations(&mut object);
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let cpu = spec.remove("targetCPUUtilizationPercentage");
        let mut list: Vec<Value> = carried.list(METRICS).iter().map(metrics::spec_to_v2).collect();
        list.extend(cpu.filter(|percent| !percent.is_null()).map(cpu_metric));
        spec.insert("metrics".into(), list.into());
        if let Some(rules) = carried.get(BEHAVIOR) {
            spec.insert("behavior".into(), behavior::to_v2(&rules));
        }
    }
    if let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) {
        default_metric(spec);
    }
    status_to_storage(&mut object, &carried);
    object
}

fn status_to_storage(object: &mut Value, carried: &Carried) {
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    let cpu = status.remove("currentCPUUtilizationPercentage").filter(|percent| !percent.is_null());
    let current: Vec<Value> = carried.list(CURRENT_METRICS).iter().map(metrics::status_to_v2).collect();
    let current = match (current.is_empty(), cpu) {
        (true, Some(percent)) => {
            let current = json!({"averageUtilization": percent, "averageValue": "0"});
            json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}])
        }
        (true, None) => Value::Null,
        (false, _) => current.into(),
    };
    status.insert("currentMetrics".into(), current);
    let conditions = carried.list(CONDITIONS);
    if !conditions.is_empty() {
        status.insert("conditions".into(), conditions.into());
    }
}

pub(super) fn from_storage(mut object: Value) -> Value {
    object["apiVersion"] = "autoscaling/v1".into();
    let mut carried: Vec<(&str, String)> = Vec::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let list = taken_list(spec, "metrics");
        // The last CPU utilization is the one v1 has a field for; none of them goes into the annotation.
        if let Some(percent) = list.iter().rev().find_map(cpu_utilization) {
            spec.insert("targetCPUUtilizationPercentage".into(), percent.clone());
        }
        let others: Vec<Value> =
            list.iter().filter(|metric| cpu_utilization(metric).is_none()).map(metrics::spec_to_v1).collect();
        if !others.is_empty() {
            carried.push((METRICS, Value::from(others).to_string()));
        }
        if let Some(rules) = spec.remove("behavior").filter(Value::is_object) {
            carried.push((BEHAVIOR, behavior::to_annotation(&rules)));
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let current = taken_list(status, "currentMetrics");
        let cpu = current.iter().find(|metric| metric["type"] == "Resource" && metric["resource"]["name"] == "cpu");
        let percent = cpu.map(|metric| &metric["resource"]["current"]["averageUtilization"]);
        if let Some(percent) = percent.filter(|percent| percent.is_number()) {
            status.insert("currentCPUUtilizationPercentage".into(), percent.clone());
        }
        // The CPU is kept here too: v1's field has no room for its raw value.
        let all: Vec<Value> = current.iter().map(metrics::status_to_v1).collect();
        if !all.is_empty() {
            carried.push((CURRENT_METRICS, Value::from(all).to_string()));
        }
        let conditions = taken_list(status, "conditions");
        if !conditions.is_empty() {
            carried.push((CONDITIONS, Value::from(conditions).to_string()));
        }
        // Without omitempty upstream: v1 always says both counts.
        for count in ["currentReplicas", "desiredReplicas"] {
            status.entry(count).or_insert(0.into());
        }
    }
    if !carried.is_empty() {
        let annotations = object.meta_mut().entry("annotations").or_insert_with(|| json!({}));
        for (key, text) in carried {
            annotations[key] = text.into();
        }
    }
    object
}

/// The annotations that carry what v1 cannot say.
struct Carried(Map<String, Value>);

impl Carried {
    /// Annotations are the user's to write; what does not parse says nothing.
    fn get(&self, key: &str) -> Option<Value> {
        serde_json::from_str(self.0.get(key)?.as_str()?).ok()
    }

    fn list(&self, key: &str) -> Vec<Value> {
        match self.get(key) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        }
    }
}

fn take_annotations(object: &mut Value) -> Carried {
    let mut taken = Map::new();
    let metadata = object.meta_mut();
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        for key in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
            taken.extend(annotations.remove_entry(key));
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    Carried(taken)
}

fn taken_list(map: &mut Map<String, Value>, field: &str) -> Vec<Value> {
    match map.remove(field) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn cpu_metric(percent: Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn cpu_utilization(metric: &Value) -> Option<&Value> {
    let is_cpu = metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
    let percent = &metric["resource"]["target"]["averageUtilization"];
    (is_cpu && percent.is_number()).then_some(percent)
}
