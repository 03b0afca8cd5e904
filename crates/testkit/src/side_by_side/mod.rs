//! The same commands with the real kubectl and with ours. What the real one prints on standard output and standard error,
//! and its exit code, is what ours must print. Nothing is written by hand but the commands.
//!
//! What the real one prints stands in the recordings beside the commands. Where `KNARR_REAL_KUBECTL` names a program, that
//! one is played instead, at the same time on the same cluster, each side in a namespace and a folder of its own; with
//! `UPDATE=1` its answers become the recording.
//!
//! ```text
//! # A comment.
//! $ kubectl apply -f - <<END
//! > kind: ConfigMap
//! > END
//! $ kubectl get configmaps $NS
//! ```
//!
//! `$NS` is the namespace, which also makes names of cluster-scoped objects differ. Only what two copies of an object
//! cannot share is taken out before comparing: uids, times, ages, revisions, addresses, generated names.
//! A difference that is meant stands in `differences.txt` beside the commands, with its reason; it must exist.

mod recording;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;

use anyhow::{Context, bail};
use regex::{Captures, Regex};

use crate::Server;

/// How a recording is made.
const HOW: &str = "UPDATE=1 KNARR_REAL_KUBECTL=/path/to/kubectl cargo test -p tests --test side_by_side";

/// What commands use, and the environment that the recordings were made in.
const HELPERS: &str = r#"eventually() { for _ in $(seq 100); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; "$@"; }
unset KUBERNETES_MASTER EDITOR KUBE_EDITOR VISUAL
export TERM=xterm PYTHONUNBUFFERED=1
"#;

/// Every service gets an address of the same width, so that tables have the same columns.
pub const SERVICE_RANGE: &str = "--service-cidr=10.96.0.128/25";

#[derive(Debug, PartialEq)]
struct Case {
    line: usize,
    command: String,
}

/// A difference that is meant: in one command, or in a text that occurs everywhere.
#[derive(Debug)]
enum Meant {
    Command { part: String, met: bool },
    Text { from: Regex, to: String },
}

struct Side<'a> {
    server: &'a Server,
    program: PathBuf,
    namespace: String,
    home: tempfile::TempDir,
}

#[derive(Debug, Default, PartialEq)]
struct Answer {
    stdout: String,
    stderr: String,
    code: i32,
}

/// Plays `theme` of that folder on the server, and tells of every case in which ours is another answer.
pub fn run(server: &Server, folder: &Path, theme: &str) -> anyhow::Result<()> {
    let file = folder.join(format!("{theme}.txt"));
    let cases = parse(&std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?)?;
    let mut meant = meant(&std::fs::read_to_string(folder.join("differences.txt"))?, theme)?;
    let ours = Side::new(server, &our_kubectl()?, format!("{}-o", theme.replace('_', "-")))?;
    let (expected, found) = match std::env::var_os("KNARR_REAL_KUBECTL") {
        None => (recorded(folder, theme, &cases)?, ours.play(&cases)?),
        Some(program) => play_both(&ours, &PathBuf::from(program), folder, theme, &cases)?,
    };
    let mut failures = String::new();
    for ((case, expected), found) in cases.iter().zip(expected).zip(found) {
        let (expected, found) = (expected.without(&meant), found.without(&meant));
        if expected == found {
            continue;
        }
        let of_command = meant.iter_mut().find_map(|meant| match meant {
            Meant::Command { part, met } if case.command.contains(&*part) => Some(met),
            _ => None,
        });
        match of_command {
            Some(met) => *met = true,
            None => failures += &told(&file, case, &expected, &found),
        }
    }
    for meant in &meant {
        if let Meant::Command { part, met: false } = meant {
            failures += &format!("\ndifferences.txt says of {theme} that `{part}` differs, but it does not\n");
        }
    }
    if failures.is_empty() { Ok(()) } else { bail!("{failures}") }
}

fn our_kubectl() -> anyhow::Result<PathBuf> {
    match std::env::var_os("KUBECTL_BINARY") {
        Some(program) => Ok(program.into()),
        None => crate::server::binary(),
    }
}

/// The recorded answers, also without what they were recorded with before there was a rule for it.
fn recorded(folder: &Path, theme: &str, cases: &[Case]) -> anyhow::Result<Vec<Answer>> {
    let answers = recording::read(folder, theme, cases)?.into_iter();
    let again = |answer: Answer| Answer { stdout: general(&answer.stdout), stderr: general(&answer.stderr), ..answer };
    Ok(answers.map(again).collect())
}

