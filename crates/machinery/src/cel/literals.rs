//! What is checked once all types are known: literals that are durations, times, patterns or formats, and lists and maps
//! that are written out, whose parts must be of one type.

use super::ast::{Expr, Node};
use super::check::Checker;
use super::error::Problem;
use super::time;
use super::types::Type;
use crate::pattern::PatternError;

/// The first and last second that a time can be: years have four digits.
const TIME_MIN: i64 = -62_135_596_800;
const TIME_MAX: i64 = 253_402_300_799;

/// A text whose arguments are written out, to be formatted.
pub(super) struct Format<'a> {
    at: usize,
    text: Box<str>,
    arguments: Vec<Argument<'a>>,
}

struct Argument<'a> {
    at: usize,
    of: Type<'a>,
    /// What it holds, where it is written out itself.
    parts: Vec<Argument<'a>>,
}

impl<'a> Checker<'_, 'a> {
    pub(super) fn literals(&mut self, root: &Node) {
        self.values(root);
        for parts in std::mem::take(&mut self.written) {
            self.one_type(&parts);
        }
        for format in std::mem::take(&mut self.formats) {
            let count = format.arguments.len();
            match self.placeholders(&format) {
                Ok(used) if used < count => self.tell(format.at, Problem::FormatArguments(used, count)),
                Ok(_) => {}
                Err((at, why)) => self.tell(at, Problem::Format(why)),
            }
        }
    }

    /// Constants that a function would refuse whenever it ran.
    fn values(&mut self, node: &Node) {
        let call = match &node.expr {
            Expr::Call(target, name, arguments) => Some((target, &**name, arguments.first())),
            _ => None,
        };
        if let Some((None, "timestamp", Some(Node { expr: Expr::Int(seconds), at, .. }))) = call
            && !(TIME_MIN..=TIME_MAX).contains(seconds)
        {
            self.tell(*at, Problem::Literal("timestamp"));
        }
        if let Some((target, name, Some(Node { expr: Expr::Text(text), at, .. }))) = call {
            let wrong = match (name, target) {
                ("duration", None) => time::duration(text).is_none().then_some("duration"),
                ("timestamp", None) => text.parse::<jiff::Timestamp>().is_err().then_some("timestamp"),
                ("matches", _) => crate::pattern::compile(text).is_err().then_some("matches"),
                _ => None,
            };
            if let Some(name) = wrong {
                self.tell(*at, Problem::Literal(name));
            }
        }
        node.expr.each_child(&mut |child| self.values(child));
    }

    fn one_type(&mut self, parts: &[(usize, Type<'a>)]) {
        let mut first: Option<Type> = None;
        for (at, part) in parts {
            let part = self.unifier.settled(part);
            match &first {
                None => first = Some(part),
                Some(first) if first.is(&part) => {}
                Some(first) => {
                    let wanted = first.to_string();
                    return self.tell(*at, Problem::Mismatch { wanted, found: part.to_string() });
                }
            }
        }
    }

    pub(super) fn note_format(&mut self, at: usize, text: &str, list: &Node) {
        let Expr::List(items) = &list.expr else { return };
        let arguments = items.iter().map(|(item, _)| self.argument(item)).collect();
        self.formats.push(Format { at, text: text.into(), arguments });
    }

    fn argument(&self, node: &Node) -> Argument<'a> {
        let of = self.formatted.get(&std::ptr::from_ref(node)).cloned().unwrap_or(Type::Dyn);
        let parts = match &node.expr {
            Expr::List(items) => items.iter().map(|(item, _)| self.argument(item)).collect(),
            Expr::Map(entries) => {
                entries.iter().flat_map(|(key, value, _)| [key, value]).map(|part| self.argument(part)).collect()
            }
            _ => Vec::new(),
        };
        Argument { at: node.at, of, parts }
    }

    /// How many arguments the text takes, or what is wrong with it and where.
    fn placeholders(&mut self, format: &Format<'a>) -> Result<usize, (usize, String)> {
        let mut used = 0;
        let mut rest = &*format.text;
        while let Some(at) = rest.find('%') {
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('%') {
                rest = after;
                continue;
            }
            let own = |why: String| (format.at, why);
            if rest.is_empty() {
                return Err(own("unexpected end of string".to_owned()));
            }
            let Some(argument) = format.arguments.get(used) else {
                return Err(own(format!("index {used} out of range")));
            };
            let (verb, after) = clause(rest).map_err(|why| own(format!("could not parse formatting clause: {why}")))?;
            self.takes(verb, argument).map_err(|(at, why)| (at, format!("error during formatting: {why}")))?;
            rest = after;
            used += 1;
        }
        Ok(used)
    }

    fn takes(&mut self, verb: char, argument: &Argument<'a>) -> Result<(), (usize, String)> {
        let of = self.unifier.settled(&argument.of);
        let is_whole = matches!(of, Type::Int | Type::Uint);
        let (fits, told) = match verb {
            's' => (
                !matches!(of, Type::Optional(_) | Type::Object(_) | Type::Any),
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
                 and timestamps",
            ),
            'd' => (is_whole, "decimal clause can only be used on integers"),
            'f' => (matches!(of, Type::Double | Type::Text), "fixed-point clause can only be used on doubles"),
            'e' => (matches!(of, Type::Double | Type::Text), "scientific clause can only be used on doubles"),
            'b' => (is_whole || of.is_bool(), "only integers and bools can be formatted as binary"),
            'o' => (is_whole, "octal clause can only be used on integers"),
            _ => (
                is_whole || matches!(of, Type::Text | Type::Bytes),
                "only integers, byte buffers, and strings can be formatted as hex",
            ),
        };
        if !fits && !matches!(of, Type::Dyn | Type::Error) {
            return Err((argument.at, format!("{told}, was given {}", of.erased())));
        }
        if verb == 's' {
            argument.parts.iter().try_for_each(|part| self.takes('s', part))?;
        }
        Ok(())
    }
}

/// The first pattern written out for `find` or `findAll` that is none. Upstream tells these when it prepares to run.
pub(super) fn bad_pattern(node: &Node) -> Option<PatternError> {
    if let Expr::Call(Some(_), name, arguments) = &node.expr
        && matches!(&**name, "find" | "findAll")
        && let Some(Node { expr: Expr::Text(text), .. }) = arguments.first()
        && let Err(why) = crate::pattern::compile(text)
    {
        return Some(why);
    }
    let mut found = None;
    node.expr.each_child(&mut |child| found = found.take().or_else(|| bad_pattern(child)));
    found
}

/// Why a clause of a format cannot be read, in cel-go's words.
#[derive(Debug, thiserror::Error)]
enum ClauseError {
    #[error("error while parsing precision: could not find end of precision specifier")]
    Unended,
    #[error(
        "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {0:?}: invalid syntax"
    )]
    Precision(String),
    #[error("unrecognized formatting clause \"{0}\"")]
    Unknown(char),
}

/// The letter that says how to format, and what comes behind it.
fn clause(text: &str) -> Result<(char, &str), ClauseError> {
    let mut rest = text;
    if let Some(precision) = text.strip_prefix('.') {
        let digits = precision.bytes().take_while(u8::is_ascii_digit).count();
        rest = &precision[digits..];
        if rest.is_empty() {
            return Err(ClauseError::Unended);
        }
        if precision[..digits].parse::<i64>().is_err() {
            return Err(ClauseError::Precision(precision[..digits].to_owned()));
        }
    }
    match rest.chars().next() {
        Some(verb @ ('s' | 'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o')) => Ok((verb, &rest[1..])),
        other => Err(ClauseError::Unknown(other.unwrap_or_default())),
    }
}
