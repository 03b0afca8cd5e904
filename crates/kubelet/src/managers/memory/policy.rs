//! The policy `Static`: gives memory of nodes and takes it back. Pure; messages are upstream's.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use machinery::quantity::{Format, Quantity};

use super::super::has_own_resources;
use super::super::mask::{Hint, Mask};
use super::super::topology::Topology;
use super::{Block, Machine, Node, State, Table};
use crate::pod::spec;
use crate::resources::QosClass;
use crate::resources::amounts::{self, Side};

/// Bytes by resource.
pub(super) type Sizes = BTreeMap<String, u64>;

pub(in super::super) struct Static {
    pub(super) topology: Topology,
    /// For the system, by node.
    pub(super) reserved: BTreeMap<usize, Sizes>,
    /// What init containers of the pod that was looked at last had, by their nodes.
    pub(super) reusable: (String, BTreeMap<Mask, Sizes>),
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(in super::super) enum AllocateError {
    #[error("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")]
    NoDefault,
    #[error("[memorymanager] failed to find the default preferred hint")]
    NoPreferredDefault,
    #[error("[memorymanager] failed to find NUMA nodes to extend the current topology hint")]
    NoExtended,
    #[error("[memorymanager] failed to find the extended preferred hint")]
    NoPreferredExtended,
    #[error("[memorymanager] preferred hint violates NUMA node allocation")]
    Violates,
}

/// Why a kubelet does not start with what is on disk.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StateError {
    #[error("[memorymanager] you should specify the system reserved memory")]
    NothingReserved,
    #[error("[memorymanager] machine state can not be empty when it has memory assignments")]
    EmptyMachine,
    #[error(
        "[memorymanager] (pod: {uid}, container: {container}) the memory assignment uses the NUMA that does not exist"
    )]
    NoSuchNode { uid: String, container: String },
    #[error(
        "[memorymanager] (pod: {uid}, container: {container}) the memory assignment uses memory resource that does not exist"
    )]
    NoSuchResource { uid: String, container: String },
    #[error("[memorymanager] the expected machine state is different from the real one")]
    Different,
}

/// Whether the pod's containers are to have memory of certain nodes.
pub(in super::super) fn pins(pod: &Pod) -> bool {
    QosClass::of(pod) == QosClass::Guaranteed && !has_own_resources(pod)
}

impl Static {
    pub fn new(topology: Topology, reserved: BTreeMap<usize, Sizes>) -> Result<Static, StateError> {
        if reserved.values().filter_map(|node| node.get("memory")).sum::<u64>() == 0 {
            return Err(StateError::NothingReserved);
        }
        Ok(Static { topology, reserved, reusable: Default::default() })
    }

    /// Begins with an empty state, or checks that what is there is of this machine.
    pub fn start(&self, state: &mut State) -> Result<(), StateError> {
        let mut expected = self.machine();
        if state.machine.is_empty() {
            if !state.entries.is_empty() {
                return Err(StateError::EmptyMachine);
            }
            state.machine = expected;
            return Ok(());
        }
        for (uid, containers) in &state.entries {
            for (container, blocks) in containers {
                let names = || (uid.clone(), container.clone());
                for block in blocks {
                    for number in &block.nodes {
                        let (uid, container) = names();
                        let node = expected.get(number).ok_or(StateError::NoSuchNode { uid, container })?;
                        let (uid, container) = names();
                        node.memory_map.get(&block.resource).ok_or(StateError::NoSuchResource { uid, container })?;
                    }
                    give(&mut expected, &block.nodes, &block.resource, block.size);
                }
            }
        }
        if is_same(&state.machine, &expected) { Ok(()) } else { Err(StateError::Different) }
    }

    /// The machine with nothing given to anybody.
    fn machine(&self) -> Machine {
        let node = |(number, memory): (&usize, &super::super::topology::MemoryNode)| {
            let reserved =
                |resource: &str| self.reserved.get(number).and_then(|node| node.get(resource)).copied().unwrap_or(0);
            let table = |resource: &str, total: u64, others: u64| {
                let system_reserved = reserved(resource);
                let allocatable = total.saturating_sub(system_reserved).saturating_sub(others);
                Table { total, system_reserved, allocatable, reserved: 0, free: allocatable }
            };
            let huge = memory.huge_pages.iter().map(|(size, total)| {
                let name = huge_page_resource(*size);
                let table = table(&name, *total, 0);
                (name, table)
            });
            let mut memory_map: BTreeMap<String, Table> = huge.collect();
            let in_huge_pages = memory.huge_pages.values().sum();
            memory_map.insert("memory".to_owned(), table("memory", memory.memory_bytes, in_huge_pages));
            (*number, Node { number_of_assignments: 0, memory_map, cells: vec![*number] })
        };
        self.topology.memory_nodes.iter().map(node).collect()
    }

