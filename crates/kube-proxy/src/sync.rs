//! Follows the objects and brings every change to the kernel.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use component_base::metrics::{Slis, process};
use component_base::status_page::{self, Answer, Answers};
use component_base::tasks;
use component_helpers::zpages::Zpages;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use reconcile::events::{EventType, Recorder, reference};
use reconcile::{Cache, Cluster, Key, Shutdown};
use tokio::time::Instant;

use crate::changes::{Changes, Taken};
use crate::conntrack;
use crate::health::{self, Health, ServiceChecks};
use crate::held::{self, Held, Host, Observer};
use crate::http;
use crate::metrics::Metrics;
use crate::model::{Change, Family, Ledger};
use crate::nftables::{Kernel, Repaired, Watch};
use crate::rules::{self, Entrance};
use crate::{Config, Error};

/// After someone else's change we wait for so long, since changes come in groups.
const SETTLE: Duration = Duration::from_millis(200);
/// How long until a failed write is tried again, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How often we look for what the machine itself has begun or ceased to listen at: the kernel tells nobody.
const LOOK: Duration = Duration::from_secs(5);
const ZONE: &str = "topology.kubernetes.io/zone";
/// A node that has this is about to be removed.
const LEAVING_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

pub async fn run(config: Config, cluster: Cluster, shutdown: Shutdown) -> Result<(), Error> {
    let clock = config.clock.clone();
    let (health, metrics) =
        (Arc::new(Health::new(clock.clone())), Arc::new(Metrics::new(&config.families, clock.clone())));
    serve(&config, &health, &metrics, &shutdown);
    let caches = cluster.caches();
    let (services, slices, nodes) =
        (caches.start::<Service>(""), caches.start::<EndpointSlice>(""), caches.start::<Node>(""));
    let kernel = Kernel::open(&config.table, config.node_namespace.as_deref(), &config.families)?;
    config.conntrack.apply(config.node_namespace.as_deref());
    let mut watch = kernel.watch().map_err(Error::Watch)?;
    let synced = async { tokio::join!(services.synced(), slices.synced(), nodes.synced()) };
    tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        _ = synced => {}
    }
    let changes = Changes::new(health.clone(), metrics.clone());
    changes.follow(&services, &slices, &nodes);
    let recorder = Recorder::with_clock(cluster.client().clone(), "kube-proxy", &config.node_name, clock);
    let mut proxy = Proxy::new(config, kernel, services, nodes, changes.clone(), (health, metrics, recorder));
    proxy.take_over().await;
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = changes.wait() => proxy.update().await,
            touched = watch.touched() => {
                touched.map_err(Error::Watch)?;
                proxy.check_after(&mut watch).await;
            }
            () = proxy.retry_time() => proxy.retry().await,
            _ = look.tick() => {
                if proxy.look().await {
                    proxy.update().await;
                }
            }
        }
    }
}

fn serve(config: &Config, health: &Arc<Health>, metrics: &Arc<Metrics>, shutdown: &Shutdown) {
    let start = |address: Option<SocketAddr>, answers: Answers| {
        let Some(address) = address else { return };
        match http::listen(address, config.node_namespace.as_deref()) {
            Ok(listener) => _ = tasks::spawn(status_page::serve(listener, answers, shutdown.clone())),
            // Packets matter more than questions about them.
            Err(error) => tracing::error!(%address, %error, "cannot serve health and metrics"),
        }
    };
    start(config.health_address, health::answers(health.clone(), metrics.clone()));
    let (metrics, slis) = (metrics.clone(), Slis::default());
    let (zpages, clock) = (zpages(config), config.clock.clone());
    let answers: Answers = Arc::new(move |request| match request.path.as_str() {
        "/metrics" => Answer::ok(metrics.text()),
        "/metrics/slis" => Answer::ok(slis.text()),
        "/healthz" => {
            slis.observe("ping", "healthz", true);
            Answer::ok("ok")
        }
        "/proxyMode" => Answer::ok("nftables"),
        path => match zpages.answer(path, &request.accept(), clock.now()) {
            Some(page) => http::page(page),
            None => Answer::not_found(),
        },
    });
    start(config.metrics_address, answers);
}

