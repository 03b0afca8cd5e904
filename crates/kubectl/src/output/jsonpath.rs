//! The JSONPath of kubectl: text with `{expressions}`, which know ranges, filters, slices and recursive descent.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template {
    source: String,
    parts: Vec<Part>,
    /// A field that is not there is an error.
    strict: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Path(Vec<Step>),
    Range(Vec<Step>, Vec<Part>),
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Root,
    Field(String),
    All,
    Descend,
    Slice(Option<i64>, Option<i64>, Option<i64>),
    /// `[0,2]` and `['a','b']`.
    Union(Vec<Step>),
    Filter(Operand, Option<(Comparison, Operand)>),
    /// A literal where a path may stand: `{"text"}`, `{1}`.
    Literal(Value),
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Path(Vec<Step>),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Template {
    pub(crate) fn parse(source: &str) -> Result<Template, String> {
        let mut parser = Parser { text: source, at: 0 };
        let (parts, _) = parser.parts(false)?;
        Ok(Template { source: source.into(), parts, strict: false })
    }

    pub(crate) fn strict(self, strict: bool) -> Template {
        Template { strict, ..self }
    }

    /// `{.a}`, `.a` and `a` for flags that name one field.
    pub(crate) fn relaxed(text: &str) -> Result<Template, String> {
        let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        if inner.is_empty() || inner.contains(['{', '}']) && !inner.contains("[?(") {
            return Err(String::from(
                "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'",
            ));
        }
        let dotted =
            if inner.starts_with('.') || inner.starts_with('[') { inner.to_string() } else { format!(".{inner}") };
        Template::parse(&format!("{{{dotted}}}"))
    }

    /// The text for an object. What is not there is nothing.
    pub(crate) fn print(&self, root: &Value) -> Result<String, String> {
        let mut out = String::new();
        if self.strict {
            check_parts(&self.parts, root, root)?;
        }
        print_parts(&self.parts, root, root, &mut out)?;
        Ok(out)
    }

    /// The values of each expression, for columns, sorting and waiting.
    pub(crate) fn values<'a>(&'a self, root: &'a Value) -> Result<Vec<&'a Value>, String> {
        Ok(self.each_values(root)?.concat())
    }

    pub(super) fn each_values<'a>(&'a self, root: &'a Value) -> Result<Vec<Vec<&'a Value>>, String> {
        let mut found = Vec::new();
        for part in &self.parts {
            if let Part::Path(steps) = part {
                found.push(walk(steps, root, vec![root])?);
            }
        }
        Ok(found)
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

fn print_parts(parts: &[Part], root: &Value, current: &Value, out: &mut String) -> Result<(), String> {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Path(steps) => {
                let values = walk(steps, root, vec![current])?;
                let texts: Vec<String> = values.into_iter().map(text).collect();
                out.push_str(&texts.join(" "));
            }
            Part::Range(steps, inner) => {
                for value in walk(steps, root, vec![current])? {
                    print_parts(inner, root, value, out)?;
                }
            }
        }
    }
    Ok(())
}

/// Is every field there that is named?
fn check_parts(parts: &[Part], root: &Value, current: &Value) -> Result<(), String> {
    for part in parts {
        let (Part::Path(steps) | Part::Range(steps, _)) = part else { continue };
        let mut values = vec![current];
        for step in steps {
            let mut next = Vec::new();
            for value in values {
                let before = next.len();
                apply(step, root, value, &mut next)?;
                if let (Step::Field(name), true) = (step, next.len() == before) {
                    return Err(format!("{name} is not found"));
                }
            }
            values = next;
        }
        if let Part::Range(_, inner) = part {
            for value in values {
                check_parts(inner, root, value)?;
            }
        }
    }
    Ok(())
}

/// A value as it is printed: texts without quotes, the rest as JSON.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => super::json::compact(other),
    }
}

fn walk<'a>(steps: &'a [Step], root: &'a Value, start: Vec<&'a Value>) -> Result<Vec<&'a Value>, String> {
    let mut current = start;
    for step in steps {
        let mut next = Vec::new();
        for value in current {
            apply(step, root, value, &mut next)?;
        }
        current = next;
    }
    Ok(current)
}

