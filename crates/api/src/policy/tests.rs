//! Rules of budgets, network policies and autoscalers in upstream's words.

use serde_json::{Value, json};

use crate::testing::Rules;

#[test]
fn budgets() {
    let rules = Rules::of(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }));
    rules.create(
        json!({"spec": {"minAvailable": "101%"}}),
        &["spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%"],
    );
    rules.create(
        json!({"spec": {"minAvailable": -1}}),
        &["spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"],
    );
    rules.create(json!({"spec": {"unhealthyPodEvictionPolicy": "Never"}}), &[
        "spec.unhealthyPodEvictionPolicy: Unsupported value: \"Never\": supported values: \"AlwaysAllow\", \"IfHealthyBudget\"",
    ]);
    rules.create(json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}), &[
        "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
    ]);
    rules.status(
        json!({}),
        json!({"currentHealthy": -1, "disruptionsAllowed": -2}),
        &[
            "status.disruptionsAllowed: Invalid value: -2: must be greater than or equal to 0",
            "status.currentHealthy: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
}

fn network_policy(rule: Value) -> Value {
    json!({"spec": {"ingress": [rule]}})
}

#[test]
fn network_policies() {
    let rules = Rules::of(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p"}, "spec": {"podSelector": {}},
    }));
    let port = |port: Value, expected: &[&str]| {
        let expected: Vec<String> = expected.iter().map(|text| format!("spec.ingress[0].ports[0].{text}")).collect();
        rules
            .create(network_policy(json!({"ports": [port]})), &expected.iter().map(String::as_str).collect::<Vec<_>>());
    };
    port(json!({"port": 80, "endPort": 90}), &[]);
    port(json!({"port": 80, "endPort": 70}), &["endPort: Invalid value: 80: must be greater than or equal to `port`"]);
    port(
        json!({"port": "http", "endPort": 90}),
        &["endPort: Invalid value: 90: may not be specified when `port` is non-numeric"],
    );
    port(
        json!({"endPort": 90, "protocol": "ICMP"}),
        &[
            "protocol: Unsupported value: \"ICMP\": supported values: \"TCP\", \"UDP\", \"SCTP\"",
            "endPort: Invalid value: 90: may not be specified when `port` is not specified",
        ],
    );
    let peer = |peer: Value| network_policy(json!({"from": [peer]}));
    let at = "spec.ingress[0].from[0]";
    rules.create(peer(json!({})), &[&format!("{at}: Required value: must specify a peer")]);
    rules.create(
        peer(json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}})),
        &[&format!("{at}: Forbidden: may not specify both ipBlock and another peer")],
    );
    rules.create(
        peer(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8", "11.0.0.0/16"]}})),
        &[
            &format!("{at}.ipBlock.except[0]: Invalid value: \"10.0.0.0/8\": must be a strict subset of `cidr`"),
            &format!("{at}.ipBlock.except[1]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`"),
        ],
    );
    let sloppy = peer(json!({"ipBlock": {"cidr": "10.0.0.1/8"}}));
    rules.create(
        sloppy.clone(),
        &[&format!(
            "{at}.ipBlock.cidr: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length"
        )],
    );
    // What an older server took stays; what is new is looked at.
    rules.update_from(&sloppy, json!({"metadata": {"labels": {"a": "b"}}}), &[]);
    rules.update_from(
        &sloppy,
        peer(json!({"ipBlock": {"cidr": "10.0.0.2/8"}})),
        &[&format!(
            "{at}.ipBlock.cidr: Invalid value: \"10.0.0.2/8\": must not have bits set beyond the prefix length"
        )],
    );
    rules.create(
        json!({"spec": {"policyTypes": ["Ingress", "Both"]}}),
        &["spec.policyTypes[1]: Unsupported value: \"Both\": supported values: \"Ingress\", \"Egress\""],
    );
}

fn autoscaler() -> Rules {
    Rules::of(json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 3},
    }))
}

