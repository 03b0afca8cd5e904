//! Allocates devices to a container. Pure; messages are upstream's.

use super::state::{Ids, State};
use crate::managers::Mask;

/// Why a container gets no devices.
#[derive(Debug, thiserror::Error)]
pub enum AllocateError {
    #[error("pod {uid:?} container {container:?} changed request for resource {resource:?} from {before} to {now}")]
    Changed { uid: String, container: String, resource: String, before: usize, now: usize },
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    Unhealthy(String),
    #[error("previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}")]
    NoLongerHealthy(String),
    #[error("requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}")]
    Unavailable { resource: String, requested: usize, available: usize },
    #[error("unknown Device Plugin {0}")]
    UnknownPlugin(String),
    #[error("device plugin GetPreferredAllocation rpc failed with err: {0}")]
    Preferred(#[source] devices::Error),
    #[error("{0}")]
    Allocate(#[source] devices::Error),
    #[error("no containers return in allocation response of {0}")]
    Empty(String),
    #[error("no devices found allocated in local cache for pod {uid}, container {container}, resource {resource}")]
    NoneAllocated { uid: String, container: String, resource: String },
    #[error("device plugin PreStartContainer rpc failed with err: {0}")]
    PreStart(#[source] devices::Error),
    #[error("failed to write checkpoint file \"kubelet_internal_checkpoint\": {0}")]
    Checkpoint(#[source] std::io::Error),
}

/// Who wants how many of what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub uid: &'a str,
    pub container: &'a str,
    pub resource: &'a str,
    pub count: usize,
}

/// What is left to be decided.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The container has its devices.
    Nothing,
    /// These it gets in any case, because init containers had them; as many more come from those that are available.
    From { taken: Ids, available: Ids },
}

pub(super) fn look(state: &State, wanted: Wanted, reusable: &Ids) -> Result<Choice, AllocateError> {
    let Wanted { uid, container, resource, count } = wanted;
    let name = || resource.to_owned();
    let had = state.ids(uid, container, resource);
    if let Some(had) = had.as_ref().filter(|had| had.len() != count) {
        return Err(AllocateError::Changed {
            uid: uid.to_owned(),
            container: container.to_owned(),
            resource: name(),
            before: had.len(),
            now: count,
        });
    }
    let entry = state.resources.get(resource);
    // It was taken in before this kubelet started, and its plugin has not come back yet: it keeps what it has.
    if had.is_some() && entry.is_none_or(|entry| !entry.was_connected) {
        return Ok(Choice::Nothing);
    }
    let healthy = entry.ok_or_else(|| AllocateError::Unregistered(name()))?.healthy();
    if healthy.is_empty() {
        return Err(AllocateError::Unhealthy(name()));
    }
    if let Some(had) = had {
        return if had.is_subset(&healthy) { Ok(Choice::Nothing) } else { Err(AllocateError::NoLongerHealthy(name())) };
    }
    let taken: Ids = reusable.iter().take(count).cloned().collect();
    let available: Ids = healthy.difference(&state.in_use(resource)).cloned().collect();
    if available.len() < count - taken.len() {
        let requested = count - taken.len();
        return Err(AllocateError::Unavailable { resource: name(), requested, available: available.len() });
    }
    Ok(Choice::From { taken, available })
}

/// What a container gets in any case, what its plugin may choose from, and in which order the rest is taken.
pub(super) struct Offer {
    pub must: Ids,
    pub from: Ids,
    then: Vec<Ids>,
}

/// Devices near the wanted memory nodes come first: where there are more of them than needed the plugin chooses among them, and where there
/// are fewer all of them are taken.
pub(super) fn offer(state: &State, wanted: Wanted, taken: Ids, available: Ids, near: Option<Mask>) -> Offer {
    let devices = state.resources.get(wanted.resource).map(|entry| &entry.devices);
    let nodes =
        |id: &String| devices.and_then(|devices| devices.get(id)).map(|device| &*device.nodes).unwrap_or_default();
    let Some(mask) = near else { return Offer { must: taken, then: vec![available.clone()], from: available } };
    let numbers = |id: &String| nodes(id).iter().filter_map(|node| usize::try_from(*node).ok()).collect::<Vec<_>>();
    let (with, without): (Ids, Ids) = available.iter().cloned().partition(|id| !nodes(id).is_empty());
    let (aligned, others): (Ids, Ids) = with.into_iter().partition(|id| mask.has_any(numbers(id).into_iter()));
    if wanted.count.saturating_sub(taken.len()) < aligned.len() {
        return Offer { must: taken, then: vec![aligned.clone()], from: aligned };
    }
    Offer { must: taken.union(&aligned).cloned().collect(), from: available, then: vec![others, without] }
}

/// Takes what the plugin prefers, then the others in order. What it prefers beyond what is available does not count.
pub(super) fn fill(offer: Offer, preferred: &[String], count: usize) -> Ids {
    let mut taken = offer.must;
    let preferred = preferred.iter().filter(|id| offer.from.contains(*id));
    for id in preferred.chain(offer.then.iter().flatten()) {
        if taken.len() >= count {
            break;
        }
        taken.insert(id.clone());
    }
    taken
}

#[cfg(test)]
mod tests {
    use devices::v1beta1::ContainerAllocateResponse;
    use tokio::time::Instant;

    use super::super::state::tests::{connected, device};
    use super::*;

    fn ids(names: &[&str]) -> Ids {
        names.iter().map(|name| name.to_string()).collect()
    }

    fn wanted(uid: &'static str, count: usize) -> Wanted<'static> {
        Wanted { uid, container: "c", resource: "x.test/r", count }
    }

    fn check(state: &State, wanted: Wanted, expected: Result<Choice, &str>) {
        let found = look(state, wanted, &Ids::new()).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[tokio::test]
    async fn devices_are_given_once() {
        let now = Instant::now();
        let mut state = State::default();
        check(&state, wanted("u", 1), Err("cannot allocate unregistered device x.test/r"));
        state.connect("x.test/r", connected(1), now);
        state.list("x.test/r", 1, vec![device("a", false)]);
        let unhealthy = "no healthy devices present; cannot allocate unhealthy devices x.test/r";
        check(&state, wanted("u", 1), Err(unhealthy));
        state.list("x.test/r", 1, vec![device("a", true), device("b", true), device("c", true)]);
        check(&state, wanted("u", 1), Ok(Choice::From { taken: ids(&[]), available: ids(&["a", "b", "c"]) }));
        state.reserve("x.test/r", &ids(&["b"]));
        state.commit("u", "c", "x.test/r", &ids(&["a"]), ContainerAllocateResponse::default());
        check(&state, wanted("v", 1), Ok(Choice::From { taken: ids(&[]), available: ids(&["c"]) }));
        let short = "requested number of devices unavailable for x.test/r. Requested: 2, Available: 1";
        check(&state, wanted("v", 2), Err(short));
        check(&state, wanted("u", 1), Ok(Choice::Nothing));
        let changed = "pod \"u\" container \"c\" changed request for resource \"x.test/r\" from 1 to 2";
        check(&state, wanted("u", 2), Err(changed));
        state.list("x.test/r", 1, vec![device("a", false), device("b", true)]);
        let sick = "previously allocated devices are no longer healthy; cannot allocate unhealthy devices x.test/r";
        check(&state, wanted("u", 1), Err(sick));
        state.release("x.test/r", &ids(&["b"]));
        let reused = look(&state, Wanted { container: "d", ..wanted("u", 2) }, &ids(&["a"])).unwrap();
        assert_eq!(reused, Choice::From { taken: ids(&["a"]), available: ids(&["b"]) });

        // After a restart it keeps what it has, whether or not the plugin is back.
        let restored = State::restored(state.pods.clone(), vec!["x.test/r".into()], now);
        check(&restored, wanted("u", 1), Ok(Choice::Nothing));
        check(&restored, wanted("v", 1), Err(unhealthy));
    }

    #[test]
    fn what_a_plugin_prefers_comes_first() {
        let preferred = ["c".to_owned(), "stolen".to_owned()];
        let filled = |taken: &[&str], count| {
            let available = ids(&["a", "b", "c"]);
            let offer = offer(&State::default(), wanted("u", count), ids(taken), available, None);
            fill(offer, &preferred, count)
        };
        assert_eq!(filled(&["r"], 3), ids(&["r", "c", "a"]));
        assert_eq!(filled(&[], 1), ids(&["c"]));
        assert_eq!(filled(&["r"], 1), ids(&["r"]));
    }

    #[tokio::test]
    async fn devices_near_the_wanted_nodes_come_first() {
        let mut state = State::default();
        state.connect("x.test/r", connected(1), Instant::now());
        let near = |id: &str, node: i64| devices::v1beta1::Device {
            topology: Some(devices::v1beta1::TopologyInfo { nodes: vec![devices::v1beta1::NumaNode { id: node }] }),
            ..device(id, true)
        };
        state.list("x.test/r", 1, vec![device("a", true), near("b", 0), near("c", 1), near("d", 1), near("e", 1)]);
        let filled = |count, preferred: &[String]| {
            let available = ids(&["a", "b", "c", "d", "e"]);
            fill(offer(&state, wanted("u", count), ids(&[]), available, Some(Mask::of([1]))), preferred, count)
        };
        assert_eq!(filled(1, &[]), ids(&["c"]));
        assert_eq!(filled(1, &["a".to_owned(), "e".to_owned()]), ids(&["e"]), "of those that are near");
        assert_eq!(
            filled(4, &[]),
            ids(&["b", "c", "d", "e"]),
            "those that are near others come before those near none"
        );
        assert_eq!(filled(4, &["a".to_owned()]), ids(&["a", "c", "d", "e"]), "but the plugin has the choice");
    }
}
