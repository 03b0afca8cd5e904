//! Rules of quotas, limit ranges, Endpoints, priority classes and namespaces: a good object, one change at a time, and what upstream (v1.36.4) says to it.

use serde_json::{Value, json};

use crate::testing::Rules;

fn resource_quota() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "n"},
        "spec": {"hard": {"pods": "10"}},
    })
}

fn limit_range() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "n"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]},
    })
}

fn endpoints() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "e", "namespace": "n"},
        "subsets": [
            {
                "addresses": [{"ip": "10.0.0.1"}],
                "ports": [{"name": "a", "port": 80, "protocol": "TCP"}],
            },
        ],
    })
}

fn priority_class() -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "p"},
        "value": 10,
    })
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
}

#[test]
fn quotas() {
    let rules = Rules::of(resource_quota());
    let hard = |inner: Value| json!({"spec": {"hard": inner}});
    rules.create(
        hard(json!({"pods": "-1"})),
        &["spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0"],
    );
    rules.create(hard(json!({"pods": "1500m"})), &["spec.hard[pods]: Invalid value: \"1500m\": must be an integer"]);
    rules.create(hard(json!({"cpu": "1500m"})), &[]);
    rules.create(
        hard(json!({"coffee": "1"})),
        &[
            "spec.hard[coffee]: Invalid value: \"coffee\": must be a standard resource type or fully qualified",
            "spec.hard[coffee]: Invalid value: \"coffee\": must be a standard resource for quota",
        ],
    );
    rules.create(hard(json!({"requests.example.com/gpu": "2"})), &[]);
    rules.create(hard(json!({"example.com/gpu": "2"})), &[]);
    rules.create(hard(json!({"count/jobs.batch": "2"})), &[]);
    rules.create(hard(json!({"requests.cpu": "1", "limits.memory": "1Gi"})), &[]);
    rules.create(
        hard(json!({"a b": "1"})),
        &[
            "spec.hard[a b]: Invalid value: \"a b\": name part must consist of alphanumeric characters, \
             '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or \
             'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            "spec.hard[a b]: Invalid value: \"a b\": must be a standard resource for quota",
        ],
    );
    rules.create(hard(json!({"gold.storageclass.storage.k8s.io/requests.storage": "5Gi"})), &[]);
}

