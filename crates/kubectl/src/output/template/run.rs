//! From a tree and an object to text.

use base64::Engine;
use serde_json::Value;

use super::parse::{Node, Pipeline, Template, Word};

enum Flow {
    Next,
    Break,
    Continue,
}

struct Scope<'a> {
    template: &'a Template,
    variables: Vec<(String, Value)>,
    out: String,
    depth: usize,
}

/// How deep templates may call each other.
const DEPTH_MAX: usize = 100;

pub(super) fn run(template: &Template, object: &Value) -> Result<String, String> {
    let mut scope = Scope { template, variables: vec![("$".into(), object.clone())], out: String::new(), depth: 0 };
    scope.nodes(&template.nodes, object)?;
    Ok(scope.out)
}

impl Scope<'_> {
    fn nodes(&mut self, nodes: &[Node], dot: &Value) -> Result<Flow, String> {
        for node in nodes {
            match self.node(node, dot)? {
                Flow::Next => {}
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, node: &Node, dot: &Value) -> Result<Flow, String> {
        match node {
            Node::Text(text) => self.out.push_str(text),
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
            Node::Print(pipeline) => {
                let value = self.pipeline(pipeline, dot)?;
                if pipeline.variables.is_empty() {
                    self.out.push_str(&value.as_ref().map_or("<no value>".into(), shown));
                }
            }
            Node::If(pipeline, then, otherwise) => {
                let known = self.variables.len();
                let value = self.pipeline(pipeline, dot)?;
                let flow = self.nodes(if truth(value.as_ref()) { then } else { otherwise }, dot)?;
                self.variables.truncate(known);
                return Ok(flow);
            }
            Node::With(pipeline, then, otherwise) => {
                let known = self.variables.len();
                let value = self.pipeline(pipeline, dot)?;
                let flow = match value.filter(|value| truth(Some(value))) {
                    Some(value) => self.nodes(then, &value)?,
                    None => self.nodes(otherwise, dot)?,
                };
                self.variables.truncate(known);
                return Ok(flow);
            }
            Node::Range(pipeline, each, otherwise) => return self.range(pipeline, each, otherwise, dot),
            Node::Call(name, pipeline) => {
                let value = pipeline.as_ref().map(|pipeline| self.pipeline(pipeline, dot)).transpose()?.flatten();
                let called = self.template.defined.iter().find(|(known, _)| known == name);
                let Some((_, nodes)) = called else { return Err(format!("template {name:?} not defined")) };
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err("exceeded maximum template depth".into());
                }
                self.nodes(nodes, value.as_ref().unwrap_or(&Value::Null))?;
                self.depth -= 1;
            }
        }
        Ok(Flow::Next)
    }

    fn range(&mut self, pipeline: &Pipeline, each: &[Node], otherwise: &[Node], dot: &Value) -> Result<Flow, String> {
        let known = self.variables.len();
        let plain = Pipeline { variables: Vec::new(), assigns: false, commands: pipeline.commands.clone() };
        let value = self.pipeline(&plain, dot)?;
        let entries: Vec<(Value, Value)> = match value {
            Some(Value::Array(items)) => items.into_iter().enumerate().map(|(at, item)| (at.into(), item)).collect(),
            Some(Value::Object(map)) => map.into_iter().map(|(key, item)| (key.into(), item)).collect(),
            Some(Value::Number(count)) => (0..count.as_i64().unwrap_or(0)).map(|at| (at.into(), at.into())).collect(),
            None | Some(Value::Null) => Vec::new(),
            Some(other) => return Err(format!("range can't iterate over {}", shown(&other))),
        };
        if entries.is_empty() {
            return self.nodes(otherwise, dot);
        }
        for (key, item) in entries {
            match &pipeline.variables[..] {
                [] => {}
                [only] => self.variables.push((only.clone(), item.clone())),
                [first, second, ..] => {
                    self.variables.push((first.clone(), key));
                    self.variables.push((second.clone(), item.clone()));
                }
            }
            let flow = self.nodes(each, &item)?;
            self.variables.truncate(known);
            if matches!(flow, Flow::Break) {
                break;
            }
        }
        Ok(Flow::Next)
    }

    /// Where keys must be there, what is missing is told with its place.
    fn present(&self, found: Option<Value>, path: &[String]) -> Result<Option<Value>, String> {
        let Some(last) = path.last().filter(|_| self.template.strict && found.is_none()) else { return Ok(found) };
        let word = format!(".{}", path.join("."));
        let at = self.template.source.find(&word).unwrap_or(0);
        let line = self.template.source[..at].matches('\n').count() + 1;
        let column = at - self.template.source[..at].rfind('\n').map_or(0, |end| end + 1);
        Err(format!(
            "template: output:{line}:{column}: executing \"output\" at <{word}>: map has no entry for key {last:?}"
        ))
    }

    /// None stands for no value at all.
    fn pipeline(&mut self, pipeline: &Pipeline, dot: &Value) -> Result<Option<Value>, String> {
        let mut last: Option<Option<Value>> = None;
        for command in &pipeline.commands {
            last = Some(self.command(command, dot, last.take())?);
        }
        let value = last.flatten();
        for name in &pipeline.variables {
            let stored = value.clone().unwrap_or(Value::Null);
            match self.variables.iter_mut().rev().find(|(known, _)| known == name).filter(|_| pipeline.assigns) {
                Some((_, old)) => *old = stored,
                None => self.variables.push((name.clone(), stored)),
            }
        }
        Ok(value)
    }

    fn command(&mut self, words: &[Word], dot: &Value, piped: Option<Option<Value>>) -> Result<Option<Value>, String> {
        if let Some(Word::Function(name)) = words.first() {
            let mut arguments = Vec::new();
            for word in &words[1..] {
                arguments.push(self.word(word, dot)?);
                // The rest of `and` and `or` is not looked at once the answer is known.
                let decided = match name.as_str() {
                    "and" => !truth(arguments.last().and_then(Option::as_ref)),
                    "or" => truth(arguments.last().and_then(Option::as_ref)),
                    _ => false,
                };
                if decided {
                    return Ok(arguments.pop().flatten());
                }
            }
            arguments.extend(piped);
            return function(name, arguments);
        }
        match words {
            [word] => self.word(word, dot),
            _ => Err("can't give argument to non-function".into()),
        }
    }

    fn word(&mut self, word: &Word, dot: &Value) -> Result<Option<Value>, String> {
        Ok(match word {
            Word::Dot => Some(dot.clone()),
            Word::Nil => None,
            Word::Literal(value) => Some(value.clone()),
            Word::Field(path) => self.present(field(dot, path)?, path)?,
            Word::Variable(name, path) => {
                let known = self.variables.iter().rev().find(|(known, _)| known == name);
                let (_, value) = known.ok_or_else(|| format!("undefined variable {name:?}"))?;
                let found = field(value, path)?;
                self.present(found, path)?
            }
            Word::Function(name) => function(name, Vec::new())?,
            Word::Group(pipeline, path) => match self.pipeline(pipeline, dot)? {
                Some(value) => field(&value, path)?,
                None => None,
            },
        })
    }
}

