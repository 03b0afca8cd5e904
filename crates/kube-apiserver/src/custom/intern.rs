//! Names of custom kinds that live as long as the program, as those of built-in kinds do.
//!
//! Each distinct text is kept once and never freed: what a definition costs here is its own few names, and a definition
//! that comes back, or changes anything else, costs nothing more.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use machinery::kind::Subresource;
use parking_lot::Mutex;

type Texts = &'static [&'static str];

static TEXTS: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Default::default);
static LISTS: LazyLock<Mutex<HashSet<Texts>>> = LazyLock::new(Default::default);
static SUBRESOURCES: LazyLock<Mutex<HashMap<Parts, &'static [Subresource]>>> = LazyLock::new(Default::default);

/// The kind, and whether it has `status` and `scale`.
type Parts = (&'static str, bool, bool);

pub fn text(text: &str) -> &'static str {
    let mut texts = TEXTS.lock();
    match texts.get(text) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(text.into());
            texts.insert(kept);
            kept
        }
    }
}

pub fn list<'a>(items: impl Iterator<Item = &'a str>) -> Texts {
    let items: Vec<&'static str> = items.map(text).collect();
    let mut lists = LISTS.lock();
    match lists.get(items.as_slice()) {
        Some(known) => known,
        None => {
            let kept: Texts = Box::leak(items.into());
            lists.insert(kept);
            kept
        }
    }
}

pub fn subresources(kind: &'static str, status: bool, scale: bool) -> &'static [Subresource] {
    SUBRESOURCES.lock().entry((kind, status, scale)).or_insert_with(|| {
        let status = status.then(|| Subresource::status(kind));
        let scale = scale.then_some(Subresource::SCALE);
        let all: Box<[Subresource]> = status.into_iter().chain(scale).collect();
        Box::leak(all)
    })
}
