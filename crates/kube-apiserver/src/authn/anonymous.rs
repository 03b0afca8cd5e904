//! The user of requests that show no credential. What it may see (health, version) is up to the roles.

use super::{ALL_UNAUTHENTICATED, ANONYMOUS, User};

/// Where nobody may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anonymous {
    Everywhere,
    Nowhere,
    /// At these paths and no others, as they are written.
    At(Vec<String>),
}

impl Anonymous {
    pub fn may_ask(&self, path: &str) -> bool {
        match self {
            Anonymous::Everywhere => true,
            Anonymous::Nowhere => false,
            Anonymous::At(paths) => paths.iter().any(|known| known == path),
        }
    }
}

pub fn user() -> User {
    User { name: ANONYMOUS.into(), groups: vec![ALL_UNAUTHENTICATED.into()], ..User::default() }
}
