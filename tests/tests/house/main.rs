//! The rules of the house that no compiler checks: how long functions and files are, which crate may use which, and that
//! documents name only what is there.

mod sources;
mod sizes;
mod clock;
mod habits;
mod duplicates;
mod layers;
mod documents;
mod examples;
