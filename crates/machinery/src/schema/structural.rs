//! The structural schema of a custom resource, made ready once: bounds read, rules parsed. Pruning,
//! defaulting and validation walk an object and this tree side by side.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

use super::ListKind;
use crate::cel;
use crate::pattern::{self, PatternError};

pub use super::validate_format::is_known_format;

/// One level of a schema. Everything is optional; what is missing allows all.
#[derive(Debug, Default)]
pub struct Structural {
    pub ty: Option<JsonType>,
    pub nullable: bool,
    pub int_or_string: bool,
    pub preserve_unknown: bool,
    /// An object in its own right, with apiVersion, kind and metadata.
    pub embedded: bool,
    pub list: Option<ListKind>,
    pub properties: BTreeMap<Box<str>, Structural>,
    pub additional: Additional,
    pub items: Option<Box<Structural>>,
    pub default: Option<Value>,
    pub required: Vec<Box<str>>,
    pub values: Option<Box<Values>>,
    pub rules: Vec<Rule>,
    /// Whether a default, or a rule, stands at this level or below it: what has none is not walked.
    pub has_defaults: bool,
    pub has_rules: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// Fields that are not listed.
#[derive(Debug, Default)]
pub enum Additional {
    #[default]
    Unsaid,
    Any,
    None,
    Each(Box<Structural>),
}

/// What a value must be beyond its type.
#[derive(Debug, Default)]
pub struct Values {
    pub format: Box<str>,
    pub pattern: Option<Pattern>,
    pub minimum: Option<Bound>,
    pub maximum: Option<Bound>,
    pub multiple_of: Option<f64>,
    pub length_min: Option<u64>,
    pub length_max: Option<u64>,
    pub items_min: Option<u64>,
    pub items_max: Option<u64>,
    pub properties_min: Option<u64>,
    pub properties_max: Option<u64>,
    pub unique_items: bool,
    pub choices: Option<Vec<Value>>,
    pub all_of: Vec<Structural>,
    pub any_of: Vec<Structural>,
    pub one_of: Vec<Structural>,
    pub not: Option<Box<Structural>>,
}

#[derive(Debug)]
pub struct Pattern {
    pub text: Box<str>,
    /// Compiled when it is first needed: most schemas hold more patterns than anybody uses, and each takes memory.
    regex: OnceLock<Result<Regex, PatternError>>,
}

impl Pattern {
    /// Whether a text matches. A pattern that cannot be compiled matches nothing; then the answer says why, as upstream does
    /// with every value that it refuses for that.
    pub fn matches(&self, text: &str) -> Result<bool, &PatternError> {
        let regex = self.regex.get_or_init(|| pattern::compile(&self.text));
        regex.as_ref().map(|regex| regex.is_match(text))
    }
}

#[derive(Debug)]
pub struct Bound {
    pub value: f64,
    /// As it stands in messages.
    pub shown: Box<str>,
    pub exclusive: bool,
}

/// One entry of `x-kubernetes-validations`.
#[derive(Debug)]
pub struct Rule {
    pub text: Box<str>,
    pub program: Result<cel::Program, cel::Issues>,
    pub message: Box<str>,
    pub message_expression: Option<cel::Program>,
    pub message_expression_text: Box<str>,
    pub reason: Box<str>,
    pub field_path: Box<str>,
    /// Speaks of `oldSelf`, so it holds only where there is an old value.
    pub transition: bool,
    pub optional_old_self: bool,
}

/// Deeper schemas are refused when the definition is validated; a stored one may not break the server.
const DEPTH_MAX: usize = 64;

impl Structural {
    pub fn parse(schema: &Value) -> Structural {
        parse(schema, 0)
    }

    /// The schema that keeps everything, for definitions without one.
    pub fn anything() -> Structural {
        Structural { ty: Some(JsonType::Object), preserve_unknown: true, ..Structural::default() }
    }