fn zpages(config: &Config) -> Zpages {
    let zpages = Zpages::new("kube-proxy", config.version, process::start_time(), config.flags.clone());
    zpages.beside(["/flagz", "/healthz", "/metrics", "/proxyMode"])
}

struct Proxy {
    config: Config,
    kernel: Kernel,
    services: Arc<Cache<Service>>,
    nodes: Arc<Cache<Node>>,
    changes: Arc<Changes>,
    node: rules::Node,
    observer: Observer,
    /// What the machine was like at the last look, and whether that is news.
    host: Host,
    host_changed: bool,
    /// What was said of Services whose ports the machine needs itself.
    said: HashMap<Key, BTreeSet<String>>,
    recorder: Recorder,
    ledger: Ledger,
    /// Ways in of datagrams, of the Services that have any.
    udp: HashMap<Key, BTreeMap<Entrance, Vec<SocketAddr>>>,
    /// Those of them with connections to forget as soon as the kernel has the new rules, with their endpoints.
    stale: BTreeMap<Entrance, Vec<SocketAddr>>,
    /// Services that want local endpoints and have none, internally and externally.
    without_local: HashMap<Key, [BTreeSet<Family>; 2]>,
    checks: ServiceChecks,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    began: Timestamp,
    /// The kernel may not be as the ledger says.
    retry: Option<(Instant, Duration)>,
}

impl Proxy {
    fn new(
        config: Config,
        kernel: Kernel,
        services: Arc<Cache<Service>>,
        nodes: Arc<Cache<Node>>,
        changes: Arc<Changes>,
        (health, metrics, recorder): (Arc<Health>, Arc<Metrics>, Recorder),
    ) -> Proxy {
        let observer = Observer::new(config.node_namespace.as_deref(), &config.reserved_ports);
        let checks = ServiceChecks::new(IpAddr::from([0, 0, 0, 0]), config.node_namespace.clone(), health.clone());
        Proxy {
            began: config.clock.now(),
            config,
            kernel,
            services,
            nodes,
            changes,
            node: rules::Node::default(),
            observer,
            host: Host::default(),
            host_changed: false,
            said: HashMap::new(),
            recorder,
            ledger: Ledger::default(),
            udp: HashMap::new(),
            stale: BTreeMap::new(),
            without_local: HashMap::new(),
            checks,
            health,
            metrics,
            retry: None,
        }
    }

    /// What is in the kernel becomes what it should be, with as little change as that needs.
    async fn take_over(&mut self) {
        let began = Instant::now();
        self.look().await;
        let taken = self.changes.take();
        self.decide(&taken);
        if let Some(repaired) = self.reconcile().await {
            let services = self.ledger.services().count().saturating_sub(1);
            let Repaired { tables, chains, elements } = repaired;
            tracing::info!(services, tables, chains, elements, took = ?began.elapsed(), "installed Service rules");
            self.metrics.synced(began.elapsed(), true);
        }
    }

    async fn update(&mut self) {
        let began = Instant::now();
        let taken = self.changes.take();
        // A Service must not get a port that somebody has begun to listen at since the last look.
        if taken.services.iter().any(|key| self.services.get(key).is_some_and(|service| is_external(&service))) {
            self.look().await;
        }
        let changes = self.decide(&taken);
        let written = if changes.is_empty() { Ok(()) } else { self.kernel.apply(&changes).await };
        match written {
            Ok(()) => {
                self.health.updated();
                self.metrics.synced(began.elapsed(), false);
                let now = self.config.clock.now();
                for trigger in taken.triggers.iter().filter(|trigger| **trigger >= self.began) {
                    self.metrics.programmed((now.as_millisecond() - trigger.as_millisecond()).max(0) as f64 / 1000.0);
                }
                self.forget().await;
            }
            Err(error) => self.failed(&Error::from(error)),
        }
    }

