//! Parses a JSONPath template to parts and steps.

use serde_json::Value;

use super::{Comparison, Error, Operand, Part, Step};

/// The longest sign first, so that `<=` is not read as `<`.
const OPERATORS: &[(&str, Comparison)] = &[
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
    ("=", Comparison::Equal),
];

pub(super) fn parts(source: &str) -> Result<Vec<Part>, Error> {
    Parser { text: source, at: 0 }.parts(false)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
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
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Parts up to the end of the text, or up to `{end}` inside of a range.
    fn parts(&mut self, in_range: bool) -> Result<Vec<Part>, Error> {
        let mut parts = Vec::new();
        loop {
            let rest = self.rest();
            let Some(open) = rest.find('{') else {
                if !rest.is_empty() {
                    parts.push(Part::Text(rest.to_string()));
                }
                self.at = self.text.len();
                // A range that nothing ends goes to the end of the text.
                return Ok(parts);
            };
            if open > 0 {
                parts.push(Part::Text(rest[..open].to_string()));
            }
            self.at += open + 1;
            self.skip_space();
            if self.keyword("end") {
                self.close()?;
                return if in_range { Ok(parts) } else { Err(Error::NotInRange) };
            }
            if self.keyword("range") {
                self.skip_space();
                let steps = self.steps()?;
                self.close()?;
                parts.push(Part::Range(steps, self.parts(true)?));
            } else {
                self.expressions(&mut parts)?;
                self.close()?;
            }
        }
    }

    /// Several expressions may stand in one pair of braces.
    fn expressions(&mut self, parts: &mut Vec<Part>) -> Result<(), Error> {
        loop {
            self.skip_space();
            if self.peek() == Some('}') {
                return Ok(());
            }
            let before = self.at;
            let steps = self.steps()?;
            if self.at == before {
                return Err(self.peek().map_or(Error::UnclosedAction, Error::UnrecognizedCharacter));
            }
            match &steps[..] {
                [Step::Literal(Value::String(literal))] => parts.push(Part::Text(literal.clone())),
                _ => parts.push(Part::Path(steps)),
            }
        }
    }

    fn keyword(&mut self, word: &str) -> bool {
        let Some(after) = self.rest().strip_prefix(word) else { return false };
        let found = !after.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        if found {
            self.at += word.len();
        }
        found
    }

    fn close(&mut self) -> Result<(), Error> {
        self.skip_space();
        if self.take("}") { Ok(()) } else { Err(Error::UnclosedAction) }
    }

    fn steps(&mut self) -> Result<Vec<Step>, Error> {
        if let Some(literal) = self.literal()? {
            return Ok(vec![literal]);
        }
        let mut steps = Vec::new();
        loop {
            match self.peek() {
                Some('$') => {
                    self.at += 1;
                    steps.push(Step::Root);
                }
                Some('@') => self.at += 1,
                Some('.') => self.dot(&mut steps),
                Some('*') => {
                    self.at += 1;
                    steps.push(Step::All);
                }
                Some('[') => {
                    self.at += 1;
                    steps.push(self.bracket()?);
                }
                // A word without a dot is a field.
                Some(letter) if steps.is_empty() && (letter.is_alphabetic() || letter == '_') => {
                    return Ok(vec![Step::Field(self.name())]);
                }
                _ => return Ok(steps),
            }
        }
    }

    /// A text, a number, `true` or `false`, where an expression begins with one.
    fn literal(&mut self) -> Result<Option<Step>, Error> {
        let value = match self.peek() {
            Some(quote @ ('"' | '\'')) => {
                self.at += 1;
                self.quoted(quote)?.into()
            }
            Some(digit) if digit.is_ascii_digit() || digit == '-' => {
                let rest = self.rest();
                let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(rest.len());
                self.at += end;
                serde_json::from_str(&rest[..end]).map_err(|_| Error::Number)?
            }
            Some(letter) if letter.is_alphabetic() => {
                let before = self.at;
                match self.name().as_str() {
                    "true" => true.into(),
                    "false" => false.into(),
                    _ => {
                        self.at = before;
                        return Ok(None);
                    }
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(Step::Literal(value)))
    }

    /// What follows a dot: another one, a star, a name, or nothing.
    fn dot(&mut self, steps: &mut Vec<Step>) {
        if self.take("..") {
            steps.push(Step::Descend);
            if self.peek().is_some_and(|letter| letter != '[' && letter != '*') {
                steps.push(Step::Field(self.name()));
            }
            return;
        }
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

    fn quoted(&mut self, quote: char) -> Result<String, Error> {
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
            text.push(match escaped {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            });
        }
        Err(Error::UnterminatedString)
    }

    fn bracket(&mut self) -> Result<Step, Error> {
        self.skip_space();
        if self.take("?(") {
            return self.filter();
        }
        let mut union = Vec::new();
        loop {
            self.skip_space();
            union.push(self.member()?);
            self.skip_space();
            if self.take("]") {
                return Ok(if union.len() == 1 { union.remove(0) } else { Step::Union(union) });
            }
            if !self.take(",") {
                return Err(Error::UnterminatedArray);
            }
        }
    }

    fn filter(&mut self) -> Result<Step, Error> {
        let left = self.operand()?;
        self.skip_space();
        let mut comparison = None;
        for (operator, meaning) in OPERATORS {
            if self.take(operator) {
                comparison = Some((*meaning, self.operand()?));
                break;
            }
        }
        self.skip_space();
        if self.take(")]") {
            return Ok(Step::Filter(left, comparison));
        }
        Err(match self.peek() {
            Some(letter @ '~') => Error::UnrecognizedCharacter(letter),
            _ => Error::UnterminatedFilter,
        })
    }

    /// One of what stands between commas in brackets.
    fn member(&mut self) -> Result<Step, Error> {
        if self.take("*") {
            return Ok(Step::All);
        }
        if self.take("'") {
            return Ok(Step::Field(self.quoted('\'')?));
        }
        let rest = self.rest();
        let end = rest.find([',', ']']).ok_or(Error::UnterminatedArray)?;
        self.at += end;
        index(rest[..end].trim())
    }

    fn operand(&mut self) -> Result<Operand, Error> {
        self.skip_space();
        let steps = self.steps()?;
        match &steps[..] {
            [Step::Literal(value)] => Ok(Operand::Literal(value.clone())),
            _ => Ok(Operand::Path(steps)),
        }
    }
}

/// `1`, `1:3`, `::2`.
fn index(text: &str) -> Result<Step, Error> {
    let number = |part: &str| match part.trim() {
        "" => Ok(None),
        part => part.parse().map(Some).map_err(|_| Error::InvalidIndex(part.into())),
    };
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        [one] if one.parse::<i64>().is_ok() => Ok(Step::Slice { from: number(one)?, to: None, by: Some(0) }),
        [from, to] => Ok(Step::Slice { from: number(from)?, to: number(to)?, by: None }),
        [from, to, by] => Ok(Step::Slice { from: number(from)?, to: number(to)?, by: number(by)? }),
        _ => Err(Error::InvalidIndex(text.into())),
    }
}
