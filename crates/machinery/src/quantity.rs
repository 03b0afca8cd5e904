//! Amounts of resources: `500m`, `1Gi`, `1e3`. Exact, counted in billionths, written back in the canonical form of upstream.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Neg, Sub};

use serde_json::Value;

/// How the amount was written, which is how it is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    DecimalSi,
}

/// An amount. Two amounts are equal when they are worth the same, however they are written.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// Billionths, the smallest unit there is; finer amounts were rounded up. Saturates near 1.7e29 whole units.
    nanos: i128,
    pub format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const NANOS: i128 = 1_000_000_000;
/// Decimal suffixes from 10^-9 in steps of 10^3.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Binary suffixes from 2^10 in steps of 2^10.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Upstream caps binary amounts at the largest signed 64-bit number.
const BINARY_MAX: i128 = (i64::MAX as i128) * NANOS;

impl Quantity {
    pub const ZERO: Quantity = Quantity { nanos: 0, format: Format::DecimalSi };

    pub fn parse(text: &str) -> Result<Quantity, ParseError> {
        let parts = split(text)?;
        let (base, exponent, format) = suffix(parts.suffix)?;
        // A sign, a point or a suffix alone is zero, as upstream reads it.
        let mut nanos = scaled(parts.whole, parts.fraction, base, exponent);
        let mut format = format;
        if format == Format::BinarySi {
            nanos = nanos.min(BINARY_MAX);
            if nanos > 0 && nanos < NANOS {
                format = Format::DecimalSi;
            }
        }
        Ok(Quantity { nanos: if parts.negative { -nanos } else { nanos }, format })
    }

    /// A quantity as it stands in an object: text or a JSON number.
    pub fn from_value(value: &Value) -> Result<Quantity, ParseError> {
        match value {
            Value::String(text) => Quantity::parse(text.trim()),
            Value::Number(number) => Quantity::parse(&number.to_string()),
            Value::Null => Ok(Quantity::ZERO),
            _ => Err(ParseError::Format),
        }
    }

    pub fn from_int(value: i64, format: Format) -> Quantity {
        Quantity { nanos: i128::from(value) * NANOS, format }
    }

    pub fn from_milli(value: i64, format: Format) -> Quantity {
        Quantity { nanos: i128::from(value) * (NANOS / 1000), format }
    }

    /// The text that upstream writes: no fraction, the largest suffix that loses nothing.
    pub fn canonical(&self) -> String {
        if self.nanos == 0 {
            return "0".into();
        }
        let kibi = 1024 * NANOS;
        let binary = self.format == Format::BinarySi && self.nanos.abs() >= kibi && self.nanos % NANOS == 0;
        if binary {
            return canonical_binary(self.nanos / NANOS);
        }
        let (mut mantissa, mut exponent) = (self.nanos, -9);
        while mantissa % 1000 == 0 {
            mantissa /= 1000;
            exponent += 3;
        }
        match (self.format, exponent) {
            (Format::DecimalExponent, 0) => mantissa.to_string(),
            (Format::DecimalExponent, _) => format!("{mantissa}e{exponent}"),
            _ => match DECIMAL.get(((exponent + 9) / 3) as usize) {
                Some(suffix) => format!("{mantissa}{suffix}"),
                None => format!("{mantissa}e{exponent}"),
            },
        }
    }

    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        self.nanos.signum() as i32
    }

    /// Whole units, rounded up.
    pub fn value(&self) -> i64 {
        self.in_units_of(NANOS)
    }

    /// Thousandths, rounded up.
    pub fn milli_value(&self) -> i64 {
        self.in_units_of(NANOS / 1000)
    }

    /// Whether nothing is lost in whole units.
    pub fn is_whole(&self) -> bool {
        self.nanos % NANOS == 0
    }

    /// Rounded up (away from zero) to thousandths, the finest amount that a container may ask for.
    pub fn round_up_milli(self) -> Quantity {
        let unit = NANOS / 1000;
        let rounded = match self.nanos % unit {
            0 => self.nanos,
            rest => self.nanos - rest + unit * self.nanos.signum(),
        };
        Quantity { nanos: rounded, ..self }
    }

    pub fn as_f64(&self) -> f64 {
        self.nanos as f64 / NANOS as f64
    }

    fn in_units_of(&self, unit: i128) -> i64 {
        let floor = self.nanos.div_euclid(unit);
        let up = floor + i128::from(self.nanos.rem_euclid(unit) != 0);
        i64::try_from(up).unwrap_or(if up < 0 { i64::MIN } else { i64::MAX })
    }
}

struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

/// Sign, digits, fraction and suffix, or the error that upstream gives for text of another shape.
fn split(text: &str) -> Result<Parts<'_>, ParseError> {
    if text.is_empty() {
        return Err(ParseError::Format);
    }
    let negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, rest) = digits(unsigned);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let signless = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if !digits(signless).1.is_empty() {
        return Err(ParseError::Format);
    }
    Ok(Parts { negative, whole, fraction, suffix })
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn suffix(text: &str) -> Result<(u32, i32, Format), ParseError> {
    if let Some(index) = DECIMAL.iter().position(|suffix| *suffix == text) {
        return Ok((10, index as i32 * 3 - 9, Format::DecimalSi));
    }
    if let Some(index) = BINARY.iter().position(|suffix| *suffix == text) {
        return Ok((2, (index as i32 + 1) * 10, Format::BinarySi));
    }
    let exponent = text.strip_prefix(['e', 'E']).filter(|rest| !rest.is_empty()).ok_or(ParseError::Suffix)?;
    let exponent: i64 = exponent.parse().map_err(|_| ParseError::Suffix)?;
    Ok((10, exponent.clamp(-1000, 1000) as i32, Format::DecimalExponent))
}

/// The amount in billionths, rounded up.
fn scaled(whole: &str, fraction: &str, base: u32, exponent: i32) -> i128 {
    let mut nanos: i128 = 0;
    // The decimal place of the digit at hand, in billionths: 0 is the last one that counts exactly.
    let decimal_exponent = if base == 10 { exponent } else { 0 };
    let mut place = whole.len() as i64 + 8 + i64::from(decimal_exponent);
    let factor: i128 = if base == 2 { 1 << exponent } else { 1 };
    let mut lost = Lost::default();
    for digit in whole.bytes().chain(fraction.bytes()) {
        let digit = i128::from(digit - b'0');
        if place >= 0 {
            let unit = 10_i128.checked_pow(place.min(64) as u32).unwrap_or(i128::MAX);
            nanos = nanos.saturating_add(digit.saturating_mul(unit));
        } else {
            lost.push(digit);
        }
        place -= 1;
    }
    let nanos = nanos.saturating_mul(factor);
    nanos.saturating_add(lost.rounded_up(factor))
}

/// Digits below a billionth. They may matter again when a binary suffix multiplies them.
#[derive(Default)]
struct Lost {
    value: i128,
    digits: u32,
    more: bool,
}

impl Lost {
    fn push(&mut self, digit: i128) {
        // Eighteen digits times 2^60 still fit; whatever is smaller only decides about rounding up.
        if self.digits < 18 {
            self.value = self.value * 10 + digit;
            self.digits += 1;
        } else {
            self.more |= digit != 0;
        }
    }

    fn rounded_up(&self, factor: i128) -> i128 {
        let unit = 10_i128.pow(self.digits);
        let product = self.value * factor;
        product / unit + i128::from(product % unit != 0 || self.more)
    }
}

