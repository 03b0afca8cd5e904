//! One broken thing at a time in a pod that is otherwise good, and the words it is refused with.

use machinery::field::Errors;
use machinery::node::Node;
use serde_json::{Value, json};

use super::{defaults, validate, warnings};

/// A good spec with `changes` merged over it: maps by key, lists by place.
fn spec_with(changes: &Value) -> Value {
    let mut spec = json!({
        "containers": [{ "name": "c", "image": "x" }],
        "volumes": [{ "name": "v", "emptyDir": {} }, { "name": "p", "persistentVolumeClaim": { "claimName": "p" } }],
    });
    merge(&mut spec, changes);
    defaults::spec(&mut spec);
    spec
}

fn merge(target: &mut Value, changes: &Value) {
    match (target, changes) {
        (Value::Object(target), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(target), Value::Array(changes)) => {
            for (index, value) in changes.iter().enumerate() {
                match target.get_mut(index) {
                    Some(item) => merge(item, value),
                    None => target.push(value.clone()),
                }
            }
        }
        (target, changes) => *target = changes.clone(),
    }
}

fn check(changes: Value, expected: &[&str]) {
    let spec = spec_with(&changes);
    let mut errors = Errors::default();
    validate(&mut errors, &Node::new(&spec, machinery::field::Path::new("spec")), "pod");
    let found: Vec<String> = errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
    assert_eq!(found, expected, "{changes}");
}

fn check_container(changes: Value, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|text| format!("spec.containers[0]{text}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check(json!({ "containers": [changes] }), &expected);
}

#[test]
fn a_good_pod() {
    check(json!({}), &[]);
    check_container(
        json!({
            "ports": [{ "containerPort": 80, "name": "http" }, { "containerPort": 443 }],
            "env": [
                { "name": "A", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['a/b']" } } },
                { "name": "B", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu", "divisor": "1m" } } },
                { "name": "C", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } },
            ],
            "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": "1", "example.com/gpu": "2" } },
            "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
            "volumeDevices": [{ "name": "p", "devicePath": "/dev/p" }],
            "readinessProbe": { "grpc": { "port": 90 } },
            "lifecycle": { "preStop": { "sleep": { "seconds": 5 } } },
        }),
        &[],
    );
}

#[test]
fn containers() {
    check_container(
        json!({ "ports": [{ "containerPort": 80, "name": "a--b" }] }),
        &[".ports[0].name: Invalid value: \"a--b\": must not contain consecutive hyphens"],
    );
    let twice = json!({ "ports": [{ "containerPort": 1, "hostPort": 9 }, { "containerPort": 2, "hostPort": 9 }] });
    check_container(twice, &[".ports[1].hostPort: Duplicate value: \"TCP//9\""]);
    check_container(
        json!({ "envFrom": [{}] }),
        &[".envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`"],
    );
    check_container(
        json!({ "env": [{ "name": "A", "valueFrom": { "fieldRef": { "fieldPath": "spec.x" } } }] }),
        &[
            ".env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\": error converting fieldPath: field label not \
         supported: spec.x",
        ],
    );
    check_container(
        json!({ "env": [{ "name": "A", "valueFrom": { "fieldRef": { "fieldPath": "status.phase" } } }] }),
        &[".env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"status.phase\": supported values: \
         \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \"spec.serviceAccountName\", \
         \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\""],
    );
    check_container(
        json!({ "resizePolicy": [{ "resourceName": "disk", "restartPolicy": "NotRequired" }] }),
        &[".resizePolicy: Unsupported value: \"disk\": supported values: \"cpu\", \"memory\""],
    );
    check(
        json!({ "initContainers": [{ "name": "c", "image": "x", "livenessProbe": { "exec": { "command": ["a"] } } }] }),
        &[
            "spec.initContainers[0].name: Duplicate value: \"c\"",
            "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without \
         restartPolicy=Always",
        ],
    );
    check(
        json!({ "ephemeralContainers": [{ "name": "e", "image": "x", "targetContainerName": "z", "ports": [{ "containerPort": 1 }] }] }),
        &[
            "spec.ephemeralContainers[0].targetContainerName: Not found: \"z\"",
            "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
        ],
    );
}

