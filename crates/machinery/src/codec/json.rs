//! JSON to values, with the syntax errors of Go's scanner and a note of every duplicate field.
//! Our own parser, because users see Go's words, and because a repeated field must not vanish silently.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Number, Value};

use super::fields_text::{self, FIELDS};
use super::plain::plain_len;
use super::{DEPTH_MAX, Decoded};
use crate::schema::conform::PROBLEMS_MAX;

/// What is wrong with a text that is no JSON, or not the JSON that was wanted, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    #[error("unexpected end of JSON input")]
    End,
    #[error("invalid character {} {place}", quoted(*byte))]
    Character { byte: u8, place: &'static str },
    #[error("invalid character {} in literal {word} (expecting {})", quoted(*byte), quoted(*wanted))]
    Literal { byte: u8, word: &'static str, wanted: u8 },
    #[error("exceeded max depth")]
    Depth,
    #[error("json: cannot unmarshal number {0} into Go value of type float64")]
    Number(String),
    #[error("json: cannot unmarshal {found} into Go {wanted}")]
    Type { found: &'static str, wanted: String },
}

pub fn parse(body: &[u8]) -> Result<Decoded, JsonError> {
    parse_with(body, Sets::Objects)
}

/// What becomes of the sets in an object's managed fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sets {
    Objects,
    /// Those that are written as we write them stay text.
    Texts,
}

pub(super) fn parse_with(body: &[u8], sets: Sets) -> Result<Decoded, JsonError> {
    let mut parser = Parser::new(body, sets, None);
    parser.skip_space();
    let value = parser.value()?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(Decoded { value, duplicates: parser.duplicates }),
        Some(_) => Err(parser.unexpected("after top-level value")),
    }
}

/// Where in a text that could be parsed the fields of those paths stand, each time they are met.
pub fn places(body: &[u8], paths: &HashSet<&str>) -> HashMap<String, Vec<usize>> {
    let sought = Sought { paths, found: HashMap::new() };
    let mut parser = Parser::new(body, Sets::Objects, Some(sought));
    parser.skip_space();
    // What is no JSON behind some point has its fields before it.
    let _ = parser.value();
    parser.sought.map(|sought| sought.found).unwrap_or_default()
}

struct Parser<'a> {
    body: &'a [u8],
    /// The same where all of it is text, so that each piece need not be looked at again.
    text: Option<&'a str>,
    sets: Sets,
    at: usize,
    /// The containers around the value at hand: the raw key or the index in each.
    path: Vec<Step>,
    /// The members read so far of the objects around the value at hand, those of the innermost last.
    members: Vec<(String, Value)>,
    duplicates: Vec<String>,
    /// Only where somebody asks for places.
    sought: Option<Sought<'a>>,
}

struct Sought<'a> {
    paths: &'a HashSet<&'a str>,
    found: HashMap<String, Vec<usize>>,
}

#[derive(Clone, Copy)]
enum Step {
    Key { start: usize, end: usize },
    Index(usize),
}

