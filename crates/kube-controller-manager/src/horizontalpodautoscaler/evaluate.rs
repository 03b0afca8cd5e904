//! What each metric of an autoscaler asks for.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricStatus, HorizontalPodAutoscalerSpec, MetricSpec, MetricStatus,
    MetricTarget, MetricValueStatus, ObjectMetricStatus, PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use kube::Client;
use machinery::quantity::{Format, Quantity};
use reconcile::Key;

use super::error::{MetricError, ReplicasError};
use super::replicas::{Proposal, Target, Tolerance, by_average, by_pods, by_value};
use super::settings::Autoscaling;
use super::{metrics, scale};

/// What is looked at.
pub(super) struct Scene<'a> {
    pub client: &'a Client,
    pub now: Timestamp,
    pub namespace: &'a str,
    pub selector: &'a str,
    pub pods: &'a [Pod],
    /// Wanted now, and there now.
    pub current: i32,
    pub there: i32,
    pub tolerance: Tolerance,
    pub settings: &'a Autoscaling,
}

pub(super) struct Answer {
    pub replicas: i32,
    /// As messages name the metric.
    pub name: String,
    pub status: MetricStatus,
}

/// Why there is no answer: the reason for conditions and events, and the words.
pub(super) struct Failure {
    pub reason: &'static str,
    pub error: MetricError,
}

pub(super) fn tolerance(settings: &Autoscaling, spec: &HorizontalPodAutoscalerSpec) -> Tolerance {
    let behavior = spec.behavior.as_ref();
    let of = |written: Option<&Written>| {
        written.and_then(|one| Quantity::parse(&one.0).ok()).map_or(settings.tolerance, |one| one.as_f64())
    };
    let down = behavior.and_then(|all| all.scale_down.as_ref()).and_then(|rules| rules.tolerance.as_ref());
    let up = behavior.and_then(|all| all.scale_up.as_ref()).and_then(|rules| rules.tolerance.as_ref());
    Tolerance { down: of(down), up: of(up) }
}

pub(super) async fn evaluate(scene: &Scene<'_>, metric: &MetricSpec) -> Result<Answer, Failure> {
    let mut status = MetricStatus { type_: metric.type_.clone(), ..MetricStatus::default() };
    let failing = |reason: &'static str| move |error: MetricError| Failure { reason, error };
    if let Some(resource) = &metric.resource {
        let (proposal, kind) = of_resource(scene, &resource.name, None, &resource.target)
            .await
            .map_err(failing("FailedGetResourceMetric"))?;
        status.resource = Some(ResourceMetricStatus { name: resource.name.clone(), current: value(&proposal, false) });
        return Ok(Answer { replicas: proposal.replicas, name: format!("{} resource{kind}", resource.name), status });
    }
    if let Some(resource) = &metric.container_resource {
        let found = of_resource(scene, &resource.name, Some(&resource.container), &resource.target).await;
        let (proposal, kind) = found.map_err(failing("FailedGetContainerResourceMetric"))?;
        let (name, container) = (resource.name.clone(), resource.container.clone());
        status.container_resource =
            Some(ContainerResourceMetricStatus { name, container, current: value(&proposal, false) });
        return Ok(Answer {
            replicas: proposal.replicas,
            name: format!("{} container resource{kind}", resource.name),
            status,
        });
    }
    if let Some(pods) = &metric.pods {
        let reason = failing("FailedGetPodsMetric");
        let samples = metrics::of_pods(scene.client, scene.namespace, scene.selector, &pods.metric).await;
        let samples = samples.map_err(|source| reason(MetricError::Pods { name: pods.metric.name.clone(), source }))?;
        let target = Target::Average { milli: wanted(pods.target.average_value.as_ref()) };
        let proposal = by_pods(scene.now, scene.current, scene.pods, &samples, target, None, scene.tolerance);
        let proposal = proposal.map_err(|error| reason(MetricError::PodsReplicas(error)))?;
        status.pods = Some(PodsMetricStatus { metric: pods.metric.clone(), current: value(&proposal, false) });
        return Ok(Answer { replicas: proposal.replicas, name: format!("pods metric {}", pods.metric.name), status });
    }
    if let Some(object) = &metric.object {
        let reason = failing("FailedGetObjectMetric");
        let described = &object.described_object;
        let (version, kind) = (described.api_version.as_deref().unwrap_or("v1"), &described.kind);
        let plural = scale::plural(scene.client, version, kind).await;
        let plural = plural.map_err(|error| reason(MetricError::ObjectKind(error)))?;
        let resource = match version.split_once('/') {
            Some((group, _)) => format!("{plural}.{group}"),
            None => plural,
        };
        let found = metrics::of_object(scene.client, scene.namespace, &resource, described, &object.metric).await;
        let milli = found.map_err(|source| {
            let (name, object) = (object.metric.name.clone(), Key::new(scene.namespace, &described.name));
            reason(MetricError::Object { name, kind: kind.clone(), object, source })
        })?;
        let (proposal, average) = of_one(scene, milli, &object.target);
        let current = value(&proposal, !average);
        status.object =
            Some(ObjectMetricStatus { metric: object.metric.clone(), described_object: described.clone(), current });
        return Ok(Answer {
            replicas: proposal.replicas,
            name: format!("{kind} metric {}", object.metric.name),
            status,
        });
    }
    if let Some(external) = &metric.external {
        let name = &external.metric.name;
        let found = metrics::external(scene.client, scene.namespace, &external.metric).await;
        let milli = found.map_err(|source| {
            let (name, namespace) = (name.clone(), scene.namespace.to_owned());
            failing("FailedGetExternalMetric")(MetricError::External { name, namespace, source })
        })?;
        let (proposal, average) = of_one(scene, milli, &external.target);
        status.external =
            Some(ExternalMetricStatus { metric: external.metric.clone(), current: value(&proposal, !average) });
        return Ok(Answer { replicas: proposal.replicas, name: format!("external metric {name}"), status });
    }
    Err(Failure { reason: "InvalidMetricSourceType", error: MetricError::Unknown(metric.type_.clone()) })
}

