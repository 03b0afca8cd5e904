//! Tests of rules: a good object of a kind, one change at a time, and the words with which the change is refused.

use machinery::field::Errors;
use machinery::kind::Kind;
use machinery::node::Node;
use machinery::schema::conform::{Problems, conform};
use serde_json::Value;

use crate::every_kind;
use crate::schema::type_of;

/// An object that nothing is wrong with.
pub(crate) struct Rules {
    kind: &'static Kind,
    good: Value,
}

impl Rules {
    pub(crate) fn of(good: Value) -> Rules {
        let fits = |kind: &&Kind| good["apiVersion"] == kind.api_version() && good["kind"] == kind.kind;
        let kind = every_kind().find(fits).expect("the kind is served");
        let rules = Rules { kind, good };
        rules.create(Value::Null, &[]);
        rules
    }

    /// The object with the changes, as the rules of a POST see it.
    pub(crate) fn made(&self, changes: &Value) -> Value {
        let mut object = self.good.clone();
        merge(&mut object, changes);
        self.conformed(&mut object);
        (self.kind.defaults)(&mut object);
        (self.kind.prepare_create)(&mut object);
        object
    }

    fn conformed(&self, object: &mut Value) {
        let mut problems = Problems::default();
        conform(object, type_of(self.kind), &mut problems).expect("types are right");
        assert!(problems.unknown.is_empty(), "{:?}", problems.unknown);
    }

    /// A POST of the object with the changes.
    #[track_caller]
    pub(crate) fn create(&self, changes: Value, expected: &[&str]) {
        let object = self.made(&changes);
        let mut errors = Errors::default();
        (self.kind.validate)(&Node::root(&object), &mut errors);
        compare(&errors, expected, &changes);
    }

    /// A PUT of the object with the changes over the good one.
    #[track_caller]
    pub(crate) fn update(&self, changes: Value, expected: &[&str]) {
        self.update_from(&Value::Null, changes, expected);
    }

    /// As `update`, where the stored object has changes, too.
    #[track_caller]
    pub(crate) fn update_from(&self, stored: &Value, changes: Value, expected: &[&str]) {
        let old = self.made(stored);
        let mut new = old.clone();
        merge(&mut new, &changes);
        self.conformed(&mut new);
        (self.kind.defaults)(&mut new);
        (self.kind.prepare_update)(&mut new, &old);
        let mut errors = Errors::default();
        (self.kind.validate_update)(&Node::root(&new), &Node::root(&old), &mut errors);
        compare(&errors, expected, &changes);
    }

    /// A PUT of a status over a status, by the status subresource.
    #[track_caller]
    pub(crate) fn status(&self, old_status: Value, new_status: Value, expected: &[&str]) {
        let (mut old, mut new) = (self.made(&Value::Null), self.made(&Value::Null));
        (old["status"], new["status"]) = (old_status, new_status.clone());
        (self.kind.prepare_status)(&mut new, &old);
        let mut errors = Errors::default();
        (self.kind.validate_status)(&Node::root(&new), &Node::root(&old), &mut errors);
        compare(&errors, expected, &new_status);
    }
}

#[track_caller]
fn compare(errors: &Errors, expected: &[&str], changes: &Value) {
    let found: Vec<String> = errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
    assert_eq!(found, expected, "{changes}");
}

/// Maps by key, lists by place; null takes a field away.
pub(crate) fn merge(target: &mut Value, changes: &Value) {
    match (target, changes) {
        (_, Value::Null) => {}
        (Value::Object(target), Value::Object(changes)) => {
            for (key, value) in changes {
                if value.is_null() {
                    target.remove(key);
                } else {
                    merge(target.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(target), Value::Array(changes)) => {
            for (index, value) in changes.iter().enumerate() {
                match target.get_mut(index) {
                    Some(item) => merge(item, value),
                    None => target.push(value.clone()),
                }
            }
        }
        (target, changes) => *target = changes.clone(),
    }
}
