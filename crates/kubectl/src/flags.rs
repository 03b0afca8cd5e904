//! Command lines as upstream's flag library reads them: `--name=value`, `--name value`, `-n=value`, `-nvalue`, bundled
//! switches, `--` for what is left alone. One table of flags per command gives parsing, help and completion.

use std::collections::BTreeMap;
use std::slice::Iter;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Text,
    /// A text whose default upstream's help shows without quotes.
    Plain,
    Switch,
    /// May be given several times, and one value may hold several between commas.
    List,
    /// A list of `key=value`.
    Pairs,
    /// May be given several times; commas mean nothing.
    Array,
    Integer,
    Duration,
    /// A text that may be left out: `--dry-run` is `--dry-run=unchanged`, and no other argument is taken as its value.
    Optional(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    pub name: &'static str,
    pub short: Option<char>,
    pub kind: Kind,
    pub default: &'static str,
    pub help: &'static str,
}

impl Flag {
    pub(crate) const fn text(name: &'static str, default: &'static str, help: &'static str) -> Flag {
        Flag { name, short: None, kind: Kind::Text, default, help }
    }

    pub(crate) const fn plain(name: &'static str, help: &'static str) -> Flag {
        Flag { name, short: None, kind: Kind::Plain, default: "", help }
    }

    pub(crate) const fn switch(name: &'static str, help: &'static str) -> Flag {
        Flag { name, short: None, kind: Kind::Switch, default: "false", help }
    }

    pub(crate) const fn on(name: &'static str, help: &'static str) -> Flag {
        Flag { name, short: None, kind: Kind::Switch, default: "true", help }
    }

    pub(crate) const fn list(name: &'static str, help: &'static str) -> Flag {
        Flag { name, short: None, kind: Kind::List, default: "", help }
    }

    pub(crate) const fn pairs(name: &'static str, help: &'static str) -> Flag {
        Flag { name, short: None, kind: Kind::Pairs, default: "", help }
    }

    pub(crate) const fn array(name: &'static str, help: &'static str) -> Flag {
        Flag { name, short: None, kind: Kind::Array, default: "", help }
    }

    pub(crate) const fn integer(name: &'static str, default: &'static str, help: &'static str) -> Flag {
        Flag { name, short: None, kind: Kind::Integer, default, help }
    }

    pub(crate) const fn duration(name: &'static str, default: &'static str, help: &'static str) -> Flag {
        Flag { name, short: None, kind: Kind::Duration, default, help }
    }

    pub(crate) const fn optional(
        name: &'static str,
        default: &'static str,
        without_value: &'static str,
        help: &'static str,
    ) -> Flag {
        Flag { name, short: None, kind: Kind::Optional(without_value), default, help }
    }

    pub(crate) const fn short(mut self, letter: char) -> Flag {
        self.short = Some(letter);
        self
    }
}

/// Why a command line cannot be read, in the sentences of upstream's flag library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FlagError {
    #[error("bad flag syntax: --{0}")]
    Syntax(String),
    #[error("unknown flag: --{0}")]
    Unknown(String),
    #[error("unknown shorthand flag: {letter:?} in {word}")]
    UnknownLetter { letter: char, word: String },
    #[error("flag needs an argument: --{0}")]
    NoValue(String),
    #[error("flag needs an argument: {letter:?} in {word}")]
    NoLetterValue { letter: char, word: String },
    #[error("invalid argument {value:?} for {flag:?} flag: {why}")]
    Invalid { value: String, flag: String, why: String },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parsed {
    values: BTreeMap<&'static str, Vec<String>>,
    defaults: BTreeMap<&'static str, &'static str>,
    /// Names that a command gives another meaning than they have for all commands.
    shadowed: Vec<&'static str>,
    pub arguments: Vec<String>,
    /// How many arguments stood before `--`, where there was one.
    pub dash: Option<usize>,
}

