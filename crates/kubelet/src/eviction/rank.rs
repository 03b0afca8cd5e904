//! Ranks pods for eviction, and builds the eviction message. Pure; order and messages are upstream's.

use std::cmp::Ordering;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use machinery::quantity::{Format, Quantity};

use super::threshold::{Observation, Signal, Threshold};
use crate::node::mirror::{is_mirror, is_static};
use crate::stats::is_local_ephemeral;
use crate::stats::types::PodStats;

/// Pods of this priority and above keep the cluster itself going.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// What a pod uses of whatever is short, when it is known, and what it asked for.
pub struct Candidate {
    pub pod: Arc<Pod>,
    pub stats: Option<PodStats>,
}

/// Pods without which the node or the cluster does not work are never evicted.
pub(crate) fn is_critical(pod: &Pod) -> bool {
    is_static(pod) || is_mirror(pod) || priority(pod) >= CRITICAL_PRIORITY
}

/// Puts the pod that must go first at the front. `images_apart` says that writable layers lie on a disk of their own.
pub fn rank(candidates: &mut [Candidate], signal: Signal, images_apart: bool) {
    let usage = |candidate: &Candidate| usage(candidate, signal, images_apart);
    let request = |candidate: &Candidate| request(&candidate.pod, signal.resource());
    let exceeds = |candidate: &Candidate| usage(candidate).is_none_or(|usage| usage > request(candidate));
    candidates.sort_by(|a, b| {
        let by_priority = || priority(&a.pod).cmp(&priority(&b.pod));
        // Pods of which nothing is known go first: nobody can say that they are innocent.
        let by_usage = || match (usage(a), usage(b)) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a_uses), Some(b_uses)) => (b_uses - request(b)).cmp(&(a_uses - request(a))),
        };
        match signal {
            Signal::Pids => by_priority().then_with(by_usage),
            _ => exceeds(b).cmp(&exceeds(a)).then_with(by_priority).then_with(by_usage),
        }
    });
}

/// `The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using ...`
pub fn message(threshold: &Threshold, seen: Option<&Observation>, candidate: &Candidate) -> String {
    let resource = threshold.signal.resource();
    let mut text = format!("The node was low on resource: {resource}. ");
    if let Some(seen) = seen {
        let available = Quantity::from_int(seen.available, Format::BinarySi);
        text += &format!("Threshold quantity: {}, available: {available}. ", threshold.quantity(seen.capacity));
    }
    let containers = candidate.stats.iter().flat_map(|stats| &stats.containers);
    for container in containers {
        let used = match resource {
            "memory" => container.memory.working_set_bytes,
            "ephemeral-storage" => {
                Some(container.rootfs.used_bytes.unwrap_or(0) + container.logs.used_bytes.unwrap_or(0))
            }
            _ => None,
        };
        let asked = containers_of(&candidate.pod).find(|it| it.name == container.name);
        let asked = asked.map_or(Quantity::ZERO, |it| amount(it, "requests", resource).unwrap_or(Quantity::ZERO));
        let Some(used) = used.and_then(|used| i64::try_from(used).ok()) else { continue };
        if used > asked.value() {
            let used = Quantity::from_int(used, Format::BinarySi);
            text += &format!(
                "Container {} was using {used}, request is {asked}, has larger consumption of {resource}. ",
                container.name
            );
        }
    }
    text
}

/// What a container asks for or may use at most of a resource.
pub fn amount(container: &Container, which: &str, resource: &str) -> Option<Quantity> {
    let resources = container.resources.as_ref()?;
    let amounts = if which == "limits" { &resources.limits } else { &resources.requests };
    Quantity::parse(&amounts.as_ref()?.get(resource)?.0).ok()
}