#[test]
fn resources() {
    let check = |resources: Value, expected: &[&str]| check_container(json!({ "resources": resources }), expected);
    check(
        json!({ "requests": { "cpu": "-1" } }),
        &[".resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"],
    );
    check(
        json!({ "limits": { "foo": "1" } }),
        &[
            ".resources.limits[foo]: Invalid value: \"foo\": must be a standard resource type or fully qualified",
            ".resources.limits[foo]: Invalid value: \"foo\": must be a standard resource for containers",
        ],
    );
    check(
        json!({ "requests": { "example.com/gpu": "1" } }),
        &[".resources.limits: Required value: Limit must be set for non overcommitable resources"],
    );
    check(
        json!({ "limits": { "example.com/gpu": "1500m" } }),
        &[".resources.limits[example.com/gpu]: Invalid value: \"1500m\": must be an integer"],
    );
    check(
        json!({ "limits": { "hugepages-2Mi": "3Mi" } }),
        &[
            ".resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
            ".resources: Forbidden: HugePages require cpu or memory",
        ],
    );
    check(
        json!({ "claims": [{ "name": "g" }] }),
        &[".resources.claims[0]: Not found: \"g\": must be one of the names in pod.spec.resourceClaims which is empty"],
    );
}

#[test]
fn probes_and_hooks() {
    check_container(
        json!({ "livenessProbe": { "tcpSocket": { "port": "a_b" }, "successThreshold": 2 } }),
        &[
            ".livenessProbe.tcpSocket.port: Invalid value: \"a_b\": must contain only alpha-numeric characters (a-z, \
         0-9), and hyphens (-)",
            ".livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ],
    );
    check_container(
        json!({ "lifecycle": { "preStop": { "sleep": { "seconds": 31 } } } }),
        &[".lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than \
         terminationGracePeriodSeconds (30)"],
    );
    check_container(
        json!({ "lifecycle": { "postStart": {} } }),
        &[".lifecycle.postStart: Required value: must specify a handler type"],
    );
}

#[test]
fn mounts_and_volumes() {
    let twice = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/a" }, { "name": "v", "mountPath": "/a", "subPath": "../x" }] });
    check_container(
        twice,
        &[
            ".volumeMounts[1].mountPath: Invalid value: \"/a\": must be unique",
            ".volumeMounts.subPath: Invalid value: \"../x\": must not contain '..'",
        ],
    );
    check_container(
        json!({ "volumeMounts": [{ "name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional" }] }),
        &[
            ".volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged \
         containers",
        ],
    );
    check_container(
        json!({ "volumeDevices": [{ "name": "v", "devicePath": "/a" }] }),
        &[".volumeDevices[0].name: Invalid value: \"v\": can only use volume source type of PersistentVolumeClaim or \
         Ephemeral for block mode"],
    );
    let volume = |source: Value| json!({ "volumes": [{ "emptyDir": null }, {}, source] });
    check(
        volume(json!({ "name": "h", "hostPath": { "path": "/../x", "type": "Fil" } })),
        &[
            "spec.volumes[2].hostPath.path: Invalid value: \"/../x\": must not contain '..'",
            "spec.volumes[2].hostPath.type: Unsupported value: \"Fil\": supported values: \"\", \"BlockDevice\", \
         \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\"",
        ],
    );
    check(
        volume(json!({ "name": "s", "secret": { "items": [{ "key": "k", "path": "..x", "mode": 1000 }] } })),
        &[
            "spec.volumes[2].secret.secretName: Required value",
            "spec.volumes[2].secret.items[0].path: Invalid value: \"..x\": must not start with '..'",
            "spec.volumes[2].secret.items[0].mode: Invalid value: 1000: must be a number between 0 and 0777 (octal), both \
         inclusive",
        ],
    );
}

#[test]
fn security() {
    check(
        json!({ "securityContext": { "runAsUser": -1, "sysctls": [{ "name": "Net.x" }] } }),
        &[
            "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "spec.securityContext.sysctls[0].name: Invalid value: \"Net.x\": must have at most 253 characters and match \
         regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
        ],
    );
    check(
        json!({ "hostNetwork": true, "securityContext": { "sysctls": [{ "name": "net.ipv4.ip_forward" }] } }),
        &["spec.securityContext.sysctls[0].name: Invalid value: \"net.ipv4.ip_forward\": may not be specified when \
         'hostNetwork' is true"],
    );
    check_container(
        json!({ "securityContext": { "seccompProfile": { "type": "RuntimeDefault", "localhostProfile": "x" } } }),
        &[".securityContext.seccompProfile.localhostProfile: Invalid value: \
         {\"Type\":\"RuntimeDefault\",\"LocalhostProfile\":\"x\"}: can only be set when seccomp type is Localhost"],
    );
    check(
        json!({ "os": { "name": "linux" }, "securityContext": { "windowsOptions": {} } }),
        &["spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"],
    );
    check(json!({ "hostUsers": false, "hostPID": true }), &["spec.HostPID: Forbidden: when `hostUsers` is false"]);
}

#[test]
fn scheduling() {
    let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": {} });
    check(
        json!({ "affinity": { "nodeAffinity": required } }),
        &[
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: \
         must have at least one node selector term",
        ],
    );
    let weighted = json!([{ "weight": 101, "podAffinityTerm": { "topologyKey": "a" } }]);
    check(
        json!({ "affinity": { "podAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": weighted } } }),
        &[
            "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must \
         be in the range 1-100",
        ],
    );
    check(
        json!({ "tolerations": [{ "key": "a", "tolerationSeconds": 1 }, { "value": "b" }] }),
        &[
            "spec.tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set",
            "spec.tolerations[1].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \
         \"match all values and all keys\"",
        ],
    );
    let same = json!({ "maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule" });
    check(
        json!({ "topologySpreadConstraints": [same, same] }),
        &[
            "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{z, DoNotSchedule}\"",
        ],
    );
    check(
        json!({ "schedulingGates": [{ "name": "a" }, { "name": "a" }] }),
        &["spec.schedulingGates[1]: Duplicate value: \"a\""],
    );
}