    pub fn allocate(
        &mut self,
        state: &mut State,
        pod: &Pod,
        container: &Container,
        hint: Hint,
    ) -> Result<(), AllocateError> {
        if !pins(pod) {
            return Ok(());
        }
        let uid = spec::uid(pod);
        if let Some(blocks) = state.of(uid, &container.name).cloned() {
            self.note_reusable(pod, container, &blocks);
            return Ok(());
        }
        let requested = requested(container);
        let mask = self.choose(&state.machine, uid, &requested, hint)?;
        let nodes: Vec<usize> = mask.nodes().collect();
        let mut blocks = Vec::new();
        for (resource, size) in requested {
            let needed = size.saturating_sub(self.reusable_of(uid, mask, &resource));
            give(&mut state.machine, &nodes, &resource, needed);
            blocks.push(Block { nodes: nodes.clone(), resource, size });
        }
        self.note_reusable(pod, container, &blocks);
        state.entries.entry(uid.to_owned()).or_default().insert(container.name.clone(), blocks.clone());
        shrink_init_containers(state, pod, container, &blocks);
        Ok(())
    }

    fn choose(&self, machine: &Machine, uid: &str, requested: &Sizes, hint: Hint) -> Result<Mask, AllocateError> {
        let (mut mask, mut preferred) = (hint.mask, hint.preferred);
        if mask.is_none() {
            let default = self.default_hint(machine, uid, requested).ok_or(AllocateError::NoDefault)?;
            if !default.preferred && preferred {
                return Err(AllocateError::NoPreferredDefault);
            }
            (mask, preferred) = (default.mask, default.preferred);
        }
        let mut mask = mask.ok_or(AllocateError::NoDefault)?;
        if !satisfies(machine, mask, requested) {
            let extended = self.extended_hint(machine, uid, requested, mask).ok_or(AllocateError::NoExtended)?;
            if !extended.preferred && preferred {
                return Err(AllocateError::NoPreferredExtended);
            }
            mask = extended.mask.ok_or(AllocateError::NoExtended)?;
        }
        if violates(machine, mask) { Err(AllocateError::Violates) } else { Ok(mask) }
    }

    pub(super) fn reusable_of(&self, uid: &str, mask: Mask, resource: &str) -> u64 {
        let of_pod = Some(&self.reusable).filter(|(pod, _)| pod == uid);
        of_pod.and_then(|(_, by_mask)| by_mask.get(&mask)?.get(resource)).copied().unwrap_or(0)
    }

    fn note_reusable(&mut self, pod: &Pod, container: &Container, blocks: &[Block]) {
        let uid = spec::uid(pod);
        if self.reusable.0 != uid {
            self.reusable = (uid.to_owned(), BTreeMap::new());
        }
        let ends_before_others =
            spec::init_containers(pod).any(|init| init.name == container.name && !spec::is_sidecar(init));
        for block in blocks {
            let mask = Mask::of(block.nodes.iter().copied());
            let there = self.reusable.1.entry(mask).or_default().entry(block.resource.clone()).or_default();
            *there = if ends_before_others { (*there).max(block.size) } else { there.saturating_sub(block.size) };
        }
    }

    /// Containers that ran before this one starts have ended, and what they have left is free.
    pub fn started(&self, state: &mut State, pod: &Pod, container: &Container) -> bool {
        let before = spec::init_containers(pod).take_while(|init| init.name != container.name);
        let ended: Vec<&Container> = before.filter(|init| !spec::is_sidecar(init)).collect();
        let taken_back = ended.iter().filter(|init| take_back(state, spec::uid(pod), &init.name));
        taken_back.count() > 0
    }

    pub fn retain(&self, state: &mut State, is_active: impl Fn(&str) -> bool) -> bool {
        let gone: Vec<(String, String)> = state
            .entries
            .iter()
            .filter(|(uid, _)| !is_active(uid))
            .flat_map(|(uid, containers)| containers.keys().map(|name| (uid.clone(), name.clone())))
            .collect();
        for (uid, container) in &gone {
            take_back(state, uid, container);
        }
        !gone.is_empty()
    }

    pub fn allocatable(&self, state: &State) -> Vec<Block> {
        let of_node = |(number, node): (&usize, &Node)| {
            let number = *number;
            let tables = node.memory_map.clone().into_iter().filter(|(_, table)| table.allocatable > 0);
            tables.map(move |(resource, table)| Block { nodes: vec![number], resource, size: table.allocatable })
        };
        state.machine.iter().flat_map(of_node).collect()
    }
}

