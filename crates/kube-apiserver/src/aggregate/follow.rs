//! The one task that follows APIServices: it makes those of what is served here, asks the servers behind the others
//! whether they are there, and says so in their status. Every server of a cluster does the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use futures::StreamExt;
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;
use store::cache::{self, Change, WatchScope, Watcher};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ask::{AskError, ask};
use super::availability::{self, Availability, Reference};
use super::local::{self, Next};
use super::{GROUP, Handler, PLURAL, Remote, Route, Way, connect, describe};
use crate::app::App;
use crate::call::Call;
use crate::conversion::decode_stored;
use crate::verbs::delete;
use crate::write::{self, Owner, Part, Update};

/// How often a server that answers is asked again, as upstream.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// The first pause after a server did not answer; it doubles up to `AGAIN_AFTER`.
const RETRY_MIN: Duration = Duration::from_millis(500);
/// How long a server gets to say what it serves.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
const CHECKS_MAX: usize = 16;
const BATCH_MAX: usize = 512;

/// Follows in a task of its own.
pub fn start(app: &Arc<App>, shutdown: CancellationToken) {
    let table = app.table.load();
    let state = |group: &str, plural: &str| table.get(group, "v1", plural).and_then(|resource| resource.state.clone());
    let found = (state(GROUP, PLURAL), state("", "services"), state("discovery.k8s.io", "endpointslices"));
    let (Some(objects), Some(services), Some(slices)) = found else { return };
    let follower = Follower { app: app.clone(), objects, services, slices, known: BTreeMap::new() };
    tasks::spawn(async move {
        tokio::select! {
            () = follower.follow() => {}
            () = shutdown.cancelled() => {}
        }
    });
}

struct Follower {
    app: Arc<App>,
    objects: Arc<cache::Resource>,
    services: Arc<cache::Resource>,
    slices: Arc<cache::Resource>,
    /// What was found of each APIService that is not served from the table.
    known: BTreeMap<String, Known>,
}

struct Known {
    spec: Value,
    reference: Option<Reference>,
    route: Arc<Route>,
    found: Availability,
    failures: u32,
    next: Option<Instant>,
}

/// Who is asked again though nothing is known to have changed about it.
enum Due {
    /// All, and objects that an earlier run of this server made are brought up to date.
    First,
    All,
    These(BTreeSet<String>),
}

impl Due {
    fn has(&self, name: &str) -> bool {
        match self {
            Due::First | Due::All => true,
            Due::These(names) => names.contains(name),
        }
    }
}

/// What is to be asked.
struct Check {
    name: String,
    spec: Value,
    reference: Option<Reference>,
    handler: Option<Handler>,
    places: Result<Vec<(String, u16)>, Availability>,
}

