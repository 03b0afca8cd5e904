//! The environment of containers, held against what upstream's kubelet really gave.

use serde_json::json;

use super::*;
use crate::fake_api::FakeApi;
use crate::objects::Objects;

fn pod(spec: serde_json::Value) -> Pod {
    let metadata = json!({
        "name": "running", "namespace": "obs", "uid": "u-1",
        "labels": {"app": "web", "tier": "a\"b"}, "annotations": {"note": "line\nbreak"},
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn container(value: serde_json::Value) -> Container {
    serde_json::from_value(value).unwrap()
}

fn api() -> FakeApi {
    let api = FakeApi::new();
    let service = |ip: &str, port: i64, name: Option<&str>| json!({"spec": {"clusterIP": ip, "ports": [{"port": port, "protocol": "TCP", "name": name}]}});
    api.set("/api/v1/namespaces/default/services/kubernetes", service("10.96.0.1", 443, Some("https")));
    api.set("/api/v1/namespaces/obs/services/dep", service("10.96.228.66", 80, None));
    api.set("/api/v1/namespaces/obs/services/headless", service("None", 80, None));
    api.set("/api/v1/namespaces/other/services/far", service("10.96.0.9", 80, None));
    api.set("/api/v1/namespaces/obs/configmaps/config", json!({"data": {"key": "value", "1digit": "x", "a.b-c": "y"}}));
    api.set("/api/v1/namespaces/obs/secrets/keys", json!({"data": {"password": "aHVudGVyMg=="}}));
    let allocatable = json!({"cpu": "1500m", "memory": "2Gi"});
    api.set("/api/v1/nodes/node-1", json!({"status": {"allocatable": allocatable}}));
    api
}

async fn environment(pod: &Pod, container: &Container) -> Result<Environment, String> {
    let addresses = Addresses {
        pod_ips: vec!["10.244.0.7".into(), "fd00::7".into()],
        host_ips: vec!["192.0.2.1".into(), "2001:db8::1".into()],
    };
    let objects = Objects::new(api().client());
    let sources = sources::read(&objects, "node-1", pod, container, &Mounted::new()).await;
    sources.and_then(|sources| make(pod, container, &addresses, &sources)).map_err(|error| error.to_string())
}

fn text(environment: &Environment) -> Vec<String> {
    environment.variables.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// What the golden observation shows, without what the image and the runtime add.
const LINKS: &str = "DEP_PORT=tcp://10.96.228.66:80
DEP_PORT_80_TCP=tcp://10.96.228.66:80
DEP_PORT_80_TCP_ADDR=10.96.228.66
DEP_PORT_80_TCP_PORT=80
DEP_PORT_80_TCP_PROTO=tcp
DEP_SERVICE_HOST=10.96.228.66
DEP_SERVICE_PORT=80
KUBERNETES_PORT=tcp://10.96.0.1:443
KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443
KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1
KUBERNETES_PORT_443_TCP_PORT=443
KUBERNETES_PORT_443_TCP_PROTO=tcp
KUBERNETES_SERVICE_HOST=10.96.0.1
KUBERNETES_SERVICE_PORT=443
KUBERNETES_SERVICE_PORT_HTTPS=443";

#[tokio::test]
async fn services_are_linked_as_upstream_does() {
    let container = container(json!({"name": "c"}));
    let all = environment(&pod(json!({"containers": [{"name": "c"}]})), &container).await.unwrap();
    assert_eq!(text(&all).join("\n"), LINKS);
    let spec = json!({"containers": [{"name": "c"}], "enableServiceLinks": false});
    let few = environment(&pod(spec), &container).await.unwrap();
    assert_eq!(few.variables.len(), 8);
    assert!(few.variables.iter().all(|(name, _)| name.starts_with("KUBERNETES_")));
}

#[tokio::test]
async fn references_fields_and_resources() {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let resource = |name: &str, resource: &str, divisor: &str| json!({"name": name, "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}});
    let container = json!({
        "name": "c",
        "resources": {"limits": {"cpu": "250m"}, "requests": {"memory": "100Mi"}},
        "envFrom": [{"configMapRef": {"name": "config"}, "prefix": "P_"}, {"secretRef": {"name": "none", "optional": true}}],
        "env": [
            field("NAME", "metadata.name"),
            field("UID", "metadata.uid"),
            field("APP", "metadata.labels['app']"),
            field("NONE", "metadata.labels['none']"),
            field("LABELS", "metadata.labels"),
            field("NOTES", "metadata.annotations"),
            field("NODE", "spec.nodeName"),
            field("ACCOUNT", "spec.serviceAccountName"),
            field("IP", "status.podIP"),
            field("IPS", "status.podIPs"),
            field("HOST", "status.hostIP"),
            field("HOSTS", "status.hostIPs"),
            resource("CPU", "limits.cpu", "1m"),
            resource("CPU_UP", "limits.cpu", "0"),
            resource("MEMORY", "limits.memory", "1Mi"),
            resource("REQUEST", "requests.memory", "1"),
            resource("REQUEST_NONE", "requests.cpu", "1"),
            {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "key"}}},
            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "password"}}},
            {"name": "GONE", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k", "optional": true}}},
            {"name": "GONE_KEY", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "k", "optional": true}}},
            {"name": "EMPTY"},
            {"name": "BOTH", "value": "$(NAME)-$(KEY)-$(P_key)-$(DEP_SERVICE_PORT)-$(LATER)-$$(NAME)-$"},
            {"name": "LATER", "value": "x"},
        ],
    });
    let pod = pod(json!({"containers": [container], "nodeName": "node-1", "serviceAccountName": "default"}));
    let made = environment(&pod, &pod.spec.as_ref().unwrap().containers[0]).await.unwrap();
    let own: Vec<_> = text(&made).into_iter().filter(|line| !LINKS.contains(line.as_str())).collect();
    assert_eq!(
        own,
        [
            "ACCOUNT=default",
            "APP=web",
            "BOTH=running-value-value-80-$(LATER)-$(NAME)-$",
            "CPU=250",
            "CPU_UP=1",
            "EMPTY=",
            "HOST=192.0.2.1",
            "HOSTS=192.0.2.1,2001:db8::1",
            "IP=10.244.0.7",
            "IPS=10.244.0.7,fd00::7",
            "KEY=value",
            "LABELS=app=\"web\"\ntier=\"a\\\"b\"",
            "LATER=x",
            "MEMORY=2048",
            "NAME=running",
            "NODE=node-1",
            "NONE=",
            "NOTES=note=\"line\\nbreak\"",
            "PASSWORD=hunter2",
            "P_1digit=x",
            "P_a.b-c=y",
            "P_key=value",
            "REQUEST=104857600",
            "REQUEST_NONE=0",
            "UID=u-1",
        ]
    );
    assert!(made.warnings.is_empty());
}

