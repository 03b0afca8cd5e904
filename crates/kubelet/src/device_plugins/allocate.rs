//! Gives the containers of a pod their devices: chosen here, confirmed by their plugins, and on disk before anybody hears of it.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::choose::{self, AllocateError, Choice, Offer, Wanted};
use super::container::{self, Options};
use super::state::{Connected, Ids, State};
use super::{DevicePlugins, state};
use crate::managers::Mask;
use crate::pod::{spec, totals};

/// Devices that a pod's init containers had, by resource: later containers get them first.
pub(crate) type Reusable = BTreeMap<String, Ids>;

impl DevicePlugins {
    /// Whether anything of this pod is for plugins to give.
    pub(crate) fn concern(&self, pod: &Pod) -> bool {
        let mut containers = spec::init_containers(pod).chain(spec::regular_containers(pod));
        containers.any(|container| !self.wanted(pod, container).is_empty())
    }

    /// Resources that plugins give. What pods request of them is counted here, not beside processors and memory.
    pub(crate) fn resources(&self) -> std::collections::BTreeSet<String> {
        self.state.lock().known()
    }

    /// Only these pods have any; unknown until the API has said which there are.
    pub(crate) fn retain(&self, active: Option<&HashSet<String>>) {
        if let Some(active) = active {
            self.state.lock().retain(active);
        }
    }

    /// Gives a container of a pod that the node takes its devices, near these memory nodes where it says so. Containers come in the order in
    /// which they run: `reusable` is what those before have left.
    pub(crate) async fn allocate(
        &self,
        pod: &Pod,
        container: &Container,
        reusable: &mut Reusable,
        near: Option<Mask>,
    ) -> Result<(), AllocateError> {
        self.allocate_container(pod, container, reusable, near).await?;
        let is_init = spec::init_containers(pod).any(|init| init.name == container.name);
        for (resource, ids) in self.had(spec::uid(pod), &container.name) {
            let entry = reusable.entry(resource).or_default();
            if is_init && !spec::is_sidecar(container) {
                entry.extend(ids)
            } else {
                // It keeps them beside the others.
                entry.retain(|id| !ids.contains(id))
            }
        }
        Ok(())
    }

    /// The node does not take the pod after all: what some of its containers got is free.
    pub(crate) fn forget(&self, uid: &str) {
        self.state.lock().pods.remove(uid);
    }

    /// What a container that is about to be made gets. Its plugins hear of it before, where they asked to.
    pub(crate) async fn container(&self, pod: &Pod, container: &Container) -> Result<Options, AllocateError> {
        let uid = spec::uid(pod);
        let wanted = self.wanted(pod, container);
        let missing = wanted.keys().any(|resource| self.state.lock().ids(uid, &container.name, resource).is_none());
        if missing {
            // The pod was taken by a kubelet that did not know of its devices yet.
            self.allocate_container(pod, container, &Reusable::new(), None).await?;
        }
        for resource in wanted.keys() {
            self.pre_start(uid, &container.name, resource).await?;
        }
        let state = self.state.lock();
        Ok(state.of_container(uid, &container.name).map(container::options).unwrap_or_default())
    }

    async fn pre_start(&self, uid: &str, container: &str, resource: &str) -> Result<(), AllocateError> {
        let Some(connected) = self.connected(resource).filter(|connected| connected.options.pre_start_required) else {
            return Ok(());
        };
        let ids = self.state.lock().ids(uid, container, resource);
        let ids = ids.ok_or_else(|| AllocateError::NoneAllocated {
            uid: uid.to_owned(),
            container: container.to_owned(),
            resource: resource.to_owned(),
        })?;
        connected.plugin.pre_start(ids.into_iter().collect()).await.map_err(AllocateError::PreStart)
    }

    async fn allocate_container(
        &self,
        pod: &Pod,
        container: &Container,
        reusable: &Reusable,
        near: Option<Mask>,
    ) -> Result<(), AllocateError> {
        let mut is_new = false;
        for (resource, count) in self.wanted(pod, container) {
            let wanted = Wanted { uid: spec::uid(pod), container: &container.name, resource: &resource, count };
            let reusable = reusable.get(&resource).cloned().unwrap_or_default();
            is_new |= self.allocate_one(wanted, &reusable, near).await?;
        }
        if is_new {
            self.save().map_err(AllocateError::Checkpoint)?;
        }
        Ok(())
    }

