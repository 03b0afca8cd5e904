//! `kubectl top`: what nodes and pods use, as the metrics API tells it.

use machinery::quantity::Quantity;
use serde_json::Value;

use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output::columns::Columns;
use crate::resource::select::SELECTOR;
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "top",
    group: super::CLUSTER,
    short: "Display resource (CPU/memory) usage.",
    usage: "[flags] [options]",
    subcommands: &[&NODE, &POD],
    ..Command::EMPTY
};
static NODE: Command = Command {
    name: "node",
    aliases: &["nodes", "no"],
    short: "Display resource (CPU/memory) usage of nodes.",
    usage: "[NAME | -l label] [options]",
    flags: &[FLAGS, NODE_FLAGS, SELECTOR],
    run: Some(|session| Box::pin(nodes(session))),
    ..Command::EMPTY
};
static POD: Command = Command {
    name: "pod",
    aliases: &["pods", "po"],
    short: "Display resource (CPU/memory) usage of pods.",
    usage: "[NAME | -l label] [options]",
    flags: &[FLAGS, POD_FLAGS, SELECTOR],
    run: Some(|session| Box::pin(pods(session))),
    ..Command::EMPTY
};
const FLAGS: &[Flag] = &[
    Flag::switch("no-headers", "No line with the names of columns."),
    Flag::text("sort-by", "", "cpu or memory."),
    Flag::on("use-protocol-buffers", "Not used: answers are JSON."),
];
const NODE_FLAGS: &[Flag] = &[
    Flag::switch("show-capacity", "Shares of the capacity instead of what is allocatable."),
    Flag::switch("show-swap", "Swap memory, too."),
];
const POD_FLAGS: &[Flag] = &[
    Flag::switch("all-namespaces", "All namespaces.").short('A'),
    Flag::switch("containers", "A line for each container."),
    Flag::text("field-selector", "", "A selector of fields."),
    Flag::switch("show-swap", "Swap memory, too."),
    Flag::switch("sum", "A last line with all together."),
];

/// What is used of each resource: thousandths of CPUs, bytes of memory, bytes of swap.
type Usage = [i64; 3];

const RESOURCES: [&str; 3] = ["cpu", "memory", "swap"];
const MIB: i64 = 1024 * 1024;
const UNKNOWN: &str = "<unknown>";

/// A pod of this age should have been measured.
const MEASURED_WITHIN_SECONDS: i64 = 120;

/// The metrics of a list, with upstream's sentence where nobody measures.
async fn metrics(session: &Session, path: String) -> Result<Vec<Value>> {
    let mut call = Call::get(path).with("labelSelector", session.flags.text("selector"));
    if session.flags.has("field-selector") {
        call = call.with("fieldSelector", session.flags.text("field-selector"));
    }
    match session.send(&call).await {
        Ok(list) if list["items"].is_array() => Ok(list["items"].as_array().cloned().unwrap_or_default()),
        Ok(list) if list["items"].is_null() && list["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => {
            Ok(Vec::new())
        }
        Ok(one) => Ok(vec![one]),
        Err(failure) if failure.code() == 404 && failure.text().contains("could not find the requested resource") => {
            Err(Failure::message("Metrics API not available"))
        }
        Err(failure) => Err(failure),
    }
}

fn amount(resource: &str, value: &Value) -> i64 {
    let Ok(quantity) = Quantity::from_value(value) else { return 0 };
    if resource == "cpu" { quantity.milli_value() } else { quantity.value() }
}

fn usage(amounts: &Value) -> Usage {
    RESOURCES.map(|resource| amount(resource, &amounts[resource]))
}

fn shown(resource: &str, used: i64) -> String {
    if resource == "cpu" { format!("{used}m") } else { format!("{}Mi", used / MIB) }
}

