//! The grammar of label selectors in query text, with upstream's errors.

use super::lexer::{Token, tokens};
use super::{Operator, Requirement, SelectorError};
use crate::names;

pub fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser { tokens: tokens(text), at: 0 };
    let mut requirements = parser.selector()?;
    requirements.sort_by(|left, right| left.key.cmp(&right.key));
    Ok(requirements)
}

struct Parser {
    tokens: Vec<(Token, String)>,
    at: usize,
}

impl Parser {
    /// The next token where `in` and `notin` are words like any other.
    fn peek(&self) -> (Token, &str) {
        match &self.tokens[self.at.min(self.tokens.len() - 1)] {
            (Token::In | Token::NotIn, text) => (Token::Identifier, text),
            (token, text) => (*token, text),
        }
    }

    fn next(&mut self) -> (Token, String) {
        let (token, text) = self.peek();
        let found = (token, text.to_string());
        self.at += 1;
        found
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Token::Identifier | Token::Not, _) => {}
                (Token::End, _) => return Ok(requirements),
                (_, text) => return Err(unexpected(text, "!, identifier, or 'end of string'")),
            }
            requirements.push(self.requirement().map_err(|error| SelectorError::Requirement(error.into()))?);
            match self.next() {
                (Token::End, _) => return Ok(requirements),
                (Token::Comma, _) => match self.peek() {
                    (Token::Identifier | Token::Not, _) => {}
                    (_, text) => return Err(unexpected(text, "identifier after ','")),
                },
                (_, text) => return Err(unexpected(text, "',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let absent = self.peek().0 == Token::Not;
        if absent {
            self.next();
        }
        let key = match self.next() {
            (Token::Identifier, key) => key,
            (_, text) => return Err(unexpected(text, "identifier")),
        };
        let problems = names::qualified_name(&key);
        if !problems.is_empty() {
            // Upstream has no path here, and says so.
            return Err(SelectorError::Key { key, problems });
        }
        if absent {
            return Requirement::new(&key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Requirement::new(&key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => self.exact_value()?,
        };
        Requirement::new(&key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        let (token, text) = self.tokens[self.at.min(self.tokens.len() - 1)].clone();
        self.at += 1;
        match token {
            Token::In => Ok(Operator::In),
            Token::NotIn => Ok(Operator::NotIn),
            Token::Equals | Token::DoubleEquals => Ok(Operator::Equals),
            Token::NotEquals => Ok(Operator::NotEquals),
            Token::GreaterThan => Ok(Operator::GreaterThan),
            Token::LessThan => Ok(Operator::LessThan),
            _ => Err(unexpected(text, "in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn exact_value(&mut self) -> Result<Vec<String>, SelectorError> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(vec![String::new()]);
        }
        match self.next() {
            (Token::Identifier, value) => Ok(vec![value]),
            (_, text) => Err(unexpected(text, "identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        let (token, text) = self.next();
        if token != Token::Open {
            return Err(SelectorError::Open { found: text });
        }
        match self.peek() {
            (Token::Identifier | Token::Comma, _) => {}
            (Token::Closed, _) => {
                // Nothing between parentheses is one empty value.
                self.next();
                return Ok(vec![String::new()]);
            }
            (_, text) => return Err(unexpected(text, "',', ')' or identifier")),
        }
        let values = self.value_list()?;
        let first = self.next();
        match first.0 {
            Token::Closed => Ok(values),
            _ => Err(unexpected(first.1, "')'")),
        }
    }

    /// Values up to the closing parenthesis; an empty place between commas is an empty value.
    fn value_list(&mut self) -> Result<Vec<String>, SelectorError> {
        let mut values: Vec<String> = Vec::new();
        loop {
            match self.next() {
                (Token::Identifier, value) => {
                    values.push(value);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Closed, _) => return Ok(values),
                        (_, text) => return Err(unexpected(text, "',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek().0 {
                        Token::Closed => {
                            values.push(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.next();
                            values.push(String::new());
                        }
                        _ => {}
                    }
                }
                (_, text) => return Err(unexpected(text, "',', or identifier")),
            }
        }
    }
}

fn unexpected(found: impl Into<String>, expected: &'static str) -> SelectorError {
    SelectorError::Unexpected { found: found.into(), expected }
}
