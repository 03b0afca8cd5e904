//! `x-kubernetes-validations`: expressions that a value, and its change, must satisfy. Each level's rules run with the
//! value of that level as `self`; those that speak of `oldSelf` run only where there is an old value to compare with.

use std::fmt::Write;

use serde_json::Value;

use super::structural::{JsonType, Rule, Structural};
use super::validate::Correlated;
use crate::cel::{EXPRESSION_COST_MAX, EvalError, OBJECT_COST_MAX, Val};
use crate::field::{Errors, FieldError, Problem, shown};

pub fn validate_rules(object: &Value, old: Option<&Value>, schema: &Structural, errors: &mut Errors) {
    let rules = Place { rules: schema, schema, ratchets: true };
    Rules { errors, path: String::new(), budget: OBJECT_COST_MAX }.value(object, old, rules, None);
}

const OBJECT_BUDGET_SPENT: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
const MESSAGE_BUDGET_SPENT: &str =
    "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
/// Longer messages of expressions are not shown.
const MESSAGE_BYTES_MAX: usize = 5120;

struct Rules<'a> {
    errors: &'a mut Errors,
    path: String,
    /// What all rules of the object may still cost together.
    budget: u64,
}

/// A level of a schema: what its rules say, and what its values are.
#[derive(Clone, Copy)]
struct Place<'s> {
    rules: &'s Structural,
    schema: &'s Structural,
    /// Whether an unchanged value itself keeps its rules from running. In an `allOf` only what is around it does, and apiVersion and
    /// kind of the object are never the old ones: both objects are in the version of the request.
    ratchets: bool,
}

impl<'s> Place<'s> {
    fn field(self, name: &str) -> Option<Place<'s>> {
        let rules = self.rules.field(name).filter(|rules| rules.has_rules)?;
        Some(Place { rules, schema: self.schema.field(name)?, ratchets: self.ratchets })
    }

    fn items(self) -> Option<Place<'s>> {
        let rules = self.rules.items.as_deref().filter(|rules| rules.has_rules)?;
        Some(Place { rules, schema: self.schema.items.as_deref()?, ratchets: self.ratchets })
    }

    fn all_of(self) -> impl Iterator<Item = Place<'s>> {
        let nested = self.rules.values.iter().flat_map(|values| &values.all_of).filter(|rules| rules.has_rules);
        nested.map(move |rules| Place { rules, schema: self.schema, ratchets: false })
    }
}

