//! Statuses against those that upstream wrote.

mod status;
mod workers;
