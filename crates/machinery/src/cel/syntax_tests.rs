//! What is told of expressions whose syntax is wrong, against what upstream's parser tells in its own tests.

use serde_json::Value;

use super::error::{Issues, Problem};
use super::grammar::{NETWORK, Rule};
use super::lexer;
use super::parser::{parse, parse_within};
use super::recovery::{self, Limits};

/// The limits that upstream's tests set.
const FEW: Limits = Limits { recoveries_max: 4, skipped_max: 4 };

/// Place and message of each issue. Rows of upstream's tests about settings that Kubernetes does not use (no optional
/// syntax, 32 levels of nesting, two errors at most, another accumulator) are not in the table.
#[test]
fn every_mistake_is_told_as_upstream_tells_it() {
    let mut wrong = Vec::new();
    let rows = include_str!("testdata/syntax.jsonl");
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row).expect("a row");
        let text = row["in"].as_str().expect("an expression");
        let expected: Vec<&str> = row["out"].as_array().expect("issues").iter().filter_map(Value::as_str).collect();
        let shown = match parse_within(text, FEW) {
            Ok(_) => String::new(),
            Err(issues) => Issues::new(text, issues).to_string(),
        };
        let quoted_names_allowed = row["quoted_names_allowed"] == true;
        let found: Vec<&str> = shown
            .lines()
            .filter_map(|line| line.strip_prefix("ERROR: <input>:"))
            .filter(|line| !(quoted_names_allowed && line.contains("unsupported syntax: '`'")))
            .collect();
        if found != expected {
            wrong.push(format!("{text}\n--- found\n{}\n--- expected\n{}", found.join("\n"), expected.join("\n")));
        }
    }
    assert!(rows.lines().count() > 50, "the table is whole");
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// Words of every kind in orders that a seed chooses: what the parser takes has no mistake in the grammar, and of
/// what it does not take something is told.
#[test]
fn the_parser_and_the_grammar_agree() {
    const WORDS: &[&str] = &[
        "a", "b.c", "1", "-1", "2u", "1.5", "'t'", "b'y'", "true", "null", "(", ")", "[", "]", "{", "}", ".", ",", "-",
        "!", "?", ":", "+", "*", "==", "in", "&&", "||", "`q`", "f(", "x{", ":", ")", "]", "}",
    ];
    let mut seed: u64 = 1;
    let mut draw = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap_or_default()
    };
    let mut taken = 0;
    for _ in 0..10_000 {
        let count = 1 + draw(7);
        let text: Vec<&str> = (0..count).map(|_| WORDS[draw(WORDS.len())]).collect();
        let text = text.join(" ");
        let lexed = lexer::words(&text);
        let found = recovery::findings(&text, &lexed.words, &lexed.skipped, recovery::LIMITS);
        let outcome = parse(&text);
        let is_syntax = |problem: &Problem| problem.to_string().starts_with("Syntax error");
        let refused = outcome.as_ref().err().is_some_and(|issues| issues.iter().any(|issue| is_syntax(&issue.problem)));
        assert_eq!(refused, !found.syntax.is_empty(), "{text}: {:?}", found.syntax);
        assert!(outcome.is_ok() || !outcome.unwrap_err().is_empty(), "{text}: nothing is told");
        taken += usize::from(!refused);
    }
    assert!(taken > 200, "{taken} were taken");
}

/// Whoever writes the longest and worst expression waits no longer for an answer.
#[test]
fn a_long_mistake_ends_in_time() {
    for part in ["-1[", "-1.a(", "-1 +", "{-1:", "((", "a ? ", "- - -", "[-1,"] {
        let text = part.repeat(90_000 / part.len());
        assert!(parse(&text).is_err(), "{part}");
        let text = format!("{} )", part.repeat(80));
        assert!(parse(&text).is_err(), "{part}");
    }
}

#[test]
fn an_expression_may_begin_with_what_messages_list() {
    let start = &NETWORK.states[NETWORK.start(Rule::Start)];
    let listed = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
    assert_eq!(super::grammar::shown(start.next), listed);
}
