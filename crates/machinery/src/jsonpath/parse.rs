//! Parses a JSONPath template to parts and steps.

use serde_json::Value;

use super::{Error, Filter, Part, Step};

pub(super) fn parts(source: &str) -> Result<Vec<Part>, Error> {
    let mut pieces = pieces(source)?.into_iter();
    Ok(nested(&mut pieces, false).0)
}

/// What stands outside of braces, and the steps of each pair of braces.
enum Piece {
    Text(String),
    Action(Vec<Step>),
}

/// Puts what stands between `{range}` and `{end}` into the range. Says whether an end was found, too.
fn nested(pieces: &mut std::vec::IntoIter<Piece>, in_range: bool) -> (Vec<Part>, bool) {
    let is = |step: &Step, word: &str| matches!(step, Step::Identifier(name) if name == word);
    let mut parts = Vec::new();
    while let Some(piece) = pieces.next() {
        match piece {
            Piece::Text(text) => parts.push(Part::Text(text.into())),
            Piece::Action(steps) if steps.iter().any(|step| is(step, "end")) => {
                if in_range {
                    return (parts, true);
                }
                parts.push(Part::End);
            }
            Piece::Action(steps) if steps.iter().any(|step| is(step, "range")) => {
                let steps = steps.into_iter().filter(|step| !is(step, "range")).collect();
                let (inner, ended) = nested(pieces, true);
                parts.push(Part::Range { steps, inner, ended });
            }
            Piece::Action(steps) => parts.push(Part::Action(steps)),
        }
    }
    (parts, false)
}

fn pieces(source: &str) -> Result<Vec<Piece>, Error> {
    let mut parser = Parser { text: source, at: 0 };
    let mut pieces = Vec::new();
    while !parser.rest().is_empty() {
        let text = parser.take_while(|letter| letter != '{');
        if !text.is_empty() {
            pieces.push(Piece::Text(text.into()));
        }
        if parser.take("{") {
            pieces.push(Piece::Action(parser.action()?));
        }
    }
    Ok(pieces)
}