#[test]
fn scopes_of_quotas() {
    let rules = Rules::of(resource_quota());
    let hard = |inner: Value| json!({"spec": {"hard": inner}});
    let scope = |inner: Value| json!({"spec": {"scopeSelector": {"matchExpressions": [inner]}}});
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(spec(json!({"scopes": ["BestEffort"]})), &[]);
    rules.create(spec(json!({"scopes": ["Best"]})), &["spec.scopes: Invalid value: [\"Best\"]: unsupported scope"]);
    rules.create(
        spec(json!({"scopes": ["BestEffort", "NotBestEffort"]})),
        &["spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes"],
    );
    rules.create(
        spec(json!({"scopes": ["Terminating", "NotTerminating"]})),
        &["spec.scopes: Invalid value: [\"Terminating\",\"NotTerminating\"]: conflicting scopes"],
    );
    rules.create(
        spec(json!({"scopes": ["BestEffort"], "hard": {"cpu": "1"}})),
        &["spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource"],
    );
    rules.create(spec(json!({"scopes": ["BestEffort", "BestEffort"]})), &[]);
    rules.create(scope(json!({"scopeName": "PriorityClass", "operator": "In", "values": ["high"]})), &[]);
    rules.create(
        scope(json!({"scopeName": "PriorityClass", "operator": "In"})),
        &["spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when \
             `operator` is 'In' or 'NotIn' for scope selector"],
    );
    rules.create(
        scope(json!({"scopeName": "PriorityClass", "operator": "Near"})),
        &["spec.scopeSelector.matchExpressions.operator: Invalid value: \"Near\": not a valid selector \
             operator"],
    );
    rules.create(
        scope(json!({"scopeName": "BestEffort", "operator": "In", "values": ["x"]})),
        &["spec.scopeSelector.matchExpressions.operator: Invalid value: \"In\": must be 'Exists' when \
             scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
             ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
             ResourceQuotaScopeCrossNamespacePodAffinity"],
    );
    rules.create(
        scope(json!({"scopeName": "PriorityClass", "operator": "Exists", "values": ["x"]})),
        &["spec.scopeSelector.matchExpressions.values: Invalid value: [\"x\"]: must be no value when \
             `operator` is 'Exist' or 'DoesNotExist' for scope selector"],
    );
    rules.update(
        spec(json!({"scopes": ["BestEffort"]})),
        &["spec.scopes: Invalid value: [\"BestEffort\"]: field is immutable"],
    );
    rules.update(hard(json!({"pods": "11"})), &[]);
}

#[test]
fn limit_ranges() {
    let rules = Rules::of(limit_range());
    let limit = |inner: Value| json!({"spec": {"limits": [inner]}});
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(
        limit(json!({"min": {"cpu": "3"}})),
        &[
            "spec.limits[0].min[cpu]: Invalid value: \"3\": min value 3 is greater than max value 2",
            "spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": min value 3 is greater than default \
             request value 2",
            "spec.limits[0].default[cpu]: Invalid value: \"3\": min value 3 is greater than default value 2",
        ],
    );
    rules.create(
        limit(json!({"default": {"cpu": "3"}})),
        &[
            "spec.limits[0].defaultRequest[cpu]: Invalid value: \"3\": default request value 3 is greater \
             than max value 2",
            "spec.limits[0].default[cpu]: Invalid value: \"2\": default value 3 is greater than max value 2",
        ],
    );
    rules.create(
        limit(json!({"min": {"cpu": "1"}, "default": {"cpu": "500m"}})),
        &[
            "spec.limits[0].defaultRequest[cpu]: Invalid value: \"500m\": min value 1 is greater than \
             default request value 500m",
            "spec.limits[0].default[cpu]: Invalid value: \"1\": min value 1 is greater than default value 500m",
        ],
    );
    rules.create(
        limit(json!({"defaultRequest": {"cpu": "3"}})),
        &[
            "spec.limits[0].defaultRequest[cpu]: Invalid value: \"3\": default request value 3 is greater \
             than max value 2",
            "spec.limits[0].defaultRequest[cpu]: Invalid value: \"3\": default request value 3 is greater \
             than default limit value 2",
        ],
    );
    rules.create(
        limit(json!({"defaultRequest": {"cpu": "2"}, "default": {"cpu": "1"}})),
        &["spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater \
             than default limit value 1"],
    );
    rules.create(
        limit(json!({"maxLimitRequestRatio": {"cpu": "500m"}})),
        &["spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1"],
    );
    rules.create(
        limit(json!({"min": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "3"}})),
        &["spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than \
             max/min = 2.000000"],
    );
    rules.create(
        spec(json!({"limits": [{}, {"type": "Container", "max": {"cpu": "1"}}]})),
        &["spec.limits[1].type: Duplicate value: \"Container\""],
    );
    rules.create(
        limit(json!({"type": "Pod", "default": {"cpu": "1"}})),
        &["spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'"],
    );
    rules.create(
        limit(json!({"type": "PersistentVolumeClaim", "max": null})),
        &["spec.limits[0].limits: Required value: either minimum or maximum storage value is required, \
             but neither was provided"],
    );
    rules.create(limit(json!({"type": "PersistentVolumeClaim", "max": {"cpu": null, "storage": "1Gi"}})), &[]);
    rules.create(
        limit(json!({"type": "Robot"})),
        &["spec.limits[0].type: Invalid value: \"Robot\": must be a standard limit type or fully qualified"],
    );
    rules.create(
        limit(json!({"max": {"coffee": "1"}})),
        &[
            "spec.limits[0].max[coffee]: Invalid value: \"coffee\": must be a standard resource type or \
             fully qualified",
            "spec.limits[0].max[coffee]: Invalid value: \"coffee\": must be a standard resource for containers",
            "spec.limits[0].default[coffee]: Invalid value: \"coffee\": must be a standard resource type \
             or fully qualified",
            "spec.limits[0].default[coffee]: Invalid value: \"coffee\": must be a standard resource for \
             containers",
            "spec.limits[0].defaultRequest[coffee]: Invalid value: \"coffee\": must be a standard resource \
             type or fully qualified",
            "spec.limits[0].defaultRequest[coffee]: Invalid value: \"coffee\": must be a standard resource \
             for containers",
        ],
    );
    rules.create(limit(json!({"type": "example.com/thing"})), &[]);
}