fn canonical_binary(mut mantissa: i128) -> String {
    let mut steps = 0;
    while mantissa % 1024 == 0 && steps < BINARY.len() {
        mantissa /= 1024;
        steps += 1;
    }
    match steps {
        0 => mantissa.to_string(),
        _ => format!("{mantissa}{}", BINARY[steps - 1]),
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical())
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Add for Quantity {
    type Output = Quantity;

    /// The format of the left side stays, unless that is zero.
    fn add(self, other: Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity { nanos: self.nanos.saturating_add(other.nanos), format }
    }
}

impl Sub for Quantity {
    type Output = Quantity;

    fn sub(self, other: Quantity) -> Quantity {
        self + -other
    }
}

impl Neg for Quantity {
    type Output = Quantity;

    fn neg(self) -> Quantity {
        Quantity { nanos: -self.nanos, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let shown =
            Quantity::parse(text).map_or_else(|error| format!("error: {error}"), |quantity| quantity.canonical());
        assert_eq!(shown, expected, "for {text}");
    }

    #[test]
    fn canonical_text() {
        for (text, expected) in [
            ("0", "0"),
            ("00", "0"),
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("5.", "5"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.1Ki", "102400m"),
            ("1023Ki", "1023Ki"),
            ("1000Mi", "1000Mi"),
            ("512", "512"),
            ("2048", "2048"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("1e2", "100"),
            ("12e-1", "1200e-3"),
            ("100000", "100k"),
            ("-1", "-1"),
            ("+1", "1"),
            ("0.0000000001", "1n"),
            ("1.0000000001", "1000000001n"),
            ("9999999999999Gi", "9223372036854775807"),
            ("4Ei", "4Ei"),
            ("1E", "1E"),
            ("0.000000000931322574615478515625Gi", "1"),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn refused_text() {
        let format = format!("error: {}", ParseError::Format);
        for text in ["", "abc", "1 Gi", "1.2.3", "0x10", "1Gi5x"] {
            check(text, &format);
        }
        for text in ["m", ".", "-"] {
            check(text, "0");
        }
        for text in ["1mm", "1Kii", "1e", "1K", "--1"] {
            check(text, "error: unable to parse quantity's suffix");
        }
    }

    #[test]
    fn arithmetic_and_rounding() {
        let parse = |text| Quantity::parse(text).expect("a good quantity");
        assert_eq!((parse("1Gi") - parse("512Mi")).canonical(), "512Mi");
        assert_eq!((parse("0") + parse("1Gi")).canonical(), "1Gi");
        assert!(parse("1000m") == parse("1") && parse("1Gi") > parse("1G"));
        assert_eq!((parse("1500m").value(), parse("1500u").milli_value(), parse("-1500m").value()), (2, 2, -1));
        assert_eq!(parse("1u").round_up_milli().canonical(), "1m");
        assert_eq!(parse("1e300").value(), i64::MAX);
    }

    /// What upstream's own table says of signs, sizes and the unit that is shown.
    #[test]
    fn amounts_are_shown_in_their_own_unit() {
        for (text, expected) in [
            ("-1500m", "-1500m"),
            ("1500m", "1500m"),
            ("1.1", "1100m"),
            ("1M", "1M"),
            ("1000k", "1M"),
            ("1500k", "1500k"),
            ("1Mi", "1Mi"),
            ("1536Ki", "1536Ki"),
            ("0.5Mi", "512Ki"),
            ("1n", "1n"),
            ("1e-9", "1e-9"),
            ("1e6", "1e6"),
            ("1.5e3", "1500"),
            ("0Mi", "0"),
            ("0e3", "0"),
            ("-0", "0"),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn amounts_are_compared_by_what_they_are_worth() {
        let parse = |text| Quantity::parse(text).expect("a good quantity");
        for (left, right, expected) in [
            ("1", "1000m", Ordering::Equal),
            ("1Ki", "1k", Ordering::Greater),
            ("-1", "0", Ordering::Less),
            ("1e3", "1k", Ordering::Equal),
            ("999m", "1", Ordering::Less),
            ("1n", "0", Ordering::Greater),
        ] {
            assert_eq!(parse(left).cmp(&parse(right)), expected, "{left} {right}");
            assert_eq!(parse(right).cmp(&parse(left)), expected.reverse(), "{right} {left}");
        }
        assert!(parse("0").is_zero() && !parse("1n").is_zero());
        assert_eq!((parse("-1m").sign(), parse("0").sign(), parse("5Gi").sign()), (-1, 0, 1));
        assert!(parse("2").is_whole() && parse("2000m").is_whole() && !parse("2001m").is_whole());
        assert_eq!(Quantity::from_milli(1500, Format::DecimalSi).canonical(), "1500m");
        assert_eq!(Quantity::from_int(1024, Format::BinarySi).canonical(), "1Ki");
        assert_eq!(Quantity::from_value(&serde_json::json!(3)).map(|amount| amount.canonical()), Ok("3".into()));
        assert!(Quantity::from_value(&serde_json::json!(true)).is_err());
    }
}
