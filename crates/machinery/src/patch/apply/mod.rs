//! Server-side apply: a manager states the fields it wants, and the server merges them with what others want.

mod last_applied;
mod merge;
mod remove;
mod validate;

use serde_json::{Map, Value};

use super::fields::{Element, Set, compare, extract};
use super::managed::{Entries, Manager, Operation, STRIPPED, content, same_content, set_managed_fields};
use crate::object::Meta;
use crate::schema::{ListKind, Type, TypeRef};
use crate::status::{Cause, Details, Status};

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ApplyError {
    #[error("{0}")]
    BadRequest(String),
    /// Others own fields that would change.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration does not fit the schema, or the live object cannot be read. Upstream has no status for it
    /// and answers 500 without a reason.
    #[error("{0}")]
    Other(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// The manager as messages show it: `"name" with subresource "status" using apps/v1`.
    pub manager: String,
    /// The field: `.spec.template.spec.containers[name="c"].image`.
    pub field: String,
}

impl ApplyError {
    pub fn status(&self) -> Status {
        match self {
            ApplyError::BadRequest(message) => Status::bad_request(message),
            ApplyError::Other(message) => Status::new(500, "", message),
            ApplyError::Conflicts(conflicts) => {
                let cause = |conflict: &Conflict| Cause {
                    reason: "FieldManagerConflict".into(),
                    message: format!("conflict with {}", conflict.manager),
                    field: conflict.field.clone(),
                };
                let details = Details { causes: conflicts.iter().map(cause).collect(), ..Details::default() };
                Status { details: Some(details), ..Status::new(409, "Conflict", self.to_string()) }
            }
        }
    }
}

/// The object after applying `config`, with its managed fields, before defaults.
///
/// Fields that the manager applied before and leaves out now are removed, unless someone else owns them too.
/// `force` takes fields from their owners; without it a changed field of another manager is a conflict. `reset`
/// names the fields this endpoint does not write, as in `managed::update`. Where nothing changes, the answer equals
/// `live`. A struct or list that lost its last field may be left as null, for the schema pass to drop.
pub fn apply(
    ty: TypeRef,
    live: Option<&Value>,
    config: &Value,
    manager: &Manager,
    force: bool,
    reset: &[&str],
) -> Result<Value, ApplyError> {
    check_config(ty, config, manager)?;
    let empty = Value::Object(Map::new());
    let request = Request { ty, live: live.unwrap_or(&empty), config, manager, reset };
    let mut applied = request.run(force);
    if let Err(ApplyError::Conflicts(conflicts)) = &applied
        && manager.name == last_applied::MANAGER
    {
        // What was applied by the client before may change hands without force.
        let rest = last_applied::not_allowed(ty, request.live, conflicts);
        applied = if rest.is_empty() { request.run(true) } else { Err(ApplyError::Conflicts(rest)) };
    }
    let mut object = applied?;
    if manager.name == last_applied::MANAGER {
        last_applied::sync(&mut object, config);
    }
    Ok(object)
}

/// Why a configuration cannot be merged into an object that nobody's ownership is kept of.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum MergeError {
    #[error("failed to convert patch object to typed object: {0}")]
    Untyped(validate::Problems),
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}", .0.join(", "))]
    Atomic(Vec<String>),
}

/// Merges a configuration into an object, as a policy that mutates does: nobody owns what it sets. What has one owner as a
/// whole may not be set, because all that the configuration does not mention would be lost.
pub fn merge_unowned(ty: TypeRef, object: &mut Value, config: &Value) -> Result<(), MergeError> {
    validate::validate(ty, config).map_err(MergeError::Untyped)?;
    let mut atomics = Vec::new();
    find_atomics(ty, config, &mut Vec::new(), &mut atomics);
    if !atomics.is_empty() {
        return Err(MergeError::Atomic(atomics));
    }
    merge::merge(Some(ty), object, config);
    Ok(())
}