#[test]
fn addresses_and_ports_of_endpoints() {
    let rules = Rules::of(endpoints());
    let address = |inner: Value| json!({"subsets": [{"addresses": [inner]}]});
    let port = |inner: Value| json!({"subsets": [{"ports": [inner]}]});
    let subset = |inner: Value| json!({"subsets": [inner]});
    rules.create(
        subset(json!({"addresses": null})),
        &["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"],
    );
    rules.create(subset(json!({"ports": null})), &[]);
    rules.create(
        address(json!({"ip": "10.0.0.300"})),
        &[
            "subsets[0].addresses[0].ip: Invalid value: \"10.0.0.300\": must be a valid IP address, (e.g. \
             10.9.8.7 or 2001:db8::ffff)",
            "subsets[0].addresses[0].ip: Invalid value: \"10.0.0.300\": must be a valid IP address",
        ],
    );
    rules.create(
        address(json!({"ip": "127.0.0.1"})),
        &["subsets[0].addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the loopback range \
             (127.0.0.0/8, ::1/128)"],
    );
    rules.create(
        address(json!({"ip": "169.254.1.1"})),
        &["subsets[0].addresses[0].ip: Invalid value: \"169.254.1.1\": may not be in the link-local \
             range (169.254.0.0/16, fe80::/10)"],
    );
    rules.create(
        address(json!({"ip": "224.0.0.1"})),
        &["subsets[0].addresses[0].ip: Invalid value: \"224.0.0.1\": may not be in the link-local \
             multicast range (224.0.0.0/24, ff02::/10)"],
    );
    rules.create(
        address(json!({"ip": "0.0.0.0"})),
        &["subsets[0].addresses[0].ip: Invalid value: \"0.0.0.0\": may not be unspecified (0.0.0.0)"],
    );
    rules.create(
        address(json!({"ip": "10.0.0.1", "hostname": "A"})),
        &["subsets[0].addresses[0].hostname: Invalid value: \"A\": a lowercase RFC 1123 label must \
             consist of lower case alphanumeric characters or '-', and must start and end with an \
             alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"],
    );
    rules.create(
        address(json!({"ip": "10.0.0.1", "nodeName": "n_1"})),
        &["subsets[0].addresses[0].nodeName: Invalid value: \"n_1\": a lowercase RFC 1123 subdomain must \
             consist of lower case alphanumeric characters, '-' or '.', and must start and end with an \
             alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    rules.create(
        port(json!({"port": 0})),
        &["subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"],
    );
    rules.create(
        port(json!({"protocol": "QUIC"})),
        &["subsets[0].ports[0].protocol: Unsupported value: \"QUIC\": supported values: \"SCTP\", \
             \"TCP\", \"UDP\""],
    );
    rules.create(port(json!({"name": ""})), &[]);
    rules.create(
        subset(json!({"ports": [{"name": ""}, {"name": "", "port": 81, "protocol": "TCP"}]})),
        &["subsets[0].ports[0].name: Required value", "subsets[0].ports[1].name: Required value"],
    );
    rules.create(
        port(json!({"appProtocol": "a b"})),
        &["subsets[0].ports[0].appProtocol: Invalid value: \"a b\": name part must consist of \
             alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"],
    );
    rules.update_from(&address(json!({"ip": "10.0.0.1", "nodeName": "n1"})), address(json!({"nodeName": "n2"})), &[]);
}

#[test]
fn priority_classes() {
    let rules = Rules::of(priority_class());
    rules.create(
        json!({"metadata": {"name": "system-mine"}, "value": 5}),
        &["metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system \
             use only. error: system-mine is not a known system priority class"],
    );
    rules.update(json!({"value": 11}), &["value: Forbidden: may not be changed in an update."]);
    rules.update(
        json!({"preemptionPolicy": "Never"}),
        &["preemptionPolicy: Invalid value: \"Never\": field is immutable"],
    );
    rules.update(json!({"description": "d"}), &[]);
}

#[test]
fn namespaces() {
    let rules = Rules::of(namespace());
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(spec(json!({"finalizers": ["kubernetes"]})), &[]);
    rules.create(
        spec(json!({"finalizers": ["mine"]})),
        &["spec.finalizers: Invalid value: \"mine\": name is neither a standard finalizer name nor is it \
             fully qualified"],
    );
    rules.create(spec(json!({"finalizers": ["a.b/c"]})), &[]);
}