/// The resources that have columns.
fn measured(session: &Session) -> &'static [&'static str] {
    if session.flags.on("show-swap") { &RESOURCES } else { &RESOURCES[..2] }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The name that was given, which goes with no selector.
fn one<'a>(session: &'a Session, usage: &str, alone: &str) -> Result<Option<&'a str>> {
    if !["", "cpu", "memory"].contains(&session.flags.text("sort-by")) {
        return Err(Failure::message("--sort-by accepts only cpu or memory"));
    }
    let selected = ["selector", "field-selector"]
        .iter()
        .any(|flag| session.flags.has(flag) && !session.flags.text(flag).is_empty());
    match session.arguments() {
        [] => Ok(None),
        [_] if selected => Err(Failure::message(alone)),
        [name] => Ok(Some(name)),
        _ => session.usage(usage),
    }
}

/// Largest first by what was asked for, otherwise by name.
fn sort<T>(session: &Session, rows: &mut [T], used: impl Fn(&T) -> Usage, named: impl Fn(&T) -> String) {
    match session.flags.text("sort-by") {
        "cpu" => rows.sort_by_key(|row| std::cmp::Reverse(used(row)[0])),
        "memory" => rows.sort_by_key(|row| std::cmp::Reverse(used(row)[1])),
        _ => rows.sort_by_key(named),
    }
}

async fn nodes(session: &Session) -> Result<()> {
    let only = one(session, "node [NAME | -l label]", "only one of NAME or --selector can be provided")?;
    let place = only.map(|name| format!("/{name}")).unwrap_or_default();
    let mut found = metrics(session, format!("/apis/metrics.k8s.io/v1beta1/nodes{place}")).await?;
    if found.is_empty() {
        return Err(Failure::message("metrics not available yet"));
    }
    let call = Call::get(format!("/api/v1/nodes{place}")).with("labelSelector", session.flags.text("selector"));
    let answer = session.send(&call).await?;
    let nodes: Vec<&Value> = match answer["items"].as_array() {
        Some(items) => items.iter().collect(),
        None => vec![&answer],
    };
    sort(session, &mut found, |node| usage(&node["usage"]), |node| name(node).to_string());
    let mut text = String::new();
    if !session.flags.on("no-headers") {
        text += "NAME\tCPU(cores)\tCPU(%)\tMEMORY(bytes)\tMEMORY(%)\t";
        text += if session.flags.on("show-swap") { "SWAP(bytes)\tSWAP(%)\t\n" } else { "\n" };
    }
    for measured in &found {
        let node = nodes.iter().find(|node| name(node) == name(measured));
        text += &node_line(session, measured, node.copied());
    }
    // Nodes that nobody has measured stand at the end.
    for node in nodes.iter().filter(|node| !found.iter().any(|measured| name(measured) == name(node))) {
        text += &format!("{}\t{}\n", name(node), format!("{UNKNOWN}\t{UNKNOWN}\t").repeat(measured(session).len()));
    }
    terminal::out(&Columns::table().align(&text));
    Ok(())
}

fn node_line(session: &Session, metrics: &Value, node: Option<&Value>) -> String {
    let list = if session.flags.on("show-capacity") { "capacity" } else { "allocatable" };
    let used = usage(&metrics["usage"]);
    let mut line = format!("{}\t", name(metrics));
    for (resource, used) in measured(session).iter().zip(used) {
        let all = node.map(|node| match *resource {
            "swap" => node["status"]["nodeInfo"]["swap"]["capacity"].clone(),
            resource => node["status"][list][resource].clone(),
        });
        match all {
            // A node without swap says so.
            Some(Value::Null) if *resource == "swap" => line += &format!("{UNKNOWN}\t{UNKNOWN}\t"),
            None | Some(Value::Null) => line += &format!("{}\t", shown(resource, used)),
            Some(all) => {
                let all = amount(resource, &all);
                let share = if all == 0 { 0 } else { (used as f64 / all as f64 * 100.0) as i64 };
                line += &format!("{}\t{share}%\t", shown(resource, used));
            }
        }
    }
    line + "\n"
}

