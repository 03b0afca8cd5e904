//! Creates what every cluster has from its first start, and repairs it at every later one.

use std::sync::Arc;

use futures::stream::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::{Value, json};

use super::{objects, trusted};
use crate::app::App;
use crate::authn::{FrontProxy, token_use};
use crate::call::Call;
use crate::pki::Credentials;
use crate::write::{self, Owner, Part, Update};

/// Many writes share one commit of the store.
const PARALLEL: usize = 64;
const MANAGER: &str = "kube-apiserver";
/// How upstream's managedFields name who makes flow schemas and priority levels.
const FLOW_MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

pub async fn create(app: &Arc<App>, credentials: &Credentials, proxy: &FrontProxy) -> Result<(), Status> {
    let (namespaces, rest): (Vec<Value>, Vec<Value>) =
        objects(&app.settings.gates).into_iter().partition(|object| object["kind"] == "Namespace");
    ensure_all(app, namespaces).await?;
    ensure_all(app, rest).await?;
    ensure_all(app, vec![service_cidr(app), trusted::object(credentials, proxy)]).await?;
    say_ready(app).await?;
    ensure_all(app, vec![service(app)]).await?;
    ensure_all(app, token_tracking(app).into_iter().collect()).await
}

/// Tells aggregated API servers and kubelets of CAs that changed.
pub async fn publish_trusted(app: &Arc<App>, credentials: &Credentials, proxy: &FrontProxy) -> Result<(), Status> {
    ensure(app, trusted::object(credentials, proxy)).await
}

const TOKEN_TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

/// Since when the use of tokens of Secrets is noted; said once, and again where it cannot be read.
fn token_tracking(app: &App) -> Option<Value> {
    let said = app.views.one("configmaps", "kube-system", TOKEN_TRACKING);
    let since = said.as_ref().and_then(|map| map["data"]["since"].as_str());
    if since.is_some_and(|day| day.parse::<jiff::civil::Date>().is_ok()) {
        return None;
    }
    Some(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": TOKEN_TRACKING, "namespace": "kube-system"},
        "data": {"since": token_use::day(app.clock.now())},
    }))
}

async fn ensure_all(app: &Arc<App>, objects: Vec<Value>) -> Result<(), Status> {
    let work = futures::stream::iter(objects).map(|object| ensure(app, object));
    work.buffer_unordered(PARALLEL).try_collect::<Vec<()>>().await.map(|_| ())
}

/// Creates an object, or brings the part of it that is ours up to date.
pub async fn ensure(app: &Arc<App>, wanted: Value) -> Result<(), Status> {
    let call = Call::internal(app, &wanted)?;
    let resource = call.resource.clone();
    let (namespace, name) = (wanted.namespace().to_string(), wanted.name().to_string());
    let owner = match wanted["apiVersion"].as_str() {
        Some(super::FLOWCONTROL) => Owner::Update(FLOW_MANAGER.into()),
        _ => Owner::Update(MANAGER.into()),
    };
    let key = resource.key(&namespace, &name)?;
    if resource.state()?.get(&key).is_none() {
        match write::create_own(&call, wanted.clone(), &owner).await {
            // Another server was faster; its object is as good as ours.
            Err(status) if status.reason == "AlreadyExists" => {}
            outcome => return outcome.map(|_| ()),
        }
    }
    let now = app.clock.now();
    let update = |current: &Value| Ok(repaired(current, &wanted, now));
    write::update(
        Update {
            call: &call,
            resource: &resource,
            namespace: &namespace,
            name: &name,
            part: Part::Main,
            owner: &owner,
            dry_run: false,
        },
        update,
    )
    .await
    .map(|_| ())
}

/// Roles keep what operators added and get back what they miss; addresses of this server are put in place.
fn repaired(current: &Value, wanted: &Value, now: Timestamp) -> Value {
    let mut next = current.clone();
    match wanted["kind"].as_str().unwrap_or("") {
        "ClusterRole" | "Role" if current.annotation(AUTOUPDATE) == Some("true") => {
            add_missing(&mut next, wanted, "rules")
        }
        "ClusterRoleBinding" | "RoleBinding" if current.annotation(AUTOUPDATE) == Some("true") => {
            add_missing(&mut next, wanted, "subjects");
        }
        "Endpoints" => next["subsets"] = wanted["subsets"].clone(),
        "EndpointSlice" => {
            next["endpoints"] = wanted["endpoints"].clone();
            next["ports"] = wanted["ports"].clone();
        }
        "FlowSchema" | "PriorityLevelConfiguration" => return crate::flowcontrol::maintained(current, wanted),
        "ConfigMap" if wanted.name() == trusted::NAME => {
            for (field, text) in wanted["data"].as_object().into_iter().flatten() {
                let known = current["data"][field].as_str().unwrap_or_default();
                next["data"][field] = trusted::combined(field, known, text.as_str().unwrap_or_default(), now).into();
            }
        }
        // Others may have added to it, as signatures are to `cluster-info`.
        "ConfigMap" => {
            for (name, text) in wanted["data"].as_object().into_iter().flatten() {
                next["data"][name] = text.clone();
            }
        }
        _ => {}
    }
    next
}

fn add_missing(next: &mut Value, wanted: &Value, field: &str) {
    let Some(wanted) = wanted.get(field).and_then(Value::as_array) else { return };
    let mut list = next.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let missing: Vec<Value> = wanted.iter().filter(|entry| !list.contains(entry)).cloned().collect();
    if !missing.is_empty() {
        list.extend(missing);
        next[field] = list.into();
    }
}

fn service(app: &App) -> Value {
    let address = crate::allocate::first_address(&app.settings.service_cidr);
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": address.to_string(), "clusterIPs": [address.to_string()], "type": "ClusterIP",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": app.settings.https_port}],
            "sessionAffinity": "None", "ipFamilyPolicy": "SingleStack", "ipFamilies": [family(address)],
        },
    })
}

pub(super) fn family(address: std::net::IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn service_cidr(app: &App) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [app.settings.service_cidr.to_string()]},
    })
}

/// The first range of Services is ready before anybody could ask; of others their controller says so.
async fn say_ready(app: &Arc<App>) -> Result<(), Status> {
    let wanted = service_cidr(app);
    let call = Call::internal(app, &wanted)?;
    let (resource, owner) = (call.resource.clone(), Owner::Update(MANAGER.into()));
    let update = Update {
        call: &call,
        resource: &resource,
        namespace: "",
        name: wanted.name(),
        part: Part::Status,
        owner: &owner,
        dry_run: false,
    };
    let now = app.clock.stamp();
    let change = |current: &Value| {
        let mut next = current.clone();
        let mut said = current["status"]["conditions"].as_array().into_iter().flatten();
        if !said.any(|condition| condition["type"] == "Ready") {
            next["status"]["conditions"] = json!([{
                "type": "Ready", "status": "True", "lastTransitionTime": now, "reason": "",
                "message": "Kubernetes default Service CIDR is ready",
            }]);
        }
        Ok(next)
    };
    write::update(update, change).await.map(|_| ())
}
