//! Services through their life: the fields of a type come and go, addresses stay.

use machinery::field::Errors;
use machinery::node::Node;
use serde_json::{Value, json};

use super::{families, strategy, validate};

/// Merges a change into a Service as PATCH does, then does what the server does on update; answers spec or errors.
fn update(old: &Value, change: Value) -> Result<Value, Vec<String>> {
    let mut new = old.clone();
    merge(&mut new["spec"], &change);
    super::defaults::defaults(&mut new);
    strategy::prepare_update(&mut new, old);
    strategy::patch_allocated(&mut new, old);
    strategy::sync_cluster_ips(&mut new, Some(old));
    families::choose(&mut new, Some(old), &["IPv4"]).map_err(sentences)?;
    let mut errors = Errors::default();
    validate::validate_update(&Node::root(&new), &Node::root(old), &mut errors);
    if errors.is_empty() { Ok(new) } else { Err(sentences(errors)) }
}

fn sentences(errors: Errors) -> Vec<String> {
    errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect()
}

fn merge(target: &mut Value, change: &Value) {
    for (field, value) in change.as_object().into_iter().flatten() {
        match value {
            Value::Null => _ = target.as_object_mut().map(|map| map.remove(field)),
            value => target[field] = value.clone(),
        }
    }
}

fn service(spec: Value) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec});
    super::defaults::defaults(&mut service);
    strategy::prepare_create(&mut service);
    strategy::sync_cluster_ips(&mut service, None);
    families::choose(&mut service, None, &["IPv4"]).expect("a good service");
    service
}

#[test]
fn type_changes_drop_what_the_new_type_has_not() {
    let ports = json!([{"port": 80, "protocol": "TCP", "targetPort": 80}]);
    let cluster_ip = service(json!({"ports": ports, "selector": {"a": "b"}, "clusterIP": "10.96.0.9"}));
    let base = cluster_ip["spec"].clone();

    let mut node_port = update(&cluster_ip, json!({"type": "NodePort"})).unwrap();
    assert_eq!(node_port["spec"]["externalTrafficPolicy"], "Cluster");
    node_port["spec"]["ports"][0]["nodePort"] = json!(30001);

    let balancer = update(&node_port, json!({"type": "LoadBalancer", "ports": ports})).unwrap();
    assert_eq!(balancer["spec"]["ports"][0]["nodePort"], 30001, "kept, though the client did not send it");
    assert_eq!(balancer["spec"]["allocateLoadBalancerNodePorts"], true);

    let frugal = update(&balancer, json!({"allocateLoadBalancerNodePorts": false})).unwrap();
    assert_eq!(frugal["spec"]["ports"][0]["nodePort"], 30001, "allocated ports stay");
    assert!(!strategy::allocates_node_ports(&frugal["spec"]));

    let back = update(&balancer, json!({"type": "ClusterIP"})).unwrap();
    assert_eq!(back["spec"], base);

    let external = update(&back, json!({"type": "ExternalName", "externalName": "a.b"})).unwrap();
    let expected = json!({
        "ports": ports, "selector": {"a": "b"}, "type": "ExternalName", "sessionAffinity": "None", "externalName": "a.b"
    });
    assert_eq!(external["spec"], expected);
}

#[test]
fn addresses_do_not_change() {
    let old = service(json!({"ports": [{"port": 80}], "clusterIP": "10.96.0.9"}));
    check_refused(
        &old,
        json!({"clusterIP": "10.96.7.7"}),
        &["spec.clusterIPs[0]: Invalid value: [\"10.96.7.7\"]: may not change once set"],
    );
    assert_eq!(update(&old, json!({"clusterIP": null, "clusterIPs": null})).unwrap(), old, "left out is kept");
}

#[test]
fn ports_are_checked() {
    let old = service(json!({"ports": [{"port": 80}], "clusterIP": "10.96.0.9"}));
    check_refused(
        &old,
        json!({"ports": [{"name": "a", "port": 80}, {"name": "a", "port": 80, "targetPort": "a--b"}]}),
        &[
            "spec.ports[1].name: Duplicate value: \"a\"",
            "spec.ports[1].targetPort: Invalid value: \"a--b\": must not contain consecutive hyphens",
            "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\
             \"TargetPort\":0,\"NodePort\":0}",
        ],
    );
}

#[test]
fn fields_belong_to_types() {
    let old = service(json!({"ports": [{"port": 80}], "clusterIP": "10.96.0.9"}));
    check_refused(
        &old,
        json!({"loadBalancerClass": "x.y/z", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30000}),
        &[
            "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
            "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
            "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
            "spec.healthCheckNodePort: Invalid value: 30000: may only be set when `type` is 'LoadBalancer' and \
             `externalTrafficPolicy` is 'Local'",
        ],
    );
    check_refused(
        &old,
        json!({"loadBalancerSourceRanges": ["10.0.0.1/8"]}),
        &[
            "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
            "spec.LoadBalancerSourceRanges[0]: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix \
             length",
        ],
    );
}

