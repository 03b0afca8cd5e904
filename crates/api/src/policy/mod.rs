//! Kinds of the API group policy.

pub mod poddisruptionbudget;

#[cfg(test)]
mod tests;
