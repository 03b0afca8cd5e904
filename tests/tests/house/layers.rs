//! Crates use only what stands below them in the tree of docs/architecture.md.

use std::collections::BTreeMap;

use super::sources::{crates, program, read, without_tests};

/// The tree of the page: each crate's layer, and who may use a neighbour (`a  b -> c`).
struct Tree {
    layers: BTreeMap<String, i8>,
    arrows: Vec<(String, String)>,
}

/// Of who may use anything and is used by nobody.
const TESTS: i8 = 9;

fn tree() -> Tree {
    let page = read("docs/architecture.md");
    let section = page.split("\n## Tree and direction\n").nth(1).expect("the section");
    let block = section.split("```").nth(1).expect("the tree");
    let (known, mut layer) = (crates(), 0);
    let mut tree = Tree { layers: BTreeMap::new(), arrows: Vec::new() };
    for line in block.lines() {
        match line.chars().next() {
            Some('-') => layer = TESTS,
            Some(digit) => layer = digit.to_digit(10).map_or(layer, |digit| digit as i8),
            None => continue,
        }
        // Names stand before the words about them, which are words of a sentence or stand far behind.
        let names = line.get(3..).unwrap_or_default().trim_start();
        let arrow = names.split_once("->");
        let names: Vec<&str> =
            names.split_whitespace().take_while(|word| known.iter().any(|one| one == word) || *word == "->").collect();
        let names: Vec<&str> = names.into_iter().filter(|word| *word != "->").collect();
        if let (Some(_), Some((below, above))) = (arrow, names.split_last()) {
            tree.arrows.extend(above.iter().map(|one| ((*one).to_owned(), (*below).to_owned())));
        }
        for name in names {
            assert!(tree.layers.insert(name.to_owned(), layer).is_none(), "{name} stands in the tree twice");
        }
    }
    tree
}

/// The crates of ours that a crate is built with; its tests may use more.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = read(&format!("crates/{name}/Cargo.toml"));
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next()).map(str::to_owned);
    let known = crates();
    names.filter(|name| known.contains(name)).collect()
}

#[test]
fn arrows_point_down() {
    let tree = tree();
    for name in crates() {
        let Some(layer) = tree.layers.get(&name) else { panic!("{name} has no place in the tree") };
        for other in dependencies(&name) {
            let below = tree.layers.get(&other).is_some_and(|below| below < layer && *below != TESTS);
            let arrow = tree.arrows.contains(&(name.clone(), other.clone()));
            assert!(below || arrow, "{name} uses {other}, which docs/architecture.md has not below it");
        }
    }
    assert!(dependencies("fuzz").is_empty(), "tests of any crate use fuzz, so it uses none");
}

/// Files of knarr that open, move or look after stores; everything else goes through the API.
const USERS_OF_STORES: &[&str] = &[
    "crates/knarr/src/api_server/mod.rs",
    "crates/knarr/src/control.rs",
    "crates/knarr/src/dashboard/local.rs",
    "crates/knarr/src/etcd/",
    "crates/knarr/src/join/server.rs",
    "crates/knarr/src/server/storage.rs",
    "crates/knarr/src/snapshot.rs",
];

#[test]
fn only_the_api_server_and_named_files_use_stores() {
    for name in crates() {
        let uses = dependencies(&name).iter().any(|other| other == "store");
        assert!(!uses || ["kube-apiserver", "knarr"].contains(&name.as_str()), "{name} uses store");
    }
    let names = |text: &str| {
        text.lines().any(|line| {
            line.trim_start().starts_with("use store::")
                || line.contains(" store::")
                || line.contains("(store::")
                || line.contains("<store::")
        })
    };
    for path in program().into_iter().filter(|path| path.starts_with("crates/knarr/")) {
        let known = USERS_OF_STORES.iter().any(|one| path.starts_with(one));
        assert!(known || !names(&read(&path)), "{path} uses a store: let it ask the API, or name it here");
    }
}

/// What differs by kind stands in the kind's entry, so that a custom kind takes the same path as a Pod.
#[test]
fn the_write_path_names_no_kind() {
    let folders = ["crates/kube-apiserver/src/write/", "crates/kube-apiserver/src/verbs/"];
    let is_kind = |text: &str| api::KINDS.iter().any(|kind| [kind.kind, kind.plural].contains(&text));
    let mut found = Vec::new();
    for path in program().into_iter().filter(|path| folders.iter().any(|folder| path.starts_with(folder))) {
        let text = read(&path);
        for line in without_tests(&text).into_iter().filter(|line| !line.trim_start().starts_with("//")) {
            // Every second part stands between quotes.
            found.extend(
                line.split('"').skip(1).step_by(2).filter(|text| is_kind(text)).map(|text| format!("{path}: {text}")),
            );
        }
    }
    assert!(found.is_empty(), "let the kind's entry say it:\n{}", found.join("\n"));
}
