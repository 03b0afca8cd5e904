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

/// All words; what is none is left out and told.
pub(super) fn words(text: &str) -> (Vec<Word>, Vec<Issue>) {
    let (mut words, mut issues) = (Vec::new(), Vec::new());
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
            Err(Wrong { problem, length }) => {
                issues.push(Issue::new(at, problem));
                at += length.max(first.len_utf8());
            }
        }
    }
    words.push(Word { token: Token::End, at: text.len(), end: text.len() });
    (words, issues)
}

/// What is wrong with a word, and how long it is.
struct Wrong {
    problem: Problem,
    length: usize,
}

fn wrong(problem: Problem, length: usize) -> Wrong {
    Wrong { problem, length }
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
    // A field in backticks may hold any sign.
    if let Some(quoted) = rest.strip_prefix('`') {
        let length = quoted.find('`').ok_or_else(|| wrong(Problem::Token(rest.to_owned()), rest.len()))?;
        return Ok((Token::Quoted(quoted[..length].into()), length + 2));
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
            return Ok((Token::Uint(value.map_err(|_| wrong(Problem::Number("uint"), digits + 3))?), digits + 3));
        }
        let value = u64::from_str_radix(&hex[..digits], 16).ok().and_then(int);
        return Ok((value.ok_or_else(|| wrong(Problem::Number("int"), digits + 2))?, digits + 2));
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
        return Ok((Token::Double(value.ok_or_else(|| wrong(Problem::Number("double"), length))?), length));
    }
    if rest[length..].starts_with(['u', 'U']) {
        let value = text.parse().map_err(|_| wrong(Problem::Number("uint"), length + 1))?;
        return Ok((Token::Uint(value), length + 1));
    }
    let value = text.parse::<u64>().ok().and_then(int);
    Ok((value.ok_or_else(|| wrong(Problem::Number("int"), length))?, length))
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
    let prefix = rest.find(['"', '\'']).filter(|at| *at <= 2);
    let Some(prefix) = prefix else { return Ok(None) };
    let letters = rest[..prefix].to_ascii_lowercase();
    let (raw, bytes) = match letters.as_str() {
        "" => (false, false),
        "r" => (true, false),
        "b" => (false, true),
        "rb" | "br" => (true, true),
        _ => return Ok(None),
    };
    let body = &rest[prefix..];
    let quote = &body[..1];
    let triple = quote.repeat(3);
    let end = if body.starts_with(&triple) { triple.as_str() } else { quote };
    let content = &body[end.len()..];
    let mut at = 0;
    loop {
        let here = &content[at..];
        if here.starts_with(end) {
            break;
        }
        let so_far = prefix + end.len() + at;
        let unclosed = |length: usize| wrong(Problem::Token(rest[..length].to_owned()), length);
        let sign = here.chars().next().ok_or_else(|| unclosed(so_far))?;
        if matches!(sign, '\n' | '\r') && end.len() == 1 {
            return Err(unclosed(so_far + 1));
        }
        at += sign.len_utf8();
        if sign == '\\' && !raw {
            let escape = escape_length(&here[1..]).map_err(|length| unclosed(so_far + 1 + length))?;
            at += escape;
        }
    }
    let length = prefix + end.len() + at + end.len();
    let inner = &content[..at];
    let invalid = || wrong(Problem::Text, length);
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
