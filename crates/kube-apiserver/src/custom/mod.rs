//! Custom resources: kinds that users define while the server runs join the same table.
//!
//! `follow.rs` watches the definitions, `status.rs` decides what is said of them, `definition.rs` turns one into entries
//! of the table, and this file holds what such an entry adds to the common path.

pub mod follow;
pub mod status;
pub mod definition;
pub mod cleanup;
pub mod columns;
pub mod convert;
mod intern;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;
use machinery::schema::TypeRef;
use machinery::schema::conform::{Problems, TypeError};
use machinery::schema::structural::Structural;
use machinery::schema::{structural_shape, validate};
use machinery::status::Status;
use machinery::table::Cell;
use serde_json::Value;

use crate::call::Call;
use crate::target::Verb;

/// JSON pointers into an object.
pub struct ScalePaths {
    pub spec_path: String,
    pub status_path: String,
    pub selector_path: Option<String>,
}

pub type Schemas = HashMap<Box<str>, Arc<Structural>>;

/// What a definition's schema adds to the common path.
pub struct CustomRules {
    /// The name of the definition.
    pub definition: Box<str>,
    api_version: Box<str>,
    storage_api_version: Box<str>,
    schema: Arc<Structural>,
    /// The schemas of all versions, by apiVersion: an object is stored in one of them.
    schemas: Arc<Schemas>,
    /// The schema as the definition has it, for OpenAPI; as text, which is a fraction of the size.
    document: Box<str>,
    scale: Option<ScalePaths>,
    columns: columns::Columns,
    /// Fields that selectors may name, each with its place in the descriptions of stored objects.
    selectable: Vec<(Box<str>, usize)>,
    /// Said with every answer.
    deprecation: Option<String>,
    /// Who brings objects from one version into another, where that takes more than another name.
    pub converter: Option<convert::Converter>,
    /// The definition is being deleted: nothing new may be created.
    terminating: bool,
    /// Every version has the same schema: what was written through one is in order for all.
    alike: bool,
    /// Objects of later revisions were surely written under this very schema, and can be sent as they are stored.
    written_so_since: AtomicU64,
}

impl CustomRules {
    /// Brings a decoded body into shape: metadata as for every kind, the rest without fields that nobody described.
    /// Values of the wrong type are left for validation, which says where they are.
    pub fn conform(&self, object: &mut Value, shape: TypeRef, problems: &mut Problems) -> Result<(), TypeError> {
        let metadata = shape.field("metadata").map(|field| shape.of(field.ty));
        structural_shape::prune(object, &self.schema, metadata, problems)
    }

    /// Whether objects must satisfy expressions, which may take long.
    pub fn has_rules(&self) -> bool {
        self.schema.has_rules
    }

    /// The schema of the served version, as OpenAPI shows it.
    pub(crate) fn openapi_schema(&self) -> Option<Value> {
        serde_json::from_str(&self.document).ok()
    }

    pub fn default(&self, object: &mut Value) {
        structural_shape::default(object, &self.schema);
        structural_shape::drop_nulls(object, &self.schema);
    }

    /// A stored object in this version, as today's schemas would have it.
    pub(crate) fn to_requested(&self, object: Value) -> Value {
        let is_own = object["apiVersion"] == *self.api_version;
        let object = self.read(object);
        if is_own { object } else { self.converted(object) }
    }

    /// A stored object as the schema of its own version has it: without what that does not know, with its defaults.
    pub fn read(&self, mut object: Value) -> Value {
        if let Some(schema) = object["apiVersion"].as_str().and_then(|version| self.schemas.get(version)) {
            prune(&mut object, schema);
            structural_shape::default(&mut object, schema);
        }
        object
    }

    /// An object that was of any version, and now is of this one: this schema's defaults are for those who write.
    pub fn converted(&self, mut object: Value) -> Value {
        object["apiVersion"] = (*self.api_version).into();
        prune(&mut object, &self.schema);
        object
    }

    /// Completes an object that is about to be stored, as reading it would.
    pub(crate) fn default_stored(&self, object: &mut Value) {
        if let Some(schema) = self.schemas.get(&self.storage_api_version) {
            structural_shape::default(object, schema);
        }
    }