fn field(value: &Value, path: &[String]) -> Result<Option<Value>, String> {
    let mut current = value;
    for name in path {
        match current {
            Value::Object(map) => match map.get(name) {
                Some(found) => current = found,
                None => return Ok(None),
            },
            Value::Null => return Err(format!("nil pointer evaluating interface {{}}.{name}")),
            other => return Err(format!("can't evaluate field {name} in type {}", go_type(other))),
        }
    }
    Ok(Some(current.clone()).filter(|value| !value.is_null()))
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::Array(_) => "[]interface {}",
        _ => "interface {}",
    }
}

fn truth(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Bool(value)) => *value,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
    }
}

/// As Go's `%v` prints it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", shown(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

fn function(name: &str, arguments: Vec<Option<Value>>) -> Result<Option<Value>, String> {
    let text = |at: usize| arguments.get(at).and_then(Option::as_ref).map(shown).unwrap_or_default();
    let first = arguments.first().and_then(Option::as_ref);
    let joined = |separator: &str| {
        let texts: Vec<String> = arguments.iter().map(|value| value.as_ref().map_or("<nil>".into(), shown)).collect();
        texts.join(separator)
    };
    Ok(Some(match name {
        "and" | "or" => return Ok(arguments.into_iter().next_back().flatten()),
        "not" => (!truth(first)).into(),
        "len" => match first {
            Some(Value::Array(items)) => items.len().into(),
            Some(Value::Object(map)) => map.len().into(),
            Some(Value::String(text)) => text.len().into(),
            _ => {
                return Err(format!(
                    "error calling len: len of {}",
                    if first.is_none() { "nil pointer" } else { "untyped value" }
                ));
            }
        },
        "index" => {
            let mut current = first.cloned().ok_or("error calling index: index of untyped nil")?;
            for key in &arguments[1..] {
                current = match (&current, key) {
                    (Value::Array(items), Some(Value::Number(at))) => {
                        let at = at.as_u64().unwrap_or(u64::MAX) as usize;
                        items
                            .get(at)
                            .cloned()
                            .ok_or_else(|| format!("error calling index: index out of range: {at}"))?
                    }
                    (Value::Object(map), Some(Value::String(key))) => match map.get(key) {
                        Some(found) => found.clone(),
                        None => return Ok(None),
                    },
                    _ => return Err("error calling index: cannot index this value".into()),
                };
            }
            current
        }
        "slice" => {
            let bound =
                |at: usize| arguments.get(at).and_then(Option::as_ref).and_then(Value::as_u64).map(|at| at as usize);
            let (from, to) = (bound(1).unwrap_or(0), bound(2));
            match first {
                Some(Value::String(text)) => {
                    text.get(from..to.unwrap_or(text.len())).ok_or("error calling slice: index out of range")?.into()
                }
                Some(Value::Array(items)) => items
                    .get(from..to.unwrap_or(items.len()))
                    .ok_or("error calling slice: index out of range")?
                    .to_vec()
                    .into(),
                _ => return Err("error calling slice: cannot slice this value".into()),
            }
        }
        "exists" => {
            let mut current = first;
            for key in &arguments[1..] {
                current = match (current, key) {
                    (Some(Value::Object(map)), Some(Value::String(key))) => map.get(key),
                    (Some(Value::Array(items)), Some(Value::Number(at))) => {
                        items.get(at.as_u64().unwrap_or(u64::MAX) as usize)
                    }
                    _ => None,
                };
            }
            current.is_some_and(|value| !value.is_null()).into()
        }
        "base64decode" => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(text(0))
                .map_err(|error| format!("error calling base64decode: base64 decode failed: {error}"))?;
            String::from_utf8_lossy(&bytes).into_owned().into()
        }
        "print" => printed(&arguments).into(),
        "println" => format!("{}\n", joined(" ")).into(),
        "printf" => printf(&text(0), &arguments[1.min(arguments.len())..]).into(),
        "html" => text(0).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;").into(),
        "js" => javascript(&text(0)).into(),
        "urlquery" => form_urlencoded::byte_serialize(text(0).as_bytes()).collect::<String>().into(),
        "eq" => arguments[1.min(arguments.len())..].iter().any(|other| same(&arguments[0], other)).into(),
        "ne" => (!same(&arguments[0], arguments.get(1).unwrap_or(&None))).into(),
        "lt" | "le" | "gt" | "ge" => {
            let order = order(first, arguments.get(1).and_then(Option::as_ref))
                .ok_or_else(|| format!("error calling {name}: incompatible types for comparison"))?;
            match name {
                "lt" => order.is_lt(),
                "le" => order.is_le(),
                "gt" => order.is_gt(),
                _ => order.is_ge(),
            }
            .into()
        }
        _ => return Err(format!("function {name:?} not defined")),
    }))
}

