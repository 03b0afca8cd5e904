//! YAML to values, event by event with a stack of our own. Aliases are expanded within a budget, so that a small body
//! cannot become a large object.

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine as _;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Map, Value};

use super::yaml_scalar::{NotFinite, resolve};
use super::{DEPTH_MAX, Decoded};
use crate::schema::conform::PROBLEMS_MAX;

/// How much aliases and anchors may copy, in nodes; sixteen bytes of text count as one more.
const COPIED_MAX: usize = 200_000;

/// What is wrong with a text that is no YAML, in go-yaml's words. Lines that are not known are zero.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    #[error("invalid leading UTF-8 octet")]
    Encoding,
    #[error("{}{problem}", line_shown(*line))]
    Syntax { line: usize, problem: String },
    #[error("exceeded max depth of {DEPTH_MAX}")]
    Depth,
    #[error("line {line}: did not find expected node content")]
    NoContent { line: usize },
    #[error("line {line}: anchor value contains itself")]
    Anchor { line: usize },
    #[error("document contains excessive aliasing")]
    Aliases,
    #[error("map merge requires map or sequence of maps as the value")]
    Merge,
    #[error("line {line}: invalid map key: {key}")]
    Key { line: usize, key: Value },
    #[error("!!binary value contains invalid base64 data")]
    Binary,
    #[error("cannot decode !!str `{0}` as a !!null")]
    NotNull(String),
    #[error(transparent)]
    Number(#[from] NotFinite),
}

fn line_shown(line: usize) -> String {
    match line {
        0 => String::new(),
        line => format!("line {line}: "),
    }
}

/// How many bytes are read again, over all lines that are moved.
const MOVED_MAX: usize = 8 << 20;

/// More than any block that holds brackets or quotes is indented.
const MOVED_BY: &str = "                                                                ";

pub fn parse(body: &[u8]) -> Result<Decoded, YamlError> {
    let text = str::from_utf8(body).map_err(|_| YamlError::Encoding)?;
    let mut text = Cow::Borrowed(text.trim_start_matches('\u{feff}'));
    let (mut moved, mut last) = (0, 0);
    loop {
        let error = match read(&text) {
            Err(ReadError::Scan(error)) => error,
            Err(ReadError::Yaml(error)) => return Err(error),
            Ok(decoded) => return Ok(decoded),
        };
        // go-yaml takes lines in brackets and in quotes however little they are indented; the space before them means nothing.
        let line = error.marker().line();
        moved += text.len();
        if !error.info().starts_with("invalid indentation") || line <= last || moved > MOVED_MAX {
            return Err(syntax_error(&error));
        }
        let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
        text = Cow::Owned(format!("{}{MOVED_BY}{}", &text[..start], &text[start..]));
        last = line;
    }
}

enum ReadError {
    Scan(ScanError),
    Yaml(YamlError),
}

impl From<YamlError> for ReadError {
    fn from(error: YamlError) -> ReadError {
        ReadError::Yaml(error)
    }
}

fn read(text: &str) -> Result<Decoded, ReadError> {
    let unfinished = (!text.ends_with('\n')).then(|| text.chars().count());
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(ReadError::Scan)?;
        let line = span.start.line();
        match event {
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => {}
            // Only the first document is read.
            Event::StreamEnd | Event::DocumentEnd => break,
            Event::Scalar(text, style, anchor, tag) => {
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let is_cut = is_block && unfinished.is_some_and(|end| span.end.index() >= end);
                // A last line without a line break has none to keep.
                let text = if is_cut { text.strip_suffix('\n').unwrap_or(&text) } else { &*text };
                builder.scalar(text, style, anchor, tag.as_deref(), line)?
            }
            Event::Alias(anchor) => builder.alias(anchor, line)?,
            Event::SequenceStart(anchor, _) => builder.open(Frame::List { anchor, items: Vec::new() })?,
            Event::MappingStart(anchor, _) => builder.open(Frame::Map { anchor, map: Mapping::default() })?,
            Event::SequenceEnd | Event::MappingEnd => builder.close(line)?,
        }
    }
    let mut duplicates = Vec::new();
    if !builder.duplicates.is_empty() {
        duplicates.push(format!("yaml: unmarshal errors:\n  {}", builder.duplicates.join("\n  ")));
    }
    Ok(Decoded { value: builder.done.unwrap_or(Value::Null), duplicates })
}

/// `while parsing a node, did not find ...` becomes `line 1: did not find ...`. go-yaml counts lines from zero where its
/// parser complains and from one where its scanner does.
fn syntax_error(error: &ScanError) -> YamlError {
    let info = error.info();
    let problem = match info.strip_prefix("while ") {
        Some(context) => context.split_once(", ").map_or(info, |(_, problem)| problem),
        None => info,
    };
    // go-yaml says what it did not find where ours says what it wanted.
    let problem = match problem.strip_prefix("expected ") {
        Some(wanted) => format!("did not find expected {wanted}"),
        None => problem.to_string(),
    };
    let line = error.marker().line();
    YamlError::Syntax { line: line - usize::from(info.starts_with("while parsing")).min(line), problem }
}

#[derive(Default)]
struct Builder {
    stack: Vec<Frame>,
    anchors: HashMap<usize, (Value, usize)>,
    copied: usize,
    done: Option<Value>,
    duplicates: Vec<String>,
}

