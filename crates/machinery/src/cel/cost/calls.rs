//! What functions cost, by the sizes of what they are given.

use super::amount::{Entries, PER_LETTER, PER_PATTERN_LETTER, Size, scaled};
use super::kinds::Type;
use super::macros::sorting;
use super::{CALL, Estimator, Found, NEW_LIST, sum};

/// An expression can ask for two authorizations.
const AUTHORIZATION: u64 = 350_000;
/// What each requirement of a selector costs, and how many letters one has at least.
const PER_REQUIREMENT: f64 = 50.0;
const REQUIREMENTS_PER_LETTER: f64 = 0.5;
/// The bytes of an address.
const ADDRESS_BYTES: Size = Size { min: 4, max: 16 };
/// The letters of the longest pattern among the named formats.
const FORMAT_PATTERN_LETTERS: f64 = 128.0;

impl<'a> Estimator<'a> {
    pub(super) fn call(&self, function: &str, target: Option<&Found<'a>>, arguments: &[Found<'a>]) -> Found<'a> {
        if let ("dyn", None, [value]) = (function, target, arguments) {
            let cost = value.cost.saturating_add(CALL);
            return Found { cost, kind: Type::Dyn, path: Vec::new(), literal: None, ..value.clone() };
        }
        let (cost, size) = self.own_cost(function, target, arguments);
        let given = sum(target.into_iter().chain(arguments).map(|value| value.cost));
        let kinds: Vec<Type> = arguments.iter().map(|argument| argument.kind.clone()).collect();
        let kind = Type::answered(function, target.map(|target| &target.kind), &kinds);
        let found = self.computed(Found::new(given.saturating_add(cost), kind));
        Found { size: size.or(found.size), ..found }
    }

    /// The cost of the function alone, and the size of its answer where that is told.
    fn own_cost(&self, function: &str, target: Option<&Found<'a>>, arguments: &[Found<'a>]) -> (u64, Option<Size>) {
        let first = arguments.first().map(Found::size);
        let read = |size: Size| size.cost(PER_LETTER);
        match (function, target, first) {
            ("check", ..) => (AUTHORIZATION, None),
            ("fieldSelector" | "labelSelector", _, Some(text)) => {
                let requirements = scaled(text.cost(REQUIREMENTS_PER_LETTER), PER_REQUIREMENT);
                (sum([NEW_LIST, read(text), requirements]), None)
            }
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                (self.each_once(target), None)
            }
            ("url" | "jsonpatch.escapeKey", None, Some(text)) => (read(text), Some(text)),
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
                (read(target.size()), Some(target.size()))
            }
            ("replace", Some(target), Some(old)) if arguments.len() >= 2 => {
                let text = target.size();
                (text.cost(2.0 * PER_LETTER), Some(replaced(text, old, arguments[1].size())))
            }
            ("split", Some(target), _) => {
                let most = arguments.get(1).and_then(|argument| argument.literal);
                let size = Size::up_to(most.unwrap_or(target.size().max));
                (target.size().cost(2.0 * PER_LETTER), Some(size))
            }
            ("join", Some(target), separator) => {
                let size = self.joined(target, separator);
                (read(size), Some(size))
            }
            ("find" | "findAll", Some(target), Some(pattern)) => {
                (matched(target.size(), pattern), Some(Size::up_to(target.size().max)))
            }
            ("matches", Some(target), Some(pattern)) => (matched(target.size(), pattern), None),
            ("contains", Some(target), Some(part)) => (read(target.size()).saturating_mul(read(part)), None),
            ("startsWith" | "endsWith", Some(_), Some(part)) => (read(part), None),
            ("format", Some(target), _) => (read(target.size()), None),
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
                None,
                Some(text),
            ) => (read(text), None),
            ("ip.isCanonical", None, Some(text)) => (text.cost(2.0 * PER_LETTER), None),
            ("containsIP" | "containsCIDR", Some(_), Some(text)) => {
                let both = read(ADDRESS_BYTES.plus(ADDRESS_BYTES));
                let masked = if function == "containsCIDR" { read(ADDRESS_BYTES) + 1 } else { 0 };
                let parsed = if matches!(arguments[0].kind, Type::Small) { 0 } else { read(text) };
                (sum([both, masked, parsed]), None)
            }
            ("validate", Some(_), Some(text)) => {
                (scaled(read(text), FORMAT_PATTERN_LETTERS * PER_PATTERN_LETTER), None)
            }
            ("bytes", None, Some(text)) if matches!(arguments[0].kind, Type::Text) => {
                (read(text), Some(Size { min: text.min, max: text.max.saturating_mul(4) }))
            }
            ("string", None, Some(bytes)) if matches!(arguments[0].kind, Type::Bytes) => {
                (read(bytes), Some(Size { min: bytes.min / 4, max: bytes.max }))
            }
            ("strings.quote", None, Some(text)) => {
                let most = text.max.saturating_mul(2).saturating_add(2);
                (read(text), Some(Size { min: text.min.saturating_add(2), max: most }))
            }
            _ => list_cost(function, target, arguments),
        }
    }

    /// Looking at each item of a list once, or going through a text.
    fn each_once(&self, target: &Found<'a>) -> u64 {
        let (Type::List(item) | Type::Map(item, _)) = &target.kind else { return target.size().cost(PER_LETTER) };
        let letters = match **item {
            Type::Text | Type::Bytes => self.item_size(target).cost(PER_LETTER),
            _ => 0,
        };
        target.size().max.saturating_mul(letters.saturating_add(1))
    }

    fn item_size(&self, list: &Found<'a>) -> Size {
        if list.path.is_empty() {
            Size::UNKNOWN
        } else {
            self.declared_size(&list.below("@items")).unwrap_or(Size::UNKNOWN)
        }
    }

    fn joined(&self, list: &Found<'a>, separator: Option<Size>) -> Size {
        let count = list.size();
        let mut size = Size::fixed(0);
        if matches!(list.kind, Type::List(_) | Type::Map(..)) {
            size = count.times(self.item_size(list));
        }
        if let Some(separator) = separator {
            let between = Size { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
            size = size.plus(separator.times(between));
        }
        size
    }
}

