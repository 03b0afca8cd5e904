//! Rules that every kind's entry must keep.

use api::every_kind;
use serde_json::{Value, json};

fn empty(kind: &machinery::kind::Kind) -> Value {
    let mut object = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "x"}});
    if kind.namespaced() {
        object["metadata"]["namespace"] = "default".into();
    }
    let mut problems = machinery::schema::conform::Problems::default();
    machinery::schema::conform::conform(&mut object, api::schema::type_of(kind), &mut problems)
        .expect("nothing is wrong");
    object
}

#[test]
fn defaults_are_stable_and_fit_the_schema() {
    for kind in every_kind() {
        let mut once = empty(kind);
        (kind.defaults)(&mut once);
        let mut twice = once.clone();
        (kind.defaults)(&mut twice);
        assert_eq!(once, twice, "{} defaults its defaults", kind.kind);
        let mut problems = machinery::schema::conform::Problems::default();
        machinery::schema::conform::conform(&mut twice, api::schema::type_of(kind), &mut problems)
            .unwrap_or_else(|error| panic!("{}: {error}", kind.kind));
        assert_eq!(problems.unknown, Vec::<String>::new(), "{} defaults unknown fields", kind.kind);
        if kind.convert.is_none() {
            assert_eq!(once, twice, "{}'s defaults are not as they would be stored", kind.kind);
        }
    }
}

/// Whatever stands in an object, rules and columns answer: they never panic.
#[test]
fn rules_bear_an_empty_object() {
    let now = jiff::Timestamp::UNIX_EPOCH;
    for kind in every_kind() {
        for object in [empty(kind), json!({"metadata": {}})] {
            let node = machinery::node::Node::root(&object);
            let mut errors = machinery::field::Errors::default();
            (kind.validate)(&node, &mut errors);
            (kind.validate_update)(&node, &node, &mut errors);
            (kind.validate_status)(&node, &node, &mut errors);
            (kind.warnings)(&object, None);
            let row = (kind.row)(&object, now);
            assert_eq!(row.len(), kind.columns.len(), "{}'s row fits its columns", kind.kind);
            kind.selectable.iter().for_each(|field| drop((field.read)(&object)));
        }
    }
}

#[test]
fn names_are_unique() {
    let mut seen = std::collections::HashSet::new();
    for kind in every_kind() {
        assert!(seen.insert((kind.group, kind.version, kind.plural)), "{} is there twice", kind.plural);
    }
}
