//! Rules of pods in upstream's words: one change at a time of a pod that is good.

use machinery::field::Errors;
use machinery::node::Node;
use serde_json::{Value, json};

use super::{subresources, validate_resize_update};
use crate::testing::{Rules, merge};

fn pod() -> Rules {
    Rules::of(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "c", "image": "x"}],
        "initContainers": [{"name": "i", "image": "x"}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "p", "persistentVolumeClaim": {"claimName": "p"}}],
    }}))
}

fn spec(changes: Value, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|text| format!("spec.{text}")).collect();
    pod().create(json!({"spec": changes}), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

fn container(changes: Value, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|text| format!("containers[0]{text}")).collect();
    spec(json!({"containers": [changes]}), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

fn init(changes: Value, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|text| format!("initContainers[0]{text}")).collect();
    spec(json!({"initContainers": [changes]}), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn rules_of_restarts() {
    let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}});
    container(json!({"restartPolicy": "Never", "restartPolicyRules": [rule]}), &[]);
    container(
        json!({"restartPolicyRules": [rule]}),
        &[".restartPolicy: Required value: must specify restartPolicy when restart rules are used"],
    );
    container(
        json!({"restartPolicy": "Sometimes"}),
        &[".restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"Never\", \"OnFailure\""],
    );
    container(
        json!({"restartPolicy": "Never", "restartPolicyRules": [{"exitCodes": {"values": [1]}}, {"action": "Stop"}]}),
        &[
            ".restartPolicyRules[0].action: Unsupported value: \"\": supported values: \"Restart\", \"RestartAllContainers\"",
            ".restartPolicyRules[0].exitCodes.operator: Unsupported value: \"\": supported values: \"In\", \"NotIn\"",
            ".restartPolicyRules[1].action: Unsupported value: \"Stop\": supported values: \"Restart\", \"RestartAllContainers\"",
            ".restartPolicyRules[1].exitCodes: Required value: must be specified",
        ],
    );
    container(
        json!({"restartPolicy": "Never", "restartPolicyRules": vec![rule.clone(); 21]}),
        &[".restartPolicyRules: Too many: 21: must have at most 20 items"],
    );
    init(json!({"restartPolicy": "Always", "restartPolicyRules": [rule]}), &[]);
    init(
        json!({"restartPolicyRules": [rule]}),
        &[".restartPolicy: Required value: must specify restartPolicy when restart rules are used"],
    );
}

#[test]
fn policies_of_resizes() {
    let policy = |restart: &str| json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": restart}]});
    init(policy("NotRequired"), &[]);
    init(
        policy("RestartContainer"),
        &[
            ".resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must not be set to 'RestartContainer' for \
         non-sidecar initContainers",
        ],
    );
    let mut sidecar = policy("RestartContainer");
    sidecar["restartPolicy"] = "Always".into();
    init(sidecar, &[]);
    spec(
        json!({"restartPolicy": "Never", "containers": [policy("RestartContainer")]}),
        &[
            "containers[0].resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` is \
         'Never'",
        ],
    );
    container(
        json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "Later"}, {"resourceName": "cpu", "restartPolicy": "NotRequired"}]}),
        &[
            ".resizePolicy: Unsupported value: \"Later\": supported values: \"NotRequired\", \"RestartContainer\"",
            ".resizePolicy[1]: Duplicate value: \"cpu\"",
        ],
    );
}

#[test]
fn variables_from_files() {
    let variable = |reference: Value| json!({"env": [{"name": "A", "valueFrom": {"fileKeyRef": reference}}]});
    container(variable(json!({"volumeName": "v", "path": "a/b", "key": "K"})), &[]);
    container(
        variable(json!({"volumeName": "v", "path": "a/../b", "key": "K=V"})),
        &[
            ".env[0].valueFrom.fileKeyRef.key: Invalid value: \"K=V\": a valid environment variable name must consist only of \
         printable ASCII characters other than '='",
            ".env[0].valueFrom.fileKeyRef.path: Invalid value: \"a/../b\": must not contain '..'",
        ],
    );
    container(
        variable(json!({"volumeName": "p", "path": "a", "key": "K"})),
        &[".env[0].valueFrom.fileKeyRef.volumeName: Invalid value: \"p\": referenced volume must be of type emptyDir"],
    );
    container(
        variable(json!({"volumeName": "w", "path": "a", "key": "K"})),
        &[".env[0].valueFrom.fileKeyRef.volumeName: Not found: \"w\""],
    );
}

