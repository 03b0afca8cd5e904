//! Secrets on the command line: once read, they are written over, so that the list of processes shows them to nobody who looks
//! later. Files and variables (`--token-file`, `KNARR_TOKEN`) never show them at all.

use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;

use anyhow::Context;

/// The flags whose values are secrets, and the short one.
const SECRETS: [&str; 2] = ["--token", "--agent-token"];
const SHORT: &str = "-t";
const COVER: u8 = b'*';

/// Covers the secrets among this process's arguments. Whoever needs them has copied them before.
pub fn secrets() {
    if let Err(error) = cover() {
        tracing::warn!(
            error = format!("{error:#}"),
            "cannot hide the token from the process list; prefer --token-file"
        );
    }
}

fn cover() -> anyhow::Result<()> {
    let line = std::fs::read("/proc/self/cmdline").context("read /proc/self/cmdline")?;
    let found = places(&line);
    if found.is_empty() {
        return Ok(());
    }
    let stat = std::fs::read_to_string("/proc/self/stat").context("read /proc/self/stat")?;
    let start = arguments_start(&stat).context("find process arguments in memory")?;
    // The process's own memory as a file: no pointer is made of a number.
    let mut memory = std::fs::OpenOptions::new().write(true).open("/proc/self/mem").context("open /proc/self/mem")?;
    for place in found {
        memory.seek(SeekFrom::Start(start + place.start as u64)).context("find token in memory")?;
        memory.write_all(&vec![COVER; place.len()]).context("overwrite token")?;
    }
    Ok(())
}

/// The 48th field, counted from behind the name, which may hold anything.
fn arguments_start(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(48 - 3)?.parse().ok()
}

/// Where secrets stand in a command line whose arguments each end with a zero.
fn places(line: &[u8]) -> Vec<Range<usize>> {
    let (mut found, mut at, mut is_value) = (Vec::new(), 0, false);
    for argument in line.split(|byte| *byte == 0) {
        let end = at + argument.len();
        let with_value = SECRETS
            .iter()
            .find(|flag| argument.strip_prefix(flag.as_bytes()).is_some_and(|rest| rest.starts_with(b"=")));
        match with_value {
            _ if is_value => found.push(at..end),
            Some(flag) => found.push(at + flag.len() + 1..end),
            None if argument.starts_with(SHORT.as_bytes()) && argument.len() > SHORT.len() => {
                found.push(at + SHORT.len()..end)
            }
            None => {}
        }
        is_value =
            !is_value && (SECRETS.iter().any(|flag| argument == flag.as_bytes()) || argument == SHORT.as_bytes());
        at = end + 1;
    }
    found.retain(|place| !place.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_in_every_form() {
        let check = |line: &str, expected: &[&str]| {
            let bytes = format!("{}\0", line.replace(' ', "\0")).into_bytes();
            let found: Vec<&str> =
                places(&bytes).into_iter().map(|place| std::str::from_utf8(&bytes[place]).unwrap()).collect();
            assert_eq!(found, expected, "{line}");
        };
        check("knarr server --token secret --agent-token=other", &["secret", "other"]);
        check("knarr agent -t secret --server x", &["secret"]);
        check("knarr agent -tsecret", &["secret"]);
        check("knarr server --token --token --data-dir /x", &["--token"]);
        check("knarr server --token-file /x --tls-san a", &[]);
        check("knarr token create --ttl 1h", &[]);
        check("knarr server --token=", &[]);
    }

    #[test]
    fn the_start_of_the_arguments_is_read() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(arguments_start(&stat).unwrap() > 0);
    }
}