/// The answers of the real one, which are recorded if that is asked for, and ours.
fn play_both(
    ours: &Side,
    real: &Path,
    folder: &Path,
    theme: &str,
    cases: &[Case],
) -> anyhow::Result<(Vec<Answer>, Vec<Answer>)> {
    let real = Side::new(ours.server, real, format!("{}-r", theme.replace('_', "-")))?;
    let (expected, found) = std::thread::scope(|scope| {
        let expected = scope.spawn(|| real.play(cases));
        let found = ours.play(cases);
        (expected.join().expect("the real side does not panic"), found)
    });
    let expected = expected?;
    if std::env::var_os("UPDATE").is_some() {
        recording::write(folder, theme, cases, &expected)?;
    }
    Ok((expected, found?))
}

fn parse(text: &str) -> anyhow::Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            cases.push(Case { line: number + 1, command: command.to_string() });
        } else if let Some(more) = line.strip_prefix("> ").or((line == ">").then_some("")) {
            let case = cases.last_mut().context("the text begins in the middle of a command")?;
            case.command.push('\n');
            case.command.push_str(more);
        } else if !line.is_empty() && !line.starts_with("# ") {
            bail!("line {} is neither a command nor a comment: {line}", number + 1);
        }
    }
    Ok(cases)
}

/// Lines of `theme | part of a command | reason` and of `text | expression | what it becomes | reason`.
fn meant(text: &str, theme: &str) -> anyhow::Result<Vec<Meant>> {
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
        if parts.last().is_none_or(|reason| reason.is_empty()) {
            bail!("why does it differ? {line}");
        }
        match parts[..] {
            ["text", from, to, _] => {
                found.push(Meant::Text { from: Regex::new(from)?, to: to.replace("\\n", "\n") });
            }
            [of, part, _] if of == theme => found.push(Meant::Command { part: part.into(), met: false }),
            [_, _, _] => {}
            _ => bail!("neither a command nor a text that differs: {line}"),
        }
    }
    Ok(found)
}

impl Answer {
    fn without(mut self, meant: &[Meant]) -> Answer {
        for meant in meant {
            if let Meant::Text { from, to } = meant {
                self.stdout = from.replace_all(&self.stdout, to.as_str()).into_owned();
                self.stderr = from.replace_all(&self.stderr, to.as_str()).into_owned();
            }
        }
        self
    }
}

impl<'a> Side<'a> {
    fn new(server: &'a Server, program: &Path, namespace: String) -> anyhow::Result<Side<'a>> {
        let home = tempfile::Builder::new().prefix("knarr-side-").tempdir()?;
        let programs = home.path().join("bin");
        std::fs::create_dir(&programs)?;
        std::os::unix::fs::symlink(program, programs.join("kubectl"))?;
        let config = std::fs::read_to_string(server.kubeconfig())?;
        std::fs::write(home.path().join("admin.kubeconfig"), config)?;
        let side = Side { server, program: programs, namespace, home };
        let own = server.kubectl_of(&side.program.join("kubectl"));
        own.ok(&["create", "namespace", &side.namespace]);
        server.default_account(&side.namespace)?;
        let file = side.home.path().join("admin.kubeconfig");
        let namespace = format!("--namespace={}", side.namespace);
        let file = file.to_str().context("a path in UTF-8")?;
        own.ok(&["--kubeconfig", file, "config", "set-context", "--current", &namespace]);
        Ok(side)
    }

    fn play(&self, cases: &[Case]) -> anyhow::Result<Vec<Answer>> {
        cases.iter().map(|case| self.answer(case)).collect()
    }

    fn answer(&self, case: &Case) -> anyhow::Result<Answer> {
        let path = format!("{}:{}", self.program.display(), std::env::var("PATH").unwrap_or_default());
        let output = self
            .server
            .beside("timeout")
            .args(["60", "bash", "-c", &format!("{HELPERS}{}", case.command)])
            .current_dir(self.home.path())
            .env("KUBECONFIG", self.home.path().join("admin.kubeconfig"))
            .env("HOME", self.home.path())
            .env("TMPDIR", self.home.path())
            .env("PATH", &path)
            .env("SERVER", &self.server.url)
            .env("NS", &self.namespace)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("run {}", case.command))?;
        let text = |bytes: &[u8]| self.without_own(&String::from_utf8_lossy(bytes));
        Ok(Answer {
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            code: output.status.code().unwrap_or(-1),
        })
    }

    /// The text without what only this side can have in it.
    fn without_own(&self, text: &str) -> String {
        let home = self.home.path().to_string_lossy().into_owned();
        let text = text.replace(&home, "HOME").replace(&self.namespace, "NAMESPACE");
        general(&text)
    }
}

