//! Fixed tokens from a CSV file: `token,user,uid,"group1,group2"`.

use std::collections::HashMap;

use ring::digest::{SHA256, digest};

use super::User;

/// Keyed by the hash of the token, so that looking one up takes no longer for a guess that is nearly right.
#[derive(Clone, Debug, Default)]
pub struct TokenFile {
    users: HashMap<Vec<u8>, User>,
}

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum TokenFileError {
    #[error("line {line} must have at least 3 columns (token, user name, user uid), found {found}")]
    Columns { line: usize, found: usize },
    #[error("line {line} has an unterminated quote, or a quote inside a value")]
    Quote { line: usize },
}

impl TokenFile {
    pub fn parse(text: &str) -> Result<TokenFile, TokenFileError> {
        let mut users = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            if line.trim().is_empty() {
                continue;
            }
            let columns = split(line).ok_or(TokenFileError::Quote { line: line_number })?;
            let [token, name, uid, rest @ ..] = columns.as_slice() else {
                return Err(TokenFileError::Columns { line: line_number, found: columns.len() });
            };
            if token.is_empty() {
                tracing::warn!(line = line_number, "ignoring empty token in token file");
                continue;
            }
            let groups = rest.first().map(String::as_str).unwrap_or("");
            let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_string);
            let user = User { name: name.clone(), uid: uid.clone(), groups: groups.collect(), ..User::default() };
            if users.insert(hash(token), user).is_some() {
                tracing::warn!(line = line_number, "duplicate token in token file; using the last line");
            }
        }
        Ok(TokenFile { users })
    }

    pub fn find(&self, token: &str) -> Option<&User> {
        // Most servers have no such file; they need not compute the hash.
        if self.users.is_empty() { None } else { self.users.get(&hash(token)) }
    }
}

fn hash(token: &str) -> Vec<u8> {
    digest(&SHA256, token.as_bytes()).as_ref().to_vec()
}

/// The columns of one line; `None` for broken quotes. Two quotes inside quotes are one.
fn split(line: &str) -> Option<Vec<String>> {
    let mut columns = Vec::new();
    let mut rest = line.trim_end_matches('\r');
    loop {
        let column;
        if let Some(quoted) = rest.strip_prefix('"') {
            let (text, after) = unquote(quoted)?;
            column = text;
            rest = after;
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            column = rest[..end].to_string();
            rest = &rest[end..];
            if column.contains('"') {
                return None;
            }
        }
        columns.push(column);
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None if rest.is_empty() => return Some(columns),
            None => return None,
        }
    }
}

fn unquote(text: &str) -> Option<(String, &str)> {
    let mut found = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        found.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                found.push('"');
                rest = after;
            }
            None => return Some((found, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::fixtures::user;

    #[test]
    fn tokens_lead_to_users() {
        let text = "t1,alice,1\n\nt2,bob,2,\"dev, ops\"\nt3,\"a \"\"b\"\"\",3,dev\r\n,nobody,4\nt1,alice2,5,\n";
        let file = TokenFile::parse(text).unwrap();
        let check = |token: &str, expected: Option<(&str, &str, &[&str])>| {
            let expected = expected.map(|(name, uid, groups)| User { uid: uid.into(), ..user(name, groups) });
            assert_eq!(file.find(token), expected.as_ref(), "{token}");
        };
        check("t1", Some(("alice2", "5", &[])));
        check("t2", Some(("bob", "2", &["dev", "ops"])));
        check("t3", Some(("a \"b\"", "3", &["dev"])));
        check("", None);
        check("t4", None);
    }

    #[test]
    fn broken_lines_are_named() {
        let check = |text: &str, expected: TokenFileError| assert_eq!(TokenFile::parse(text).unwrap_err(), expected);
        check("a,b,c\nt,u\n", TokenFileError::Columns { line: 2, found: 2 });
        check("t,\"u,1\n", TokenFileError::Quote { line: 1 });
        check("t,\"u\"x,1\n", TokenFileError::Quote { line: 1 });
    }
}
