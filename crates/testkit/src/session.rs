//! A terminal session as a test: commands with the output they must have, run by bash with a kubectl on the PATH. Every
//! session is run with the real kubectls of this machine and with our own, against the same expectations.
//!
//! ```text
//! # A comment.
//! $ kubectl apply -f - <<END
//! > kind: ConfigMap
//! > END
//! configmap/a created
//! $ kubectl get configmap missing
//! Error from server (NotFound): configmaps "missing" not found
//! [exit 1]
//! ```
//!
//! Standard output and errors are one text. `...` stands for any characters, a line of its own for any lines. A line that
//! begins with `[old]` or `[new]`, command or output, is there for Debian's kubectl only, or for newer ones, ours among
//! them. `[ours]` is there for our own only, `[real]` for all others: ours speaks as version 1.36, which is newer than
//! the real ones here.
//! `eventually COMMAND...` repeats a command for about ten seconds until it succeeds.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail};

use crate::{Server, kubectl};

const HELPERS: &str = r#"eventually() { for _ in $(seq 60); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; "$@"; }
unset KUBERNETES_MASTER EDITOR KUBE_EDITOR
exec 2>&1
"#;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Age {
    Old,
    New,
    Ours,
}

/// Whom a line is for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Only {
    Old,
    New,
    Ours,
    Real,
}

impl Only {
    fn includes(self, age: Age) -> bool {
        match self {
            Only::Old => age == Age::Old,
            Only::New => age != Age::Old,
            Only::Ours => age == Age::Ours,
            Only::Real => age != Age::Ours,
        }
    }
}

#[derive(Debug)]
struct Step {
    line: usize,
    only: Option<Only>,
    command: String,
    expected: Vec<(Option<Only>, String)>,
}

/// Runs the session once with each kubectl of this machine, each time against a new server.
/// With `UPDATE` set, output that differs under the newer kubectl is written back into the file, to be read as a diff.
pub fn run(file: &Path) -> anyhow::Result<()> {
    run_on(file, || {
        let server = Server::start_api(&[])?;
        server.default_account("default")?;
        Ok(server)
    })
}

/// The same, each time on a new machine with a node that is ready.
pub fn run_on_node(file: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    run_on(file, || {
        let server = Server::start_node(arguments)?;
        server.kubectl().ok(&["wait", "--for=condition=Ready", "node/node-1", "--timeout=30s"]);
        // A node registers with this taint; the session begins once it is gone, whoever is the first to take it.
        let _ = server.kubectl().run(&["taint", "nodes", "node-1", "node.kubernetes.io/not-ready-"]);
        server.default_account("default")?;
        Ok(server)
    })
}

fn run_on(file: &Path, start: impl Fn() -> anyhow::Result<Server>) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let steps = parse(&text)?;
    let programs = kubectl::programs();
    if programs.is_empty() {
        bail!("there is no kubectl on this machine: run `make tools`");
    }
    let update = std::env::var_os("UPDATE").is_some();
    let mut failures = String::new();
    let with_age = |program: PathBuf| (if kubectl::is_debians(&program) { Age::Old } else { Age::New }, program);
    let ours = match std::env::var_os("KUBECTL_BINARY") {
        Some(program) => (Age::Ours, program.into()),
        None => (Age::Ours, crate::server::binary()?),
    };
    for (age, program) in programs.into_iter().map(with_age).chain([ours]) {
        if update && age != Age::New {
            continue;
        }
        let actual = play(&start()?, &steps, &program, age)?;
        if update {
            return Ok(std::fs::write(file, rewritten(&text, &steps, &actual, age))?);
        }
        for (step, actual) in steps.iter().zip(&actual) {
            let Some(actual) = actual else { continue };
            let expected = expected(step, age);
            if !matches(&expected, actual) {
                write!(
                    failures,
                    "\n{}:{} {age:?} {}\n$ {}\n",
                    file.display(),
                    step.line,
                    program.display(),
                    step.command
                )?;
                expected.iter().for_each(|line| _ = writeln!(failures, "  expected: {line}"));
                actual.iter().for_each(|line| _ = writeln!(failures, "  answered: {line}"));
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { bail!("{failures}") }
}

/// The output of every step; none for steps that this kubectl does not take.
fn play(server: &Server, steps: &[Step], program: &Path, age: Age) -> anyhow::Result<Vec<Option<Vec<String>>>> {
    let home = tempfile::Builder::new().prefix("knarr-session-").tempdir()?;
    let programs = home.path().join("bin");
    std::fs::create_dir(&programs)?;
    std::os::unix::fs::symlink(program, programs.join("kubectl"))?;
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut outputs = Vec::new();
    for step in steps {
        if step.only.is_some_and(|only| !only.includes(age)) {
            outputs.push(None);
            continue;
        }
        let output = server
            .beside("timeout")
            .args(["60", "bash", "-c", &format!("{HELPERS}{}", step.command)])
            .current_dir(home.path())
            .env("KUBECONFIG", server.kubeconfig())
            .env("HOME", home.path())
            .env("PATH", &path)
            .env("SERVER", &server.url)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("run {}", step.command))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines: Vec<String> = text.trim_end().lines().map(|line| line.trim_end().to_string()).collect();
        if !output.status.success() {
            lines.push(format!("[exit {}]", output.status.code().unwrap_or(-1)));
        }
        outputs.push(Some(lines));
    }
    Ok(outputs)
}

fn parse(text: &str) -> anyhow::Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let (only, rest) = conditional(line);
        if let Some(command) = rest.strip_prefix("$ ") {
            steps.push(Step { line: number + 1, only, command: command.to_string(), expected: Vec::new() });
            continue;
        }
        if line.starts_with("# ") || (steps.is_empty() && line.trim().is_empty()) {
            continue;
        }
        let Some(step) = steps.last_mut() else { bail!("line {}: output before the first command", number + 1) };
        match line.strip_prefix("> ").or((line == ">").then_some("")) {
            Some(more) if step.expected.is_empty() => {
                step.command.push('\n');
                step.command.push_str(more);
            }
            _ => step.expected.push((only, rest.trim_end().to_string())),
        }
    }
    for step in &mut steps {
        while step.expected.last().is_some_and(|(_, line)| line.is_empty()) {
            step.expected.pop();
        }
    }
    Ok(steps)
}

