//! `x-kubernetes-validations`.
use serde_json::Value;
use super::structural::Structural;
use crate::field::Errors;
pub fn validate_rules(_object: &Value, _old: Option<&Value>, _schema: &Structural, _errors: &mut Errors) {}
