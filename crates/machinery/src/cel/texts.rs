//! Functions of texts.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, LazyLock, RwLock};

use regex::Regex;

use super::eval::Evaluator;
use super::value::Val;
use super::{EvalError, time};
use crate::names;
use crate::schema::validate_format::is_format;

type Outcome<'a> = Result<Val<'a>, EvalError>;

/// No text may become longer than this, whatever it costs.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// Refuses a text that would become too long.
pub(super) fn bounded(bytes: usize) -> Result<(), EvalError> {
    if bytes > TEXT_BYTES_MAX { Err(EvalError::Budget) } else { Ok(()) }
}

/// How many compiled patterns are kept.
const PATTERNS_MAX: usize = 512;

/// A value as `string(...)` writes it.
pub fn shown(value: &Val) -> String {
    match value {
        Val::Null => "null".into(),
        Val::Bool(value) => value.to_string(),
        Val::Int(number) => number.to_string(),
        Val::Uint(number) => number.to_string(),
        Val::Double(number) => double(*number),
        Val::Text(text) => text.to_string(),
        Val::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Val::Duration(duration) => time::shown(*duration),
        Val::Time(time) => time.to_string(),
        Val::Type(name) => (*name).into(),
        Val::Quantity(quantity) => quantity.to_string(),
        Val::Ip(address) => address.to_string(),
        Val::Cidr(address, bits) => format!("{address}/{bits}"),
        Val::Url(text) => text.to_string(),
        Val::Semver(version) => version.shown().into(),
        Val::Format(name) => (*name).into(),
        Val::Optional(None) => "optional.none()".into(),
        Val::Optional(Some(value)) => format!("optional({})", shown(value)),
        Val::Json(..) | Val::List(_) | Val::Map(_) | Val::Object(_) => collection(value),
        Val::Asking(_) | Val::Verdict(_) | Val::Failed(_) => value.type_name().into(),
    }
}

fn collection(value: &Val) -> String {
    match (value.items(), value.entries()) {
        (Some(items), _) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        (_, Some(entries)) => {
            let pairs = entries.iter().map(|(key, value)| format!("{}: {}", shown(key), shown(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        _ => String::new(),
    }
}

pub fn global<'a>(cx: &Evaluator, name: &str, values: &[Val<'a>]) -> Option<Outcome<'a>> {
    Some(Ok(match (name, values) {
        ("matches", [Val::Text(text), Val::Text(expression)]) => {
            return Some(search(cx, text, name, expression, &values[1..]));
        }
        ("strings.quote", [Val::Text(text)]) => Val::text(format!("{text:?}")),
        _ => return None,
    }))
}

pub fn member<'a>(cx: &Evaluator, text: &str, name: &str, values: &[Val<'a>]) -> Option<Outcome<'a>> {
    let outcome = match (name, values) {
        ("contains", [Val::Text(part)]) => Val::Bool(text.contains(part.as_ref())),
        ("startsWith", [Val::Text(part)]) => Val::Bool(text.starts_with(part.as_ref())),
        ("endsWith", [Val::Text(part)]) => Val::Bool(text.ends_with(part.as_ref())),
        ("lowerAscii", []) => Val::text(text.to_ascii_lowercase()),
        ("upperAscii", []) => Val::text(text.to_ascii_uppercase()),
        ("trim", []) => Val::text(text.trim().to_string()),
        ("replace", [Val::Text(from), Val::Text(to)]) => return Some(replaced(text, from, to, -1)),
        ("replace", [Val::Text(from), Val::Text(to), Val::Int(count)]) => {
            return Some(replaced(text, from, to, *count));
        }
        ("split", [Val::Text(by)]) => split(text, by, -1),
        ("split", [Val::Text(by), Val::Int(count)]) => split(text, by, *count),
        ("charAt" | "substring" | "indexOf" | "lastIndexOf", _) => return Some(by_position(text, name, values)),
        ("matches" | "find" | "findAll", [Val::Text(expression), ..]) => {
            return Some(search(cx, text, name, expression, values));
        }
        ("format", [arguments]) => {
            let Some(arguments) = arguments.items() else { return Some(Err(EvalError::Overload)) };
            return Some(format(text, &arguments));
        }
        _ => return None,
    };
    Some(Ok(outcome))
}

