//! The functions and operators that expressions may use, each with the types it takes: the base environment of upstream
//! 1.36, one signature a line (`signatures.txt`). Functions of a value begin with a dot and take that value first.

use std::collections::HashMap;
use std::sync::LazyLock;

/// One way to call a function.
#[derive(Debug)]
pub(super) struct Overload {
    /// Called as `value.function(...)`.
    pub is_member: bool,
    pub arguments: Vec<Wanted>,
    pub result: Wanted,
    /// The letters that stand for types.
    pub letters: Vec<char>,
}

/// A type in a signature.
#[derive(Debug)]
pub(super) enum Wanted {
    /// A type by its name.
    Name(&'static str),
    /// Any type, the same one wherever the letter occurs.
    Letter(char),
    List(Box<Wanted>),
    Map(Box<Wanted>, Box<Wanted>),
    Optional(Box<Wanted>),
    Kind(Box<Wanted>),
}

/// All ways to call the function of that name; none where there is no such function.
pub(super) fn overloads(function: &str) -> Option<&'static [Overload]> {
    static ALL: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| read(include_str!("signatures.txt")));
    ALL.get(function).map(Vec::as_slice)
}

fn read(lines: &'static str) -> HashMap<&'static str, Vec<Overload>> {
    let mut all: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for line in lines.lines() {
        let (is_member, line) = line.strip_prefix('.').map_or((false, line), |line| (true, line));
        let (name, rest) = line.split_once('(').unwrap_or((line, ""));
        let mut reader = Reader { rest, letters: Vec::new() };
        let arguments = reader.list();
        let result = reader.one();
        all.entry(name).or_default().push(Overload { is_member, arguments, result, letters: reader.letters });
    }
    all
}

struct Reader {
    rest: &'static str,
    letters: Vec<char>,
}

impl Reader {
    /// Types up to a closing bracket.
    fn list(&mut self) -> Vec<Wanted> {
        let mut found = Vec::new();
        loop {
            self.rest = self.rest.trim_start_matches([',', ' ']);
            if let Some(rest) = self.rest.strip_prefix(')') {
                self.rest = rest;
                return found;
            }
            if self.rest.is_empty() {
                return found;
            }
            found.push(self.one());
        }
    }

    fn one(&mut self) -> Wanted {
        let text = self.rest.trim_start();
        let length = text.find(['(', ')', ',']).unwrap_or(text.len());
        let name = &text[..length];
        self.rest = &text[length..];
        if let Some(rest) = self.rest.strip_prefix('(') {
            self.rest = rest;
            let mut parts = self.list().into_iter();
            let mut part = || Box::new(parts.next().unwrap_or(Wanted::Name("dyn")));
            return match name {
                "list" => Wanted::List(part()),
                "map" => Wanted::Map(part(), part()),
                "optional" => Wanted::Optional(part()),
                _ => Wanted::Kind(part()),
            };
        }
        match name.chars().next() {
            Some(letter) if name.len() == 1 => {
                if !self.letters.contains(&letter) {
                    self.letters.push(letter);
                }
                Wanted::Letter(letter)
            }
            _ => Wanted::Name(name),
        }
    }
}