impl Parsed {
    pub(crate) fn parse(flags: &[&[Flag]], line: &[String]) -> Result<Parsed, FlagError> {
        let mut parsed = Parsed::default();
        for flag in flags.iter().copied().flatten() {
            if parsed.defaults.contains_key(flag.name) {
                parsed.shadowed.push(flag.name);
            } else {
                parsed.defaults.insert(flag.name, flag.default);
            }
        }
        let mut rest = line.iter();
        while let Some(argument) = rest.next() {
            if argument == "--" {
                parsed.dash = Some(parsed.arguments.len());
                parsed.arguments.extend(rest.by_ref().cloned());
            } else if let Some(long) = argument.strip_prefix("--") {
                parsed.long(flags, long, &mut rest)?;
            } else if argument.len() > 1 && argument.starts_with('-') {
                parsed.letters(flags, argument, &mut rest)?;
            } else {
                parsed.arguments.push(argument.clone());
            }
        }
        Ok(parsed)
    }

    /// `name`, `name=value`, or a name whose value is the next word.
    fn long(&mut self, flags: &[&[Flag]], long: &str, rest: &mut Iter<String>) -> Result<(), FlagError> {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (long, None),
        };
        if name.is_empty() || name.starts_with('-') {
            return Err(FlagError::Syntax(long.into()));
        }
        let flag = flags.iter().copied().flatten().find(|flag| flag.name == name);
        let flag = flag.ok_or_else(|| FlagError::Unknown(name.into()))?;
        let value = match (value, flag.kind) {
            (Some(value), _) => value,
            (None, Kind::Switch) => "true".into(),
            (None, Kind::Optional(default)) => default.into(),
            (None, _) => rest.next().cloned().ok_or_else(|| FlagError::NoValue(name.into()))?,
        };
        self.set(flag, value)
    }

    /// `-wo=yaml`, `-woyaml`, `-wo yaml`: switches, and at most one flag that takes what is behind it.
    fn letters(&mut self, flags: &[&[Flag]], word: &str, rest: &mut Iter<String>) -> Result<(), FlagError> {
        let mut letters = word[1..].chars();
        while let Some(letter) = letters.next() {
            let flag = flags.iter().copied().flatten().find(|flag| flag.short == Some(letter));
            let flag = flag.ok_or_else(|| FlagError::UnknownLetter { letter, word: word.into() })?;
            let more = letters.as_str();
            let value = match (more.strip_prefix('='), flag.kind) {
                (Some(value), _) => value.to_string(),
                (None, Kind::Switch) => {
                    self.set(flag, "true".into())?;
                    continue;
                }
                (None, Kind::Optional(default)) => {
                    self.set(flag, default.into())?;
                    continue;
                }
                (None, _) if !more.is_empty() => more.to_string(),
                (None, _) => {
                    let next = rest.next().cloned();
                    next.ok_or_else(|| FlagError::NoLetterValue { letter, word: word.into() })?
                }
            };
            return self.set(flag, value);
        }
        Ok(())
    }

    fn set(&mut self, flag: &Flag, value: String) -> Result<(), FlagError> {
        check(flag, &value)?;
        let values = self.values.entry(flag.name).or_default();
        match flag.kind {
            Kind::List | Kind::Pairs => values.extend(split_list(&value)),
            Kind::Array => values.push(value),
            _ => *values = vec![value],
        }
        Ok(())
    }

    /// Was it given on the command line?
    pub(crate) fn given(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// What was given for a flag that means the same for all commands.
    pub(crate) fn global(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|value| !value.is_empty() && !self.shadowed.contains(&name))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.defaults.contains_key(name)
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        match self.values.get(name).and_then(|values| values.last()) {
            Some(value) => value,
            None => self.defaults.get(name).copied().unwrap_or_default(),
        }
    }

    pub(crate) fn on(&self, name: &str) -> bool {
        switch(self.text(name)).unwrap_or(false)
    }

    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        match self.values.get(name) {
            Some(values) => values.clone(),
            None => split_list(self.defaults.get(name).copied().unwrap_or_default()),
        }
    }

    pub(crate) fn integer(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or_default()
    }

    /// Negative for a negative duration.
    pub(crate) fn seconds(&self, name: &str) -> f64 {
        duration(self.text(name)).unwrap_or_default()
    }
}

