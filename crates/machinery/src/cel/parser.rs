//! Parses words to a syntax tree. Macros (`all`, `exists`, `map`, ...) become nodes of their own (`expand.rs`).

use super::DEPTH_MAX;
use super::ast::{Expr, Field, Node};
use super::error::{Issue, Problem};
use super::expand;
use super::lexer::{Token, Word, Words, words};
use super::recovery::{self, Limits};
use super::types::WORDS;

/// Longer expressions are refused, in letters.
const LETTERS_MAX: usize = 100_000;

/// How deep brackets may be nested: each level is a few calls deep here.
const NESTING_MAX: usize = 100;

pub(super) fn parse(text: &str) -> Result<Node, Vec<Issue>> {
    parse_within(text, recovery::LIMITS)
}

pub(super) fn parse_within(text: &str, limits: Limits) -> Result<Node, Vec<Issue>> {
    let letters = text.chars().count();
    if letters > LETTERS_MAX {
        return Err(vec![Issue::new(0, Problem::Length(letters, LETTERS_MAX))]);
    }
    let Words { words, issues: no_words, skipped, values } = words(text);
    let mut parser = Parser { words, issues: values, at: 0, depth: 0 };
    let parsed = parser.whole();
    let mut issues = no_words;
    match parsed {
        Ok(node) if issues.is_empty() && parser.issues.is_empty() => return Ok(node),
        Ok(_) => issues.append(&mut parser.issues),
        Err(Halt::Issue(issue)) => {
            issues.append(&mut parser.issues);
            issues.push(issue);
        }
        Err(Halt::Syntax) => {
            let mut found = recovery::findings(text, &parser.words, &skipped, limits);
            issues.retain(|issue| issue.at < found.read_until);
            issues.append(&mut found.syntax);
            if found.is_complete {
                parser.issues.retain(|issue| !matches!(issue.problem, Problem::Reserved(_)));
                issues.append(&mut found.reserved);
                issues.append(&mut parser.issues);
            }
            // What takes too many steps to look through is still no expression.
            if issues.is_empty() {
                let word = &parser.words[parser.at];
                issues.push(Issue::new(word.at, Problem::NoAlternative(text[word.at..word.end].to_owned())));
            }
        }
    }
    Err(issues)
}

struct Parser {
    words: Vec<Word>,
    /// What is wrong, though the rest could be read.
    issues: Vec<Issue>,
    at: usize,
    depth: usize,
}

/// Why parsing stops.
enum Halt {
    /// A word does not fit. What is told of it, and of the rest, is found by `recovery.rs`.
    Syntax,
    Issue(Issue),
}

type Parsed<T> = Result<T, Halt>;

impl Parser {
    fn whole(&mut self) -> Parsed<Node> {
        let node = self.expression()?;
        if matches!(self.peek(), Token::End) { Ok(node) } else { Err(Halt::Syntax) }
    }

    fn peek(&self) -> &Token {
        &self.words[self.at].token
    }

