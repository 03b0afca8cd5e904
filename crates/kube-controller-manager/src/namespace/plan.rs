//! From what is left of a namespace to its conditions, and to what comes next.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, NamespaceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::content::{Content, Remaining};

/// The entry in `spec.finalizers` that is this controller's.
const FINALIZER: &str = "kubernetes";
/// How long finalizers are given before anybody looks again, as upstream.
const FINALIZER_SECONDS: i64 = 15;
const WAIT_MIN: Duration = Duration::from_millis(200);
/// How long a namespace waits for foreign API servers that do not answer.
const STALE_PATIENCE: Duration = Duration::from_secs(20);
const STALE_WAIT_MAX: Duration = Duration::from_secs(5);

pub(super) struct Decision {
    /// The status to write, if it is not what is there.
    pub status: Option<NamespaceStatus>,
    pub next: Next,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Finalize,
    Wait(Duration),
    Fail(String),
}

pub(super) fn is_ending(namespace: &Namespace) -> bool {
    let held = namespace.spec.iter().flat_map(|spec| spec.finalizers.iter().flatten()).any(|one| one == FINALIZER);
    namespace.metadata.deletion_timestamp.is_some() && held
}

/// The namespace without our hold on it.
pub(super) fn finalized(namespace: &Namespace) -> Namespace {
    let mut namespace = namespace.clone();
    for finalizers in namespace.spec.iter_mut().flat_map(|spec| &mut spec.finalizers) {
        finalizers.retain(|one| one != FINALIZER);
    }
    namespace
}

pub(super) fn decide(now: Timestamp, namespace: &Namespace, content: &Content) -> Decision {
    let old = namespace.status.clone().unwrap_or_default();
    let mut new = old.clone();
    new.phase = Some("Terminating".into());
    let conditions = new.conditions.get_or_insert_default();
    for wanted in wanted(namespace.metadata.name.as_deref().unwrap_or(""), content) {
        set(conditions, wanted, now);
    }
    Decision { status: (new != old).then_some(new), next: next(now, namespace, content) }
}

fn next(now: Timestamp, namespace: &Namespace, content: &Content) -> Next {
    if !content.errors.is_empty() {
        return Next::Fail(content.errors.iter().chain(&content.stale).cloned().collect::<Vec<_>>().join(", "));
    }
    let began = namespace.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0);
    let passed = Duration::try_from(now.duration_since(began)).unwrap_or_default();
    if content.remaining.is_empty() {
        // What a foreign API server has in here is not known while it does not answer. It gets time to come back, but
        // one that has gone for good must not hold every namespace for ever, as it does upstream.
        return if content.stale.is_empty() || passed >= STALE_PATIENCE {
            Next::Finalize
        } else {
            Next::Wait(STALE_PATIENCE.saturating_sub(passed).min(STALE_WAIT_MAX))
        };
    }
    let estimate = content.remaining.iter().map(|remaining| match remaining.grace_seconds {
        0 => FINALIZER_SECONDS,
        seconds => seconds,
    });
    // Looks soon at first, then less often, and not more often than upstream in the end.
    let longest = Duration::from_secs(estimate.max().unwrap_or(0).unsigned_abs() / 2 + 1);
    Next::Wait((passed / 2).clamp(WAIT_MIN, longest))
}

/// Sets a condition; the time is that of the last change of its status.
fn set(conditions: &mut Vec<NamespaceCondition>, mut wanted: NamespaceCondition, now: Timestamp) {
    // Objects carry whole seconds.
    wanted.last_transition_time = Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now)));
    let Some(found) = conditions.iter_mut().find(|condition| condition.type_ == wanted.type_) else {
        conditions.push(wanted);
        return;
    };
    if found.status == wanted.status {
        wanted.last_transition_time = found.last_transition_time.clone();
    }
    *found = wanted;
}

