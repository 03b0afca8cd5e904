//! `kubectl run`: one pod from an image.

use std::time::Duration;

use machinery::jsonpath::Template;
use serde_json::{Value, json};

use super::change::{Change, DRY_RUN};
use super::wait::{self, Until};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::{Flag, Parsed};
use crate::output;
use crate::resource::Info;
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "run",
    group: super::BEGINNER,
    short: "Create and run a particular image in a pod.",
    examples: "kubectl run nginx --image=nginx\nkubectl run -i -t busybox --image=busybox --restart=Never --rm",
    usage: "NAME --image=image [--env=\"key=value\"] [--port=port] [--dry-run=server|client] [--overrides=inline-json] [--command] -- [COMMAND] [args...] [options]",
    flags: &[FLAGS, super::stream::DETACH, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::array("annotations", "key=value."),
    Flag::switch("attach", "Attach to the pod once it runs."),
    Flag::optional("cascade", "background", "background", "What happens to dependents when it is removed."),
    Flag::switch("command", "What stands behind -- is the command, not its arguments."),
    Flag::array("env", "key=value."),
    Flag::switch("expose", "Make a service for it too."),
    Flag::list("filename", "Not used.").short('f'),
    Flag::switch("force", "With --rm: do not wait for the node."),
    Flag::integer("grace-period", "-1", "With --rm: seconds that the pod has to end."),
    Flag::text("kustomize", "", "Not used.").short('k'),
    Flag::switch("recursive", "Not used.").short('R'),
    Flag::duration("timeout", "0s", "Not used."),
    Flag::switch("wait", "Not used."),
    Flag::text("field-manager", "kubectl-run", "Who owns the fields that are set."),
    Flag::text("image", "", "The image to run."),
    Flag::text("image-pull-policy", "", "Always, IfNotPresent or Never."),
    Flag::text("labels", "", "Labels of the pod.").short('l'),
    Flag::switch("leave-stdin-open", "Leave its input open after the first attachment."),
    Flag::text("override-type", "merge", "How --overrides is merged: json, merge or strategic."),
    Flag::text("overrides", "", "JSON to change the pod by."),
    Flag::duration("pod-running-timeout", "1m0s", "How long to wait for it to run."),
    Flag::text("port", "", "The port that the container listens on."),
    Flag::switch("privileged", "Run as on the node itself."),
    Flag::switch("quiet", "Only print what the process prints.").short('q'),
    Flag::text("restart", "Always", "Always, OnFailure or Never."),
    Flag::switch("rm", "Delete it after it was attached to."),
    Flag::switch("save-config", "Keep the object in an annotation, for a later apply."),
    Flag::switch("stdin", "Keep its input open.").short('i'),
    Flag::switch("tty", "Its input is a terminal.").short('t'),
];

async fn run(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let (name, attach) = check(flags)?;
    let change = Change::from(session)?;
    if attach && change.dry != super::change::DryRun::No {
        return session.usage(
            "--dry-run=[server|client] can't be used with attached containers options (--attach, --stdin, or --tty)",
        );
    }
    if flags.on("expose") && flags.text("port").is_empty() {
        return session.usage("--port must be set when exposing a service");
    }
    let info = create(&change, name).await?;
    if flags.on("expose") {
        expose(&change, name, &info.namespace, &info.object["metadata"]["labels"]).await?;
    }
    if !attach {
        if !flags.on("quiet") || !change.format.is_human() {
            change.report_typed(&info.shown(), &info.object, "created")?;
        }
        return Ok(());
    }
    let ended = attached(session, &info).await;
    if flags.on("rm") {
        remove(session, &info).await?;
    }
    ended
}

/// The pod's name, and whether it is attached to.
fn check(flags: &Parsed) -> Result<(&String, bool)> {
    if flags.text("image").is_empty() {
        return Err(Failure::message("required flag(s) \"image\" not set"));
    }
    let Some(name) = flags.arguments.first().filter(|_| flags.dash != Some(0)) else {
        return Err(Failure::Usage("NAME is required for run".into()));
    };
    let interactive = flags.on("stdin") || flags.on("tty");
    let attach = if flags.given("attach") { flags.on("attach") } else { interactive };
    if flags.on("tty") && !flags.on("stdin") {
        return Err(Failure::Usage("-i/--stdin is required for containers with -t/--tty=true".into()));
    }
    if flags.on("rm") && !attach {
        return Err(Failure::Usage("--rm should only be used for attached containers".into()));
    }
    Ok((name, attach))
}

