//! Amounts of resources, and what a pod asks for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use machinery::quantity::Quantity;

/// What upstream assumes for scores when a container asks for nothing: a tenth of a core, 200 MB.
const ASSUMED_MILLI_CPU: i64 = 100;
const ASSUMED_MEMORY: i64 = 200 * 1024 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    pub pods: i64,
    /// Extended resources, hugepages: few, sorted by name.
    pub other: Vec<(String, i64)>,
}

impl Resources {
    pub fn from_list<'a>(list: impl IntoIterator<Item = (&'a String, &'a Written)>) -> Resources {
        let mut resources = Resources::default();
        for (name, quantity) in list {
            let Ok(quantity) = Quantity::parse(&quantity.0) else { continue };
            match name.as_str() {
                "cpu" => resources.milli_cpu = quantity.milli_value(),
                "memory" => resources.memory = quantity.value(),
                "ephemeral-storage" => resources.ephemeral_storage = quantity.value(),
                "pods" => resources.pods = quantity.value(),
                _ => resources.set_other(name, quantity.value()),
            }
        }
        resources
    }

    pub fn other(&self, name: &str) -> i64 {
        self.other.iter().find(|(other, _)| other == name).map_or(0, |(_, amount)| *amount)
    }

    pub(crate) fn set_other(&mut self, name: &str, amount: i64) {
        match self.other.binary_search_by(|(other, _)| other.as_str().cmp(name)) {
            Ok(place) => self.other[place].1 = amount,
            Err(place) => self.other.insert(place, (name.to_owned(), amount)),
        }
    }

    pub fn add(&mut self, more: &Resources) {
        self.milli_cpu = self.milli_cpu.saturating_add(more.milli_cpu);
        self.memory = self.memory.saturating_add(more.memory);
        self.ephemeral_storage = self.ephemeral_storage.saturating_add(more.ephemeral_storage);
        self.pods = self.pods.saturating_add(more.pods);
        for (name, amount) in &more.other {
            self.set_other(name, self.other(name).saturating_add(*amount));
        }
    }

    pub fn subtract(&mut self, less: &Resources) {
        self.milli_cpu -= less.milli_cpu;
        self.memory -= less.memory;
        self.ephemeral_storage -= less.ephemeral_storage;
        self.pods -= less.pods;
        for (name, amount) in &less.other {
            self.set_other(name, self.other(name) - amount);
        }
    }

    /// Each the larger of both.
    pub(crate) fn raise_to(&mut self, than: &Resources) {
        self.milli_cpu = self.milli_cpu.max(than.milli_cpu);
        self.memory = self.memory.max(than.memory);
        self.ephemeral_storage = self.ephemeral_storage.max(than.ephemeral_storage);
        for (name, amount) in &than.other {
            self.set_other(name, self.other(name).max(*amount));
        }
    }
}

/// What the pod asks for, as `kubectl describe node` sums it up.
pub fn requests(pod: &Pod) -> Resources {
    asked(pod, &own_requests)
}

/// The same with the assumed least.
pub fn assumed_requests(pod: &Pod) -> Resources {
    asked(pod, &|container| {
        let listed = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let names = |name: &str| listed.is_some_and(|listed| listed.contains_key(name));
        let mut own = own_requests(container);
        if !names("cpu") {
            own.milli_cpu = ASSUMED_MILLI_CPU;
        }
        if !names("memory") {
            own.memory = ASSUMED_MEMORY;
        }
        own
    })
}

fn own_requests(container: &Container) -> Resources {
    let listed = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    listed.map(Resources::from_list).unwrap_or_default()
}

fn asked(pod: &Pod, of: &dyn Fn(&Container) -> Resources) -> Resources {
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let allocated = allocated(pod);
    let mut running = Resources::default();
    for container in &spec.containers {
        let mut own = of(container);
        // While a resize is not yet done, the larger of the wish and what the node has given counts.
        if let Some(allocated) = allocated.get(container.name.as_str()) {
            own.raise_to(allocated);
        }
        running.add(&own);
    }
    // Init containers run one after the other, beside the sidecars that were started before them.
    let (mut sidecars, mut peak) = (Resources::default(), Resources::default());
    for container in spec.init_containers.iter().flatten() {
        let own = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&own);
            peak.raise_to(&sidecars);
        } else {
            let mut together = sidecars.clone();
            together.add(&own);
            peak.raise_to(&together);
        }
    }
    running.add(&sidecars);
    running.raise_to(&peak);
    // Requests of the pod as a whole stand for those of its containers.
    if let Some(whole) = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()) {
        let listed = Resources::from_list(whole);
        let given = |name: &str| whole.contains_key(name);
        if given("cpu") {
            running.milli_cpu = listed.milli_cpu;
        }
        if given("memory") {
            running.memory = listed.memory;
        }
        listed.other.iter().for_each(|(name, amount)| running.set_other(name, *amount));
    }
    if let Some(overhead) = &spec.overhead {
        running.add(&Resources::from_list(overhead));
    }
    running
}

fn allocated(pod: &Pod) -> BTreeMap<&str, Resources> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let allocated = statuses.filter_map(|status| {
        let listed = status.allocated_resources.as_ref()?;
        Some((status.name.as_str(), Resources::from_list(listed)))
    });
    allocated.collect()
}
