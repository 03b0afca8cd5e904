//! What `kubectl debug` makes: the helper's container, what its profile lets it do, and the pods it may live in.

use serde_json::{Value, json};

use crate::failure::{Failure, Result, go_io_error};
use crate::flags::Parsed;
use crate::terminal;

pub(super) const PROFILES: &[&str] = &["legacy", "general", "baseline", "netadmin", "restricted", "sysadmin"];

/// Where a helper lives.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum In {
    Pod,
    Copy,
    Node,
}

/// What a file adds to the helper.
pub(crate) fn custom(path: &str) -> Result<Option<Value>> {
    if path.is_empty() {
        return Ok(None);
    }
    let bytes = std::fs::read(path).map_err(|error| {
        let error = go_io_error(&error);
        Failure::message(format!("must pass a container spec json file for custom profile: open {path}: {error}"))
    })?;
    let value = machinery::codec::decode_yaml(&bytes)
        .map_err(|error| Failure::message(format!("{path} does not contain a valid container spec: {error}")))?
        .value;
    if ["name", "command", "image", "lifecycle", "volumeDevices"].iter().any(|key| !value[*key].is_null()) {
        return Err(Failure::message(
            "name, command, image, lifecycle and volume devices are not modifiable via custom profile",
        ));
    }
    Ok(Some(value))
}

pub(super) fn customize(container: &mut Value, custom: Option<&Value>) {
    let Some(custom) = custom else { return };
    // As a container of a pod, so that its lists are merged by their keys.
    let mut merged = custom.clone();
    merged["name"] = container["name"].clone();
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container.clone()]}});
    let patch = json!({"spec": {"containers": [merged]}});
    let Some(ty) = api::schema::type_named("", "v1", "Pod") else { return };
    if machinery::patch::strategic::apply(ty, &mut pod, &patch).is_ok() {
        *container = pod["spec"]["containers"][0].clone();
    }
}

pub(crate) fn container(flags: &Parsed, name: &str, command: &[String]) -> Value {
    let mut container = json!({"name": name, "terminationMessagePolicy": "File"});
    start_otherwise(flags, &mut container, command);
    container
}

/// How the flags start a container, be it new or one that is there.
fn start_otherwise(flags: &Parsed, container: &mut Value, command: &[String]) {
    for (flag, key) in [("image", "image"), ("image-pull-policy", "imagePullPolicy")] {
        if !flags.text(flag).is_empty() {
            container[key] = flags.text(flag).into();
        }
    }
    for key in ["stdin", "tty"] {
        if flags.on(key) {
            container[key] = true.into()
        } else {
            _ = container.as_object_mut().map(|container| container.remove(key))
        }
    }
    if !command.is_empty() && flags.on("arguments-only") {
        container["args"] = json!(command);
    } else if !command.is_empty() {
        container["command"] = json!(command);
        container.as_object_mut().map(|container| container.remove("args"));
    }
    let env: Vec<Value> = flags
        .list("env")
        .iter()
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    if !env.is_empty() {
        container["env"] = env.into();
    }
}

/// What a profile lets the helper do.
pub(crate) fn allow(profile: &str, place: In, container: &mut Value) {
    let added: &[&str] = match (profile, place) {
        ("general", In::Pod | In::Copy) => &["SYS_PTRACE"],
        ("netadmin", _) => &["NET_ADMIN", "NET_RAW"],
        _ => &[],
    };
    match profile {
        "baseline" => _ = container.as_object_mut().map(|container| container.remove("securityContext")),
        "general" if place == In::Node => {
            _ = container.as_object_mut().map(|container| container.remove("securityContext"))
        }
        "sysadmin" => container["securityContext"]["privileged"] = true.into(),
        "restricted" => {
            container["securityContext"] = json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true,
                "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}});
        }
        _ => {}
    }
    if !added.is_empty() {
        let has = container["securityContext"]["capabilities"]["add"].as_array().cloned().unwrap_or_default();
        let all: Vec<Value> = has.into_iter().chain(added.iter().map(|name| Value::from(*name))).collect();
        container["securityContext"]["capabilities"]["add"] = all.into();
    }
}

/// A pod that runs as somebody else than root takes away what a profile gives.
pub(super) fn warn_of_user(pod: &Value, container: &Value) {
    let user = |value: &Value| value["securityContext"]["runAsUser"].as_i64();
    let context = &container["securityContext"];
    let gives = context["privileged"] == true
        || context["capabilities"]["add"].as_array().is_some_and(|added| !added.is_empty());
    if user(&pod["spec"]).is_some_and(|user| user != 0) && user(container) != Some(0) && gives {
        terminal::errln(
            "Warning: Non-root user is configured for the entire target Pod, and some capabilities granted by debug profile may not work. Please consider using \"--custom\" with a custom profile that specifies \"securityContext.runAsUser: 0\".",
        );
    }
}

