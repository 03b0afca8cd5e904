//! Columns and cells of `kubectl get`.

use serde_json::Value;

/// A column's definition. `priority` 0 is always shown, higher ones only with `-o wide`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    pub name: &'static str,
    pub kind: &'static str,
    pub format: &'static str,
    pub description: &'static str,
    pub priority: i32,
}

impl Column {
    pub const fn new(name: &'static str, kind: &'static str, priority: i32) -> Column {
        Column { name, kind, format: "", description: "", priority }
    }

    pub const fn name(description: &'static str) -> Column {
        Column { name: "Name", kind: "string", format: "name", description, priority: 0 }
    }
}

pub type Cell = Value;