    fn place(&self) -> usize {
        self.words[self.at].at
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.words.len() - 1);
        token
    }

    fn is_next(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(found) if *found == sign)
    }

    fn is_behind(&self, sign: &str) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.words.get(at));
        matches!(before, Some(Word { token: Token::Sign(found), .. }) if *found == sign)
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.is_next(sign);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.take(sign) { Ok(()) } else { Err(Halt::Syntax) }
    }

    fn made(&self, at: usize, expr: Expr) -> Parsed<Node> {
        let node = Node::new(at, expr);
        if node.depth > DEPTH_MAX { Err(Halt::Issue(Issue::new(at, Problem::Depth))) } else { Ok(node) }
    }

    fn expression(&mut self) -> Parsed<Node> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            return Err(Halt::Issue(Issue::new(self.place(), Problem::Depth)));
        }
        let condition = self.logic("||")?;
        let at = self.place();
        let node = if self.take("?") {
            let yes = self.logic("||")?;
            self.expect(":")?;
            let no = self.expression()?;
            self.made(at, Expr::Choice(condition.into(), yes.into(), no.into()))?
        } else {
            condition
        };
        self.depth -= 1;
        Ok(node)
    }

    /// Chains of `||` and of `&&`. They are put together as a balanced tree: long ones are common.
    fn logic(&mut self, sign: &'static str) -> Parsed<Node> {
        let mut terms = vec![self.term(sign)?];
        let mut places = Vec::new();
        while self.is_next(sign) {
            places.push(self.place());
            self.next();
            terms.push(self.term(sign)?);
        }
        balanced(&mut terms.into_iter(), &places, sign == "||").ok_or(Halt::Syntax)
    }

    fn term(&mut self, sign: &'static str) -> Parsed<Node> {
        if sign == "||" { self.logic("&&") } else { self.binary(0) }
    }

    /// Operators of that rank or a higher one, the first of them first.
    fn binary(&mut self, rank: usize) -> Parsed<Node> {
        let mut left = self.unary()?;
        while let Some((sign, own)) = self.operator().filter(|(_, own)| *own >= rank) {
            let at = self.place();
            self.next();
            let right = self.binary(own + 1)?;
            left = self.made(at, Expr::Binary(sign, left.into(), right.into()))?;
        }
        Ok(left)
    }

    fn operator(&self) -> Option<(&'static str, usize)> {
        Some(match self.peek() {
            Token::Name(name) if name == "in" => ("in", 0),
            Token::Sign(sign @ ("==" | "!=" | "<" | "<=" | ">" | ">=")) => (sign, 0),
            Token::Sign(sign @ ("+" | "-")) => (sign, 1),
            Token::Sign(sign @ ("*" | "/" | "%")) => (sign, 2),
            _ => return None,
        })
    }

    fn unary(&mut self) -> Parsed<Node> {
        let mut signs: Vec<(&'static str, usize)> = Vec::new();
        while let Token::Sign(sign @ ("!" | "-")) = *self.peek() {
            signs.push((sign, self.place()));
            self.next();
        }
        let is_negative = matches!(signs.last(), Some(("-", _)));
        let literal =
            if is_negative && matches!(self.peek(), Token::Int(_) | Token::Double(_)) { signs.pop() } else { None };
        // Signs of both kinds come together only where the minus belongs to a number.
        if signs.windows(2).any(|pair| pair[0].0 != pair[1].0) {
            return Err(Halt::Syntax);
        }
        if let Some((_, at)) = literal {
            let expr = match self.peek().clone() {
                Token::Int(value) => Expr::Int(value.wrapping_neg()),
                Token::Double(value) => Expr::Double(-value),
                _ => return Err(Halt::Syntax),
            };
            self.next();
            let node = Node::new(at, expr);
            let member = self.member(node)?;
            return self.signed(signs, member);
        }
        let primary = self.primary()?;
        let member = self.member(primary)?;
        self.signed(signs, member)
    }

    /// The same sign twice is none.
    fn signed(&mut self, signs: Vec<(&'static str, usize)>, mut node: Node) -> Parsed<Node> {
        let mut rest = &signs[..];
        while let Some((sign, _)) = rest.last() {
            let same = rest.iter().rev().take_while(|(other, _)| other == sign).count();
            let (before, run) = rest.split_at(rest.len() - same);
            if same % 2 == 1 {
                let made: fn(Box<Node>) -> Expr = if *sign == "!" { Expr::Not } else { Expr::Minus };
                node = self.made(run[0].1, made(node.into()))?;
            }
            rest = before;
        }
        Ok(node)
    }

    fn member(&mut self, mut node: Node) -> Parsed<Node> {
        loop {
            let at = self.place();
            if self.take(".") {
                let optional = self.take("?");
                let is_quoted = matches!(self.peek(), Token::Quoted(_));
                let name = self.field_name()?;
                let open = self.place();
                node = if !optional && !is_quoted && self.take("(") {
                    let arguments = self.arguments()?;
                    expand::member_call(open, node, name, arguments, &mut self.issues)
                } else if optional {
                    Node::new(at, Expr::SelectOptional(node.into(), name))
                } else {
                    Node::new(at, Expr::Select(node.into(), name))
                };
            } else if self.take("[") {
                let optional = self.take("?");
                let index = self.expression()?;
                self.expect("]")?;
                let made: fn(Box<Node>, Box<Node>) -> Expr = if optional { Expr::IndexOptional } else { Expr::Index };
                node = Node::new(at, made(node.into(), index.into()));
            } else if let (true, Some(name)) = (self.is_next("{") && !self.is_behind(")"), node.qualified()) {
                let fields = self.struct_fields()?;
                node = Node::new(at, Expr::Struct(name.into(), fields));
            } else {
                return Ok(node);
            }
            // A chain is as deep as it is long once it is evaluated.
            if node.depth > DEPTH_MAX {
                return Err(Halt::Issue(Issue::new(at, Problem::Depth)));
            }
        }
    }

    fn field_name(&mut self) -> Parsed<Box<str>> {
        let place = self.place();
        match self.peek().clone() {
            Token::Name(name) if is_name(&name) => {
                self.next();
                Ok(name.into())
            }
            Token::Quoted(name) => {
                self.next();
                self.issues.push(Issue::new(place, Problem::Backtick));
                Ok(name.into())
            }
            _ => Err(Halt::Syntax),
        }
    }

    fn struct_fields(&mut self) -> Parsed<Vec<Field>> {
        self.expect("{")?;
        let mut fields = Vec::new();
        if self.take(",") {
            self.expect("}")?;
            return Ok(fields);
        }
        while !self.take("}") {
            let optional = self.take("?");
            let name = self.field_name()?;
            let at = self.place();
            self.expect(":")?;
            fields.push(Field { at, name, value: self.expression()?, optional });
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(fields)
    }

    fn arguments(&mut self) -> Parsed<Vec<Node>> {
        let mut arguments = Vec::new();
        if self.take(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression()?);
            if !self.take(",") {
                self.expect(")")?;
                return Ok(arguments);
            }
        }
    }

    fn primary(&mut self) -> Parsed<Node> {
        let at = self.place();
        let literal = |expr: Expr| Ok(Node::new(at, expr));
        match self.peek().clone() {
            Token::Int(i64::MIN) => {
                self.issues.push(Issue::new(at, Problem::Number("int")));
                self.passed(Expr::Int(0))
            }
            Token::Int(value) => self.passed(Expr::Int(value)),
            Token::Uint(value) => self.passed(Expr::Uint(value)),
            Token::Double(value) => self.passed(Expr::Double(value)),
            Token::Text(value) => self.passed(Expr::Text(value.into())),
            Token::Bytes(value) => self.passed(Expr::Bytes(value.into())),
            Token::Sign("(") => {
                self.next();
                let node = self.expression()?;
                self.expect(")")?;
                Ok(node)
            }
            Token::Sign("[") => {
                self.next();
                literal(self.list()?)
            }
            Token::Sign("{") => {
                self.next();
                literal(self.map()?)
            }
            Token::Sign(".") => {
                self.next();
                self.name()
            }
            Token::Name(name) => match name.as_str() {
                "true" => self.passed(Expr::Bool(true)),
                "false" => self.passed(Expr::Bool(false)),
                "null" => self.passed(Expr::Null),
                _ => self.name(),
            },
            _ => Err(Halt::Syntax),
        }
    }

    fn passed(&mut self, expr: Expr) -> Parsed<Node> {
        let at = self.place();
        self.next();
        Ok(Node::new(at, expr))
    }

    fn name(&mut self) -> Parsed<Node> {
        let at = self.place();
        let Token::Name(name) = self.next() else { return Err(Halt::Syntax) };
        if !is_name(&name) {
            return Err(Halt::Syntax);
        }
        if WORDS.contains(&name.as_str()) {
            self.issues.push(Issue::new(at, Problem::Reserved(name)));
            if self.take("(") {
                self.arguments()?;
            }
            // Something that is no name, for whoever needs one.
            return Ok(Node::new(at, Expr::Null));
        }
        let open = self.place();
        if self.take("(") {
            let arguments = self.arguments()?;
            return Ok(expand::global_call(open, name.into(), arguments, &mut self.issues));
        }
        Ok(Node::new(at, Expr::Name(name.into())))
    }

    fn list(&mut self) -> Parsed<Expr> {
        let mut items = Vec::new();
        if self.take(",") {
            self.expect("]")?;
            return Ok(Expr::List(items));
        }
        while !self.take("]") {
            let optional = self.take("?");
            items.push((self.expression()?, optional));
            if !self.take(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(Expr::List(items))
    }

    fn map(&mut self) -> Parsed<Expr> {
        let mut entries = Vec::new();
        if self.take(",") {
            self.expect("}")?;
            return Ok(Expr::Map(entries));
        }
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
        Ok(Expr::Map(entries))
    }
}

/// A name and no word of the language.
fn is_name(word: &str) -> bool {
    !matches!(word, "in" | "true" | "false" | "null")
}

/// One more term than places. The tree is as upstream builds it.
fn balanced(terms: &mut impl Iterator<Item = Node>, places: &[usize], is_or: bool) -> Option<Node> {
    if places.is_empty() {
        return terms.next();
    }
    let middle = places.len() / 2;
    let left = balanced(terms, &places[..middle], is_or)?;
    let right = balanced(terms, &places[middle + 1..], is_or)?;
    let made: fn(Box<Node>, Box<Node>) -> Expr = if is_or { Expr::Or } else { Expr::And };
    Some(Node::new(places[middle], made(left.into(), right.into())))
}