impl Follower {
    async fn follow(mut self) {
        let watch = |state: &Arc<cache::Resource>| state.list_and_watch(WatchScope::default()).1;
        let mut objects = watch(&self.objects);
        let mut services = watch(&self.services);
        let mut slices = watch(&self.slices);
        let (mut of_objects, mut of_services, mut of_slices) = (Vec::new(), Vec::new(), Vec::new());
        let mut due = Due::First;
        loop {
            self.settle(&due).await;
            due = Due::These(BTreeSet::new());
            // Most changes of Services and EndpointSlices concern nobody here.
            loop {
                let next = self.known.values().filter_map(|known| known.next).min();
                let timer = async {
                    match next {
                        Some(at) => tokio::time::sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                [&mut of_objects, &mut of_services, &mut of_slices].into_iter().for_each(Vec::clear);
                tokio::select! {
                    alive = objects.next_batch(BATCH_MAX, &mut of_objects) => {
                        renew(&mut objects, &self.objects, alive);
                        break;
                    }
                    alive = services.next_batch(BATCH_MAX, &mut of_services) => {
                        renew(&mut services, &self.services, alive);
                        due = if alive { Due::These(self.concerned(&of_services, false)) } else { Due::All };
                    }
                    alive = slices.next_batch(BATCH_MAX, &mut of_slices) => {
                        renew(&mut slices, &self.slices, alive);
                        due = if alive { Due::These(self.concerned(&of_slices, true)) } else { Due::All };
                    }
                    () = self.app.aggregator.changed.notified() => {
                        let suspects = std::mem::take(&mut *self.app.aggregator.suspects.lock());
                        due = Due::These(suspects.into_iter().collect());
                        break;
                    }
                    () = timer => {
                        let now = Instant::now();
                        let late = self.known.iter().filter(|(_, known)| known.next.is_some_and(|at| at <= now));
                        due = Due::These(late.map(|(name, _)| name.clone()).collect());
                        break;
                    }
                }
                if !matches!(&due, Due::These(names) if names.is_empty()) {
                    break;
                }
            }
        }
    }

    /// The APIServices whose Service changed, or one of its EndpointSlices.
    fn concerned(&self, changes: &[Arc<Change>], slices: bool) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for (name, known) in &self.known {
            let Some(reference) = &known.reference else { continue };
            let touches = |change: &Arc<Change>| {
                let mut parts = change.item.key.rsplit('/');
                let (last, namespace) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
                let service = if slices { service_name(&change.item) } else { last };
                namespace == reference.namespace && service == reference.name
            };
            if changes.iter().any(touches) {
                names.insert(name.clone());
            }
        }
        names
    }

    /// Brings objects, routes and status in line.
    async fn settle(&mut self, due: &Due) {
        let current = self.current();
        self.manage(&current, matches!(due, Due::First)).await;
        let identity = self.app.aggregator.identity.load_full();
        let handlers = self.app.aggregator.handlers.lock().clone();
        let mut checks = Vec::new();
        let mut gone: BTreeSet<String> = self.known.keys().cloned().collect();
        for (name, object) in &current {
            let reference = Reference::of(object);
            let handler = handlers.get(name).cloned().flatten().filter(|_| reference.is_none());
            if (reference.is_none() && handler.is_none()) || object["spec"]["group"].as_str().unwrap_or("").is_empty() {
                continue;
            }
            gone.remove(name);
            let known = self.known.get(name).filter(|known| known.spec == object["spec"]);
            if known.is_some() && !due.has(name) {
                continue;
            }
            let places = match &reference {
                Some(reference) => self.places(reference),
                None => Ok(Vec::new()),
            };
            checks.push(Check { name: name.clone(), spec: object["spec"].clone(), reference, handler, places });
        }
        let mut changed = !gone.is_empty();
        gone.iter().for_each(|name| {
            self.known.remove(name);
            self.app.aggregator.forget_failures(name);
        });
        let asked = futures::stream::iter(checks).map(|check| examine(&identity, check));
        let mut asked = asked.buffer_unordered(CHECKS_MAX);
        let mut checked = BTreeSet::new();
        while let Some((name, mut known)) = asked.next().await {
            checked.insert(name.clone());
            if !known.found.available {
                let before = self.known.get(&name);
                if before.is_none_or(|before| before.found.available) {
                    self.app.aggregator.count_failure(&name, known.found.reason);
                }
                known.failures = before.map_or(0, |before| before.failures).saturating_add(1);
            }
            known.next = known.reference.as_ref().map(|_| Instant::now() + pause(known.failures));
            self.known.insert(name, known);
            changed = true;
        }
        drop(asked);
        if changed {
            let routes = self.known.values().map(|known| known.route.clone()).collect();
            self.app.aggregator.routes.store(Arc::new(routes));
        }
        let now = self.app.clock.stamp();
        for (name, object) in &current {
            let found = match self.known.get(name) {
                // It is said when it is found, and not whenever another server has found something else.
                Some(known) if known.reference.is_some() && checked.contains(name) => known.found.clone(),
                _ if Reference::of(object).is_none() => Availability::local(),
                _ => continue,
            };
            if availability::status(object, &found, &now).is_some()
                && let Err(error) = self.write_status(name, &found).await
            {
                // It is said again at the next change or check.
                tracing::warn!(apiservice = name, error = error.message, "cannot update status of APIService");
            }
        }
    }

    fn current(&self) -> BTreeMap<String, Value> {
        let items = self.objects.snapshot().items;
        let decoded = items.values().filter_map(|item| decode_stored(&item.value, item.revision.0).ok());
        decoded.map(|object| (object.name().to_string(), object)).collect()
    }

    /// Makes, changes and deletes the objects of what is served here.
    async fn manage(&self, current: &BTreeMap<String, Value>, first: bool) {
        let mut wanted = local::wanted(&self.app.table.load());
        for name in self.app.aggregator.handlers.lock().keys() {
            if let Some((version, group)) = name.split_once('.') {
                let object = local::object(name, group, version, HANDLER_PRIORITY, local::ON_START);
                wanted.insert(name.clone(), object);
            }
        }
        let names: BTreeSet<&String> = wanted.keys().chain(current.keys()).collect();
        let next = |name: &String| local::next(current.get(name), wanted.get(name), first);
        let due = names.into_iter().map(|name| (name.clone(), next(name), wanted.get(name).cloned()));
        let due: Vec<_> = due.filter(|(_, next, _)| *next != Next::Nothing).collect();
        let writes = futures::stream::iter(due).map(|(name, next, wanted)| async move {
            let outcome = self.apply(&name, next, wanted.as_ref()).await;
            (name, outcome)
        });
        let mut writes = writes.buffer_unordered(CHECKS_MAX);
        while let Some((name, outcome)) = writes.next().await {
            if let Err(status) = outcome {
                tracing::warn!(apiservice = name, error = status.message, "cannot write local APIService");
            }
        }
    }

    async fn apply(&self, name: &str, next: Next, wanted: Option<&Value>) -> Result<(), Status> {
        let call = call(&self.app)?;
        let owner = Owner::Update(MANAGER.into());
        let outcome = match (next, wanted) {
            (Next::Create, Some(wanted)) => {
                let created = write::create_own(&call, wanted.clone(), &owner).await;
                created.map(|_| ())
            }
            (Next::Update, Some(wanted)) => {
                let update = self.update(&call, name, Part::Main, &owner);
                let written = write::update(update, |current| {
                    let mut next = current.clone();
                    next["spec"] = wanted["spec"].clone();
                    next["metadata"]["labels"][local::MANAGED] = wanted["metadata"]["labels"][local::MANAGED].clone();
                    Ok(next)
                });
                written.await.map(|_| ())
            }
            (Next::Delete, _) => delete::one(&call, "", name, &delete::Options::default()).await.map(|_| ()),
            _ => return Ok(()),
        };
        match outcome {
            // Another server was faster.
            Err(status) if matches!(status.reason, "AlreadyExists" | "NotFound") => Ok(()),
            outcome => outcome,
        }
    }

    async fn write_status(&self, name: &str, found: &Availability) -> Result<(), Status> {
        let call = call(&self.app)?;
        let owner = Owner::Update(MANAGER.into());
        let now = self.app.clock.stamp();
        let written = write::update(self.update(&call, name, Part::Status, &owner), |current| {
            let mut next = current.clone();
            if let Some(status) = availability::status(current, found, &now) {
                next["status"] = status;
            }
            Ok(next)
        });
        match written.await {
            Err(status) if status.code == 404 => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    fn update<'a>(&self, call: &'a Call, name: &'a str, part: Part, owner: &'a Owner) -> Update<'a> {
        Update { call, resource: &call.resource, namespace: "", name, part, owner, dry_run: false }
    }

    fn places(&self, reference: &Reference) -> Result<Vec<(String, u16)>, Availability> {
        places_of(&self.services, &self.slices, reference)
    }
}

/// Where a Service can be reached, from what the cache holds now.
pub(super) fn places_of(
    services: &cache::Resource,
    slices: &cache::Resource,
    reference: &Reference,
) -> Result<Vec<(String, u16)>, Availability> {
    let decode = |item: &Arc<cache::Item>| decode_stored(&item.value, item.revision.0).ok();
    let Reference { namespace, name, .. } = reference;
    let service = services.get(&format!("/registry/services/specs/{namespace}/{name}"));
    let prefix = format!("/registry/endpointslices/{namespace}/");
    let items = slices.snapshot().items;
    let from: Arc<str> = prefix.as_str().into();
    let here = items.range(from..).take_while(|(key, _)| key.starts_with(&prefix));
    let slices: Vec<Value> =
        here.filter(|(_, item)| service_name(item) == name).filter_map(|(_, item)| decode(item)).collect();
    availability::places(reference, service.as_ref().and_then(decode).as_ref(), &slices)
}

const MANAGER: &str = "kube-apiserver";
/// As upstream's metrics-server asks for.
const HANDLER_PRIORITY: (i64, i64) = (100, 100);

fn call(app: &Arc<App>) -> Result<Call, Status> {
    Call::internal(app, &serde_json::json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}))
}