static RULES: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let rules: &[(&str, &str)] = &[
        (r"\b[EWI]?[0-9]{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", "LOG "),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "TIME"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} UTC", "TIME"),
        (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
        (r#"(?i)(resource ?version"?:\s*"?)\d+"#, "${1}REVISION"),
        (r"\beyJ[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
        // Every cluster has its own authority.
        (r"X509SHA256=[0-9a-f]{64}", "X509SHA256=HASH"),
        (r"(?s)-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", "CERTIFICATE"),
        (r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-XXXXX"),
        (r"\b10\.96\.0\.\d{3}\b", "10.96.0.XXX"),
        (r"https://127\.0\.0\.1:\d{4,5}\b", "https://SERVER"),
        (r"\b3[0-2]\d{3}\b", "NPORT"),
    ];
    rules.iter().map(|(rule, text)| (Regex::new(rule).expect("the rule is well formed"), *text)).collect()
});

/// Ages keep their width, or every column behind them would move.
static AGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(<unknown>|\b(\d+d)?(\d+h)?(\d+m)?\d+[smhd])( ago)?( +|\n|$)").expect("well formed"));

fn general(text: &str) -> String {
    let text = RULES.iter().fold(text.to_string(), |text, (rule, with)| rule.replace_all(&text, *with).into_owned());
    let age = |found: &Captures| match &found[0] {
        line if line.ends_with(' ') => format!("{:width$}", "AGE", width = line.len()),
        line if line.ends_with('\n') => "AGE\n".into(),
        _ => "AGE".into(),
    };
    let text = AGE.replace_all(&text, age);
    // A column of ages is as wide as the oldest, which is a matter of how fast this machine is.
    let text = AGE_COLUMN.replace_all(&text, "AGE   ");
    EVENT.replace_all(&text, |line: &Captures| SPACES.replace_all(&line[0], "  ").into_owned()).into_owned()
}

static AGE_COLUMN: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bAGE {2,}").expect("well formed"));
/// Lines of tables that `describe` makes of events, and the heads of its other tables.
static EVENT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^  (Type|----|Normal|Warning) .*$").expect("well formed"));
static SPACES: LazyLock<Regex> = LazyLock::new(|| Regex::new(r" {2,}").expect("well formed"));

fn told(file: &Path, case: &Case, expected: &Answer, found: &Answer) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let mut text = format!("\n{name}:{}\n$ {}\n", case.line, case.command);
    for (stream, expected, found) in
        [("stdout", &expected.stdout, &found.stdout), ("stderr", &expected.stderr, &found.stderr)]
    {
        if expected != found {
            text += &format!("  {stream}:\n{}", changes(expected, found));
        }
    }
    if expected.code != found.code {
        text += &format!("  exit code: real {}, ours {}\n", expected.code, found.code);
    }
    text
}

/// Lines that only one of the two has, around what both have.
fn changes(expected: &str, found: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (expected.split('\n').collect(), found.split('\n').collect());
    let mut lengths = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            lengths[i][j] =
                if a[i] == b[j] { lengths[i + 1][j + 1] + 1 } else { lengths[i + 1][j].max(lengths[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut text) = (0, 0, String::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            (i, j) = (i + 1, j + 1);
        } else if i < a.len() && (j == b.len() || lengths[i + 1][j] >= lengths[i][j + 1]) {
            text += &format!("    real: {:?}\n", a[i]);
            i += 1;
        } else {
            text += &format!("    ours: {:?}\n", b[j]);
            j += 1;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_be_shared_is_taken_out() {
        let same = |one: &str, other: &str| assert_eq!(general(one), general(other));
        same("a   5s    x", "a   10s   x");
        same("a   5s\n", "a   110s\n");
        same("resourceVersion: \"12\"", "resourceVersion: \"13\"");
        same("web-bcdfg", "web-zzzzz");
        same("at: 2026-01-01T00:00:00Z", "at: 2027-01-01T00:10:00Z");
        same("NAME   AGE   X\na      5s    x", "NAME   AGE     X\na      2m10s   x");
        same("  Normal  A  5s    from  b", "  Normal  A  2m10s  from  b");
        assert_ne!(general("a  5s    x"), general("a   10s   x"));
        assert_ne!(general("replicas: 5"), general("replicas: 10"));
    }

    #[test]
    fn a_theme_has_commands_and_meant_differences() {
        let cases = parse("# why\n$ one <<END\n> two\n> END\n\n$ three\n").unwrap();
        assert_eq!(cases[0].command, "one <<END\ntwo\nEND");
        assert_eq!((cases[1].line, cases.len()), (6, 2));
        assert!(parse("output\n").is_err());
        let known = meant("# x\nget | version | newer\nset | x | y\ntext | a+ | b | c\n", "get").unwrap();
        assert!(matches!(&known[..], [Meant::Command { .. }, Meant::Text { .. }]), "{known:?}");
        let answer = |stdout: &str| Answer { stdout: stdout.into(), stderr: String::new(), code: 0 };
        assert_eq!(answer("aaac").without(&known), answer("bc"));
        assert!(meant("get | version\n", "get").is_err());
        assert!(meant("get | version | \n", "get").is_err());
    }

    #[test]
    fn changed_lines_are_told() {
        assert_eq!(changes("a\nb\nc", "a\nx\nc"), "    real: \"b\"\n    ours: \"x\"\n");
    }
}