async fn pods(session: &Session) -> Result<()> {
    let only = one(session, "pod [NAME | -l label]", "only one of NAME or selector can be provided")?;
    let all = session.flags.on("all-namespaces");
    let place = only.map(|name| format!("/{name}")).unwrap_or_default();
    let path = if all {
        format!("/apis/metrics.k8s.io/v1beta1/pods{place}")
    } else {
        format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods{place}", session.namespace()?)
    };
    let mut found = metrics(session, path).await?;
    if found.is_empty() {
        why_unmeasured(session).await?;
        terminal::errln(&if all {
            "No resources found".to_string()
        } else {
            format!("No resources found in {} namespace.", session.namespace()?)
        });
        return Ok(());
    }
    let namespace = |pod: &Value| pod["metadata"]["namespace"].as_str().unwrap_or_default().to_string();
    sort(session, &mut found, pod_usage, |pod| format!("{}\t{}", namespace(pod), name(pod)));
    terminal::out(&Columns::table().align(&pods_text(session, &found)));
    Ok(())
}

/// Fails where there are pods that should have been measured.
async fn why_unmeasured(session: &Session) -> Result<()> {
    let call = Call::get(format!("/api/v1/namespaces/{}/pods", session.namespace()?))
        .with("labelSelector", session.flags.text("selector"))
        .with("fieldSelector", session.flags.text("field-selector"));
    let list = session.send(&call).await?;
    let pods = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if pods.is_empty() {
        return Ok(());
    }
    for pod in pods {
        let created = pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        let Ok(created) = created.parse::<jiff::Timestamp>() else { continue };
        let age = jiff::Timestamp::now().as_second() - created.as_second();
        if age > MEASURED_WITHIN_SECONDS {
            let (hours, minutes, seconds) = (age / 3600, age / 60 % 60, age % 60);
            let hours = if hours > 0 { format!("{hours}h") } else { String::new() };
            let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
            let age = format!("{hours}{minutes}m{seconds}s");
            return Err(Failure::message(format!(
                "Metrics not available for pod {namespace}/{}, age: {age}",
                name(pod)
            )));
        }
    }
    Err(Failure::message("metrics not available yet"))
}