impl<'a> Parser<'a> {
    fn new(body: &'a [u8], sets: Sets, sought: Option<Sought<'a>>) -> Parser<'a> {
        let text = str::from_utf8(body).ok();
        Parser { body, text, sets, at: 0, path: Vec::new(), members: Vec::new(), duplicates: Vec::new(), sought }
    }

    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Result<Value, JsonError> {
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn enter(&mut self, step: Step) -> Result<(), JsonError> {
        if self.path.len() >= DEPTH_MAX {
            return Err(JsonError::Depth);
        }
        self.path.push(step);
        Ok(())
    }

    fn object(&mut self) -> Result<Value, JsonError> {
        self.at += 1;
        self.enter(Step::Index(0))?;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            self.path.pop();
            return Ok(Value::Object(Map::new()));
        }
        let (first, mut unsorted) = (self.members.len(), None);
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let start = self.at + 1;
            let key = self.string()?;
            if let Some(step) = self.path.last_mut() {
                *step = Step::Key { start, end: self.at - 1 };
            }
            if self.sought.is_some() {
                self.note_place(start);
            }
            self.skip_space();
            self.expect(b':', "after object key")?;
            self.skip_space();
            let value = if self.sets == Sets::Texts && key == FIELDS && self.is_at_set() {
                self.set_text().map_or_else(|| self.value(), Ok)?
            } else {
                self.value()?
            };
            self.add_member(first, &mut unsorted, key, value);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.unexpected("after object key:value pair")),
            }
            self.skip_space();
        }
        self.at += 1;
        self.path.pop();
        Ok(Value::Object(unsorted.unwrap_or_else(|| self.members.drain(first..).collect())))
    }

    /// Notes a member of the object whose members begin at `first`. Members in the order of their keys, as we write them, make a map at
    /// once, without looking up the place of each; from the first one that is out of order they go into `unsorted`.
    fn add_member(&mut self, first: usize, unsorted: &mut Option<Map<String, Value>>, key: String, value: Value) {
        let map = match unsorted {
            None if self.members[first..].last().is_none_or(|(last, _)| *last < key) => {
                self.members.push((key, value));
                return;
            }
            None => unsorted.insert(self.members.drain(first..).collect()),
            Some(map) => map,
        };
        if map.insert(key, value).is_some() {
            self.note_duplicate();
        }
    }

    /// Whether the value at hand is that of `metadata.managedFields[].fieldsV1`.
    fn is_at_set(&self) -> bool {
        let is =
            |step: &Step, name: &[u8]| matches!(step, Step::Key { start, end } if self.body[*start..*end] == *name);
        match self.path.as_slice() {
            [metadata, managed, Step::Index(_), _] => is(metadata, b"metadata") && is(managed, b"managedFields"),
            _ => false,
        }
    }

    fn set_text(&mut self) -> Option<Value> {
        let end = fields_text::end(self.body, self.at)?;
        let set = self.text?.get(self.at..end)?;
        self.at = end;
        Some(Value::String(set.to_owned()))
    }

    fn array(&mut self) -> Result<Value, JsonError> {
        self.at += 1;
        self.enter(Step::Index(0))?;
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            self.path.pop();
            return Ok(Value::Array(items));
        }
        loop {
            if let Some(step) = self.path.last_mut() {
                *step = Step::Index(items.len());
            }
            items.push(self.value()?);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.unexpected("after array element")),
            }
            self.skip_space();
        }
        self.at += 1;
        self.path.pop();
        Ok(Value::Array(items))
    }

    fn expect(&mut self, byte: u8, place: &'static str) -> Result<(), JsonError> {
        if self.peek() != Some(byte) {
            return Err(self.unexpected(place));
        }
        self.at += 1;
        Ok(())
    }

    fn literal(&mut self, word: &'static str, value: Value) -> Result<Value, JsonError> {
        for wanted in word.bytes() {
            match self.peek() {
                Some(byte) if byte == wanted => self.at += 1,
                Some(byte) => return Err(JsonError::Literal { byte, word, wanted }),
                None => return Err(JsonError::End),
            }
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        let mut whole = true;
        if self.peek() == Some(b'.') {
            whole = false;
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            whole = false;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        let text = str::from_utf8(&self.body[start..self.at]).unwrap_or("");
        if whole {
            if let Ok(number) = text.parse::<i64>() {
                return Ok(number.into());
            }
            if let Ok(number) = text.parse::<u64>() {
                return Ok(number.into());
            }
        }
        let number = text.parse::<f64>().ok().and_then(Number::from_f64);
        number.map(Value::Number).ok_or_else(|| JsonError::Number(text.to_owned()))
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self, place: &'static str) -> Result<(), JsonError> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected(place));
        }
        self.digits();
        Ok(())
    }

    /// The text behind an opening quote. Bytes that are not UTF-8 become the replacement character, as in Go.
    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut text = self.plain_text().into_owned();
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape(&mut text)?,
                _ => return Err(self.unexpected("in string literal")),
            }
            text.push_str(&self.plain_text());
        }
        self.at += 1;
        Ok(text)
    }

    /// Everything up to the next quote, escape or control character.
    fn plain_text(&mut self) -> Cow<'a, str> {
        let rest = &self.body[self.at..];
        let length = plain_len(rest);
        let start = self.at;
        self.at += length;
        // What ends it is one byte that is a character, so that no character is cut.
        if let Some(text) = self.text.and_then(|text| text.get(start..self.at)) {
            return Cow::Borrowed(text);
        }
        match str::from_utf8(&rest[..length]) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(&rest[..length]),
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), JsonError> {
        self.at += 1;
        let plain = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                let first = self.hex()?;
                text.push(self.surrogate(first)?);
                return Ok(());
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        text.push(plain);
        self.at += 1;
        Ok(())
    }

    fn hex(&mut self) -> Result<u32, JsonError> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let digit = digit.ok_or_else(|| self.unexpected("in \\u hexadecimal character escape"))?;
            value = value * 16 + digit;
            self.at += 1;
        }
        Ok(value)
    }

    /// A pair of surrogates is one character; half a pair is the replacement character.
    fn surrogate(&mut self, first: u32) -> Result<char, JsonError> {
        if (0xD800..0xDC00).contains(&first) && self.body[self.at..].starts_with(b"\\u") {
            let before = self.at;
            self.at += 2;
            let second = self.hex()?;
            if (0xDC00..0xE000).contains(&second) {
                let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn unexpected(&self, place: &'static str) -> JsonError {
        match self.peek() {
            None => JsonError::End,
            Some(byte) => JsonError::Character { byte, place },
        }
    }

    fn note_place(&mut self, start: usize) {
        let path = self.path_text();
        let Some(sought) = self.sought.as_mut().filter(|sought| sought.paths.contains(path.as_str())) else { return };
        sought.found.entry(path).or_default().push(start);
    }

    fn note_duplicate(&mut self) {
        if self.duplicates.len() < PROBLEMS_MAX {
            let path = self.path_text();
            self.duplicates.push(format!("duplicate field \"{path}\""));
        }
    }

    fn path_text(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Key { start, end } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(&String::from_utf8_lossy(&self.body[*start..*end]));
                }
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }
}

/// A byte as Go's errors show it.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".into(),
        b'"' => "'\"'".into(),
        b'\n' => "'\\n'".into(),
        b'\r' => "'\\r'".into(),
        b'\t' => "'\\t'".into(),
        b'\\' => "'\\\\'".into(),
        0x7f | 0..0x20 => format!("'\\x{byte:02x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}
