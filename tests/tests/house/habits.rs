//! What we do not write, though the compiler lets us: errors that are only texts, `match` for a boolean, leaked memory, and
//! queues without a bound.

use super::sources::{program, read, without_tests};

/// Every line of the program, without its tests, of which that is said; it is also given the lines before.
fn lines_where(is_bad: impl Fn(&[&str], &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for path in program() {
        let text = read(&path);
        let lines = without_tests(&text);
        for (number, line) in lines.iter().enumerate() {
            if !line.trim_start().starts_with("//") && is_bad(&lines[..number], line) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    found
}

fn refuse(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// Whether a `Result` of this line has a text for its error.
fn is_text_error(line: &str) -> bool {
    line.match_indices("Result<").any(|(at, open)| {
        let (mut depth, mut comma) = (1, None);
        let rest = &line[at + open.len()..];
        for (place, sign) in rest.char_indices() {
            match sign {
                '<' | '(' | '[' => depth += 1,
                '>' if rest[..place].ends_with('-') => {}
                '>' | ')' | ']' => depth -= 1,
                ',' if depth == 1 => comma = Some(place + 1),
                _ => {}
            }
            if depth == 0 {
                return comma.is_some_and(|comma| rest[comma..place].trim() == "String");
            }
        }
        false
    })
}

fn makes_text_of_error(line: &str) -> bool {
    line.split("map_err(|").skip(1).any(|rest| {
        let Some((name, rest)) = rest.split_once("| ") else { return false };
        rest.starts_with(&format!("{name}.to_string())"))
    }) || line.contains("map_err(ToString::to_string)")
}

#[test]
fn errors_are_types() {
    assert!(is_text_error("fn a() -> Result<Vec<(u8, fn() -> u8)>, String> {"));
    assert!(!is_text_error("fn a() -> Result<String, Error> {") && !is_text_error("Result<(), Option<String>>"));
    assert!(makes_text_of_error("a.map_err(|why| why.to_string())?") && !makes_text_of_error("a.map_err(|e| b(e))"));
    let found = lines_where(|_, line| is_text_error(line) || makes_text_of_error(line));
    refuse("an error is an enum of its crate or module, not a text", &found);
}

#[test]
fn booleans_are_asked_by_if() {
    let is_arm = |line: &str, value: &str| {
        let arm = line.trim_start();
        arm.starts_with(&format!("{value} => ")) || arm.starts_with(&format!("{value} if "))
    };
    let found = lines_where(|_, line| is_arm(line, "true") || is_arm(line, "false"));
    refuse("a boolean is asked by if and else", &found);
}

/// What is kept for as long as the program runs, and why that is little.
const KEPT: &[(&str, &str)] = &[
    ("crates/dns/src/lib.rs", "one selector, with the name of this node"),
    (
        "crates/kube-apiserver/src/custom/intern.rs",
        "each name of a custom kind once, however often its definition changes",
    ),
];

#[test]
fn nothing_is_leaked() {
    let found = lines_where(|_, line| line.contains(".leak()") || line.contains("Box::leak("));
    let is_kept = |line: &String| KEPT.iter().any(|(path, _)| line.starts_with(path));
    let (kept, leaked): (Vec<String>, Vec<String>) = found.into_iter().partition(is_kept);
    refuse("memory has an owner", &leaked);
    let is_idle = |path: &str| !kept.iter().any(|line| line.starts_with(path));
    let idle: Vec<&str> = KEPT.iter().map(|(path, _)| *path).filter(|path| is_idle(path)).collect();
    assert!(idle.is_empty(), "an exception that nobody needs any more goes: {idle:?}");
}

#[test]
fn queues_have_a_bound() {
    // The reason stands in the comment above, and says that there is no bound.
    let is_explained = |before: &[&str]| {
        let comment = before.iter().rev().take_while(|line| line.trim_start().starts_with("//"));
        comment.into_iter().any(|line| line.contains("Without a bound, because"))
    };
    let found = lines_where(|before, line| {
        let is_unbounded = line.contains("unbounded_channel(") || line.contains("unbounded(");
        is_unbounded && !is_explained(before)
    });
    refuse("a queue has a bound with a name, or a comment `Without a bound, because ...` above it", &found);
}