#[test]
fn families_follow_policy_and_cluster() {
    let check = |spec: Value, cluster: &[&str], expected: Result<Value, &str>| {
        let mut service = json!({"spec": spec});
        super::defaults::defaults(&mut service);
        strategy::sync_cluster_ips(&mut service, None);
        let outcome = families::choose(&mut service, None, cluster).map_err(|errors| sentences(errors).join("; "));
        let shown = outcome.map(|()| json!([service["spec"]["ipFamilyPolicy"], service["spec"]["ipFamilies"]]));
        assert_eq!(shown, expected.map_err(str::to_string));
    };
    check(json!({}), &["IPv4"], Ok(json!(["SingleStack", ["IPv4"]])));
    check(json!({"clusterIP": "None"}), &["IPv4"], Ok(json!(["RequireDualStack", ["IPv4", "IPv6"]])));
    check(
        json!({"clusterIP": "None", "selector": {"a": "b"}}),
        &["IPv4", "IPv6"],
        Ok(json!(["SingleStack", ["IPv4"]])),
    );
    check(json!({"ipFamilyPolicy": "PreferDualStack"}), &["IPv4"], Ok(json!(["PreferDualStack", ["IPv4"]])));
    check(
        json!({"ipFamilyPolicy": "PreferDualStack"}),
        &["IPv6", "IPv4"],
        Ok(json!(["PreferDualStack", ["IPv6", "IPv4"]])),
    );
    check(
        json!({"ipFamilyPolicy": "RequireDualStack"}),
        &["IPv4"],
        Err("spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack \
             services"),
    );
    check(
        json!({"ipFamilies": ["IPv6"]}),
        &["IPv4"],
        Err("spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"),
    );
}

fn check_refused(old: &Value, change: Value, expected: &[&str]) {
    assert_eq!(update(old, change), Err(expected.iter().map(|text| text.to_string()).collect()));
}

mod rules {
    use serde_json::{Value, json};

    use crate::testing::Rules;

    fn service() -> Rules {
        Rules::of(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {
            "ports": [{"port": 80}], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
        }}))
    }

    fn spec(changes: Value, expected: &[&str]) {
        let expected: Vec<String> = expected.iter().map(|text| format!("spec.{text}")).collect();
        service().create(json!({"spec": changes}), &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn ports() {
        spec(
            json!({"ports": [{"port": 80}, {"port": 81}]}),
            &["ports[0].name: Required value", "ports[1].name: Required value"],
        );
        spec(
            json!({"ports": [{"name": "a", "port": 80}, {"name": "a", "port": 80}]}),
            &[
                "ports[1].name: Duplicate value: \"a\"",
                "ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\"TargetPort\":0,\
             \"NodePort\":0}",
            ],
        );
        spec(
            json!({"ports": [{"port": 0, "targetPort": 70000, "protocol": "ICMP", "appProtocol": "a b"}]}),
            &[
                "ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
                "ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                "ports[0].appProtocol: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used \
             for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ],
        );
        spec(
            json!({"ports": [{"nodePort": 30000}]}),
            &["ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        );
    }

    #[test]
    fn affinity() {
        spec(
            json!({"sessionAffinity": "Cookie"}),
            &["sessionAffinity: Unsupported value: \"Cookie\": supported values: \"ClientIP\", \"None\""],
        );
        let timeout = |seconds: i64| json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}});
        spec(timeout(86400), &[]);
        spec(
            timeout(86401),
            &[
                "sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400",
            ],
        );
    }

    #[test]
    fn hints_and_mode_agree() {
        let annotations = |mode: &str| {
            json!({"metadata": {"annotations": {
                "service.kubernetes.io/topology-aware-hints": "Auto", "service.kubernetes.io/topology-mode": mode,
            }}})
        };
        service().create(annotations("Auto"), &[]);
        service().create(
            annotations("Disabled"),
            &["metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: \"Disabled\": must match \
             annotations[service.kubernetes.io/topology-aware-hints] when both are specified"],
        );
    }

    /// Addresses that an older server took stay; new ones are looked at.
    #[test]
    fn sloppy_addresses() {
        let external = |address: &str| json!({"spec": {"externalIPs": [address], "externalTrafficPolicy": "Cluster"}});
        service().create(
            external("010.1.1.1"),
            &["spec.externalIPs[0]: Invalid value: \"010.1.1.1\": must not have leading 0s"],
        );
        service().update_from(&external("010.1.1.1"), json!({"metadata": {"labels": {"a": "b"}}}), &[]);
        service().update_from(
            &external("010.1.1.1"),
            external("010.1.1.2"),
            &["spec.externalIPs[0]: Invalid value: \"010.1.1.2\": must not have leading 0s"],
        );
        service().create(external("127.0.0.1"), &[
            "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ]);
    }

    #[test]
    fn names_outside() {
        let outside = |name: &str| {
            json!({"type": "ExternalName", "externalName": name, "clusterIP": null, "clusterIPs": null, "ipFamilies": null,
                   "ipFamilyPolicy": null})
        };
        spec(outside("example.com."), &[]);
        spec(outside(""), &["externalName: Required value"]);
        spec(
            json!({"type": "LoadBalancer", "loadBalancerClass": "a b"}),
            &[
                "loadBalancerClass: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and \
             must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
             validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ],
        );
        spec(
            json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}),
            &["LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'"],
        );
        spec(
            json!({"trafficDistribution": "PreferFar"}),
            &[
                "trafficDistribution: Unsupported value: \"PreferFar\": supported values: \"PreferClose\", \"PreferSameZone\", \
             \"PreferSameNode\"",
            ],
        );
    }
}
