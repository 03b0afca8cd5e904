//! What describers print, before columns are aligned: a tab stands between a title and its text.

mod pods;

use serde_json::{Value, json};

use super::*;

#[track_caller]
fn check(text: String, expected: &[&str]) {
    let lines: Vec<String> = text.lines().map(|line| line.replace('\t', "|")).collect();
    assert_eq!(lines, expected);
}

/// That these lines stand in the text, in this order.
#[track_caller]
fn check_some(text: String, expected: &[&str]) {
    let lines: Vec<String> = text.lines().map(|line| line.replace('\t', "|")).collect();
    let mut rest = lines.iter();
    for line in expected {
        assert!(rest.any(|found| found == line), "{line:?} is missing, or too early, in {lines:#?}");
    }
}

fn named(more: Value) -> Value {
    let mut object = json!({"metadata": {"name": "a"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

const HEAD: [&str; 3] = ["Name:|a", "Labels:|<none>", "Annotations:|<none>"];

#[test]
fn ingress_classes_have_a_controller_and_parameters() {
    let class = named(json!({"spec": {"controller": "example.com/web"}}));
    check(network::ingress_class(&class), &[&HEAD[..], &["Controller:|example.com/web"]].concat());
    let parameters = json!({"apiGroup": "example.com", "kind": "Settings", "name": "main"});
    let class = named(json!({"spec": {"controller": "c", "parameters": parameters}}));
    let lines = ["Controller:|c", "Parameters:", "  APIGroup:|example.com", "  Kind:|Settings", "  Name:|main"];
    check(network::ingress_class(&class), &[&HEAD[..], &lines].concat());
}

#[test]
fn service_ranges_have_conditions() {
    let range = named(json!({"spec": {"cidrs": ["10.0.0.0/24", "fd00::/64"]}}));
    check(network::service_cidr(&range), &[&HEAD[..], &["CIDRs:|10.0.0.0/24, fd00::/64"]].concat());
    let conditions = json!([{"type": "Ready", "status": "True", "reason": "r", "message": "m"}]);
    let range = named(json!({"spec": {"cidrs": ["10.0.0.0/24"]}, "status": {"conditions": conditions}}));
    check_some(
        network::service_cidr(&range),
        &["Status:", "Conditions:", "  Type|Status|LastTransitionTime|Reason|Message", "  Ready|True|<unset>|r|m"],
    );
}

#[test]
fn addresses_of_services_have_a_parent() {
    let parent = json!({"resource": "services", "namespace": "default", "name": "web"});
    let address = named(json!({"spec": {"parentRef": parent}}));
    let lines = ["Parent Reference:", "  Group:|", "  Resource:|services", "  Namespace:|default", "  Name:|web"];
    check(network::ip_address(&address), &[&HEAD[..], &lines].concat());
}

#[test]
fn endpoint_slices_show_ports_and_endpoints() {
    let slice = named(json!({
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}, {"protocol": "UDP"}],
        "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n", "zone": "z",
                "targetRef": {"kind": "Pod", "name": "web"}},
            {"addresses": [], "hostname": "h"},
        ],
    }));
    check_some(
        network::endpoint_slice(&slice),
        &[
            "AddressType:|IPv4",
            "Ports:",
            "  Name|Port|Protocol",
            "  ----|----|--------",
            "  http|80|TCP",
            "  <unset>|<unset>|UDP",
            "Endpoints:",
            "  - Addresses:|10.0.0.1",
            "    Conditions:",
            "      Ready:|true",
            "    Hostname:|<unset>",
            "    TargetRef:|Pod/web",
            "    NodeName:|n",
            "    Zone:|z",
            "  - Addresses:|<none>",
            "      Ready:|<unset>",
            "    Hostname:|h",
        ],
    );
    check_some(network::endpoint_slice(&named(json!({}))), &["Ports: <unset>", "Endpoints: <none>"]);
}

#[test]
fn nodes_of_csi_list_their_drivers() {
    let driver = json!({"name": "disk", "nodeID": "n1", "allocatable": {"count": 3}, "topologyKeys": ["zone", "rack"]});
    check_some(
        storage::csi_node(&named(json!({"spec": {"drivers": [driver]}}))),
        &[
            "CreationTimestamp:|<unset>",
            "Spec:",
            "  Drivers:",
            "    disk:",
            "      Node ID:|n1",
            "      Allocatables:",
            "        Count:|3",
            "      Topology Keys:|[zone rack]",
        ],
    );
}

