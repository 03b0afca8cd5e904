//! `metadata.managedFields`: who last set which field. Every write passes here once it is decoded, patched and has its
//! defaults, and before admission and strategies change it: what those set (a service account, an allocated address)
//! nobody owns, as upstream.

mod entry;
mod kept;

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::fields::{Comparison, Set, compare, fresh};
use crate::object::Meta;
use crate::schema::TypeRef;

use kept::Change;

pub(super) use entry::Entries;
pub use entry::Operation;

/// Who writes, and how.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    pub name: &'a str,
    /// The version of the request: `apps/v1`.
    pub api_version: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Now, as `2026-01-02T03:04:05Z`. Empty leaves the time out, as upstream does for writes through `scale`.
    pub time: &'a str,
}

impl<'a> Manager<'a> {
    pub(super) fn stamp(&self) -> Option<&'a str> {
        (!self.time.is_empty()).then_some(self.time)
    }
}

/// What no manager owns, because the server sets it or because it names the object.
pub(super) static STRIPPED: LazyLock<Set<'static>> = LazyLock::new(|| {
    Set::of_paths(&[
        "apiVersion",
        "kind",
        "metadata",
        "metadata.clusterName",
        "metadata.creationTimestamp",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.name",
        "metadata.namespace",
        "metadata.resourceVersion",
        "metadata.selfLink",
        "metadata.uid",
    ])
});

/// Records a create (`old` none), an update or a patch in the managed fields of `new`.
///
/// The fields whose value changed go from whoever had them to the manager of this write. `reset` names the fields
/// this endpoint does not write, which stay as they are: `status` for the object itself, `spec` and
/// `metadata.labels` for most status subresources. Where nothing changed, nothing is recorded, not even the time.
pub fn update(ty: TypeRef, old: Option<&Value>, new: &mut Value, manager: &Manager, reset: &[&str]) {
    let Start { list, stored } = start(old, new, manager);
    let mut comparison = match old {
        Some(old) => compare(ty, Some(old), new),
        None => Comparison { added: fresh(ty, new), ..Comparison::default() },
    };
    comparison.exclude(&Set::of_paths(reset));
    if stored && comparison.is_empty() {
        return set_managed_fields(new, list);
    }
    let plan = record(ty, &list, comparison, manager);
    set_managed_fields(new, plan.resolve(list));
}

struct Start {
    list: Vec<Value>,
    /// The list is the live object's.
    stored: bool,
}

/// The managed fields this write starts from, taken out of `new`.
///
/// A client may write managed fields itself; one empty entry (`[{}]`) drops them all. No entries, or entries that
/// cannot be read, count as a client that does not know the field: the live object's stay. Subresources never
/// change them directly.
fn start(old: Option<&Value>, new: &mut Value, manager: &Manager) -> Start {
    let live = old.and_then(|old| old.meta("managedFields")?.as_array());
    let stored = || Start { list: live.cloned().unwrap_or_default(), stored: true };
    let sent = match new.get_mut("metadata").and_then(|metadata| metadata.as_object_mut()?.remove("managedFields")) {
        Some(Value::Array(list)) if !list.is_empty() => list,
        _ => return stored(),
    };
    if live == Some(&sent) {
        return Start { list: sent, stored: true };
    }
    if !manager.subresource.is_empty() {
        return stored();
    }
    match sent.as_slice() {
        [Value::Object(entry)] if entry.is_empty() => Start { list: Vec::new(), stored: false },
        _ if Entries::decode(&sent).is_ok() => Start { list: sent, stored: false },
        _ => stored(),
    }
}

fn record(ty: TypeRef, list: &[Value], comparison: Comparison, manager: &Manager) -> entry::Plan {
    let Comparison { added, modified, removed } = comparison;
    let changed = added.union(modified);
    if !list.is_empty() {
        let taken = changed.clone().difference(&STRIPPED);
        let change = Change { changed: &changed, removed: &removed, taken: &taken };
        if let Some(plan) = kept::plan(ty, list, &change, manager) {
            return plan;
        }
    }
    // As upstream, managed fields in the store that cannot be read count as none.
    let mut entries = Entries::decode(list).unwrap_or_default();
    entries.reconcile(ty);
    for entry in entries.iter_mut() {
        entry.lose(&changed);
        entry.lose(&removed);
    }
    entries.drop_empty();
    let taken = changed.difference(&STRIPPED);
    if !taken.is_empty() {
        entries.give(Operation::Update, manager, taken);
    }
    entries.cap_updates();
    entries.encode()
}

/// No entries is no field at all.
pub(super) fn set_managed_fields(object: &mut Value, list: Vec<Value>) {
    if !list.is_empty() {
        object.meta_mut().insert("managedFields".into(), Value::Array(list));
    } else if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// An object without its managed fields, which are no part of its content.
pub(super) fn content(object: &Value) -> Value {
    let Value::Object(members) = object else { return object.clone() };
    let without = |metadata: &Map<String, Value>| {
        let kept = metadata.iter().filter(|(name, _)| *name != "managedFields");
        Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    let member = |(name, value): (&String, &Value)| match (name.as_str(), value) {
        ("metadata", Value::Object(metadata)) => (name.clone(), without(metadata)),
        _ => (name.clone(), value.clone()),
    };
    Value::Object(members.iter().map(member).collect())
}

/// Whether two objects differ in their managed fields at most.
pub(super) fn same_content(left: &Value, right: &Value) -> bool {
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return left == right };
    fn without(metadata: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
        metadata.iter().filter(|(name, _)| *name != "managedFields")
    }
    let same = |((left_name, left), (right_name, right)): ((&String, &Value), (&String, &Value))| {
        left_name == right_name
            && match (left, right) {
                (Value::Object(left), Value::Object(right)) if left_name == "metadata" => {
                    without(left).eq(without(right))
                }
                _ => left == right,
            }
    };
    left.len() == right.len() && left.iter().zip(right).all(same)
}

#[cfg(test)]
mod tests;
