//! One file per verb.

pub mod get;
pub mod list;
pub mod watch;
pub mod create;
pub mod update;
pub mod patch;
pub mod delete;
