//! `kubectl debug`: a helper inside of a pod, in a copy of it, or on its node.

mod helper;

use std::time::Duration;

use serde_json::{Value, json};

use super::change::STRATEGIC;
use super::pods;
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::{Flag, Parsed};
use crate::resource::select::Query;
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
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
    Flag::pairs("env", "Variables of the helper, as key=value."),
    Flag::text("image", "", "The image of the helper."),
    Flag::text("image-pull-policy", "", "Always, IfNotPresent or Never."),
    Flag::switch("keep-annotations", "A copy keeps annotations."),
    Flag::on("keep-init-containers", "A copy keeps init containers."),
    Flag::switch("keep-labels", "A copy keeps labels."),
    Flag::switch("keep-liveness", "A copy keeps liveness probes."),
    Flag::switch("keep-readiness", "A copy keeps readiness probes."),
    Flag::switch("keep-startup", "A copy keeps startup probes."),
    Flag::text("profile", "general", "What the helper may do: general, baseline, netadmin, restricted or sysadmin."),
    Flag::switch("quiet", "Only print what the process prints.").short('q'),
    Flag::switch("replace", "Delete the pod that was copied."),
    Flag::switch("same-node", "A copy goes to the same node."),
    Flag::pairs("set-image", "Images of a copy's containers, as name=image."),
    Flag::on("share-processes", "Containers of a copy see each other's processes."),
    Flag::switch("stdin", "Keep the helper's input open.").short('i'),
    Flag::text("target", "", "The container whose processes the helper sees."),
    Flag::switch("tty", "The helper's input is a terminal.").short('t'),
];

/// How long a helper may take to start before nobody waits for it any more.
const STARTED_WITHIN: Duration = Duration::from_secs(600);

async fn run(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let before = flags.dash.unwrap_or(session.arguments().len());
    let (targets, command) = session.arguments().split_at(before);
    let custom = check(session, targets, command)?;
    let debug = Debug { session, command, custom };
    let query = Query { arguments: Vec::new(), ..Query::from(session) };
    let mut names: Vec<String> = targets.to_vec();
    if query.has_files() {
        let (infos, failures) = session.local(&query).await?;
        crate::failure::all(failures)?;
        names.extend(infos.iter().map(|info| format!("{}/{}", info.mapping.resource(), info.name)));
    }
    for name in names {
        debug.one(&name).await?;
    }
    Ok(())
}

/// What upstream refuses before it asks for anything, in its order. Answers with what `--custom` adds.
fn check(session: &Session, targets: &[String], command: &[String]) -> Result<Option<Value>> {
    let flags = &session.flags;
    if !helper::PROFILES.contains(&flags.text("profile")) {
        return Err(Failure::message(format!("unknown profile: {}", flags.text("profile"))));
    }
    let custom = helper::custom(flags.text("custom"))?;
    check_images(flags, command)?;
    if targets.is_empty() && !flags.given("filename") {
        return Err(Failure::message("NAME or filename is required for debug"));
    }
    let policy = flags.text("image-pull-policy");
    if !["", "Always", "IfNotPresent", "Never"].contains(&policy) {
        return Err(Failure::message(format!("invalid image pull policy: {policy}")));
    }
    let target = flags.text("target");
    if !target.is_empty() && !flags.text("copy-to").is_empty() {
        return Err(Failure::message("--target is incompatible with --copy-to. Use --share-processes instead."));
    }
    if !target.is_empty() && !flags.on("quiet") {
        terminal::outln(&format!(
            "Targeting container {target:?}. If you don't see processes from this container it may be because the container runtime doesn't support this feature."
        ));
    }
    if flags.on("tty") && !flags.on("stdin") {
        return Err(Failure::message("-i/--stdin is required for containers with -t/--tty=true"));
    }
    if flags.text("profile") == "legacy" {
        terminal::errln(
            "--profile=legacy is deprecated and planned to be removed in v1.39. It is recommended to specify other profile, for example \"--profile=general\".",
        );
    }
    Ok(custom)
}