/// Between two values of which neither is a text stands a space.
fn printed(arguments: &[Option<Value>]) -> String {
    let is_text = |value: &Option<Value>| matches!(value, Some(Value::String(_)));
    let mut out = String::new();
    for (at, value) in arguments.iter().enumerate() {
        if at > 0 && !is_text(value) && !is_text(&arguments[at - 1]) {
            out.push(' ');
        }
        out.push_str(&value.as_ref().map_or("<nil>".into(), shown));
    }
    out
}

fn javascript(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '\\' | '\'' | '"' => out.extend(['\\', letter]),
            '<' | '>' | '&' | '=' => out.push_str(&format!("\\u{:04X}", letter as u32)),
            control if (control as u32) < 0x20 => out.push_str(&format!("\\u{:04X}", control as u32)),
            other => out.push(other),
        }
    }
    out
}

fn same(left: &Option<Value>, right: &Option<Value>) -> bool {
    match (left, right) {
        (Some(Value::Number(left)), Some(Value::Number(right))) => left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

fn order(left: Option<&Value>, right: Option<&Value>) -> Option<std::cmp::Ordering> {
    match (left?, right?) {
        (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

fn printf(format: &str, arguments: &[Option<Value>]) -> String {
    let mut out = String::new();
    let mut arguments = arguments.iter();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let mut options = String::new();
        while let Some(option) =
            letters.peek().copied().filter(|c| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | '#' | ' '))
        {
            options.push(option);
            letters.next();
        }
        let verb = letters.next().unwrap_or('%');
        if verb == '%' {
            out.push('%');
            continue;
        }
        let Some(value) = arguments.next() else {
            out.push_str(&format!("%!{verb}(MISSING)"));
            continue;
        };
        let text = match (verb, value) {
            ('q', Some(value)) => format!("{:?}", shown(value)),
            ('f', Some(Value::Number(number))) => format!("{:.6}", number.as_f64().unwrap_or(0.0)),
            ('x', Some(Value::Number(number))) => format!("{:x}", number.as_i64().unwrap_or(0)),
            (_, Some(value)) => shown(value),
            (_, None) => "<nil>".into(),
        };
        let left = options.starts_with('-');
        let width: usize =
            options.trim_start_matches('-').split('.').next().and_then(|width| width.parse().ok()).unwrap_or(0);
        out.push_str(&if left { format!("{text:<width$}") } else { format!("{text:>width$}") });
    }
    out
}
