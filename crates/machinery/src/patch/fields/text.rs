//! FieldsV1 as text, to sets and back, without values in between.

use std::borrow::Cow;

use serde_json::Value;

use super::json::parse_element;
use super::shape::{child, is_atomic};
use super::{Element, FieldsError, Node, Set, from_json, to_json};
use crate::schema::TypeRef;

/// Reads a text as `to_value` writes it. Any other is read by way of values: sets of other servers are in another order, or spaced.
pub fn from_text(text: &str) -> Result<Set<'_>, FieldsError> {
    let mut reader = Reader { text, at: 0 };
    match reader.set() {
        Some(read) if reader.at == text.len() => return Ok(read.set),
        _ => {}
    }
    let no_object = || FieldsError::NotAnObject(text.to_owned());
    let value: Value = serde_json::from_str(text).map_err(|_| no_object())?;
    Ok(from_json(&value)?.into_owned())
}

/// What a text holds, seen without making a set of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen<const N: usize> {
    pub is_empty: bool,
    /// How many paths of each of the sets that were asked about it has.
    pub members: [usize; N],
    /// Whether it has parts of what is one value in the schema.
    pub splits_atomic: bool,
}

/// Looks through a text as `to_value` writes it, for the paths of some sets; nothing where it is another text.
pub fn look_through<const N: usize>(ty: TypeRef, text: &str, sets: [&Set; N]) -> Option<Seen<N>> {
    let mut seen = Seen { is_empty: text == "{}", members: [0; N], splits_atomic: false };
    let mut reader = Reader { text, at: 0 };
    reader.look(Some(ty), sets.map(|set| (!set.is_empty()).then_some(set)), &mut seen)?;
    (reader.at == text.len()).then_some(seen)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

struct Read<'a> {
    set: Set<'a>,
    /// The set says that the path to it is one of the paths.
    dot: bool,
}

impl<'a> Reader<'a> {
    fn next_is(&mut self, sign: u8) -> bool {
        let is = self.text.as_bytes().get(self.at) == Some(&sign);
        self.at += usize::from(is);
        is
    }

    fn set(&mut self) -> Option<Read<'a>> {
        if !self.next_is(b'{') {
            return None;
        }
        let mut read = Read { set: Set::default(), dot: false };
        if self.next_is(b'}') {
            return Some(read);
        }
        loop {
            let key = self.key()?;
            if !self.next_is(b':') {
                return None;
            }
            let under = self.set()?;
            if key == "." {
                read.dot = true;
            } else {
                let element = match key {
                    Cow::Borrowed(key) => parse_element(key).ok()?,
                    Cow::Owned(key) => parse_element(&key).ok()?.into_owned(),
                };
                if read.set.nodes.last().is_some_and(|last| last.element >= element) {
                    return None;
                }
                let member = under.dot || under.set.is_empty();
                read.set.nodes.push(Node { element, member, children: under.set });
            }
            if self.next_is(b'}') {
                return Some(read);
            }
            if !self.next_is(b',') {
                return None;
            }
        }
    }

    fn look<const N: usize>(&mut self, ty: Option<TypeRef>, sets: [Option<&Set>; N], seen: &mut Seen<N>) -> Option<()> {
        if !self.next_is(b'{') {
            return None;
        }
        if self.next_is(b'}') {
            return Some(());
        }
        loop {
            let key = self.key()?;
            if !self.next_is(b':') {
                return None;
            }
            let rest = &self.text.as_bytes()[self.at..];
            let leaf = rest.starts_with(b"{}");
            let asked = key != "." && sets.iter().any(Option::is_some);
            let mut below = [None; N];
            if asked {
                let element = parse_element(&key).ok()?;
                let member = leaf || rest.starts_with(b"{\".\":{}");
                for (index, node) in
                    sets.iter().enumerate().filter_map(|(index, set)| Some((index, (*set)?.get(&element)?)))
                {
                    seen.members[index] += usize::from(member && node.member);
                    below[index] = (!node.children.is_empty()).then_some(&node.children);
                }
            }
            if leaf {
                self.at += 2;
            } else {
                let child = type_behind(ty, &key);
                seen.splits_atomic |= child.is_some_and(is_atomic);
                self.look(child, below, seen)?;
            }
            if self.next_is(b'}') {
                return Some(());
            }
            if !self.next_is(b',') {
                return None;
            }
        }
    }

    fn key(&mut self) -> Option<Cow<'a, str>> {
        if !self.next_is(b'"') {
            return None;
        }
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        let stop = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        if rest[stop] == b'"' {
            self.at = start + stop + 1;
            return Some(Cow::Borrowed(&self.text[start..start + stop]));
        }
        let mut key = String::with_capacity(stop + 32);
        let mut from = start;
        let mut at = start + stop;
        loop {
            match self.text.as_bytes().get(at)? {
                b'"' => break,
                b'\\' if matches!(self.text.as_bytes().get(at + 1)?, b'"' | b'\\') => {
                    key.push_str(&self.text[from..at]);
                    from = at + 1;
                    at += 2;
                }
                // Other escapes are rare.
                b'\\' => return None,
                _ => at += 1,
            }
        }
        key.push_str(&self.text[from..at]);
        self.at = at + 1;
        Some(Cow::Owned(key))
    }
}

fn type_behind<'s>(ty: Option<TypeRef<'s>>, key: &str) -> Option<TypeRef<'s>> {
    let element = match key.strip_prefix("f:") {
        Some(name) => Element::Field(Cow::Borrowed(name)),
        // Items of a list are of one type, whatever tells them apart.
        None => Element::Index(Cow::Borrowed("")),
    };
    child(ty, &element).1
}

/// The set as managed fields hold it: its text, or where that needs unusual escapes, the object.
pub fn to_value(set: &Set) -> Value {
    let mut out = String::with_capacity(TEXT_BYTES);
    if write_set(&mut out, set, false, DEPTH_MAX).is_none() {
        return to_json(set);
    }
    out.shrink_to_fit();
    Value::String(out)
}

/// Most sets are written without growing the buffer.
const TEXT_BYTES: usize = 4 << 10;
/// Deeper sets are objects.
const DEPTH_MAX: usize = 32;

fn write_set(out: &mut String, set: &Set, dot: bool, depth: usize) -> Option<()> {
    let below = depth.checked_sub(1)?;
    out.push('{');
    if dot {
        out.push_str("\".\":{}");
    }
    for (index, node) in set.nodes.iter().enumerate() {
        if index > 0 || dot {
            out.push(',');
        }
        let (kind, rest) = match &node.element {
            Element::Field(name) => ("\"f:", name),
            Element::Index(index) => ("\"i:", index),
            Element::Key(key) => ("\"k:", key),
            Element::Value(value) => ("\"v:", value),
        };
        out.push_str(kind);
        write_escaped(out, rest)?;
        if node.children.is_empty() {
            out.push_str("\":{}");
        } else {
            out.push_str("\":");
            write_set(out, &node.children, node.member, below)?;
        }
    }
    out.push('}');
    Some(())
}

/// Nothing where more is to be escaped than quotes and backslashes.
fn write_escaped(out: &mut String, text: &str) -> Option<()> {
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..b' ')) {
        if rest.as_bytes()[at] < b' ' {
            return None;
        }
        out.push_str(&rest[..at]);
        out.push('\\');
        out.push_str(&rest[at..=at]);
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    Some(())
}