fn spec(changes: Value, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|text| format!("spec.{text}")).collect();
    autoscaler().create(json!({"spec": changes}), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn bounds_of_autoscalers() {
    spec(
        json!({"maxReplicas": 0}),
        &[
            "maxReplicas: Required value: must be set and greater than 0",
            "maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
        ],
    );
    spec(
        json!({"maxReplicas": -1}),
        &[
            "maxReplicas: Invalid value: -1: must be greater than or equal to 1",
            "maxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`",
        ],
    );
    spec(
        json!({"minReplicas": 0}),
        &[
            "minReplicas: Invalid value: 0: must be greater than or equal to 1",
            "metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
        ],
    );
    spec(
        json!({"scaleTargetRef": {"apiVersion": "v1"}}),
        &["scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group"],
    );
    spec(
        json!({"scaleTargetRef": {"apiVersion": "a/b/c", "kind": "a/b"}}),
        &[
            "scaleTargetRef.kind: Invalid value: \"a/b\": may not contain '/'",
            "scaleTargetRef.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
        ],
    );
    // What was not changed is not looked at again.
    let old = json!({"spec": {"scaleTargetRef": {"apiVersion": "v1"}}});
    autoscaler().update_from(&old, json!({"spec": {"maxReplicas": 4}}), &[]);
}

#[test]
fn metrics_of_autoscalers() {
    let metric = |metric: Value, expected: &[&str]| {
        let expected: Vec<String> = expected.iter().map(|text| format!("metrics[0].{text}")).collect();
        spec(json!({"metrics": [metric]}), &expected.iter().map(String::as_str).collect::<Vec<_>>());
    };
    metric(
        json!({"type": "Resource"}),
        &["resource: Required value: must populate information for the given metric source"],
    );
    let utilization = json!({"type": "Utilization", "averageUtilization": 50});
    metric(json!({"type": "Resource", "resource": {"name": "cpu", "target": utilization}}), &[]);
    metric(
        json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 0}}}),
        &["resource.target.averageUtilization: Invalid value: 0: must be greater than 0"],
    );
    metric(
        json!({"type": "ContainerResource", "containerResource": {"name": "disk", "target": utilization}}),
        &[
            "containerResource.name: Invalid value: \"disk\": must be a standard resource type or fully qualified",
            "containerResource.name: Invalid value: \"disk\": must be a standard resource for containers",
            "containerResource.container: Required value: must specify a container",
        ],
    );
    metric(
        json!({"type": "Pods", "pods": {"metric": {"name": "a/b"}, "target": {"type": "AverageValue"}}}),
        &[
            "pods.metric.name: Invalid value: \"a/b\": may not contain '/'",
            "pods.target.averageValue: Required value: must specify a positive target averageValue",
        ],
    );
    metric(
        json!({"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "1", "averageValue": "-1"}}}),
        &[
            "external.target.averageValue: Invalid value: \"-1\": must be positive",
            "external.target.value: Forbidden: may not set both a target value for metric and a per-pod target",
        ],
    );
}

#[test]
fn behaviour_of_autoscalers() {
    let down = |rules: Value, expected: &[&str]| {
        let expected: Vec<String> = expected.iter().map(|text| format!("behavior.scaleDown.{text}")).collect();
        spec(json!({"behavior": {"scaleDown": rules}}), &expected.iter().map(String::as_str).collect::<Vec<_>>());
    };
    let policy = json!({"type": "Pods", "value": 1, "periodSeconds": 60});
    down(
        json!({"policies": [policy], "stabilizationWindowSeconds": 3601, "selectPolicy": "Any"}),
        &[
            "stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
            "selectPolicy: Unsupported value: \"Any\": supported values: \"Disabled\", \"Max\", \"Min\"",
        ],
    );
    down(
        json!({"policies": [{"type": "Share", "value": 0, "periodSeconds": 1801}]}),
        &[
            "policies[0].type: Unsupported value: \"Share\": supported values: \"Percent\", \"Pods\"",
            "policies[0].value: Invalid value: 0: must be greater than zero",
            "policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
        ],
    );
    down(
        json!({"policies": [policy], "tolerance": "-1"}),
        &["tolerance: Invalid value: \"-1\": must be greater than or equal to 0"],
    );
}