/// The steps of a text as if it stood in braces of its own.
fn steps(text: &str) -> Result<Vec<Step>, Error> {
    Parser { text: &format!("{text}}}"), at: 0 }.action()
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.rest().chars().next()?;
        self.at += letter.len_utf8();
        Some(letter)
    }

    fn take(&mut self, expected: &str) -> bool {
        let found = self.rest().starts_with(expected);
        if found {
            self.at += expected.len();
        }
        found
    }

    fn take_while(&mut self, part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|letter| !part(letter)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// The steps up to the closing brace.
    fn action(&mut self) -> Result<Vec<Step>, Error> {
        let mut steps = Vec::new();
        loop {
            let rest = self.rest();
            if self.take("}") {
                return Ok(steps);
            }
            if self.take("[?(") {
                steps.push(self.filter()?);
                continue;
            }
            if self.take("..") {
                if matches!(steps.last(), Some(Step::Descend)) {
                    return Err(Error::DescendTwice);
                }
                steps.push(Step::Descend);
                if self.rest().starts_with(is_word) {
                    steps.push(self.field());
                }
                continue;
            }
            match self.next() {
                None | Some('\r' | '\n') => return Err(Error::UnclosedAction),
                // The object at hand, as everything here.
                Some(' ' | '@' | '$') => {}
                Some('[') => self.bracket(&mut steps)?,
                Some(quote @ ('"' | '\'')) => steps.push(Step::Literal(self.quoted(quote)?.into())),
                Some('.') => steps.push(self.field()),
                Some(letter) if letter == '+' || letter == '-' || letter.is_ascii_digit() => {
                    self.take_while(|letter| letter == '.' || letter.is_ascii_digit());
                    steps.push(Step::Literal(number(&rest[..rest.len() - self.rest().len()])?));
                }
                Some(letter) if is_word(letter) => {
                    self.at -= letter.len_utf8();
                    steps.push(match self.take_while(|letter| !ends_name(letter)) {
                        "true" => Step::Literal(true.into()),
                        "false" => Step::Literal(false.into()),
                        word => Step::Identifier(word.into()),
                    });
                }
                Some(other) => return Err(Error::UnrecognizedCharacter(other)),
            }
        }
    }

    /// A name, in which a backslash takes any letter for one of its own.
    fn field(&mut self) -> Step {
        let start = self.at;
        while let Some(letter) = self.next() {
            if letter == '\\' {
                self.next();
            } else if ends_name(letter) {
                self.at -= letter.len_utf8();
                break;
            }
        }
        match &self.text[start..self.at] {
            "*" => Step::All,
            name => Step::Field(name.replace('\\', "")),
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, Error> {
        let (start, mut before) = (self.at, quote);
        loop {
            match self.next() {
                None | Some('\n') => return Err(Error::UnterminatedString),
                Some(letter) if letter == quote && before != '\\' => break,
                Some(letter) => before = letter,
            }
        }
        let text = &self.text[start..self.at - 1];
        unescaped(text, quote).ok_or_else(|| Error::Unquote(format!("{quote}{text}{quote}")))
    }

    /// An index, a slice, a key in quotes, or several of them with commas between.
    fn bracket(&mut self, steps: &mut Vec<Step>) -> Result<(), Error> {
        let text = self.take_while(|letter| letter != ']' && letter != '\n');
        if !self.take("]") {
            return Err(Error::UnterminatedArray);
        }
        let members: Vec<&str> = text.split(',').collect();
        if members.len() > 1 {
            let member = |text: &&str| self::steps(&format!("[{}]", text.trim_matches(' ')));
            steps.push(Step::Union(members.iter().map(member).collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).filter(|key| !key.contains('\''));
        match key {
            // A dot in a key goes one deeper, too, unless a backslash stands before it.
            Some(key) => steps.extend(self::steps(&format!(".{key}"))?),
            None => steps.push(slice(text)?),
        }
        Ok(())
    }

    /// What stands between `[?(` and `)]`. One text in quotes may have brackets in it.
    fn filter(&mut self) -> Result<Step, Error> {
        let (start, mut before) = (self.at, '(');
        let (mut opened, mut closed) = (None, false);
        loop {
            let letter = self.next();
            match letter {
                None | Some('\n') => return Err(Error::UnterminatedFilter),
                Some(quote @ ('"' | '\'')) if opened.is_none() => opened = Some(quote),
                Some(quote @ ('"' | '\'')) if opened == Some(quote) && before != '\\' => closed = true,
                Some(')') if opened.is_some() == closed => break,
                Some(_) => {}
            }
            before = letter.unwrap_or_default();
        }
        let text = &self.text[start..self.at - 1];
        if !self.take("]") {
            return Err(Error::UnclosedArray);
        }
        Ok(Step::Filter(filter(text)?))
    }
}

/// `left operator right`, where the right side has at least one letter, or a path that must lead somewhere.
fn filter(text: &str) -> Result<Filter, Error> {
    const SIGNS: [char; 4] = ['!', '<', '>', '='];
    let at = text.find(SIGNS).filter(|at| *at > 0);
    let split = at.and_then(|at| {
        let signs = text[at..].len() - text[at..].trim_start_matches(SIGNS).len();
        let last = text.chars().next_back().map_or(0, char::len_utf8);
        let end = (at + signs).min(text.len() - last);
        (end > at).then(|| (&text[..at], &text[at..end], &text[end..]))
    });
    Ok(match split {
        None => Filter { left: steps(text)?, compared: None },
        Some((left, operator, right)) => {
            Filter { left: steps(left)?, compared: Some((operator.into(), steps(right)?)) }
        }
    })
}

/// `1`, `1:3`, `::2`, `*` and nothing, which is the first.
fn slice(text: &str) -> Result<Step, Error> {
    let text = if text == "*" { ":" } else { text };
    let parts: Vec<&str> = text.split(':').collect();
    let is_number = |part: &&str| part.strip_prefix('-').unwrap_or(part).bytes().all(|byte| byte.is_ascii_digit());
    if parts.len() > 3 || !parts.iter().all(is_number) {
        return Err(Error::InvalidIndex(text.into()));
    }
    let number = |at: usize| match parts.get(at) {
        None | Some(&"") => Ok(None),
        Some(part) => part.parse::<i64>().map(Some).map_err(|_| Error::IndexNumber((*part).into())),
    };
    Ok(Step::Slice { from: number(0)?, to: number(1)?, by: number(2)?, one: parts.len() == 1 })
}

fn number(text: &str) -> Result<Value, Error> {
    let whole = text.strip_prefix('+').unwrap_or(text);
    let float = || whole.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from);
    whole.parse::<i64>().ok().map(Value::from).or_else(float).ok_or_else(|| Error::Number(text.into()))
}

fn is_word(letter: char) -> bool {
    letter == '_' || letter.is_alphanumeric()
}

fn ends_name(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// A text in quotes as Go reads it; nothing if an escape is unknown.
fn unescaped(text: &str, quote: char) -> Option<String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let escape = rest.chars().next()?;
        let (skipped, digits, radix) = match escape {
            'x' => (1, 2, 16),
            'u' => (1, 4, 16),
            'U' => (1, 8, 16),
            '0'..='7' => (0, 3, 8),
            _ => (escape.len_utf8(), 0, 10),
        };
        let code = rest.get(skipped..skipped + digits)?;
        out.push(match escape {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '\\' => '\\',
            same if same == quote => same,
            _ if digits > 0 => char::from_u32(u32::from_str_radix(code, radix).ok()?)?,
            _ => return None,
        });
        rest = &rest[skipped + digits..];
    }
    Some(out + rest)
}
