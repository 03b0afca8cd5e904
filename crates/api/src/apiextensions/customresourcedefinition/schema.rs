//! Which parts of JSON Schema a custom resource may use. What a schema must be to be structural, what may be in lists and
//! maps, defaults and expressions have files of their own.

use machinery::field::{Errors, Path};
use machinery::node::Node;

use super::expression_cost::{Costs, Repeats};
use super::{expressions, list_types, schema_defaults, structural};
use crate::check;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const UNSUPPORTED: [&str; 7] =
    ["$ref", "id", "patternProperties", "additionalItems", "definitions", "dependencies", "$schema"];
/// What every object has, whatever its schema says.
pub(super) const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];
/// A schema deeper than this is refused rather than walked.
pub(super) const DEPTH_MAX: usize = 64;

/// Adds what is wrong. Expressions are looked at only where the schema they speak of is in order. In an unchanged schema an
/// expression may cost more than it may in a new one.
pub(super) fn validate(schema: &Node, unchanged: bool, errors: &mut Errors) {
    let found_before = errors.0.len();
    structural::validate(schema, errors);
    if errors.0.len() == found_before {
        schema_defaults::validate(schema, errors);
    }
    let has_expressions = errors.0.len() == found_before;
    let mut walk = Walk { errors, of_expressions: Errors::default(), costs: Costs::new(unchanged), has_expressions };
    walk.schema(schema, &Around::default());
    let Walk { of_expressions, costs, .. } = walk;
    errors.0.extend(of_expressions.0);
    costs.refuse_total(&schema.path, errors);
}

/// What surrounds a schema.
#[derive(Clone, Default)]
pub(super) struct Around {
    depth: usize,
    /// Within metadata, apiVersion or kind of an object.
    in_meta: bool,
    /// Why there may be no defaults.
    no_defaults: Option<String>,
    /// The outermost place whose parts have no counterpart in an older object.
    pub uncorrelated: Option<Path>,
    /// Within allOf, anyOf, oneOf or not.
    in_condition: bool,
    /// How many values of the schema one object can have.
    pub repeats: Repeats,
}

impl Around {
    /// For a part of that schema.
    fn below(&self, schema: &Node) -> Around {
        Around { depth: self.depth + 1, repeats: self.repeats.below(schema), ..self.clone() }
    }

    pub fn is_root(&self) -> bool {
        self.depth == 0
    }

    fn uncorrelated_at(mut self, path: &Path) -> Around {
        self.uncorrelated.get_or_insert_with(|| path.clone());
        self
    }
}

struct Walk<'e> {
    errors: &'e mut Errors,
    of_expressions: Errors,
    costs: Costs,
    has_expressions: bool,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Node, around: &Around) {
        if around.depth > DEPTH_MAX {
            let detail = format!("must not be nested deeper than {DEPTH_MAX}");
            self.errors.invalid_value(&schema.path, &"".into(), detail);
            return;
        }
        let found_before = self.errors.0.len();
        keywords(schema, around, self.errors);
        self.nested(schema, around);
        list_types::validate(schema, self.errors);
        expressions::texts(schema, self.errors);
        if self.has_expressions && !around.in_condition && self.errors.0.len() == found_before {
            expressions::compile(schema, around, &mut self.costs, &mut self.of_expressions);
        }
    }

    fn nested(&mut self, schema: &Node, around: &Around) {
        let additional = schema.at("additionalProperties");
        if additional.value.is_object() {
            let mut below = around.below(schema);
            if around.in_meta {
                below.no_defaults = Some("inside additionalProperties applying to object metadata".into());
            }
            self.schema(&additional, &below);
        }
        let is_object = around.is_root() || schema.flag("x-kubernetes-embedded-resource");
        for (name, property) in schema.at("properties").entries() {
            let mut below = around.below(schema);
            if schema.text("x-kubernetes-map-type") == "atomic" {
                below = below.uncorrelated_at(&schema.path);
            }
            if is_object && META_FIELDS.contains(&name) {
                below.in_meta = true;
                if around.is_root() {
                    below.no_defaults = Some(format!("in top-level {name}"));
                }
            }
            self.schema(&property, &below);
        }
        let condition = Around { in_condition: true, ..around.below(schema) };
        if schema.at("not").value.is_object() {
            self.schema(&schema.at("not"), &condition);
        }
        for field in ["allOf", "oneOf", "anyOf"] {
            schema.each(field).for_each(|nested| self.schema(&nested, &condition));
        }
        if schema.at("items").value.is_object() {
            let below = match schema.text("x-kubernetes-list-type") {
                "map" => around.below(schema),
                _ => around.below(schema).uncorrelated_at(&schema.path),
            };
            self.schema(&schema.at("items"), &below);
        }
    }
}

/// The keywords of one level.
fn keywords(schema: &Node, around: &Around, errors: &mut Errors) {
    let kind = schema.at("type");
    match kind.str() {
        "" => {}
        "null" => errors.forbidden(&kind, "type cannot be set to null, use nullable as an alternative"),
        _ => check::one_of(&kind, TYPES, errors),
    }
    if let Some(why) = around.no_defaults.as_ref().filter(|_| schema.has("default")) {
        errors.forbidden(&schema.at("default"), format!("must not be set {why}"));
    }
    for field in UNSUPPORTED {
        if schema.has(field) {
            errors.forbidden(&schema.at(field), format!("{field} is not supported"));
        }
    }
    if schema.at("items").value.is_array() {
        errors.forbidden(&schema.at("items"), "items must be a schema object and not an array");
    }
    let embedded = schema.at("x-kubernetes-embedded-resource");
    if around.in_meta && embedded.bool() == Some(true) {
        errors.forbidden(&embedded, "must not be used inside of resource meta");
    }
    if schema.flag("uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&schema.at("uniqueItems"), detail);
    }
    let additional = schema.at("additionalProperties");
    if additional.exists() && additional.bool() != Some(true) && !schema.at("properties").is_empty() {
        errors.forbidden(&additional, "additionalProperties and properties are mutual exclusive");
    }
    if around.is_root() && schema.flag("nullable") {
        errors.forbidden(&schema.at("nullable"), "nullable cannot be true at the root");
    }
    let preserve = schema.at("x-kubernetes-preserve-unknown-fields");
    if preserve.bool() == Some(false) {
        errors.invalid(&preserve, "must be true or undefined");
    }
}
