//! Flags of the form `--name value` and `--name=value`, and what is left.

use std::str::FromStr;

use crate::error::Result;

pub struct Options {
    rest: Vec<String>,
}

impl Options {
    pub fn new(arguments: &[String]) -> Options {
        Options { rest: arguments.to_vec() }
    }

    /// All values of a flag, which may be repeated or hold several with commas between.
    pub fn values<T: FromStr>(&mut self, name: &str) -> Result<Vec<T>> {
        let texts = self.take(name)?;
        texts.iter().flat_map(|text| text.split(',')).map(|text| parse(name, text)).collect()
    }

    /// One value, commas and all. The last counts.
    pub fn value<T: FromStr>(&mut self, name: &str) -> Result<Option<T>> {
        self.take(name)?.pop().map(|text| parse(name, &text)).transpose()
    }

    fn take(&mut self, name: &str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let equals = format!("{name}=");
        let mut index = 0;
        while index < self.rest.len() {
            if self.rest[index] == name {
                self.rest.remove(index);
                if index == self.rest.len() {
                    return Err(format!("{name} needs a value").into());
                }
                found.push(self.rest.remove(index));
            } else if self.rest[index].starts_with(&equals) {
                found.push(self.rest.remove(index)[equals.len()..].to_owned());
            } else {
                index += 1;
            }
        }
        Ok(found)
    }

    pub fn flag(&mut self, name: &str) -> bool {
        let before = self.rest.len();
        self.rest.retain(|argument| argument != name);
        self.rest.len() < before
    }

    /// What is no flag, between so many and so many words.
    pub fn positional(self, least: usize, most: usize) -> Result<Vec<String>> {
        match self.rest.len() {
            count if count < least => Err("too few arguments".into()),
            count if count > most => Err(format!("unexpected argument {:?}", self.rest[most]).into()),
            _ => Ok(self.rest),
        }
    }
}

fn parse<T: FromStr>(name: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| format!("{name}: {text:?} cannot be understood").into())
}
