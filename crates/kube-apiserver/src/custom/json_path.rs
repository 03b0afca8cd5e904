//! The JSONPath of printer columns and scale paths: fields, indexes, wildcards and filters.

use serde_json::Value;

/// A path that is ready to be followed.
#[derive(Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Every,
    /// `[?(@.type=="Ready")]`; without a comparison the field must only be there.
    Filter(Vec<Step>, Option<(Comparison, Value)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A path of plain fields as a JSON pointer: `.spec.replicas` is `/spec/replicas`.
pub fn pointer(path: &str) -> String {
    let fields = path.split('.').filter(|field| !field.is_empty());
    fields.map(|field| format!("/{}", field.replace('~', "~0").replace('/', "~1"))).collect()
}

impl JsonPath {
    /// None where the path is not one; such a column stays empty.
    pub fn parse(text: &str) -> Option<JsonPath> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(text);
        steps(text.strip_prefix(['$', '@']).unwrap_or(text)).map(JsonPath)
    }

    /// The first value the path leads to.
    pub fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        follow(&self.0, object)
    }
}

fn steps(mut rest: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = closing(inner)?;
            steps.push(bracket(inner[..end].trim())?);
            rest = &inner[end + 1..];
            continue;
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let mut name = String::new();
        let mut signs = rest.char_indices();
        let mut end = rest.len();
        while let Some((at, sign)) = signs.next() {
            match sign {
                '.' | '[' => {
                    end = at;
                    break;
                }
                // A dot that belongs to the name.
                '\\' => name.extend(signs.next().map(|(_, sign)| sign)),
                sign => name.push(sign),
            }
        }
        rest = &rest[end..];
        match name.as_str() {
            "" => return None,
            "*" => steps.push(Step::Every),
            _ => steps.push(Step::Field(name)),
        }
    }
    Some(steps)
}

/// Where the bracket that is open ends; brackets in quotes do not count.
fn closing(text: &str) -> Option<usize> {
    let (mut quote, mut depth) = (None, 0);
    for (at, sign) in text.char_indices() {
        match (quote, sign) {
            (Some(open), sign) if sign == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(sign),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::Every);
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return filter_step(filter.trim());
    }
    if let Some(Value::String(name)) = literal(inner) {
        return Some(Step::Field(name));
    }
    inner.parse().ok().map(Step::Index)
}

fn filter_step(text: &str) -> Option<Step> {
    const SIGNS: &[(&str, Comparison)] = &[
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let found = SIGNS.iter().filter_map(|(sign, comparison)| Some((text.find(sign)?, sign, *comparison)));
    let left_of = |text: &str| steps(text.trim().strip_prefix('@')?);
    match found.min_by_key(|(at, sign, _)| (*at, std::cmp::Reverse(sign.len()))) {
        None => Some(Step::Filter(left_of(text)?, None)),
        Some((at, sign, comparison)) => {
            let wanted = literal(text[at + sign.len()..].trim())?;
            Some(Step::Filter(left_of(&text[..at])?, Some((comparison, wanted))))
        }
    }
}

fn literal(text: &str) -> Option<Value> {
    let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    match quoted('\'').or_else(|| quoted('"')) {
        Some(inner) => Some(inner.into()),
        None => serde_json::from_str(text).ok(),
    }
}

fn follow<'a>(steps: &[Step], value: &'a Value) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    let members = || -> Box<dyn Iterator<Item = &'a Value>> {
        match value {
            Value::Array(items) => Box::new(items.iter()),
            Value::Object(map) => Box::new(map.values()),
            _ => Box::new(std::iter::empty()),
        }
    };
    match step {
        Step::Field(name) => follow(rest, value.get(name)?),
        Step::Index(index) => {
            let items = value.as_array()?;
            let index = if *index < 0 { *index + items.len() as i64 } else { *index };
            follow(rest, items.get(usize::try_from(index).ok()?)?)
        }
        Step::Every => members().find_map(|member| follow(rest, member)),
        Step::Filter(left, comparison) => {
            let matches = |member: &&Value| match (follow(left, member), comparison) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(found), Some((comparison, wanted))) => comparison.holds(found, wanted),
            };
            members().filter(matches).find_map(|member| follow(rest, member))
        }
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let order = match (left, right) {
            (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            _ => (left == right).then_some(Equal),
        };
        match self {
            Comparison::Equal => order == Some(Equal),
            Comparison::NotEqual => order != Some(Equal),
            Comparison::Less => order == Some(Less),
            Comparison::LessOrEqual => matches!(order, Some(Less | Equal)),
            Comparison::Greater => order == Some(Greater),
            Comparison::GreaterOrEqual => matches!(order, Some(Greater | Equal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(path: &str, expected: Value) {
        let object = json!({
            "metadata": {"annotations": {"a.b/c": "note"}},
            "spec": {"replicas": 3, "list": [{"name": "a", "n": 1}, {"name": "b", "n": 2}]},
            "status": {"conditions": [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        let found = JsonPath::parse(path).and_then(|path| path.first(&object).cloned()).unwrap_or(Value::Null);
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn paths() {
        check(".spec.replicas", json!(3));
        check("{.spec.replicas}", json!(3));
        check(".metadata.annotations['a.b/c']", json!("note"));
        check(r".metadata.annotations.a\.b/c", json!("note"));
        check(".spec.list[1].name", json!("b"));
        check(".spec.list[-1].name", json!("b"));
        check(".spec.list[*].name", json!("a"));
        check(r#".status.conditions[?(@.type=="Ready")].status"#, json!("True"));
        check(".status.conditions[?(@.type == 'Ready')].status", json!("True"));
        check(".spec.list[?(@.n>1)].name", json!("b"));
        check(".spec.list[?(@.missing)].name", Value::Null);
        check(".spec.list[9].name", Value::Null);
        check(".spec.nothing.at.all", Value::Null);
        check(".spec[", Value::Null);
        assert_eq!(pointer(".spec.replicas"), "/spec/replicas");
    }
}
