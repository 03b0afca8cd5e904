//! One look at one autoscaler: its scale, its metrics, the change, and what its status and events say about it.

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricSpec, MetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{ListParams, PostParams};
use reconcile::Key;
use reconcile::events::{EventType, reference};
use tokio::time::Instant;

use super::behavior::{Memory, allow};
use super::error::ApiError;
use super::evaluate::{Answer, Failure, Scene, evaluate, tolerance};
use super::monitor::{Action, Fault, Monitor};
use super::rivals::Rivals;
use super::scale;
use crate::Context;
use crate::common::conditions::seconds;

/// What is said about an autoscaler in one look.
struct Story<'a> {
    cx: &'a Context,
    autoscaler: &'a HorizontalPodAutoscaler,
    now: Timestamp,
    status: HorizontalPodAutoscalerStatus,
    /// For monitoring: what was done, and who is to blame where nothing could be.
    action: Action,
    fault: Fault,
}

impl Story<'_> {
    fn condition(&mut self, kind: &str, holds: bool, reason: &str, message: &str) {
        let status = if holds { "True" } else { "False" };
        let conditions = self.status.conditions.get_or_insert_default();
        let place = conditions.iter().position(|condition| condition.type_ == kind);
        let before = place.map(|place| conditions[place].clone()).filter(|before| before.status == status);
        let since = before.and_then(|before| before.last_transition_time).unwrap_or(Time(seconds(self.now)));
        let new = HorizontalPodAutoscalerCondition {
            type_: kind.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_transition_time: Some(since),
        };
        match place {
            Some(place) => conditions[place] = new,
            None => conditions.push(new),
        }
    }

    fn event(&self, kind: EventType, reason: &str, message: String) {
        self.cx.events.event(&reference(self.autoscaler), kind, reason, message);
    }
}

pub(super) async fn look(cx: &Context, autoscaler: &HorizontalPodAutoscaler, memory: &mut Memory) {
    let status = autoscaler.status.clone().unwrap_or_default();
    let (action, fault) = (Action::default(), Fault::default());
    let mut story = Story { cx, autoscaler, now: cx.now(), status, action, fault };
    story.status.observed_generation = autoscaler.metadata.generation;
    let (monitor, began) = (cx.memory::<Monitor>(), Instant::now());
    act(&mut story, memory).await;
    monitor.looked(story.action, story.fault, began.elapsed());
    if story.fault == Fault::None {
        monitor.wants(Key::of(&autoscaler.metadata), story.status.desired_replicas);
    }
    if autoscaler.status.as_ref() == Some(&story.status) {
        return;
    }
    let mut written = autoscaler.clone();
    written.status = Some(story.status);
    let (namespace, name) = (written.metadata.namespace.clone(), written.metadata.name.clone());
    let api: Api<HorizontalPodAutoscaler> = Api::namespaced(cx.client.clone(), &namespace.unwrap_or_default());
    if let Err(error) = api.replace_status(&name.unwrap_or_default(), &PostParams::default(), &written).await {
        // A conflict or an absent server: the next look writes what is true then.
        tracing::debug!(%error, "cannot update status of HorizontalPodAutoscaler");
    }
}

async fn act(story: &mut Story<'_>, memory: &mut Memory) {
    let autoscaler = story.autoscaler;
    let spec = &autoscaler.spec;
    let namespace = autoscaler.metadata.namespace.clone().unwrap_or_default();
    let target = &spec.scale_target_ref;
    let version = target.api_version.as_deref().unwrap_or("v1");
    let found = match scale::get(&story.cx.client, &namespace, version, &target.kind, &target.name).await {
        Ok(found) => found,
        Err(error) => {
            story.event(EventType::Warning, "FailedGetScale", error.to_string());
            let message = format!("the HPA controller was unable to get the target's current scale: {error}");
            story.fault = Fault::Internal;
            return story.condition("AbleToScale", false, "FailedGetScale", &message);
        }
    };
    story.condition(
        "AbleToScale",
        true,
        "SucceededGetScale",
        "the HPA controller was able to get the target's current scale",
    );
    let current = found.scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
    let there = found.scale.status.as_ref().map_or(0, |status| status.replicas);
    story.status.current_replicas = Some(there);
    if memory.recommendations.is_empty() {
        memory.recommendations.push_back((story.now, current));
    }
    let least = spec.min_replicas.unwrap_or(1);
    let (desired, reason) = if current == 0 && least != 0 {
        let message = "scaling is disabled since the replica count of the target is zero";
        story.condition("ScalingActive", false, "ScalingDisabled", message);
        (0, String::new())
    } else if current > spec.max_replicas {
        (spec.max_replicas, "Current number of replicas above Spec.MaxReplicas".to_owned())
    } else if current < least {
        (least, "Current number of replicas below Spec.MinReplicas".to_owned())
    } else {
        let Some((wanted, metric)) = metrics(story, &namespace, &found, current, there).await else {
            story.status.desired_replicas = autoscaler.status.as_ref().map_or(0, |status| status.desired_replicas);
            if story.fault == Fault::None {
                story.fault = Fault::Internal;
            }
            return;
        };
        let allowed = allow(story.now, &story.cx.settings.autoscaling, spec, current, wanted, memory);
        story.condition("AbleToScale", allowed.able.0, allowed.able.1, allowed.able.2);
        story.condition("ScalingLimited", allowed.limited.0, allowed.limited.1, allowed.limited.2);
        let reason =
            if wanted < current { "All metrics below target".to_owned() } else { format!("{metric} above target") };
        (allowed.replicas, reason)
    };
    story.status.desired_replicas = desired;
    if desired == current {
        return;
    }
    match scale::set(&story.cx.client, &found, desired).await {
        Ok(()) => {
            let message = format!("the HPA controller was able to update the target scale to {desired}");
            story.condition("AbleToScale", true, "SucceededRescale", &message);
            story.event(EventType::Normal, "SuccessfulRescale", format!("New size: {desired}; reason: {reason}"));
            memory.changes.push_back((story.now, desired - current));
            story.action = Action::from(current, desired);
            story.status.last_scale_time = Some(Time(seconds(story.now)));
        }
        Err(error) => {
            story.event(
                EventType::Warning,
                "FailedRescale",
                format!("New size: {desired}; reason: {reason}; error: {error}"),
            );
            let message = format!("the HPA controller was unable to update the target scale: {error}");
            story.condition("AbleToScale", false, "FailedUpdateScale", &message);
            story.fault = Fault::Internal;
            story.status.desired_replicas = current;
        }
    }
}

