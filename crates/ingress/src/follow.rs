//! Keeps the table of routes up to date. A change of endpoints costs the work for its Service only; whatever else an Ingress
//! depends on makes a new table.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use parking_lot::Mutex;
use reconcile::{Cache, Cluster, Key, Shutdown};
use tokio::sync::{Notify, watch};

use crate::certificates::{Certificates, Readings};
use crate::proxy::{Balancer, Live, Shared};
use crate::routes::{self, Backend, Objects, Problem};

/// Certificates may be in a Secret of any type; these types hold none.
const SECRETS: &str = "type!=kubernetes.io/service-account-token,type!=helm.sh/release.v1";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Changes come in groups; a table is not made more often than this.
const PAUSE: Duration = Duration::from_millis(50);

pub struct Follower {
    shared: Arc<Shared>,
    ingresses: Arc<Cache<Ingress>>,
    classes: Arc<Cache<IngressClass>>,
    services: Arc<Cache<Service>>,
    secrets: Arc<Cache<Secret>>,
    slices: Arc<Cache<EndpointSlice>>,
    changes: Arc<Changes>,
}

/// What the watches brought and nobody has looked at yet.
#[derive(Default)]
struct Changes {
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Default)]
struct State {
    /// The table must be made anew.
    table: bool,
    /// Services that have other endpoints.
    services: BTreeSet<Key>,
    /// The slices of every Service, by their names.
    slices: HashMap<Key, BTreeMap<String, Arc<EndpointSlice>>>,
    /// What the table depends on.
    used_services: BTreeSet<Key>,
    used_secrets: BTreeSet<Key>,
}

/// What the rest of the world is told of a table.
#[derive(Clone, Default)]
pub struct Report {
    pub ingresses: Arc<BTreeSet<Key>>,
    pub problems: Arc<Vec<Problem>>,
}

impl Follower {
    pub fn new(cluster: &Cluster, shared: Arc<Shared>) -> Follower {
        let caches = cluster.caches();
        let follower = Follower {
            shared,
            ingresses: caches.start(""),
            classes: caches.start(""),
            services: caches.start(""),
            secrets: caches.start(SECRETS),
            slices: caches.start(""),
            changes: Arc::default(),
        };
        follower.listen();
        follower
    }

    pub async fn synced(&self) {
        tokio::join!(
            self.ingresses.synced(),
            self.classes.synced(),
            self.services.synced(),
            self.secrets.synced(),
            self.slices.synced()
        );
    }

    fn listen(&self) {
        let changes = self.changes.clone();
        self.ingresses.listen(move |_, _| changes.note(|state| state.table = true));
        let changes = self.changes.clone();
        self.classes.listen(move |_, _| changes.note(|state| state.table = true));
        let changes = self.changes.clone();
        self.services.listen(move |old, new| {
            let Some(key) = old.or(new).map(|service| Key::of(&service.metadata)) else { return };
            changes.note(|state| state.table |= state.used_services.contains(&key));
        });
        let changes = self.changes.clone();
        self.secrets.listen(move |old, new| {
            let Some(key) = old.or(new).map(|secret| Key::of(&secret.metadata)) else { return };
            changes.note(|state| state.table |= state.used_secrets.contains(&key));
        });
        let changes = self.changes.clone();
        self.slices.listen(move |old, new| {
            changes.note(|state| {
                for (slice, present) in [(old, false), (new, true)] {
                    let Some(slice) = slice else { continue };
                    state.put(slice, present);
                }
            });
        });
    }