#[test]
fn classes_of_storage_and_attributes() {
    let class = named(json!({"driverName": "disk", "parameters": {"b": "2", "a": "1"}}));
    check(
        storage::attributes_class(&class),
        &["Name:|a", "Annotations:|<none>", "DriverName:|disk", "Parameters:|a=1,b=2"],
    );
    let mut class = named(json!({
        "provisioner": "disk", "allowVolumeExpansion": true, "reclaimPolicy": "Delete", "mountOptions": ["ro"],
        "volumeBindingMode": "Immediate",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}],
    }));
    class["metadata"]["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    check_some(
        storage::class(&class),
        &[
            "IsDefaultClass:|Yes",
            "Provisioner:|disk",
            "Parameters:|<none>",
            "AllowVolumeExpansion:|True",
            "MountOptions:",
            "  ro",
            "ReclaimPolicy:|Delete",
            "VolumeBindingMode:|Immediate",
            "AllowedTopologies:|",
            "  Term 0:|zone in [a, b]",
        ],
    );
}

#[test]
fn volumes_have_a_source_and_nodes() {
    let required = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]});
    let volume = named(json!({
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "c"},
            "nodeAffinity": {"required": required}, "local": {"path": "/data"}},
        "status": {"phase": "Bound"},
    }));
    check_some(
        storage::volume(&volume),
        &[
            "Status:|Bound",
            "Claim:|n/c",
            "Reclaim Policy:|Retain",
            "Access Modes:|RWO,ROX",
            "Capacity:|1Gi",
            "    Term 0:|disk exists",
            "Source:",
            "    Type:|LocalVolume (a persistent volume backed by local storage on a node)",
            "    Path:|/data",
        ],
    );
}

#[test]
fn leases_and_others_are_described_by_their_fields() {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "a", "namespace": "n", "managedFields": [1]},
        "spec": {"holderIdentity": "h", "leaseDurationSeconds": 40, "list": ["x"], "none": null, "empty": {}},
    });
    check(
        generic::generic(&lease),
        &[
            "Name:|a",
            "Namespace:|n",
            "Labels:|<none>",
            "Annotations:|<none>",
            "API Version:|coordination.k8s.io/v1",
            "Kind:|Lease",
            "Metadata:",
            "Spec:",
            "  Empty:",
            "  Holder Identity:|h",
            "  Lease Duration Seconds:|40",
            "  List:",
            "    x",
            "  None:|<nil>",
        ],
    );
}

#[test]
fn network_policies_are_sentences() {
    let policy = named(json!({"spec": {
        "podSelector": {}, "policyTypes": ["Ingress"],
        "ingress": [
            {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 90, "endPort": 99}],
                "from": [{"podSelector": {"matchLabels": {"app": "web"}}}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]},
            {},
        ],
    }}));
    check_some(
        policy::network_policy(&policy),
        &[
            "Spec:",
            "  PodSelector:     <none> (Allowing the specific traffic to all pods in this namespace)",
            "  Allowing ingress traffic:",
            "    To Port: 80/TCP",
            "    To Port Range: 90-99/TCP",
            "    From:",
            "      PodSelector: app=web",
            "    From:",
            "      IPBlock:",
            "        CIDR: 10.0.0.0/8",
            "        Except: 10.1.0.0/16",
            "    ----------",
            "    To Port: <any> (traffic allowed to all ports)",
            "    From: <any> (traffic not restricted by source)",
            "  Not affecting egress traffic",
            "  Policy Types: Ingress",
        ],
    );
    let closed = named(json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Egress"]}}));
    check_some(
        policy::network_policy(&closed),
        &[
            "  PodSelector:     a=b",
            "  Not affecting ingress traffic",
            "  Allowing egress traffic:",
            "    <none> (Selected pods are isolated for egress connectivity)",
        ],
    );
}

#[test]
fn roles_have_a_line_for_each_resource() {
    let role = named(json!({"rules": [
        {"apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a", "b"], "verbs": ["get", "list"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]}));
    let text = policy::role(&role);
    for line in [
        "  deployments.apps\t[]\t[]\t[get]\n",
        "  deployments.apps/scale\t[]\t[]\t[get]\n",
        "  pods\t[]\t[a]\t[get list]\n",
        "  pods\t[]\t[b]\t[get list]\n",
        "  \t[/metrics]\t[]\t[get]\n",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
}

#[test]
fn limits_quotas_and_budgets() {
    let range =
        named(json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "default": {"memory": "1Gi"}}]}}));
    check_some(policy::limit_range(&range), &["Container|cpu|-|2|-|-|-", "Container|memory|-|-|-|1Gi|-"]);
    let quota =
        named(json!({"spec": {"scopes": ["BestEffort"]}, "status": {"hard": {"pods": "2"}, "used": {"pods": "1"}}}));
    check_some(policy::quota(&quota), &["Scopes:|BestEffort", "Resource|Used|Hard", "pods|1|2"]);
    let budget =
        named(json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1, "expectedPods": 4}}));
    check_some(
        policy::disruption_budget(&budget),
        &["Min available:|50%", "Selector:|<unset>", "    Allowed disruptions:|1", "    Total:|4"],
    );
}

