//! Candidates from the server, the kubeconfig and the disk. Whatever cannot be asked gives none: a shell that completes
//! has no place for errors.

use super::table::Source;
use super::{Answer, directive};
use crate::commands::{api_resources, pods};
use crate::config;
use crate::resource::select::Query;
use crate::session::{Call, Session};

/// What holds pods, as one can name it instead of a pod.
const WITH_PODS: &[&str] =
    &["daemonsets", "deployments", "pods", "jobs", "replicasets", "replicationcontrollers", "services", "statefulsets"];

pub(crate) async fn of(session: &Session, source: Source, last: &str) -> Answer {
    let arguments = session.arguments();
    let first = arguments.is_empty();
    let begun = |words: Vec<String>| words.into_iter().filter(|word| word.starts_with(last)).collect::<Vec<_>>();
    let found = match source {
        Source::Nothing => return (Vec::new(), directive::DEFAULT),
        Source::Endings(endings) => {
            return (endings.iter().map(|ending| ending.to_string()).collect(), directive::FILE_ENDINGS);
        }
        Source::Words(words) => begun(words.iter().map(|word| word.to_string()).collect()),
        Source::Resources { types, repeat } => return resources(session, types, repeat, last).await,
        Source::Name(kind) if first => names(session, kind, last).await,
        Source::AnyName(kind) => names(session, kind, last).await,
        Source::Config(list) if first => begun(configured(session, list)),
        Source::AnyConfig(list) => begun(configured(session, list)),
        Source::Pod | Source::PodAndContainer if first => return pod(session, last).await,
        Source::PodAndContainer if arguments.len() == 1 => containers(session, last).await,
        Source::Container if !first => containers(session, last).await,
        Source::Copy => return (if first { copied(session, last).await } else { Vec::new() }, directive::NO_SPACE),
        Source::Name(_) | Source::Config(_) | Source::Pod | Source::PodAndContainer | Source::Container => Vec::new(),
    };
    (found, directive::NO_FILES)
}

/// The names of all objects of a type, or of several types.
async fn names(session: &Session, kind: &str, last: &str) -> Vec<String> {
    let query = Query { arguments: vec![kind.to_string()], chunk: 500, ..Query::default() };
    let found = session.infos(&query).await.map(|(infos, _)| infos).unwrap_or_default();
    found.into_iter().map(|info| info.name).filter(|name| name.starts_with(last)).collect()
}

async fn types(session: &Session, last: &str) -> Vec<String> {
    // Of `pods,secre` the last is being written.
    let (before, begun) = last.rfind(',').map_or(("", last), |at| last.split_at(at + 1));
    let all = api_resources::names(session, "get").await.unwrap_or_default();
    all.into_iter().filter(|name| name.starts_with(begun)).map(|name| format!("{before}{name}")).collect()
}

async fn resources(session: &Session, allowed: &[&str], repeat: bool, last: &str) -> Answer {
    let arguments = session.arguments();
    let without =
        |found: Vec<String>, known: &[String]| found.into_iter().filter(|name| !known.contains(name)).collect();
    if let Some(kind) = arguments.first().filter(|word| !word.contains('/')) {
        let found = if repeat || arguments.len() == 1 { names(session, kind, last).await } else { Vec::new() };
        return (without(found, &arguments[1..]), directive::NO_FILES);
    }
    if let Some((kind, begun)) = last.split_once('/') {
        let named = repeat || arguments.is_empty();
        let found = if named { names(session, kind, begun).await } else { Vec::new() };
        let found = found.into_iter().map(|name| format!("{kind}/{name}")).collect();
        return (without(found, arguments), directive::NO_FILES);
    }
    let types = match allowed {
        [] => types(session, last).await,
        allowed => allowed.iter().filter(|kind| kind.starts_with(last)).map(|kind| kind.to_string()).collect(),
    };
    match (arguments.is_empty(), repeat) {
        (true, _) => (types, directive::NO_FILES),
        (false, false) => (Vec::new(), directive::NO_FILES),
        // Whoever wrote `TYPE/NAME` once must go on so.
        (false, true) => {
            let space = if types.is_empty() { 0 } else { directive::NO_SPACE };
            (types.into_iter().map(|kind| format!("{kind}/")).collect(), directive::NO_FILES | space)
        }
    }
}

async fn pod(session: &Session, last: &str) -> Answer {
    if let Some((kind, begun)) = last.split_once('/') {
        let found = names(session, kind, begun).await;
        return (found.into_iter().map(|name| format!("{kind}/{name}")).collect(), directive::NO_FILES);
    }
    let mut found = names(session, "pod", last).await;
    let space = if found.is_empty() { directive::NO_SPACE } else { 0 };
    found.extend(WITH_PODS.iter().filter(|kind| kind.starts_with(last)).map(|kind| format!("{kind}/")));
    (found, directive::NO_FILES | space)
}

async fn containers(session: &Session, last: &str) -> Vec<String> {
    let Some(name) = session.arguments().first() else { return Vec::new() };
    let Ok(pod) = pods::one(session, name, std::time::Duration::ZERO).await else { return Vec::new() };
    let names = pods::container_names(&pod, &["initContainers", "containers", "ephemeralContainers"]);
    names.into_iter().filter(|name| name.starts_with(last)).collect()
}

fn configured(session: &Session, list: &str) -> Vec<String> {
    let all = config::merged(&session.flags).unwrap_or_default();
    let entries = all[list].as_array().into_iter().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| Some(entry["name"].as_str()?.to_string())).collect();
    names.sort();
    names
}

/// Namespaces, pods, and files as far as one of them can be meant.
async fn copied(session: &Session, last: &str) -> Vec<String> {
    if last.starts_with(['/', '.', '~']) || last.contains(':') {
        return Vec::new();
    }
    if let Some((namespace, begun)) = last.split_once('/') {
        let list = session.send(&Call::get(format!("/api/v1/namespaces/{namespace}/pods"))).await.unwrap_or_default();
        let pods = list["items"].as_array().into_iter().flatten();
        let names = pods.filter_map(|pod| pod["metadata"]["name"].as_str()).filter(|name| name.starts_with(begun));
        return names.map(|name| format!("{namespace}/{name}:")).collect();
    }
    let mut found: Vec<String> =
        names(session, "namespace", last).await.iter().map(|name| format!("{name}/")).collect();
    found.extend(names(session, "pod", last).await.iter().map(|name| format!("{name}:")));
    if last.is_empty() {
        found.extend(["./".to_string(), "/".into()]);
    } else if !found.is_empty() {
        // Without any candidate the shell offers files itself.
        let mut files: Vec<String> = std::fs::read_dir(".")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().to_str()?.to_string();
                let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                name.starts_with(last).then(|| if folder { format!("{name}/") } else { name })
            })
            .collect();
        files.sort();
        found.extend(files);
    }
    found
}