    /// Makes the first table, and then follows every change. What it says of each is seen in the answer.
    pub fn start(self, shutdown: Shutdown) -> watch::Receiver<Report> {
        let (reports, seen) = watch::channel(Report::default());
        let mut readings = Readings::default();
        let changes = self.changes.clone();
        changes.state.lock().table = false;
        reports.send_replace(self.rebuild(&mut readings));
        tasks::spawn(async move {
            loop {
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = changes.arrived.notified() => {}
                }
                let (table, services) = {
                    let mut state = changes.state.lock();
                    (std::mem::take(&mut state.table), std::mem::take(&mut state.services))
                };
                if table {
                    reports.send_replace(self.rebuild(&mut readings));
                } else if !services.is_empty() {
                    self.update(&services);
                } else {
                    continue;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        seen
    }

    fn rebuild(&self, readings: &mut Readings) -> Report {
        let (ingresses, classes) = (self.ingresses.list(), self.classes.list());
        let readings = Mutex::new(readings);
        let table = routes::build(&Objects {
            ingresses: &ingresses,
            classes: &classes,
            service: &|key| self.services.get(key),
            secret_fault: &|key| readings.lock().read(key, self.secrets.get(key).as_deref()).err(),
        });
        let readings = readings.into_inner();
        {
            let mut state = self.changes.state.lock();
            let grown =
                !table.services.is_subset(&state.used_services) || !table.secrets.is_subset(&state.used_secrets);
            state.used_services = table.services.clone();
            state.used_secrets = table.secrets.clone();
            // What was not listened for may have changed between being read and here; then once more.
            if grown {
                state.table = true;
                self.changes.arrived.notify_one();
            }
        }
        let certificates = table.certificates.iter().filter_map(|(host, key)| {
            let certificate = readings.read(key, self.secrets.get(key).as_deref()).ok()?;
            Some((host.clone(), certificate))
        });
        self.shared.resolver.current.store(Arc::new(Certificates::new(certificates)));
        readings.keep(&table.secrets);
        let old = self.shared.live.load();
        let known: HashMap<&Backend, &Arc<Balancer>> = old.balancers.iter().map(|one| (&one.backend, one)).collect();
        let balancers = table.backends.iter().map(|backend| {
            let same = known.get(backend).map(|balancer| Arc::clone(balancer));
            let balancer = same.unwrap_or_else(|| Arc::new(Balancer::new(backend.clone())));
            self.fill(&balancer);
            balancer
        });
        let balancers = balancers.collect();
        let metrics = &self.shared.metrics;
        let counters = metrics.counters(&table.routes);
        metrics.reloads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let report =
            Report { ingresses: Arc::new(table.ingresses.clone()), problems: Arc::new(table.problems.clone()) };
        let nobody = metrics.nobody();
        self.shared.live.store(Arc::new(Live { table, balancers, counters, nobody }));
        report
    }

    /// Other endpoints for the backends of these Services.
    fn update(&self, services: &BTreeSet<Key>) {
        let live = self.shared.live.load();
        live.balancers
            .iter()
            .filter(|balancer| services.contains(&balancer.backend.service))
            .for_each(|one| self.fill(one));
    }

    fn fill(&self, balancer: &Balancer) {
        let Some(service) = self.services.get(&balancer.backend.service) else { return };
        let slices: Vec<Arc<EndpointSlice>> = {
            let state = self.changes.state.lock();
            state.slices.get(&balancer.backend.service).into_iter().flat_map(|all| all.values().cloned()).collect()
        };
        let addresses = routes::endpoints(&service, &balancer.backend.port, &slices);
        balancer.set(&addresses, self.shared.config.workers());
    }
}

impl Changes {
    fn note(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        if state.table || !state.services.is_empty() {
            self.arrived.notify_one();
        }
    }
}

impl State {
    fn put(&mut self, slice: &Arc<EndpointSlice>, present: bool) {
        let metadata = &slice.metadata;
        let Some(service) = metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME)) else { return };
        let key = Key::new(metadata.namespace.clone().unwrap_or_default(), service.clone());
        let name = metadata.name.clone().unwrap_or_default();
        if present {
            self.slices.entry(key.clone()).or_default().insert(name, slice.clone());
        } else if let Some(all) = self.slices.get_mut(&key) {
            all.remove(&name);
            if all.is_empty() {
                self.slices.remove(&key);
            }
        }
        if self.used_services.contains(&key) {
            self.services.insert(key);
        }
    }
}