/// Refuses a value that is not of the flag's kind.
fn check(flag: &Flag, value: &str) -> Result<(), FlagError> {
    let why = match flag.kind {
        Kind::Switch if switch(value).is_none() => {
            format!("strconv.ParseBool: parsing {value:?}: invalid syntax")
        }
        Kind::Integer if value.parse::<i64>().is_err() => {
            format!("strconv.ParseInt: parsing {value:?}: invalid syntax")
        }
        Kind::Duration => match machinery::duration::parse(value) {
            Ok(_) => return Ok(()),
            Err(error) => error.to_string(),
        },
        Kind::Pairs => match split_list(value).into_iter().find(|pair| !pair.contains('=')) {
            Some(pair) => format!("{pair} must be formatted as key=value"),
            None => return Ok(()),
        },
        _ => return Ok(()),
    };
    let shown = match flag.short {
        Some(letter) => format!("-{letter}, --{}", flag.name),
        None => format!("--{}", flag.name),
    };
    Err(FlagError::Invalid { value: value.into(), flag: shown, why })
}

fn split_list(text: &str) -> Vec<String> {
    if text.is_empty() { Vec::new() } else { text.split(',').map(str::to_string).collect() }
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Go's notation of durations, in seconds: `1h30m`, `500ms`, `-1s`, `0`.
pub(crate) fn duration(text: &str) -> Option<f64> {
    machinery::duration::parse(text).ok().map(|duration| duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &[Flag] = &[
        Flag::text("output", "", "").short('o'),
        Flag::switch("watch", "").short('w'),
        Flag::switch("all", "").short('A'),
        Flag::list("label", "").short('l'),
        Flag::array("rule", ""),
        Flag::integer("tail", "-1", ""),
        Flag::optional("dry-run", "none", "unchanged", ""),
        Flag::duration("since", "0s", ""),
    ];

    fn parse(line: &str) -> Result<Parsed, FlagError> {
        let line: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Parsed::parse(&[FLAGS], &line)
    }

    #[test]
    fn all_notations_mean_the_same() {
        for line in ["-o yaml", "-o=yaml", "-oyaml", "--output yaml", "--output=yaml", "-woyaml", "-o json -oyaml"] {
            assert_eq!(parse(line).unwrap().text("output"), "yaml", "{line}");
        }
        let parsed = parse("pods -wA x --dry-run y -l a,b -l c --rule a,b -- -o json").unwrap();
        assert_eq!(parsed.arguments, ["pods", "x", "y", "-o", "json"]);
        assert_eq!(parsed.dash, Some(3));
        assert!(parsed.on("watch") && parsed.on("all") && parsed.given("dry-run"));
        assert_eq!(parsed.text("dry-run"), "unchanged");
        assert_eq!((parsed.list("label").len(), parsed.list("rule").len(), parsed.integer("tail")), (3, 1, -1));
        assert!(!parse("--watch=false").unwrap().on("watch"));
    }

    #[test]
    fn refusals_have_upstreams_words() {
        let check = |line: &str, error: &str| assert_eq!(parse(line).unwrap_err().to_string(), error);
        check("--foo", "unknown flag: --foo");
        check("--foo=x", "unknown flag: --foo");
        check("-wz", "unknown shorthand flag: 'z' in -wz");
        check("---foo", "bad flag syntax: ---foo");
        check("--=x", "bad flag syntax: --=x");
        check("--since=5", "invalid argument \"5\" for \"--since\" flag: time: missing unit in duration \"5\"");
        check("--output", "flag needs an argument: --output");
        check("-o", "flag needs an argument: 'o' in -o");
        check(
            "--tail=x",
            "invalid argument \"x\" for \"--tail\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
        );
        check(
            "-w=x",
            "invalid argument \"x\" for \"-w, --watch\" flag: strconv.ParseBool: parsing \"x\": invalid syntax",
        );
    }

    #[test]
    fn durations_are_gos() {
        for (text, seconds) in [("1h30m", Some(5400.0)), ("500ms", Some(0.5)), ("-1s", Some(-1.0)), ("0", Some(0.0))] {
            assert_eq!(duration(text), seconds);
        }
        assert_eq!((duration("5"), duration("x"), duration("")), (None, None, None));
    }
}
