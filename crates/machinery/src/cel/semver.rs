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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    #[error("Version string empty")]
    Empty,
    #[error("No Major.Minor.Patch elements found")]
    Elements,
    #[error("Short version cannot contain PreRelease/Build meta data")]
    Short,
    #[error("Invalid character(s) found in {place} {found:?}")]
    Character { place: &'static str, found: Box<str> },
    #[error("{place} must not contain leading zeroes {found:?}")]
    Zeroes { place: &'static str, found: Box<str> },
    #[error("strconv.ParseUint: parsing {0:?}: {1}")]
    Number(Box<str>, &'static str),
    #[error("{0} is empty")]
    EmptyPart(&'static str),
}

impl Version {
    pub fn parse(text: &str) -> Result<Version, VersionError> {
        if text.is_empty() {
            return Err(VersionError::Empty);
        }
        let pieces: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = pieces[..] else { return Err(VersionError::Elements) };
        let (major, minor) =
            (number(major, "major number", "Major number")?, number(minor, "minor number", "Minor number")?);
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, before) = rest.split_once('-').map_or((rest, None), |(core, before)| (core, Some(before)));
        let numbers = [major, minor, number(patch, "patch number", "Patch number")?];
        let before = match before {
            Some(before) => before.split('.').map(part).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        for piece in build.into_iter().flat_map(|build| build.split('.')) {
            word(piece, "Build meta data", "build meta data")?;
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

fn number(text: &str, place: &'static str, title: &'static str) -> Result<u64, VersionError> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(VersionError::Character { place, found: text.into() });
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(VersionError::Zeroes { place: title, found: text.into() });
    }
    let why = if text.is_empty() { "invalid syntax" } else { "value out of range" };
    text.parse().map_err(|_| VersionError::Number(text.into(), why))
}

fn part(text: &str) -> Result<Part, VersionError> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(text, "prerelease", "Numeric PreRelease version").map(Part::Number);
    }
    word(text, "Prerelease", "prerelease").map(|()| Part::Word(text.into()))
}

fn word(text: &str, title: &'static str, place: &'static str) -> Result<(), VersionError> {
    if text.is_empty() {
        return Err(VersionError::EmptyPart(title));
    }
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_word { Ok(()) } else { Err(VersionError::Character { place, found: text.into() }) }
}

fn without_zeros(text: &str) -> &str {
    match text.trim_start_matches('0') {
        "" if !text.is_empty() => "0",
        rest => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sentences are those of the library that upstream reads versions with.
    #[test]
    fn versions_that_are_none_say_why() {
        for (text, expected) in [
            ("", "Version string empty"),
            ("1", "No Major.Minor.Patch elements found"),
            ("1.2", "No Major.Minor.Patch elements found"),
            ("v1.2.3", "Invalid character(s) found in major number \"v1\""),
            ("1.x.3", "Invalid character(s) found in minor number \"x\""),
            ("1.2.3.4", "Invalid character(s) found in patch number \"3.4\""),
            ("01.2.3", "Major number must not contain leading zeroes \"01\""),
            ("1.02.3", "Minor number must not contain leading zeroes \"02\""),
            ("1.2.03", "Patch number must not contain leading zeroes \"03\""),
            ("1..3", "strconv.ParseUint: parsing \"\": invalid syntax"),
            ("1.2.99999999999999999999", "strconv.ParseUint: parsing \"99999999999999999999\": value out of range"),
            ("1.2.3-", "Prerelease is empty"),
            ("1.2.3-rc..1", "Prerelease is empty"),
            ("1.2.3-01", "Numeric PreRelease version must not contain leading zeroes \"01\""),
            ("1.2.3-a_b", "Invalid character(s) found in prerelease \"a_b\""),
            ("1.2.3+", "Build meta data is empty"),
            ("1.2.3+a_b", "Invalid character(s) found in build meta data \"a_b\""),
        ] {
            let error = Version::parse(text).map(|version| version.shown).map_err(|error| error.to_string());
            assert_eq!(error, Err(expected.to_owned()), "{text}");
        }
    }

    /// Each is less than the next one.
    #[test]
    fn versions_have_the_order_of_semver_org() {
        let texts = [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.1",
            "1.1.0",
            "1.10.0",
            "2.0.0",
        ];
        let versions: Vec<Version> = texts.iter().filter_map(|text| Version::parse(text).ok()).collect();
        assert_eq!(versions.len(), texts.len());
        assert!(versions.windows(2).all(|pair| pair[0].order(&pair[1]).is_lt()));
        let built = |text: &str| Version::parse(text).unwrap_or_else(|error| panic!("{error}"));
        assert!(built("1.0.0+a").order(&built("1.0.0+b")).is_eq());
    }

    #[test]
    fn loose_versions_are_completed() {
        for (text, expected) in [
            ("v1", Ok("1.0.0")),
            ("1.2", Ok("1.2.0")),
            ("v01.002.3-rc.1", Ok("1.2.3-rc.1")),
            ("0.0", Ok("0.0.0")),
            ("1.2-rc", Err("Short version cannot contain PreRelease/Build meta data")),
            ("vv1", Err("Invalid character(s) found in major number \"v1\"")),
        ] {
            let found = Version::parse_loosely(text).map_err(|error| error.to_string());
            assert_eq!(found.as_ref().map(Version::shown).map_err(String::as_str), expected, "{text}");
        }
    }
}