/// Whether it is known what runs, in the pod itself or in a copy.
fn check_images(flags: &Parsed, command: &[String]) -> Result<()> {
    let missing = |flag: &str| flags.text(flag).is_empty();
    let images = flags.list("set-image");
    if flags.given("attach") && flags.on("attach") && missing("image") && missing("container") {
        return Err(Failure::message(
            "you must specify --container or create a new container using --image in order to attach.",
        ));
    }
    if !missing("copy-to") {
        if missing("image") && images.is_empty() && command.is_empty() {
            return Err(Failure::message("you must specify --image, --set-image or command arguments."));
        }
        if !command.is_empty() && missing("container") && missing("image") {
            return Err(Failure::message(
                "you must specify an existing container or a new image when specifying args.",
            ));
        }
        return Ok(());
    }
    if flags.on("replace") {
        return Err(Failure::message("--replace may only be used with --copy-to."));
    }
    if flags.on("same-node") {
        return Err(Failure::message("--same-node may only be used with --copy-to."));
    }
    if !images.is_empty() {
        return Err(Failure::message("--set-image may only be used with --copy-to."));
    }
    if missing("image") {
        return Err(Failure::message("you must specify --image when not using --copy-to."));
    }
    Ok(())
}

struct Debug<'a> {
    session: &'a Session,
    command: &'a [String],
    custom: Option<Value>,
}

impl Debug<'_> {
    async fn one(&self, target: &str) -> Result<()> {
        let (kind, name) = target.split_once('/').unwrap_or(("pods", target));
        let mapping = self.session.mapping(kind).await?;
        let object = self.session.send(&Call::get(mapping.object(self.session.namespace()?, name))).await?;
        let (path, container) = match (mapping.group.as_str(), mapping.plural.as_str()) {
            ("", "nodes") => self.on_node(name).await?,
            ("", "pods") if self.session.flags.text("copy-to").is_empty() => self.beside(&object).await?,
            ("", "pods") => self.in_copy(&object).await?,
            _ => {
                let version = mapping.api_version_with_slash();
                return Err(Failure::message(format!("\"{version}, Kind={}\" not supported by debug", mapping.kind)));
            }
        };
        let flags = &self.session.flags;
        let wanted = if flags.given("attach") { flags.on("attach") } else { flags.on("stdin") };
        if wanted && !container.is_empty() { attach(self.session, &path, &container).await } else { Ok(()) }
    }

    /// A helper in the pod itself. Answers with the pod's path and the helper's name.
    async fn beside(&self, pod: &Value) -> Result<(String, String)> {
        let flags = &self.session.flags;
        let name = self.helper_name(pod);
        let mut container = helper::container(flags, &name, self.command);
        helper::allow(flags.text("profile"), helper::In::Pod, &mut container);
        if !flags.text("target").is_empty() {
            container["targetContainerName"] = flags.text("target").into();
        }
        helper::customize(&mut container, self.custom.as_ref());
        helper::warn_of_user(pod, &container);
        // The order is told too, or the new one would come first.
        let mut order: Vec<Value> = pods::container_names(pod, &["ephemeralContainers"])
            .into_iter()
            .map(|name| json!({"name": name}))
            .collect();
        order.push(json!({"name": name}));
        let patch =
            json!({"spec": {"$setElementOrder/ephemeralContainers": order, "ephemeralContainers": [container]}});
        let path = format!("{}/{}", place(pod), pod["metadata"]["name"].as_str().unwrap_or_default());
        let sent = self.session.send(&Call::patch(format!("{path}/ephemeralcontainers"), STRATEGIC, &patch)).await;
        sent.map_err(|failure| match failure {
            Failure::Status { ref status, .. } if failure.is_not_found() && status["details"]["name"].is_null() => {
                Failure::message(format!(
                    "ephemeral containers are disabled for this cluster (error from server: {:?})",
                    failure.text()
                ))
            }
            other => other,
        })?;
        Ok((path, name))
    }

    async fn in_copy(&self, pod: &Value) -> Result<(String, String)> {
        let flags = &self.session.flags;
        let mut copy = helper::copy(flags, pod)?;
        let mut name = flags.text("container").to_string();
        let known = pods::container_names(&copy, &["containers"]).contains(&name);
        let only_images = !known && flags.text("image").is_empty();
        if only_images && flags.list("set-image").is_empty() {
            return Err(Failure::message("you must specify image when creating new container"));
        }
        if only_images {
            name.clear();
        } else {
            if name.is_empty() {
                name = self.helper_name(&copy);
            }
            helper::into_copy(flags, &mut copy, &name, self.command, self.custom.as_ref());
        }
        let (path, new) = (place(pod), flags.text("copy-to"));
        self.session.send(&Call::post(&path, &copy)).await?;
        if flags.on("replace") {
            let old = pod["metadata"]["name"].as_str().unwrap_or_default();
            self.session.send(&Call::delete(format!("{path}/{old}"), &json!({"gracePeriodSeconds": 0}))).await?;
        }
        Ok((format!("{path}/{new}"), name))
    }

    async fn on_node(&self, node: &str) -> Result<(String, String)> {
        let flags = &self.session.flags;
        let container = match flags.text("container") {
            "" => "debugger",
            given => given,
        };
        let name = format!("node-debugger-{node}-{}", suffix());
        if !flags.on("quiet") {
            terminal::outln(&format!("Creating debugging pod {name} with container {container} on node {node}."));
        }
        let pod = helper::node_pod(flags, &name, container, node, self.command, self.custom.as_ref());
        let path = format!("/api/v1/namespaces/{}/pods", self.session.namespace()?);
        self.session.send(&Call::post(&path, &pod)).await?;
        Ok((format!("{path}/{name}"), container.to_string()))
    }

    fn helper_name(&self, pod: &Value) -> String {
        let flags = &self.session.flags;
        if !flags.text("container").is_empty() {
            return flags.text("container").to_string();
        }
        let known = pods::container_names(pod, pods::ALL_LISTS);
        let mut name = format!("debugger-{}", suffix());
        while known.contains(&name) {
            name = format!("debugger-{}", suffix());
        }
        if !flags.on("quiet") {
            terminal::outln(&format!("Defaulting debug container name to {name}."));
        }
        name
    }
}