#[tokio::test]
async fn what_is_missing_is_said_as_upstream_says_it() {
    let pod = pod(json!({"containers": []}));
    let check = async |value: serde_json::Value, expected: &str| {
        let error = environment(&pod, &container(value)).await.unwrap_err();
        assert_eq!(error, expected);
    };
    let env = |source: serde_json::Value| json!({"name": "c", "env": [{"name": "V", "valueFrom": source}]});
    check(env(json!({"configMapKeyRef": {"name": "x", "key": "k"}})), "configmap \"x\" not found").await;
    check(env(json!({"secretKeyRef": {"name": "x", "key": "k"}})), "secret \"x\" not found").await;
    let key = json!({"configMapKeyRef": {"name": "config", "key": "k"}});
    check(env(key), "couldn't find key k in ConfigMap obs/config").await;
    let key = json!({"secretKeyRef": {"name": "keys", "key": "k"}});
    check(env(key), "couldn't find key k in Secret obs/keys").await;
    check(json!({"name": "c", "envFrom": [{"secretRef": {"name": "x"}}]}), "secret \"x\" not found").await;
    check(env(json!({"fieldRef": {"fieldPath": "spec.x"}})), "unsupported fieldPath: spec.x").await;
    let resource = json!({"resourceFieldRef": {"resource": "limits.gpu"}});
    check(env(resource), "unsupported container resource : limits.gpu").await;
}