    /// The schema of a field, listed or not.
    pub fn field(&self, name: &str) -> Option<&Structural> {
        self.properties.get(name).or(match &self.additional {
            Additional::Each(schema) => Some(schema),
            _ => None,
        })
    }
}

fn parse(schema: &Value, depth: usize) -> Structural {
    if depth > DEPTH_MAX {
        return Structural { preserve_unknown: true, ..Structural::default() };
    }
    let below = |value: &Value| parse(value, depth + 1);
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or(false);
    let list = |key: &str| schema.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let mut made = Structural {
        ty: text("type").and_then(json_type),
        nullable: flag("nullable"),
        int_or_string: flag("x-kubernetes-int-or-string") || text("format") == Some("int-or-string"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        list: text("x-kubernetes-list-type").map(|_| super::from_json_schema::list_kind(schema)),
        properties: properties.map(|(name, property)| (name.as_str().into(), below(property))).collect(),
        additional: match schema.get("additionalProperties") {
            None | Some(Value::Null) => Additional::Unsaid,
            Some(Value::Bool(true)) => Additional::Any,
            Some(Value::Bool(false)) => Additional::None,
            Some(each) => Additional::Each(Box::new(below(each))),
        },
        items: schema.get("items").filter(|items| items.is_object()).map(|items| Box::new(below(items))),
        default: schema.get("default").filter(|default| !default.is_null()).cloned(),
        required: list("required").iter().filter_map(Value::as_str).map(Into::into).collect(),
        values: values(schema, depth),
        rules: list("x-kubernetes-validations").iter().map(rule).collect(),
        has_defaults: false,
        has_rules: false,
    };
    let each = match &made.additional {
        Additional::Each(schema) => Some(&**schema),
        _ => None,
    };
    let children = || made.properties.values().chain(made.items.as_deref()).chain(each);
    let all_of = || made.values.iter().flat_map(|values| &values.all_of);
    let has_defaults = made.default.is_some() || children().any(|child| child.has_defaults);
    let has_rules = !made.rules.is_empty() || children().chain(all_of()).any(|child| child.has_rules);
    (made.has_defaults, made.has_rules) = (has_defaults, has_rules);
    made
}

fn json_type(name: &str) -> Option<JsonType> {
    Some(match name {
        "object" => JsonType::Object,
        "array" => JsonType::Array,
        "string" => JsonType::String,
        "integer" => JsonType::Integer,
        "number" => JsonType::Number,
        "boolean" => JsonType::Boolean,
        _ => return None,
    })
}

impl JsonType {
    pub fn name(self) -> &'static str {
        match self {
            JsonType::Object => "object",
            JsonType::Array => "array",
            JsonType::String => "string",
            JsonType::Integer => "integer",
            JsonType::Number => "number",
            JsonType::Boolean => "boolean",
        }
    }
}

fn values(schema: &Value, depth: usize) -> Option<Box<Values>> {
    const KEYS: &[&str] = &[
        "format",
        "pattern",
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "uniqueItems",
        "enum",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
    ];
    if !KEYS.iter().any(|key| schema.get(*key).is_some()) {
        return None;
    }
    let count = |key: &str| schema.get(key).and_then(Value::as_u64);
    let bound = |key: &str, exclusive: &str| {
        let value = schema.get(key)?;
        let exclusive = schema.get(exclusive).and_then(Value::as_bool).unwrap_or(false);
        Some(Bound { value: value.as_f64()?, shown: value.to_string().into(), exclusive })
    };
    let junctor = |key: &str| {
        let list = schema.get(key).and_then(Value::as_array).into_iter().flatten();
        list.map(|entry| parse(entry, depth + 1)).collect()
    };
    Some(Box::new(Values {
        format: schema.get("format").and_then(Value::as_str).unwrap_or("").into(),
        pattern: schema.get("pattern").and_then(Value::as_str).filter(|text| !text.is_empty()).map(pattern_of),
        minimum: bound("minimum", "exclusiveMinimum"),
        maximum: bound("maximum", "exclusiveMaximum"),
        multiple_of: schema.get("multipleOf").and_then(Value::as_f64),
        length_min: count("minLength"),
        length_max: count("maxLength"),
        items_min: count("minItems"),
        items_max: count("maxItems"),
        properties_min: count("minProperties"),
        properties_max: count("maxProperties"),
        unique_items: schema.get("uniqueItems").and_then(Value::as_bool).unwrap_or(false),
        choices: schema.get("enum").and_then(Value::as_array).filter(|list| !list.is_empty()).cloned(),
        all_of: junctor("allOf"),
        any_of: junctor("anyOf"),
        one_of: junctor("oneOf"),
        not: schema.get("not").filter(|not| not.is_object()).map(|not| Box::new(parse(not, depth + 1))),
    }))
}

fn pattern_of(text: &str) -> Pattern {
    Pattern { text: text.into(), regex: OnceLock::new() }
}

fn rule(entry: &Value) -> Rule {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or("");
    let program = cel::Program::parse(text("rule"));
    let message_expression = text("messageExpression");
    Rule {
        text: text("rule").into(),
        transition: program.as_ref().is_ok_and(|program| program.mentions("oldSelf")),
        program,
        message: text("message").into(),
        message_expression_text: message_expression.into(),
        message_expression: match message_expression {
            "" => None,
            text => cel::Program::parse(text).ok(),
        },
        reason: text("reason").into(),
        field_path: text("fieldPath").into(),
        optional_old_self: entry.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
    }
}