/// A value as `%s` writes it: what lists and maps hold looks as it does in an expression.
fn formatted(value: &Val) -> String {
    let literal = |value: &Val| match value {
        Val::Text(text) => format!("{text:?}"),
        Val::Bytes(_) => format!("b{:?}", shown(value)),
        Val::Double(number) if number.is_finite() => format!("{number:.6}"),
        Val::Double(_) => format!("{:?}", shown(value)),
        Val::Time(_) => format!("timestamp({:?})", shown(value)),
        Val::Duration(_) => format!("duration({:?})", shown(value)),
        other => formatted(other),
    };
    match (value.items(), value.entries()) {
        (Some(items), _) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        (_, Some(entries)) => {
            let mut pairs: Vec<(String, String)> =
                entries.iter().map(|(key, value)| (literal(key), literal(value))).collect();
            pairs.sort();
            let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        _ => shown(value),
    }
}

fn replaced<'a>(text: &str, from: &str, to: &str, count: i64) -> Outcome<'a> {
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    let found = text.matches(from).take(limit).count();
    bounded(text.len().saturating_add(found.saturating_mul(to.len())))?;
    Ok(Val::text(text.replacen(from, to, limit)))
}

/// A number as Go prints it: with an exponent where it is very large or very small.
pub(super) fn double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        exponent if number != 0.0 && !(-4..21).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => number.to_string(),
    }
}

fn split<'a>(text: &str, by: &str, count: i64) -> Val<'a> {
    let own = |part: &str| Val::text(part.to_string());
    Val::list(match (count, by) {
        (0, _) => Vec::new(),
        // Between all signs, without the empty texts before the first and behind the last.
        (_, "") => text.chars().map(|sign| Val::text(sign.to_string())).collect(),
        (count, by) if count > 0 => text.splitn(count as usize, by).map(own).collect(),
        (_, by) => text.split(by).map(own).collect(),
    })
}

/// Positions count signs, not bytes.
fn by_position<'a>(text: &str, name: &str, values: &[Val<'a>]) -> Outcome<'a> {
    let signs: Vec<char> = text.chars().collect();
    let out = |place: i64| EvalError::Failed(format!("index out of range: {place}"));
    let place = |value: &Val<'a>| match value {
        Val::Int(place) => {
            usize::try_from(*place).ok().filter(|place| *place <= signs.len()).ok_or_else(|| out(*place))
        }
        other => Err(EvalError::overload(name, &[other])),
    };
    let find = |part: &str, mut places: Box<dyn Iterator<Item = usize>>| {
        let part: Vec<char> = part.chars().collect();
        places.find(|at| signs[*at..].starts_with(&part)).map_or(-1, |place| place as i64)
    };
    match (name, values) {
        ("charAt", [at]) => Ok(Val::text(signs.get(place(at)?).map(char::to_string).unwrap_or_default())),
        ("substring", [from]) => Ok(Val::text(signs[place(from)?..].iter().collect::<String>())),
        ("substring", [from, to]) => {
            let (from, to) = (place(from)?, place(to)?);
            if from <= to {
                Ok(Val::text(signs[from..to].iter().collect::<String>()))
            } else {
                Err(EvalError::Failed(format!("invalid substring range. start: {from}, end: {to}")))
            }
        }
        ("indexOf", [Val::Text(part)]) => Ok(Val::Int(find(part, Box::new(0..=signs.len())))),
        // Behind the end there is nothing to find.
        ("indexOf" | "lastIndexOf", [Val::Text(_), Val::Int(from)]) if *from > signs.len() as i64 => Ok(Val::Int(-1)),
        ("indexOf", [Val::Text(part), from]) => Ok(Val::Int(find(part, Box::new(place(from)?..=signs.len())))),
        ("lastIndexOf", [Val::Text(part)]) => Ok(Val::Int(find(part, Box::new((0..=signs.len()).rev())))),
        ("lastIndexOf", [Val::Text(part), from]) => Ok(Val::Int(find(part, Box::new((0..=place(from)?).rev())))),
        _ => Err(EvalError::Overload),
    }
}

