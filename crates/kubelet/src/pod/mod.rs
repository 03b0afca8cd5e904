//! One pod: deciding ([`plan`]) and doing (`worker`).

pub mod env;
pub mod files;