/// Functions of lists and sets.
fn list_cost(function: &str, target: Option<&Found>, arguments: &[Found]) -> (u64, Option<Size>) {
    let made = |cost: u64, size: Size| (sum([cost, CALL, NEW_LIST]), Some(size));
    match (function, target, arguments) {
        ("sets.contains" | "sets.intersects", None, [one, other]) => {
            (one.size().times(other.size()).max.saturating_add(CALL), None)
        }
        ("sets.equivalent", None, [one, other]) => {
            (one.size().times(other.size()).cost(2.0).saturating_add(CALL), None)
        }
        ("slice", Some(target), [start, end]) => {
            let end = end.literal.unwrap_or(target.size().max);
            let count = Size::fixed(end.saturating_sub(start.literal.unwrap_or(0)));
            made(count.max, count)
        }
        ("lists.range", None, [count]) => {
            let count = Size::fixed(count.literal.unwrap_or(u64::MAX));
            made(count.max, count)
        }
        ("reverse", Some(target), []) if target.kind.is_list() => made(target.size().max, target.size()),
        ("flatten", Some(target), depth) => {
            let depth = depth.first().map_or(Some(1), |depth| depth.literal).unwrap_or(u64::MAX);
            made(scaled(target.size().max, depth as f64), target.size())
        }
        ("distinct", Some(target), []) => {
            let squared = target.size().times(target.size());
            made(squared.cost(2.0), squared)
        }
        ("sort", Some(target), []) => {
            let squared = target.size().times(target.size());
            (sorting(squared, &target.kind.entry()), Some(squared))
        }
        _ => (CALL, None),
    }
}

/// A pattern over a text; an empty text costs as one letter does.
fn matched(text: Size, pattern: Size) -> u64 {
    text.plus(Size::fixed(1)).cost(PER_LETTER).saturating_mul(pattern.cost(PER_PATTERN_LETTER))
}

/// The size of a text in which all `old` are `new`.
fn replaced(text: Size, old: Size, new: Size) -> Size {
    let (mut times, mut kept) = (Size::fixed(0), Size::fixed(0));
    if old.min == 0 {
        // Nothing stands before and behind every letter.
        times.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        times.max = (text.max as f64 / old.min as f64).ceil() as u64;
    }
    if old.max == 0 {
        times.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        times.min = (text.min as f64 / old.max as f64).ceil() as u64;
    }
    times.times(new).plus(kept)
}

/// Less or greater: texts are gone through, numbers are not, and of what is unknown until it runs the dearer counts.
pub(super) fn compared(left: &Type, right: &Type, smaller: Size) -> u64 {
    let is_text = |kind: &Type| matches!(kind, Type::Text | Type::Bytes);
    match (left, right) {
        (Type::Dyn, Type::Dyn) => smaller.cost(PER_LETTER).max(CALL),
        (left, right) if is_text(left) || is_text(right) => smaller.cost(PER_LETTER),
        _ => CALL,
    }
}

/// `+`: texts are copied, lists are put together at once.
pub(super) fn added<'a>(operands: u64, left: &Found<'a>, right: &Found<'a>) -> Found<'a> {
    let kind = if matches!(left.kind, Type::Dyn) { &right.kind } else { &left.kind };
    let size = left.size().plus(right.size());
    let (cost, sized) = match kind {
        Type::Text | Type::Bytes => (size.cost(PER_LETTER), true),
        Type::List(_) => (CALL, true),
        Type::Dyn => (size.cost(PER_LETTER).max(CALL), true),
        _ => (CALL, false),
    };
    let entries = Entries::union(left.entries, right.entries);
    let found = Found { entries, ..Found::new(operands.saturating_add(cost), kind.clone()) };
    if sized { found.sized(size) } else { Found { size: super::scalar(kind), ..found } }
}
