//! `kubectl cluster-info dump`: what one needs to look into a cluster elsewhere.

use serde_json::Value;

use crate::command::Command;
use crate::commands::pods;
use crate::failure::Result;
use crate::flags::Flag;
use crate::output;
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "dump",
    short: "Dump relevant information for debugging and diagnosis.",
    usage: "[flags] [options]",
    flags: &[FLAGS, OUTPUT],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("all-namespaces", "All namespaces.").short('A'),
    Flag::list("namespaces", "Which namespaces."),
    Flag::text("output", "json", "json or yaml.").short('o'),
    Flag::text("output-directory", "", "A folder to write files to."),
    Flag::duration("pod-running-timeout", "20s", "Not used."),
];
const OUTPUT: &[Flag] = &[
    Flag::on("allow-missing-template-keys", "Ignore what a template names and an object lacks."),
    Flag::switch("show-managed-fields", "Keep managedFields when printing objects."),
    Flag::text("template", "", "The template of -o go-template and -o jsonpath."),
];

/// The fields of objects and lists in the order of upstream's types, which is that of the dump.
const ORDER: &[&str] = &[
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

/// What is dumped of each namespace: the name of its file, and where its group is served.
const LISTS: &[(&str, &str)] = &[
    ("events", "/api/v1"),
    ("replication-controllers", "/api/v1"),
    ("services", "/api/v1"),
    ("daemonsets", "/apis/apps/v1"),
    ("deployments", "/apis/apps/v1"),
    ("replicasets", "/apis/apps/v1"),
    ("pods", "/api/v1"),
];

async fn run(session: &Session) -> Result<()> {
    let folder = session.flags.text("output-directory");
    show(session, "nodes", session.send(&Call::get("/api/v1/nodes")).await?)?;
    for namespace in namespaces(session).await? {
        for (name, path) in LISTS {
            let path = format!("{path}/namespaces/{namespace}/{}", name.replace('-', ""));
            let list = session.send(&Call::get(path)).await?;
            show(session, &format!("{namespace}/{name}"), list.clone())?;
            if *name != "pods" {
                continue;
            }
            for pod in list["items"].as_array().into_iter().flatten() {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                let text = logs(session, &namespace, name, pod).await;
                write(folder, &format!("{namespace}/{name}/logs.txt"), &text)?;
            }
        }
    }
    if !to_terminal(folder) {
        terminal::outln(&format!("Cluster info dumped to {folder}"));
    }
    Ok(())
}

async fn namespaces(session: &Session) -> Result<Vec<String>> {
    let named = session.flags.list("namespaces");
    if session.flags.on("all-namespaces") {
        let list = session.send(&Call::get("/api/v1/namespaces")).await?;
        let items = list["items"].as_array().into_iter().flatten();
        return Ok(items.filter_map(|item| item["metadata"]["name"].as_str()).map(str::to_string).collect());
    }
    if named.is_empty() {
        return Ok(vec!["kube-system".into(), session.namespace()?.to_string()]);
    }
    Ok(named)
}

/// The logs of all containers of a pod, or why there are none.
async fn logs(session: &Session, namespace: &str, name: &str, pod: &Value) -> String {
    let mut text = String::new();
    for container in pods::container_names(pod, pods::ALL_LISTS) {
        text += &format!("==== START logs for container {container} of pod {namespace}/{name} ====\n");
        let mut call =
            Call::get(format!("/api/v1/namespaces/{namespace}/pods/{name}/log")).with("container", container.as_str());
        call.accept = "*/*";
        text += &match session.bytes(&call).await {
            Ok(log) => String::from_utf8_lossy(&log).into_owned(),
            Err(failure) => format!("Request log error: {}\n", failure.text()),
        };
        text += &format!("==== END logs for container {container} of pod {namespace}/{name} ====\n");
    }
    text
}

fn show(session: &Session, name: &str, mut list: Value) -> Result<()> {
    for item in list["items"].as_array_mut().into_iter().flatten() {
        output::without_managed_fields(item);
    }
    // All documents are of one stream, also when each goes to a file of its own.
    let separator = if session.printed.replace(true) { "---\n" } else { "" };
    let (text, extension) = if session.flags.text("output") == "yaml" {
        (format!("{separator}{}", output::yaml::text(&list)), "yaml")
    } else {
        (format!("{}\n", output::json::pretty_in_order(&list, ORDER)), "json")
    };
    write(session.flags.text("output-directory"), &format!("{name}.{extension}"), &text)
}

fn to_terminal(folder: &str) -> bool {
    folder.is_empty() || folder == "-"
}

fn write(folder: &str, name: &str, text: &str) -> Result<()> {
    if to_terminal(folder) {
        terminal::out(text);
        return Ok(());
    }
    let path = std::path::Path::new(folder).join(name);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    Ok(std::fs::write(path, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_below_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path().to_str().unwrap(), "default/pods.json", "{}").unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("default/pods.json")).unwrap(), "{}");
        assert!(to_terminal("") && to_terminal("-") && !to_terminal("out"));
    }
}