enum Frame {
    List { anchor: usize, items: Vec<Value> },
    Map { anchor: usize, map: Mapping },
}

#[derive(Default)]
struct Mapping {
    entries: Map<String, Value>,
    key: Option<Key>,
}

enum Key {
    /// With its line, which an error names.
    Text(String, usize),
    Merge,
}

impl Builder {
    fn open(&mut self, frame: Frame) -> Result<(), YamlError> {
        if self.stack.len() >= DEPTH_MAX {
            return Err(YamlError::Depth);
        }
        self.stack.push(frame);
        Ok(())
    }

    fn close(&mut self, line: usize) -> Result<(), YamlError> {
        let (value, anchor) = match self.stack.pop() {
            Some(Frame::List { anchor, items }) => (Value::Array(items), anchor),
            Some(Frame::Map { anchor, map }) => (Value::Object(map.entries), anchor),
            None => return Err(YamlError::NoContent { line }),
        };
        self.remember(anchor, &value)?;
        self.add(value, false, line)
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        line: usize,
    ) -> Result<(), YamlError> {
        let is_text = match tag {
            Some(tag) if core(tag).is_some() => core(tag) == Some("str"),
            Some(tag) => tag.handle.is_empty() && tag.suffix == "!",
            None => style != ScalarStyle::Plain,
        };
        // A key is a text in any case, which infinity is not as a value.
        let is_key = matches!(self.stack.last(), Some(Frame::Map { map, .. }) if map.key.is_none());
        let value = match tag.and_then(core) {
            _ if is_text => text.into(),
            Some("binary") => binary(text)?,
            Some("null") if resolve(text)? != Value::Null => return Err(YamlError::NotNull(text.into())),
            _ => match resolve(text) {
                Err(_) if is_key => text.into(),
                resolved => resolved?,
            },
        };
        self.remember(anchor, &value)?;
        let merge = text == "<<" && style == ScalarStyle::Plain && tag.is_none();
        self.add(value, merge, line)
    }

    fn alias(&mut self, anchor: usize, line: usize) -> Result<(), YamlError> {
        let Some((value, cost)) = self.anchors.get(&anchor) else {
            return Err(YamlError::Anchor { line });
        };
        self.copied += cost;
        if self.copied > COPIED_MAX {
            return Err(YamlError::Aliases);
        }
        let value = value.clone();
        self.add(value, false, line)
    }

    fn remember(&mut self, anchor: usize, value: &Value) -> Result<(), YamlError> {
        if anchor != 0 {
            let cost = cost(value);
            self.copied += cost;
            if self.copied > COPIED_MAX {
                return Err(YamlError::Aliases);
            }
            self.anchors.insert(anchor, (value.clone(), cost));
        }
        Ok(())
    }

    /// Puts a finished value where it belongs: the document, a list, or a mapping's key or value.
    fn add(&mut self, value: Value, merge: bool, line: usize) -> Result<(), YamlError> {
        let map = match self.stack.last_mut() {
            None => {
                self.done = Some(value);
                return Ok(());
            }
            Some(Frame::List { items, .. }) => {
                items.push(value);
                return Ok(());
            }
            Some(Frame::Map { map, .. }) => map,
        };
        match map.key.take() {
            None if merge => map.key = Some(Key::Merge),
            None => map.key = Some(Key::Text(key_text(value, line)?, line)),
            Some(Key::Merge) => map.merge(value)?,
            Some(Key::Text(key, line)) => {
                if map.entries.contains_key(&key) && self.duplicates.len() < PROBLEMS_MAX {
                    self.duplicates.push(format!("line {line}: key {key:?} already set in map"));
                }
                map.entries.insert(key, value);
            }
        }
        Ok(())
    }
}

impl Mapping {
    fn merge(&mut self, value: Value) -> Result<(), YamlError> {
        let maps = match value {
            Value::Array(maps) => maps,
            map => vec![map],
        };
        // The first of several maps wins, over what the mapping itself said before, too.
        for map in maps.into_iter().rev() {
            let Value::Object(map) = map else {
                return Err(YamlError::Merge);
            };
            self.entries.extend(map);
        }
        Ok(())
    }
}

/// Keys are texts in JSON; numbers and booleans take their usual form.
fn key_text(key: Value, line: usize) -> Result<String, YamlError> {
    match key {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(YamlError::Key { line, key }),
    }
}

/// The name of one of YAML's own tags, however it is written.
fn core(tag: &Tag) -> Option<&str> {
    if tag.is_yaml_core_schema() {
        return Some(&tag.suffix);
    }
    tag.suffix.strip_prefix("tag:yaml.org,2002:").filter(|_| tag.handle.is_empty())
}

fn binary(text: &str) -> Result<Value, YamlError> {
    let plain: String = text.split_whitespace().collect();
    let bytes = base64::engine::general_purpose::STANDARD.decode(plain).map_err(|_| YamlError::Binary)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned().into())
}

fn cost(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.len() / 16,
        Value::Array(items) => 1 + items.iter().map(cost).sum::<usize>(),
        Value::Object(map) => 1 + map.iter().map(|(key, value)| 1 + key.len() / 16 + cost(value)).sum::<usize>(),
        _ => 1,
    }
}
