//! Label and field selectors: from query text, from a LabelSelector in an object, and whether they match.

mod lexer;
mod parser;

use std::fmt;

use serde_json::{Map, Value};

use crate::names;

/// All requirements must hold; without any, everything matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    /// A missing LabelSelector in an object selects nothing, an empty one everything.
    nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    /// Sorted, without duplicates.
    pub values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Equals,
    NotEquals,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// What is wrong with a selector, as upstream answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("unable to parse requirement: {0}")]
    Requirement(Box<SelectorError>),
    #[error("found '{found}', expected: {expected}")]
    Unexpected { found: String, expected: &'static str },
    #[error("found '{found}' expected: '('")]
    Open { found: String },
    /// Upstream has no path here, and says so.
    #[error("<nil>: Invalid value: {key:?}: {}", problems.join("; "))]
    Key { key: String, problems: Vec<String> },
    #[error("{}", together(.0))]
    Invalid(Vec<String>),
    #[error("{0:?} is not a valid label selector operator")]
    Operator(String),
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term { selector: String, term: String },
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    #[error("invalid field selector: unescaped character in value: {}", *.0 as u32)]
    Unescaped(char),
}

/// Several problems as one text, as upstream's aggregates are shown.
fn together(problems: &[String]) -> String {
    match problems {
        [only] => only.clone(),
        _ => format!("[{}]", problems.join(", ")),
    }
}

impl LabelSelector {
    /// From the text of a query: `a=b,c!=d,e in (x,y),!f,g>5`. The error is what upstream answers.
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        Ok(LabelSelector { requirements: parser::parse(text)?, nothing: false })
    }

    /// From a LabelSelector in an object, with `matchLabels` and `matchExpressions`.
    pub fn from_object(selector: &Value) -> Result<LabelSelector, SelectorError> {
        if selector.is_null() {
            return Ok(LabelSelector { requirements: Vec::new(), nothing: true });
        }
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let values = vec![value.as_str().unwrap_or("").to_string()];
            requirements.push(Requirement::new(key, Operator::Equals, values)?);
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or("");
            let operator = match text("operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError::Operator(other.to_owned())),
            };
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(Into::into).collect();
            requirements.push(Requirement::new(text("key"), operator, values)?);
        }
        Ok(LabelSelector { requirements, nothing: false })
    }

    /// From a map of labels that must all be there, such as a Service's selector. Nothing is checked.
    pub fn from_labels(labels: &Map<String, Value>) -> LabelSelector {
        let requirement = |(key, value): (&String, &Value)| Requirement {
            key: key.clone(),
            operator: Operator::Equals,
            values: vec![value.as_str().unwrap_or("").into()],
        };
        LabelSelector { requirements: labels.iter().map(requirement).collect(), nothing: false }
    }

    /// Whether labels match; `get` answers with the value of a label.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(get(&requirement.key)))
    }

    /// Whether the labels of an object match.
    pub fn matches_object(&self, object: &Value) -> bool {
        use crate::object::Meta;
        self.matches(|key| object.label(key))
    }

    pub fn matches_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Selects what both do.
    pub fn and(mut self, other: LabelSelector) -> LabelSelector {
        self.requirements.extend(other.requirements);
        self.nothing |= other.nothing;
        self
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

impl Requirement {
    /// A checked requirement. Upstream names the fields `values[0][key]` and the like, without a path in front.
    pub fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Requirement, SelectorError> {
        let mut problems = Vec::new();
        let mut invalid = |field: &str, value: &dyn fmt::Display, detail: &str| {
            problems.push(format!("{field}: Invalid value: {value}: {detail}"));
        };
        let key_problems = names::qualified_name(key);
        if !key_problems.is_empty() {
            invalid("key", &format!("{key:?}"), &key_problems.join("; "));
        }
        values.sort();
        values.dedup();
        let all = Value::from(values.clone());
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                invalid("values", &all, "for 'in', 'notin' operators, values set can't be empty");
            }
            Operator::Equals | Operator::NotEquals if values.len() != 1 => {
                invalid("values", &all, "exact-match compatibility requires one single value");
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                invalid("values", &all, "values set must be empty for exists and does not exist");
            }
            Operator::GreaterThan | Operator::LessThan => {
                if values.len() != 1 {
                    invalid("values", &all, "for 'Gt', 'Lt' operators, exactly one value is required");
                }
                for (index, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
                    let field = format!("values[{index}]");
                    invalid(&field, &format!("{value:?}"), "for 'Gt', 'Lt' operators, the value must be an integer");
                }
            }
            _ => {}
        }
        for (index, value) in values.iter().enumerate() {
            let value_problems = names::label_value(value);
            if !value_problems.is_empty() {
                invalid(&format!("values[{index}][{key}]"), &format!("{value:?}"), &value_problems.join("; "));
            }
        }
        if !problems.is_empty() {
            return Err(SelectorError::Invalid(problems));
        }
        Ok(Requirement { key: key.into(), operator, values })
    }

    pub fn matches(&self, label: Option<&str>) -> bool {
        let listed = || label.is_some_and(|label| self.values.iter().any(|value| value == label));
        let numbers = || {
            let wanted = self.values.first()?.parse::<i64>().ok()?;
            Some((label?.parse::<i64>().ok()?, wanted))
        };
        match self.operator {
            Operator::In | Operator::Equals => listed(),
            Operator::NotIn | Operator::NotEquals => !listed(),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => numbers().is_some_and(|(found, wanted)| found > wanted),
            Operator::LessThan => numbers().is_some_and(|(found, wanted)| found < wanted),
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let (key, values) = (&requirement.key, requirement.values.join(","));
            match requirement.operator {
                Operator::In => write!(f, "{comma}{key} in ({values})"),
                Operator::NotIn => write!(f, "{comma}{key} notin ({values})"),
                Operator::Equals => write!(f, "{comma}{key}={values}"),
                Operator::NotEquals => write!(f, "{comma}{key}!={values}"),
                Operator::Exists => write!(f, "{comma}{key}"),
                Operator::DoesNotExist => write!(f, "{comma}!{key}"),
                Operator::GreaterThan => write!(f, "{comma}{key}>{values}"),
                Operator::LessThan => write!(f, "{comma}{key}<{values}"),
            }?;
        }
        Ok(())
    }
}

