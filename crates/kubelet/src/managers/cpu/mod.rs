//! The CPU manager: containers of Guaranteed pods that ask for whole processors have them for themselves (`static`), all others share
//! the rest.

mod assign;
mod distribute;
mod options;
mod policy;
mod hints;
mod checkpoint;
#[cfg(test)]
mod tests;

pub(super) use checkpoint::{FILE, read, write};
pub(super) use options::go_bool;
pub use options::{OptionError, Options};
pub use policy::StateError;
pub(super) use policy::has_own_resources;
pub(super) use policy::{AllocateError, Static};

use std::collections::BTreeMap;

use super::cpu_set::CpuSet;

/// Who has which processors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The pool that all others share.
    pub shared: CpuSet,
    /// By pod and container.
    pub entries: BTreeMap<String, BTreeMap<String, CpuSet>>,
}

impl State {
    pub fn of(&self, uid: &str, container: &str) -> Option<&CpuSet> {
        self.entries.get(uid)?.get(container)
    }
}
