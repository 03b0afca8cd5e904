//! Why something is as it is: facts read as the user, judged by rules that are pure and, where another component has the rule,
//! its own.

mod report;
mod pod;
mod scheduling;
mod service;
mod workload;
mod others;
pub(crate) mod write;
pub(crate) mod traffic;

use machinery::status::Status;
use serde_json::Value;

use crate::Dashboard;
use crate::kinds::Kind;
use crate::serve::Query;
use crate::session::SignedIn;
use crate::table::row::each;
pub(crate) use report::{Finding, Report, Severity};

pub(crate) async fn answer(dashboard: &Dashboard, signed_in: &SignedIn, query: &Query) -> Result<Value, Status> {
    let (kind, namespace, name) = (query.kind(), query.get("namespace"), query.get("name"));
    if kind.resource.is_empty() || name.is_empty() {
        return Err(Status::bad_request("name a resource and an object"));
    }
    let asker = Asker { dashboard, signed_in, namespace: namespace.to_string() };
    let object = asker.get(&kind, namespace, name).await?;
    let events = asker.events(&object).await;
    let mut report = match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "pods") => pod::explain(&asker, &object, &events).await?,
        ("", "services") => service::explain(&asker, &object).await?,
        ("networking.k8s.io", "ingresses") => service::explain_ingress(&asker, &object).await?,
        ("apps", "deployments" | "statefulsets" | "daemonsets" | "replicasets") | ("batch", "jobs") => {
            workload::explain(&asker, &kind, &object).await?
        }
        ("", "persistentvolumeclaims") => others::claim(&asker, &object).await?,
        ("", "nodes") => others::node(&object),
        _ => others::any(&kind, &object),
    };
    report.events(&events);
    Ok(report.shown())
}

/// Asks for facts as the user.
pub(crate) struct Asker<'a> {
    pub dashboard: &'a Dashboard,
    pub signed_in: &'a SignedIn,
    pub namespace: String,
}

impl Asker<'_> {
    pub async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Value, Status> {
        crate::ask::get(&self.signed_in.client, &crate::ask::path(kind, namespace, name)).await
    }

    /// The whole list, page by page.
    pub async fn list(&self, kind: &Kind, namespace: &str) -> Result<Vec<Value>, Status> {
        list(&self.signed_in.client, kind, namespace, "").await
    }

    /// Those with such fields, everywhere; the server leaves out the rest.
    pub async fn list_with(&self, kind: &Kind, fields: &str) -> Result<Vec<Value>, Status> {
        list(&self.signed_in.client, kind, "", fields).await
    }

    /// The same where what may not be read changes nothing but how much can be said.
    pub async fn list_if_allowed(&self, kind: &Kind, namespace: &str) -> Vec<Value> {
        self.list(kind, namespace).await.unwrap_or_default()
    }

    /// Newest last.
    async fn events(&self, object: &Value) -> Vec<Value> {
        let Some(uid) = object["metadata"]["uid"].as_str() else { return Vec::new() };
        let selector = form_urlencoded::Serializer::new(String::new())
            .append_pair("fieldSelector", &format!("involvedObject.uid={uid}"))
            .finish();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let path = format!("{}?{selector}", crate::ask::path(&Kind::new("", "v1", "events"), namespace, ""));
        let list = crate::ask::get(&self.signed_in.client, &path).await.unwrap_or_default();
        let mut events: Vec<Value> = each(&list["items"]).cloned().collect();
        events.sort_by(|one, other| time(one).cmp(time(other)));
        events
    }
}

const PAGE: usize = 500;
/// No explanation reads more objects of a kind.
const OBJECTS_MAX: usize = 20_000;

async fn list(client: &kube::Client, kind: &Kind, namespace: &str, fields: &str) -> Result<Vec<Value>, Status> {
    let path = crate::ask::path(kind, namespace, "");
    let (mut all, mut next) = (Vec::new(), String::new());
    loop {
        let query = crate::ask::query(&[("limit", &PAGE.to_string()), ("fieldSelector", fields), ("continue", &next)]);
        let mut page = crate::ask::get(client, &format!("{path}?{query}")).await?;
        if let Value::Array(items) = page["items"].take() {
            all.extend(items);
        }
        next = page["metadata"]["continue"].as_str().unwrap_or_default().to_string();
        if next.is_empty() || all.len() >= OBJECTS_MAX {
            return Ok(all);
        }
    }
}

fn time(event: &Value) -> &str {
    let places = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    places.into_iter().find_map(Value::as_str).unwrap_or_default()
}

pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    text(&object["metadata"], "name")
}
