//! The memory manager: containers of Guaranteed pods have their memory and huge pages on memory nodes of their own choice (`Static`), one
//! node or a group of nodes that nobody else divides.

mod policy;
mod hints;
mod reserved;
mod checkpoint;
#[cfg(test)]
mod tests;

pub(super) use checkpoint::{FILE, read, write};
pub use policy::StateError;
pub(super) use policy::{AllocateError, Static, pins};
pub(super) use reserved::reserved;
pub use reserved::{Reservation, ReservedError};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a memory node has of one resource, in bytes, as upstream's file shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Table {
    pub total: u64,
    pub system_reserved: u64,
    pub allocatable: u64,
    pub reserved: u64,
    pub free: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Node {
    pub number_of_assignments: i64,
    /// By resource.
    pub memory_map: BTreeMap<String, Table>,
    /// The nodes that are given together with this one.
    pub cells: Vec<usize>,
}

/// By the number of the node.
pub(super) type Machine = BTreeMap<usize, Node>;

/// What a container has of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Block {
    #[serde(rename = "numaAffinity")]
    pub nodes: Vec<usize>,
    #[serde(rename = "type")]
    pub resource: String,
    pub size: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub machine: Machine,
    /// By pod and container.
    pub entries: BTreeMap<String, BTreeMap<String, Vec<Block>>>,
}

impl State {
    pub fn of(&self, uid: &str, container: &str) -> Option<&Vec<Block>> {
        self.entries.get(uid)?.get(container)
    }
}