impl Rules<'_> {
    /// `around` says whether the nearest value around this one that has an old one is unchanged.
    fn value(&mut self, value: &Value, old: Option<&Value>, place: Place, around: Option<bool>) {
        if !place.rules.has_rules || value.is_null() {
            return;
        }
        let unchanged = match old {
            Some(old) if place.ratchets => old == value,
            _ => around.unwrap_or(false),
        };
        for rule in &place.rules.rules {
            self.rule(rule, value, old, unchanged, place.schema);
        }
        for nested in place.all_of() {
            self.value(value, old, nested, around);
        }
        let length = self.path.len();
        match value {
            Value::Object(map) => {
                for (name, below) in map {
                    let Some(field) = place.field(name) else { continue };
                    if !place.schema.properties.contains_key(name.as_str()) {
                        self.path.extend(["[", name, "]"]);
                    } else if length > 0 {
                        self.path.extend([".", name]);
                    } else {
                        self.path.push_str(name);
                    }
                    let below_old = old.and_then(|old| old.get(name));
                    if around.is_none() && ["apiVersion", "kind"].contains(&name.as_str()) {
                        self.value(below, below_old, Place { ratchets: false, ..field }, None);
                    } else {
                        self.value(below, below_old, field, Some(unchanged));
                    }
                    self.path.truncate(length);
                }
            }
            Value::Array(items) => {
                let Some(each) = place.items() else { return };
                let known = Correlated::new(place.schema.list.as_ref(), old);
                for (index, item) in items.iter().enumerate() {
                    // Writing to a String cannot fail.
                    let _ = write!(self.path, "[{index}]");
                    self.value(item, known.as_ref().and_then(|known| known.find(item)), each, Some(unchanged));
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn rule(&mut self, rule: &Rule, value: &Value, old: Option<&Value>, unchanged: bool, schema: &Structural) {
        let text = rule.text.trim();
        let said = if rule.message.is_empty() { text } else { rule.message.trim() };
        let program = match &rule.program {
            Ok(program) => program,
            Err(why) => return self.refuse(schema, format!("rule compile error: compilation failed: {why}")),
        };
        // What an update leaves as it was is not held against it.
        if (unchanged && !rule.transition)
            || (rule.transition && old.is_none() && !rule.optional_old_self)
            || self.budget == 0
        {
            return;
        }
        let old_self = old.map(|old| Val::json(old, Some(schema)));
        let old_self =
            if rule.optional_old_self { Some(Val::Optional(old_self.map(std::rc::Rc::new))) } else { old_self };
        let mut variables = vec![("self", Val::json(value, Some(schema)))];
        variables.extend(old_self.map(|old| ("oldSelf", old)));
        let whole = self.budget >= EXPRESSION_COST_MAX;
        match program.eval(&variables, &mut self.budget) {
            Ok(Val::Bool(true)) => {}
            Ok(Val::Bool(false)) => {
                if let Some(detail) = self.message(rule, &variables, schema) {
                    self.failed(rule, value, schema, detail);
                }
            }
            Ok(_) => self.refuse(schema, format!("cel expression evaluated to a value that is no bool evaluating rule: {said}")),
            Err(error @ EvalError::Overload) => self.refuse(
                schema,
                format!("'{error}': call arguments did not match a supported operator, function or macro signature for rule: {said}"),
            ),
            // What all rules may cost is used up, rather than what this one may.
            Err(EvalError::Budget) if !whole => self.end(schema, OBJECT_BUDGET_SPENT.into()),
            Err(error @ EvalError::Budget) => {
                let detail = format!("'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {said}");
                self.end(schema, detail);
            }
            Err(error) => self.refuse(schema, format!("{error} evaluating rule: {said}")),
        }
    }

    /// What is told of a rule that does not hold; nothing where it was refused already, because its message costs too much.
    fn message(&mut self, rule: &Rule, variables: &[(&str, Val)], schema: &Structural) -> Option<String> {
        let written = || match rule.message.trim() {
            "" => format!("failed rule: {}", rule.text.trim()),
            message => message.to_owned(),
        };
        let Some(expression) = &rule.message_expression else { return Some(written()) };
        let whole = self.budget >= EXPRESSION_COST_MAX;
        match expression.eval(variables, &mut self.budget) {
            Ok(Val::Text(text)) => {
                let text = text.trim();
                let is_fit = !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains(['\n', '\r']);
                Some(if is_fit { text.to_owned() } else { written() })
            }
            Err(EvalError::Budget) => {
                let detail = if whole {
                    let shown = Value::from(&*rule.message_expression_text);
                    format!(
                        "no further validation rules will be run due to call cost exceeds limit for messageExpression: {shown}"
                    )
                } else {
                    MESSAGE_BUDGET_SPENT.into()
                };
                self.end(schema, detail);
                None
            }
            _ => Some(written()),
        }
    }

    /// The last refusal: no further rule runs.
    fn end(&mut self, schema: &Structural, detail: String) {
        self.budget = 0;
        self.refuse(schema, detail);
    }

    fn refuse(&mut self, schema: &Structural, detail: String) {
        let field = if self.path.is_empty() { "<nil>" } else { &self.path };
        self.errors.push(FieldError::new(Problem::Invalid, field, type_shown(schema), detail));
    }

    fn failed(&mut self, rule: &Rule, value: &Value, schema: &Structural, detail: String) {
        let mut field = self.path.clone();
        field.push_str(&rule.field_path.replace("['", ".").replace("']", ""));
        let field = match field.trim_start_matches('.') {
            "" => "<nil>",
            field => field,
        };
        // Whole objects and lists would only hide the message.
        let shown = match schema.ty {
            Some(JsonType::Object | JsonType::Array) => String::new(),
            _ => shown(value),
        };
        let error = match &*rule.reason {
            "FieldValueForbidden" => FieldError::new(Problem::Forbidden, field, "", detail),
            "FieldValueRequired" => FieldError::new(Problem::Required, field, "", detail),
            "FieldValueDuplicate" => FieldError::new(Problem::Duplicate, field, shown, ""),
            _ => FieldError::new(Problem::Invalid, field, shown, detail),
        };
        self.errors.push(error);
    }
}

/// Where a rule could not be decided, upstream shows the type of the value in place of the value.
fn type_shown(schema: &Structural) -> String {
    format!("{:?}", schema.ty.map_or("", JsonType::name))
}
