//! A function fits on a screen or two, and a file is read in one go.

use super::sources::{program, read, without_tests};

const FUNCTION_LINES_MAX: usize = 80;
const FILE_LINES_MAX: usize = 450;

/// What is longer for now, and why. Nothing is added here.
const LONG_FILES: &[(&str, &str)] =
    &[("crates/store/src/conformance.rs", "the one suite of tests that both stores pass")];

#[test]
fn no_function_is_long() {
    let mut long = Vec::new();
    for path in program() {
        let text = read(&path);
        let functions = functions(&without_tests(&text));
        let over = functions.iter().filter(|(_, lines)| *lines > FUNCTION_LINES_MAX);
        long.extend(over.map(|(name, lines)| format!("{path}: {name} has {lines} lines")));
    }
    assert!(long.is_empty(), "more than {FUNCTION_LINES_MAX} lines; give the pieces names:\n{}", long.join("\n"));
}

#[test]
fn no_file_is_long() {
    let lines = |path: &String| read(path).lines().count();
    let known = |path: &String| LONG_FILES.iter().any(|(file, _)| file == path);
    let long: Vec<String> = program().into_iter().filter(|path| lines(path) > FILE_LINES_MAX && !known(path)).collect();
    assert!(
        long.is_empty(),
        "more than {FILE_LINES_MAX} lines; which noun wants a file of its own?\n{}",
        long.join("\n")
    );
    let idle: Vec<&str> =
        LONG_FILES.iter().map(|(file, _)| *file).filter(|file| lines(&(*file).to_owned()) <= FILE_LINES_MAX).collect();
    assert!(idle.is_empty(), "an exception that nobody needs any more goes: {idle:?}");
}

/// Names and lengths of functions. The code is formatted: a function ends with a brace below its first letter.
fn functions(lines: &[&str]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let end = format!("{}}}", " ".repeat(line.len() - line.trim_start().len()));
        let same_line = line.ends_with('}');
        let declared = |line: &&str| line.ends_with(';') && !line.contains('{');
        let length = lines[start..].iter().position(|line| *line == end).map(|length| length + 1);
        let signature = lines[start..].iter().position(|line| line.contains('{') || declared(line));
        let is_declared = signature.is_some_and(|at| declared(&lines[start + at]));
        if let Some(length) = length.filter(|_| !same_line && !is_declared) {
            found.push((name.to_owned(), length));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    const BEFORE: [&str; 7] = ["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe", "extern"];
    let mut words = line.split_whitespace().skip_while(|word| BEFORE.contains(word));
    (words.next()? == "fn").then(|| words.next())?.and_then(|word| word.split(['(', '<']).next())
}

#[test]
fn functions_are_measured() {
    let text = "impl X {\n    pub async fn one(\n        a: u8,\n    ) {\n        b();\n    }\n\n    fn two(&self);\n\n    fn three() {}\n}\n\nfn four<T>() {\n    c();\n}";
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(functions(&lines), [("one".to_owned(), 5), ("four".to_owned(), 3)]);
}
