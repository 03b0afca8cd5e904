//! `kubectl describe`: one file per kind or family of kinds, with upstream's layout. Each makes lines with tabs between
//! name and value; they are aligned together at the end, so that neighbours line up as upstream's do.

mod pod;
mod container;
mod volume;
mod source;
pub(crate) mod template;
mod workload;
mod batch;
mod node;
mod service;
mod network;
mod config;
mod certificate;
mod storage;
mod policy;
mod generic;

use serde_json::{Map, Value};

use crate::commands::events;
use crate::failure::Result;
use crate::output::columns::Columns;
use crate::resource::Info;
use crate::resource::select::Query;
use crate::session::Session;

/// What a describer may ask for beside the object itself.
pub(crate) struct Context<'a> {
    pub session: &'a Session,
}

/// The whole text about one object.
pub(crate) async fn describe(session: &Session, info: &Info, events: bool) -> Result<String> {
    let cx = Context { session };
    let object = &info.object;
    let mut text = match (info.mapping.group.as_str(), info.mapping.plural.as_str()) {
        ("", "pods") => pod::pod(object),
        ("", "nodes") => node::node(&cx, object).await?,
        ("", "services") => service::service(&cx, object).await?,
        ("", "configmaps") => config::config_map(object),
        ("", "secrets") => config::secret(object),
        ("", "namespaces") => policy::namespace(&cx, object).await?,
        ("", "serviceaccounts") => config::service_account(object),
        ("", "persistentvolumeclaims") => storage::claim(&cx, object).await?,
        ("", "persistentvolumes") => storage::volume(object),
        ("", "resourcequotas") => policy::quota(object),
        ("", "limitranges") => policy::limit_range(object),
        ("apps", "deployments") => workload::deployment(&cx, object).await?,
        ("", "replicationcontrollers") => workload::replica_set(&cx, object).await?,
        ("", "endpoints") => service::endpoints_object(object),
        ("certificates.k8s.io", "certificatesigningrequests") => certificate::signing_request(object)?,
        ("apps", "replicasets") => workload::replica_set(&cx, object).await?,
        ("apps", "statefulsets") => workload::stateful_set(&cx, object).await?,
        ("apps", "daemonsets") => workload::daemon_set(&cx, object).await?,
        ("batch", "jobs") => batch::job(object),
        ("batch", "cronjobs") => batch::cron_job(object),
        ("networking.k8s.io", "ingresses") => service::ingress(&cx, object).await?,
        ("networking.k8s.io", "ingressclasses") => network::ingress_class(object),
        ("networking.k8s.io", "servicecidrs") => network::service_cidr(object),
        ("networking.k8s.io", "ipaddresses") => network::ip_address(object),
        ("discovery.k8s.io", "endpointslices") => network::endpoint_slice(object),
        ("networking.k8s.io", "networkpolicies") => policy::network_policy(object),
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => policy::role(object),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => policy::binding(object),
        ("storage.k8s.io", "storageclasses") => storage::class(object),
        ("storage.k8s.io", "csinodes") => storage::csi_node(object),
        ("storage.k8s.io", "volumeattributesclasses") => storage::attributes_class(object),
        ("autoscaling", "horizontalpodautoscalers") => workload::autoscaler(object),
        ("policy", "poddisruptionbudgets") => policy::disruption_budget(object),
        ("scheduling.k8s.io", "priorityclasses") => policy::priority_class(object),
        _ => generic::generic(object),
    };
    // Rules of access have no life of their own that events could tell of.
    let quiet = info.mapping.group == "rbac.authorization.k8s.io"
        || (info.mapping.group.is_empty()
            && ["namespaces", "secrets", "resourcequotas", "limitranges"].contains(&info.mapping.plural.as_str()))
        || info.mapping.plural == "networkpolicies";
    if events && !quiet {
        text += &events_text(&cx, object).await?;
    }
    // What an object says must not reach the terminal as a command.
    let text = text.replace('\x1b', "^[").replace('\r', "\\r");
    Ok(Columns::described().align(&text))
}

pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn number(object: &Value, path: &str) -> i64 {
    object.pointer(path).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn map(object: &Value, path: &str) -> Map<String, Value> {
    object.pointer(path).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// A value that is a number or a text.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

pub(super) fn or<'a>(text: &'a str, instead: &'a str) -> &'a str {
    if text.is_empty() { instead } else { text }
}

/// `Sun, 15 Nov 2026 08:15:46 +0000`, in the time zone of this machine.
pub(super) fn time(text: &str) -> String {
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => time.to_zoned(jiff::tz::TimeZone::system()).strftime("%a, %d %b %Y %H:%M:%S %z").to_string(),
        Err(_) => "<unset>".into(),
    }
}

pub(super) fn since(text: &str) -> String {
    machinery::kind::since(text, jiff::Timestamp::now())
}

/// Labels and the like, one pair a line.
pub(super) fn pairs(title: &str, indent: &str, pairs: &Map<String, Value>) -> String {
    if pairs.is_empty() {
        return format!("{indent}{title}:\t<none>\n");
    }
    let mut out = String::new();
    for (at, (key, value)) in pairs.iter().enumerate() {
        let first = if at == 0 { format!("{indent}{title}:") } else { String::new() };
        out += &format!("{first}\t{key}={}\n", plain(value));
    }
    out
}

const ANNOTATION_MAX: usize = 140;

pub(super) fn annotations(title: &str, indent: &str, pairs: &Map<String, Value>) -> String {
    let hidden = crate::commands::change::LAST_APPLIED;
    let shown: Vec<(&String, &Value)> = pairs.iter().filter(|(key, _)| *key != hidden).collect();
    if shown.is_empty() {
        return format!("{indent}{title}:\t<none>\n");
    }
    let mut out = String::new();
    for (at, (key, value)) in shown.iter().enumerate() {
        let first = if at == 0 { format!("{indent}{title}:") } else { String::new() };
        let value = plain(value);
        let value = value.strip_suffix('\n').unwrap_or(&value);
        if value.len() + key.len() + 2 > ANNOTATION_MAX || value.contains('\n') {
            out += &format!("{first}\t{key}:\n");
            for line in value.split('\n') {
                let short: String = line.chars().take(ANNOTATION_MAX - 2).collect();
                let dots = if short.len() < line.len() { "..." } else { "" };
                out += &format!("\t  {short}{dots}\n");
            }
        } else {
            out += &format!("{first}\t{key}: {value}\n");
        }
    }
    out
}

/// Name, namespace where there is one, labels and annotations: how nearly all begin.
pub(super) fn head(object: &Value) -> String {
    let mut out = format!("Name:\t{}\n", text(object, "/metadata/name"));
    let namespace = text(object, "/metadata/namespace");
    if !namespace.is_empty() {
        out += &format!("Namespace:\t{namespace}\n");
    }
    out
}

pub(super) fn tags(object: &Value) -> String {
    pairs("Labels", "", &map(object, "/metadata/labels"))
        + &annotations("Annotations", "", &map(object, "/metadata/annotations"))
}

/// A row for each of these texts that the object has: titles, and where they stand.
pub(super) fn given(object: &Value, rows: &[(&str, &str)]) -> String {
    let rows = rows.iter().map(|(title, path)| (title, text(object, path))).filter(|(_, text)| !text.is_empty());
    rows.map(|(title, text)| format!("{title}:\t{text}\n")).collect()
}

/// `ReplicaSet/web-123`, the controller of an object.
pub(super) fn controller(object: &Value) -> Option<String> {
    let owner = items(object, "/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true)?;
    Some(format!("{}/{}", text(owner, "/kind"), text(owner, "/name")))
}

/// `a=b,c=d`, as upstream writes labels in one line.
pub(super) fn in_line(pairs: &Map<String, Value>) -> String {
    let mut all: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect();
    all.sort();
    if all.is_empty() { "<none>".into() } else { all.join(",") }
}

/// A list as Go prints one: `[a b]`.
pub(super) fn bracketed(list: &[Value]) -> String {
    format!("[{}]", list.iter().map(plain).collect::<Vec<_>>().join(" "))
}

/// Conditions with the time of their last change, where upstream tells of it.
pub(super) fn timed_conditions(object: &Value) -> String {
    let mut out = String::from("Conditions:\n  Type\tStatus\tLastTransitionTime\tReason\tMessage\n");
    out += "  ----\t------\t------------------\t------\t-------\n";
    for condition in items(object, "/status/conditions") {
        out += &format!(
            "  {}\t{}\t{}\t{}\t{}\n",
            text(condition, "/type"),
            text(condition, "/status"),
            time(text(condition, "/lastTransitionTime")),
            text(condition, "/reason"),
            text(condition, "/message")
        );
    }
    out
}

/// A selector of labels as the text that `-l` would take.
pub(super) fn selector(value: &Value) -> String {
    let labels =
        value.as_object().is_some_and(|map| !map.contains_key("matchLabels") && !map.contains_key("matchExpressions"));
    let shown = if labels {
        let pairs = value.as_object().into_iter().flatten();
        pairs.map(|(key, value)| format!("{key}={}", plain(value))).collect::<Vec<_>>().join(",")
    } else {
        crate::commands::selector_text(value)
    };
    if shown.is_empty() { "<none>".into() } else { shown }
}

/// The events about an object whose `involvedObject.uid` is that one.
async fn events_of(cx: &Context<'_>, object: &Value, uid: &str) -> Result<Option<Vec<Value>>> {
    let namespace = text(object, "/metadata/namespace");
    // Events about a pod may come from who knows only its name and its uid.
    let kind = if text(object, "/kind") == "Pod" { "" } else { text(object, "/kind") };
    let mut fields = format!("involvedObject.name={}", text(object, "/metadata/name"));
    fields += &format!(",involvedObject.namespace={namespace}");
    for (key, value) in [("kind", kind), ("uid", uid)] {
        if !value.is_empty() {
            fields += &format!(",involvedObject.{key}={value}");
        }
    }
    let mapping = cx.session.mapping("events.v1.").await?;
    let query = Query { fields, chunk: 500, ..Query::default() };
    // Whoever may see the object need not see its events.
    Ok(cx.session.list(&mapping, namespace, &query).await.ok())
}

async fn events_text(cx: &Context<'_>, object: &Value) -> Result<String> {
    let mirrored = text(object, "/metadata/annotations/kubernetes.io~1config.mirror");
    let uid = or(mirrored, text(object, "/metadata/uid"));
    let Some(mut found) = events_of(cx, object, uid).await? else { return Ok(String::new()) };
    if object["kind"] == "Node" {
        // The kubelet's events about its node carry the node's name there.
        let of_kubelet = events_of(cx, object, text(object, "/metadata/name")).await?;
        found.extend(of_kubelet.unwrap_or_default());
    }
    if found.is_empty() {
        return Ok("Events:\t<none>\n".into());
    }
    found.sort_by_key(events::last_seen);
    let mut out = String::from("Events:\n  Type\tReason\tAge\tFrom\tMessage\n  ----\t------\t----\t----\t-------\n");
    for event in &found {
        let source = or(text(event, "/source/component"), text(event, "/reportingComponent"));
        let place = text(event, "/involvedObject/fieldPath");
        let message = text(event, "/message").trim();
        let message = if place.is_empty() { message.to_string() } else { format!("{place}: {message}") };
        out += &format!(
            "  {}\t{}\t{}\t{source}\t{message}\n",
            text(event, "/type"),
            text(event, "/reason"),
            events::interval(event)
        );
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