#[test]
fn secrets_are_counted_and_tokens_are_shown() {
    let secret = named(json!({"type": "Opaque", "data": {"key": "c2VjcmV0", "token": "aGk="}}));
    check_some(config::secret(&secret), &["Type:|Opaque", "Data", "====", "key:|6 bytes", "token:|2 bytes"]);
    let token = named(json!({"type": "kubernetes.io/service-account-token", "data": {"token": "aGk="}}));
    check_some(config::secret(&token), &["token:|hi"]);
    let map = named(json!({"data": {"color": "red"}, "binaryData": {"b": "aGk="}}));
    check_some(config::config_map(&map), &["color:", "----", "red", "BinaryData", "b: 2 bytes"]);
}

#[test]
fn jobs_tell_their_limits_and_pods() {
    let job = named(json!({
        "spec": {"parallelism": 2, "completionMode": "Indexed", "backoffLimit": 6, "template": {}},
        "status": {"active": 1, "ready": 1, "failed": 2, "completedIndexes": "1,3-5",
            "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:30Z"},
    }));
    check_some(
        batch::job(&job),
        &[
            "Parallelism:|2",
            "Completions:|<unset>",
            "Completion Mode:|Indexed",
            "Backoff Limit:|6",
            "Duration:|90s",
            "Pods Statuses:|1 Active (1 Ready) / 0 Succeeded / 2 Failed",
            "Completed Indexes:|1,3-5",
            "Pod Template:",
        ],
    );
    let cron =
        named(json!({"spec": {"schedule": "* * * * *", "suspend": false, "jobTemplate": {"spec": {"template": {}}}},
        "status": {"active": [{"name": "j1"}, {"name": "j2"}]}}));
    check_some(
        batch::cron_job(&cron),
        &[
            "Schedule:|* * * * *",
            "Suspend:|False",
            "Time Zone:|<unset>",
            "Starting Deadline Seconds:|<unset>",
            "Last Schedule Time:|<unset>",
            "Active Jobs:|j1, j2",
        ],
    );
}

#[test]
fn autoscalers_compare_metrics_with_targets() {
    let scaler = named(json!({
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 5,
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
                {"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"averageValue": "10"}}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 30}]}}},
        "status": {"currentReplicas": 2, "desiredReplicas": 3,
            "currentMetrics": [{"type": "Resource", "resource": {"current": {"averageUtilization": 20, "averageValue": "5m"}}}]},
    }));
    check_some(
        workload::autoscaler(&scaler),
        &[
            "Reference:|Deployment/web",
            "Metrics:|( current / target )",
            "  resource cpu on pods  (as a percentage of request):|20% (5m) / 80%",
            "  \"hits\" on pods:|<unknown> / 10",
            "Min replicas:|<unset>",
            "Max replicas:|5",
            "Behavior:",
            "  Scale Down:",
            "    Stabilization Window: 60 seconds",
            "    Select Policy: Max",
            "      - Type: Pods|Value: 1|Period: 30 seconds",
            "Deployment pods:|2 current / 3 desired",
        ],
    );
}

#[test]
fn long_annotations_are_broken_and_cut() {
    let long = "x".repeat(200);
    let pairs = json!({"long": long, "lines": "a\nb", "short": "s"});
    let text = annotations("Annotations", "", pairs.as_object().unwrap());
    let cut = format!("|  {}...", "x".repeat(138));
    check(text, &["Annotations:|lines:", "|  a", "|  b", "|long:", &cut, "|short: s"]);
}

#[test]
fn selectors_and_rows() {
    assert_eq!(
        selector(&json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]})),
        "a=b,c"
    );
    assert_eq!(selector(&json!({"a": "b"})), "a=b");
    assert_eq!(selector(&Value::Null), "<none>");
    let object = json!({"a": "1", "b": ""});
    assert_eq!(given(&object, &[("A", "/a"), ("B", "/b"), ("C", "/c")]), "A:\t1\n");
    assert_eq!(in_line(json!({"b": 1, "a": "x"}).as_object().unwrap()), "a=x,b=1");
    assert_eq!(time("never"), "<unset>");
}
