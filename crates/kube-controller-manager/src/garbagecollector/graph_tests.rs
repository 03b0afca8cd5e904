//! Short stories of owners and dependents, and what each is worth.

use super::*;

fn text(value: &str) -> Arc<str> {
    Arc::from(value)
}

/// An object `kind/name` in a namespace, whose uid is its name.
fn object(namespace: &str, kind: &str, name: &str, owners: &[(&str, &str, bool)]) -> Seen {
    let owner = |(kind, name, blocks): &(&str, &str, bool)| Owner {
        api_version: text("v1"),
        kind: text(kind),
        name: text(name),
        uid: text(name),
        blocks: *blocks,
    };
    Seen {
        identity: Identity {
            api_version: text("v1"),
            kind: text(kind),
            namespace: text(namespace),
            name: text(name),
            uid: text(name),
        },
        owners: owners.iter().map(owner).collect(),
        deleting: false,
        foreground: false,
        orphan: false,
    }
}

fn deleting(seen: Seen, finalizer: &str) -> Seen {
    Seen { deleting: true, foreground: finalizer == "foreground", orphan: finalizer == "orphan", ..seen }
}

#[derive(Default)]
struct Story {
    graph: Graph,
}

impl Story {
    fn expect(&mut self, change: impl FnOnce(&mut Graph, &mut Vec<Todo>), expected: &[&str]) {
        let mut todo = Vec::new();
        change(&mut self.graph, &mut todo);
        let shown: Vec<String> = todo
            .iter()
            .map(|todo| match todo {
                Todo::Now(Job::Look(uid)) => format!("look {uid}"),
                Todo::Now(Job::Orphan(uid)) => format!("orphan {uid}"),
                Todo::Soon(Job::Look(uid)) => format!("soon {uid}"),
                Todo::Soon(Job::Orphan(uid)) => format!("soon orphan {uid}"),
                Todo::Absent(identity) => format!("absent {}/{}", identity.namespace, identity.name),
            })
            .collect();
        assert_eq!(shown, expected);
    }

    fn observe(&mut self, seen: Seen, expected: &[&str]) {
        self.expect(|graph, todo| graph.observe(seen, todo), expected);
    }
}

#[test]
fn dependents_of_a_deleted_owner_are_looked_at() {
    let mut story = Story::default();
    story.observe(object("a", "Set", "set", &[]), &[]);
    story.observe(object("a", "Pod", "one", &[("Set", "set", false)]), &[]);
    story.observe(object("a", "Pod", "two", &[("Set", "set", false)]), &[]);
    story.expect(|graph, todo| graph.forget("set", todo), &["absent a/set", "look one", "look two"]);
    story.expect(|graph, todo| graph.forget("one", todo), &[]);
}

#[test]
fn an_owner_nobody_has_seen_is_looked_for() {
    let mut story = Story::default();
    story.observe(object("a", "Pod", "one", &[("Set", "set", false)]), &["soon set"]);
    assert!(!story.graph.get("set").unwrap().observed);
    story.observe(object("a", "Set", "set", &[]), &[]);
    assert!(story.graph.get("set").unwrap().observed);
    let mut other = Story::default();
    other.observe(object("a", "Pod", "one", &[("Set", "set", false)]), &["soon set"]);
    let absent = object("a", "Set", "set", &[]).identity;
    other.expect(|graph, todo| graph.forget_absent(&absent, todo), &["absent a/set", "look one"]);
    assert!(other.graph.get("set").is_none());
}

#[test]
fn a_claimed_owner_goes_with_the_last_claim() {
    let mut story = Story::default();
    story.observe(object("a", "Pod", "one", &[("Set", "set", false)]), &["soon set"]);
    story.observe(object("a", "Pod", "one", &[]), &[]);
    assert!(story.graph.get("set").is_none());
}

#[test]
fn a_foreground_deletion_looks_at_dependents_and_ends_with_the_last() {
    let mut story = Story::default();
    story.observe(object("a", "Set", "set", &[]), &[]);
    story.observe(object("a", "Pod", "one", &[("Set", "set", true)]), &[]);
    story.observe(object("a", "Pod", "free", &[("Set", "set", false)]), &[]);
    story.observe(deleting(object("a", "Set", "set", &[]), "foreground"), &["look free", "look one", "look set"]);
    story.observe(deleting(object("a", "Set", "set", &[]), "foreground"), &[]);
    let set = story.graph.get("set").unwrap();
    assert_eq!(story.graph.blocking(set).map(|node| &*node.identity.name).collect::<Vec<_>>(), ["one"]);
    story.expect(|graph, todo| graph.forget("one", todo), &["look set"]);
    story.observe(object("a", "Pod", "late", &[("Set", "set", true)]), &["look late"]);
}

#[test]
fn an_unblocked_owner_is_looked_at() {
    let mut story = Story::default();
    story.observe(object("a", "Set", "set", &[]), &[]);
    story.observe(object("a", "Pod", "one", &[("Set", "set", true)]), &[]);
    story.observe(object("a", "Pod", "one", &[("Set", "set", false)]), &["look set"]);
    story.observe(object("a", "Pod", "one", &[("Set", "set", true)]), &[]);
    story.observe(object("a", "Pod", "one", &[]), &["look set"]);
}

#[test]
fn an_orphaning_deletion_is_worked_off_once() {
    let mut story = Story::default();
    story.observe(deleting(object("a", "Set", "set", &[]), "orphan"), &["orphan set"]);
    story.observe(deleting(object("a", "Set", "set", &[]), "orphan"), &[]);
}

#[test]
fn an_owner_in_another_namespace_is_doubted() {
    let mut story = Story::default();
    story.observe(object("a", "Set", "set", &[]), &[]);
    story.observe(object("b", "Pod", "far", &[("Set", "set", false)]), &["look far"]);
    // The look finds no such owner in the dependent's namespace; the real one stays.
    let claimed = object("b", "Set", "set", &[]).identity;
    story.expect(|graph, todo| graph.forget_absent(&claimed, todo), &["absent b/set", "look far"]);
    assert!(story.graph.get("set").is_some());
}

#[test]
fn claims_that_disagree_are_looked_at_one_after_the_other() {
    let mut story = Story::default();
    story.observe(object("a", "Pod", "one", &[("Set", "set", false)]), &["soon set"]);
    story.observe(object("b", "Pod", "two", &[("Set", "set", false)]), &["look two"]);
    let claimed = story.graph.get("set").unwrap().identity.clone();
    assert_eq!(&*claimed.namespace, "a");
    story.expect(|graph, todo| graph.forget_absent(&claimed, todo), &["absent a/set", "look one", "soon set"]);
    assert_eq!(&*story.graph.get("set").unwrap().identity.namespace, "b");
}

#[test]
fn a_new_list_forgets_what_it_does_not_hold() {
    let mut story = Story::default();
    story.observe(object("a", "Set", "set", &[]), &[]);
    story.observe(object("a", "Set", "kept", &[]), &[]);
    story.observe(object("a", "Pod", "one", &[("Set", "set", false)]), &[]);
    let listed = HashSet::from([text("kept")]);
    story.expect(|graph, todo| graph.keep_only("v1", "Set", &listed, todo), &["absent a/set", "look one"]);
    assert!(story.graph.get("kept").is_some() && story.graph.get("one").is_some());
}