async fn create(change: &Change<'_>, name: &str) -> Result<Info> {
    let session = change.session;
    let flags = &session.flags;
    let mut pod = pod(flags, name)?;
    if session.settings()?.namespace_given {
        pod["metadata"]["namespace"] = session.namespace()?.into();
    }
    let pod = overridden(session, pod, ("", "v1", "Pod"))?;
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or(session.namespace()?).to_string();
    let mapping = session.mapping("pods").await?;
    let pod = super::change::as_go_writes(pod);
    let object = if change.local() {
        pod
    } else {
        let pod = if flags.on("save-config") { super::change::with_last_applied_typed(&pod) } else { pod };
        change.send(Call::post(mapping.collection(&namespace), &pod), "kubectl-run").await?
    };
    Ok(Info { mapping, namespace, name: name.to_string(), object, source: String::new() })
}

/// What `--rm` does at the end.
async fn remove(session: &Session, info: &Info) -> Result<()> {
    let flags = &session.flags;
    let grace = if flags.on("force") { 0 } else { flags.integer("grace-period") };
    let options = super::delete::options(session, grace)?;
    match session.send(&Call::delete(info.path(), &options)).await {
        Err(failure) if failure.is_not_found() => {}
        other => _ = other?,
    }
    if !flags.on("quiet") {
        terminal::outln(&format!("pod {:?} deleted from {} namespace", info.name, info.namespace));
    }
    Ok(())
}

/// The service in front of the pod.
async fn expose(change: &Change<'_>, name: &str, namespace: &str, labels: &Value) -> Result<()> {
    let session = change.session;
    let port: i64 = session.flags.text("port").parse().map_err(|_| Failure::message("--port must be a number"))?;
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"ports": [{"port": port, "protocol": "TCP", "targetPort": port}], "selector": labels}});
    if session.settings()?.namespace_given {
        service["metadata"]["namespace"] = namespace.into();
    }
    let made = if change.local() {
        super::change::as_go_writes(service)
    } else {
        let call = Call::post(format!("/api/v1/namespaces/{namespace}/services"), &service);
        change.send(call, "kubectl-run").await?
    };
    change.report_typed(&format!("service/{name}"), &made, "created")?;
    if matches!(change.format, crate::output::Format::Yaml) {
        // Upstream's two printers both separate.
        terminal::outln("---");
    }
    Ok(())
}

