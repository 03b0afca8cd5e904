//! `kubectl debug`: a helper inside of a pod, in a copy of it, or on its node.

use std::time::Duration;

use serde_json::{Value, json};

use super::change::STRATEGIC;
use super::pods;
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::session::{Call, Session};
use crate::terminal;

pub static COMMAND: Command = Command {
    name: "debug",
    group: super::TROUBLE,
    short: "Create debugging sessions for troubleshooting workloads and nodes.",
    examples: "kubectl debug web -it --image=busybox\nkubectl debug web -it --image=busybox --copy-to=web-debugger\nkubectl debug node/node-1 -it --image=busybox",
    usage: "(POD | TYPE[[.VERSION].GROUP]/NAME) [ -- COMMAND [args...] ] [options]",
    flags: &[FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("arguments-only", "What stands behind -- are arguments, not the command."),
    Flag::switch("attach", "Attach to the helper."),
    Flag::text("container", "", "The name of the helper, or of the container to change in a copy.").short('c'),
    Flag::text("copy-to", "", "The name of a copy of the pod."),
    Flag::text("custom", "", "A file with parts of a container that are added to the profile."),
    Flag::list("filename", "A file that names what to debug.").short('f'),
    Flag::list("env", "Variables of the helper, as key=value."),
    Flag::text("image", "", "The image of the helper."),
    Flag::text("image-pull-policy", "", "Always, IfNotPresent or Never."),
    Flag::switch("keep-annotations", "A copy keeps annotations."),
    Flag::on("keep-init-containers", "A copy keeps init containers."),
    Flag::switch("keep-labels", "A copy keeps labels."),
    Flag::switch("keep-liveness", "A copy keeps liveness probes."),
    Flag::switch("keep-readiness", "A copy keeps readiness probes."),
    Flag::switch("keep-startup", "A copy keeps startup probes."),
    Flag::text(
        "profile",
        "legacy",
        "What the helper may do: legacy, general, baseline, netadmin, restricted or sysadmin.",
    ),
    Flag::switch("quiet", "Only print what the process prints.").short('q'),
    Flag::switch("replace", "Delete the pod that was copied."),
    Flag::switch("same-node", "A copy goes to the same node."),
    Flag::list("set-image", "Images of a copy's containers, as name=image."),
    Flag::on("share-processes", "Containers of a copy see each other's processes."),
    Flag::switch("stdin", "Keep the helper's input open.").short('i'),
    Flag::text("target", "", "The container whose processes the helper sees."),
    Flag::switch("tty", "The helper's input is a terminal.").short('t'),
];

async fn run(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let before = flags.dash.unwrap_or(session.arguments().len());
    let [target] = &session.arguments()[..before] else {
        return Err(Failure::message("you must specify --image when not using --copy-to."));
    };
    let command = flags.dash.map(|dash| session.arguments()[dash..].to_vec()).unwrap_or_default();
    if flags.on("tty") && !flags.on("stdin") {
        return session.usage("-i/--stdin is required for containers with -t/--tty=true");
    }
    if !["legacy", "general", "baseline", "netadmin", "restricted", "sysadmin", "auto"].contains(&flags.text("profile"))
    {
        return Err(Failure::message(format!("unknown profile: {}", flags.text("profile"))));
    }
    if flags.text("profile") == "legacy" && !flags.on("quiet") {
        terminal::errln(
            "--profile=legacy is deprecated and will be removed in the future. It is recommended to explicitly specify a profile, for example \"--profile=general\".",
        );
    }
    if let Some((kind, name)) = target.split_once('/')
        && session.mapping(kind).await?.is("", "nodes")
    {
        return on_node(session, name, &command).await;
    }
    let pod = pods::one(session, target, Duration::from_secs(20)).await?;
    if flags.text("copy-to").is_empty() {
        return beside(session, &pod, &command).await;
    }
    in_copy(session, &pod, &command).await
}

fn suffix() -> String {
    // Letters that make no words, as generated names have them.
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut seed = jiff::Timestamp::now().as_nanosecond() as u64 ^ (u64::from(std::process::id()) << 32);
    let mut out = String::new();
    for _ in 0..5 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        out.push(char::from(LETTERS[(seed % LETTERS.len() as u64) as usize]));
    }
    out
}