/// The pods of a pod's namespace.
fn place(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods", pod["metadata"]["namespace"].as_str().unwrap_or_default())
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

/// Waits for the helper to run and attaches; what has already ended is told by its log.
async fn attach(session: &Session, path: &str, container: &str) -> Result<()> {
    let flags = &session.flags;
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let state = |pod: &Value| {
        let mut all = lists.iter().flat_map(|list| pod["status"][*list].as_array().into_iter().flatten());
        all.find(|status| status["name"] == container).map(|status| status["state"].clone()).unwrap_or_default()
    };
    let (collection, name) = path.rsplit_once('/').unwrap_or((path, ""));
    let call = Call::get(collection).with("fieldSelector", format!("metadata.name={name}"));
    let found = pods::until(session, call, STARTED_WITHIN, |pods| {
        let pod = pods.first()?;
        let state = state(pod);
        (state["running"].is_object() || state["terminated"].is_object()).then(|| pod.clone())
    });
    let Some(pod) = found.await? else { return Err(Failure::message("timed out waiting for the condition")) };
    if state(&pod)["running"].is_object() {
        return super::exec::to(session, &pod, container, flags.on("stdin"), flags.on("tty"), flags.on("quiet")).await;
    }
    let mut call = Call::get(format!("{path}/log")).with("container", container);
    call.accept = "*/*";
    terminal::out_bytes(&session.bytes(&call).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str, command: &str) -> String {
        let words = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_string).collect() };
        let flags = Parsed::parse(COMMAND.flags, &words(line)).unwrap();
        check_images(&flags, &words(command)).map_or_else(|failure| failure.text(), |()| "fine".into())
    }

    #[test]
    fn it_must_be_known_what_runs() {
        assert_eq!(refused("web --image=a", ""), "fine");
        assert_eq!(refused("web", ""), "you must specify --image when not using --copy-to.");
        assert_eq!(refused("web --image=a --replace", ""), "--replace may only be used with --copy-to.");
        assert_eq!(refused("web --image=a --same-node", ""), "--same-node may only be used with --copy-to.");
        assert_eq!(refused("web --image=a --set-image=a=b", ""), "--set-image may only be used with --copy-to.");
        let nothing = "you must specify --image, --set-image or command arguments.";
        assert_eq!(refused("web --copy-to=x", ""), nothing);
        let whose = "you must specify an existing container or a new image when specifying args.";
        assert_eq!(refused("web --copy-to=x", "sh"), whose);
        assert_eq!(refused("web --copy-to=x --container=app", "sh"), "fine");
        assert!(refused("web --attach", "").starts_with("you must specify --container or create a new container"));
    }
}
