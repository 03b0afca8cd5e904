use serde_json::{Value, json};

use super::{check_some, container, pod, volume};

#[test]
fn pods_tell_where_they_run_and_how() {
    let pod = json!({
        "metadata": {"name": "web", "namespace": "team", "labels": {"app": "web"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "controller": true}]},
        "spec": {"priority": 0, "serviceAccountName": "default", "nodeName": "n1", "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"operator": "Exists"}, {"key": "a", "value": "v", "effect": "NoSchedule"}],
            "containers": [{"name": "web", "image": "nginx"}]},
        "status": {"phase": "Running", "hostIP": "10.0.0.9", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}],
            "qosClass": "BestEffort", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    check_some(
        pod::pod(&pod),
        &[
            "Name:|web",
            "Namespace:|team",
            "Priority:|0",
            "Service Account:|default",
            "Node:|n1/10.0.0.9",
            "Labels:|app=web",
            "Status:|Running",
            "IP:|10.1.0.1",
            "IPs:",
            "  IP:|10.1.0.1",
            "Controlled By:|ReplicaSet/web-1",
            "Containers:",
            "  web:",
            "Conditions:",
            "  Ready |True ",
            "Volumes:|<none>",
            "QoS Class:|BestEffort",
            "Node-Selectors:|disk=ssd",
            "Tolerations:|op=Exists",
            "|a=v:NoSchedule",
            "|b:NoExecute op=Exists for 300s",
        ],
    );
    let pending = json!({"metadata": {"name": "web"}, "status": {"phase": "Failed", "reason": "Evicted"}});
    check_some(pod::pod(&pending), &["Node:|<none>", "Status:|Failed", "Reason:|Evicted", "IPs:|<none>"]);
}

#[test]
fn containers_show_ports_state_and_environment() {
    let container = json!({
        "name": "web", "image": "nginx", "command": ["a", "b\nc"],
        "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "UDP"}],
        "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1Gi"}},
        "livenessProbe": {"httpGet": {"path": "healthz", "port": 80}, "periodSeconds": 10},
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings"}}, {"secretRef": {"name": "s"}}],
        "env": [{"name": "A", "value": "one\ntwo"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "E", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k", "optional": true}}}],
        "volumeMounts": [{"name": "v", "mountPath": "/b"}, {"name": "v", "mountPath": "/a", "readOnly": true, "subPath": "x"}],
    });
    let status = json!({"name": "web", "containerID": "c1", "imageID": "i1", "ready": true, "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"reason": "Error", "exitCode": 1, "signal": 9}}});
    let pod = json!({"metadata": {"name": "pod-1"}});
    let list = [container];
    check_some(
        container::containers("Containers", &list, Some(&[status]), "", &pod),
        &[
            "Containers:",
            "  web:",
            "    Container ID:|c1",
            "    Image:|nginx",
            "    Image ID:|i1",
            "    Ports:|80/TCP (http), 53/UDP",
            "    Command:",
            "      a",
            "      b",
            "      c",
            "    State:|Waiting",
            "      Reason:|CrashLoopBackOff",
            "    Last State:|Terminated",
            "      Reason:|Error",
            "      Exit Code:|1",
            "      Signal:|9",
            "    Ready:|True",
            "    Restart Count:|2",
            "    Limits:",
            "      cpu:|1",
            "    Requests:",
            "      memory:|1Gi",
            "    Liveness:|http-get http://:80/healthz delay=0s timeout=0s period=10s #success=0 #failure=0",
            "    Environment Variables from:",
            "      settings|ConfigMap with prefix 'P_'|Optional: false",
            "      s|Secret|Optional: false",
            "    Environment:",
            "      A:|one",
            "      |two",
            "      B:|<set to the key 'k' in secret 's'>|Optional: false",
            "      C:|pod-1 (v1:metadata.name)",
            "      D:|1 (limits.cpu)",
            "      E:|<set to the key 'k' of config map 'm'>|Optional: true",
            "    Mounts:",
            "      /a from v (ro,path=\"x\")",
            "      /b from v (rw)",
        ],
    );
}

#[test]
fn probes_are_one_line() {
    let times = "delay=1s timeout=2s period=3s #success=4 #failure=5";
    let check = |kind: &str, how: Value, text: &str| {
        let mut probe = json!({"initialDelaySeconds": 1, "timeoutSeconds": 2, "periodSeconds": 3,
            "successThreshold": 4, "failureThreshold": 5});
        probe[kind] = how;
        assert_eq!(container::probe(&probe), format!("{text} {times}"));
    };
    check("exec", json!({"command": ["a", "b"]}), "exec [a b]");
    check("tcpSocket", json!({"port": 80}), "tcp-socket :80");
    check("grpc", json!({"port": 9, "service": "s"}), "grpc <pod>:9 s");
    check("httpGet", json!({"scheme": "HTTPS", "host": "h", "port": "web", "path": "/x"}), "http-get https://h:web/x");
}

#[test]
fn volumes_of_pods_have_their_kind() {
    let volumes = [
        json!({"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}}),
        json!({"name": "host", "hostPath": {"path": "/var"}}),
        json!({"name": "token", "projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 3607}},
            {"configMap": {"name": "ca"}}, {"downwardAPI": {}}]}}),
        json!({"name": "info", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}),
        json!({"name": "csi", "csi": {"driver": "d", "readOnly": true, "volumeAttributes": {"k": "v"}}}),
        json!({"name": "future", "newKind": {}}),
    ];
    check_some(
        volume::volumes(&volumes, ""),
        &[
            "Volumes:",
            "  cache:",
            "    Type:|EmptyDir (a temporary directory that shares a pod's lifetime)",
            "    Medium:|",
            "    SizeLimit:|1Gi",
            "  host:",
            "    Path:|/var",
            "    HostPathType:|<none>",
            "  token:",
            "    TokenExpirationSeconds:|3607",
            "    ConfigMapName:|ca",
            "    Optional:|false",
            "    DownwardAPI:|true",
            "  info:",
            "      metadata.labels -> labels",
            "  csi:",
            "    Driver:|d",
            "    ReadOnly:|true",
            "    VolumeAttributes:|    k=v",
            "  future:",
            "  <unknown>",
        ],
    );
}
