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

    /// A quantity as it is written back into an object: the text itself where upstream takes it for canonical, which lets
    /// `+1`, `1E3` and `1.` pass.
    pub fn written(value: &Value) -> Result<String, ParseError> {
        let canonical = Quantity::from_value(value)?.canonical();
        Ok(match value {
            Value::String(text) if is_kept(text.trim()) => text.trim().to_owned(),
            _ => canonical,
        })
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

    /// Whole units, rounded up, away from zero.
    pub fn value(&self) -> i64 {
        self.in_units_of(NANOS)
    }

    /// Thousandths, rounded likewise.
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
        let up = self.nanos / unit + i128::from(self.nanos % unit != 0) * self.nanos.signum();
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

/// How many digits fit into 64 bits in any case.
const DIGITS_MAX: i32 = 18;

/// Whether upstream keeps the text that it parsed: few digits, in thousands, and no zeros that a larger suffix would take.
fn is_kept(text: &str) -> bool {
    let Ok(parts) = split(text) else { return false };
    let Ok((_, exponent, format)) = suffix(parts.suffix) else { return false };
    let whole = match parts.whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let all = format!("{whole}{}", parts.fraction);
    if format == Format::BinarySi {
        let fits = 15 - whole.len() as i32 - exponent * 3 / 10 > 0;
        return parts.fraction.is_empty() && fits && whole.parse::<u64>().is_ok_and(|number| number % 8 != 0);
    }
    let scale = exponent - parts.fraction.len() as i32;
    all.len() as i32 <= DIGITS_MAX && scale >= -9 && scale % 3 == 0 && !all.ends_with("000") && !all.starts_with('0')
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
#[path = "quantity_tests.rs"]
mod tests;
