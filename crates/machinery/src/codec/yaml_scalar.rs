//! What a plain YAML scalar means to go-yaml v2, which follows YAML 1.1: `yes` is true, `0777` is octal.

use serde_json::{Number, Value};

/// A number that YAML has and JSON has not, in the words of Go's encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("json: unsupported value: {0}")]
pub struct NotFinite(&'static str);

/// The value of a scalar without quotes and without a tag.
pub fn resolve(text: &str) -> Result<Value, NotFinite> {
    let Some(first) = text.bytes().next() else { return Ok(Value::Null) };
    match text {
        "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Ok(true.into()),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Ok(false.into()),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Err(NotFinite("+Inf")),
        "-.inf" | "-.Inf" | "-.INF" => return Err(NotFinite("-Inf")),
        ".nan" | ".NaN" | ".NAN" => return Err(NotFinite("NaN")),
        _ => {}
    }
    if first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.') {
        let plain = text.replace('_', "");
        if let Some(number) = integer(&plain).or_else(|| float(&plain)) {
            return Ok(number);
        }
    }
    Ok(text.into())
}

/// As Go reads an integer whose base is told by its prefix.
fn integer(text: &str) -> Option<Value> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, base) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'o' | b'O', ..] => (&digits[2..], 8),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // Rust would take a second sign here.
    if !digits.starts_with(|c: char| c.is_digit(base)) {
        return None;
    }
    let number = i128::from(u64::from_str_radix(digits, base).ok()?);
    let number = if negative { -number } else { number };
    let signed = i64::try_from(number).map(Value::from);
    signed.ok().or_else(|| u64::try_from(number).ok().map(Value::from))
}

fn float(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let starts = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let allowed = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    if !(starts(unsigned) || unsigned.strip_prefix('.').is_some_and(starts)) || !unsigned.bytes().all(allowed) {
        return None;
    }
    let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite())?;
    // On its way through JSON a float without a fraction loses its point, and is an integer to whoever reads it.
    if number.fract() == 0.0 && number.abs() < 9e15 {
        return Some((number as i64).into());
    }
    Number::from_f64(number).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scalars_of_yaml_1_1() {
        for (text, expected) in [
            ("yes", json!(true)),
            ("off", json!(false)),
            ("NO", json!(false)),
            ("~", json!(null)),
            ("", json!(null)),
            ("0777", json!(511)),
            ("0o777", json!(511)),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("1_000", json!(1000)),
            ("-5", json!(-5)),
            ("+5", json!(5)),
            ("08", json!(8)),
            ("1.5", json!(1.5)),
            (".5", json!(0.5)),
            ("1e3", json!(1000)),
            ("1.0", json!(1)),
            ("18446744073709551615", json!(18446744073709551615_u64)),
            ("2024-05-06", json!("2024-05-06")),
            ("2024-05-06T07:08:09Z", json!("2024-05-06T07:08:09Z")),
            ("1.2.3", json!("1.2.3")),
            ("10Gi", json!("10Gi")),
            ("-", json!("-")),
            ("nobody", json!("nobody")),
            ("0x", json!("0x")),
            ("1e", json!("1e")),
        ] {
            assert_eq!(resolve(text).expect("no infinity"), expected, "for {text:?}");
        }
        assert!(resolve(".inf").is_err());
    }
}
