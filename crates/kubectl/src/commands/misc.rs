//! Small commands: cluster-info, certificate, options, completion, kustomize.

use serde_json::{Value, json};

use crate::command::{Command, GLOBAL};
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::resource::select::{FILES, Query};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static CLUSTER_INFO: Command = Command {
    name: "cluster-info",
    group: super::CLUSTER,
    short: "Display cluster information.",
    usage: "[flags] [options]",
    subcommands: &[&DUMP],
    run: Some(|session| Box::pin(cluster_info(session))),
    ..Command::EMPTY
};
static DUMP: Command = Command {
    name: "dump",
    short: "Dump relevant information for debugging and diagnosis.",
    usage: "[flags] [options]",
    flags: &[DUMP_FLAGS, DUMP_OUTPUT],
    run: Some(|session| Box::pin(dump(session))),
    ..Command::EMPTY
};
pub(crate) static CERTIFICATE: Command = Command {
    name: "certificate",
    group: super::CLUSTER,
    short: "Modify certificate resources.",
    usage: "SUBCOMMAND [options]",
    subcommands: &[&APPROVE, &DENY],
    ..Command::EMPTY
};
static APPROVE: Command = Command {
    name: "approve",
    short: "Approve a certificate signing request.",
    usage: "(-f FILENAME | NAME) [options]",
    flags: &[FORCE, FILES, crate::output::FLAGS],
    run: Some(|session| Box::pin(certificate(session, "Approved", "approved"))),
    ..Command::EMPTY
};
static DENY: Command = Command {
    name: "deny",
    short: "Deny a certificate signing request.",
    usage: "(-f FILENAME | NAME) [options]",
    flags: &[FORCE, FILES, crate::output::FLAGS],
    run: Some(|session| Box::pin(certificate(session, "Denied", "denied"))),
    ..Command::EMPTY
};
pub(super) static OPTIONS: Command = Command {
    name: "options",
    group: super::OTHER,
    short: "Print the list of flags inherited by all commands.",
    run: Some(|session| Box::pin(options(session))),
    ..Command::EMPTY
};
pub(super) static KUSTOMIZE: Command = Command {
    name: "kustomize",
    group: super::ADVANCED,
    short: "Build a kustomization target from a directory.",
    usage: "DIR [options]",
    flags: &[KUSTOMIZE_FLAGS],
    run: Some(|session| Box::pin(kustomize(session))),
    ..Command::EMPTY
};

const DUMP_FLAGS: &[Flag] = &[
    Flag::switch("all-namespaces", "All namespaces.").short('A'),
    Flag::list("namespaces", "Which namespaces."),
    Flag::text("output", "json", "json or yaml.").short('o'),
    Flag::text("output-directory", "", "A folder to write files to."),
    Flag::duration("pod-running-timeout", "20s", "Not used."),
];
const DUMP_OUTPUT: &[Flag] = &[
    Flag::on("allow-missing-template-keys", "Ignore what a template names and an object lacks."),
    Flag::switch("show-managed-fields", "Keep managedFields when printing objects."),
    Flag::text("template", "", "The template of -o go-template and -o jsonpath."),
];
const FORCE: &[Flag] = &[Flag::switch("force", "Even where it was decided before.")];
const KUSTOMIZE_FLAGS: &[Flag] = &[
    Flag::text("output", "", "A file to write to.").short('o'),
    Flag::switch("as-current-user", "Not used: no functions are run."),
    Flag::switch("enable-alpha-plugins", "Not supported."),
    Flag::switch("enable-helm", "Let helm render charts."),
    Flag::array("env", "Not used: no functions are run.").short('e'),
    Flag::array("helm-api-versions", "Not used."),
    Flag::text("helm-command", "helm", "The program that renders charts."),
    Flag::switch("helm-debug", "Not used."),
    Flag::text("helm-kube-version", "", "Not used."),
    Flag::array("mount", "Not used: no functions are run."),
    Flag::switch("network", "Not used: no functions are run."),
    Flag::text("network-name", "bridge", "Not used: no functions are run."),
    Flag::text("load-restrictor", "LoadRestrictionsRootOnly", "Whether files outside of the folder may be read."),
];