#[test]
fn variables() {
    container(json!({"env": [{"value": "x"}]}), &[".env[0].name: Required value"]);
    let from = |from: Value| json!({"env": [{"name": "A", "valueFrom": from}]});
    let at = ".env[0].valueFrom";
    container(
        from(json!({})),
        &[&format!(
            "{at}: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` \
         or `fileKeyRef`"
        )],
    );
    let key = json!({"name": "s", "key": "k"});
    container(
        from(json!({"secretKeyRef": key, "configMapKeyRef": key})),
        &[&format!("{at}: Invalid value: \"\": may not have more than one field specified at a time")],
    );
    container(
        json!({"env": [{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": key}}]}),
        &[&format!("{at}: Invalid value: \"\": may not be specified when `value` is not empty")],
    );
    container(
        from(json!({"secretKeyRef": {"name": "s", "key": "a/b"}})),
        &[&format!(
            "{at}.secretKeyRef.key: Invalid value: \"a/b\": a valid config key must consist of alphanumeric characters, '-', '_' \
         or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        )],
    );
    container(
        from(json!({"resourceFieldRef": {"resource": "limits.disk"}})),
        &[&format!(
            "{at}.resourceFieldRef.resource: Unsupported value: \"limits.disk\": supported values: \"limits.cpu\", \
         \"limits.ephemeral-storage\", \"limits.memory\", \"requests.cpu\", \"requests.ephemeral-storage\", \"requests.memory\""
        )],
    );
    container(
        from(json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}})),
        &[&format!(
            "{at}.resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1 are supported with the \
         cpu resource"
        )],
    );
    container(from(json!({"resourceFieldRef": {"resource": "requests.hugepages-2Mi", "divisor": "1Mi"}})), &[]);
    container(
        json!({"envFrom": [{"configMapRef": {"name": "a--"}, "prefix": "="}]}),
        &[
            ".envFrom[0].prefix: Invalid value: \"=\": a valid environment variable name must consist only of printable ASCII \
         characters other than '='",
        ],
    );
}

#[test]
fn signals() {
    let stop = |os: Value, signal: &str| json!({"os": os, "containers": [{"lifecycle": {"stopSignal": signal}}], "securityContext": {}});
    spec(stop(json!({"name": "linux"}), "SIGRTMIN+15"), &[]);
    spec(
        stop(Value::Null, "SIGTERM"),
        &["containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`"],
    );
    let mut errors = Errors::default();
    let object = pod().made(&json!({"spec": stop(json!({"name": "linux"}), "SIGNAL")}));
    (super::KIND.validate)(&Node::root(&object), &mut errors);
    let message = errors.summary();
    assert!(
        message.starts_with(
            "spec.containers[0].lifecycle.stopSignal: Unsupported value: \"SIGNAL\": supported values: \"SIGABRT\", "
        ),
        "{message}"
    );
    assert_eq!(message.matches("\"SIG").count(), 66, "the signal, and all 65 of Linux");
    spec(
        stop(json!({"name": "windows"}), "SIGHUP"),
        &[
            "containers[0].lifecycle.stopSignal: Unsupported value: \"SIGHUP\": supported values: \"SIGKILL\", \"SIGTERM\"",
        ],
    );
}

#[test]
fn names_of_hosts() {
    spec(json!({"hostnameOverride": "a.example.com"}), &[]);
    spec(
        json!({"hostnameOverride": "a", "setHostnameAsFQDN": true, "hostNetwork": true}),
        &[
            "hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
            "hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
        ],
    );
    spec(json!({"hostnameOverride": "a".repeat(65)}), &["hostnameOverride: Too long: may not be more than 64 bytes"]);
    spec(
        json!({"hostAliases": [{"ip": "10.0.0.01", "hostnames": ["a"]}]}),
        &["hostAliases[0].ip: Invalid value: \"10.0.0.01\": must not have leading 0s"],
    );
    spec(
        json!({"dnsConfig": {"nameservers": ["::ffff:1.2.3.4"]}}),
        &["dnsConfig.nameservers[0]: Invalid value: \"::ffff:1.2.3.4\": must not be an IPv4-mapped IPv6 address"],
    );
    spec(
        json!({"dnsPolicy": "None"}),
        &["dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
    );
    spec(
        json!({"dnsConfig": {"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"], "options": [{"value": "x"}]}}),
        &[
            "dnsConfig.nameservers: Invalid value: [\"1.1.1.1\",\"1.1.1.2\",\"1.1.1.3\",\"1.1.1.4\"]: must not have more than 3 \
         nameservers",
            "dnsConfig.options[0]: Required value: must not be empty",
        ],
    );
}

#[test]
fn user_namespaces() {
    spec(json!({"hostUsers": false}), &[]);
    spec(
        json!({"hostUsers": false, "hostNetwork": true, "hostIPC": true}),
        &["hostNetwork: Forbidden: when `hostUsers` is false", "HostIPC: Forbidden: when `hostUsers` is false"],
    );
    spec(
        json!({"hostUsers": false, "containers": [{"volumeDevices": [{"name": "p", "devicePath": "/dev/p"}]}]}),
        &["containers[0].volumeDevices: Forbidden: when `hostUsers` is false"],
    );
    container(
        json!({"securityContext": {"procMount": "Unmasked"}}),
        &[".securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`"],
    );
}

#[test]
fn resources_of_the_pod() {
    let pod = |resources: Value, own: Value| json!({"resources": resources, "containers": [{"resources": own}]});
    // Limits alone are good: requests that are not said need not hold those of the containers.
    spec(pod(json!({"limits": {"memory": "1Gi"}}), json!({"requests": {"cpu": "1"}})), &[]);
    spec(
        pod(json!({"requests": {"cpu": "1"}}), json!({"requests": {"cpu": "2"}})),
        &[
            "resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container requests of 2",
        ],
    );
    spec(
        pod(json!({"limits": {"cpu": "1"}}), json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}})),
        &["resources.containers[0][cpu].limits: Invalid value: \"2\": must be less than or equal to pod limits of 1"],
    );
    let huge = |amount: &str| json!({"cpu": "1", "hugepages-2Mi": amount});
    let both = |amount: &str| json!({"limits": huge(amount), "requests": huge(amount)});
    spec(pod(both("4Mi"), both("2Mi")), &[]);
    spec(
        json!({"resources": both("2Mi"), "containers": [{"resources": both("2Mi")}, {"name": "d", "image": "x", "resources": both("2Mi")}]}),
        &[
            "resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container requests of 2",
            "resources.requests[hugepages-2Mi]: Invalid value: \"2Mi\": must be greater than or equal to aggregate container \
         requests of 4Mi",
            "resources.limits[hugepages-2Mi]: Invalid value: \"2Mi\": must be greater than or equal to aggregate container limits \
         of 4Mi",
        ],
    );
    spec(
        json!({"os": {"name": "windows"}, "resources": {"limits": {"cpu": "1"}}, "securityContext": {}}),
        &["resources: Forbidden: may not be set for a windows pod"],
    );
    spec(
        json!({"resources": {"requests": {"cpu": "1"}, "claims": [{"name": "x"}]}}),
        &["resources.claims: Forbidden: claims may not be set for Resources at pod-level"],
    );
    spec(
        json!({"resources": {"requests": {"ephemeral-storage": "1"}}}),
        &[
            "resources.requests[ephemeral-storage]: Unsupported value: \"ephemeral-storage\": supported values: \"cpu\", \
         \"hugepages-\", \"memory\"",
        ],
    );
}

