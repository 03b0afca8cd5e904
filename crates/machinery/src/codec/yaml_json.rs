//! YAML that is JSON: what clients send for server-side apply. Where both languages read a text alike, the reader of JSON takes an
//! eighth of the time.

use super::{Decoded, json};

/// YAML bounds the length of keys, JSON does not.
const KEY_BYTES_MAX: usize = 512;
/// Longer numbers are for the reader of YAML to judge.
const DIGITS_MAX: usize = 18;

/// The value of a text that is JSON on one line, in letters, escapes and numbers that mean the same in YAML. Nothing for any other,
/// and where a field stands there twice: each language has words of its own for that.
pub(super) fn parse(body: &[u8]) -> Option<Decoded> {
    if body.first() != Some(&b'{') || !reads_alike(body) {
        return None;
    }
    json::parse(body).ok().filter(|decoded| decoded.duplicates.is_empty())
}

fn reads_alike(body: &[u8]) -> bool {
    let mut at = 0;
    while let Some(byte) = body.get(at) {
        let next = match byte {
            b'{' | b'}' | b'[' | b']' | b',' | b' ' => Some(at + 1),
            b'"' => text_end(body, at + 1),
            b'-' | b'0'..=b'9' => number_end(body, at),
            _ => ["true", "false", "null"]
                .iter()
                .find(|word| body[at..].starts_with(word.as_bytes()))
                .map(|word| at + word.len()),
        };
        match next {
            Some(next) => at = next,
            None => return false,
        }
    }
    true
}

/// Behind a text, and behind the colon where it is a key.
fn text_end(body: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        match body.get(at)? {
            b'"' => break,
            b'\\' if matches!(body.get(at + 1)?, b'"' | b'\\' | b'n' | b't') => at += 2,
            b'\\' => return None,
            b' '..=b'~' => at += 1,
            _ => return None,
        }
    }
    match body.get(at + 1) {
        Some(b':') => (at - start <= KEY_BYTES_MAX).then_some(at + 2),
        _ => Some(at + 1),
    }
}

/// Behind a whole number.
fn number_end(body: &[u8], start: usize) -> Option<usize> {
    let digits = start + usize::from(body[start] == b'-');
    let length = body[digits..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let zero = body.get(digits) == Some(&b'0');
    // Minus zero is a number of its own, and zeros in front mean another base.
    let plain = (1..=DIGITS_MAX).contains(&length) && (!zero || (length == 1 && digits == start));
    let end = digits + length;
    (plain && matches!(body.get(end), Some(b',' | b'}' | b']' | b' '))).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::yaml;

    #[test]
    fn both_readers_agree() {
        let alike = [
            r#"{}"#,
            r#"{"a":1,"b":[true,false,null,-7,0,"x: y # z"],"c":{"d":{}}}"#,
            r#"{"a": "\"quoted\" \\ back\n\tslash", "<<": {"b": "c"}, "*a": "&b", "0x10": "~", "": "no"}"#,
            r#"{"a":[[],[{}],[{"b":"%!@`"}]],"t":"true","n":"1e3","y":"- a"} "#,
        ];
        for text in alike {
            let parsed = parse(text.as_bytes()).expect(text);
            assert_eq!(Ok(parsed), yaml::parse(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn whatever_else_is_left_to_the_reader_of_yaml() {
        let long = format!(r#"{{"{}":1}}"#, "k".repeat(2000));
        let others = [
            "",
            "a: b",
            "[1]",
            "{a: 1}",
            r#"{"a":1.0}"#,
            r#"{"a":1e3}"#,
            r#"{"a":-0}"#,
            r#"{"a":010}"#,
            r#"{"a":12345678901234567890}"#,
            r#"{"a":yes}"#,
            r#"{"a" :1}"#,
            "{\"a\":\n1}",
            "{\"a\":\t1}",
            r#"{"a":"\u0041"}"#,
            r#"{"a":"\/"}"#,
            r#"{"a":"ä"}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":1}{"b":2}"#,
            r#"{"a":1} # note"#,
            r#"{"a":'b'}"#,
            long.as_str(),
        ];
        for text in others {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