pub fn containers_of(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
    init.chain(spec.into_iter().flat_map(|spec| &spec.containers))
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

fn usage(candidate: &Candidate, signal: Signal, images_apart: bool) -> Option<i64> {
    let stats = candidate.stats.as_ref()?;
    let value = match signal {
        Signal::Memory | Signal::AllocatableMemory => stats.memory.working_set_bytes?,
        Signal::Pids => stats.process_stats?.count,
        disk => {
            let bytes = disk.resource() != "inodes";
            let of =
                |fs: &crate::stats::types::FsStats| if bytes { fs.used_bytes } else { fs.inodes_used }.unwrap_or(0);
            let images = matches!(
                disk,
                Signal::ImageFs | Signal::ImageFsInodes | Signal::ContainerFs | Signal::ContainerFsInodes
            );
            let layers: u64 = stats.containers.iter().map(|it| of(&it.rootfs)).sum();
            let logs: u64 = stats.containers.iter().map(|it| of(&it.logs)).sum();
            let volumes = stats.volumes.iter().filter(|it| is_local_ephemeral(&candidate.pod, &it.name));
            let local = logs + volumes.map(|it| of(&it.fs)).sum::<u64>();
            match (images_apart, images) {
                (false, _) => layers + local,
                (true, true) => layers,
                (true, false) => local,
            }
        }
    };
    i64::try_from(value).ok()
}

/// What the whole pod asked for: its containers together or its largest init container, and what running it costs.
fn request(pod: &Pod, resource: &str) -> i64 {
    let Some(spec) = &pod.spec else { return 0 };
    let of = |container: &Container| amount(container, "requests", resource).map_or(0, |amount| amount.value());
    let containers: i64 = spec.containers.iter().map(of).sum();
    let (mut sidecars, mut init_max) = (0, 0);
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars += of(container);
            init_max = init_max.max(sidecars);
        } else {
            init_max = init_max.max(sidecars + of(container));
        }
    }
    let overhead = spec.overhead.as_ref().and_then(|overhead| Quantity::parse(&overhead.get(resource)?.0).ok());
    (containers + sidecars).max(init_max) + overhead.map_or(0, |overhead| overhead.value())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::stats::types::{ContainerStats, FsStats, MemoryStats, ProcessStats};

    fn candidate(name: &str, priority: i32, request: &str, uses: Option<u64>) -> Candidate {
        let pod = json!({
            "metadata": { "name": name },
            "spec": {
                "priority": priority,
                "containers": [{ "name": "c", "resources": { "requests": { "memory": request, "ephemeral-storage": request } } }],
            },
        });
        let stats = uses.map(|uses| PodStats {
            memory: MemoryStats { working_set_bytes: Some(uses), ..Default::default() },
            process_stats: Some(ProcessStats { count: uses }),
            containers: vec![ContainerStats {
                name: "c".into(),
                memory: MemoryStats { working_set_bytes: Some(uses), ..Default::default() },
                rootfs: FsStats { used_bytes: Some(uses), ..Default::default() },
                ..Default::default()
            }],
            ..Default::default()
        });
        Candidate { pod: Arc::new(serde_json::from_value(pod).unwrap()), stats }
    }

    fn order(mut candidates: Vec<Candidate>, signal: Signal) -> Vec<String> {
        rank(&mut candidates, signal, false);
        candidates.iter().map(|it| it.pod.metadata.name.clone().unwrap()).collect()
    }

    #[test]
    fn over_request_then_priority_then_how_much_over() {
        let candidates = || {
            vec![
                candidate("within", 0, "100", Some(90)),
                candidate("over-important", 10, "100", Some(900)),
                candidate("over-little", 0, "100", Some(150)),
                candidate("over-much", 0, "10", Some(140)),
                candidate("unknown", 0, "100", None),
            ]
        };
        let memory = ["unknown", "over-much", "over-little", "over-important", "within"];
        assert_eq!(order(candidates(), Signal::Memory), memory);
        assert_eq!(order(candidates(), Signal::NodeFs), memory);
        let pids = ["unknown", "over-little", "over-much", "within", "over-important"];
        assert_eq!(order(candidates(), Signal::Pids), pids, "nobody asks for processes");
    }

    #[test]
    fn what_an_evicted_pod_is_told() {
        let threshold = Threshold { signal: Signal::Memory, limit: "100Mi".into(), grace: None, minimum_reclaim: None };
        let seen = Observation { available: 50 << 20, capacity: 1 << 30 };
        let over = candidate("p", 0, "1Ki", Some(3 << 20));
        let expected = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 3Mi, request is 1Ki, has larger consumption of memory. ";
        assert_eq!(message(&threshold, Some(&seen), &over), expected);
        let disk = Threshold { signal: Signal::NodeFs, limit: "10%".into(), ..threshold };
        let seen = Observation { available: 1 << 10, capacity: 10 << 20 };
        let expected = "The node was low on resource: ephemeral-storage. Threshold quantity: 1Mi, available: 1Ki. ";
        assert_eq!(message(&disk, Some(&seen), &candidate("p", 0, "5Mi", Some(1))), expected);
    }

    #[test]
    fn critical_pods() {
        assert!(is_critical(&candidate("p", CRITICAL_PRIORITY, "1", None).pod));
        assert!(!is_critical(&candidate("p", CRITICAL_PRIORITY - 1, "1", None).pod));
    }
}