/// The pod once more under another name.
pub(crate) fn copy(flags: &Parsed, pod: &Value) -> Result<Value> {
    let mut metadata = json!({"name": flags.text("copy-to"), "namespace": pod["metadata"]["namespace"]});
    for key in ["labels", "annotations"] {
        if pod["metadata"][key].is_object() {
            metadata[key] = pod["metadata"][key].clone();
        }
    }
    let mut spec = pod["spec"].clone();
    let Some(fields) = spec.as_object_mut() else {
        return Err(Failure::message("cannot copy the pod: it has no spec"));
    };
    fields.remove("ephemeralContainers");
    if !flags.on("same-node") {
        fields.remove("nodeName");
    }
    if flags.given("share-processes") {
        fields.insert("shareProcessNamespace".into(), flags.on("share-processes").into());
    }
    let images = flags.list("set-image");
    let image_of =
        |name: &str| images.iter().filter_map(|pair| pair.split_once('=')).rfind(|(target, _)| *target == name);
    for container in fields.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
        let own = image_of(container["name"].as_str().unwrap_or_default());
        if let Some((_, image)) = own.or(image_of("*")) {
            container["image"] = image.into();
        }
    }
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

/// Takes away what would make others believe that the copy is the pod, unless the flags keep it.
fn strip(flags: &Parsed, copy: &mut Value) {
    // The old profile knows no flags: labels go, all else stays.
    let legacy = flags.text("profile") == "legacy";
    let goes = |flag: &str| if legacy { flag == "keep-labels" } else { !flags.on(flag) };
    let remove = |value: &mut Value, key: &str| _ = value.as_object_mut().map(|fields| fields.remove(key));
    for (flag, key) in [("keep-labels", "labels"), ("keep-annotations", "annotations")] {
        if goes(flag) {
            remove(&mut copy["metadata"], key);
        }
    }
    if goes("keep-init-containers") {
        remove(&mut copy["spec"], "initContainers");
    }
    for container in copy["spec"]["containers"].as_array_mut().into_iter().flatten() {
        for (flag, key) in
            [("keep-liveness", "livenessProbe"), ("keep-readiness", "readinessProbe"), ("keep-startup", "startupProbe")]
        {
            if goes(flag) {
                remove(container, key);
            }
        }
    }
}

