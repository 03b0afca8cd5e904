//! Rules of LimitRanges, ResourceQuotas, Secrets, Endpoints and the capacity of volumes, with upstream's sentences.

use serde_json::{Value, json};

use crate::testing::Rules;

/// One limit of a LimitRange; the paths of what is expected are those below it.
#[track_caller]
fn limit(limit: Value, expected: &[&str]) {
    let rules = Rules::of(json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "a"}, "spec": {"limits": []},
    }));
    let expected: Vec<String> = expected.iter().map(|error| format!("spec.limits[0].{error}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    rules.create(json!({"spec": {"limits": [limit]}}), &expected);
}

#[test]
fn limits_have_an_order() {
    let of = |mut fields: Value| {
        fields["type"] = "Container".into();
        fields
    };
    limit(
        of(
            json!({"min": {"cpu": "1"}, "max": {"cpu": "2"}, "default": {"cpu": "1500m"}, "defaultRequest": {"cpu": "1"}}),
        ),
        &[],
    );
    limit(
        of(json!({"min": {"cpu": "2"}, "max": {"cpu": "1"}})),
        &[
            "min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
            // What is missing of defaults comes from the greatest and the least.
            "defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1",
            "default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 1",
        ],
    );
    limit(
        of(json!({"min": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}})),
        &["defaultRequest[cpu]: Invalid value: \"500m\": min value 1 is greater than default request value 500m"],
    );
    limit(
        of(json!({"max": {"cpu": "1"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}})),
        &[
            "defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than max value 1",
            "defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than default limit value 1",
        ],
    );
    limit(
        of(json!({"max": {"cpu": "1"}, "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}})),
        &["default[cpu]: Invalid value: \"1\": default value 2 is greater than max value 1"],
    );
    limit(
        of(json!({"maxLimitRequestRatio": {"cpu": "800m"}})),
        &["maxLimitRequestRatio[cpu]: Invalid value: \"800m\": ratio 800m is less than 1"],
    );
    limit(
        of(json!({"min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "10"}})),
        &["maxLimitRequestRatio[cpu]: Invalid value: \"10\": ratio 10 is greater than max/min = 2.000000"],
    );
    let huge = of(json!({"default": {"example.com/gpu": "2"}, "defaultRequest": {"example.com/gpu": "1"}}));
    limit(
        huge,
        &[
            "defaultRequest[example.com/gpu]: Invalid value: \"1\": default value 2 must equal to defaultRequest value 1 in example.com/gpu",
        ],
    );
}

#[test]
fn limits_have_types_and_resources() {
    limit(
        json!({"type": "Free"}),
        &["type: Invalid value: \"Free\": must be a standard limit type or fully qualified"],
    );
    limit(json!({"type": "example.com/Free"}), &[]);
    limit(
        json!({"type": "Pod", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}),
        &[
            "default: Forbidden: may not be specified when `type` is 'Pod'",
            "defaultRequest: Forbidden: may not be specified when `type` is 'Pod'",
        ],
    );
    limit(
        json!({"type": "PersistentVolumeClaim"}),
        &["limits: Required value: either minimum or maximum storage value is required, but neither was provided"],
    );
    limit(json!({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}), &[]);
    limit(
        json!({"type": "Pod", "max": {"apples": "1"}}),
        &[
            "max[apples]: Invalid value: \"apples\": must be a standard resource type or fully qualified",
            "max[apples]: Invalid value: \"apples\": must be a standard resource for containers",
        ],
    );
    let rules = Rules::of(json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "a"},
        "spec": {"limits": [{"type": "Pod"}]},
    }));
    rules
        .create(json!({"spec": {"limits": [{}, {"type": "Pod"}]}}), &["spec.limits[1].type: Duplicate value: \"Pod\""]);
}

fn quota(spec: Value, expected: &[&str]) {
    let rules = Rules::of(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "a"}, "spec": {},
    }));
    let expected: Vec<String> = expected.iter().map(|error| format!("spec.{error}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    rules.create(json!({"spec": spec}), &expected);
}

#[test]
fn quotas_name_resources() {
    for resource in [
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "limits.memory",
        "requests.storage",
        "pods",
        "services.nodeports",
        "hugepages-2Mi",
        "requests.hugepages-2Mi",
        "count/deployments.apps",
        "requests.example.com/gpu",
        "gold.storageclass.storage.k8s.io/requests.storage",
    ] {
        quota(json!({"hard": {resource: "1"}}), &[]);
    }
    quota(
        json!({"hard": {"storage": "1"}}),
        &["hard[storage]: Invalid value: \"storage\": must be a standard resource for quota"],
    );
    quota(
        json!({"hard": {"apples": "1"}}),
        &[
            "hard[apples]: Invalid value: \"apples\": must be a standard resource type or fully qualified",
            "hard[apples]: Invalid value: \"apples\": must be a standard resource for quota",
        ],
    );
    quota(json!({"hard": {"cpu": "-1"}}), &["hard[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"]);
    quota(json!({"hard": {"pods": "1500m"}}), &["hard[pods]: Invalid value: \"1500m\": must be an integer"]);
    quota(json!({"hard": {"cpu": "1500m"}}), &[]);
}

#[test]
fn quotas_have_scopes() {
    quota(json!({"scopes": ["BestEffort"], "hard": {"pods": "1"}}), &[]);
    let scopes = |scopes: &str, why: &str| format!("scopes: Invalid value: {scopes}: {why}");
    let misfit = "unsupported scope applied to resource";
    quota(json!({"scopes": ["BestEffort"], "hard": {"cpu": "1"}}), &[&scopes("[\"BestEffort\"]", misfit)]);
    quota(
        json!({"scopes": ["Terminating"], "hard": {"persistentvolumeclaims": "1"}}),
        &[&scopes("[\"Terminating\"]", misfit)],
    );
    quota(json!({"scopes": ["Free"]}), &[&scopes("[\"Free\"]", "unsupported scope")]);
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        let shown = serde_json::to_string(&pair).unwrap_or_default();
        quota(json!({"scopes": pair}), &[&scopes(&shown, "conflicting scopes")]);
    }
    let selector = |scope: &str, operator: &str, values: &[&str]| json!({"scopeSelector": {"matchExpressions": [{"scopeName": scope, "operator": operator, "values": values}]}});
    let at = "scopeSelector.matchExpressions";
    quota(selector("PriorityClass", "In", &["high"]), &[]);
    quota(
        selector("PriorityClass", "In", &[]),
        &[&format!(
            "{at}.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
        )],
    );
    quota(
        selector("PriorityClass", "Exists", &["high"]),
        &[&format!(
            "{at}.values: Invalid value: [\"high\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
        )],
    );
    quota(
        selector("PriorityClass", "Free", &[]),
        &[&format!("{at}.operator: Invalid value: \"Free\": not a valid selector operator")],
    );
    quota(
        selector("BestEffort", "DoesNotExist", &[]),
        &[&format!(
            "{at}.operator: Invalid value: \"DoesNotExist\": must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
             ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
             ResourceQuotaScopeCrossNamespacePodAffinity"
        )],
    );
    let rules = Rules::of(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "a"},
        "spec": {"scopes": ["BestEffort"]},
    }));
    rules.update(
        json!({"spec": {"scopes": ["NotBestEffort"]}}),
        &["spec.scopes: Invalid value: [\"NotBestEffort\"]: field is immutable"],
    );
}