fn apply<'a>(step: &'a Step, root: &'a Value, value: &'a Value, out: &mut Vec<&'a Value>) -> Result<(), String> {
    match step {
        Step::Root => out.push(root),
        Step::Literal(literal) => out.push(literal),
        Step::Field(name) => out.extend(value.get(name).filter(|found| !found.is_null())),
        Step::All => match value {
            Value::Array(items) => out.extend(items),
            Value::Object(map) => out.extend(map.values()),
            _ => {}
        },
        Step::Descend => descend(value, out),
        Step::Union(steps) => {
            for step in steps {
                apply(step, root, value, out)?;
            }
        }
        Step::Slice(from, to, by) => {
            let Value::Array(items) = value else {
                return if value.is_null() { Ok(()) } else { Err(format!("{} is not array or slice", go_kind(value))) };
            };
            slice(items, *from, *to, *by, out)?;
        }
        Step::Filter(left, comparison) => {
            let Value::Array(items) = value else { return Ok(()) };
            for item in items {
                if keeps(left, comparison.as_ref(), root, item)? {
                    out.push(item);
                }
            }
        }
    }
    Ok(())
}

fn slice<'a>(
    items: &'a [Value],
    from: Option<i64>,
    to: Option<i64>,
    by: Option<i64>,
    out: &mut Vec<&'a Value>,
) -> Result<(), String> {
    let length = items.len() as i64;
    let single = by == Some(0);
    let place = |at: i64| if at < 0 { at + length } else { at };
    let first = place(from.unwrap_or(0));
    let last = if single { first + 1 } else { to.map_or(length, place) };
    if length == 0 {
        return Ok(());
    }
    if single && !(0..length).contains(&first) {
        return Err(format!("array index out of bounds: index {first}, length {length}"));
    }
    let step = by.filter(|step| *step > 0).unwrap_or(1) as usize;
    let (first, last) = (first.clamp(0, length), last.clamp(0, length));
    out.extend((first..last).step_by(step).map(|at| &items[at as usize]));
    Ok(())
}

fn descend<'a>(value: &'a Value, out: &mut Vec<&'a Value>) {
    out.push(value);
    match value {
        Value::Array(items) => items.iter().for_each(|item| descend(item, out)),
        Value::Object(map) => map.values().for_each(|item| descend(item, out)),
        _ => {}
    }
}

fn keeps(
    left: &Operand,
    comparison: Option<&(Comparison, Operand)>,
    root: &Value,
    item: &Value,
) -> Result<bool, String> {
    let values = |operand: &Operand| -> Result<Vec<Value>, String> {
        Ok(match operand {
            Operand::Literal(value) => vec![value.clone()],
            Operand::Path(steps) => walk(steps, root, vec![item])?.into_iter().cloned().collect(),
        })
    };
    let left = values(left)?;
    let Some((comparison, right)) = comparison else { return Ok(!left.is_empty()) };
    let right = values(right)?;
    let (Some(left), Some(right)) = (left.first(), right.first()) else { return Ok(false) };
    Ok(compare(left, right, *comparison))
}

