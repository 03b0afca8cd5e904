//! The `semver` library: versions such as `1.2.3-rc.1+build`, ordered as semver.org says.

use std::cmp::Ordering;
use std::rc::Rc;

use super::EvalError;
use super::value::Val;

type Outcome<'a> = Result<Val<'a>, EvalError>;

#[derive(Clone, Debug)]
pub struct Version {
    numbers: [u64; 3],
    before: Vec<Part>,
    shown: Box<str>,
}

/// One piece of a pre-release: numbers come before words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    #[error("No Major.Minor.Patch elements found")]
    Elements,
    #[error("Build meta data is empty or has an invalid character")]
    Build,
    #[error("Short version cannot contain PreRelease/Build meta data")]
    Short,
    #[error("Invalid character(s) found in version number")]
    Character,
    #[error("Version number must not contain leading zeroes")]
    Zeroes,
    #[error("Version number is too large")]
    TooLarge,
    #[error("Prerelease is empty or has an invalid character")]
    PreRelease,
}

impl Version {
    pub fn parse(text: &str) -> Result<Version, VersionError> {
        let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
        let (core, before) = rest.split_once('-').map_or((rest, None), |(core, before)| (core, Some(before)));
        let pieces: Vec<&str> = core.split('.').collect();
        let [major, minor, patch] = pieces[..] else { return Err(VersionError::Elements) };
        let numbers = [number(major)?, number(minor)?, number(patch)?];
        let before = match before {
            Some(before) => before.split('.').map(part).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        if build.is_some_and(|build| !build.split('.').all(is_word)) {
            return Err(VersionError::Build);
        }
        Ok(Version { numbers, before, shown: text.into() })
    }

    /// Also takes `v1.2` and `01.2.3`: what people write for `1.2.0` and `1.2.3`.
    fn parse_loosely(text: &str) -> Result<Version, VersionError> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(['-', '+']).unwrap_or(text.len());
        let (core, rest) = text.split_at(end);
        let mut pieces: Vec<&str> = core.split('.').map(without_zeros).collect();
        if pieces.len() < 3 && !rest.is_empty() {
            return Err(VersionError::Short);
        }
        while pieces.len() < 3 {
            pieces.push("0");
        }
        Version::parse(&format!("{}{rest}", pieces.join(".")))
    }

    /// What was built from it plays no part in the order.
    pub fn order(&self, other: &Version) -> Ordering {
        let released = |version: &Version| version.before.is_empty();
        self.numbers
            .cmp(&other.numbers)
            .then_with(|| released(self).cmp(&released(other)))
            .then_with(|| self.before.cmp(&other.before))
    }

    pub fn shown(&self) -> &str {
        &self.shown
    }
}

pub fn global<'a>(name: &str, values: &[Val<'a>]) -> Option<Outcome<'a>> {
    let parsed = match values {
        [Val::Text(text)] | [Val::Text(text), Val::Bool(false)] => Version::parse(text),
        [Val::Text(text), Val::Bool(true)] => Version::parse_loosely(text),
        _ => return None,
    };
    match name {
        "isSemver" => Some(Ok(Val::Bool(parsed.is_ok()))),
        "semver" => Some(match parsed {
            Ok(version) => Ok(Val::Semver(Rc::new(version))),
            Err(error) => Err(EvalError::failed(error)),
        }),
        _ => None,
    }
}

pub fn member<'a>(own: &Version, name: &str, values: &[Val<'a>]) -> Option<Outcome<'a>> {
    let number = |at: usize| i64::try_from(own.numbers[at]).map(Val::Int).map_err(|_| EvalError::overflow());
    Some(match (name, values) {
        ("major", []) => number(0),
        ("minor", []) => number(1),
        ("patch", []) => number(2),
        ("isGreaterThan", [Val::Semver(other)]) => Ok(Val::Bool(own.order(other).is_gt())),
        ("isLessThan", [Val::Semver(other)]) => Ok(Val::Bool(own.order(other).is_lt())),
        ("compareTo", [Val::Semver(other)]) => Ok(Val::Int(own.order(other) as i64)),
        _ => return None,
    })
}

fn number(text: &str) -> Result<u64, VersionError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(VersionError::Character);
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(VersionError::Zeroes);
    }
    text.parse().map_err(|_| VersionError::TooLarge)
}

fn part(text: &str) -> Result<Part, VersionError> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(text).map(Part::Number);
    }
    if is_word(text) { Ok(Part::Word(text.into())) } else { Err(VersionError::PreRelease) }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn without_zeros(text: &str) -> &str {
    match text.trim_start_matches('0') {
        "" if !text.is_empty() => "0",
        rest => rest,
    }
}