#[test]
fn tolerations() {
    let tolerate = |toleration: Value| json!({"tolerations": [toleration]});
    spec(
        tolerate(json!({"key": "k", "operator": "Lt", "value": "1"})),
        &[
            "tolerations[0].operator: Unsupported value: \"Lt\": supported values: \"Equal\", \"Exists\", \"Lt\", \"Gt\"",
        ],
    );
    spec(
        tolerate(json!({"key": "k", "operator": "In"})),
        &["tolerations[0].operator: Unsupported value: \"In\": supported values: \"Equal\", \"Exists\""],
    );
    spec(
        tolerate(json!({"operator": "Exists", "value": "v", "effect": "Now"})),
        &[
            "tolerations[0].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'",
            "tolerations[0].effect: Unsupported value: \"Now\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \
         \"NoExecute\"",
        ],
    );
}

/// Keys are merged into the selector before the rules see them, which must not hold that against them.
#[test]
fn spreading_by_labels_of_the_pod() {
    let spread = |changes: Value| {
        let mut constraint = json!({
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"tier": "front"}}, "matchLabelKeys": ["app"],
        });
        merge(&mut constraint, &changes);
        json!({"topologySpreadConstraints": [constraint]})
    };
    spec(spread(json!({})), &[]);
    let made = pod().made(&json!({"spec": spread(json!({}))}));
    let selector = &made["spec"]["topologySpreadConstraints"][0]["labelSelector"];
    assert_eq!(selector["matchExpressions"], json!([{"key": "app", "operator": "In", "values": ["web"]}]));
    // An update sees the merged one again.
    pod().update_from(&json!({"spec": spread(json!({}))}), json!({"metadata": {"labels": {"more": "x"}}}), &[]);
    spec(
        spread(json!({"labelSelector": {"matchLabels": {"app": "web"}}})),
        &["topologySpreadConstraints[0][0]: Invalid value: \"app\": exists in both matchLabelKeys and labelSelector"],
    );
    spec(
        spread(json!({"labelSelector": null})),
        &[
            "topologySpreadConstraints[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
        ],
    );
    // Only selectors have rules about keys; a topology key need not be a label's name.
    spec(spread(json!({"topologyKey": "a b"})), &[]);
    spec(
        spread(
            json!({"maxSkew": 0, "topologyKey": "", "minDomains": 0, "whenUnsatisfiable": "ScheduleAnyway", "nodeTaintsPolicy": "X"}),
        ),
        &[
            "topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            "topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
            "topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero",
            "topologySpreadConstraints[0].minDomains: Invalid value: 0: can only use minDomains if \
         whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
            "topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported value: \"X\": supported values: \"Honor\", \"Ignore\"",
        ],
    );
}

