//! Rules of HorizontalPodAutoscalers, with upstream's sentences.

use serde_json::{Value, json};

use crate::testing::Rules;

fn autoscaler() -> Rules {
    Rules::of(json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h", "namespace": "a"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1, "maxReplicas": 5,
        },
    }))
}

#[test]
fn numbers_and_targets() {
    let rules = autoscaler();
    let check = |spec: Value, expected: &[&str]| rules.create(json!({"spec": spec}), expected);
    let least = "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1";
    let to_zero = "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas";
    check(json!({"minReplicas": 0, "metrics": [resource(json!({}))]}), &[least, to_zero]);
    check(json!({"minReplicas": -1}), &["spec.minReplicas: Invalid value: -1: must be greater than or equal to 1"]);
    let required = "spec.maxReplicas: Required value: must be set and greater than 0";
    let above = "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`";
    check(json!({"maxReplicas": 0}), &[required, above]);
    check(
        json!({"maxReplicas": -2}),
        &[
            "spec.maxReplicas: Invalid value: -2: must be greater than or equal to 1",
            "spec.maxReplicas: Invalid value: -2: must be greater than or equal to `minReplicas`",
        ],
    );
    check(
        json!({"minReplicas": 7}),
        &["spec.maxReplicas: Invalid value: 5: must be greater than or equal to `minReplicas`"],
    );
    let target = |target: Value| json!({"scaleTargetRef": target});
    check(target(json!({"kind": ""})), &["spec.scaleTargetRef.kind: Required value"]);
    check(target(json!({"name": ""})), &["spec.scaleTargetRef.name: Required value"]);
    check(target(json!({"kind": ".."})), &["spec.scaleTargetRef.kind: Invalid value: \"..\": may not be '..'"]);
    check(target(json!({"name": "a/b"})), &["spec.scaleTargetRef.name: Invalid value: \"a/b\": may not contain '/'"]);
    check(
        target(json!({"apiVersion": "v1"})),
        &["spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group"],
    );
    check(
        target(json!({"apiVersion": "a/b/c"})),
        &["spec.scaleTargetRef.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"],
    );
    check(target(json!({"apiVersion": "v1", "kind": "ReplicationController"})), &[]);
}

fn resource(target: Value) -> Value {
    let mut metric = json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
    }});
    crate::testing::merge(&mut metric["resource"]["target"], &target);
    metric
}