    pub fn to_storage(&self, mut object: Value) -> Value {
        object["apiVersion"] = (*self.storage_api_version).into();
        object
    }

    /// The version that is served here, and the one that is stored.
    pub fn versions(&self) -> (&str, &str) {
        (&self.api_version, &self.storage_api_version)
    }

    /// Whether an object of that revision can be sent as it is stored.
    pub(crate) fn as_stored(&self, revision: u64) -> bool {
        self.alike
            && self.api_version == self.storage_api_version
            && revision > self.written_so_since.load(Ordering::Relaxed)
    }

    /// From now on objects after that revision are known to be written under this schema.
    fn written_so_since(&self, revision: u64) {
        self.written_so_since.store(revision, Ordering::Relaxed);
    }

    pub fn validate(&self, object: &Node, errors: &mut Errors) {
        self.check(object.value, None, errors);
    }

    pub fn validate_update(&self, new: &Node, old: &Node, errors: &mut Errors) {
        self.check(new.value, Some(old.value), errors);
    }

    fn check(&self, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        let mut found = Errors::default();
        validate::validate(object, old, &self.schema, &mut found);
        self.check_scale(object, &mut found);
        let mut lists = Errors::default();
        validate::validate_lists(object, &self.schema, &mut lists);
        if !lists.is_empty()
            && let Some(old) = old
        {
            // What was wrong before may stay so.
            let mut before = Errors::default();
            validate::validate_lists(old, &self.schema, &mut before);
            if !before.is_empty() {
                lists = Errors::default();
            }
        }
        found.0.extend(lists.0);
        let blocking = |error: &FieldError| {
            use Problem::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(error.problem, NotSupported | Required | TooLong | TooMany | TypeInvalid)
        };
        if self.schema.has_rules {
            if found.0.iter().any(blocking) {
                found.push(FieldError::new(Problem::Invalid, "<nil>", "\"null\"", RULES_NOT_CHECKED))
            } else {
                validate::validate_rules(object, old, &self.schema, &mut found)
            }
        }
        errors.0.extend(found.0);
    }

    fn check_scale(&self, object: &Value, errors: &mut Errors) {
        let Some(scale) = &self.scale else { return };
        for path in [&scale.spec_path, &scale.status_path] {
            let Some(count) = object.pointer(path).and_then(Value::as_i64) else { continue };
            let detail = match count {
                ..0 => "should be a non-negative integer".to_string(),
                _ if count > i64::from(i32::MAX) => format!("should be less than or equal to {}", i32::MAX),
                _ => continue,
            };
            errors.push(FieldError::new(Problem::Invalid, path.replace('/', "."), count.to_string(), detail));
        }
    }

    /// Where a definition's scale subresource finds its numbers.
    pub fn scale(&self) -> Option<&ScalePaths> {
        self.scale.as_ref()
    }

    pub fn column_definitions(&self) -> Value {
        self.columns.definitions()
    }

    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Cell> {
        self.columns.cells(object, now)
    }

    /// The place of a field in the descriptions of stored objects, where selectors may name it.
    pub fn selectable(&self, field: &str) -> Option<usize> {
        self.selectable.iter().find(|(name, _)| **name == *field).map(|(_, place)| *place)
    }
}

fn prune(object: &mut Value, schema: &Structural) {
    // What is not told to anybody cannot go wrong: metadata is left as it was stored.
    let _ = structural_shape::prune(object, schema, None, &mut Problems::default());
}

const RULES_NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors \
                                 to complete validation";

/// What a request for a custom resource meets before its verb.
pub fn begin(call: &Call) -> Result<(), Status> {
    let Some(custom) = &call.resource.custom else { return Ok(()) };
    if let Some(warning) = &custom.deprecation {
        call.warn(warning.clone());
    }
    if custom.terminating && call.target.verb == Verb::Create {
        let message = "create not allowed while custom resource definition is terminating";
        return Err(Status::new(405, "MethodNotAllowed", message));
    }
    Ok(())
}
