//! The words of an expression.

use super::error::{Issue, Problem};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    /// A name in backticks.
    Quoted(String),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// An operator or bracket, at most two signs.
    Sign(&'static str),
    End,
}

const SIGNS: &[&str] = &[
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}",
];

/// A word and where it begins and ends.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub token: Token,
    pub at: usize,
    pub end: usize,
}

/// All words of an expression, and what is wrong with it so far.
pub(super) struct Words {
    pub words: Vec<Word>,
    /// What is no word, and is left out.
    pub issues: Vec<Issue>,
    /// Where that begins and ends.
    pub skipped: Vec<(usize, usize)>,
    /// Literals whose values cannot be; other ones stand in their places.
    pub values: Vec<Issue>,
}

pub(super) fn words(text: &str) -> Words {
    let (mut words, mut issues, mut skipped, mut values) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let first = rest.chars().next().unwrap_or(' ');
        if matches!(first, '\t' | ' ' | '\r' | '\n' | '\u{c}') {
            at += 1;
            continue;
        }
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        match word(rest, first) {
            Ok((token, length)) => {
                words.push(Word { token, at, end: at + length });
                at += length;
            }
            Err(Wrong { problem, length, token: Some(token) }) => {
                values.push(Issue::new(at, problem));
                words.push(Word { token, at, end: at + length });
                at += length;
            }
            Err(Wrong { problem, length, token: None }) => {
                issues.push(Issue::new(at, problem));
                let end = at + length.max(first.len_utf8());
                skipped.push((at, end));
                at = end;
            }
        }
    }
    words.push(Word { token: Token::End, at: text.len(), end: text.len() });
    Words { words, issues, skipped, values }
}

/// What is wrong with a word, how long it is, and what stands in its place if it is one.
struct Wrong {
    problem: Problem,
    length: usize,
    token: Option<Token>,
}

fn wrong(problem: Problem, length: usize) -> Wrong {
    Wrong { problem, length, token: None }
}

/// A number of that name is too large for its type.
fn too_large(name: &'static str, length: usize) -> Wrong {
    let token = match name {
        "int" => Token::Int(0),
        "uint" => Token::Uint(0),
        _ => Token::Double(0.0),
    };
    Wrong { problem: Problem::Number(name), length, token: Some(token) }
}

fn word(rest: &str, first: char) -> Result<(Token, usize), Wrong> {
    let fraction = first == '.' && rest[1..].starts_with(|sign: char| sign.is_ascii_digit());
    if first.is_ascii_digit() || fraction {
        return number(rest);
    }
    if let Some(found) = text_literal(rest)? {
        return Ok(found);
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let length = rest.find(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '_')).unwrap_or(rest.len());
        return Ok((Token::Name(rest[..length].into()), length));
    }
    if let Some(quoted) = rest.strip_prefix('`') {
        let is_letter = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '.' | '-' | '/' | ' ');
        let length = quoted.find(|sign| !is_letter(sign)).unwrap_or(quoted.len());
        if length > 0 && quoted[length..].starts_with('`') {
            return Ok((Token::Quoted(quoted[..length].into()), length + 2));
        }
        let wrong_sign = quoted[length..].chars().next().map_or(0, char::len_utf8);
        let told = 1 + length + wrong_sign;
        return Err(wrong(Problem::Token(rest[..told].to_owned()), told));
    }
    let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
    // Half an operator is told together with what follows it.
    let told = match (first, rest[first.len_utf8()..].chars().next()) {
        ('|' | '&' | '=', Some(next)) => format!("{first}{next}"),
        _ => first.to_string(),
    };
    let length = told.len();
    sign.map(|sign| (Token::Sign(sign), sign.len())).ok_or_else(|| wrong(Problem::Token(told), length))
}

fn number(rest: &str) -> Result<(Token, usize), Wrong> {
    if let Some(hex) = rest.strip_prefix("0x").filter(|hex| hex.starts_with(|sign: char| sign.is_ascii_hexdigit())) {
        let digits = hex.find(|sign: char| !sign.is_ascii_hexdigit()).unwrap_or(hex.len());
        if hex[digits..].starts_with(['u', 'U']) {
            let value = u64::from_str_radix(&hex[..digits], 16);
            return Ok((Token::Uint(value.map_err(|_| too_large("uint", digits + 3))?), digits + 3));
        }
        let value = u64::from_str_radix(&hex[..digits], 16).ok().and_then(int);
        return Ok((value.ok_or_else(|| too_large("int", digits + 2))?, digits + 2));
    }
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut length = digits(rest);
    let mut whole = true;
    if rest[length..].starts_with('.') && digits(&rest[length + 1..]) > 0 {
        length += 1 + digits(&rest[length + 1..]);
        whole = false;
    }
    if let Some(exponent) = rest[length..].strip_prefix(['e', 'E']) {
        let sign = usize::from(exponent.starts_with(['+', '-']));
        let count = digits(&exponent[sign..]);
        if count > 0 {
            length += 1 + sign + count;
            whole = false;
        }
    }
    let text = &rest[..length];
    if !whole {
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
        return Ok((Token::Double(value.ok_or_else(|| too_large("double", length))?), length));
    }
    if rest[length..].starts_with(['u', 'U']) {
        let value = text.parse().map_err(|_| too_large("uint", length + 1))?;
        return Ok((Token::Uint(value), length + 1));
    }
    let value = text.parse::<u64>().ok().and_then(int);
    Ok((value.ok_or_else(|| too_large("int", length))?, length))
}