fn search<'a>(cx: &Evaluator, text: &str, name: &str, expression: &str, values: &[Val<'a>]) -> Outcome<'a> {
    cx.affords((text.len() as u64 / 40).saturating_mul(expression.len() as u64 / 16))?;
    let regex = pattern(expression)?;
    match (name, values) {
        ("matches", [_]) => Ok(Val::Bool(regex.is_match(text))),
        ("find", [_]) => Ok(Val::text(regex.find(text).map_or("", |found| found.as_str()).to_string())),
        ("findAll", [_]) => {
            Ok(Val::list(regex.find_iter(text).map(|found| Val::text(found.as_str().to_string())).collect()))
        }
        ("findAll", [_, Val::Int(count)]) => {
            let count = usize::try_from(*count).unwrap_or(usize::MAX);
            Ok(Val::list(
                regex.find_iter(text).take(count).map(|found| Val::text(found.as_str().to_string())).collect(),
            ))
        }
        _ => Err(EvalError::Overload),
    }
}

/// Patterns are mostly constants of rules: each is compiled once, as long as there are not too many.
fn pattern(text: &str) -> Result<Arc<Regex>, EvalError> {
    static KNOWN: LazyLock<RwLock<HashMap<String, Arc<Regex>>>> = LazyLock::new(RwLock::default);
    // A thread that panicked while it held the lock has left nothing half done.
    if let Some(known) = KNOWN.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(text) {
        return Ok(known.clone());
    }
    let made = crate::pattern::compile(text).map_err(EvalError::failed)?;
    let made = Arc::new(made);
    let mut known = KNOWN.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    if known.len() >= PATTERNS_MAX {
        known.clear();
    }
    known.insert(text.into(), made.clone());
    Ok(made)
}

/// `"%s has %d".format([...])`.
fn format<'a>(template: &str, arguments: &[Val<'a>]) -> Outcome<'a> {
    let mut out = String::new();
    let mut arguments = arguments.iter();
    let mut signs = template.chars().peekable();
    let failed = |why: String| EvalError::Failed(why);
    while let Some(sign) = signs.next() {
        if sign != '%' {
            out.push(sign);
            continue;
        }
        let mut precision = None;
        if signs.next_if_eq(&'.').is_some() {
            let mut digits = String::new();
            while let Some(digit) = signs.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            precision = digits.parse::<usize>().ok().filter(|precision| *precision <= 64);
        }
        let verb = signs.next().ok_or_else(|| failed("unexpected end of string".into()))?;
        if verb == '%' {
            out.push('%');
            continue;
        }
        let value = arguments.next().ok_or_else(|| failed("index out of range: not enough arguments".into()))?;
        let value = &if matches!(verb, 'f' | 'e') { number_of_word(value) } else { value.clone() };
        let text = match (verb, value) {
            ('s', value) => formatted(value),
            ('d', Val::Int(_) | Val::Uint(_)) => shown(value),
            ('f' | 'e', Val::Double(number)) if number.is_infinite() => {
                String::from(if *number < 0.0 { "-∞" } else { "∞" })
            }
            ('f', Val::Double(number)) => format!("{number:.*}", precision.unwrap_or(6)),
            // Upstream takes the precision for a width.
            ('e', Val::Double(number)) => scientific(*number),
            ('b', Val::Int(number)) => in_base(*number, |size| format!("{size:b}")),
            ('b', Val::Uint(number)) => format!("{number:b}"),
            ('b', Val::Bool(value)) => u8::from(*value).to_string(),
            ('o', Val::Int(number)) => in_base(*number, |size| format!("{size:o}")),
            ('o', Val::Uint(number)) => format!("{number:o}"),
            ('x', Val::Int(number)) => in_base(*number, |size| format!("{size:x}")),
            ('x', Val::Uint(number)) => format!("{number:x}"),
            ('X', Val::Int(number)) => in_base(*number, |size| format!("{size:X}")),
            ('X', Val::Uint(number)) => format!("{number:X}"),
            ('X', Val::Text(text)) => hex(text.as_bytes()).to_ascii_uppercase(),
            ('X', Val::Bytes(bytes)) => hex(bytes).to_ascii_uppercase(),
            ('x', Val::Text(text)) => hex(text.as_bytes()),
            ('x', Val::Bytes(bytes)) => hex(bytes),
            _ => return Err(failed(format!("error during formatting: %{verb} does not take a {}", value.type_name()))),
        };
        out.push_str(&text);
        bounded(out.len())?;
    }
    Ok(Val::text(out))
}