fn compare(left: &Value, right: &Value, comparison: Comparison) -> bool {
    use std::cmp::Ordering;
    let order = match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        _ => text(left).partial_cmp(&text(right)),
    };
    match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::Object(_) => "map[string]interface {}",
        _ => "interface {}",
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, expected: &str) -> bool {
        let found = self.rest().starts_with(expected);
        if found {
            self.at += expected.len();
        }
        found
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += self.peek().map_or(0, char::len_utf8);
        }
    }

    /// Parts up to the end of the text, or up to `{end}` inside of a range.
    fn parts(&mut self, in_range: bool) -> Result<(Vec<Part>, bool), String> {
        let mut parts = Vec::new();
        loop {
            let rest = self.rest();
            let Some(open) = rest.find('{') else {
                if !rest.is_empty() {
                    parts.push(Part::Text(rest.to_string()));
                }
                self.at = self.text.len();
                // A range that nothing ends goes to the end of the text.
                return Ok((parts, false));
            };
            if open > 0 {
                parts.push(Part::Text(rest[..open].to_string()));
            }
            self.at += open + 1;
            self.skip_space();
            if self.keyword("end") {
                self.close()?;
                if !in_range {
                    return Err("not in range, nothing to end".into());
                }
                return Ok((parts, true));
            }
            if self.keyword("range") {
                self.skip_space();
                let steps = self.steps()?;
                self.close()?;
                let (inner, _) = self.parts(true)?;
                parts.push(Part::Range(steps, inner));
                continue;
            }
            // Several expressions may stand in one pair of braces.
            loop {
                self.skip_space();
                if self.peek() == Some('}') {
                    break;
                }
                let before = self.at;
                let steps = self.steps()?;
                if self.at == before {
                    return Err(match self.peek() {
                        None => "unclosed action".to_string(),
                        Some(letter) => format!("unrecognized character in action: U+{:04X} {letter:?}", letter as u32),
                    });
                }
                match &steps[..] {
                    [Step::Literal(Value::String(literal))] => parts.push(Part::Text(literal.clone())),
                    _ => parts.push(Part::Path(steps)),
                }
            }
            self.close()?;
        }
    }

    fn keyword(&mut self, word: &str) -> bool {
        let follows = self.rest().strip_prefix(word).and_then(|rest| rest.chars().next());
        let found = self.rest().starts_with(word) && follows.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        if found {
            self.at += word.len();
        }
        found
    }

    fn close(&mut self) -> Result<(), String> {
        self.skip_space();
        if self.take("}") { Ok(()) } else { Err("unclosed action".into()) }
    }

    fn steps(&mut self) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        loop {
            match self.peek() {
                Some('$') => {
                    self.at += 1;
                    steps.push(Step::Root);
                }
                Some('@') => self.at += 1,
                Some('.') if self.rest().starts_with("..") => {
                    self.at += 2;
                    steps.push(Step::Descend);
                    if self.peek().is_some_and(|c| c != '[' && c != '*') {
                        steps.push(Step::Field(self.name()));
                    }
                }
                Some('.') => {
                    self.at += 1;
                    if self.take("*") {
                        steps.push(Step::All);
                    } else if self.peek() != Some('[') {
                        let name = self.name();
                        if !name.is_empty() {
                            steps.push(Step::Field(name));
                        }
                    }
                }
                Some('*') => {
                    self.at += 1;
                    steps.push(Step::All);
                }
                Some('[') => {
                    self.at += 1;
                    steps.push(self.bracket()?);
                }
                Some(quote @ ('"' | '\'')) if steps.is_empty() => {
                    self.at += 1;
                    steps.push(Step::Literal(self.quoted(quote)?.into()));
                    return Ok(steps);
                }
                Some(digit) if steps.is_empty() && (digit.is_ascii_digit() || digit == '-') => {
                    let end = self
                        .rest()
                        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-')
                        .unwrap_or(self.rest().len());
                    let number =
                        serde_json::from_str(&self.rest()[..end]).map_err(|_| "cannot parse number".to_string())?;
                    self.at += end;
                    steps.push(Step::Literal(number));
                    return Ok(steps);
                }
                Some(letter) if steps.is_empty() && (letter.is_alphabetic() || letter == '_') => {
                    // A word without a dot is a field, or a literal inside of a filter.
                    let name = self.name();
                    return Ok(match name.as_str() {
                        "true" => vec![Step::Literal(true.into())],
                        "false" => vec![Step::Literal(false.into())],
                        _ => vec![Step::Field(name)],
                    });
                }
                _ => return Ok(steps),
            }
        }
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(letter) = self.peek() {
            match letter {
                '\\' => {
                    self.at += 1;
                    if let Some(next) = self.peek() {
                        name.push(next);
                        self.at += next.len_utf8();
                    }
                    continue;
                }
                '.' | '[' | ']' | '{' | '}' | '(' | ')' | '=' | '!' | '<' | '>' | '@' | '$' | '*' | ',' | '&' | '|' => {
                    break;
                }
                space if space.is_whitespace() => break,
                other => name.push(other),
            }
            self.at += letter.len_utf8();
        }
        name
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let mut text = String::new();
        while let Some(letter) = self.peek() {
            self.at += letter.len_utf8();
            if letter == quote {
                return Ok(text);
            }
            if letter != '\\' {
                text.push(letter);
                continue;
            }
            let Some(escaped) = self.peek() else { break };
            self.at += escaped.len_utf8();
            match escaped {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                other => text.push(other),
            }
        }
        Err("unterminated quoted string".into())
    }

    fn bracket(&mut self) -> Result<Step, String> {
        self.skip_space();
        if self.take("?(") {
            let left = self.operand()?;
            self.skip_space();
            const OPERATORS: &[(&str, Comparison)] = &[
                ("==", Comparison::Equal),
                ("!=", Comparison::NotEqual),
                ("<=", Comparison::LessOrEqual),
                (">=", Comparison::GreaterOrEqual),
                ("<", Comparison::Less),
                (">", Comparison::Greater),
                ("=", Comparison::Equal),
            ];
            let mut comparison = None;
            for (operator, meaning) in OPERATORS {
                if self.take(operator) {
                    comparison = Some((*meaning, self.operand()?));
                    break;
                }
            }
            self.skip_space();
            if !self.take(")]") {
                if let Some(letter @ '~') = self.peek() {
                    return Err(format!("unrecognized character in action: U+{:04X} {letter:?}", letter as u32));
                }
                return Err("unterminated filter".into());
            }
            return Ok(Step::Filter(left, comparison));
        }
        let mut union = Vec::new();
        loop {
            self.skip_space();
            let step = match self.peek() {
                Some('*') => {
                    self.at += 1;
                    Step::All
                }
                Some('\'') => {
                    self.at += 1;
                    Step::Field(self.quoted('\'')?)
                }
                Some(_) => {
                    let end = self.rest().find([',', ']']).ok_or("unterminated array")?;
                    let inner = self.rest()[..end].trim().to_string();
                    self.at += end;
                    index(&inner)?
                }
                None => return Err("unterminated array".into()),
            };
            union.push(step);
            self.skip_space();
            if self.take("]") {
                return Ok(if union.len() == 1 { union.remove(0) } else { Step::Union(union) });
            }
            if !self.take(",") {
                return Err("unterminated array".into());
            }
        }
    }

    fn operand(&mut self) -> Result<Operand, String> {
        self.skip_space();
        let steps = self.steps()?;
        match &steps[..] {
            [Step::Literal(value)] => Ok(Operand::Literal(value.clone())),
            _ => Ok(Operand::Path(steps)),
        }
    }
}