    /// Someone else has changed our table.
    async fn check_after(&mut self, watch: &mut Watch) {
        tokio::time::sleep(SETTLE).await;
        watch.drain();
        match self.reconcile().await {
            Some(repaired) if !repaired.is_nothing() => {
                let Repaired { tables, chains, elements } = repaired;
                tracing::warn!(
                    table = self.config.table,
                    tables,
                    chains,
                    elements,
                    "repaired Service rules that another program changed"
                );
            }
            _ => {}
        }
    }

    /// When to try again, if ever.
    fn retry_time(&self) -> impl Future<Output = ()> + use<> {
        let at = self.retry.map(|(at, _)| at);
        async move {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }

    async fn retry(&mut self) {
        if self.reconcile().await.is_some() {
            tracing::info!(table = self.config.table, "installed Service rules after a retry");
        }
    }

    async fn reconcile(&mut self) -> Option<Repaired> {
        match self.kernel.reconcile(&self.ledger).await {
            Ok(repaired) => {
                self.retry = None;
                self.health.updated();
                self.forget().await;
                Some(repaired)
            }
            Err(error) => {
                self.failed(&Error::from(error));
                None
            }
        }
    }

    fn failed(&mut self, error: &Error) {
        self.metrics.failed();
        self.health.queued();
        let wait = self.retry.map_or(RETRY_FIRST, |(_, wait)| (wait * 2).min(RETRY_MAX));
        self.retry = Some((Instant::now() + wait, wait));
        tracing::error!(%error, "cannot install Service rules; retrying");
    }

    /// Whether the machine listens elsewhere than at the last look.
    async fn look(&mut self) -> bool {
        match self.observer.look().await {
            Ok(host) if host != self.host => {
                self.host = host;
                self.host_changed = true;
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "cannot list listening sockets and addresses of this machine"),
        }
        self.host_changed
    }

    /// What the kernel must be told. Which connections of datagrams may lead nowhere afterwards is kept until it was.
    fn decide(&mut self, taken: &Taken) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut keys = taken.services.clone();
        let host_changed = std::mem::take(&mut self.host_changed);
        if taken.node || self.node.name.is_empty() || host_changed {
            let node = self.read_node();
            if node != self.node {
                let same_node = rules::Node { held: self.node.held.clone(), ..node.clone() } == self.node;
                self.node = node;
                changes.extend(self.ledger.replace(&Key::default(), rules::node_elements(&self.node)));
                // What machines listen at matters to those only that are reached by their addresses.
                let services = self.services.list().into_iter().filter(|service| !same_node || is_external(service));
                keys.extend(services.map(|service| Key::of(&service.metadata)));
            }
        }
        for key in &keys {
            let outcome = match self.services.get(key) {
                Some(service) => rules::outcome(key, &service, &self.changes.slices(key), &self.node),
                None => rules::Outcome::default(),
            };
            changes.extend(self.ledger.replace(key, outcome.elements));
            self.say_held(key, outcome.held);
            self.checks.set(key, outcome.health_check);
            let lacks = [outcome.lacks_internal_local, outcome.lacks_external_local];
            if lacks.iter().all(BTreeSet::is_empty) {
                self.without_local.remove(key);
            } else {
                self.without_local.insert(key.clone(), lacks);
            }
            let nothing = BTreeMap::new();
            self.stale.extend(conntrack::stale(self.udp.get(key).unwrap_or(&nothing), &outcome.udp));
            if outcome.udp.is_empty() {
                _ = self.udp.remove(key)
            } else {
                _ = self.udp.insert(key.clone(), outcome.udp)
            }
        }
        for family in &self.config.families {
            let [internal, external] =
                [0, 1].map(|policy| self.without_local.values().filter(|lacks| lacks[policy].contains(family)).count());
            self.metrics.set_without_local(*family, internal as u64, external as u64);
        }
        merged(changes)
    }

