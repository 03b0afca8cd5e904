//! docs/security.md names a test for every class of attack; each of them must be there.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tree").to_owned()
}

/// What stands between backquotes in the rows of the table under that heading.
fn named(page: &str, heading: &str) -> Vec<String> {
    let section = page.split(heading).nth(1).expect("the section is there").split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let last = |row: &str| row.trim_end_matches('|').rsplit('|').next().unwrap_or_default().to_owned();
    rows.map(|row| last(row).split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .inspect(|tests| assert!(!tests.is_empty(), "every row names a test"))
        .flatten()
        .collect()
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let page = std::fs::read_to_string(root().join("docs/security.md")).expect("the page");
    let names = named(&page, "\n## What holds\n");
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        let Some((suite, test)) = name.split_once("::") else {
            assert!(root().join(&name).is_file(), "there is no {name}");
            continue;
        };
        let file = root().join(format!("tests/tests/{suite}.rs"));
        let text = std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("there is no suite {suite}"));
        let place = text.find(&format!("fn {test}(")).unwrap_or_else(|| panic!("{suite} has no test {test}"));
        let above: Vec<&str> = text[..place].lines().rev().take(4).collect();
        assert!(above.iter().any(|line| line.contains("test]") || line.contains("test(")), "{name} is no test");
    }
}

/// What `make attack` counts with.
#[test]
fn attacks_are_counted_as_they_are_printed() {
    let count = |text: &str| {
        let mut command = std::process::Command::new("python3");
        let mut child = command
            .arg(root().join("scripts/count_attacks.py"))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("python3");
        std::io::Write::write_all(&mut child.stdin.take().expect("its input"), text.as_bytes()).expect("written");
        String::from_utf8(child.wait_with_output().expect("an answer").stdout).expect("text").trim().to_owned()
    };
    assert_eq!(count("running 2 tests\ntest a ... ok\ntest b ... ok\n\ntest result: ok."), "2 2");
    assert_eq!(count("test a ... attack held: x\nattack held: y\nok\ntest b ... ok\n"), "3 3");
    assert_eq!(
        count("test a ... attack held: x\nattack BROKEN: y\nthread panicked\nFAILED\ntest b ... FAILED\n"),
        "3 1"
    );
    assert_eq!(count("test a ... attack held: x\nthread 'a' panicked\nFAILED\n"), "1 0");
}