/// `1`, `1:3`, `::2`, or a field without quotes.
fn index(text: &str) -> Result<Step, String> {
    let number = |text: &str| -> Result<Option<i64>, String> {
        match text.trim() {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| format!("invalid array index {text}")),
        }
    };
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        [one] if one.parse::<i64>().is_ok() => Ok(Step::Slice(number(one)?, None, Some(0))),
        [from, to] => Ok(Step::Slice(number(from)?, number(to)?, None)),
        [from, to, by] => Ok(Step::Slice(number(from)?, number(to)?, number(by)?)),
        _ => Err(format!("invalid array index {text}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions_print_what_they_find() {
        let object = json!({
            "kind": "List",
            "n": 3,
            "labels": {"app": "web", "a.b/c": "dotted"},
            "items": [
                {"name": "a", "size": 1, "ready": true, "tags": ["x", "y"]},
                {"name": "b", "size": 20, "ready": false, "tags": []},
            ],
        });
        let check = |template: &str, expected: &str| {
            let parsed = Template::parse(template).unwrap_or_else(|error| panic!("{template}: {error}"));
            assert_eq!(parsed.print(&object).as_deref(), Ok(expected), "{template}");
        };
        check("kind is {.kind}", "kind is List");
        check("{.labels.app} {.n}{\"\\n\"}", "web 3\n");
        check("{.labels}", r#"{"a.b/c":"dotted","app":"web"}"#);
        check("{.labels.a\\.b/c}", "dotted");
        check("{.labels['a.b/c']}", "dotted");
        check("{.items[*].name}", "a b");
        check("{.items[*]['name','size']}", "a 1 b 20");
        check("{.items[0].name}{.items[-1].name}", "ab");
        check("{.items[-1:].name}", "b");
        check("{.items[0:1].name}", "a");
        check("{range .items[*]}{.name}={.size};{end}", "a=1;b=20;");
        check("{.items[?(@.name==\"b\")].size}", "20");
        check("{.items[?(@.size>5)].name}", "b");
        check("{.items[?(@.ready==true)].name}", "a");
        check("{.items[?(@.missing)].name}", "");
        check("{..name}", "a b");
        check("{.nothing.here}", "");
        check("{.items[0].tags}", r#"["x","y"]"#);
        check("{$.kind}", "List");
        check("plain", "plain");
        assert_eq!(
            Template::parse("{.items[9].name}").unwrap().print(&object).unwrap_err(),
            "array index out of bounds: index 9, length 2"
        );
        assert_eq!(Template::parse("{.a").unwrap_err(), "unclosed action");
        for text in [".kind", "{.kind}", "kind", "{kind}"] {
            assert_eq!(Template::relaxed(text).unwrap().print(&object).unwrap(), "List", "{text}");
        }
    }
}