#[test]
fn affinity_by_labels_of_the_pod() {
    let term = |changes: Value| {
        let mut term = json!({"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["app"]});
        merge(&mut term, &changes);
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    let at = "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]";
    spec(term(json!({})), &[]);
    spec(
        term(json!({"mismatchLabelKeys": ["app"]})),
        &[
            &format!("{at}[0]: Invalid value: \"app\": exists in both matchLabelKeys and labelSelector"),
            &format!(
                "{at}.matchLabelKeys[0]: Invalid value: \"app\": exists in both matchLabelKeys and mismatchLabelKeys"
            ),
        ],
    );
    spec(
        term(json!({"namespaces": ["A"], "topologyKey": null})),
        &[
            &format!(
                "{at}.namespace: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric \
             characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex \
             used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ),
            &format!("{at}.topologyKey: Required value: can not be empty"),
            &format!("{at}.topologyKey: Invalid value: \"\": name part must be non-empty"),
            &format!(
                "{at}.topologyKey: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and \
             must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
             validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ),
        ],
    );
}

#[test]
fn states_of_containers() {
    let state = |policy: &str, own: Value, new_state: Value, expected: &[&str]| {
        let changes = json!({"spec": {"restartPolicy": policy, "containers": [own]}});
        let rules = Rules::of(pod().made(&changes));
        let status =
            |state: Value| json!({"qosClass": "BestEffort", "containerStatuses": [{"name": "c", "state": state}]});
        rules.status(status(json!({"terminated": {"exitCode": 3}})), status(new_state), expected);
    };
    let again = "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state";
    state("Always", json!({}), json!({"running": {}}), &[]);
    state("OnFailure", json!({}), json!({"running": {}}), &[]);
    state("Never", json!({}), json!({"running": {}}), &[again]);
    state("Never", json!({}), json!({"terminated": {"exitCode": 3}}), &[]);
    // A container's own policy is before the pod's.
    state("Always", json!({"restartPolicy": "Never"}), json!({"running": {}}), &[again]);
    state("Never", json!({"restartPolicy": "Always"}), json!({"running": {}}), &[]);
    let rule = |action: &str, code: i64| {
        let rule = json!({"action": action, "exitCodes": {"operator": "In", "values": [code]}});
        json!({"restartPolicy": "Never", "restartPolicyRules": [rule]})
    };
    state("Never", rule("Restart", 3), json!({"running": {}}), &[]);
    state("Never", rule("Restart", 4), json!({"running": {}}), &[again]);
    state("Never", rule("RestartAllContainers", 4), json!({"running": {}}), &[]);
}

#[test]
fn statuses() {
    let status = |old: Value, new: Value, expected: &[&str]| {
        let with = |mut status: Value| {
            status["qosClass"] = "BestEffort".into();
            status
        };
        pod().status(with(old), with(new), expected);
    };
    status(
        json!({}),
        json!({"observedGeneration": -1, "conditions": [{"type": "a b", "status": "True", "observedGeneration": -1}]}),
        &[
            "status.conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer",
            "status.conditions[0].Type: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or \
         '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used \
         for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            "status.observedGeneration: Invalid value: -1: must be a non-negative integer",
        ],
    );
    status(json!({}), json!({"nominatedNodeName": "n1"}), &[]);
    let bound = Rules::of(pod().made(&json!({"spec": {"nodeName": "n1"}})));
    bound.status(
        json!({"qosClass": "BestEffort"}),
        json!({"qosClass": "BestEffort", "nominatedNodeName": "n2"}),
        &["status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"],
    );
    status(
        json!({}),
        json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}]}),
        &[
            "status.podIPs: Invalid value: [{\"IP\":\"10.0.0.1\"},{\"IP\":\"10.0.0.1\"}]: may specify no more than one IP for each \
         IP family",
        ],
    );
    status(
        json!({}),
        json!({"podIPs": [{"ip": "10.0.0.01"}]}),
        &["status.podIPs[0]: Invalid value: \"10.0.0.01\": must not have leading 0s"],
    );
    status(json!({"podIPs": [{"ip": "10.0.0.01"}]}), json!({"podIPs": [{"ip": "10.0.0.01"}]}), &[]);
    status(
        json!({}),
        json!({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]}),
        &["status.hostIPs[0].ip: Invalid value: \"10.0.0.2\": must be equal to `hostIP`"],
    );
    let user = |uid: i64| json!({"containerStatuses": [{"name": "c", "user": {"linux": {"uid": uid, "gid": 0}}}]});
    status(
        json!({}),
        user(-1),
        &["status.containerStatuses[0].user.linux.uid: Invalid value: -1: must be between 0 and 2147483647, inclusive"],
    );
    status(
        json!({}),
        json!({"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "A"}]}),
        &[
            "status.resourceClaimStatuses[0].name: Invalid value: \"x\": must match the name of an entry in \
         `spec.resourceClaims`",
            "status.resourceClaimStatuses[0].resourceClaimName: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist \
         of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
         'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ],
    );
}

#[test]
fn health_of_devices() {
    let own = json!({"resources": {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}});
    let rules = Rules::of(pod().made(&json!({"spec": {"containers": [own]}})));
    let check = |resource: Value, expected: &[&str]| {
        let expected: Vec<String> = expected
            .iter()
            .map(|text| format!("status.containerStatuses[0].allocatedResourcesStatus[0]{text}"))
            .collect();
        let status = json!({"qosClass": "BestEffort", "containerStatuses": [{"name": "c", "allocatedResourcesStatus": [resource]}]});
        rules.status(
            json!({"qosClass": "BestEffort"}),
            status,
            &expected.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    };
    let device = |id: &str, health: &str| json!({"resourceID": id, "health": health});
    check(json!({"name": "example.com/gpu", "resources": [device("0", "Healthy"), device("1", "Unknown")]}), &[]);
    check(
        json!({"name": "example.com/nic", "resources": [device("0", "Ill"), device("0", "Healthy")]}),
        &[
            ".name: Invalid value: \"example.com/nic\": must match one of the container's resource requests",
            ".resources[0].health: Unsupported value: \"Ill\": supported values: \"Healthy\", \"Unhealthy\", \"Unknown\"",
            ".resources[1].resourceID: Duplicate value: \"0\"",
        ],
    );
    check(
        json!({"name": "claim:gpu/one"}),
        &[".name: Invalid value: \"claim:gpu/one\": must match one of the container's resource claims in a format \
         'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"],
    );
}

#[test]
fn resizes_leave_containers_where_they_are() {
    let resize = |changes: Value, expected: &[&str]| {
        let old = pod().made(&Value::Null);
        let mut new = old.clone();
        merge(&mut new, &json!({"spec": changes}));
        (super::KIND.defaults)(&mut new);
        subresources::prepare_resize(&mut new, &old);
        let mut errors = Errors::default();
        validate_resize_update(&Node::root(&new), &Node::root(&old), &mut errors);
        let found: Vec<String> = errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
        assert_eq!(found, expected);
    };
    resize(json!({}), &[]);
    resize(
        json!({"containers": [{"name": "d"}]}),
        &["spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"],
    );
    resize(
        json!({"containers": [{}, {"name": "d", "image": "x"}]}),
        &["spec.containers: Forbidden: containers may not be added or removed on resize"],
    );
    resize(
        json!({"containers": [{"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]}]}),
        &["spec: Forbidden: only cpu and memory resources are mutable"],
    );
}

#[test]
fn resizes_of_init_containers() {
    let limits = |cpu: &str| json!({"limits": {"cpu": cpu}, "requests": {"cpu": cpu}});
    let resize = |changes: Value| -> Vec<String> {
        let mut old = pod().made(&Value::Null);
        old["spec"]["initContainers"] = json!([{"name": "i", "image": "x", "resources": limits("1")}]);
        merge(&mut old, &json!({"spec": {"initContainers": [changes["before"]]}}));
        (super::KIND.defaults)(&mut old);
        old["status"]["qosClass"] = "Burstable".into();
        let mut new = old.clone();
        merge(&mut new, &json!({"spec": {"initContainers": [changes["after"]]}}));
        subresources::prepare_resize(&mut new, &old);
        let mut errors = Errors::default();
        validate_resize_update(&Node::root(&new), &Node::root(&old), &mut errors);
        errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect()
    };
    let none: [&str; 0] = [];
    assert_eq!(resize(json!({"before": {}, "after": {"resources": limits("2")}})), none);
    let mut storage = limits("2");
    storage["limits"]["ephemeral-storage"] = "1".into();
    let only =
        "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable";
    assert_eq!(resize(json!({"before": {}, "after": {"resources": storage}})), [only]);
    let restarts = json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]});
    let found = resize(json!({"before": restarts, "after": {"resources": limits("2")}}));
    let never = "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of \
                 RestartContainer cannot be resized";
    assert!(found.iter().any(|error| error == never), "{found:?}");
    let mut sidecar = restarts;
    sidecar["restartPolicy"] = "Always".into();
    assert_eq!(resize(json!({"before": sidecar, "after": {"resources": limits("2")}})), none);
}

#[test]
fn updates() {
    pod().update(json!({"spec": {"containers": [{"image": "y"}]}}), &[]);
    pod().update(json!({"spec": {"activeDeadlineSeconds": 5}}), &[]);
    pod().update_from(
        &json!({"spec": {"activeDeadlineSeconds": 5}}),
        json!({"spec": {"activeDeadlineSeconds": 6}}),
        &["spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value"],
    );
    pod().update(
        json!({"spec": {"schedulingGates": [{"name": "a"}]}}),
        &["spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'a'"],
    );
    pod().update(
        json!({"spec": {"containers": [{}, {"name": "d", "image": "x"}]}}),
        &["spec.containers: Forbidden: pod updates may not add or remove containers"],
    );
    let tolerated = json!({"spec": {"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}]}});
    pod().update_from(
        &tolerated,
        json!({"spec": {"tolerations": [{"tolerationSeconds": 5}, {"key": "b", "operator": "Exists"}]}}),
        &[],
    );
    pod().update_from(
        &tolerated,
        json!({"spec": {"tolerations": [{"key": "b"}]}}),
        &["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
    );
}

#[test]
fn claims_of_containers() {
    let claims = |claims: Value| {
        json!({
            "resourceClaims": [{"name": "a", "resourceClaimName": "x"}, {"name": "b", "resourceClaimName": "y"}],
            "containers": [{"resources": {"claims": claims}}],
        })
    };
    let at = "containers[0].resources.claims";
    spec(claims(json!([{"name": "a"}, {"name": "b", "request": "r"}, {"name": "b", "request": "s"}])), &[]);
    spec(claims(json!([{"name": "a"}, {"name": "a"}])), &[&format!("{at}[1]: Duplicate value: \"a\"")]);
    spec(claims(json!([{"name": "a"}, {"name": "a", "request": "r"}])), &[&format!("{at}[1]: Duplicate value: \"a\"")]);
    spec(
        claims(json!([{"name": "a", "request": "r"}, {"name": "a", "request": "r"}])),
        &[&format!("{at}[1]: Duplicate value: \"a/r\"")],
    );
    spec(claims(json!([{"name": "a", "request": "r"}, {"name": "a"}])), &[&format!("{at}[1]: Duplicate value: \"a\"")]);
    spec(
        claims(json!([{"name": "c"}, {}])),
        &[
            &format!("{at}[0]: Not found: \"c\": must be one of the names in pod.spec.resourceClaims: a, b"),
            &format!("{at}[1]: Required value"),
        ],
    );
    spec(
        json!({"resourceClaims": [{"name": "a"}, {"name": "a", "resourceClaimName": "x"}]}),
        &[
            "resourceClaims[0]: Invalid value: {\"Name\":\"a\",\"ResourceClaimName\":null,\"ResourceClaimTemplateName\":null}: \
             must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            "resourceClaims[1].name: Duplicate value: \"a\"",
        ],
    );
}