    /// Says once of a Service which of its ways in the machine keeps for itself.
    fn say_held(&mut self, key: &Key, held: BTreeSet<String>) {
        if held.is_empty() {
            self.said.remove(key);
            return;
        }
        let before = self.said.insert(key.clone(), held.clone()).unwrap_or_default();
        let Some(service) = self.services.get(key) else { return };
        for problem in held.difference(&before) {
            tracing::warn!(service = %key, problem, "cannot serve node port or external address of Service");
            let message = format!("{problem}; the Service is not served there");
            self.recorder.event(&reference(&*service), EventType::Warning, "PortInUse", message);
        }
    }

    /// What the Node object says. Until there is one, its name is all we know.
    fn read_node(&self) -> rules::Node {
        let nodes = self.nodes.list();
        let is_own = |node: &&Arc<Node>| node.metadata.name.as_ref() == Some(&self.config.node_name);
        let object = nodes.iter().find(is_own).cloned();
        let addresses =
            object.iter().flat_map(|node| &node.status).flat_map(|status| status.addresses.iter().flatten());
        let addresses = addresses.filter(|address| matches!(address.type_.as_str(), "InternalIP" | "ExternalIP"));
        let labels = object.as_ref().and_then(|node| node.metadata.labels.as_ref());
        let taints = object.iter().flat_map(|node| &node.spec).flat_map(|spec| spec.taints.iter().flatten());
        let is_leaving = taints.into_iter().any(|taint| taint.key == LEAVING_TAINT)
            || object.as_ref().is_some_and(|node| node.metadata.deletion_timestamp.is_some());
        self.health.set_eligible(!is_leaving);
        let addresses: Vec<IpAddr> = addresses.filter_map(|address| address.address.parse().ok()).collect();
        let mut held = Held { host: self.host.clone(), others: held::others(&self.config.node_name, &nodes) };
        held.host.addresses.extend(&addresses);
        rules::Node {
            name: self.config.node_name.clone(),
            zone: labels.and_then(|labels| labels.get(ZONE).cloned()),
            addresses,
            pod_ranges: self.config.cluster_cidrs.clone(),
            node_ports: self.config.node_port_addresses.clone(),
            external_ips: self.config.external_ips,
            families: self.config.families.clone(),
            held,
        }
    }

    /// Once the rules lead elsewhere: a connection that is forgotten before may come back by the old ones.
    async fn forget(&mut self) {
        let stale = std::mem::take(&mut self.stale);
        if stale.is_empty() {
            return;
        }
        let namespace = self.config.node_namespace.as_deref();
        match conntrack::forget(stale, &self.config.families, namespace).await {
            Ok(count) => self.metrics.conntrack_deleted(count),
            Err(error) => tracing::warn!(%error, "cannot remove stale UDP conntrack entries"),
        }
    }
}

/// Whether it is reached by addresses or ports of nodes.
fn is_external(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    matches!(spec.type_.as_deref(), Some("NodePort" | "LoadBalancer"))
        || spec.external_ips.as_ref().is_some_and(|addresses| !addresses.is_empty())
}

/// One element may pass from one Service to another in one step: the kernel is told of the outcome only.
fn merged(changes: Vec<Change>) -> Vec<Change> {
    let mut places: HashMap<crate::model::Key, usize> = HashMap::new();
    let mut merged: Vec<Change> = Vec::with_capacity(changes.len());
    for change in changes {
        match places.get(&change.key) {
            Some(place) => (merged[*place].new, merged[*place].owner) = (change.new, change.owner),
            None => {
                places.insert(change.key.clone(), merged.len());
                merged.push(change);
            }
        }
    }
    merged.retain(|change| change.old != change.new);
    merged
}
