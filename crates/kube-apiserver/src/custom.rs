//! Custom resources: kinds that users define while the server runs join the same table.

use jiff::Timestamp;
use machinery::field::Errors;
use machinery::node::Node;
use machinery::table::Cell;
use serde_json::Value;

/// JSON pointers into an object.
pub struct ScalePaths {
    pub spec_path: String,
    pub status_path: String,
    pub selector_path: Option<String>,
}

/// What a definition's schema adds to the common path.
pub struct CustomRules {}

impl CustomRules {
    pub fn default(&self, _object: &mut Value) {}

    pub fn validate(&self, _object: &Node, _errors: &mut Errors) {}

    pub fn validate_update(&self, _new: &Node, _old: &Node, _errors: &mut Errors) {}

    /// The schema of the served version, as OpenAPI shows it.
    pub fn openapi_schema(&self) -> Option<&Value> {
        None
    }

    /// Where a definition's scale subresource finds its numbers.
    pub fn scale(&self) -> Option<&ScalePaths> {
        None
    }

    pub fn column_definitions(&self) -> Value {
        Value::Null
    }

    pub fn cells(&self, _object: &Value, _now: Timestamp) -> Vec<Cell> {
        Vec::new()
    }
}
