//! `x-kubernetes-validations`: expressions that a value, and its change, must satisfy. Each level's rules run with the
//! value of that level as `self`; those that speak of `oldSelf` run only where there is an old value to compare with.

use std::fmt::Write;

use serde_json::Value;

use super::structural::{JsonType, Rule, Structural};
use super::validate::Correlated;
use crate::cel::{EXPRESSION_COST_MAX, EvalError, OBJECT_COST_MAX, Val};
use crate::field::{Errors, FieldError, Problem, shown};

pub fn validate_rules(object: &Value, old: Option<&Value>, schema: &Structural, errors: &mut Errors) {
    Rules { errors, path: String::new(), budget: OBJECT_COST_MAX }.value(object, old, schema);
}

const OBJECT_BUDGET_SPENT: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

struct Rules<'a> {
    errors: &'a mut Errors,
    path: String,
    /// What all rules of the object may still cost together.
    budget: u64,
}

impl Rules<'_> {
    fn value(&mut self, value: &Value, old: Option<&Value>, schema: &Structural) {
        if !schema.has_rules || value.is_null() {
            return;
        }
        let unchanged = old == Some(value);
        for rule in &schema.rules {
            self.rule(rule, value, old, unchanged, schema);
        }
        let length = self.path.len();
        match value {
            Value::Object(map) => {
                for (name, below) in map {
                    let Some(field) = schema.field(name).filter(|field| field.has_rules) else { continue };
                    if !schema.properties.contains_key(name.as_str()) {
                        self.path.extend(["[", name, "]"]);
                    } else if length > 0 {
                        self.path.extend([".", name]);
                    } else {
                        self.path.push_str(name);
                    }
                    self.value(below, old.and_then(|old| old.get(name)), field);
                    self.path.truncate(length);
                }
            }
            Value::Array(items) => {
                let Some(item_schema) = schema.items.as_deref().filter(|schema| schema.has_rules) else { return };
                let known = Correlated::new(schema.list.as_ref(), old);
                for (index, item) in items.iter().enumerate() {
                    // Writing to a String cannot fail.
                    let _ = write!(self.path, "[{index}]");
                    self.value(item, known.as_ref().and_then(|known| known.find(item)), item_schema);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn rule(&mut self, rule: &Rule, value: &Value, old: Option<&Value>, unchanged: bool, schema: &Structural) {
        // What an update leaves as it was is not held against it.
        if (unchanged && !rule.transition)
            || (rule.transition && old.is_none() && !rule.optional_old_self)
            || self.budget == 0
        {
            return;
        }
        let text = rule.text.trim();
        let said = if rule.message.is_empty() { text } else { rule.message.trim() };
        let program = match &rule.program {
            Ok(program) => program,
            Err(why) => return self.refuse(schema, format!("rule compile error: compilation failed: {why}")),
        };
        let old_self = old.map(|old| Val::json(old, Some(schema)));
        let old_self =
            if rule.optional_old_self { Some(Val::Optional(old_self.map(std::rc::Rc::new))) } else { old_self };
        let mut variables = vec![("self", Val::json(value, Some(schema)))];
        variables.extend(old_self.map(|old| ("oldSelf", old)));
        let whole = self.budget >= EXPRESSION_COST_MAX;
        match program.eval(&variables, &mut self.budget) {
            Ok(Val::Bool(true)) => {}
            Ok(Val::Bool(false)) => {
                let made = rule.message_expression.as_ref().and_then(|expression| {
                    match expression.eval(&variables, &mut self.budget) {
                        Ok(Val::Text(text)) if !text.trim().is_empty() && !text.contains('\n') => Some(text.trim().to_string()),
                        _ => None,
                    }
                });
                let detail = made.unwrap_or_else(|| if rule.message.is_empty() { format!("failed rule: {text}") } else { said.to_string() });
                self.failed(rule, value, schema, detail);
            }
            Ok(_) => self.refuse(schema, format!("cel expression evaluated to a value that is no bool evaluating rule: {said}")),
            Err(error @ EvalError::Overload) => self.refuse(
                schema,
                format!("'{error}': call arguments did not match a supported operator, function or macro signature for rule: {said}"),
            ),
            // What all rules may cost is used up, rather than what this one may.
            Err(EvalError::Budget) if !whole => {
                self.budget = 0;
                self.refuse(schema, OBJECT_BUDGET_SPENT.into());
            }
            Err(error @ EvalError::Budget) => {
                self.budget = 0;
                let detail = format!("'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {said}");
                self.refuse(schema, detail);
            }
            Err(error) => self.refuse(schema, format!("{error} evaluating rule: {said}")),
        }
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
