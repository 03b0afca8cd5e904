//! Pods that write more to the node's disk than they may: limits of emptyDir volumes, of containers, of the pod. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use machinery::quantity::{Format, Quantity};

use super::rank::{amount, containers_of};
use crate::stats::is_local_ephemeral;

const STORAGE: &str = "ephemeral-storage";

/// Bytes on the node's disk, as they were counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskUse {
    /// By the names of volumes.
    pub volumes: BTreeMap<String, u64>,
    /// Writable layer and logs, by the names of containers.
    pub containers: BTreeMap<String, u64>,
}

/// Whether any such limit is set, and so whether it is worth counting.
pub(crate) fn has_limits(pod: &Pod) -> bool {
    empty_dir_limits(pod).next().is_some() || containers_of(pod).any(|it| amount(it, "limits", STORAGE).is_some())
}

/// Why the pod must go; nothing when it keeps to its limits.
pub fn exceeded(pod: &Pod, used: &DiskUse) -> Option<String> {
    for (name, limit) in empty_dir_limits(pod) {
        if used.volumes.get(name).is_some_and(|bytes| whole(*bytes) > limit.value()) {
            return Some(format!("Usage of EmptyDir volume {name:?} exceeds the limit \"{limit}\". "));
        }
    }
    let limits: Vec<Option<Quantity>> = containers_of(pod).map(|it| amount(it, "limits", STORAGE)).collect();
    // A pod is limited as a whole by what its containers may use together.
    let total: i64 = limits.iter().flatten().map(Quantity::value).sum();
    if total > 0 {
        let volumes = used.volumes.iter().filter(|(name, _)| is_local_ephemeral(pod, name)).map(|(_, bytes)| bytes);
        let all: u64 = volumes.chain(used.containers.values()).sum();
        if whole(all) > total {
            let total = Quantity::from_int(total, Format::BinarySi);
            return Some(format!("Pod ephemeral local storage usage exceeds the total limit of containers {total}. "));
        }
    }
    for (container, limit) in containers_of(pod).zip(limits) {
        let Some(limit) = limit else { continue };
        if used.containers.get(&container.name).is_some_and(|bytes| whole(*bytes) > limit.value()) {
            let name = &container.name;
            return Some(format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "));
        }
    }
    None
}

/// A memory-backed volume is a filesystem with that size, which cannot be exceeded.
fn empty_dir_limits(pod: &Pod) -> impl Iterator<Item = (&str, Quantity)> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref()).into_iter().flatten();
    volumes.filter_map(|volume| {
        let empty_dir = volume.empty_dir.as_ref()?;
        let on_disk = empty_dir.medium.as_deref().unwrap_or("").is_empty();
        let limit = Quantity::parse(&empty_dir.size_limit.as_ref()?.0).ok()?;
        (on_disk && limit.sign() > 0).then_some((volume.name.as_str(), limit))
    })
}

fn whole(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(limit: &str, size_limit: &str) -> Pod {
        let limited = |name: &str| json!({ "name": name, "resources": { "limits": { STORAGE: limit } } });
        serde_json::from_value(json!({
            "spec": {
                "containers": [limited("c"), limited("d")],
                "volumes": [{ "name": "x", "emptyDir": { "sizeLimit": size_limit } }, { "name": "y", "emptyDir": {} }],
            },
        }))
        .unwrap()
    }

    fn used(x: u64, y: u64, c: u64) -> DiskUse {
        DiskUse {
            volumes: [("x".to_owned(), x), ("y".to_owned(), y)].into(),
            containers: [("c".to_owned(), c), ("d".to_owned(), 0)].into(),
        }
    }

    #[test]
    fn each_limit_has_its_words() {
        let mebi = 1 << 20;
        let told = |x, y, c| exceeded(&pod("1Mi", "1Mi"), &used(x, y, c)).unwrap_or_default();
        assert_eq!(told(mebi + 1, 0, 0), "Usage of EmptyDir volume \"x\" exceeds the limit \"1Mi\". ");
        assert_eq!(told(mebi, mebi, 0), "");
        let whole_pod = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ";
        assert_eq!(told(mebi, mebi, 1), whole_pod);
        assert_eq!(told(0, 0, mebi + 1), "Container c exceeded its local ephemeral storage limit \"1Mi\". ");
        assert!(has_limits(&pod("1Mi", "0")) && has_limits(&pod("0", "1Mi")));
        let free = json!({ "spec": { "containers": [{ "name": "c" }], "volumes": [{ "name": "x", "emptyDir": {} }] } });
        assert!(!has_limits(&serde_json::from_value(free).unwrap()));
    }
}
