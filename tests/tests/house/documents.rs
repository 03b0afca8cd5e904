//! What a document names is there: paths, links, commands, flags, and targets of make. Decisions are history, and may name
//! what is gone; their links work nevertheless.

use std::collections::BTreeSet;
use std::process::Command;

use super::sources::{below, read, root};

/// Files of users, and what a build makes.
const NOT_IN_THE_TREE: [&str; 3] = ["NAME.yaml", "policy.yaml", "knarr.cdx.json"];
/// Flags of cargo and of the benches, which documents name as well.
const OTHER_FLAGS: [&str; 3] = ["--ignored", "--pods", "--test"];
/// What follows the program's name in a sentence of its own output, or of a picture; and the command of an example.
const OTHER_WORDS: [&str; 3] = ["is", "knows", "count"];

fn pages() -> Vec<String> {
    let docs = below("docs").into_iter().filter(|path| path.ends_with(".md") && !path.starts_with("docs/decisions/"));
    ["README.md".to_owned(), "CONTRIBUTING.md".to_owned()].into_iter().chain(docs).collect()
}

/// What stands between backquotes, in lines and in blocks.
fn code(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (place, part) in page.split("```").enumerate() {
        match place % 2 {
            1 => found.extend(part.lines()),
            _ => found.extend(part.lines().flat_map(|line| line.split('`').skip(1).step_by(2))),
        }
    }
    found
}

#[test]
fn every_path_is_there() {
    let tree: Vec<String> = ["crates", "tests", "benches", "docs", "scripts", ".config", ".github"]
        .iter()
        .flat_map(|folder| below(folder))
        .collect();
    // Documents leave `src` out where everybody knows it.
    let short: Vec<String> = tree.iter().map(|path| path.replace("/src/", "/")).collect();
    let ends_so = |word: &str| {
        let end = format!("/{}", word.trim_end_matches('/'));
        tree.iter().chain(&short).any(|path| path.ends_with(&end))
    };
    let mut missing = Vec::new();
    for page in pages() {
        for word in code(&read(&page)).into_iter().filter(|word| is_path(word)) {
            if !root().join(word).exists() && !ends_so(word) && !NOT_IN_THE_TREE.contains(&word) {
                missing.push(format!("{page}: {word}"));
            }
        }
    }
    assert!(missing.is_empty(), "documents name what is not there:\n{}", missing.join("\n"));
}

fn is_path(word: &str) -> bool {
    const ENDINGS: [&str; 8] = [".rs", ".md", ".py", ".sh", ".toml", ".yaml", ".txt", ".json"];
    const FOLDERS: [&str; 5] = ["crates/", "tests/", "docs/", "scripts/", "benches/"];
    let plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte));
    let here = ENDINGS.iter().any(|end| word.ends_with(end)) || FOLDERS.iter().any(|folder| word.starts_with(folder));
    plain && here && !word.starts_with(['/', '.'])
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in pages().into_iter().chain(below("docs/decisions").into_iter().filter(|path| path.ends_with(".md"))) {
        let folder = root().join(&page).parent().expect("a folder").to_owned();
        let text = read(&page);
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
        let inside = targets.filter(|target| !target.is_empty() && !target.contains("://"));
        broken.extend(inside.filter(|target| !folder.join(target).exists()).map(|target| format!("{page}: {target}")));
    }
    assert!(broken.is_empty(), "links lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn every_command_and_flag_is_there() {
    let mut known = Known::default();
    known.learn(&[]);
    known.learn_kubectl();
    let targets = read("Makefile");
    let mut missing = Vec::new();
    for page in pages() {
        for line in code(&read(&page)) {
            let words: Vec<&str> =
                line.split(|sign: char| !(sign.is_ascii_alphanumeric() || "-_./=".contains(sign))).collect();
            for pair in words.windows(2) {
                let is_word =
                    pair[1].bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && pair[1].len() > 1;
                let there = match pair[0] {
                    _ if !is_word || pair[1].starts_with('-') || OTHER_WORDS.contains(&pair[1]) => true,
                    "knarr" => known.commands.contains(pair[1]),
                    "kubectl" => known.kubectl.contains(pair[1]),
                    "make" => targets.contains(&format!("\n{}:", pair[1])),
                    _ => true,
                };
                if !there {
                    missing.push(format!("{page}: {} {}", pair[0], pair[1]));
                }
            }
            let flags = words.iter().filter(|word| is_flag(word)).map(|word| word.split('=').next().unwrap_or(word));
            let unknown = flags.filter(|flag| !known.flags.contains(*flag) && !OTHER_FLAGS.contains(flag));
            missing.extend(unknown.map(|flag| format!("{page}: {flag}")));
        }
    }
    assert!(missing.is_empty(), "documents name what is not there:\n{}", missing.join("\n"));
}

fn is_flag(word: &str) -> bool {
    word.strip_prefix("--").is_some_and(|name| name.starts_with(|sign: char| sign.is_ascii_lowercase()))
}

/// What the program itself says that there is.
#[derive(Default)]
struct Known {
    /// Without what is below them, such as `create` of `token`.
    commands: BTreeSet<String>,
    kubectl: BTreeSet<String>,
    flags: BTreeSet<String>,
}

impl Known {
    fn learn(&mut self, command: &[&str]) {
        let text = self.help(command);
        let own = names_under(&text, |line| line == "Commands:");
        for name in own.iter().filter(|name| *name != "help" && *name != "kubectl") {
            self.learn(&[command, &[name.as_str()]].concat());
        }
        if command.is_empty() {
            self.commands.extend(own);
        }
    }

    fn learn_kubectl(&mut self) {
        let text = self.help(&["kubectl"]);
        self.help(&["kubectl", "options"]);
        // Upstream shows no help of these there.
        self.kubectl.extend(["options".to_owned(), "alpha".to_owned()]);
        for name in names_under(&text, |line| line.ends_with("Commands:") || line.contains("Commands (")) {
            let text = self.help(&["kubectl", &name]);
            for below in names_under(&text, |line| line == "Available Commands:") {
                let text = self.help(&["kubectl", &name, &below]);
                for last in names_under(&text, |line| line == "Available Commands:") {
                    self.help(&["kubectl", &name, &below, &last]);
                }
            }
            self.kubectl.insert(name);
        }
    }

    /// What it says, having taken note of the flags in it.
    fn help(&mut self, command: &[&str]) -> String {
        let program = testkit::server::binary().expect("the program");
        let asked = Command::new(program).args(command).arg("--help").output().expect("the program runs");
        let text = String::from_utf8_lossy(&asked.stdout).into_owned();
        let words = text.split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '-'));
        self.flags.extend(words.filter(|word| is_flag(word)).map(str::to_owned));
        text
    }
}

/// The first words of the indented lines below a heading.
fn names_under(text: &str, is_heading: impl Fn(&str) -> bool) -> Vec<String> {
    let mut names = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if !line.starts_with(' ') {
            inside = is_heading(line.trim_end());
        } else if inside && line.starts_with("  ") && !line.starts_with("   ") {
            names.extend(line.split_whitespace().next().map(str::to_owned));
        }
    }
    names
}
