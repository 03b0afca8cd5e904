//! Managed fields of a write whose changed fields have no other owner. Then no set of another manager changes, so that none is
//! decoded: their texts are scanned once. Most writes are such, those of controllers and kubelets above all.

use std::rc::Rc;

use serde_json::Value;

use super::entry::{Entry, Plan, UPDATE_ENTRIES_MAX, identity, in_order};
use super::{Manager, Operation};
use crate::patch::fields::{Set, look_through};
use crate::schema::TypeRef;

/// What a write changes.
pub(super) struct Change<'a> {
    pub changed: &'a Set<'a>,
    pub removed: &'a Set<'a>,
    /// Of what is changed, the fields that have managers.
    pub taken: &'a Set<'a>,
}

/// The list after the write, where it is such a one; nothing where sets must be read.
pub(super) fn plan(ty: TypeRef, list: &[Value], change: &Change, manager: &Manager) -> Option<Plan> {
    let Change { changed, removed, taken } = *change;
    if taken.is_empty() {
        return None;
    }
    let writer = (Operation::Update, manager.name, manager.subresource, manager.api_version);
    let (mut identities, mut own) = (Vec::with_capacity(list.len()), None);
    for (index, value) in list.iter().enumerate() {
        let identity = identity(value)?;
        let seen = look_through(ty, value.get("fieldsV1")?.as_str()?, [changed, removed, taken])?;
        let [seen_changed, seen_removed, seen_taken] = seen.members;
        if identities.contains(&identity) || seen.is_empty || seen.splits_atomic || seen_removed > 0 {
            return None;
        }
        // Its manager must own all that it writes, and others nothing of it.
        let owned = if identity == writer { taken.members() } else { 0 };
        if seen_taken != owned || seen_changed != owned {
            return None;
        }
        if identity == writer {
            own = Some(index);
        }
        identities.push(identity);
    }
    let updates = identities.iter().filter(|(operation, ..)| *operation == Operation::Update).count();
    match own {
        Some(own) => {
            let mut entry = list[own].clone();
            let fields = entry.as_object_mut()?;
            match manager.stamp() {
                Some(time) => fields.insert("time".into(), time.into()),
                None => fields.remove("time"),
            };
            (updates <= UPDATE_ENTRIES_MAX).then(|| in_order(list, Some(own), entry))
        }
        None => {
            let entry = Entry::new(Operation::Update, manager, manager.stamp(), Rc::new(taken.clone()));
            (updates < UPDATE_ENTRIES_MAX).then(|| in_order(list, None, entry.to_json()))
        }
    }
}