async fn cluster_info(session: &Session) -> Result<()> {
    let server = session.settings()?.server.clone();
    let services = session
        .send(
            &Call::get("/api/v1/namespaces/kube-system/services")
                .with("labelSelector", "kubernetes.io/cluster-service=true"),
        )
        .await?;
    // Colours only where somebody looks.
    let colored = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let paint =
        |code: &str, text: &str| if colored { format!("\x1b[0;{code}m{text}\x1b[0m") } else { text.to_string() };
    terminal::outln(&format!("{} is running at {}", paint("32", "Kubernetes control plane"), paint("33", &server)));
    for service in services["items"].as_array().into_iter().flatten() {
        let name = service["metadata"]["name"].as_str().unwrap_or_default();
        let shown = service["metadata"]["labels"]["kubernetes.io/name"].as_str().unwrap_or(name);
        let port = service["spec"]["ports"].as_array().and_then(|ports| ports.first());
        let suffix = port.and_then(|port| port["name"].as_str()).map(|port| format!(":{port}")).unwrap_or_default();
        let link = format!("{server}/api/v1/namespaces/kube-system/services/{name}{suffix}/proxy");
        terminal::outln(&format!("{} is running at {}", paint("32", shown), paint("33", &link)));
    }
    terminal::outln("\nTo further debug and diagnose cluster problems, use 'kubectl cluster-info dump'.");
    Ok(())
}

/// The fields of objects and lists in the order of upstream's types, which is that of the dump.
const DUMP_ORDER: &[&str] = &[
    "kind",
    "apiVersion",
    "metadata",
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "items",
];

async fn dump(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let folder = flags.text("output-directory");
    let yaml = flags.text("output") == "yaml";
    let show = |name: &str, object: &Value| -> Result<()> {
        let mut object = object.clone();
        for item in object["items"].as_array_mut().into_iter().flatten() {
            crate::output::without_managed_fields(item);
        }
        // All documents are of one stream, also when each goes to a file of its own.
        let separator = if session.printed.replace(true) { "---\n" } else { "" };
        let text = if yaml {
            format!("{separator}{}", crate::output::yaml::text(&object))
        } else {
            format!("{}\n", crate::output::json::pretty_in_order(&object, DUMP_ORDER))
        };
        write(folder, &format!("{name}.{}", if yaml { "yaml" } else { "json" }), &text)
    };
    show("nodes", &session.send(&Call::get("/api/v1/nodes")).await?)?;
    let mut namespaces = flags.list("namespaces");
    if flags.on("all-namespaces") {
        let list = session.send(&Call::get("/api/v1/namespaces")).await?;
        namespaces = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|item| item["metadata"]["name"].as_str())
            .map(str::to_string)
            .collect();
    } else if namespaces.is_empty() {
        namespaces = vec!["kube-system".into(), session.namespace()?.to_string()];
    }
    for namespace in namespaces {
        for (name, path) in [
            ("events", "/api/v1"),
            ("replication-controllers", "/api/v1"),
            ("services", "/api/v1"),
            ("daemonsets", "/apis/apps/v1"),
            ("deployments", "/apis/apps/v1"),
            ("replicasets", "/apis/apps/v1"),
            ("pods", "/api/v1"),
        ] {
            let list =
                session.send(&Call::get(format!("{path}/namespaces/{namespace}/{}", name.replace('-', "")))).await?;
            show(&format!("{namespace}/{name}"), &list)?;
            if name != "pods" {
                continue;
            }
            for pod in list["items"].as_array().into_iter().flatten() {
                let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
                let mut text = String::new();
                for container in super::pods::container_names(pod, super::pods::ALL_LISTS) {
                    text += &format!("==== START logs for container {container} of pod {namespace}/{pod_name} ====\n");
                    let mut call = Call::get(format!("/api/v1/namespaces/{namespace}/pods/{pod_name}/log"))
                        .with("container", container.as_str());
                    call.accept = "*/*";
                    text += &match session.bytes(&call).await {
                        Ok(log) => String::from_utf8_lossy(&log).into_owned(),
                        Err(failure) => format!("Request log error: {}\n", failure.text()),
                    };
                    text += &format!("==== END logs for container {container} of pod {namespace}/{pod_name} ====\n");
                }
                write(folder, &format!("{namespace}/{pod_name}/logs.txt"), &text)?;
            }
        }
    }
    if !folder.is_empty() && folder != "-" {
        terminal::outln(&format!("Cluster info dumped to {folder}"));
    }
    Ok(())
}