/// The smallest integer is written with a minus before a number that is one too large for it.
fn int(value: u64) -> Option<Token> {
    match i64::try_from(value) {
        Ok(value) => Some(Token::Int(value)),
        Err(_) if value == i64::MIN.unsigned_abs() => Some(Token::Int(i64::MIN)),
        Err(_) => None,
    }
}

/// A text or bytes literal with its prefixes `r` and `b`, if one begins here.
fn text_literal(rest: &str) -> Result<Option<(Token, usize)>, Wrong> {
    // No further: a long expression has many words.
    let prefix = rest.bytes().take(3).position(|sign| matches!(sign, b'"' | b'\''));
    let Some(prefix) = prefix else { return Ok(None) };
    let letters = rest[..prefix].to_ascii_lowercase();
    let (raw, bytes) = match letters.as_str() {
        "" => (false, false),
        "r" => (true, false),
        "b" => (false, true),
        "rb" | "br" => (true, true),
        _ => return Ok(None),
    };
    let quote = &rest[prefix..=prefix];
    let triple = quote.repeat(3);
    let mut end = if rest[prefix..].starts_with(&triple) { triple.as_str() } else { quote };
    let mut length = text_length(rest, prefix, end, raw);
    // Three quotes that are not closed are an empty text and one more quote.
    if length.is_err() && end.len() == 3 {
        end = quote;
        length = Ok(prefix + 2);
    }
    let length = length.map_err(|told| wrong(Problem::Token(rest[..told].to_owned()), told))?;
    let inner = &rest[prefix + end.len()..length - end.len()];
    let token = if bytes { Token::Bytes(Vec::new()) } else { Token::Text(String::new()) };
    let invalid = || Wrong { problem: Problem::CodePoint, length, token: Some(token) };
    if bytes {
        let value = if raw { Some(inner.as_bytes().to_vec()) } else { unescaped(inner, true) };
        return Ok(Some((Token::Bytes(value.ok_or_else(invalid)?), length)));
    }
    let value = if raw {
        Some(inner.to_string())
    } else {
        unescaped(inner, false).and_then(|text| String::from_utf8(text).ok())
    };
    Ok(Some((Token::Text(value.ok_or_else(invalid)?), length)))
}

/// How long the literal is, or how far it can be read where it is none.
fn text_length(rest: &str, prefix: usize, end: &str, raw: bool) -> Result<usize, usize> {
    let mut at = prefix + end.len();
    loop {
        let here = &rest[at..];
        if here.starts_with(end) {
            return Ok(at + end.len());
        }
        let sign = here.chars().next().ok_or(at)?;
        if matches!(sign, '\n' | '\r') && end.len() == 1 {
            return Err(at + 1);
        }
        at += sign.len_utf8();
        if sign == '\\' && !raw {
            at += escape_length(&here[1..]).map_err(|length| at + length)?;
        }
    }
}

/// How long the escape behind a backslash is, or how far it can be read where it is none.
fn escape_length(text: &str) -> Result<usize, usize> {
    let Some(sign) = text.chars().next() else { return Err(0) };
    let digits = |from: usize, count: usize, is_digit: fn(&char) -> bool| {
        let good = text[from..].chars().take(count).take_while(is_digit).count();
        let next = text[from..].chars().nth(good).map_or(0, char::len_utf8);
        if good == count { Ok(from + count) } else { Err(from + good + next) }
    };
    match sign {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Ok(1),
        'x' | 'X' => digits(1, 2, char::is_ascii_hexdigit),
        'u' => digits(1, 4, char::is_ascii_hexdigit),
        'U' => digits(1, 8, char::is_ascii_hexdigit),
        '0'..='3' => digits(1, 2, |digit| ('0'..='7').contains(digit)),
        other => Err(other.len_utf8()),
    }
}

/// Nothing where an escape is no letter.
fn unescaped(text: &str, bytes: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut signs = text.chars();
    let mut buffer = [0; 4];
    while let Some(sign) = signs.next() {
        if sign != '\\' {
            out.extend_from_slice(sign.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        let escape = signs.next()?;
        let mut digits = |count: usize, radix: u32, first: Option<char>| {
            let text: String = first.into_iter().chain(signs.by_ref().take(count)).collect();
            u32::from_str_radix(&text, radix).ok()
        };
        let code = match escape {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            '\\' | '?' | '"' | '\'' | '`' => escape as u32,
            'x' | 'X' => digits(2, 16, None)?,
            'u' => digits(4, 16, None)?,
            'U' => digits(8, 16, None)?,
            '0'..='3' => digits(2, 8, Some(escape))?,
            _ => return None,
        };
        match (bytes, u8::try_from(code)) {
            (true, Ok(byte)) => out.push(byte),
            _ => {
                let sign = char::from_u32(code)?;
                out.extend_from_slice(sign.encode_utf8(&mut buffer).as_bytes());
            }
        }
    }
    Some(out)
}