fn find_atomics<'v>(ty: TypeRef, value: &'v Value, path: &mut Vec<Element<'v>>, found: &mut Vec<String>) {
    let shown = |path: &[Element]| path.iter().map(Element::to_string).collect::<String>();
    match (ty.get(), value) {
        (Type::Struct(shape), Value::Object(entries)) => {
            if shape.atomic {
                found.push(shown(path));
            }
            for (name, entry) in entries {
                let Some(field) = shape.field(name) else { continue };
                path.push(Element::Field(name.as_str().into()));
                find_atomics(ty.of(field.ty), entry, path, found);
                path.pop();
            }
        }
        (Type::Map { atomic: true, .. }, Value::Object(_)) => found.push(shown(path)),
        (Type::List { item, kind }, Value::Array(items)) => {
            if *kind == ListKind::Atomic {
                found.push(shown(path));
            }
            for (index, entry) in items.iter().enumerate() {
                path.push(Element::Index(index.to_string().into()));
                find_atomics(ty.of(*item), entry, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

fn check_config(ty: TypeRef, config: &Value, manager: &Manager) -> Result<(), ApplyError> {
    let version = config.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if version != manager.api_version {
        return Err(ApplyError::BadRequest(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
            manager.api_version
        )));
    }
    if config.meta("managedFields").is_some() {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".into()));
    }
    validate::validate(ty, config).map_err(|problems| {
        let kind = config.get("kind").and_then(Value::as_str).unwrap_or_default();
        // The core group has no name, and its slash stands all the same.
        let slash = if version.contains('/') { "" } else { "/" };
        let (namespace, name) = (config.namespace(), config.name());
        ApplyError::Other(format!(
            "failed to create typed patch object ({namespace}/{name}; {slash}{version}, Kind={kind}): {problems}"
        ))
    })
}

struct Request<'a> {
    ty: TypeRef<'a>,
    live: &'a Value,
    config: &'a Value,
    manager: &'a Manager<'a>,
    reset: &'a [&'a str],
}

impl Request<'_> {
    fn run(&self, force: bool) -> Result<Value, ApplyError> {
        let &Request { ty, live, config, manager, reset } = self;
        let list = live.meta("managedFields").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut before = Entries::decode(list)
            .map_err(|error| ApplyError::Other(format!("failed to decode managed fields: {error}")))?;
        before.reconcile(ty);
        let reset = Set::of_paths(reset);
        let mut entries = before.clone();
        let owned = extract(Some(ty), config).recursive_difference(&reset);
        entries.replace(Operation::Apply, manager, owned);

        let mut object = content(live);
        merge::merge(Some(ty), &mut object, config);
        if let Some(last) = before.get(Operation::Apply, manager) {
            object = prune(ty, object, &entries, &last.set);
        }
        let changed = {
            let mut comparison = compare(ty, Some(live), &object);
            comparison.exclude(&reset);
            let removed = std::mem::take(&mut comparison.removed);
            let changed = comparison.changed();
            let conflicts = conflicts(&entries, manager, &changed);
            if !force && !conflicts.is_empty() {
                return Err(ApplyError::Conflicts(conflicts));
            }
            for entry in entries.iter_mut().filter(|entry| !entry.is_applier(manager)) {
                entry.lose(&changed);
                entry.lose(&removed);
            }
            !same_content(&object, live)
        };
        if let Some(own) = entries.get_mut(Operation::Apply, manager) {
            own.lose(&STRIPPED);
        }
        entries.drop_empty();
        if (changed || !entries.owns_the_same(&before))
            && let Some(own) = entries.get_mut(Operation::Apply, manager)
        {
            own.set_time(manager.stamp());
        }
        let list = entries.encode().resolve(list.to_vec());
        set_managed_fields(&mut object, list);
        Ok(object)
    }
}

/// Takes away what the manager applied last time and nobody owns now. A list item or map entry goes only where
/// everything in it goes; what nobody ever applied, such as defaults, stays with what holds it.
fn prune(ty: TypeRef, merged: Value, entries: &Entries, last: &Set) -> Value {
    let ty = Some(ty);
    // Most appliers apply what they applied before.
    if entries.iter().any(|entry| last.is_within(&entry.set)) {
        return merged;
    }
    let last = last.ensure_named_fields(ty);
    let owned = entries.iter().fold(Set::default(), |all, entry| all.union(Set::clone(&entry.set)));
    let owned = owned.ensure_named_fields(ty);
    if last.clone().difference(&owned).is_empty() {
        return merged;
    }
    let fields = |value| extract(ty, value).ensure_named_fields(ty);
    let mut pruned = merged.clone();
    remove::remove(ty, &mut pruned, &last);
    // Others own some of what went: back with it.
    let gone = fields(&merged).difference(&fields(&pruned).union(owned));
    let mut pruned = merged.clone();
    remove::remove(ty, &mut pruned, &gone);
    // What went along without having been applied by this manager comes back too.
    let gone = fields(&merged).difference(&fields(&pruned)).intersection(&last);
    let mut pruned = merged.clone();
    remove::remove(ty, &mut pruned, &gone);
    pruned
}

fn conflicts(entries: &Entries, manager: &Manager, changed: &Set) -> Vec<Conflict> {
    let mut others: Vec<_> = entries.iter().filter(|entry| !entry.is_applier(manager)).collect();
    others.sort_by_key(|entry| (entry.manager, entry.operation, entry.api_version, entry.subresource));
    let mut conflicts = Vec::new();
    for entry in others {
        let shown = entry.to_string();
        let fields = entry.set.intersection(changed).paths().into_iter();
        conflicts.extend(fields.map(|field| Conflict { manager: shown.clone(), field }));
    }
    conflicts
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [Conflict { manager, field }] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {manager}: {field}");
    }
    let mut lines: Vec<String> = Vec::new();
    let mut last = None;
    for Conflict { manager, field } in conflicts {
        if last != Some(manager) {
            lines.push(format!("conflicts with {manager}:"));
            last = Some(manager);
        }
        lines.push(format!("- {field}"));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod upstream_tests;
