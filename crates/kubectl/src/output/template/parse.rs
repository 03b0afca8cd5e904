//! Parses a Go template to a syntax tree.

use serde_json::Value;

use super::Error;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template {
    pub(super) nodes: Vec<Node>,
    pub(super) defined: Vec<(String, Vec<Node>)>,
    pub(super) source: String,
    /// A key that is not there is an error.
    pub(super) strict: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Text(String),
    Print(Pipeline),
    If(Pipeline, Vec<Node>, Vec<Node>),
    With(Pipeline, Vec<Node>, Vec<Node>),
    Range(Pipeline, Vec<Node>, Vec<Node>),
    Call(String, Option<Pipeline>),
    Break,
    Continue,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pipeline {
    /// `$a, $b :=` before it.
    pub variables: Vec<String>,
    /// `=` instead of `:=`: the variables are already there.
    pub assigns: bool,
    pub commands: Vec<Vec<Word>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Word {
    Dot,
    Field(Vec<String>),
    Variable(String, Vec<String>),
    Literal(Value),
    Function(String),
    Nil,
    Group(Box<Pipeline>, Vec<String>),
}

pub(super) const FUNCTIONS: &[&str] = &[
    "and",
    "base64decode",
    "call",
    "eq",
    "exists",
    "ge",
    "gt",
    "html",
    "index",
    "js",
    "le",
    "len",
    "lt",
    "ne",
    "not",
    "or",
    "print",
    "printf",
    "println",
    "slice",
    "urlquery",
];

enum Piece {
    Text(String),
    Action(String),
}

impl Template {
    pub(crate) fn parse(source: &str) -> Result<Template, Error> {
        let mut parser = Parser { pieces: pieces(source)?.into_iter(), defined: Vec::new() };
        let (nodes, end) = parser.nodes()?;
        match end {
            None => Ok(Template { nodes, defined: parser.defined, source: source.into(), strict: false }),
            Some(word) => Err(Error::Unexpected(word)),
        }
    }
}

/// Text and actions, with the space taken away that `{{-` and `-}}` ask for.
fn pieces(source: &str) -> Result<Vec<Piece>, Error> {
    let mut found = Vec::new();
    let mut rest = source;
    let mut trim = false;
    loop {
        let (text, more) = match rest.find("{{") {
            Some(open) => (&rest[..open], Some(&rest[open + 2..])),
            None => (rest, None),
        };
        let mut text = if trim { text.trim_start() } else { text };
        let Some(action) = more else {
            found.push(Piece::Text(text.into()));
            return Ok(found);
        };
        let (action, trims_before) = match action.strip_prefix("- ") {
            Some(action) => (action, true),
            None => (action, false),
        };
        if trims_before {
            text = text.trim_end();
        }
        found.push(Piece::Text(text.into()));
        let close = end_of_action(action).ok_or(Error::UnclosedAction)?;
        let (mut inner, after) = (&action[..close], &action[close + 2..]);
        trim = inner.ends_with(" -");
        if trim {
            inner = &inner[..inner.len() - 2];
        }
        let inner = inner.trim();
        if !inner.starts_with("/*") {
            found.push(Piece::Action(inner.into()));
        }
        rest = after;
    }
}

/// Where `}}` stands outside of quotes.
fn end_of_action(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match quote {
            Some(open) => {
                if escaped {
                    escaped = false;
                } else if letter == '\\' && open != '`' {
                    escaped = true;
                } else if letter == open {
                    quote = None;
                }
            }
            None if matches!(letter, '"' | '`') => quote = Some(letter),
            None if text[at..].starts_with("}}") => return Some(at),
            None => {}
        }
    }
    None
}

struct Parser {
    pieces: std::vec::IntoIter<Piece>,
    defined: Vec<(String, Vec<Node>)>,
}

impl Parser {
    /// Nodes up to the end, or up to an `end` or `else` that belongs to someone above.
    fn nodes(&mut self) -> Result<(Vec<Node>, Option<String>), Error> {
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.next() {
            let action = match piece {
                Piece::Text(text) => {
                    if !text.is_empty() {
                        nodes.push(Node::Text(text));
                    }
                    continue;
                }
                Piece::Action(action) => action,
            };
            let (word, more) = action.split_once(char::is_whitespace).unwrap_or((&action, ""));
            match word {
                "end" | "else" => return Ok((nodes, Some(action))),
                "if" | "with" | "range" => nodes.push(self.branch(word, more)?),
                "define" | "block" => {
                    let (name, pipeline) = more.trim().split_once(' ').unwrap_or((more.trim(), ""));
                    let name = name.trim_matches('"').to_string();
                    let (inner, _) = self.nodes()?;
                    self.defined.push((name.clone(), inner));
                    if word == "block" {
                        nodes.push(Node::Call(name, Some(pipeline_of(pipeline)?)));
                    }
                }
                "template" => {
                    let (name, pipeline) = more.trim().split_once(' ').unwrap_or((more.trim(), ""));
                    let pipeline = if pipeline.is_empty() { None } else { Some(pipeline_of(pipeline)?) };
                    nodes.push(Node::Call(name.trim_matches('"').into(), pipeline));
                }
                "break" => nodes.push(Node::Break),
                "continue" => nodes.push(Node::Continue),
                _ => nodes.push(Node::Print(pipeline_of(&action)?)),
            }
        }
        Ok((nodes, None))
    }

    fn branch(&mut self, word: &str, condition: &str) -> Result<Node, Error> {
        let pipeline = pipeline_of(condition)?;
        let (then, end) = self.nodes()?;
        let otherwise = match end.as_deref() {
            Some("end") => Vec::new(),
            Some("else") => match self.nodes()? {
                (nodes, Some(end)) if end == "end" => nodes,
                _ => return Err(Error::UnexpectedEnd),
            },
            Some(chained) => {
                let chained = chained.trim_start_matches("else").trim();
                let (word, condition) = chained.split_once(char::is_whitespace).unwrap_or((chained, ""));
                vec![self.branch(word, condition)?]
            }
            None => return Err(Error::UnexpectedEnd),
        };
        Ok(match word {
            "with" => Node::With(pipeline, then, otherwise),
            "range" => Node::Range(pipeline, then, otherwise),
            _ => Node::If(pipeline, then, otherwise),
        })
    }
}

fn pipeline_of(text: &str) -> Result<Pipeline, Error> {
    let mut words = Words { rest: text };
    let pipeline = words.pipeline()?;
    match words.rest.trim() {
        "" => Ok(pipeline),
        rest => Err(Error::UnexpectedInCommand(rest.into())),
    }
}

struct Words<'a> {
    rest: &'a str,
}