#[test]
fn names_and_network() {
    check(
        json!({ "dnsPolicy": "X" }),
        &[
            "spec.dnsPolicy: Unsupported value: \"X\": supported values: \"ClusterFirstWithHostNet\", \"ClusterFirst\", \
         \"Default\", \"None\"",
        ],
    );
    check(
        json!({ "dnsConfig": { "nameservers": ["x"], "searches": [".", "a_b.c.", "-"] } }),
        &[
            "spec.dnsConfig.nameservers[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or \
         2001:db8::ffff)",
            "spec.dnsConfig.searches[2]: Invalid value: \"-\": a lowercase RFC 1123 subdomain must consist of lower case \
         alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. \
         'example.com', regex used for validation is \
         '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')",
        ],
    );
    check(
        json!({ "activeDeadlineSeconds": 0 }),
        &["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
    );
    check(
        json!({ "preemptionPolicy": "X" }),
        &["spec.preemptionPolicy: Unsupported value: \"X\": supported values: \"PreemptLowerPriority\", \"Never\""],
    );
}

#[test]
fn what_is_odd_is_warned_of() {
    let pod = json!({
        "metadata": { "annotations": { "scheduler.alpha.kubernetes.io/critical-pod": "" } },
        "spec": {
            "nodeSelector": { "beta.kubernetes.io/os": "linux" },
            "containers": [{
                "env": [{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }, { "name": "A", "value": "$(A)3" }],
                "ports": [{ "containerPort": 80, "protocol": "TCP" }, { "containerPort": 80, "protocol": "TCP" }],
                "resources": { "limits": { "memory": "1500m" } },
            }],
        },
    });
    assert_eq!(
        warnings::pod("spec.template", &pod),
        [
            "spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            "spec.template.metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use \
         the \"priorityClassName\" field instead",
            "spec.template.spec.containers[0].resources.limits[memory]: fractional byte value \"1500m\" is invalid, must \
         be an integer",
            "spec.template.spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using \
         apply",
            "spec.template.spec.containers[0].ports[1]: duplicate port definition with \
         spec.template.spec.containers[0].ports[0]",
        ]
    );
}

#[test]
fn pull_policies() {
    for (image, expected) in [
        ("x", "Always"),
        ("x:latest", "Always"),
        ("x:1", "IfNotPresent"),
        ("host:5000/x", "Always"),
        ("host:5000/x:1", "IfNotPresent"),
        ("x@sha256:0", "IfNotPresent"),
        ("x:latest@sha256:0", "Always"),
        ("", "IfNotPresent"),
    ] {
        assert_eq!(defaults::pull_policy(image), expected, "{image}");
    }
}