/// Memory and huge pages that a container asks for.
pub(super) fn requested(container: &Container) -> Sizes {
    let requests = amounts::of_container(container, Side::Requests);
    let ours = requests.into_iter().filter(|(name, _)| name == "memory" || name.starts_with("hugepages-"));
    ours.map(|(name, amount)| (name, u64::try_from(amount.value()).unwrap_or(0))).collect()
}

pub(super) fn huge_page_resource(size: u64) -> String {
    let size = Quantity::from_int(i64::try_from(size).unwrap_or(i64::MAX), Format::BinarySi);
    format!("hugepages-{}", size.canonical())
}

/// From the first nodes of the group, as much as each has.
fn give(machine: &mut Machine, nodes: &[usize], resource: &str, size: u64) {
    let mut left = size;
    for number in nodes {
        let Some(node) = machine.get_mut(number) else { continue };
        node.number_of_assignments += 1;
        node.cells = nodes.to_vec();
        let Some(table) = node.memory_map.get_mut(resource) else { continue };
        let taken = left.min(table.free);
        table.reserved += taken;
        table.free -= taken;
        left -= taken;
    }
}

fn take_back(state: &mut State, uid: &str, container: &str) -> bool {
    let Some(containers) = state.entries.get_mut(uid) else { return false };
    let Some(blocks) = containers.remove(container) else { return false };
    if containers.is_empty() {
        state.entries.remove(uid);
    }
    for block in blocks {
        let mut left = block.size;
        for number in &block.nodes {
            let Some(node) = state.machine.get_mut(number) else { continue };
            node.number_of_assignments -= 1;
            if node.number_of_assignments == 0 {
                node.cells = vec![*number];
            }
            let Some(table) = node.memory_map.get_mut(&block.resource) else { continue };
            let freed = left.min(table.reserved);
            table.free += freed;
            table.reserved -= freed;
            left -= freed;
        }
    }
    true
}

/// What a container takes over from init containers that end before it is not theirs any more.
fn shrink_init_containers(state: &mut State, pod: &Pod, container: &Container, blocks: &[Block]) {
    let Some(containers) = state.entries.get_mut(spec::uid(pod)) else { return };
    for block in blocks {
        let mut left = block.size;
        let before = spec::init_containers(pod).take_while(|init| init.name != container.name);
        for init in before.filter(|init| !spec::is_sidecar(init)) {
            let own = containers.get_mut(&init.name).into_iter().flatten();
            for one in own.filter(|one| one.resource == block.resource && one.nodes == block.nodes) {
                let taken = left.min(one.size);
                one.size -= taken;
                left -= taken;
            }
        }
    }
}

pub(super) fn satisfies(machine: &Machine, mask: Mask, requested: &Sizes) -> bool {
    let free = |resource: &str| -> u64 {
        let tables = mask.nodes().filter_map(|number| machine.get(&number)?.memory_map.get(resource));
        tables.map(|table| table.free).sum()
    };
    requested.iter().all(|(resource, size)| free(resource) >= *size)
}

/// Whether the nodes would divide a group that others have.
fn violates(machine: &Machine, mask: Mask) -> bool {
    let given = mask.nodes().filter_map(|number| machine.get(&number)).filter(|node| node.number_of_assignments > 0);
    mask.count() > 1 && given.into_iter().any(|node| node.cells.len() == 1 || !is_group(&node.cells, mask))
}

pub(super) fn is_group(cells: &[usize], mask: Mask) -> bool {
    cells.len() == mask.count() && Mask::of(cells.iter().copied()) == mask
}

/// Within a group it does not matter which node something was taken from.
fn is_same(one: &Machine, other: &Machine) -> bool {
    let groups = |machine: &Machine, cells: &[usize], resource: &str| {
        let tables = cells.iter().filter_map(|number| machine.get(number)?.memory_map.get(resource));
        tables.fold((0, 0), |(free, reserved), table| (free + table.free, reserved + table.reserved))
    };
    let is_same_node = |(number, node): (&usize, &Node)| {
        let Some(twin) = other.get(number) else { return false };
        let same_cells = is_group(&node.cells, Mask::of(twin.cells.iter().copied()));
        let fixed = |table: &Table| (table.total, table.system_reserved, table.allocatable);
        let same_tables = node.memory_map.iter().all(|(resource, table)| {
            twin.memory_map.get(resource).is_some_and(|twin| fixed(twin) == fixed(table))
                && groups(one, &node.cells, resource) == groups(other, &node.cells, resource)
        });
        node.number_of_assignments == twin.number_of_assignments
            && same_cells
            && node.memory_map.len() == twin.memory_map.len()
            && same_tables
    };
    one.len() == other.len() && one.iter().all(is_same_node)
}