impl Words<'_> {
    fn pipeline(&mut self) -> Result<Pipeline, Error> {
        let mut pipeline = Pipeline::default();
        if let Some(at) = self.rest.find('=').filter(|_| self.rest.trim_start().starts_with('$')) {
            let before = self.rest[..at].trim_end_matches(':');
            if before.split(',').all(|name| name.trim().starts_with('$') && !name.trim().contains([' ', '.', '|', '(']))
            {
                pipeline.assigns = !self.rest[..at].ends_with(':');
                pipeline.variables = before.split(',').map(|name| name.trim().to_string()).collect();
                self.rest = &self.rest[at + 1..];
            }
        }
        let mut command = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            match self.rest.chars().next() {
                None | Some(')') => break,
                Some('|') => {
                    self.rest = &self.rest[1..];
                    pipeline.commands.push(std::mem::take(&mut command));
                }
                Some(_) => command.push(self.word()?),
            }
        }
        if command.is_empty() {
            return Err(Error::MissingValue);
        }
        pipeline.commands.push(command);
        Ok(pipeline)
    }

    fn word(&mut self) -> Result<Word, Error> {
        let first = self.rest.chars().next().unwrap_or(' ');
        if first == '(' {
            self.rest = &self.rest[1..];
            let inner = self.pipeline()?;
            self.rest = self.rest.trim_start().strip_prefix(')').ok_or(Error::UnclosedParen)?;
            let end = self.rest.find(|c: char| c.is_whitespace() || matches!(c, '|' | ')')).unwrap_or(self.rest.len());
            let fields = fields(&self.rest[..end]);
            self.rest = &self.rest[end..];
            return Ok(Word::Group(Box::new(inner), fields));
        }
        if first == '"' || first == '`' {
            let mut escaped = false;
            let inner = &self.rest[1..];
            for (at, letter) in inner.char_indices() {
                if escaped {
                    escaped = false;
                } else if letter == '\\' && first == '"' {
                    escaped = true;
                } else if letter == first {
                    let text = &inner[..at];
                    self.rest = &inner[at + 1..];
                    return Ok(Word::Literal(if first == '`' {
                        text.into()
                    } else {
                        serde_json::from_str(&format!("\"{text}\""))?
                    }));
                }
            }
            return Err(Error::UnterminatedString);
        }
        let end =
            self.rest.find(|c: char| c.is_whitespace() || matches!(c, '|' | ')' | '(')).unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        self.rest = &self.rest[end..];
        Ok(match word {
            "." => Word::Dot,
            "nil" => Word::Nil,
            "true" => Word::Literal(true.into()),
            "false" => Word::Literal(false.into()),
            _ if word.starts_with('.') => Word::Field(fields(word)),
            _ if word.starts_with('$') => {
                let (name, path) = word.split_once('.').map_or((word, ""), |(name, path)| (name, path));
                Word::Variable(name.into(), fields(path))
            }
            _ if FUNCTIONS.contains(&word) => Word::Function(word.into()),
            _ => match serde_json::from_str::<Value>(word) {
                Ok(number @ Value::Number(_)) => Word::Literal(number),
                _ => return Err(Error::UnknownFunction(word.into())),
            },
        })
    }
}

fn fields(path: &str) -> Vec<String> {
    path.split('.').filter(|part| !part.is_empty()).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_template_is_refused() {
        let check = |source: &str, error: &str| {
            assert_eq!(Template::parse(source).unwrap_err().to_string(), format!("template: output:1: {error}"));
        };
        check("{{.a", "unclosed action");
        check("{{if .a}}x", "unexpected EOF");
        check("{{end}}", "unexpected {{end}}");
        check("{{nothing .a}}", "function \"nothing\" not defined");
        check("{{}}", "missing value for command");
        check("{{(.a}}", "unclosed left paren");
        check("{{.a)}}", "unexpected \")\" in command");
    }

    #[test]
    fn actions_end_outside_of_quotes() {
        assert_eq!(end_of_action("\"}}\" }}"), Some(5));
        assert_eq!(end_of_action("`\\` }}"), Some(4));
        assert_eq!(end_of_action("\"a"), None);
    }
}
