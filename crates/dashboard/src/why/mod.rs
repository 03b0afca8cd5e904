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

use std::collections::BTreeSet;

use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::Value;

use crate::Dashboard;
use crate::event::time;
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
    let asker = Asker::new(dashboard, signed_in, namespace);
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
    let unread = asker.unread();
    if let Some(sentence) = &unread {
        // First of all: whatever is said below is said without them.
        report.findings.insert(0, Finding::new("Not everything was read", sentence));
    }
    let mut shown = report.shown();
    shown["unread"] = unread.into();
    Ok(shown)
}

/// Asks for facts as the user.
pub(crate) struct Asker<'a> {
    pub dashboard: &'a Dashboard,
    pub signed_in: &'a SignedIn,
    pub namespace: String,
    /// Kinds of which there were more objects than an explanation reads.
    cut: Mutex<BTreeSet<String>>,
}

impl<'a> Asker<'a> {
    pub fn new(dashboard: &'a Dashboard, signed_in: &'a SignedIn, namespace: &str) -> Asker<'a> {
        Asker { dashboard, signed_in, namespace: namespace.to_string(), cut: Mutex::default() }
    }

    /// What was left out of the answer, in words.
    pub fn unread(&self) -> Option<String> {
        unread(&self.cut.lock())
    }

    async fn read(&self, kind: &Kind, namespace: &str, fields: &str) -> Result<Vec<Value>, Status> {
        let (all, whole) = list(&self.signed_in.client, kind, namespace, fields, OBJECTS_MAX).await?;
        if !whole {
            self.cut.lock().insert(kind.resource.clone());
        }
        Ok(all)
    }

    pub async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Value, Status> {
        crate::ask::get(&self.signed_in.client, &crate::ask::path(kind, namespace, name)).await
    }

    /// The whole list, page by page.
    pub async fn list(&self, kind: &Kind, namespace: &str) -> Result<Vec<Value>, Status> {
        self.read(kind, namespace, "").await
    }

    /// Those with such fields, everywhere; the server leaves out the rest.
    pub(crate) async fn list_with(&self, kind: &Kind, fields: &str) -> Result<Vec<Value>, Status> {
        self.read(kind, "", fields).await
    }

    /// The same where what may not be read changes nothing but how much can be said.
    pub(crate) async fn list_if_allowed(&self, kind: &Kind, namespace: &str) -> Vec<Value> {
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

fn unread(cut: &BTreeSet<String>) -> Option<String> {
    let kinds: Vec<&str> = cut.iter().map(String::as_str).collect();
    (!kinds.is_empty()).then(|| {
        format!(
            "of {} only the first {OBJECTS_MAX} were read; the others may change what is said here",
            kinds.join(" and of ")
        )
    })
}

/// Up to that many, and whether these are all.
async fn list(
    client: &kube::Client,
    kind: &Kind,
    namespace: &str,
    fields: &str,
    most: usize,
) -> Result<(Vec<Value>, bool), Status> {
    let path = crate::ask::path(kind, namespace, "");
    let (mut all, mut next) = (Vec::new(), String::new());
    loop {
        let query = crate::ask::query(&[("limit", &PAGE.to_string()), ("fieldSelector", fields), ("continue", &next)]);
        let mut page = crate::ask::get(client, &format!("{path}?{query}")).await?;
        if let Value::Array(items) = page["items"].take() {
            all.extend(items);
        }
        next = page["metadata"]["continue"].as_str().unwrap_or_default().to_string();
        if next.is_empty() || all.len() >= most {
            return Ok((all, next.is_empty()));
        }
    }
}

pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    text(&object["metadata"], "name")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use serde_json::json;

    use super::*;

    /// Three pages of two pods each.
    fn api() -> kube::Client {
        let answer = async |request: Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default();
            let page = (1..3).find(|page| query.contains(&format!("continue=page{page}"))).unwrap_or(0);
            let next = if page < 2 { format!("page{}", page + 1) } else { String::new() };
            let pod = |number: usize| json!({"metadata": {"name": format!("pod-{number}")}});
            let list = json!({"metadata": {"continue": next}, "items": [pod(2 * page), pod(2 * page + 1)]});
            Ok::<_, Infallible>(Response::new(kube::client::Body::from(list.to_string().into_bytes())))
        };
        kube::Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test]
    async fn what_is_not_read_is_told() {
        let read = async |most| {
            let (all, whole) = list(&api(), &Kind::new("", "v1", "pods"), "", "", most).await.unwrap();
            (all.len(), whole)
        };
        assert_eq!(read(100).await, (6, true));
        assert_eq!(read(6).await, (6, true));
        assert_eq!(read(3).await, (4, false));
        assert_eq!(unread(&BTreeSet::new()), None);
        let cut = BTreeSet::from(["nodes".to_string(), "pods".to_string()]);
        let said = "of nodes and of pods only the first 20000 were read; the others may change what is said here";
        assert_eq!(unread(&cut).as_deref(), Some(said));
    }
}
