//! The user of requests that show no credential. What it may see (health, version) is up to the roles.

use super::{ALL_UNAUTHENTICATED, ANONYMOUS, User};

pub fn user() -> User {
    User { name: ANONYMOUS.into(), groups: vec![ALL_UNAUTHENTICATED.into()], ..User::default() }
}
