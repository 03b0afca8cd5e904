//! Objects of somebody who wants to own whoever looks at them: markup wherever the API takes free text, escapes of terminals,
//! marks that turn the direction of text, lines without an end.

use serde_json::{Value, json};

use super::on_node::{IMAGE, Node};

const MARKUP: &str = "\"><img src=x onerror=\"alert(1)\"><script>alert(2)</script><svg onload=alert(3)>";
/// Clears the screen, names the window, makes a link, asks for the clipboard; then text that runs backwards.
const ESCAPES: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{1b}]8;;https://evil.example/\u{7}here\u{1b}]8;;\u{7}\u{1b}]52;c;b3duZWQ=\u{7}invoice\u{202e}gpj.exe";
/// What fits into a ConfigMap beside the rest.
const LINE_BYTES: usize = 900_000;

/// They are found by these names in `tests/browser/attack.mjs`.
pub fn create(node: &Node, namespace: &str) {
    let kubectl = node.server.kubectl();
    let put = |object: Value| {
        let manager = "--field-manager=<img src=x onerror=alert(4)>";
        kubectl.ok_with(&["create", manager, "-n", namespace, "-f", "-"], &object.to_string());
    };
    put(definition());
    // `kubectl wait` fails where a definition has no conditions yet, with this server as with any other.
    node.until_served(&format!("/apis/example.com/v1/namespaces/{namespace}/hostiles"));
    for object in objects(namespace) {
        put(object);
    }
    let cause = format!("kubernetes.io/change-cause={MARKUP}");
    kubectl.ok(&["annotate", "deployment", "frontend", "-n", namespace, &cause]);
    let condition = json!({"type": "Ready", "status": "False", "reason": MARKUP, "message": MARKUP});
    let status = json!({"status": {"reason": MARKUP, "message": MARKUP, "conditions": [condition]}}).to_string();
    for what in ["pods/hostile-status", "hostiles.example.com/one"] {
        kubectl.ok(&["patch", what, "-n", namespace, "--subresource=status", "--type=merge", "-p", &status]);
    }
    kubectl.ok(&["wait", "--for=condition=Ready", "pod/hostile", "-n", namespace, "--timeout=120s"]);
}

fn objects(namespace: &str) -> Vec<Value> {
    let pod = |name: &str, container: Value, more: Value| {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": {"example.com/note": MARKUP}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}});
        more.as_object().into_iter().flatten().for_each(|(key, value)| pod["spec"][key] = value.clone());
        pod
    };
    let talks = json!({"name": "app", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", "cat /text/lines; sleep 3600"],
        "env": [{"name": "TEXT", "value": MARKUP}], "volumeMounts": [{"name": "text", "mountPath": "/text"}]});
    let lines = format!("{MARKUP}\n{ESCAPES}\n{}\n", "x".repeat(LINE_BYTES));
    let involved = json!({"kind": "Pod", "apiVersion": "v1", "name": "hostile", "namespace": namespace});
    vec![
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "settings", "annotations": {"example.com/markup": MARKUP, "example.com/bidi": ESCAPES}},
            "data": {"markup": MARKUP, "escape.txt": ESCAPES, "long": "z".repeat(1 << 19)}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hostile-lines"}, "data": {"lines": lines}}),
        pod("hostile", talks, json!({"volumes": [{"name": "text", "configMap": {"name": "hostile-lines"}}]})),
        pod("hostile-image", json!({"name": "app", "image": MARKUP}), json!({})),
        pod("hostile-status", json!({"name": "app", "image": IMAGE}), json!({"schedulerName": "nobody"})),
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "hostile"}, "involvedObject": involved, "type": "Warning",
            "reason": MARKUP, "message": format!("{MARKUP}{ESCAPES}"), "source": {"component": MARKUP, "host": MARKUP}, "count": 1,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "hostile"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": MARKUP}]}),
        json!({"apiVersion": "example.com/v1", "kind": "Hostile", "metadata": {"name": "one"}, "spec": {"text": MARKUP}}),
    ]
}

/// A kind whose very columns are hostile.
fn definition() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "description": MARKUP});
    let schema = json!({"type": "object", "properties": {"spec": open, "status": open}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "hostiles.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "hostiles", "singular": "hostile", "kind": "Hostile"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": MARKUP, "type": "string", "jsonPath": ".spec.text", "description": MARKUP}]}]}})
}
