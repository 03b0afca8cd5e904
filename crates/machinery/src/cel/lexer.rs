//! The words of an expression.

use super::error::{ParseError, Syntax};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
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

/// Each word with its position in the text.
pub(super) fn words(text: &str) -> Result<Vec<(Token, usize)>, ParseError> {
    let mut words = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let first = rest.chars().next().unwrap_or(' ');
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        let (token, length) = word(rest, first).map_err(|why| ParseError::new(at, why))?;
        words.push((token, at));
        at += length;
    }
    words.push((Token::End, text.len()));
    Ok(words)
}

fn word(rest: &str, first: char) -> Result<(Token, usize), Syntax> {
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
        let length = quoted.find('`').ok_or(Syntax::FieldName)?;
        return Ok((Token::Name(quoted[..length].into()), length + 2));
    }
    let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
    sign.map(|sign| (Token::Sign(sign), sign.len())).ok_or(Syntax::Token(first))
}

fn number(rest: &str) -> Result<(Token, usize), Syntax> {
    if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
        let digits = hex.find(|sign: char| !sign.is_ascii_hexdigit()).unwrap_or(hex.len());
        if hex[digits..].starts_with(['u', 'U']) {
            let value = u64::from_str_radix(&hex[..digits], 16).map_err(|_| Syntax::Number("uint"))?;
            return Ok((Token::Uint(value), digits + 3));
        }
        let value = i64::from_str_radix(&hex[..digits], 16).map_err(|_| Syntax::Number("int"))?;
        return Ok((Token::Int(value), digits + 2));
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
        return Ok((Token::Double(text.parse().map_err(|_| Syntax::Number("double"))?), length));
    }
    if rest[length..].starts_with(['u', 'U']) {
        return Ok((Token::Uint(text.parse().map_err(|_| Syntax::Number("uint"))?), length + 1));
    }
    // The smallest integer is written with a minus before a number that is one too large for it.
    match text.parse::<u64>() {
        Ok(value) if value == i64::MIN.unsigned_abs() => Ok((Token::Int(i64::MIN), length)),
        Ok(value) if value <= i64::MAX as u64 => Ok((Token::Int(value as i64), length)),
        _ => Err(Syntax::Number("int")),
    }
}

/// A text or bytes literal with its prefixes `r` and `b`, if one begins here.
fn text_literal(rest: &str) -> Result<Option<(Token, usize)>, Syntax> {
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
        let sign = here.chars().next().ok_or(Syntax::Unterminated)?;
        if sign == '\n' && end.len() == 1 {
            return Err(Syntax::Unterminated);
        }
        at += sign.len_utf8();
        if sign == '\\' && !raw {
            at += content[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    let length = prefix + end.len() + at + end.len();
    let inner = &content[..at];
    if bytes {
        let value = if raw { inner.as_bytes().to_vec() } else { unescaped(inner, true)? };
        return Ok(Some((Token::Bytes(value), length)));
    }
    let value =
        if raw { inner.to_string() } else { String::from_utf8(unescaped(inner, false)?).map_err(|_| Syntax::Text)? };
    Ok(Some((Token::Text(value), length)))
}

fn unescaped(text: &str, bytes: bool) -> Result<Vec<u8>, Syntax> {
    let mut out = Vec::with_capacity(text.len());
    let mut signs = text.chars();
    let mut buffer = [0; 4];
    while let Some(sign) = signs.next() {
        if sign != '\\' {
            out.extend_from_slice(sign.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        let escape = signs.next().ok_or(Syntax::UnfinishedEscape)?;
        let mut digits = |count: usize, radix: u32, first: Option<char>| {
            let text: String = first.into_iter().chain(signs.by_ref().take(count)).collect();
            u32::from_str_radix(&text, radix).map_err(|_| Syntax::Escape(text))
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
            _ => return Err(Syntax::Escape(format!("\\{escape}"))),
        };
        match (bytes, u8::try_from(code)) {
            (true, Ok(byte)) => out.push(byte),
            _ => {
                let sign = char::from_u32(code).ok_or(Syntax::CodePoint)?;
                out.extend_from_slice(sign.encode_utf8(&mut buffer).as_bytes());
            }
        }
    }
    Ok(out)
}