/// Puts the helper into a copy: a new container, or one that is there and starts otherwise.
pub(super) fn into_copy(flags: &Parsed, copy: &mut Value, name: &str, command: &[String], custom: Option<&Value>) {
    let mut containers = copy["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let at = containers.iter().position(|container| container["name"] == name).unwrap_or(containers.len());
    if at == containers.len() {
        containers.push(json!({"name": name, "terminationMessagePolicy": "File"}));
    }
    start_otherwise(flags, &mut containers[at], command);
    allow(flags.text("profile"), In::Copy, &mut containers[at]);
    customize(&mut containers[at], custom);
    warn_of_user(copy, &containers[at]);
    copy["spec"]["containers"] = containers.into();
    strip(flags, copy);
    if flags.text("profile") != "legacy" && copy["spec"]["shareProcessNamespace"].is_null() {
        copy["spec"]["shareProcessNamespace"] = true.into();
    }
}

/// A pod that sees its node.
pub(super) fn node_pod(
    flags: &Parsed,
    name: &str,
    helper: &str,
    node: &str,
    command: &[String],
    custom: Option<&Value>,
) -> Value {
    let profile = flags.text("profile");
    let mut container = container(flags, helper, command);
    allow(profile, In::Node, &mut container);
    let mut spec = json!({"nodeName": node, "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}]});
    if profile != "restricted" && profile != "baseline" {
        for namespace in ["hostIPC", "hostNetwork", "hostPID"] {
            spec[namespace] = true.into();
        }
        if profile != "netadmin" {
            container["volumeMounts"] = json!([{"name": "host-root", "mountPath": "/host"}]);
            spec["volumes"] = json!([{"name": "host-root", "hostPath": {"path": "/"}}]);
        }
    }
    customize(&mut container, custom);
    spec["containers"] = json!([container]);
    let labels = json!({"app.kubernetes.io/managed-by": "kubectl-debug"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    use crate::command::Command;

    fn flags(line: &str) -> Parsed {
        let command: &Command = crate::commands::ROOT.find("debug").unwrap();
        let line: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Parsed::parse(command.flags, &line).unwrap()
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn profiles_give_and_take() {
        let allowed = |profile: &str, place: In| {
            let mut container = json!({"name": "c"});
            allow(profile, place, &mut container);
            container["securityContext"].clone()
        };
        assert_eq!(allowed("general", In::Pod), json!({"capabilities": {"add": ["SYS_PTRACE"]}}));
        assert_eq!(allowed("general", In::Node), Value::Null);
        assert_eq!(allowed("netadmin", In::Node), json!({"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}}));
        assert_eq!(allowed("sysadmin", In::Copy), json!({"privileged": true}));
        assert_eq!(allowed("restricted", In::Pod)["runAsNonRoot"], true);
        assert_eq!(allowed("baseline", In::Pod), Value::Null);
    }

    #[test]
    fn a_helper_starts_as_the_flags_say() {
        let made = container(&flags("web --image=busybox -it --env=A=b"), "debugger", &words("sh -c x"));
        let expected = json!({"name": "debugger", "image": "busybox", "stdin": true, "tty": true,
            "terminationMessagePolicy": "File", "command": ["sh", "-c", "x"], "env": [{"name": "A", "value": "b"}]});
        assert_eq!(made, expected);
        let made = container(&flags("web --image=busybox --arguments-only"), "debugger", &words("x"));
        assert_eq!((&made["args"], &made["command"]), (&json!(["x"]), &Value::Null));
    }

    fn pod() -> Value {
        json!({"metadata": {"name": "web", "namespace": "team", "uid": "1", "labels": {"app": "web"}}, "spec": {
            "nodeName": "n1", "ephemeralContainers": [{"name": "old"}],
            "containers": [{"name": "app", "image": "a:1", "livenessProbe": {}}, {"name": "side", "image": "s:1"}],
        }})
    }

    #[test]
    fn a_copy_is_a_pod_of_its_own() {
        let copied = copy(&flags("web --copy-to=other --set-image=app=a:2,*=all:1"), &pod()).unwrap();
        assert_eq!(copied["metadata"], json!({"name": "other", "namespace": "team", "labels": {"app": "web"}}));
        assert_eq!((&copied["spec"]["nodeName"], &copied["spec"]["ephemeralContainers"]), (&Value::Null, &Value::Null));
        let images: Vec<&Value> =
            copied["spec"]["containers"].as_array().unwrap().iter().map(|c| &c["image"]).collect();
        assert_eq!(images, ["a:2", "all:1"]);
        let same = copy(&flags("web --copy-to=other --same-node"), &pod()).unwrap();
        assert_eq!(same["spec"]["nodeName"], "n1");
    }

    #[test]
    fn a_copy_is_stripped_of_what_others_look_at() {
        let line = flags("web --copy-to=other --image=busybox --profile=general");
        let mut copied = copy(&line, &pod()).unwrap();
        into_copy(&line, &mut copied, "debugger", &[], None);
        assert_eq!(copied["metadata"]["labels"], Value::Null);
        assert_eq!(copied["spec"]["containers"][0]["livenessProbe"], Value::Null);
        assert_eq!(copied["spec"]["containers"][2]["name"], "debugger");
        assert_eq!(copied["spec"]["shareProcessNamespace"], true);
    }

    #[test]
    fn a_pod_on_a_node_sees_the_node() {
        let made =
            node_pod(&flags("node/n1 --image=busybox --profile=sysadmin"), "debug-1", "debugger", "n1", &[], None);
        assert_eq!((&made["spec"]["nodeName"], &made["spec"]["hostPID"]), (&json!("n1"), &json!(true)));
        assert_eq!(made["spec"]["volumes"][0]["hostPath"]["path"], "/");
        let made =
            node_pod(&flags("node/n1 --image=busybox --profile=restricted"), "debug-1", "debugger", "n1", &[], None);
        assert_eq!((&made["spec"]["hostPID"], &made["spec"]["volumes"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn a_custom_profile_is_merged_but_names_nothing() {
        let mut container = json!({"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]});
        customize(&mut container, Some(&json!({"env": [{"name": "B", "value": "2"}], "workingDir": "/x"})));
        assert_eq!((container["env"].as_array().map(Vec::len), &container["workingDir"]), (Some(2), &json!("/x")));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("custom.json");
        std::fs::write(&path, "{\"image\": \"x\"}").unwrap();
        assert!(custom(path.to_str().unwrap()).unwrap_err().text().ends_with("are not modifiable via custom profile"));
        assert!(custom("/no/such").unwrap_err().text().ends_with("open /no/such: no such file or directory"));
        assert_eq!(custom("").unwrap(), None);
    }
}