#[test]
fn names_that_no_variable_can_have_are_skipped_and_said() {
    let values = BTreeMap::from([("good".into(), "1".into()), ("b=d".into(), "2".into()), ("ä".into(), "3".into())]);
    let from = sources::EnvFrom { prefix: String::new(), described: "configMap obs/config".into(), values };
    let sources = sources::Sources { env_from: vec![from], ..Default::default() };
    let made = make(&Pod::default(), &Container::default(), &Addresses::default(), &sources).unwrap();
    assert_eq!(made.variables, [("good".to_owned(), "1".to_owned())]);
    assert_eq!(made.warnings[0].reason, "InvalidEnvironmentVariableNames");
    assert_eq!(
        made.warnings[0].message,
        "Keys [b=d, ä] from the EnvFrom configMap obs/config were skipped since they are considered invalid environment variable names."
    );
}

#[test]
fn expansion() {
    let lookup = |name: &str| match name {
        "A" => Some("1".to_owned()),
        "B" => Some("$(A)".to_owned()),
        _ => None,
    };
    let cases = [
        ("$(A)", "1"),
        ("$(B)", "$(A)"),
        ("$(C)", "$(C)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("$($(A)", "$($(A)"),
        ("x$", "x$"),
        ("$$", "$"),
        ("ä$(A)ö", "ä1ö"),
        ("$()", "$()"),
    ];
    for (text, expected) in cases {
        assert_eq!(expand(text, lookup), expected, "{text}");
    }
    let words = expand_all(&["echo".into(), "$(A)".into()], &[("A".into(), "x".into())]);
    assert_eq!(words, ["echo", "x"]);
}

#[tokio::test]
async fn values_from_files_of_a_volume() {
    let folder = crate::volumes::tests::Folder::new("env-file");
    let root = folder.0.join("volume");
    std::fs::create_dir(&root).unwrap();
    let text = "# made at start\n\nTOKEN='a b'\nLINES='one\ntwo' # said\nEMPTY=''\n";
    std::fs::write(root.join("good.env"), text).unwrap();
    std::fs::write(root.join("bad.env"), "FINE='1'\nTOKEN=plain\n").unwrap();
    std::fs::write(folder.0.join("outside.env"), "TOKEN='outside'\n").unwrap();
    std::os::unix::fs::symlink("../outside.env", root.join("link.env")).unwrap();
    let volume = crate::volumes::Volume::Path { path: root, read_only: false, relabel: true };
    let mounted = Mounted::from([("work".to_owned(), volume)]);
    let objects = Objects::new(api().client());
    let value = async |path: &str, key: &str, optional: bool| {
        let reference = json!({"volumeName": "work", "path": path, "key": key, "optional": optional});
        let container = container(json!({"name": "c", "env": [{"name": "V", "valueFrom": {"fileKeyRef": reference}}]}));
        let pod = pod(json!({"containers": []}));
        let sources = sources::read(&objects, "node-1", &pod, &container, &mounted).await.unwrap();
        let made = make(&pod, &container, &Addresses::default(), &sources).map_err(|error| error.to_string())?;
        Ok::<_, String>(made.variables.into_iter().find(|(name, _)| name == "V").map(|(_, value)| value))
    };
    assert_eq!(value("good.env", "TOKEN", false).await.unwrap().as_deref(), Some("a b"));
    assert_eq!(value("good.env", "LINES", false).await.unwrap().as_deref(), Some("one\ntwo"));
    assert_eq!(value("good.env", "EMPTY", false).await.unwrap().as_deref(), Some(""));
    assert_eq!(value("good.env", "NONE", true).await.unwrap(), None);
    assert_eq!(value("none.env", "TOKEN", true).await.unwrap(), None);
    let missing = "environment variable key \"TOKEN\" not found in file \"link.env\" of volume \"work\"";
    assert_eq!(value("link.env", "TOKEN", false).await.unwrap_err(), missing);
    let bad = "failed to parse environment file bad.env: invalid line 2";
    assert_eq!(value("bad.env", "FINE", false).await.unwrap_err(), bad);
}
