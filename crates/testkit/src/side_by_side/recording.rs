//! What the real kubectl printed, kept in the tree, so that ours is measured on machines without a real one.
//!
//! ```text
//! $ kubectl get configmaps
//! | NAME   DATA   AGE
//! | a      1      AGE
//! ! Warning: something on standard error
//! = 1
//! ```
//!
//! Lines of standard output begin with `|` and those of standard error with `!`. A last line that does not end in a newline
//! begins with `:` or `?` instead. `=` gives the exit code where it is not 0. Both streams are already free of what two
//! runs cannot share.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::{Answer, Case};

const STDOUT: (char, char) = ('|', ':');
const STDERR: (char, char) = ('!', '?');

/// Where the answers of that theme are kept.
pub(crate) fn file_of(folder: &Path, theme: &str) -> PathBuf {
    folder.join("recorded").join(format!("{theme}.txt"))
}

/// The recorded answer of every case. The recording must be one of these very cases.
pub fn read(folder: &Path, theme: &str, cases: &[Case]) -> anyhow::Result<Vec<Answer>> {
    let file = file_of(folder, theme);
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let recorded = parse(&text).with_context(|| format!("parse {}", file.display()))?;
    for (at, case) in cases.iter().enumerate() {
        if recorded.get(at).is_none_or(|(command, _)| *command != case.command) {
            bail!("{} has no answer to this command; record it ({})\n$ {}", file.display(), super::HOW, case.command);
        }
    }
    if recorded.len() > cases.len() {
        bail!("{} answers commands that are gone; record it anew ({})", file.display(), super::HOW);
    }
    Ok(recorded.into_iter().map(|(_, answer)| answer).collect())
}

pub fn write(folder: &Path, theme: &str, cases: &[Case], answers: &[Answer]) -> anyhow::Result<()> {
    let mut text = String::from("# What the real kubectl printed. Written by the test itself, not by hand.\n");
    for (case, answer) in cases.iter().zip(answers) {
        text += &format!("$ {}\n", case.command.replace('\n', "\n> "));
        text += &shown(&answer.stdout, STDOUT);
        text += &shown(&answer.stderr, STDERR);
        if answer.code != 0 {
            text += &format!("= {}\n", answer.code);
        }
    }
    let file = file_of(folder, theme);
    std::fs::create_dir_all(file.parent().context("a recording has a folder")?)?;
    std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))
}

fn shown(text: &str, (whole, open): (char, char)) -> String {
    let mark = |line: &str| if line.ends_with('\n') { whole } else { open };
    text.split_inclusive('\n')
        .map(|line| match line.trim_end_matches('\n') {
            "" => format!("{}\n", mark(line)),
            content => format!("{} {content}\n", mark(line)),
        })
        .collect()
}

fn parse(text: &str) -> anyhow::Result<Vec<(String, Answer)>> {
    let mut found: Vec<(String, Answer)> = Vec::new();
    // A carriage return is a part of the line, so `lines` would lose it.
    for line in text.split_terminator('\n').filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        if let Some(command) = line.strip_prefix("$ ") {
            found.push((command.to_string(), Answer::default()));
            continue;
        }
        let (command, answer) = found.last_mut().context("the text begins in the middle of an answer")?;
        let mut letters = line.chars();
        let mark = letters.next().unwrap_or_default();
        let rest = letters.as_str();
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        match mark {
            '>' => *command += &format!("\n{rest}"),
            '|' => answer.stdout += &format!("{rest}\n"),
            ':' => answer.stdout += rest,
            '!' => answer.stderr += &format!("{rest}\n"),
            '?' => answer.stderr += rest,
            '=' => answer.code = rest.parse().with_context(|| format!("exit code in {line}"))?,
            _ => bail!("neither a command nor an answer: {line}"),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let case = |command: &str| Case { line: 1, command: command.into() };
        let cases = [case("one <<END\n\ntwo\nEND"), case("three")];
        let answers = [
            Answer { stdout: "a\n\n  b\r\nc".into(), stderr: "# d\n$ e\n".into(), code: 3 },
            Answer { stdout: String::new(), stderr: "\nlast".into(), code: 0 },
        ];
        write(folder.path(), "theme", &cases, &answers).unwrap();
        assert_eq!(read(folder.path(), "theme", &cases).unwrap(), answers);
        assert!(read(folder.path(), "theme", &cases[..1]).is_err(), "an answer too many");
        assert!(read(folder.path(), "theme", &[case("other"), case("three")]).is_err(), "another command");
    }
}
