//! Room for a pod without which the node or the cluster does not work: others go for it, as few and as little as possible.

use k8s_openapi::api::core::v1::Pod;

use super::{NodeView, resources};
use crate::eviction::rank::is_critical;
use crate::pod::{spec, totals};
use crate::resources::QosClass;

/// Who must go so that the pod fits. Nothing when nobody may be made to go, or all of them would not be enough.
pub fn victims<'a>(node: &NodeView, pod: &Pod, others: &[&'a Pod]) -> Option<Vec<&'a Pod>> {
    let (mut candidates, mut kept): (Vec<&Pod>, Vec<&Pod>) = others.iter().partition(|other| gives_way(pod, other));
    // The least protected first, and of those the least important, and the largest: it saves the others.
    candidates.sort_by_key(|other| (protection(other), priority(other), -size(other)));
    let mut gone = Vec::new();
    let fits = |kept: &[&Pod], left: &[&Pod]| resources(node, pod, &[kept, left].concat()).is_ok();
    let mut left = candidates.as_slice();
    while !fits(&kept, left) {
        let (first, rest) = left.split_first()?;
        gone.push(*first);
        left = rest;
    }
    kept.extend(left);
    // Whoever turns out not to have been in the way stays, the most protected first.
    for index in (0..gone.len()).rev() {
        if fits(&kept, &gone[index..=index]) {
            kept.push(gone.remove(index));
        }
    }
    Some(gone)
}

/// What is missing, in the words of upstream's message.
pub fn missing(node: &NodeView, pod: &Pod, others: &[&Pod]) -> String {
    let mut text = String::new();
    for (name, requested) in totals::requests(pod) {
        let capacity = node.allocatable.get(&name).copied().unwrap_or(0);
        let used: i128 = others.iter().map(|other| totals::requests(other).get(&name).copied().unwrap_or(0)).sum();
        let short = requested + used - capacity;
        if short > 0 {
            let shown = if name == "cpu" { short } else { short / 1000 };
            text += &format!("(res: {name}, q: {shown}), ");
        }
    }
    format!("[{text}]")
}

fn gives_way(pod: &Pod, other: &Pod) -> bool {
    (is_critical(pod) && !is_critical(other)) || priority(pod) > priority(other)
}

fn protection(pod: &Pod) -> u8 {
    match QosClass::of(pod) {
        QosClass::BestEffort => 0,
        QosClass::Burstable => 1,
        QosClass::Guaranteed => 2,
    }
}

fn priority(pod: &Pod) -> i32 {
    spec::wishes(pod).priority.unwrap_or(0)
}

fn size(pod: &Pod) -> i128 {
    totals::requests(pod).values().sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::node;
    use super::*;

    fn pod(name: &str, cpu: &str, priority: i32) -> Pod {
        let requests = json!({"requests": {"cpu": cpu}});
        let container = json!({"name": "c", "resources": requests});
        let spec = json!({"priority": priority, "containers": [container]});
        serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec})).expect("a pod")
    }

    #[test]
    fn as_few_as_possible_go() {
        const CRITICAL: i32 = 2_000_000_000;
        let roomy = || NodeView {
            allocatable: [("cpu", 2000), ("pods", 9000)].map(|(k, v)| (k.to_owned(), v)).into(),
            ..node()
        };
        let check = |wish: Pod, others: &[Pod], expected: Option<&[&str]>| {
            let others: Vec<&Pod> = others.iter().collect();
            let found = victims(&roomy(), &wish, &others);
            let names = found.map(|all| all.iter().map(|pod| spec::name(pod)).collect::<Vec<_>>());
            assert_eq!(names.as_deref(), expected);
        };
        let critical = || pod("critical", "1", CRITICAL);
        check(critical(), &[pod("a", "1", 0)], Some(&[]));
        check(critical(), &[pod("a", "1500m", 0)], Some(&["a"]));
        // One large enough goes, and the small ones stay.
        check(critical(), &[pod("small", "100m", 0), pod("large", "1", 0), pod("other", "900m", 0)], Some(&["large"]));
        check(critical(), &[pod("more", "1", 10), pod("less", "1", 5)], Some(&["less"]));
        check(critical(), &[pod("own", "1500m", CRITICAL)], None);
        check(pod("plain", "1", 0), &[pod("own", "1500m", 0)], None);
        check(pod("huge", "3", CRITICAL), &[pod("a", "1", 0)], None);
        let (huge, other) = (pod("huge", "3", CRITICAL), pod("a", "1", 0));
        assert_eq!(missing(&roomy(), &huge, &[&other]), "[(res: cpu, q: 2000), ]");
    }
}