/// The largest number that a metric asks for, and its name; none where that cannot be said.
async fn metrics(
    story: &mut Story<'_>,
    namespace: &str,
    found: &scale::Found,
    current: i32,
    there: i32,
) -> Option<(i32, String)> {
    let spec = &story.autoscaler.spec;
    let selector = found.scale.status.as_ref().and_then(|status| status.selector.clone()).unwrap_or_default();
    if selector.is_empty() {
        story.event(EventType::Warning, "SelectorRequired", "selector is required".into());
        let message = "the HPA target's scale is missing a selector";
        story.condition("ScalingActive", false, "InvalidSelector", message);
        story.event(EventType::Warning, "FailedComputeMetricsReplicas", "selector is required".into());
        return None;
    }
    let pods: Api<Pod> = Api::namespaced(story.cx.client.clone(), namespace);
    let pods = match pods.list(&ListParams::default().labels(&selector)).await {
        Ok(list) => list.items,
        Err(error) => {
            let message = ApiError::from(error).to_string();
            story.event(EventType::Warning, "FailedComputeMetricsReplicas", message);
            return None;
        }
    };
    let noted = story.cx.memory::<Rivals>().note(Key::of(&story.autoscaler.metadata), &selector, &pods);
    if let Err(rivalry) = noted {
        let message = rivalry.to_string();
        story.condition("ScalingActive", false, "AmbiguousSelector", &message);
        story.event(EventType::Warning, "AmbiguousSelector", message.clone());
        story.event(EventType::Warning, "FailedComputeMetricsReplicas", message);
        return None;
    }
    let (client, settings) = (story.cx.client.clone(), &story.cx.settings.autoscaling);
    let (now, tolerance) = (story.now, tolerance(settings, spec));
    let scene = Scene {
        client: &client,
        now,
        namespace,
        selector: &selector,
        pods: &pods,
        current,
        there,
        tolerance,
        settings,
    };
    let all = spec.metrics.as_deref().unwrap_or_default();
    let mut best: Option<(i32, String)> = None;
    let mut failures = Vec::new();
    let mut statuses: Vec<MetricStatus> = Vec::new();
    for metric in all {
        match counted(&scene, metric, story.cx).await {
            Ok(answer) => {
                statuses.push(answer.status);
                if best.as_ref().is_none_or(|(replicas, _)| answer.replicas > *replicas) {
                    best = Some((answer.replicas, answer.name));
                }
            }
            Err(failure) => {
                story.event(EventType::Warning, failure.reason, failure.error.to_string());
                failures.push(failure);
            }
        }
    }
    story.status.current_metrics = Some(statuses).filter(|statuses| !statuses.is_empty());
    // With a metric unknown, what the others say may only make more of it, never less.
    let unsafe_to_shrink = best.as_ref().is_none_or(|(replicas, _)| *replicas < current);
    if let Some(first) = failures.first().filter(|_| unsafe_to_shrink) {
        unknown(story, first, failures.len(), all.len());
        return None;
    }
    let (replicas, name) = best?;
    let message = format!("the HPA was able to successfully calculate a replica count from {name}");
    story.condition("ScalingActive", true, "ValidMetricFound", &message);
    Some((replicas, name))
}

/// Says that so many of all metrics are unknown, and why the first is.
fn unknown(story: &mut Story<'_>, first: &Failure, invalid: usize, of: usize) {
    let message = format!("the HPA was unable to compute the replica count: {}", first.error);
    story.condition("ScalingActive", false, first.reason, &message);
    let message = format!("invalid metrics ({invalid} invalid out of {of}), first error is: {}", first.error);
    story.event(EventType::Warning, "FailedComputeMetricsReplicas", message);
    story.fault = first.error.fault();
}

/// What one metric asks for; how that went is counted.
async fn counted(scene: &Scene<'_>, metric: &MetricSpec, cx: &Context) -> Result<Answer, Failure> {
    let began = Instant::now();
    let evaluated = evaluate(scene, metric).await;
    let (action, fault) = match &evaluated {
        Ok(answer) => (Action::from(scene.there, answer.replicas), Fault::None),
        Err(failure) => (Action::None, failure.error.fault()),
    };
    cx.memory::<Monitor>().computed(action, fault, &metric.type_, began.elapsed());
    evaluated
}
