//! Writes the IngressClass, the status and events of Ingresses, and the Service
//! that leads to the ingress from nodes that have none.
//!
//! An ingress runs on many nodes and all of them see the same, so one is enough to write: the one on the first ready node that
//! has an ingress. There is no lease to renew, and should two write, they write the same.

mod plan;
mod service;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass, IngressLoadBalancerIngress};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use reconcile::events::{EventType, Recorder, reference};
use reconcile::{Cluster, Shutdown};
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::follow::Report;
use crate::routes::Problem;
use crate::{Bound, CLASS, CONTROLLER, Config};

/// On a node whose ingress listens.
pub(crate) const NODE_ANNOTATION: &str = "knarr.dev/ingress";
/// What is wrong for a moment only, because objects come one after the other, is not worth an event.
const LASTING: Duration = Duration::from_secs(2);
/// After a failed write.
const AGAIN: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// Makes the class, once. One that somebody has changed stays as it is.
pub(crate) async fn ensure_class(cluster: Cluster, shutdown: Shutdown) {
    let classes: Api<IngressClass> = Api::all(cluster.client().clone());
    let class = json!({
        "metadata": {
            "name": CLASS,
            "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"},
        },
        "spec": {"controller": CONTROLLER},
    });
    // By way of text, as every object is decoded.
    let class: IngressClass = serde_json::from_str(&class.to_string()).expect("the class is written down here");
    let mut pause = FIRST_PAUSE;
    loop {
        match classes.create(&PostParams::default(), &class).await {
            Ok(_) => return,
            Err(error) if reconcile::reason(&error) == "AlreadyExists" => return,
            // In the first moments of a cluster our own permissions may not be known yet.
            Err(error) if pause > AGAIN => tracing::warn!(%error, "cannot create IngressClass; retrying"),
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LAST_PAUSE),
            () = shutdown.cancelled() => return,
        }
    }
}

pub async fn run(config: Arc<Config>, cluster: Cluster, reports: watch::Receiver<Report>, shutdown: Shutdown) {
    let mut bound = config.bound.subscribe();
    let listening = bound.wait_for(|bound| bound.http.is_some() || bound.https.is_some());
    tokio::select! {
        listening = listening => if listening.is_err() { return },
        () = shutdown.cancelled() => return,
    }
    if let Some(name) = &config.node_name {
        tokio::select! {
            () = mark_node(&cluster, name) => {}
            () = shutdown.cancelled() => return,
        }
    }
    let host = config.node_name.clone().unwrap_or_default();
    let writer = Writer {
        recorder: Recorder::with_clock(cluster.client().clone(), "ingress", &host, config.clock.clone()),
        ingresses: cluster.caches().start(""),
        nodes: cluster.caches().start(""),
        services: cluster.caches().start(""),
        slices: cluster.caches().start(""),
        config,
        cluster,
        first_seen: HashMap::new(),
    };
    writer.run(reports, shutdown).await;
}