/// The numbers that have no digits may be given as words.
fn number_of_word<'a>(value: &Val<'a>) -> Val<'a> {
    match value {
        Val::Text(text) if text == "NaN" => Val::Double(f64::NAN),
        Val::Text(text) if text == "Infinity" => Val::Double(f64::INFINITY),
        Val::Text(text) if text == "-Infinity" => Val::Double(f64::NEG_INFINITY),
        other => other.clone(),
    }
}

/// `3.140000×10⁰⁰`.
fn scientific(number: f64) -> String {
    let text = format!("{number:.6e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |rest| ("⁻", rest));
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let raised: String =
        format!("{exponent:0>2}").chars().filter_map(|digit| RAISED.get(digit.to_digit(10)? as usize)).collect();
    format!("{digits}×10{sign}{raised}")
}

/// Go writes a minus before the size.
fn in_base(number: i64, shown: impl Fn(u64) -> String) -> String {
    format!("{}{}", if number < 0 { "-" } else { "" }, shown(number.unsigned_abs()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// How many letters the pattern of a format has, as it is charged for.
pub(super) fn format_pattern_letters(format: &str) -> u64 {
    match format {
        "dns1123Label" | "dns1035Label" | "dns1123LabelPrefix" | "dns1035LabelPrefix" => 30,
        "labelValue" => 40,
        "uri" => 1103,
        "uuid" => 79,
        "byte" => 84,
        "date" | "datetime" => 150,
        _ => 60,
    }
}

/// The formats that `format.<name>()` and `format.named(<name>)` know.
/// Answers what is wrong with a text.
type Rule = fn(&str) -> Vec<String>;

const FORMATS: &[(&str, Rule)] = &[
    ("dns1123Label", names::dns_label),
    ("dns1123Subdomain", names::dns_subdomain),
    ("dns1035Label", names::dns1035_label),
    ("qualifiedName", names::qualified_name),
    ("dns1123LabelPrefix", |text| names::dns_label(&names::mask_trailing_dash(text))),
    ("dns1123SubdomainPrefix", |text| names::dns_subdomain(&names::mask_trailing_dash(text))),
    ("dns1035LabelPrefix", |text| names::dns1035_label(&names::mask_trailing_dash(text))),
    ("labelValue", names::label_value),
    ("uri", |text| unless(is_format("uri", text), &format!("parse {text:?}: invalid URI for request"))),
    ("uuid", |text| unless(is_format("uuid", text), "does not match the UUID format")),
    ("byte", |text| unless(is_format("byte", text), "invalid base64")),
    ("date", |text| unless(is_format("date", text), "invalid date")),
    ("datetime", |text| unless(is_format("datetime", text), "invalid datetime")),
];

fn unless(good: bool, problem: &str) -> Vec<String> {
    if good { Vec::new() } else { vec![problem.to_string()] }
}

pub(crate) fn named_format<'a>(name: &str, values: &[Val<'a>]) -> Outcome<'a> {
    let find = |wanted: &str| FORMATS.iter().find(|(known, _)| *known == wanted).map(|(known, _)| Val::Format(known));
    match (name, values) {
        ("format.named", [Val::Text(wanted)]) => Ok(Val::Optional(find(wanted).map(std::rc::Rc::new))),
        (name, []) => find(name.trim_start_matches("format.")).ok_or(EvalError::Overload),
        _ => Err(EvalError::Overload),
    }
}

pub(crate) fn format_member<'a>(format: &str, name: &str, values: &[Val<'a>]) -> Option<Outcome<'a>> {
    let ("validate", [Val::Text(text)]) = (name, values) else { return None };
    let (_, rule) = FORMATS.iter().find(|(known, _)| *known == format)?;
    let problems = rule(text);
    Some(Ok(if problems.is_empty() {
        Val::Optional(None)
    } else {
        Val::some(Val::list(problems.into_iter().map(Val::text).collect()))
    }))
}