fn renew(watcher: &mut Watcher, state: &Arc<cache::Resource>, alive: bool) {
    if !alive {
        *watcher = state.list_and_watch(WatchScope::default()).1;
    }
}

fn service_name(slice: &cache::Item) -> &str {
    let mut labels = slice.description.labels.iter();
    labels.find(|(key, _)| key.as_ref() == "kubernetes.io/service-name").map_or("", |(_, value)| value.as_ref())
}

fn pause(failures: u32) -> Duration {
    match failures {
        0 => AGAIN_AFTER,
        failures => RETRY_MIN.saturating_mul(1 << failures.min(10)).min(AGAIN_AFTER),
    }
}

/// Asks a server what it serves.
async fn examine(identity: &connect::Identity, check: Check) -> (String, Known) {
    let Check { name, spec, reference, handler, places } = check;
    let text = |field: &str| spec[field].as_str().unwrap_or("").to_string();
    let (group, version) = (text("group"), text("version"));
    let (mut described, mut document) = (describe::stale(&version), None);
    let (places, problem) = match places {
        Ok(places) => (places, None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    let path = format!("/apis/{group}/{version}");
    let mut url = path.clone();
    let way = match (&handler, &reference) {
        (Some(handler), _) => Ok(Way::Here(handler.clone())),
        (None, reference) => {
            let (service, namespace) = reference.as_ref().map_or(("", ""), |it| (&it.name, &it.namespace));
            if let Some((host, port)) = places.first() {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                url = format!("https://{host}:{port}{path}");
            }
            let server_name = format!("{service}.{namespace}.svc");
            identity
                .config(&spec)
                .map(|tls| Way::There(Remote { places, server_name, tls, egress: identity.egress.clone() }))
        }
    };
    let (way, found) = match (way, problem) {
        (Ok(way), Some(problem)) => (Some(way), problem),
        (Err(error), _) => (None, Availability::silent(&url, &error.to_string())),
        (Ok(way), None) => {
            let answered = tokio::time::timeout(CHECK_TIMEOUT, ask(&way, &path, &url)).await;
            let found = match answered.unwrap_or(Err(AskError::Timeout)) {
                Err(error) => Availability::silent(&url, &error.to_string()),
                Ok(list) => {
                    described = describe::described(&list, &group, &version).unwrap_or(described);
                    let index = tokio::time::timeout(CHECK_TIMEOUT, ask(&way, "/openapi/v3", &url)).await;
                    document = index.ok().and_then(Result::ok).and_then(|it| describe::document(&it, &group, &version));
                    Availability::passed()
                }
            };
            (Some(way), found)
        }
    };
    let number = |field: &str| spec[field].as_i64().unwrap_or(0);
    let route = Route {
        name: name.clone(),
        group_priority: number("groupPriorityMinimum"),
        version_priority: number("versionPriority"),
        // A route that is not available is not gone.
        way: way.unwrap_or(Way::Nowhere),
        available: found.available,
        group,
        version,
        described,
        document,
    };
    (name, Known { spec, reference, route: Arc::new(route), found, failures: 0, next: None })
}