    /// Whether there was anything to do.
    async fn allocate_one(
        &self,
        wanted: Wanted<'_>,
        reusable: &Ids,
        near: Option<Mask>,
    ) -> Result<bool, AllocateError> {
        let look = |state: &State| -> Result<Option<Offer>, AllocateError> {
            Ok(match choose::look(state, wanted, reusable)? {
                Choice::Nothing => None,
                Choice::From { taken, available } => Some(choose::offer(state, wanted, taken, available, near)),
            })
        };
        let Some(offer) = look(&self.state.lock())? else { return Ok(false) };
        let unknown = || AllocateError::UnknownPlugin(wanted.resource.to_owned());
        let connected = self.connected(wanted.resource).ok_or_else(unknown)?;
        let preferred = self.preferred(&connected, wanted, &offer).await?;
        let ids = {
            // Others may have chosen meanwhile: what is available is looked at again, and nobody comes between.
            let mut state = self.state.lock();
            let Some(offer) = look(&state)? else { return Ok(false) };
            let ids = choose::fill(offer, &preferred, wanted.count);
            state.reserve(wanted.resource, &ids);
            ids
        };
        let reservation = Reservation { plugins: self, resource: wanted.resource, ids: &ids };
        let began = tokio::time::Instant::now();
        let answer = connected.plugin.allocate(ids.iter().cloned().collect()).await;
        self.metrics.allocated(wanted.resource, began.elapsed());
        let answer = answer.map_err(AllocateError::Allocate)?;
        let response = answer.ok_or_else(|| AllocateError::Empty(wanted.resource.to_owned()))?;
        self.state.lock().commit(wanted.uid, wanted.container, wanted.resource, &ids, response);
        drop(reservation);
        Ok(true)
    }

    async fn preferred(
        &self,
        connected: &Connected,
        wanted: Wanted<'_>,
        offer: &Offer,
    ) -> Result<Vec<String>, AllocateError> {
        if !connected.options.get_preferred_allocation_available || offer.must.len() >= wanted.count {
            return Ok(Vec::new());
        }
        let offered: Vec<String> = offer.from.union(&offer.must).cloned().collect();
        let size = i32::try_from(wanted.count).unwrap_or(i32::MAX);
        let asked = connected.plugin.preferred(offered, offer.must.iter().cloned().collect(), size);
        asked.await.map_err(AllocateError::Preferred)
    }

    fn connected(&self, resource: &str) -> Option<Connected> {
        self.state.lock().resources.get(resource).and_then(|entry| entry.connected.clone())
    }

    fn had(&self, uid: &str, container: &str) -> Reusable {
        let state = self.state.lock();
        let resources = state.of_container(uid, container).into_iter().flatten();
        resources.map(|(name, allocation)| (name.clone(), state::Allocation::ids(allocation))).collect()
    }

    /// What the container wants of plugins.
    pub(super) fn wanted(&self, pod: &Pod, container: &Container) -> BTreeMap<String, usize> {
        let state = self.state.lock();
        let mut wanted = requests(container);
        wanted.retain(|resource, _| state.knows(resource) && !is_by_claim(pod, &container.name, resource));
        wanted
    }
}

/// Free again, unless the container has them: also when whoever asked has given up waiting for the plugin.
struct Reservation<'a> {
    plugins: &'a DevicePlugins,
    resource: &'a str,
    ids: &'a Ids,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.plugins.state.lock().release(self.resource, self.ids);
    }
}

/// The extended resources that a container is limited to, which for them is what it requests.
fn requests(container: &Container) -> BTreeMap<String, usize> {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let whole = totals::milli(limits).into_iter().map(|(name, amount)| (name, amount / 1000));
    whole
        .filter(|(name, amount)| *amount > 0 && super::is_extended(name))
        .map(|(name, amount)| (name, usize::try_from(amount).unwrap_or(usize::MAX)))
        .collect()
}

/// Extended resources that the scheduler has claimed devices for are a driver's to give, not a plugin's.
fn is_by_claim(pod: &Pod, container: &str, resource: &str) -> bool {
    let status = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    let mut mappings = status.into_iter().flat_map(|status| &status.request_mappings);
    mappings.any(|mapping| mapping.container_name == container && mapping.resource_name == resource)
}