fn containers(pod: &Value) -> &[Value] {
    pod["containers"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn pod_usage(pod: &Value) -> Usage {
    containers(pod).iter().map(|container| usage(&container["usage"])).fold([0; 3], added)
}

fn added(one: Usage, other: Usage) -> Usage {
    std::array::from_fn(|at| one[at] + other[at])
}

fn pods_text(session: &Session, pods: &[Value]) -> String {
    let flags = &session.flags;
    let (all, each, headers) = (flags.on("all-namespaces"), flags.on("containers"), !flags.on("no-headers"));
    let resources = measured(session);
    let cells = |used: Usage| {
        resources.iter().zip(used).map(|(resource, used)| shown(resource, used) + "\t").collect::<String>()
    };
    let mut text = String::new();
    if headers {
        text += if all { "NAMESPACE\t" } else { "" };
        text += if each { "POD\tNAME\t" } else { "NAME\t" };
        text += "CPU(cores)\tMEMORY(bytes)\t";
        text += if flags.on("show-swap") { "SWAP(bytes)\t\n" } else { "\n" };
    }
    for pod in pods {
        let mut first = String::new();
        if all {
            first += &format!("{}\t", pod["metadata"]["namespace"].as_str().unwrap_or_default());
        }
        first += &format!("{}\t", name(pod));
        if !each {
            text += &format!("{first}{}\n", cells(pod_usage(pod)));
            continue;
        }
        let mut inner: Vec<&Value> = containers(pod).iter().collect();
        let own_name = |container: &&Value| container["name"].as_str().unwrap_or_default().to_string();
        sort(session, &mut inner, |container| usage(&container["usage"]), own_name);
        for container in &inner {
            text += &format!("{first}{}\t{}\n", own_name(container), cells(usage(&container["usage"])));
        }
    }
    if flags.on("sum") {
        // As upstream, which counts the columns of the header only where there is one.
        let columns = resources.len() + 1 + if headers { usize::from(all) + usize::from(each) } else { 0 };
        let total = pods.iter().map(pod_usage).fold([0; 3], added);
        text += &format!("{}________\t________\t\n", "\t".repeat(columns - 2));
        text += &format!("{}\t{}\n", "\t".repeat(columns - 3), cells(total));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::flags::Parsed;

    fn session(command: &Command, line: &str) -> Session {
        let line: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Session::new("kubectl top".into(), Parsed::parse(command.flags, &line).unwrap())
    }

    fn pod(name: &str, cpu: &str, memory: &str) -> Value {
        let usage = json!({"cpu": cpu, "memory": memory, "swap": "3Mi"});
        json!({"metadata": {"name": name, "namespace": "team"}, "containers": [
            {"name": "b", "usage": usage}, {"name": "a", "usage": {"cpu": "1m", "memory": "1Mi"}}]})
    }

    #[test]
    fn pods_have_a_line_each() {
        let pods = [pod("web", "250m", "64Mi")];
        let text = |line: &str| pods_text(&session(&POD, line), &pods);
        assert_eq!(text(""), "NAME\tCPU(cores)\tMEMORY(bytes)\t\nweb\t251m\t65Mi\t\n");
        assert_eq!(text("--no-headers -A"), "team\tweb\t251m\t65Mi\t\n");
        let swap = "NAME\tCPU(cores)\tMEMORY(bytes)\tSWAP(bytes)\t\nweb\t251m\t65Mi\t3Mi\t\n";
        assert_eq!(text("--show-swap"), swap);
    }

    #[test]
    fn containers_are_sorted_by_name_or_by_use() {
        let pods = [pod("web", "250m", "64Mi")];
        let text = |line: &str| pods_text(&session(&POD, line), &pods);
        let by_name = "web\ta\t1m\t1Mi\t\nweb\tb\t250m\t64Mi\t\n";
        assert_eq!(text("--no-headers --containers"), by_name);
        assert!(text("--no-headers --containers --sort-by=cpu").starts_with("web\tb\t250m"));
    }

    #[test]
    fn all_together_stand_under_a_line() {
        let pods = [pod("web", "250m", "64Mi"), pod("db", "100m", "32Mi")];
        let text = pods_text(&session(&POD, "--sum"), &pods);
        assert!(text.ends_with("\t________\t________\t\n\t352m\t98Mi\t\n"), "{text:?}");
    }

    #[test]
    fn nodes_show_shares_and_swap() {
        let metrics = json!({"metadata": {"name": "n"}, "usage": {"cpu": "500m", "memory": "1Gi", "swap": "512Mi"}});
        let node = |swap: Value| {
            json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "memory": "4Gi"},
                "capacity": {"cpu": "4", "memory": "4Gi"}, "nodeInfo": {"swap": swap}}})
        };
        let line = |flags: &str, node: &Value| node_line(&session(&NODE, flags), &metrics, Some(node));
        let with_swap = node(json!({"capacity": 1073741824}));
        assert_eq!(line("", &with_swap), "n\t500m\t25%\t1024Mi\t25%\t\n");
        assert_eq!(line("--show-capacity", &with_swap), "n\t500m\t12%\t1024Mi\t25%\t\n");
        assert_eq!(line("--show-swap", &with_swap), "n\t500m\t25%\t1024Mi\t25%\t512Mi\t50%\t\n");
        let without = line("--show-swap", &node(Value::Null));
        assert_eq!(without, "n\t500m\t25%\t1024Mi\t25%\t<unknown>\t<unknown>\t\n");
    }

    #[test]
    fn a_name_goes_with_no_selector() {
        let found = |line: &str| {
            one(&session(&POD, line), "usage", "alone").map(|name| name.map(str::to_string)).map_err(|f| f.text())
        };
        assert_eq!(found("web"), Ok(Some("web".into())));
        assert_eq!(found(""), Ok(None));
        assert_eq!(found("web -l a=b"), Err("alone".into()));
        assert_eq!(found("web db"), Err("usage".into()));
        assert_eq!(found("--sort-by=age"), Err("--sort-by accepts only cpu or memory".into()));
    }
}
