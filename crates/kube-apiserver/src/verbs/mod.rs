//! One file per verb.

pub mod create;
pub mod delete;
pub mod get;
pub mod list;
mod list_body;
pub mod patch;
mod unconvertible;
pub mod update;
pub mod watch;
mod watch_options;
