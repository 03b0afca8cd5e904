//! A very small shell: `;` `&&` `||`, `while`, `if`, `for`, redirections, variables. No pipes, no functions.

mod parse;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use crate::error::Result;
use crate::{Outcome, files, find};
use parse::{Part, Redirection, Simple, Statement, Word};

pub fn sh(arguments: &[String]) -> Outcome {
    let mut arguments = arguments.iter();
    let mut script = None;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            flags if flags.starts_with('-') && flags.ends_with('c') => {
                script = Some(arguments.next().ok_or("-c needs a script")?.clone());
                break;
            }
            flags if flags.starts_with('-') => {}
            path => {
                script = Some(std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?);
                break;
            }
        }
    }
    let Some(script) = script else { return interactive() };
    let statements = parse::parse(&script)?;
    let mut shell = Shell::default();
    // As other shells do: the last command takes the shell's place, and so hears the signals that are meant for it.
    let (before, last) = match statements.split_last() {
        Some((last @ Statement::Simple(_), before)) => (before, Some(last)),
        _ => (statements.as_slice(), None),
    };
    if let Flow::Exit(code) = shell.run(before) {
        return Ok(code);
    }
    shell.last = true;
    match last.map_or(Flow::Next, |last| shell.step(last)) {
        Flow::Next => Ok(shell.code),
        Flow::Exit(code) => Ok(code),
    }
}

/// Lines from the standard input, one after the other.
fn interactive() -> Outcome {
    let mut shell = Shell::default();
    let mut pending = String::new();
    for line in std::io::stdin().lines() {
        pending.push_str(&line?);
        pending.push('\n');
        // What does not parse yet may be a loop that goes on in the next line.
        let Ok(statements) = parse::parse(&pending) else { continue };
        pending.clear();
        if let Flow::Exit(code) = shell.run(&statements) {
            return Ok(code);
        }
    }
    parse::parse(&pending)?;
    Ok(shell.code)
}

#[derive(Default)]
struct Shell {
    code: i32,
    /// Nothing comes after this command.
    last: bool,
    /// Set here and not exported.
    variables: HashMap<String, String>,
    exported: HashMap<String, String>,
}

enum Flow {
    Next,
    Exit(i32),
}

impl Shell {
    fn run(&mut self, statements: &[Statement]) -> Flow {
        for statement in statements {
            if let Flow::Exit(code) = self.step(statement) {
                return Flow::Exit(code);
            }
        }
        Flow::Next
    }

    fn step(&mut self, statement: &Statement) -> Flow {
        match statement {
            Statement::Simple(simple) => return self.simple(simple),
            Statement::And(left, right) | Statement::Or(left, right) => {
                if let Flow::Exit(code) = self.step(left) {
                    return Flow::Exit(code);
                }
                if (self.code == 0) == matches!(statement, Statement::And(..)) {
                    return self.step(right);
                }
            }
            Statement::While { condition, until, body } => loop {
                if let Flow::Exit(code) = self.run(condition) {
                    return Flow::Exit(code);
                }
                if (self.code == 0) == *until {
                    self.code = 0;
                    break;
                }
                if let Flow::Exit(code) = self.run(body) {
                    return Flow::Exit(code);
                }
            },
            Statement::If { condition, then, otherwise } => {
                if let Flow::Exit(code) = self.run(condition) {
                    return Flow::Exit(code);
                }
                let branch = if self.code == 0 { then } else { otherwise };
                self.code = 0;
                return self.run(branch);
            }
            Statement::For { name, words, body } => {
                for value in self.expand_all(words) {
                    self.variables.insert(name.clone(), value);
                    if let Flow::Exit(code) = self.run(body) {
                        return Flow::Exit(code);
                    }
                }
            }
        }
        Flow::Next
    }

    fn simple(&mut self, simple: &Simple) -> Flow {
        let assigned: Vec<(String, String)> =
            simple.assignments.iter().map(|(name, value)| (name.clone(), self.expand(value))).collect();
        let words = self.expand_all(&simple.words);
        let Some((name, arguments)) = words.split_first() else {
            // An assignment to an exported variable stays exported.
            for (name, value) in assigned {
                if std::env::var_os(&name).is_some() || self.exported.contains_key(&name) {
                    self.exported.insert(name, value)
                } else {
                    self.variables.insert(name, value)
                };
            }
            self.code = 0;
            return Flow::Next;
        };
        let outcome = match name.as_str() {
            "exit" => {
                let code = arguments.first().map_or(Some(self.code), |text| text.parse().ok());
                return Flow::Exit(code.unwrap_or(2));
            }
            ":" => Ok(0),
            "cd" => {
                let target = arguments.first().map_or("/", String::as_str);
                std::env::set_current_dir(target).map(|()| 0).map_err(|error| format!("cd: {target}: {error}").into())
            }
            "export" => {
                for argument in arguments {
                    let (name, value) = match argument.split_once('=') {
                        Some((name, value)) => (name, value.to_owned()),
                        None => (argument.as_str(), self.variables.get(argument).cloned().unwrap_or_default()),
                    };
                    self.exported.insert(name.to_owned(), value);
                }
                Ok(0)
            }
            "set" | "umask" | "wait" => Ok(0),
            "echo" => self.echo(arguments, &simple.redirections),
            _ => self.start(name, arguments, &assigned, &simple.redirections),
        };
        self.code = outcome.unwrap_or_else(|error| {
            eprintln!("sh: {error}");
            1
        });
        Flow::Next
    }