#[test]
fn secrets_have_what_their_type_needs() {
    let check = |kind: &str, data: Value, expected: &[&str]| {
        let good = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}});
        Rules::of(good).create(json!({"type": kind, "data": data}), expected);
    };
    check("", json!({"a": "YQ=="}), &[]);
    check("kubernetes.io/tls", json!({}), &["data[tls.crt]: Required value", "data[tls.key]: Required value"]);
    check("kubernetes.io/tls", json!({"tls.crt": "", "tls.key": ""}), &[]);
    check("kubernetes.io/ssh-auth", json!({"ssh-privatekey": ""}), &["data[ssh-privatekey]: Required value"]);
    let both = ["data[username]: Required value", "data[password]: Required value"];
    check("kubernetes.io/basic-auth", json!({}), &both);
    check("kubernetes.io/basic-auth", json!({"password": ""}), &[]);
    check("kubernetes.io/dockercfg", json!({}), &["data[.dockercfg]: Required value"]);
    check("kubernetes.io/dockerconfigjson", json!({}), &["data[.dockerconfigjson]: Required value"]);
    check("kubernetes.io/dockerconfigjson", json!({".dockerconfigjson": "e30="}), &[]);
    // The contents are `[]`, `{bad`, `x` and nothing.
    for (content, why) in [
        ("W10=", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ("e2JhZA==", "invalid character 'b' looking for beginning of object key string"),
        ("eA==", "invalid character 'x' looking for beginning of value"),
        ("", "unexpected end of JSON input"),
    ] {
        let told = format!("data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": {why}");
        check("kubernetes.io/dockerconfigjson", json!({".dockerconfigjson": content}), &[&told]);
    }
    check(
        "kubernetes.io/service-account-token",
        json!({}),
        &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
    );
    let frozen = Rules::of(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}, "type": "Opaque",
        "immutable": true, "data": {"a": "YQ=="},
    }));
    frozen.update(json!({"type": "x"}), &["type: Invalid value: \"x\": field is immutable"]);
    frozen.update(json!({"data": {"a": "Yg=="}}), &["data: Forbidden: field is immutable when `immutable` is set"]);
    frozen.update(json!({"immutable": false}), &["immutable: Forbidden: field is immutable when `immutable` is set"]);
}

