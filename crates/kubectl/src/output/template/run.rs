//! Executes a Go template on an object.

use serde_json::Value;

use super::Error;
use super::functions::{call, shown};
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

pub(super) fn run(template: &Template, object: &Value) -> Result<String, Error> {
    let mut scope = Scope { template, variables: vec![("$".into(), object.clone())], out: String::new(), depth: 0 };
    scope.nodes(&template.nodes, object)?;
    Ok(scope.out)
}

impl Scope<'_> {
    fn nodes(&mut self, nodes: &[Node], dot: &Value) -> Result<Flow, Error> {
        for node in nodes {
            match self.node(node, dot)? {
                Flow::Next => {}
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, node: &Node, dot: &Value) -> Result<Flow, Error> {
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
                let Some((_, nodes)) = called else { return Err(Error::NoTemplate(name.clone())) };
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(Error::TooDeep);
                }
                self.nodes(nodes, value.as_ref().unwrap_or(&Value::Null))?;
                self.depth -= 1;
            }
        }
        Ok(Flow::Next)
    }

    fn range(&mut self, pipeline: &Pipeline, each: &[Node], otherwise: &[Node], dot: &Value) -> Result<Flow, Error> {
        let known = self.variables.len();
        let plain = Pipeline { variables: Vec::new(), assigns: false, commands: pipeline.commands.clone() };
        let value = self.pipeline(&plain, dot)?;
        let entries: Vec<(Value, Value)> = match value {
            Some(Value::Array(items)) => items.into_iter().enumerate().map(|(at, item)| (at.into(), item)).collect(),
            Some(Value::Object(map)) => map.into_iter().map(|(key, item)| (key.into(), item)).collect(),
            Some(Value::Number(count)) => (0..count.as_i64().unwrap_or(0)).map(|at| (at.into(), at.into())).collect(),
            None | Some(Value::Null) => Vec::new(),
            Some(other) => return Err(Error::NotIterable(shown(&other))),
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
    fn present(&self, found: Option<Value>, path: &[String]) -> Result<Option<Value>, Error> {
        let Some(last) = path.last().filter(|_| self.template.strict && found.is_none()) else { return Ok(found) };
        let word = format!(".{}", path.join("."));
        let at = self.template.source.find(&word).unwrap_or(0);
        let line = self.template.source[..at].matches('\n').count() + 1;
        let column = at - self.template.source[..at].rfind('\n').map_or(0, |end| end + 1);
        Err(Error::NoKey { line, column, word, key: last.clone() })
    }

    /// None stands for no value at all.
    fn pipeline(&mut self, pipeline: &Pipeline, dot: &Value) -> Result<Option<Value>, Error> {
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

    fn command(&mut self, words: &[Word], dot: &Value, piped: Option<Option<Value>>) -> Result<Option<Value>, Error> {
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
            return call(name, arguments);
        }
        match words {
            [word] => self.word(word, dot),
            _ => Err(Error::NotAFunction),
        }
    }

    fn word(&mut self, word: &Word, dot: &Value) -> Result<Option<Value>, Error> {
        Ok(match word {
            Word::Dot => Some(dot.clone()),
            Word::Nil => None,
            Word::Literal(value) => Some(value.clone()),
            Word::Field(path) => self.present(field(dot, path)?, path)?,
            Word::Variable(name, path) => {
                let known = self.variables.iter().rev().find(|(known, _)| known == name);
                let (_, value) = known.ok_or_else(|| Error::NoVariable(name.clone()))?;
                let found = field(value, path)?;
                self.present(found, path)?
            }
            Word::Function(name) => call(name, Vec::new())?,
            Word::Group(pipeline, path) => match self.pipeline(pipeline, dot)? {
                Some(value) => field(&value, path)?,
                None => None,
            },
        })
    }
}

fn field(value: &Value, path: &[String]) -> Result<Option<Value>, Error> {
    let mut current = value;
    for name in path {
        match current {
            Value::Object(map) => match map.get(name) {
                Some(found) => current = found,
                None => return Ok(None),
            },
            Value::Null => return Err(Error::Nil(name.clone())),
            other => return Err(Error::NoField { name: name.clone(), kind: go_type(other) }),
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

pub(super) fn truth(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Bool(value)) => *value,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn printed(source: &str, object: &Value) -> Result<String, String> {
        let template = Template::parse(source).unwrap_or_else(|error| panic!("{source}: {error}"));
        run(&template, object).map_err(|error| error.to_string())
    }

    #[test]
    fn templates_call_each_other() {
        let source = "{{define \"t\"}}<{{.}}>{{end}}{{range .list}}{{template \"t\" .}}{{end}}";
        assert_eq!(printed(source, &json!({"list": ["a", "b"]})), Ok("<a><b>".into()));
        let endless = "{{define \"t\"}}{{template \"t\" .}}{{end}}{{template \"t\" .}}";
        assert_eq!(printed(endless, &json!({})), Err("exceeded maximum template depth".into()));
        assert_eq!(printed("{{template \"none\"}}", &json!({})), Err("template \"none\" not defined".into()));
    }

    #[test]
    fn wrong_values_are_told() {
        let object = json!({"text": "a", "n": 1});
        let refused = |source: &str| printed(source, &object).unwrap_err();
        assert_eq!(refused("{{range .text}}{{end}}"), "range can't iterate over a");
        assert_eq!(refused("{{.text.more}}"), "can't evaluate field more in type string");
        assert_eq!(refused("{{$x}}"), "undefined variable \"$x\"");
        assert_eq!(refused("{{.text .n}}"), "can't give argument to non-function");
    }

    #[test]
    fn variables_live_in_their_block() {
        let object = json!({"list": [1, 2], "n": 3});
        assert_eq!(printed("{{$x := 1}}{{if .n}}{{$x = 2}}{{end}}{{$x}}", &object), Ok("2".into()));
        assert_eq!(
            printed("{{range $i, $v := .list}}{{if eq $i 0}}{{continue}}{{end}}{{$v}}{{end}}", &object),
            Ok("2".into())
        );
        assert_eq!(printed("{{range 3}}{{.}}{{end}}", &object), Ok("012".into()));
    }

    #[test]
    fn a_strict_template_names_the_place() {
        let template = Template::parse("a\n{{.b.c}}").unwrap().strict(true);
        let error = run(&template, &json!({"b": {}})).unwrap_err().to_string();
        assert_eq!(error, "template: output:2:2: executing \"output\" at <.b.c>: map has no entry for key \"c\"");
    }
}
