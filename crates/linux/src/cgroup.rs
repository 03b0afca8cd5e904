//! Control groups, v1 (each controller its own tree), v2, and both beside each other.

/// How this machine's control groups are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Hierarchy {
    V1,
    V2,
}