/// A field selector: `metadata.name=x,status.phase!=Running`. Which fields a kind knows is the caller's to check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<(String, FieldOperator, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    Equals,
    NotEquals,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        let mut requirements = Vec::new();
        for term in split_terms(text).into_iter().filter(|term| !term.is_empty()) {
            let Some((field, operator, value)) = split_term(term) else {
                return Err(SelectorError::Term { selector: text.into(), term: term.into() });
            };
            requirements.push((field.to_string(), operator, unescape(value)?));
        }
        Ok(FieldSelector { requirements })
    }

    /// Field, operator and value of each requirement.
    pub fn requirements(&self) -> &[(String, FieldOperator, String)] {
        &self.requirements
    }

    pub fn matches_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object matches; `get` answers with the text of a field, empty where it is unset.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> std::borrow::Cow<'a, str>) -> bool {
        self.requirements.iter().all(|(field, operator, value)| {
            let equal = get(field) == value.as_str();
            equal == (*operator == FieldOperator::Equals)
        })
    }
}

/// Terms stand between commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, FieldOperator, &str)> {
    let bytes = term.as_bytes();
    let at = (0..bytes.len()).find(|at| bytes[*at] == b'=' || bytes[*at..].starts_with(b"!="));
    let (field, rest) = term.split_at(at?);
    let operators = [("!=", FieldOperator::NotEquals), ("==", FieldOperator::Equals), ("=", FieldOperator::Equals)];
    operators.into_iter().find_map(|(symbol, operator)| Some((field, operator, rest.strip_prefix(symbol)?)))
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                next => {
                    let sequence: String = ['\\'].into_iter().chain(next).collect();
                    return Err(SelectorError::Escape(sequence));
                }
            },
            ',' | '=' => return Err(SelectorError::Unescaped(character)),
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