/// The pod that the flags describe.
fn pod(flags: &Parsed, name: &str) -> Result<Value> {
    let container = container(flags, name)?;
    let restart = flags.text("restart");
    if !["Always", "OnFailure", "Never"].contains(&restart) {
        return Err(Failure::Usage(format!("invalid restart policy: {restart}")));
    }
    let labels = match flags.text("labels") {
        "" => json!({"run": name}),
        given => super::expose::labels(given)?.into(),
    };
    let mut metadata = json!({"name": name, "labels": labels});
    for annotation in flags.list("annotations") {
        let (key, value) = annotation.split_once('=').unwrap_or((&annotation, ""));
        metadata["annotations"][key] = value.into();
    }
    let spec = json!({"containers": [container], "restartPolicy": restart, "dnsPolicy": "ClusterFirst"});
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

fn container(flags: &Parsed, name: &str) -> Result<Value> {
    let image = flags.text("image");
    if !is_reference(image) {
        return Err(Failure::message(format!("Invalid image name {image:?}: invalid reference format")));
    }
    let mut container = json!({"name": name, "image": image});
    let command = &flags.arguments[flags.dash.unwrap_or(1)..];
    if !command.is_empty() {
        container[if flags.on("command") { "command" } else { "args" }] = json!(command);
    }
    let env = environment(&flags.list("env"))?;
    if !env.is_empty() {
        container["env"] = env.into();
    }
    let port = flags.text("port");
    if !port.is_empty() {
        let number: i64 =
            port.parse().map_err(|_| Failure::message(format!("strconv.Atoi: parsing {port:?}: invalid syntax")))?;
        container["ports"] = json!([{"containerPort": number}]);
    }
    match flags.text("image-pull-policy") {
        "" => {}
        policy @ ("Always" | "IfNotPresent" | "Never") => container["imagePullPolicy"] = policy.into(),
        policy => return Err(Failure::Usage(format!("invalid image pull policy: {policy}"))),
    }
    if flags.on("privileged") {
        container["securityContext"] = json!({"privileged": true});
    }
    if flags.on("stdin") {
        container["stdin"] = true.into();
        if !flags.on("leave-stdin-open") {
            container["stdinOnce"] = true.into();
        }
    }
    if flags.on("tty") {
        container["tty"] = true.into();
    }
    Ok(container)
}

/// `[host[:port]/]path[:tag][@digest]`, as registries know images.
fn is_reference(image: &str) -> bool {
    const LABEL: &str = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
    const PART: &str = "[a-z0-9]+(?:(?:[._]|__|[-]+)[a-z0-9]+)*";
    const TAG: &str = r"[\w][\w.-]{0,127}";
    const DIGEST: &str = "[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}";
    let host = format!(r"(?:{LABEL}(?:\.{LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?");
    let pattern = format!("^(?:{host}/)?{PART}(?:/{PART})*(?::{TAG})?(?:@{DIGEST})?$");
    regex::Regex::new(&pattern).is_ok_and(|pattern| pattern.is_match(image))
}

fn environment(pairs: &[String]) -> Result<Vec<Value>> {
    let is_name = |key: &str| machinery::names::env_var_name(key).is_empty();
    let variable = |pair: &String| match pair.split_once('=').filter(|(key, _)| is_name(key)) {
        Some((key, value)) => Ok(json!({"name": key, "value": value})),
        None => Err(Failure::message(format!("invalid env: {pair}"))),
    };
    pairs.iter().map(variable).collect()
}

/// The object after `--overrides`.
pub(crate) fn overridden(session: &Session, mut object: Value, kind: (&str, &str, &str)) -> Result<Value> {
    let text = session.flags.text("overrides");
    if text.is_empty() {
        return Ok(object);
    }
    let patch: Value = serde_json::from_str(text).map_err(|_| Failure::message("Invalid JSON Patch"))?;
    let changed = match session.flags.text("override-type") {
        "merge" => machinery::patch::merge::apply(&mut object, &patch).map_err(Failure::of),
        "json" => machinery::patch::json::apply(&mut object, &patch).map_err(Failure::of),
        "strategic" => match api::schema::type_named(kind.0, kind.1, kind.2) {
            Some(ty) => machinery::patch::strategic::apply(ty, &mut object, &patch).map_err(Failure::of),
            None => Err(Failure::message("cannot apply a strategic merge patch to this kind")),
        },
        other => Err(Failure::message(format!("invalid override type: {other}"))),
    };
    changed?;
    Ok(object)
}

/// Waits until it runs or has run, attaches, and answers with its exit code.
async fn attached(session: &Session, info: &Info) -> Result<()> {
    let flags = &session.flags;
    let limit = Duration::from_secs_f64(flags.seconds("pod-running-timeout").max(1.0));
    let call = Call::get(info.collection()).with("fieldSelector", format!("metadata.name={}", info.name));
    let started = super::pods::until(session, call, limit, |pods| match pods {
        [] => Some(None),
        [pod, ..] => started(pod).then(|| Some(pod.clone())),
    });
    let pod = match started.await? {
        Some(Some(pod)) => pod,
        Some(None) => return Err(Failure::message(format!("pods {:?} not found", info.name))),
        None => return Err(Failure::message("timed out waiting for the condition")),
    };
    let container = pod["spec"]["containers"][0]["name"].as_str().unwrap_or_default().to_string();
    let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let mut seen = false;
    if !finished {
        match super::exec::to(session, &pod, &container, flags.on("stdin"), flags.on("tty"), flags.on("quiet")).await {
            Ok(()) => seen = true,
            Err(Failure::Exit(code)) => return crate::exit(code),
            // It may have ended before we were there; its log says what it said.
            Err(failure) => terminal::errln(&format!(
                "warning: couldn't attach to pod/{}, falling back to streaming logs: {}",
                info.name,
                failure.text()
            )),
        }
    }
    if !seen {
        let mut call =
            Call::get(format!("{}/log", info.path())).with("container", container.as_str()).with("follow", "true");
        call.accept = "*/*";
        let mut log = session.chunks(&call).await?;
        while let Some(bytes) = log.next().await? {
            terminal::out_bytes(&bytes);
        }
    }
    if flags.text("restart") == "Always" {
        return Ok(());
    }
    // With another restart policy it has an end, and the end has a code.
    let path = Template::parse("{.status.containerStatuses[0].state.terminated.exitCode}").map_err(Failure::of)?;
    let done =
        wait::one(session, info, &Until::Field { path, value: None }, Some(Duration::from_secs(7 * 24 * 3600))).await?;
    let terminated = &done["status"]["containerStatuses"][0]["state"]["terminated"];
    match terminated["exitCode"].as_i64().unwrap_or(0) {
        0 => Ok(()),
        code => {
            let reason = terminated["reason"].as_str().unwrap_or_default();
            terminal::errln(&format!("pod {}/{} terminated ({reason})", info.namespace, info.name));
            crate::exit(code as i32)
        }
    }
}

/// Running with a running container, or over.
fn started(pod: &Value) -> bool {
    match pod["status"]["phase"].as_str() {
        Some("Succeeded" | "Failed") => true,
        Some("Running") => pod["status"]["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|status| status["state"]["running"].is_object() || status["state"]["terminated"].is_object()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(line: &str) -> Parsed {
        let line: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Parsed::parse(COMMAND.flags, &line).unwrap()
    }

    fn refused(line: &str) -> String {
        let flags = flags(line);
        check(&flags).map(|_| ()).and_then(|()| pod(&flags, "web").map(|_| ())).unwrap_err().text()
    }

    #[test]
    fn a_pod_is_what_the_flags_say() {
        let flags = flags("web --image=nginx --env=A=b --port=80 -i --restart=Never --annotations=k=v -- sleep 1");
        assert_eq!(check(&flags).unwrap(), (&"web".to_string(), true));
        let pod = pod(&flags, "web").unwrap();
        assert_eq!(pod["metadata"], json!({"name": "web", "labels": {"run": "web"}, "annotations": {"k": "v"}}));
        let container = json!({"name": "web", "image": "nginx", "args": ["sleep", "1"], "stdin": true,
            "stdinOnce": true, "env": [{"name": "A", "value": "b"}], "ports": [{"containerPort": 80}]});
        let spec = json!({"containers": [container], "restartPolicy": "Never", "dnsPolicy": "ClusterFirst"});
        assert_eq!(pod["spec"], spec);
    }

    #[test]
    fn words_behind_the_name_are_arguments_or_the_command() {
        let container = |line: &str| super::container(&flags(line), "web").unwrap();
        assert_eq!(container("web --image=a x y")["args"], json!(["x", "y"]));
        assert_eq!(container("web --image=a --command -- x")["command"], json!(["x"]));
        assert!(container("web --image=a")["args"].is_null());
        assert_eq!(container("web --image=a --privileged")["securityContext"]["privileged"], true);
        assert_eq!(container("web --image=a --image-pull-policy=Never")["imagePullPolicy"], "Never");
    }

    #[test]
    fn what_makes_no_pod_is_refused() {
        assert_eq!(refused("web"), "required flag(s) \"image\" not set");
        assert_eq!(refused("--image=a -- x"), "NAME is required for run");
        assert_eq!(refused("web --image=a -t"), "-i/--stdin is required for containers with -t/--tty=true");
        assert_eq!(refused("web --image=a --rm"), "--rm should only be used for attached containers");
        assert_eq!(refused("web --image=a --env==x"), "invalid env: =x");
        assert_eq!(refused("web --image=a --port=x"), "strconv.Atoi: parsing \"x\": invalid syntax");
        assert_eq!(refused("web --image=a --restart=Once"), "invalid restart policy: Once");
        assert_eq!(refused("web --image=a --image-pull-policy=Once"), "invalid image pull policy: Once");
    }
}
