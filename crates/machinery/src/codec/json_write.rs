//! Values as compact JSON, byte for byte as serde_json writes them. Every write ends here, and by way of serde it was a sixth of a
//! create: each quote, comma and piece of text was a call and a check of the buffer's end.

use serde_json::{Number, Value};

use super::plain::plain_len;

pub(super) fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_value(out, item);
            }
            out.push(b']');
        }
        Value::Object(map) => write_members(out, map.iter()),
    }
}

fn write_members<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'a String, &'a Value)>) {
    out.push(b'{');
    for (index, (key, value)) in members.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_text(out, key);
        out.push(b':');
        write_value(out, value);
    }
    out.push(b'}');
}

const DECIMAL_DIGITS_MAX: usize = 20;

fn write_number(out: &mut Vec<u8>, number: &Number) {
    let Some(whole) = number.as_u64() else {
        // Negative numbers and fractions are rare; a number can always be written to memory.
        out.extend_from_slice(number.to_string().as_bytes());
        return;
    };
    let (mut digits, mut start, mut rest) = ([0_u8; DECIMAL_DIGITS_MAX], DECIMAL_DIGITS_MAX, whole);
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// What stands behind the backslash for a byte that cannot stand for itself; 0 for all that can, `u` for those written by number.
const ESCAPES: [u8; 256] = {
    let mut table = [0_u8; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    table[0x08] = b'b';
    table[0x09] = b't';
    table[0x0a] = b'n';
    table[0x0c] = b'f';
    table[0x0d] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

const HEX: &[u8; 16] = b"0123456789abcdef";

pub(super) fn write_text(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    // With both quotes: most texts need no more.
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut rest = bytes;
    loop {
        let at = plain_len(rest);
        out.extend_from_slice(&rest[..at]);
        let Some(&byte) = rest.get(at) else { break };
        match ESCAPES[usize::from(byte)] {
            b'u' => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            short => out.extend_from_slice(&[b'\\', short]),
        }
        rest = &rest[at + 1..];
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_are_those_of_serde_json() {
        let all: String = (0..0x250_u32).filter_map(char::from_u32).collect();
        let values = [
            json!(null),
            json!([true, false, null, [], {}, [[]], "", "\u{7f}\u{1f600}\"\\/"]),
            json!({"a\"b": {"c": [1, -1, 0, 1.5, -0.0, 1e300, 1e-7, u64::MAX, i64::MIN]}, "": all}),
            json!(all.chars().map(String::from).collect::<Vec<_>>()),
        ];
        for value in values {
            let mut written = Vec::new();
            write_value(&mut written, &value);
            assert_eq!(String::from_utf8(written).unwrap(), serde_json::to_string(&value).unwrap());
        }
    }
}
