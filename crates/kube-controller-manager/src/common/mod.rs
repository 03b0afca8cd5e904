//! Helpers shared by several controllers.

pub(crate) mod owners;
pub(crate) mod pods;
pub(crate) mod template;
pub(crate) mod rank;
pub(crate) mod replicas;
pub(crate) mod conditions;
pub(crate) mod limits;
pub(crate) mod hash;
pub(crate) mod serving;
pub(crate) mod history;
pub(crate) mod finalizers;
pub(crate) mod disruption;
pub(crate) mod bootstrap;
