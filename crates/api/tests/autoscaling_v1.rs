//! autoscaling/v1 is another way to write v2: nothing may be lost on the way there and back.

use api::KINDS;
use machinery::kind::{Convert, Kind};
use serde_json::{Value, json};

fn convert() -> &'static Convert {
    let is_v1 = |kind: &&&Kind| kind.kind == "HorizontalPodAutoscaler" && kind.version == "v1";
    let kind = KINDS.iter().find(is_v1).expect("autoscaling/v1 is served");
    kind.convert.as_ref().expect("v1 is not the stored version")
}

fn autoscaler(version: &str, annotations: Value, spec: Value, status: Value) -> Value {
    let mut object = json!({
        "apiVersion": version, "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "maxReplicas": 3},
        "status": status,
    });
    if !annotations.is_null() {
        object["metadata"]["annotations"] = annotations;
    }
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    object
}

fn cpu(percent: i64) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

#[test]
fn a_cpu_target_is_the_only_metric_v1_has_a_field_for() {
    let v1 = autoscaler("autoscaling/v1", Value::Null, json!({"targetCPUUtilizationPercentage": 50}), json!({}));
    let v2 = (convert().to_storage)(v1);
    assert_eq!(v2["spec"]["metrics"], json!([cpu(50)]));
    let back = (convert().from_storage)(v2);
    assert_eq!(back["spec"]["targetCPUUtilizationPercentage"], 50);
    assert_eq!(back["metadata"], json!({"name": "a"}));
    assert!(back["spec"].get("metrics").is_none());
}

#[test]
fn without_a_target_the_cpu_is_kept_at_80_percent() {
    let v1 = autoscaler("autoscaling/v1", Value::Null, json!({}), json!({}));
    assert_eq!((convert().to_storage)(v1)["spec"]["metrics"], json!([cpu(80)]));
}

#[test]
fn what_v1_cannot_say_travels_in_annotations() {
    let selector = json!({"matchLabels": {"a": "b"}});
    let described = json!({"kind": "Service", "name": "s", "apiVersion": "v1"});
    let metrics = json!([
        {"type": "Pods", "pods": {"metric": {"name": "queue", "selector": selector},
            "target": {"type": "AverageValue", "averageValue": "10"}}},
        {"type": "Object", "object": {"describedObject": described, "metric": {"name": "hits"},
            "target": {"type": "Value", "value": "1k"}}},
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 60}}},
        {"type": "External", "external": {"metric": {"name": "jobs"},
            "target": {"type": "AverageValue", "averageValue": "3"}}},
        cpu(70),
    ]);
    let behavior = json!({"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}});
    let status = json!({
        "currentReplicas": 1, "desiredReplicas": 2,
        "currentMetrics": [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 12, "averageValue": "5m"}}},
        ],
        "conditions": [{"type": "AbleToScale", "status": "True"}],
    });
    let v2 = autoscaler("autoscaling/v2", Value::Null, json!({"metrics": metrics, "behavior": behavior}), status);
    let v1 = (convert().from_storage)(v2.clone());
    let annotation = |name: &str| {
        let key = format!("autoscaling.alpha.kubernetes.io/{name}");
        v1["metadata"]["annotations"][key.as_str()].as_str().unwrap_or("").to_string()
    };
    assert_eq!(v1["spec"]["targetCPUUtilizationPercentage"], 70);
    assert_eq!(v1["status"]["currentCPUUtilizationPercentage"], 12);
    assert_eq!(
        annotation("behavior"),
        r#"{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":null}"#
    );
    assert!(annotation("metrics").contains(r#""targetAverageValue":"10""#), "{}", annotation("metrics"));
    assert!(annotation("current-metrics").contains(r#""currentAverageValue":"5m""#));
    assert_eq!(annotation("conditions"), r#"[{"status":"True","type":"AbleToScale"}]"#);
    assert_eq!((convert().to_storage)(v1), v2);
}

#[test]
fn annotations_that_do_not_parse_say_nothing() {
    let annotations = json!({"autoscaling.alpha.kubernetes.io/metrics": "{", "mine": "x"});
    let v1 = autoscaler("autoscaling/v1", annotations, json!({}), json!({}));
    let v2 = (convert().to_storage)(v1);
    assert_eq!(v2["spec"]["metrics"], json!([cpu(80)]));
    assert_eq!(v2["metadata"]["annotations"], json!({"mine": "x"}));
}