fn conditional(line: &str) -> (Option<Only>, &str) {
    let marks = [("[old] ", Only::Old), ("[new] ", Only::New), ("[ours] ", Only::Ours), ("[real] ", Only::Real)];
    let found = marks.iter().find_map(|(mark, only)| Some((Some(*only), line.strip_prefix(mark)?)));
    found.unwrap_or((None, line))
}

fn expected(step: &Step, age: Age) -> Vec<&str> {
    let lines = step.expected.iter().filter(|(only, _)| only.is_none_or(|only| only.includes(age)));
    lines.map(|(_, line)| line.as_str()).collect()
}

/// Are these the lines that were expected? `...` stands for any characters, on a line of its own for any lines.
pub fn matches(expected: &[&str], actual: &[String]) -> bool {
    match (expected.split_first(), actual.split_first()) {
        (None, None) => true,
        (Some((pattern, rest)), _) if pattern.trim() == "..." => {
            (0..=actual.len()).any(|skipped| matches(rest, &actual[skipped..]))
        }
        (Some((pattern, rest)), Some((line, more))) => line_matches(pattern, line) && matches(rest, more),
        _ => false,
    }
}

/// Do the pieces between the dots occur in this order, the first at the start and the last at the end?
fn line_matches(pattern: &str, line: &str) -> bool {
    let Some((start, rest)) = pattern.split_once("...") else { return pattern == line };
    let Some(mut line) = line.strip_prefix(start) else { return false };
    let mut pieces: Vec<&str> = rest.split("...").collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = line.find(piece) else { return false };
        line = &line[at + piece.len()..];
    }
    line.ends_with(last)
}

fn rewritten(text: &str, steps: &[Step], actual: &[Option<Vec<String>>], age: Age) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut written = String::new();
    let mut at = 0;
    for (step, actual) in steps.iter().zip(actual) {
        let Some(actual) = actual else { continue };
        if matches(&expected(step, age), actual) {
            continue;
        }
        // Up to and with the command, which may go over several lines; then the new output instead of the old.
        let mut end = step.line;
        end += lines[end..].iter().take_while(|line| line.starts_with("> ") || **line == ">").count();
        lines[at..end].iter().chain(&[]).for_each(|line| _ = writeln!(written, "{line}"));
        actual.iter().for_each(|line| _ = writeln!(written, "{line}"));
        at = end;
        while at < lines.len() && !conditional(lines[at]).1.starts_with("$ ") && !lines[at].starts_with("# ") {
            at += 1;
        }
    }
    lines[at..].iter().for_each(|line| _ = writeln!(written, "{line}"));
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_stand_for_anything() {
        let check = |expected: &[&str], actual: &[&str], answer: bool| {
            let actual: Vec<String> = actual.iter().map(ToString::to_string).collect();
            assert_eq!(matches(expected, &actual), answer, "{expected:?} {actual:?}");
        };
        check(&["a"], &["a"], true);
        check(&["a"], &["a", "b"], false);
        check(&["a...c"], &["abbc"], true);
        check(&["a...c...e"], &["abcde"], true);
        check(&["a...c"], &["abcd"], false);
        check(&["...", "z"], &["a", "b", "z"], true);
        check(&["a", "..."], &["a"], true);
        check(&["a", "...", "b"], &["a", "c"], false);
    }

    #[test]
    fn steps_have_commands_conditions_and_output() {
        let steps = parse("# why\n$ one <<END\n> two\n> END\nout\n\n[new] $ three\n[old] never\n").unwrap();
        assert_eq!(steps[0].command, "one <<END\ntwo\nEND");
        assert_eq!(expected(&steps[0], Age::Old), ["out"]);
        assert_eq!((steps[1].only, steps[1].line), (Some(Only::New), 7));
        assert!(expected(&steps[1], Age::New).is_empty());
        let steps = parse("$ a\n[ours] one\n[real] two\n[new] three\n").unwrap();
        assert_eq!(expected(&steps[0], Age::Ours), ["one", "three"]);
        assert_eq!(expected(&steps[0], Age::New), ["two", "three"]);
        assert!(parse("output\n").is_err());
    }
}
