//! The `format`s of texts that custom resources may ask for. Unknown ones allow everything, as upstream.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine;

pub(crate) fn is_format(format: &str, text: &str) -> bool {
    // Upstream takes the dash out of names before it looks them up.
    match format.replace('-', "").as_str() {
        "datetime" => is_date_time(text),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is_duration(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some(b'3')),
        "uuid4" => is_uuid(text, Some(b'4')),
        "uuid5" => is_uuid(text, Some(b'5')),
        "uri" => is_uri(text),
        "email" => is_email(text),
        "hostname" => is_host_name(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "hexcolor" => is_hex_color(text),
        "rgbcolor" => is_rgb_color(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "ssn" => is_ssn(text),
        "k8sshortname" => crate::names::dns_label(text).is_empty(),
        "k8slongname" => crate::names::dns_subdomain(text).is_empty(),
        _ => true,
    }
}

/// Whether a format means anything for values of that type; the type may be unsaid.
pub fn is_known_format(kind: &str, format: &str) -> bool {
    #[rustfmt::skip]
    const TEXTS: &[&str] = &[
        "bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4", "uuid5", "isbn",
        "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password", "date", "duration", "datetime",
        "k8sshortname", "k8slongname",
    ];
    match kind {
        "" | "string" => TEXTS.contains(&format.replace('-', "").as_str()),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

fn is_date_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20 && matches!(bytes[10], b'T' | b't') && text.parse::<jiff::Timestamp>().is_ok()
}

/// Go's durations, and upstream's longer units written out.
fn is_duration(text: &str) -> bool {
    if text == "0" {
        return true;
    }
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text).trim();
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let number = &rest[..digits];
        if !number.bytes().any(|byte| byte.is_ascii_digit()) || number.matches('.').count() > 1 {
            return false;
        }
        rest = rest[digits..].trim_start();
        let letters = rest.find(|sign: char| sign.is_ascii_digit() || sign == '.' || sign == ' ').unwrap_or(rest.len());
        const UNITS: &[&str] = &[
            "ns",
            "us",
            "µs",
            "μs",
            "ms",
            "s",
            "m",
            "h",
            "d",
            "w",
            "nano",
            "nanosecond",
            "nanoseconds",
            "micro",
            "micros",
            "microsecond",
            "microseconds",
            "milli",
            "millis",
            "millisecond",
            "milliseconds",
            "sec",
            "secs",
            "second",
            "seconds",
            "min",
            "mins",
            "minute",
            "minutes",
            "hr",
            "hour",
            "hours",
            "day",
            "days",
            "wk",
            "week",
            "weeks",
        ];
        if !UNITS.contains(&&rest[..letters]) {
            return false;
        }
        rest = rest[letters..].trim_start();
        parts += 1;
    }
    parts > 0
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let width = match address.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    let plain =
        !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
    plain && bits.parse::<u32>().is_ok_and(|bits| bits <= width)
}

fn is_mac(text: &str) -> bool {
    let by = |sign: char, width: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(sign).collect();
        let hex = |part: &&str| part.len() == width && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        counts.contains(&parts.len()) && parts.iter().all(hex)
    };
    by(':', 2, &[6, 8, 20]) || by('-', 2, &[6, 8, 20]) || by('.', 4, &[3, 4, 10])
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let bytes = text.as_bytes();
    let hex: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != b'-').collect();
    let dashes = match bytes.len() {
        36 => [8, 13, 18, 23].iter().all(|index| bytes[*index] == b'-'),
        32 => true,
        _ => false,
    };
    let well_formed = dashes && hex.len() == 32 && hex.iter().all(u8::is_ascii_hexdigit);
    well_formed
        && version.is_none_or(|version| {
            // Versions 4 and 5 also have a variant digit.
            let variant = version == b'3' || matches!(hex[16].to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b');
            hex[12] == version && variant
        })
}

/// As Go's `url.ParseRequestURI` takes it: absolute, or a path from the root.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let letters = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    scheme.starts_with(|sign: char| sign.is_ascii_alphabetic()) && letters && !rest.is_empty()
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let atom = |text: &str| {
        !text.is_empty() && !text.contains(|sign: char| sign.is_whitespace() || "()<>[]:;@\\,\"".contains(sign))
    };
    local.split('.').all(atom) && domain.split('.').all(atom)
}

/// One label, with a dash behind its first sign at most; or several labels, of which the last is a word of letters.
fn is_host_name(text: &str) -> bool {
    static PATTERN: LazyLock<Option<regex::Regex>> = LazyLock::new(|| {
        const SIGN: &str = r"[0-9\p{L}\p{S}]";
        let several = format!(r"({SIGN}([-0-9\p{{L}}\p{{S}}]{{0,61}}{SIGN})?\.)+\p{{L}}{{2,63}}");
        crate::pattern::compile(&format!("^({SIGN}(-?{SIGN}{{0,62}})?|{several})$")).ok()
    });
    let fits = PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(text));
    fits && text.len() <= 255 && text.split('.').all(|label| label.len() <= 63)
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_rgb_color(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u8>().is_ok())
}

