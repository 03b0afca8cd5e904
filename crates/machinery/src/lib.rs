//! What all kinds share: objects, field paths, errors, schemas, codecs, patches, selectors, quantities.
//!
//! Nothing here does IO, starts a task or reads a clock.

pub mod cel;
pub mod codec;
pub mod duration;
pub mod field;
mod go;
pub mod jsonpath;
pub mod kind;
pub mod meta;
pub mod names;
pub mod node;
pub mod object;
pub mod patch;
pub mod pattern;
pub mod quantity;
pub mod schema;
pub mod selector;
pub mod status;
pub mod table;

#[cfg(test)]
mod upstream_tests;
