//! The files of this repository.

use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tree").to_owned()
}

pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files and folders below a folder, by their paths from the root of the tree.
pub fn below(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(root().join(folder)) else { return found };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if ["target", "node_modules", ".git"].contains(&name.as_str()) {
            continue;
        }
        let path = format!("{folder}/{name}");
        if entry.path().is_dir() {
            found.extend(below(&path));
        }
        found.push(path);
    }
    found.sort();
    found
}

/// Our crates.
pub fn crates() -> Vec<String> {
    let names = std::fs::read_dir(root().join("crates")).expect("the folder of crates").flatten();
    let mut names: Vec<String> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The sources of the program, without its tests and what is generated.
pub fn program() -> Vec<String> {
    let made_for_tests = |path: &str| ["crates/testkit/", "crates/fuzz/"].iter().any(|one| path.starts_with(one));
    let tests = |path: &str| path.contains("/tests/") || path.ends_with("tests.rs") || path.contains("/generated/");
    let sources = below("crates").into_iter().filter(|path| path.ends_with(".rs") && !made_for_tests(path));
    sources.filter(|path| !tests(path) && !is_only_for_tests(path)).collect()
}

/// A module that its parent has only for tests.
fn is_only_for_tests(path: &str) -> bool {
    let path = root().join(path);
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let parent = path.parent().expect("a folder");
    let above = [parent.join("mod.rs"), parent.join("lib.rs"), parent.join("main.rs"), parent.with_extension("rs")];
    let declared =
        ["mod", "pub mod", "pub(crate) mod", "pub(super) mod"].map(|how| format!("#[cfg(test)]\n{how} {name};"));
    above.iter().any(|file| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        declared.iter().any(|line| text.contains(line))
    })
}

/// The lines before the tests at the end of a file.
pub fn without_tests(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let is_begin = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
    let end = lines.windows(2).position(is_begin).unwrap_or(lines.len());
    lines[..end].to_vec()
}