/// The five conditions as this pass found them, in upstream's order.
fn wanted(namespace: &str, content: &Content) -> [NamespaceCondition; 5] {
    let stale = content.stale.iter().map(|group| format!("{group}: stale GroupVersion discovery: {group}"));
    let stale: Vec<String> = stale.collect();
    let discovery = (!stale.is_empty()).then(|| {
        let failed = format!("unable to retrieve the complete list of server APIs: {}", stale.join(", "));
        ("DiscoveryFailed", format!("Discovery failed for some groups, 1 failing: {failed}"))
    });
    let mut errors = content.errors.clone();
    let unexpected = content.remaining.iter().filter(|one| one.free > 0 && one.grace_seconds == 0);
    errors.extend(
        unexpected.map(|one| {
            format!("unexpected items still remain in namespace: {namespace} for resource: {}", one.resource)
        }),
    );
    let failed = (!errors.is_empty()).then(|| {
        let message = format!("Failed to delete all resource types, {} remaining: {}", errors.len(), errors.join(", "));
        ("ContentDeletionFailed", message)
    });
    let counts: Vec<String> = content.remaining.iter().map(instances).collect();
    let remaining = (!counts.is_empty())
        .then(|| ("SomeResourcesRemain", format!("Some resources are remaining: {}", counts.join(", "))));
    let mut holds: BTreeMap<&str, usize> = BTreeMap::new();
    for (finalizer, count) in content.remaining.iter().flat_map(|remaining| &remaining.finalizers) {
        *holds.entry(finalizer).or_default() += count;
    }
    let holds: Vec<String> =
        holds.iter().map(|(name, count)| format!("{name} in {count} resource instances")).collect();
    let held = (!holds.is_empty()).then(|| {
        let message = format!("Some content in the namespace has finalizers remaining: {}", holds.join(", "));
        ("SomeFinalizersRemain", message)
    });
    [
        condition(
            "NamespaceDeletionDiscoveryFailure",
            discovery,
            ("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        condition(
            "NamespaceDeletionContentFailure",
            failed,
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        condition("NamespaceContentRemaining", remaining, ("ContentRemoved", "All content successfully removed")),
        condition(
            "NamespaceFinalizersRemaining",
            held,
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ),
    ]
}

fn instances(remaining: &Remaining) -> String {
    format!("{} has {} resource instances", remaining.resource, remaining.count)
}

fn condition(kind: &str, wrong: Option<(&str, String)>, fine: (&str, &str)) -> NamespaceCondition {
    let (status, reason, message) = match wrong {
        Some((reason, message)) => ("True", reason, message),
        None => ("False", fine.0, fine.1.to_string()),
    };
    NamespaceCondition {
        type_: kind.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_transition_time: None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::NamespaceSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn ending() -> Namespace {
        let metadata =
            ObjectMeta { name: Some("a".into()), deletion_timestamp: Some(Time(at(0))), ..ObjectMeta::default() };
        let spec = Some(NamespaceSpec { finalizers: Some(vec!["kubernetes".into(), "other".into()]) });
        Namespace { metadata, spec, status: None }
    }

    fn held() -> Content {
        let finalizers = BTreeMap::from([("a.b/c".to_string(), 1)]);
        let remaining =
            vec![Remaining { resource: "configmaps.".into(), count: 1, finalizers, ..Remaining::default() }];
        Content { remaining, ..Content::default() }
    }

    fn texts(status: &NamespaceStatus) -> Vec<String> {
        let conditions = status.conditions.iter().flatten();
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        conditions.map(|one| format!("{} {} {}", one.status, text(&one.reason), text(&one.message))).collect()
    }

    #[test]
    fn conditions_say_what_is_left() {
        let status = decide(at(1), &ending(), &held()).status.unwrap();
        assert_eq!(
            texts(&status),
            [
                "False ResourcesDiscovered All resources successfully discovered",
                "False ParsedGroupVersions All legacy kube types successfully parsed",
                "False ContentDeleted All content successfully deleted, may be waiting on finalization",
                "True SomeResourcesRemain Some resources are remaining: configmaps. has 1 resource instances",
                "True SomeFinalizersRemain Some content in the namespace has finalizers remaining: a.b/c in 1 resource instances",
            ]
        );
        assert_eq!(status.phase.as_deref(), Some("Terminating"));
    }

    #[test]
    fn the_same_findings_are_written_once() {
        let mut namespace = ending();
        namespace.status = decide(at(1), &namespace, &held()).status;
        assert!(decide(at(9), &namespace, &held()).status.is_none());
        let status = decide(at(9), &namespace, &Content::default()).status.unwrap();
        let times: Vec<i64> = status
            .conditions
            .iter()
            .flatten()
            .map(|one| one.last_transition_time.as_ref().unwrap().0.as_second() - 1_000_000)
            .collect();
        assert_eq!(times, [1, 1, 1, 9, 9]);
    }

    #[test]
    fn what_comes_next() {
        let check = |seconds: i64, content: Content, expected: Next| {
            assert_eq!(decide(at(seconds), &ending(), &content).next, expected);
        };
        check(0, Content::default(), Next::Finalize);
        check(0, held(), Next::Wait(Duration::from_millis(200)));
        check(4, held(), Next::Wait(Duration::from_secs(2)));
        check(100, held(), Next::Wait(Duration::from_secs(8)));
        let pods = Remaining { resource: "pods.".into(), count: 1, free: 1, grace_seconds: 30, ..Remaining::default() };
        check(100, Content { remaining: vec![pods], ..Content::default() }, Next::Wait(Duration::from_secs(16)));
        check(0, Content { errors: vec!["broken".into()], ..held() }, Next::Fail("broken".into()));
        let stale = || Content { stale: vec!["g/v1".into()], ..Content::default() };
        check(0, stale(), Next::Wait(Duration::from_secs(5)));
        check(18, stale(), Next::Wait(Duration::from_secs(2)));
        check(20, stale(), Next::Finalize);
        check(20, Content { stale: stale().stale, ..held() }, Next::Wait(Duration::from_secs(8)));
        check(20, Content { errors: vec!["broken".into()], ..stale() }, Next::Fail("broken, g/v1".into()));
    }

    #[test]
    fn only_our_hold_is_taken_away() {
        assert!(is_ending(&ending()));
        let finalized = finalized(&ending());
        assert_eq!(finalized.spec.as_ref().unwrap().finalizers.as_deref(), Some(&["other".to_string()][..]));
        assert!(!is_ending(&finalized));
    }
}