/// Says on the node that its ingress listens; the node itself may come later than we do.
async fn mark_node(cluster: &Cluster, name: &str) {
    let nodes: Api<Node> = Api::all(cluster.client().clone());
    let patch = json!({"metadata": {"annotations": {NODE_ANNOTATION: "true"}}});
    let mut pause = FIRST_PAUSE;
    loop {
        match nodes.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => return,
            Err(error) if reconcile::is_not_found(&error) => {}
            Err(error) if pause > AGAIN => {
                tracing::warn!(%error, node = name, "cannot label node as running an ingress");
            }
            Err(_) => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

struct Writer {
    config: Arc<Config>,
    cluster: Cluster,
    recorder: Recorder,
    ingresses: Arc<reconcile::Cache<Ingress>>,
    nodes: Arc<reconcile::Cache<Node>>,
    services: Arc<reconcile::Cache<Service>>,
    slices: Arc<reconcile::Cache<EndpointSlice>>,
    /// When each problem was first seen; none once it was said.
    first_seen: HashMap<Problem, Option<Instant>>,
}

impl Writer {
    async fn run(mut self, mut reports: watch::Receiver<Report>, shutdown: Shutdown) {
        tokio::select! {
            _ = async { tokio::join!(self.nodes.synced(), self.services.synced(), self.slices.synced()) } => {}
            () = shutdown.cancelled() => return,
        }
        let (mut nodes, mut ingresses) = (self.nodes.changes(), self.ingresses.changes());
        let mut bound = self.config.bound.subscribe();
        // Others change all the time; only what is ours wakes us.
        let ours = Arc::new(Notify::new());
        let notify = ours.clone();
        self.services.listen(move |old, new| {
            if new.or(old).is_some_and(|one| service::is_ours(&one.metadata)) {
                notify.notify_one();
            }
        });
        let notify = ours.clone();
        self.slices.listen(move |old, new| {
            if new.or(old).is_some_and(|one| service::is_ours_of(&one.metadata)) {
                notify.notify_one();
            }
        });
        loop {
            let listening = *bound.borrow_and_update();
            nodes.borrow_and_update();
            ingresses.borrow_and_update();
            let report = reports.borrow_and_update().clone();
            let again = self.pass(&report, &listening).await;
            let sleep = async {
                match again {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = reports.changed() => if changed.is_err() { return },
                _ = nodes.changed() => {}
                _ = ingresses.changed() => {}
                _ = bound.changed() => {}
                () = ours.notified() => {}
                () = sleep => {}
            }
        }
    }

    /// Writes what is not as it should be; answers when to look again.
    async fn pass(&mut self, report: &Report, listening: &Bound) -> Option<Instant> {
        let nodes = self.nodes.list();
        let writes = match &self.config.node_name {
            Some(name) => plan::writer(&nodes) == Some(name),
            None => true,
        };
        if !writes {
            self.first_seen.clear();
            return None;
        }
        let mut written = true;
        if self.config.service
            && let Err(error) = self.write_service(&nodes, listening).await
        {
            tracing::warn!(%error, "cannot write Service of the ingress");
            written = false;
        }
        let service = self.services.get(&service::key()).filter(|_| self.config.service);
        let balanced = service.map(|service| service::balanced_at(&service)).unwrap_or_default();
        let wanted = match (self.config.publish.is_empty(), balanced.is_empty()) {
            (true, true) => plan::addresses(&nodes),
            (true, false) => balanced.iter().map(|text| plan::address(text)).collect(),
            (false, _) => self.config.publish.iter().map(|text| plan::address(text)).collect(),
        };
        written &= self.write_all(report, &wanted).await;
        let events = self.tell(&report.problems);
        let retry = (!written).then(|| Instant::now() + AGAIN);
        retry.into_iter().chain(events).min()
    }

    /// First the endpoints: a Service without any would refuse what our listener takes.
    async fn write_service(&self, nodes: &[Arc<Node>], listening: &Bound) -> Result<(), kube::Error> {
        let namespace = service::key().namespace;
        let slices: Api<EndpointSlice> = Api::namespaced(self.cluster.client().clone(), &namespace);
        let ports = service::ports(listening);
        let parameters = PatchParams::apply(service::MANAGER).force();
        for wanted in service::slices(nodes, &ports) {
            let name = wanted.metadata.name.clone().unwrap_or_default();
            let there = self.slices.get(&reconcile::Key::new(&namespace, &name));
            if !there.is_some_and(|there| there.endpoints == wanted.endpoints && there.ports == wanted.ports) {
                slices.patch(&name, &parameters, &Patch::Apply(&wanted)).await?;
            }
        }
        let wanted = service::service(&ports);
        let there = self.services.get(&service::key());
        // Whoever wants another type or policy may say so; only the ports must be those that somebody listens at.
        if !there.is_some_and(|there| service::has_ports(&there, &ports)) {
            let services: Api<Service> = Api::namespaced(self.cluster.client().clone(), &namespace);
            services.patch(service::NAME, &parameters, &Patch::Apply(&wanted)).await?;
        }
        Ok(())
    }

    async fn write_all(&self, report: &Report, wanted: &[IngressLoadBalancerIngress]) -> bool {
        let mut written = true;
        for key in report.ingresses.iter() {
            let Some(ingress) = self.ingresses.get(key) else { continue };
            if plan::shown(&ingress) == wanted {
                continue;
            }
            let ingresses: Api<Ingress> = Api::namespaced(self.cluster.client().clone(), &key.namespace);
            let patch = json!({"status": {"loadBalancer": {"ingress": wanted}}});
            match ingresses.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => {}
                Err(error) if reconcile::is_not_found(&error) => {}
                Err(error) => {
                    tracing::warn!(ingress = %key, %error, "cannot update status of Ingress");
                    written = false;
                }
            }
        }
        written
    }

    /// Says every problem once, if it lasts; answers when the next is old enough.
    fn tell(&mut self, problems: &[Problem]) -> Option<Instant> {
        let now = Instant::now();
        let mut seen: HashMap<Problem, Option<Instant>> = HashMap::new();
        let mut next: Option<Instant> = None;
        for problem in problems {
            let since = self.first_seen.get(problem).copied().unwrap_or(Some(now));
            let due = since.map(|since| since + LASTING);
            let state = match due {
                None => None,
                Some(due) if due <= now => {
                    self.say(problem);
                    None
                }
                Some(due) => {
                    next = Some(next.map_or(due, |other| other.min(due)));
                    since
                }
            };
            seen.insert(problem.clone(), state);
        }
        self.first_seen = seen;
        next
    }

    fn say(&self, problem: &Problem) {
        let Problem { ingress, reason, message } = problem;
        if let Some(object) = self.ingresses.get(ingress) {
            self.recorder.event(&reference(&*object), EventType::Warning, reason, message.clone());
        }
        tracing::info!(%ingress, reason, message, "Ingress has a problem");
    }
}