    /// Without a process of its own, so that a loop that writes does not need one for each line.
    fn echo(&mut self, arguments: &[String], redirections: &[Redirection]) -> Outcome {
        let streams = self.open(redirections)?;
        let text = files::echoed(arguments);
        let mut to: Box<dyn Write> = match streams.output {
            Some(file) => Box::new(file),
            None => Box::new(std::io::stdout()),
        };
        to.write_all(text.as_bytes()).and_then(|()| to.flush()).map_err(|error| format!("echo: {error}"))?;
        Ok(0)
    }

    fn start(
        &mut self,
        name: &str,
        arguments: &[String],
        assigned: &[(String, String)],
        redirections: &[Redirection],
    ) -> Outcome {
        let streams = self.open(redirections)?;
        let (name, arguments, replace) = match (name, arguments.split_first()) {
            ("exec", Some((name, arguments))) => (name.as_str(), arguments, true),
            ("exec", None) => return Ok(0),
            _ => (name, arguments, self.last),
        };
        let mut command = match find(name) {
            Some(applet) => {
                let mut command = Command::new("/proc/self/exe");
                command.arg0(applet.0);
                command
            }
            None => Command::new(name),
        };
        command.args(arguments).envs(&self.exported).envs(assigned.iter().map(|(name, value)| (name, value)));
        streams.input.map(|file| command.stdin(Stdio::from(file)));
        streams.output.map(|file| command.stdout(Stdio::from(file)));
        streams.errors.map(|file| command.stderr(Stdio::from(file)));
        let status = if replace { Err(command.exec()) } else { command.status() };
        match status {
            Ok(status) => Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))),
            Err(error) => {
                eprintln!("sh: {name}: {error}");
                Ok(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
            }
        }
    }

    fn open(&mut self, redirections: &[Redirection]) -> Result<Streams> {
        let mut streams = Streams::default();
        for redirection in redirections {
            let target = self.expand(&redirection.target);
            let fail = |error: std::io::Error| format!("{target}: {error}");
            let file = match (target.as_str(), redirection.copies) {
                ("1", true) => streams.output.as_ref().map_or_else(|| inherited(1), File::try_clone),
                ("2", true) => streams.errors.as_ref().map_or_else(|| inherited(2), File::try_clone),
                (_, true) => return Err(format!("no stream {target:?}").into()),
                _ if redirection.stream == 0 => File::open(&target),
                _ if redirection.append => OpenOptions::new().create(true).append(true).open(&target),
                _ => File::create(&target),
            };
            let file = Some(file.map_err(fail)?);
            match redirection.stream {
                0 => streams.input = file,
                1 => streams.output = file,
                _ => streams.errors = file,
            }
        }
        Ok(streams)
    }

    fn expand_all(&mut self, words: &[Word]) -> Vec<String> {
        let mut all = Vec::new();
        for word in words {
            let text = self.expand(word);
            // What a variable holds outside of quotes is split into words.
            match word.parts.as_slice() {
                [Part::Variable { quoted: false, .. }] => all.extend(text.split_whitespace().map(str::to_owned)),
                _ => all.push(text),
            }
        }
        all
    }

    fn expand(&mut self, word: &Word) -> String {
        let mut text = String::new();
        for part in &word.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Variable { name, .. } => match name.as_str() {
                    "?" => text.push_str(&self.code.to_string()),
                    "$" => text.push_str(&std::process::id().to_string()),
                    name => text.push_str(&self.variable(name)),
                },
                Part::Command(script) => {
                    let output = Command::new("/proc/self/exe")
                        .arg0("sh")
                        .args(["-c", script])
                        .envs(&self.variables)
                        .envs(&self.exported)
                        .stderr(Stdio::inherit())
                        .output();
                    let output = output.map(|output| output.stdout).unwrap_or_default();
                    text.push_str(String::from_utf8_lossy(&output).trim_end_matches('\n'));
                }
            }
        }
        text
    }

    fn variable(&self, name: &str) -> String {
        let own = self.variables.get(name).or_else(|| self.exported.get(name)).cloned();
        own.or_else(|| std::env::var(name).ok()).unwrap_or_default()
    }
}

#[derive(Default)]
struct Streams {
    input: Option<File>,
    output: Option<File>,
    errors: Option<File>,
}

/// A second handle on one of the shell's own streams.
fn inherited(stream: u8) -> std::io::Result<File> {
    use std::os::fd::AsFd;
    let descriptor = match stream {
        1 => std::io::stdout().as_fd().try_clone_to_owned(),
        _ => std::io::stderr().as_fd().try_clone_to_owned(),
    };
    descriptor.map(File::from)
}