#[test]
fn endpoints_have_addresses_and_ports() {
    let rules = Rules::of(json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e", "namespace": "a"},
        "subsets": [{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80, "protocol": "TCP"}]}],
    }));
    let check = |subset: Value, expected: &[&str]| {
        let expected: Vec<String> = expected.iter().map(|error| format!("subsets[0]{error}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        rules.create(json!({"subsets": [subset]}), &expected);
    };
    check(json!({"addresses": null}), &[": Required value: must specify `addresses` or `notReadyAddresses`"]);
    check(
        json!({"addresses": [{"ip": "127.0.0.1"}]}),
        &[".addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)"],
    );
    check(
        json!({"addresses": [{"ip": "0.0.0.0"}]}),
        &[".addresses[0].ip: Invalid value: \"0.0.0.0\": may not be unspecified (0.0.0.0)"],
    );
    check(
        json!({"addresses": [{"ip": "224.0.0.1"}]}),
        &[
            ".addresses[0].ip: Invalid value: \"224.0.0.1\": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ],
    );
    check(
        json!({"addresses": [{"ip": "169.254.1.1"}]}),
        &[
            ".addresses[0].ip: Invalid value: \"169.254.1.1\": may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ],
    );
    check(
        json!({"ports": [{"port": 0}]}),
        &[".ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"],
    );
    check(
        json!({"ports": [{"protocol": "IP"}]}),
        &[".ports[0].protocol: Unsupported value: \"IP\": supported values: \"SCTP\", \"TCP\", \"UDP\""],
    );
    check(json!({"ports": [{}, {"port": 81, "name": "b"}]}), &[".ports[0].name: Required value"]);
    // What an older server took may stay as long as it is not touched.
    let old = json!({"subsets": [{"addresses": [{"ip": "127.0.0.1"}]}]});
    rules.update_from(&old, json!({"metadata": {"labels": {"a": "b"}}}), &[]);
    rules.update_from(
        &old,
        json!({"subsets": [{"ports": [{"port": 81}]}]}),
        &["subsets[0].addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)"],
    );
}

#[test]
fn volumes_have_a_size_and_a_source() {
    let rules = Rules::of(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}},
    }));
    let check = |spec: Value, expected: &[&str]| rules.create(json!({"spec": spec}), expected);
    let below = "must be a valid resource quantity";
    let zero = "must be greater than zero";
    for (amount, shown, whole) in [("-1Gi", "-1Gi", -1_073_741_824_i64), ("-500m", "-500m", -1)] {
        check(
            json!({"capacity": {"storage": amount}}),
            &[
                &format!("spec.capacity[storage]: Invalid value: {whole}: {below}"),
                &format!("spec.capacity[storage]: Invalid value: \"{shown}\": {zero}"),
            ],
        );
    }
    check(json!({"capacity": {"storage": "0"}}), &[&format!("spec.capacity[storage]: Invalid value: \"0\": {zero}")]);
    check(
        json!({"accessModes": ["Free"]}),
        &[
            "spec.accessModes: Unsupported value: \"Free\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\"",
        ],
    );
    check(
        json!({"accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]}),
        &["spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"],
    );
    check(json!({"hostPath": null}), &["spec: Required value: must specify a volume type"]);
    check(
        json!({"nfs": {"server": "s", "path": "/p"}}),
        &["spec.nfs: Forbidden: may not specify more than 1 volume type"],
    );
    check(
        json!({"hostPath": null, "local": {"path": "/p"}}),
        &["spec.nodeAffinity: Required value: Local volume requires node affinity"],
    );
    check(
        json!({"hostPath": {"path": "/"}, "persistentVolumeReclaimPolicy": "Recycle"}),
        &["spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"],
    );
    check(
        json!({"persistentVolumeReclaimPolicy": "Free"}),
        &[
            "spec.persistentVolumeReclaimPolicy: Unsupported value: \"Free\": supported values: \"Delete\", \"Recycle\", \"Retain\"",
        ],
    );
    check(
        json!({"volumeMode": "Free"}),
        &["spec.volumeMode: Unsupported value: \"Free\": supported values: \"Block\", \"Filesystem\""],
    );
    check(
        json!({"volumeAttributesClassName": "c"}),
        &["spec.csi: Required value: has to be specified when using volumeAttributesClassName"],
    );
}