fn write(folder: &str, name: &str, text: &str) -> Result<()> {
    if folder.is_empty() || folder == "-" {
        terminal::out(text);
        return Ok(());
    }
    let path = std::path::Path::new(folder).join(name);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    Ok(std::fs::write(path, text)?)
}

async fn certificate(session: &Session, kind: &str, word: &str) -> Result<()> {
    let mut arguments = session.arguments().to_vec();
    let files = session.flags.list("filename");
    if arguments.is_empty() && files.is_empty() {
        return Err(Failure::message("one or more CSRs must be specified as <name> or -f <filename>"));
    }
    if !arguments.is_empty() && !arguments.iter().any(|argument| argument.contains('/')) {
        arguments.insert(0, "certificatesigningrequests".into());
    }
    let (infos, failures) = session.infos(&Query { arguments, chunk: 500, ..Query::from(session) }).await?;
    crate::failure::all(failures)?;
    for info in infos {
        let mut object = info.object.clone();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let has = |kind: &str| conditions.iter().any(|condition| condition["type"] == kind);
        let other = if kind == "Approved" { "Denied" } else { "Approved" };
        if has(other) {
            return Err(Failure::message(format!("certificate signing request {:?} is already {other}", info.name)));
        }
        if !has(kind) || session.flags.on("force") {
            let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let reason = if kind == "Approved" { "KubectlApprove" } else { "KubectlDeny" };
            let message = format!(
                "This CSR was {word} by kubectl certificate {}.",
                if kind == "Approved" { "approve" } else { "deny" }
            );
            let mut conditions: Vec<Value> =
                conditions.into_iter().filter(|condition| condition["type"] != kind).collect();
            conditions.push(
                json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastUpdateTime": now}),
            );
            object["status"]["conditions"] = conditions.into();
            object = session.send(&Call::put(format!("{}/approval", info.path()), &object)).await?;
        }
        match crate::output::Format::from(&session.flags, false)? {
            crate::output::Format::Human { .. } => terminal::outln(&format!("{} {word}", info.shown())),
            format => {
                if format.leaves_out_managed_fields() && !session.flags.on("show-managed-fields") {
                    crate::output::without_managed_fields(&mut object);
                }
                terminal::out(&format.text(&object)?);
            }
        }
    }
    Ok(())
}

async fn options(_: &Session) -> Result<()> {
    terminal::out(&crate::help::of_global(GLOBAL));
    Ok(())
}

async fn kustomize(session: &Session) -> Result<()> {
    let folder = match session.arguments() {
        [] => ".",
        [folder] => folder,
        _ => return Err(Failure::message("specify one path to kustomization.yaml")),
    };
    let flags = &session.flags;
    let helm = flags.on("enable-helm").then(|| flags.text("helm-command").to_string());
    let objects = crate::kustomize::build_with(std::path::Path::new(folder), helm)?;
    let texts: Vec<String> = objects.iter().map(crate::output::yaml::text).collect();
    let text = texts.join("---\n");
    match session.flags.text("output") {
        "" => terminal::out(&text),
        file => std::fs::write(file, text)?,
    }
    Ok(())
}
