//! Parses tokens to a syntax tree. Macros (`all`, `exists`, `map`, ...) become nodes of their own.

use super::DEPTH_MAX;
use super::error::{ParseError, Syntax};
use super::lexer::{Token, words};

#[derive(Debug)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    Name(Box<str>),
    Select(Box<Node>, Box<str>),
    /// `a.?b`: an optional of the field.
    SelectOptional(Box<Node>, Box<str>),
    Has(Box<Node>, Box<str>),
    Index(Box<Node>, Box<Node>),
    IndexOptional(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Minus(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Choice(Box<Node>, Box<Node>, Box<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    /// Entries that begin with `?` are left out where they are none.
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    /// `Object.spec{replicas: 1}`: a value of a named type.
    Struct(Box<str>, Vec<(Box<str>, Node, bool)>),
    Call(Option<Box<Node>>, Box<str>, Vec<Node>),
    Macro(Macro, Box<Node>, Vec<Box<str>>, Vec<Node>),
    /// `cel.bind(name, value, body)`.
    Bind(Box<str>, Box<Node>, Box<Node>),
}

/// A sign between two values, and its place in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operator {
    pub sign: &'static str,
    pub at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Macro {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
    TransformList,
    TransformMap,
    TransformMapEntry,
    OptMap,
    OptFlatMap,
    SortBy,
}

pub(super) fn parse(text: &str) -> Result<Node, ParseError> {
    let mut parser = Parser { words: words(text)?, at: 0, depth: 0 };
    let node = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(node),
        _ => Err(parser.unexpected()),
    }
}

struct Parser {
    words: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.words[self.at].0
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.words.len() - 1);
        token
    }

    fn unexpected(&self) -> ParseError {
        let (token, at) = &self.words[self.at];
        let shown = match token {
            Token::End => "<EOF>".to_string(),
            Token::Name(name) => format!("'{name}'"),
            Token::Sign(sign) => format!("'{sign}'"),
            other => format!("{other:?}"),
        };
        ParseError::new(*at, Syntax::Unexpected(shown))
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(found) if *found == sign);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), ParseError> {
        if self.take(sign) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn name(&mut self) -> Result<Box<str>, ParseError> {
        match self.peek().clone() {
            Token::Name(name) => {
                self.next();
                Ok(name.into())
            }
            _ => Err(self.unexpected()),
        }
    }

    fn expression(&mut self) -> Result<Node, ParseError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(ParseError::new(self.words[self.at].1, Syntax::Depth));
        }
        let condition = self.binary(0)?;
        let node = if self.take("?") {
            let yes = self.binary(0)?;
            self.expect(":")?;
            let no = self.expression()?;
            Node::Choice(condition.into(), yes.into(), no.into())
        } else {
            condition
        };
        self.depth -= 1;
        Ok(node)
    }

    fn binary(&mut self, level: usize) -> Result<Node, ParseError> {
        const LEVELS: &[&[&str]] =
            &[&["||"], &["&&"], &["==", "!=", "<", "<=", ">", ">=", "in"], &["+", "-"], &["*", "/", "%"]];
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        loop {
            let found = match self.peek() {
                Token::Sign(sign) => operators.iter().find(|operator| *operator == sign),
                Token::Name(name) => operators.iter().find(|operator| **operator == "in" && name == "in"),
                _ => None,
            };
            let Some(operator) = found else { return Ok(left) };
            let at = self.words[self.at].1;
            self.next();
            let right = self.binary(level + 1)?;
            left = match *operator {
                "||" => Node::Or(left.into(), right.into()),
                "&&" => Node::And(left.into(), right.into()),
                sign => Node::Binary(Operator { sign, at }, left.into(), right.into()),
            };
        }
    }

    fn unary(&mut self) -> Result<Node, ParseError> {
        let mut signs = Vec::new();
        while let Token::Sign(sign @ ("!" | "-")) = self.peek() {
            signs.push(*sign);
            self.next();
            if signs.len() > DEPTH_MAX {
                return Err(self.unexpected());
            }
        }
        let mut node = self.member()?;
        for sign in signs.iter().rev() {
            node = match (*sign, node) {
                ("-", Node::Int(value)) => Node::Int(value.wrapping_neg()),
                ("-", Node::Double(value)) => Node::Double(-value),
                ("-", node) => Node::Minus(node.into()),
                (_, node) => Node::Not(node.into()),
            };
        }
        Ok(node)
    }

    fn member(&mut self) -> Result<Node, ParseError> {
        let mut node = self.primary()?;
        let mut length = 0;
        loop {
            length += 1;
            // A chain is as deep as it is long once it is evaluated.
            if length > DEPTH_MAX {
                return Err(ParseError::new(self.words[self.at].1, Syntax::Depth));
            }
            if self.take(".") {
                if self.take("?") {
                    node = Node::SelectOptional(node.into(), self.name()?);
                    continue;
                }
                let name = self.name()?;
                node = if self.take("(") {
                    let arguments = self.arguments(")")?;
                    call(node, name, arguments).map_err(|why| ParseError::new(self.words[self.at].1, why))?
                } else {
                    Node::Select(node.into(), name)
                };
            } else if self.take("[") {
                let optional = self.take("?");
                let index = self.expression()?;
                self.expect("]")?;
                node = if optional {
                    Node::IndexOptional(node.into(), index.into())
                } else {
                    Node::Index(node.into(), index.into())
                };
            } else if let (Token::Sign("{"), Some(name)) = (self.peek(), qualified(&node)) {
                node = Node::Struct(name.into(), self.struct_fields()?);
            } else {
                return Ok(node);
            }
        }
    }

    fn struct_fields(&mut self) -> Result<Vec<(Box<str>, Node, bool)>, ParseError> {
        self.expect("{")?;
        let mut fields = Vec::new();
        while !self.take("}") {
            let optional = self.take("?");
            let name = self.name()?;
            self.expect(":")?;
            fields.push((name, self.expression()?, optional));
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(fields)
    }

    fn arguments(&mut self, end: &str) -> Result<Vec<Node>, ParseError> {
        let mut arguments = Vec::new();
        while !self.take(end) {
            arguments.push(self.expression()?);
            if !self.take(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(arguments)
    }

    fn primary(&mut self) -> Result<Node, ParseError> {
        match self.next() {
            Token::Int(value) => Ok(Node::Int(value)),
            Token::Uint(value) => Ok(Node::Uint(value)),
            Token::Double(value) => Ok(Node::Double(value)),
            Token::Text(value) => Ok(Node::Text(value.into())),
            Token::Bytes(value) => Ok(Node::Bytes(value.into())),
            Token::Sign("(") => {
                let node = self.expression()?;
                self.expect(")")?;
                Ok(node)
            }
            Token::Sign("[") => self.list(),
            Token::Sign("{") => self.map(),
            Token::Sign(".") => Ok(Node::Name(self.name()?)),
            Token::Name(name) => match name.as_str() {
                "true" => Ok(Node::Bool(true)),
                "false" => Ok(Node::Bool(false)),
                "null" => Ok(Node::Null),
                _ if self.take("(") => {
                    let arguments = self.arguments(")")?;
                    global(name.into(), arguments).map_err(|why| ParseError::new(self.words[self.at].1, why))
                }
                _ => Ok(Node::Name(name.into())),
            },
            _ => {
                self.at = self.at.saturating_sub(usize::from(self.at + 1 < self.words.len()));
                Err(self.unexpected())
            }
        }
    }

    fn list(&mut self) -> Result<Node, ParseError> {
        let mut items = Vec::new();
        while !self.take("]") {
            let optional = self.take("?");
            items.push((self.expression()?, optional));
            if !self.take(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(Node::List(items))
    }

    fn map(&mut self) -> Result<Node, ParseError> {
        let mut entries = Vec::new();
        while !self.take("}") {
            let optional = self.take("?");
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?, optional));
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Node::Map(entries))
    }
}

/// `Object.spec` as the name of a type.
fn qualified(node: &Node) -> Option<String> {
    match node {
        Node::Name(name) => Some(name.to_string()),
        Node::Select(of, field) => Some(format!("{}.{field}", qualified(of)?)),
        _ => None,
    }
}

fn global(name: Box<str>, mut arguments: Vec<Node>) -> Result<Node, Syntax> {
    if &*name == "has" {
        return match (arguments.pop(), arguments.is_empty()) {
            (Some(Node::Select(of, field)), true) => Ok(Node::Has(of, field)),
            _ => Err(Syntax::Has),
        };
    }
    Ok(Node::Call(None, name, arguments))
}

fn call(target: Node, name: Box<str>, mut arguments: Vec<Node>) -> Result<Node, Syntax> {
    if let (Node::Name(namespace), "bind", 3) = (&target, &*name, arguments.len())
        && &**namespace == "cel"
    {
        let (body, value) = (arguments.pop(), arguments.pop());
        return match (arguments.pop(), value, body) {
            (Some(Node::Name(name)), Some(value), Some(body)) => Ok(Node::Bind(name, value.into(), body.into())),
            _ => Err(Syntax::Bind),
        };
    }
    let (kind, names) = match (&*name, arguments.len()) {
        ("all", 2) => (Macro::All, 1),
        ("all", 3) => (Macro::All, 2),
        ("exists", 2) => (Macro::Exists, 1),
        ("exists", 3) => (Macro::Exists, 2),
        ("exists_one" | "existsOne", 2) => (Macro::ExistsOne, 1),
        ("exists_one" | "existsOne", 3) => (Macro::ExistsOne, 2),
        ("filter", 2) => (Macro::Filter, 1),
        ("map", 2 | 3) => (Macro::Map, 1),
        ("transformList", 3 | 4) => (Macro::TransformList, 2),
        ("transformMap", 3 | 4) => (Macro::TransformMap, 2),
        ("transformMapEntry", 3 | 4) => (Macro::TransformMapEntry, 2),
        ("optMap", 2) => (Macro::OptMap, 1),
        ("optFlatMap", 2) => (Macro::OptFlatMap, 1),
        ("sortBy", 2) => (Macro::SortBy, 1),
        _ => return Ok(Node::Call(Some(target.into()), name, arguments)),
    };
    let bodies = arguments.split_off(names);
    let variables = arguments.into_iter().map(|argument| match argument {
        Node::Name(name) => Ok(name),
        _ => Err(Syntax::MacroVariable),
    });
    Ok(Node::Macro(kind, target.into(), variables.collect::<Result<_, _>>()?, bodies))
}

/// Whether an expression names that variable anywhere.
pub(super) fn mentions(node: &Node, wanted: &str) -> bool {
    let below = |node: &Node| mentions(node, wanted);
    match node {
        Node::Name(name) => &**name == wanted,
        Node::Null
        | Node::Bool(_)
        | Node::Int(_)
        | Node::Uint(_)
        | Node::Double(_)
        | Node::Text(_)
        | Node::Bytes(_) => false,
        Node::Select(of, _) | Node::SelectOptional(of, _) | Node::Has(of, _) | Node::Not(of) | Node::Minus(of) => {
            below(of)
        }
        Node::Index(a, b) | Node::IndexOptional(a, b) | Node::And(a, b) | Node::Or(a, b) | Node::Binary(_, a, b) => {
            below(a) || below(b)
        }
        Node::Bind(_, a, b) => below(a) || below(b),
        Node::Choice(a, b, c) => below(a) || below(b) || below(c),
        Node::List(items) => items.iter().any(|(item, _)| below(item)),
        Node::Map(entries) => entries.iter().any(|(key, value, _)| below(key) || below(value)),
        Node::Struct(_, fields) => fields.iter().any(|(_, value, _)| below(value)),
        Node::Call(target, _, arguments) => target.as_deref().is_some_and(below) || arguments.iter().any(below),
        Node::Macro(_, target, _, bodies) => below(target) || bodies.iter().any(below),
    }
}

/// Whether the expression reads that field of that variable anywhere, plainly or as an optional.
pub(super) fn selects(node: &Node, variable: &str, wanted: &str) -> bool {
    let below = |node: &Node| selects(node, variable, wanted);
    let is_it = |of: &Node, field: &str| matches!(of, Node::Name(name) if &**name == variable) && field == wanted;
    match node {
        Node::Name(_)
        | Node::Null
        | Node::Bool(_)
        | Node::Int(_)
        | Node::Uint(_)
        | Node::Double(_)
        | Node::Text(_)
        | Node::Bytes(_) => false,
        Node::Select(of, field) | Node::SelectOptional(of, field) | Node::Has(of, field) => {
            is_it(of, field) || below(of)
        }
        Node::Not(of) | Node::Minus(of) => below(of),
        Node::Index(a, b) | Node::IndexOptional(a, b) | Node::And(a, b) | Node::Or(a, b) | Node::Binary(_, a, b) => {
            below(a) || below(b)
        }
        Node::Bind(_, a, b) => below(a) || below(b),
        Node::Choice(a, b, c) => below(a) || below(b) || below(c),
        Node::List(items) => items.iter().any(|(item, _)| below(item)),
        Node::Map(entries) => entries.iter().any(|(key, value, _)| below(key) || below(value)),
        Node::Struct(_, fields) => fields.iter().any(|(_, value, _)| below(value)),
        Node::Call(target, _, arguments) => target.as_deref().is_some_and(below) || arguments.iter().any(below),
        Node::Macro(_, target, _, bodies) => below(target) || bodies.iter().any(below),
    }
}
