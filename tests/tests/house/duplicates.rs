//! What two crates need has one home below both.

use std::collections::HashMap;

use super::sources::{program, read, without_tests};

/// So many lines in a row, the same but for white space, are written once.
const LINES_MAX: usize = 12;

/// A line that says something: no comment, import, attribute or lone punctuation, which stand everywhere.
fn telling(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let text = words.join(" ");
    let silent = ["//", "use ", "pub use ", "mod ", "pub mod ", "#["].iter().any(|begin| text.starts_with(begin));
    (!silent && text.chars().any(char::is_alphanumeric)).then_some(text)
}

/// Each run of lines, and where it begins: the number of its file and of its line.
fn runs(file: usize, lines: &[&str], into: &mut HashMap<Vec<String>, Vec<(usize, usize)>>) {
    let telling: Vec<(usize, String)> =
        lines.iter().enumerate().filter_map(|(number, line)| Some((number + 1, telling(line)?))).collect();
    for run in telling.windows(LINES_MAX) {
        let text = run.iter().map(|(_, text)| text.clone()).collect();
        into.entry(text).or_default().push((file, run[0].0));
    }
}

fn crate_of(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

#[test]
fn no_block_stands_in_two_crates() {
    let (paths, mut known) = (program(), HashMap::new());
    for (file, path) in paths.iter().enumerate() {
        runs(file, &without_tests(&read(path)), &mut known);
    }
    let mut found: Vec<String> = known
        .values()
        .filter_map(|places| {
            let (first, line) = places[0];
            let other = places.iter().find(|(file, _)| crate_of(&paths[*file]) != crate_of(&paths[first]))?;
            Some(format!("{}:{line} and {}:{}", paths[first], paths[other.0], other.1))
        })
        .collect();
    found.sort();
    assert!(found.is_empty(), "{LINES_MAX} lines stand in two crates; move them below both:\n{}", found.join("\n"));
}

#[test]
fn blocks_are_found_whatever_their_white_space() {
    let body: Vec<String> = (0..LINES_MAX).map(|number| format!("    let a{number} = {number};")).collect();
    let one: Vec<&str> = body.iter().map(String::as_str).collect();
    let deeper: Vec<String> = body.iter().flat_map(|line| [format!("    {line}"), "        // why".into()]).collect();
    let two: Vec<&str> = deeper.iter().map(String::as_str).collect();
    let mut known = HashMap::new();
    runs(0, &one, &mut known);
    runs(1, &two, &mut known);
    assert_eq!(known.len(), 1);
    assert_eq!(known.values().next().unwrap(), &[(0, 1), (1, 1)]);
    let mut shorter = HashMap::new();
    runs(0, &one[1..], &mut shorter);
    assert!(shorter.is_empty());
}