/// One metric; the paths of what is expected are those below it.
fn metric(metric: Value, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|error| format!("spec.metrics[0].{error}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    autoscaler().create(json!({"spec": {"metrics": [metric]}}), &expected);
}

#[test]
fn sources_of_metrics() {
    let types = "\"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\"";
    let unknown = |kind: &str| format!("type: Unsupported value: {kind:?}: supported values: {types}");
    metric(json!({"type": "Free"}), &[&unknown("Free"), &unknown("Free")]);
    metric(
        json!({"type": ""}),
        &["type: Required value: must specify a metric source type", &unknown(""), &unknown("")],
    );
    for (kind, field) in [
        ("Object", "object"),
        ("External", "external"),
        ("Pods", "pods"),
        ("Resource", "resource"),
        ("ContainerResource", "containerResource"),
    ] {
        let missing = format!("{field}: Required value: must populate information for the given metric source");
        metric(json!({"type": kind}), &[&missing]);
    }
    let mut both = resource(json!({}));
    both["pods"] = json!({"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}});
    metric(both.clone(), &["pods: Forbidden: must populate the given metric source only"]);
    both["type"] = "Pods".into();
    metric(both, &["resource: Forbidden: must populate the given metric source only"]);
}

#[test]
fn targets_of_metrics() {
    metric(resource(json!({})), &[]);
    let at = "resource.target";
    let wrong_type =
        |kind: &str| format!("{at}.type: Invalid value: {kind:?}: must be either Utilization, Value, or AverageValue");
    metric(resource(json!({"type": "Free"})), &[&wrong_type("Free")]);
    let missing = format!("{at}.type: Required value: must specify a metric target type");
    metric(resource(json!({"type": ""})), &[&missing, &wrong_type("")]);
    let utilization = format!("{at}.averageUtilization: Invalid value: 0: must be greater than 0");
    metric(resource(json!({"averageUtilization": 0})), &[&utilization]);
    let negative = format!("{at}.averageValue: Invalid value: \"-1\": must be positive");
    metric(resource(json!({"averageUtilization": null, "averageValue": "-1"})), &[&negative]);
    let neither =
        format!("{at}.averageUtilization: Required value: must set either a target raw value or a target utilization");
    metric(resource(json!({"averageUtilization": null})), &[&neither]);
    let both = format!("{at}.averageValue: Forbidden: may not set both a target raw value and a target utilization");
    metric(resource(json!({"averageValue": "1"})), &[&both]);
    let mut unnamed = resource(json!({}));
    unnamed["resource"]["name"] = "".into();
    metric(unnamed, &["resource.name: Required value: must specify a resource name"]);

    let pods =
        |name: &str, target: Value| json!({"type": "Pods", "pods": {"metric": {"name": name}, "target": target}});
    let good = json!({"type": "AverageValue", "averageValue": "1"});
    metric(pods("", good.clone()), &["pods.metric.name: Required value: must specify a metric name"]);
    metric(pods("a%b", good), &["pods.metric.name: Invalid value: \"a%b\": may not contain '%'"]);
    metric(
        pods("m", json!({"type": "Value", "value": "0"})),
        &[
            "pods.target.value: Invalid value: \"0\": must be positive",
            "pods.target.averageValue: Required value: must specify a positive target averageValue",
        ],
    );

    let outside = |target: Value| json!({"type": "External", "external": {"metric": {"name": "m"}, "target": target}});
    metric(
        outside(json!({"type": "Value"})),
        &[
            "external.target.averageValue: Required value: must set either a target value for metric or a per-pod target",
        ],
    );
    metric(
        outside(json!({"type": "Value", "value": "1", "averageValue": "1"})),
        &["external.target.value: Forbidden: may not set both a target value for metric and a per-pod target"],
    );

    let object = |described: Value, target: Value| json!({"type": "Object", "object": {"describedObject": described, "metric": {"name": "m"}, "target": target}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "name": "s"});
    metric(object(service.clone(), json!({"type": "Value", "value": "1"})), &[]);
    metric(
        object(service, json!({"type": "Value"})),
        &["object.target.averageValue: Required value: must set either a target value or averageValue"],
    );
    metric(
        object(json!({}), json!({"type": "Value", "value": "1"})),
        &["object.describedObject.kind: Required value", "object.describedObject.name: Required value"],
    );

    let container = |name: &str, container: &str| {
        json!({"type": "ContainerResource", "containerResource": {
            "name": name, "container": container, "target": {"type": "Utilization", "averageUtilization": 80},
        }})
    };
    metric(container("cpu", "web"), &[]);
    metric(container("cpu", ""), &["containerResource.container: Required value: must specify a container"]);
    metric(container("", "web"), &["containerResource.name: Required value: must specify a resource name"]);
    metric(
        container("apples", "web"),
        &[
            "containerResource.name: Invalid value: \"apples\": must be a standard resource type or fully qualified",
            "containerResource.name: Invalid value: \"apples\": must be a standard resource for containers",
        ],
    );
}

#[test]
fn behavior() {
    let rules = autoscaler();
    let check = |rule: Value, expected: &[&str]| {
        for direction in ["scaleUp", "scaleDown"] {
            let expected: Vec<String> =
                expected.iter().map(|error| format!("spec.behavior.{direction}.{error}")).collect();
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            rules.create(json!({"spec": {"behavior": {direction: rule}}}), &expected);
        }
    };
    check(json!({}), &[]);
    check(
        json!({"stabilizationWindowSeconds": -1}),
        &["stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero"],
    );
    check(
        json!({"stabilizationWindowSeconds": 3601}),
        &["stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600"],
    );
    check(
        json!({"selectPolicy": "Free"}),
        &["selectPolicy: Unsupported value: \"Free\": supported values: \"Disabled\", \"Max\", \"Min\""],
    );
    let policy = |kind: &str, value: i64, seconds: i64| json!({"policies": [{"type": kind, "value": value, "periodSeconds": seconds}]});
    check(policy("Pods", 1, 1800), &[]);
    check(
        policy("Free", 1, 1),
        &["policies[0].type: Unsupported value: \"Free\": supported values: \"Percent\", \"Pods\""],
    );
    check(policy("Pods", 0, 1), &["policies[0].value: Invalid value: 0: must be greater than zero"]);
    check(policy("Percent", 1, 0), &["policies[0].periodSeconds: Invalid value: 0: must be greater than zero"]);
    check(
        policy("Percent", 1, 1801),
        &["policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800"],
    );
    check(json!({"tolerance": "-100m"}), &["tolerance: Invalid value: \"-100m\": must be greater than or equal to 0"]);
}

#[test]
fn statuses() {
    autoscaler().status(
        json!({}),
        json!({"currentReplicas": -1, "desiredReplicas": -2}),
        &[
            "status.currentReplicas: Invalid value: -1: must be greater than or equal to 0",
            "status.desiredReplicas: Invalid value: -2: must be greater than or equal to 0",
        ],
    );
}
