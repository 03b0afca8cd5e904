//! The pods that are written: 2 to 3 KiB as sent, with what pods of a usual Deployment carry.

use bytes::Bytes;
use serde_json::json;

/// Where the time of sending stands in a pod, so that watchers can tell how long it took to reach them.
pub const SENT: &str = "\"bench/sent\":\"";

pub const NAMESPACE: &str = "default";
pub const PATH: &str = "/api/v1/namespaces/default/pods";

/// A pod's text around its name and time of sending: made once, so that making load costs little.
pub struct Template {
    parts: [String; 3],
}

impl Template {
    pub fn new() -> Template {
        let text = pod("@name@", "@sent@").to_string();
        let (head, rest) = text.split_once("@sent@").expect("the annotation is there");
        let (middle, tail) = rest.split_once("@name@").expect("the name is there");
        Template { parts: [head.into(), middle.into(), tail.into()] }
    }

    pub fn pod(&self, name: &str, sent_ns: u128) -> Bytes {
        let [head, middle, tail] = &self.parts;
        format!("{head}{sent_ns}{middle}{name}{tail}").into()
    }
}

fn pod(name: &str, sent: &str) -> serde_json::Value {
    let variables: Vec<_> =
        (0..8).map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("the value of setting {n}")})).collect();
    let container = |name: &str| {
        json!({
            "name": name,
            "image": format!("registry.example.com/team/{name}:1.4.2"),
            "args": ["--listen=0.0.0.0:8080", "--log-format=json", "--shutdown-delay=5s"],
            "env": variables,
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
            "livenessProbe": {"httpGet": {"path": "/alive", "port": "http"}, "initialDelaySeconds": 10},
            "volumeMounts": [{"name": "settings", "mountPath": "/etc/settings", "readOnly": true}, {"name": "cache", "mountPath": "/var/cache"}],
        })
    };
    let mut sidecar = container("sidecar");
    sidecar["ports"] = json!([{"name": "metrics", "containerPort": 9090, "protocol": "TCP"}]);
    sidecar["readinessProbe"]["httpGet"]["port"] = "metrics".into();
    sidecar["livenessProbe"]["httpGet"]["port"] = "metrics".into();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": "web", "app.kubernetes.io/version": "1.4.2", "pod-template-hash": "6d4cf56db6"},
            "annotations": {"bench/sent": sent, "prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
        },
        "spec": {
            "containers": [container("web"), sidecar],
            "volumes": [
                {"name": "settings", "configMap": {"name": "web-settings"}},
                {"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}},
            ],
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "web", "effect": "NoSchedule"}],
            "terminationGracePeriodSeconds": 30,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_json_of_the_size_that_upstream_was_measured_with() {
        let pod = Template::new().pod("some-pod-1", 1234567890);
        let value: serde_json::Value = serde_json::from_slice(&pod).unwrap();
        assert_eq!(value["metadata"]["name"], "some-pod-1");
        assert!((2 << 10..3 << 10).contains(&pod.len()), "{} bytes", pod.len());
        assert!(std::str::from_utf8(&pod).unwrap().contains(&format!("{SENT}1234567890\"")));
    }
}