/// The helper's container.
fn helper(session: &Session, name: &str, command: &[String]) -> Value {
    let flags = &session.flags;
    let mut container = json!({"name": name, "image": flags.text("image"), "terminationMessagePolicy": "File"});
    if !flags.text("image-pull-policy").is_empty() {
        container["imagePullPolicy"] = flags.text("image-pull-policy").into();
    }
    if flags.on("stdin") {
        container["stdin"] = true.into();
    }
    if flags.on("tty") {
        container["tty"] = true.into();
    }
    if !command.is_empty() {
        container[if flags.on("arguments-only") { "args" } else { "command" }] = json!(command);
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
    container
}

/// What a profile lets the helper do inside of a pod.
fn profiled(profile: &str, container: &mut Value) {
    match profile {
        "general" => container["securityContext"] = json!({"capabilities": {"add": ["SYS_PTRACE"]}}),
        "netadmin" => container["securityContext"] = json!({"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}}),
        "sysadmin" => container["securityContext"] = json!({"privileged": true}),
        "restricted" => {
            container["securityContext"] = json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true,
                "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}});
        }
        _ => {}
    }
}

async fn beside(session: &Session, pod: &Value, command: &[String]) -> Result<()> {
    let flags = &session.flags;
    if flags.text("image").is_empty() {
        return Err(Failure::message("must specify --image"));
    }
    let known = pods::container_names(pod, pods::ALL_LISTS);
    let name = match flags.text("container") {
        "" => loop {
            let name = format!("debugger-{}", suffix());
            if !known.contains(&name) {
                break name;
            }
        },
        given => given.to_string(),
    };
    if !flags.text("target").is_empty() && !flags.on("quiet") {
        terminal::outln(&format!(
            "Targeting container {:?}. If you don't see processes from this container it may be because the container runtime doesn't support this feature.",
            flags.text("target")
        ));
    }
    if flags.text("container").is_empty() && !flags.on("quiet") {
        terminal::outln(&format!("Defaulting debug container name to {name}."));
    }
    let mut container = helper(session, &name, command);
    profiled(flags.text("profile"), &mut container);
    if !flags.text("target").is_empty() {
        container["targetContainerName"] = flags.text("target").into();
    }
    let (namespace, pod_name) = (
        pod["metadata"]["namespace"].as_str().unwrap_or_default(),
        pod["metadata"]["name"].as_str().unwrap_or_default(),
    );
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod_name}");
    let patch = json!({"spec": {"ephemeralContainers": [container]}});
    session.send(&Call::patch(format!("{path}/ephemeralcontainers"), STRATEGIC, &patch)).await.map_err(|failure| {
        match failure {
            Failure::Status { .. } if failure.is_not_found() => Failure::message(format!(
                "ephemeral containers are disabled for this cluster (error from server: {:?}).",
                failure.text()
            )),
            other => other,
        }
    })?;
    attach(session, &path, &name).await
}

async fn in_copy(session: &Session, pod: &Value, command: &[String]) -> Result<()> {
    let flags = &session.flags;
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let mut metadata = json!({"name": flags.text("copy-to"), "namespace": namespace});
    for (flag, key) in [("keep-labels", "labels"), ("keep-annotations", "annotations")] {
        if flags.on(flag) {
            metadata[key] = pod["metadata"][key].clone();
        }
    }
    let mut spec = pod["spec"].clone();
    let Some(fields) = spec.as_object_mut() else { return Err(Failure::message("the pod has no spec")) };
    fields.remove("ephemeralContainers");
    if !flags.on("same-node") {
        fields.remove("nodeName");
    }
    if !flags.on("keep-init-containers") {
        fields.remove("initContainers");
    }
    // What admission put there comes again by itself.
    let account = |name: &Value| name.as_str().is_some_and(|name| name.starts_with("kube-api-access-"));
    if let Some(volumes) = fields.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.retain(|volume| !account(&volume["name"]));
    }
    if flags.on("share-processes") {
        fields.insert("shareProcessNamespace".into(), true.into());
    }
    let mut name = flags.text("container").to_string();
    let containers = fields
        .get_mut("containers")
        .and_then(Value::as_array_mut)
        .ok_or_else(|| Failure::message("the pod has no containers"))?;
    for container in containers.iter_mut() {
        for (flag, key) in
            [("keep-liveness", "livenessProbe"), ("keep-readiness", "readinessProbe"), ("keep-startup", "startupProbe")]
        {
            if !flags.on(flag) {
                container.as_object_mut().map(|container| container.remove(key));
            }
        }
        if let Some(mounts) = container["volumeMounts"].as_array_mut() {
            mounts.retain(|mount| !account(&mount["name"]));
        }
        for pair in flags.list("set-image") {
            let (target, image) = pair.split_once('=').unwrap_or((&pair, ""));
            if target == "*" || container["name"] == target {
                container["image"] = image.into();
            }
        }
    }
    match containers.iter_mut().find(|container| container["name"] == name.as_str()) {
        // An existing container is started otherwise.
        Some(container) => {
            if !flags.text("image").is_empty() {
                container["image"] = flags.text("image").into();
            }
            if !command.is_empty() {
                container["command"] = json!(command);
                container.as_object_mut().map(|container| container.remove("args"));
            }
            for (flag, key) in [("stdin", "stdin"), ("tty", "tty")] {
                if flags.on(flag) {
                    container[key] = true.into();
                }
            }
        }
        None => {
            if flags.text("image").is_empty() {
                if flags.list("set-image").is_empty() {
                    return session
                        .usage("you must specify an existing container or a new image when specifying args.");
                }
            } else {
                if name.is_empty() {
                    name = format!("debugger-{}", suffix());
                    if !flags.on("quiet") {
                        terminal::outln(&format!("Defaulting debug container name to {name}."));
                    }
                }
                let mut container = helper(session, &name, command);
                profiled(flags.text("profile"), &mut container);
                containers.push(container);
            }
        }
    }
    let copy = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    session.send(&Call::post(&path, &copy)).await?;
    if flags.on("replace") {
        session
            .send(&Call::delete(format!("{path}/{}", pod["metadata"]["name"].as_str().unwrap_or_default()), &json!({})))
            .await?;
    }
    attach(session, &format!("{path}/{}", flags.text("copy-to")), &name).await
}

async fn on_node(session: &Session, node: &str, command: &[String]) -> Result<()> {
    let flags = &session.flags;
    if flags.text("image").is_empty() {
        return Err(Failure::message("must specify --image"));
    }
    session.send(&Call::get(format!("/api/v1/nodes/{node}"))).await?;
    let name = format!("node-debugger-{node}-{}", suffix());
    let mut container = helper(session, "debugger", command);
    let profile = flags.text("profile");
    let host = profile != "restricted" && profile != "baseline";
    let mut spec = json!({"nodeName": node, "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}]});
    match profile {
        "netadmin" => container["securityContext"] = json!({"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}}),
        "sysadmin" => container["securityContext"] = json!({"privileged": true}),
        "restricted" => profiled(profile, &mut container),
        _ => {}
    }
    if host {
        spec["hostIPC"] = true.into();
        spec["hostNetwork"] = true.into();
        spec["hostPID"] = true.into();
        if profile != "netadmin" {
            container["volumeMounts"] = json!([{"name": "host-root", "mountPath": "/host"}]);
            spec["volumes"] = json!([{"name": "host-root", "hostPath": {"path": "/"}}]);
        }
    }
    spec["containers"] = json!([container]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "kubectl-debug"}}, "spec": spec});
    let path = format!("/api/v1/namespaces/{}/pods", session.namespace()?);
    session.send(&Call::post(&path, &pod)).await?;
    if !flags.on("quiet") {
        terminal::outln(&format!("Creating debugging pod {name} with container debugger on node {node}."));
    }
    attach(session, &format!("{path}/{name}"), "debugger").await
}

/// Waits for the helper to run and attaches; what has already ended is told by its log.
async fn attach(session: &Session, path: &str, container: &str) -> Result<()> {
    let flags = &session.flags;
    let wanted = if flags.given("attach") { flags.on("attach") } else { flags.on("stdin") };
    if !wanted {
        return Ok(());
    }
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let until = tokio::time::Instant::now() + Duration::from_secs(600);
    loop {
        let pod = session.send(&Call::get(path)).await?;
        let status = lists
            .iter()
            .flat_map(|list| pod["status"][*list].as_array().into_iter().flatten())
            .find(|status| status["name"] == container);
        let state = status.map(|status| &status["state"]).unwrap_or(&Value::Null);
        if state["running"].is_object() {
            return super::exec::to(session, &pod, container, flags.on("stdin"), flags.on("tty"), flags.on("quiet"))
                .await;
        }
        if state["terminated"].is_object() {
            let mut call = Call::get(format!("{path}/log")).with("container", container);
            call.accept = "*/*";
            terminal::out_bytes(&session.bytes(&call).await?);
            return Ok(());
        }
        if tokio::time::Instant::now() >= until {
            return Err(Failure::message("timed out waiting for the condition"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