fn of_one(scene: &Scene<'_>, milli: i64, target: &MetricTarget) -> (Proposal, bool) {
    match &target.average_value {
        Some(average) => (by_average(scene.there, milli, wanted(Some(average)), scene.tolerance), true),
        None => (by_value(scene.current, scene.pods, milli, wanted(target.value.as_ref()), scene.tolerance), false),
    }
}

/// Never zero, since it divides; validation refuses what is.
fn wanted(target: Option<&Written>) -> i64 {
    target.and_then(|one| Quantity::parse(&one.0).ok()).map_or(1, |one| one.milli_value()).max(1)
}

async fn of_resource(
    scene: &Scene<'_>,
    resource: &str,
    container: Option<&str>,
    target: &MetricTarget,
) -> Result<(Proposal, &'static str), MetricError> {
    let word = if target.average_value.is_some() { "usage" } else { "utilization" };
    let failed = |source| MetricError::ResourceReplicas { resource: resource.to_owned(), word, source };
    let samples = metrics::resource(scene.client, scene.namespace, scene.selector, resource, container).await;
    let samples = samples.map_err(|source| MetricError::Resource { resource: resource.to_owned(), word, source })?;
    let starting = (resource == "cpu").then_some(scene.settings);
    if let Some(average) = &target.average_value {
        let target = Target::Average { milli: wanted(Some(average)) };
        let proposal = by_pods(scene.now, scene.current, scene.pods, &samples, target, starting, scene.tolerance);
        return proposal.map(|proposal| (proposal, "")).map_err(failed);
    }
    let percent = target.average_utilization.unwrap_or(80).max(1);
    let requests = requests(scene.pods, resource, container).map_err(failed)?;
    let target = Target::Utilization { percent, requests: &requests };
    let proposal = by_pods(scene.now, scene.current, scene.pods, &samples, target, starting, scene.tolerance);
    proposal.map(|proposal| (proposal, " utilization (percentage of request)")).map_err(failed)
}

/// What each pod has asked for, in thousandths.
fn requests(pods: &[Pod], resource: &str, container: Option<&str>) -> Result<BTreeMap<String, i64>, ReplicasError> {
    let mut all = BTreeMap::new();
    for pod in pods {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let Some(spec) = &pod.spec else { continue };
        let sidecars =
            spec.init_containers.iter().flatten().filter(|one| one.restart_policy.as_deref() == Some("Always"));
        let mut sum = 0i64;
        for one in spec.containers.iter().chain(sidecars).filter(|one| container.is_none_or(|name| one.name == name)) {
            let asked = one.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get(resource));
            let asked = asked.and_then(|asked| Quantity::parse(&asked.0).ok());
            let asked = asked.ok_or_else(|| ReplicasError::NoRequest {
                resource: resource.to_owned(),
                container: one.name.clone(),
                pod: name.clone(),
            })?;
            sum = sum.saturating_add(asked.milli_value());
        }
        all.insert(name, sum);
    }
    Ok(all)
}

fn value(proposal: &Proposal, is_value: bool) -> MetricValueStatus {
    let milli = proposal.average_milli;
    let quantity = match milli % 1000 {
        0 => Quantity::from_int(milli / 1000, Format::DecimalSi),
        _ => Quantity::from_milli(milli, Format::DecimalSi),
    };
    let written = Some(Written(quantity.canonical()));
    if is_value {
        MetricValueStatus { value: written, ..MetricValueStatus::default() }
    } else {
        MetricValueStatus { average_utilization: proposal.utilization, average_value: written, value: None }
    }
}
