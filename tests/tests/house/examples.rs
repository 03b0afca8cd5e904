//! The code in CONTRIBUTING.md is code: every block of Rust stands, letter by letter, in a file that the tests compile and run.

use super::sources::read;

/// Under which heading, and in which file.
const EXAMPLES: [(&str, &str); 4] = [
    ("A controller", "crates/kube-controller-manager/src/example/mod.rs"),
    ("A volume type", "crates/kubelet/src/volumes/example.rs"),
    ("A metric", "crates/component-base/tests/example.rs"),
    ("A kubectl command", "crates/kubectl/src/commands/example.rs"),
];
/// An example is read in one go.
const EXAMPLE_LINES_MAX: usize = 30;

#[test]
fn examples_are_compiled() {
    let page = read("CONTRIBUTING.md");
    let mut blocks = 0;
    for (heading, file) in EXAMPLES {
        let section = page.split("\n### ").find_map(|section| section.strip_prefix(heading));
        let section = section.unwrap_or_else(|| panic!("CONTRIBUTING.md has no section {heading:?}"));
        let section = section.split("\n## ").next().unwrap_or(section);
        assert!(section.contains(file), "{heading}: the section does not name {file}");
        let source = read(file);
        let found = rust(section);
        assert!(!found.is_empty(), "{heading}: there is no code");
        for block in &found {
            assert!(source.contains(block.as_str()), "{heading}: this does not stand in {file}:\n{block}");
            let lines = block.lines().count();
            assert!(lines <= EXAMPLE_LINES_MAX, "{heading}: {lines} lines are no short example");
        }
        blocks += found.len();
    }
    assert_eq!(blocks, rust(&page).len(), "code of CONTRIBUTING.md that stands under no heading of an example");
}

/// The blocks of Rust in a page.
fn rust(page: &str) -> Vec<String> {
    let blocks = page.split("\n```rust\n").skip(1);
    blocks.map(|rest| format!("{}\n", rest.split("\n```").next().unwrap_or_default())).collect()
}

#[test]
fn blocks_are_found() {
    assert_eq!(rust("a\n```rust\nb\n\nc\n```\n```\nd\n```\n```rust\ne\n```\n"), ["b\n\nc\n", "e\n"]);
}