fn digits_of(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| !matches!(byte, b'-' | b' ')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits_of(text);
    let value = |(index, byte): (usize, &u8)| match byte {
        b'0'..=b'9' => Some((index as u32 + 1) * u32::from(byte - b'0')),
        b'X' if index == 9 => Some(100),
        _ => None,
    };
    let sum: Option<u32> = digits.iter().enumerate().map(value).sum();
    digits.len() == 10 && sum.is_some_and(|sum| sum % 11 == 0)
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits_of(text);
    let sum: u32 = digits
        .iter()
        .enumerate()
        .map(|(index, byte)| u32::from(byte.wrapping_sub(b'0')) * if index % 2 == 0 { 1 } else { 3 })
        .sum();
    digits.len() == 13 && digits.iter().all(u8::is_ascii_digit) && sum.is_multiple_of(10)
}

/// The check sum of card numbers, after Luhn.
fn is_credit_card(text: &str) -> bool {
    let digits = digits_of(text);
    if !(13..=19).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let value = |(index, byte): (usize, &u8)| {
        let digit = u32::from(byte - b'0');
        match index % 2 {
            0 => digit,
            _ if digit > 4 => digit * 2 - 9,
            _ => digit * 2,
        }
    };
    digits.iter().rev().enumerate().map(value).sum::<u32>() % 10 == 0
}

fn is_ssn(text: &str) -> bool {
    let bytes = text.as_bytes();
    let separator = |byte: u8| matches!(byte, b'-' | b' ');
    bytes.len() == 11
        && separator(bytes[3])
        && separator(bytes[6])
        && [0, 1, 2, 4, 5, 7, 8, 9, 10].iter().all(|index| bytes[*index].is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Good and bad texts of each format.
    #[test]
    fn formats() {
        for (format, good, bad) in [
            ("date-time", &["2030-01-01T00:00:00Z", "2030-01-01T00:00:00.123+02:00"][..], &["2030-01-01", "x", ""][..]),
            ("date", &["2030-01-31"], &["2030-02-30", "2030-1-1", "20300101"]),
            ("duration", &["0", "1h30m", "1.5s", "-2ms", "3 days", "1w"], &["", "1", "h", "1 fortnight", "1..5s"]),
            ("byte", &["", "YQ==", "YWJj"], &["YQ", "Y-=="]),
            ("ipv4", &["10.0.0.1"], &["10.0.0", "::1", "10.0.0.256"]),
            ("ipv6", &["::1", "2001:db8::"], &["10.0.0.1", "::g"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/08"]),
            ("mac", &["00:00:5e:00:53:01", "0000.5e00.5301"], &["00:00:5e:00:53", "00-00:5e:00:53:01"]),
            ("uuid", &["b0c9b5c2-1a2b-4c3d-8e4f-5a6b7c8d9e0f", "b0c9b5c21a2b4c3d8e4f5a6b7c8d9e0f"], &["b0c9", ""]),
            ("uuid4", &["b0c9b5c2-1a2b-4c3d-8e4f-5a6b7c8d9e0f"], &["b0c9b5c2-1a2b-3c3d-8e4f-5a6b7c8d9e0f"]),
            ("uuid5", &["b0c9b5c2-1a2b-5c3d-8e4f-5a6b7c8d9e0f"], &["b0c9b5c2-1a2b-5c3d-7e4f-5a6b7c8d9e0f"]),
            ("uri", &["http://example.com", "/path", "urn:x:y"], &["", "example.com", "http://a b"]),
            ("email", &["a@example.com", "a.b@c"], &["a", "@c", "a b@c"]),
            (
                "hostname",
                &["example.com", "a", "a-b", "1.example", "a--b.example", "é.example", "a-"],
                &["", "-a", "a..b", "a.b", "a_b", "a--b", "example.com.", "a.c0m"],
            ),
            ("hexcolor", &["#fff", "abcdef"], &["#ff", "#gggggg"]),
            ("rgbcolor", &["rgb(0, 127,255)"], &["rgb(0,0,256)", "rgb(0,0)", "0,0,0"]),
            ("isbn10", &["0-306-40615-2", "080442957X"], &["0-306-40615-3", "X804429570"]),
            ("isbn13", &["978-0-306-40615-7"], &["978-0-306-40615-8", "978030640615X"]),
            ("isbn", &["0306406152", "9780306406157"], &["123"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112", "411"]),
            ("ssn", &["111-22-3333", "111 22 3333"], &["111223333", "111-22-333a"]),
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f1f77bcf86cd79943901", "g07f1f77bcf86cd799439011"]),
            ("k8s-short-name", &["a-b"], &["a.b", ""]),
            ("k8s-long-name", &["a.b"], &["A.b", ""]),
            ("nobody-knows-this", &["", "anything"], &[]),
        ] {
            good.iter().for_each(|text| assert!(is_format(format, text), "{format} {text:?}"));
            bad.iter().for_each(|text| assert!(!is_format(format, text), "{format} {text:?}"));
        }
    }

    #[test]
    fn formats_are_of_a_type() {
        for (kind, format, expected) in [
            ("string", "date-time", true),
            ("", "datetime", true),
            ("string", "int32", false),
            ("integer", "int32", true),
            ("integer", "date", false),
            ("number", "double", true),
            ("number", "int64", false),
            ("boolean", "byte", false),
            ("string", "nobody-knows-this", false),
        ] {
            assert_eq!(is_known_format(kind, format), expected, "{kind} {format}");
        }
    }
}
