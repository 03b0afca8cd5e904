//! What functions and operators cost when they run, in upstream's units: these figures decide which rules run to their end.

use super::value::Val;

/// Creating a list, a map, or a value of a named type.
pub(super) const NEW_LIST: u64 = 10;
pub(super) const NEW_MAP: u64 = 30;
pub(super) const NEW_OBJECT: u64 = 40;
/// Going through a text, for each letter.
const PER_LETTER: f64 = 0.1;
/// Each letter of a pattern, for a letter of the text.
const PER_PATTERN_LETTER: f64 = 0.25;
/// An expression can ask for two authorizations.
const AUTHORIZATION: u64 = 350_000;
/// What each requirement of a selector costs, and how many letters one has at least.
const PER_REQUIREMENT: f64 = 50.0;
const REQUIREMENTS_PER_LETTER: f64 = 0.5;

/// How large a value is for what it costs to look at it.
pub(super) fn size(value: &Val) -> u64 {
    match value {
        Val::Optional(Some(value)) => size(value),
        Val::Ip(address) => {
            if address.is_ipv4() {
                4
            } else {
                16
            }
        }
        Val::Cidr(_, bits) => u64::from(*bits).div_ceil(8),
        other => other.size().map_or(1, |size| size as u64),
    }
}

fn scaled(size: u64, factor: f64) -> u64 {
    // A float becomes an integer without overflow, too.
    (size as f64 * factor).ceil() as u64
}

fn read(value: &Val) -> u64 {
    scaled(size(value), PER_LETTER)
}

/// What a text costs that is held against a pattern.
fn matched(text: u64, pattern: u64) -> u64 {
    scaled(text.saturating_add(1), PER_LETTER).saturating_mul(scaled(pattern, PER_PATTERN_LETTER))
}

/// What a function costs, by its arguments, the value it is called on first, and by its answer.
pub(super) fn call(name: &str, arguments: &[&Val], result: &Val) -> u64 {
    let [first, rest @ ..] = arguments else {
        return if name == "lists.range" { allocated(1.0, size(result)) } else { 1 };
    };
    match (name, rest) {
        ("check", _) => AUTHORIZATION,
        ("fieldSelector" | "labelSelector", [text, ..]) => {
            let requirements = scaled(scaled(size(text), REQUIREMENTS_PER_LETTER), PER_REQUIREMENT);
            NEW_LIST.saturating_add(read(text)).saturating_add(requirements)
        }
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", _) => traversed(first),
        ("url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "jsonpatch.escapeKey", _) => read(first),
        ("replace" | "split", _) => scaled(size(first), 2.0 * PER_LETTER),
        ("join", _) => scaled(size(result), 2.0 * PER_LETTER),
        ("find" | "findAll", [pattern, ..]) | ("matches", [pattern]) => matched(size(first), size(pattern)),
        ("ip", []) if matches!(first, Val::Cidr(..)) => 1,
        ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", _) => read(first),
        ("ip.isCanonical", _) => scaled(size(first), 2.0 * PER_LETTER),
        ("containsIP" | "containsCIDR", [other]) => contained(name, first, other),
        ("validate", [text]) => match first {
            Val::Format(format) => matched(size(text), super::texts::format_pattern_letters(format)),
            _ => 1,
        },
        ("startsWith" | "endsWith" | "strings.quote" | "format", _) => read(first),
        ("bytes", []) if matches!(first, Val::Text(_)) => read(first),
        ("string", []) if matches!(first, Val::Bytes(_)) => read(first),
        ("contains", [part]) => read(first).saturating_mul(read(part)),
        ("sets.contains" | "sets.intersects", [other]) => size(first).saturating_mul(size(other)).saturating_add(1),
        ("sets.equivalent", [other]) => size(first).saturating_mul(size(other)).saturating_mul(2).saturating_add(1),
        ("slice" | "reverse", _) => allocated(1.0, size(result)),
        ("lists.range", _) => allocated(1.0, size(result)),
        ("flatten", [Val::Int(depth)]) => allocated(*depth as f64, size(first)),
        ("flatten", _) => allocated(1.0, size(first)),
        ("distinct" | "sort", _) => compared_with_itself(first),
        _ => 1,
    }
}

/// What an operator costs between two values.
pub(super) fn binary(sign: &str, left: &Val, right: &Val) -> u64 {
    let smaller = || scaled(size(left).min(size(right)), PER_LETTER);
    match sign {
        "==" => match left {
            Val::Quantity(_) | Val::Ip(_) | Val::Cidr(..) | Val::Format(_) | Val::Url(_) | Val::Semver(_) => 1,
            Val::Asking(_) | Val::Verdict(_) => 1,
            _ => smaller(),
        },
        "!=" => smaller(),
        "<" | "<=" | ">" | ">=" => match left {
            Val::Text(_) | Val::Bytes(_) => smaller(),
            _ => 1,
        },
        "in" if right.is_map() => 1,
        "in" => size(right),
        "+" if matches!(left, Val::Text(_) | Val::Bytes(_)) => {
            scaled(size(left).saturating_add(size(right)), PER_LETTER)
        }
        _ => 1,
    }
}

/// Sorting a list, as if each item were compared with each other.
pub(super) fn compared_with_itself(list: &Val) -> u64 {
    let first = list.pairs().and_then(|mut pairs| pairs.next());
    let per_letter = match first {
        Some((_, Val::Text(_) | Val::Bytes(_))) => PER_LETTER,
        _ => 0.0,
    };
    allocated(2.0 + per_letter, size(list).saturating_mul(size(list)))
}

fn allocated(factor: f64, size: u64) -> u64 {
    ((size as f64 * factor) as u64).saturating_add(1 + NEW_LIST)
}

fn contained(name: &str, network: &Val, other: &Val) -> u64 {
    let compared = scaled(size(network) * 2, PER_LETTER);
    let masked = if name == "containsCIDR" { read(network) + 1 } else { 0 };
    let parsed = if matches!(other, Val::Text(_)) { read(other) } else { 0 };
    compared + masked + parsed
}

/// Going through everything that a value holds.
fn traversed(value: &Val) -> u64 {
    match value {
        Val::Text(text) => (text.len() as f64 * PER_LETTER) as u64,
        Val::Bytes(bytes) => (bytes.len() as f64 * PER_LETTER) as u64,
        other => match other.pairs() {
            None => 1,
            Some(pairs) => {
                let is_map = other.is_map();
                let each = |(key, item): (Val, Val)| traversed(&item) + if is_map { traversed(&key) } else { 0 };
                pairs.map(each).fold(0, u64::saturating_add)
            }
        },
    }
}
