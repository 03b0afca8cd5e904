//! Decides whether an object is deleted, from the state of its owners.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::live::{FOREGROUND, ORPHAN};

/// How an owner of an object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It lives.
    Solid,
    /// It does not exist.
    Dangling,
    /// It is deleted in the foreground, and waits for its dependents.
    Waiting,
}

/// What depends on the object itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dependents {
    None,
    Some,
    /// One of them waits for its own dependents: it may be that they wait for each other.
    SomeWaiting,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Keep,
    /// It has an owner that lives; only the references to these others go.
    RemoveOwners(Vec<String>),
    Delete {
        policy: &'static str,
        unblock_owners: bool,
    },
}

pub(super) fn decide(live: &ObjectMeta, owners: &[(String, Standing)], dependents: Dependents) -> Action {
    let has = |standing: Standing| owners.iter().any(|(_, one)| *one == standing);
    if owners.is_empty() {
        return Action::Keep;
    }
    if has(Standing::Solid) {
        let others = owners.iter().filter(|(_, standing)| *standing != Standing::Solid);
        let others: Vec<String> = others.map(|(uid, _)| uid.clone()).collect();
        return if others.is_empty() { Action::Keep } else { Action::RemoveOwners(others) };
    }
    if has(Standing::Waiting) && dependents != Dependents::None {
        // The owner waits for this object, and so this object for its own dependents. Where those wait in turn, the
        // circle is broken here.
        return Action::Delete { policy: "Foreground", unblock_owners: dependents == Dependents::SomeWaiting };
    }
    let held = |name: &str| live.finalizers.iter().flatten().any(|finalizer| finalizer == name);
    // What an earlier request asked for its dependents stays.
    let policy = match (held(ORPHAN), held(FOREGROUND)) {
        (true, _) => "Orphan",
        (_, true) => "Foreground",
        _ => "Background",
    };
    Action::Delete { policy, unblock_owners: false }
}

#[cfg(test)]
mod tests {
    use super::Standing::*;
    use super::*;

    #[test]
    fn an_object_lives_as_long_as_one_owner() {
        let check = |owners: &[Standing], finalizers: &[&str], dependents: Dependents, expected: Action| {
            let finalizers = finalizers.iter().map(|name| name.to_string()).collect();
            let live = ObjectMeta { finalizers: Some(finalizers), ..ObjectMeta::default() };
            let named = owners.iter().enumerate().map(|(index, standing)| (index.to_string(), *standing));
            let owners: Vec<(String, Standing)> = named.collect();
            assert_eq!(decide(&live, &owners, dependents), expected, "{owners:?} {dependents:?}");
        };
        let delete = |policy| Action::Delete { policy, unblock_owners: false };
        let remove = |uids: &[&str]| Action::RemoveOwners(uids.iter().map(|uid| uid.to_string()).collect());
        check(&[], &[], Dependents::Some, Action::Keep);
        check(&[Solid], &[], Dependents::Some, Action::Keep);
        check(&[Dangling], &[], Dependents::Some, delete("Background"));
        check(&[Dangling], &["orphan"], Dependents::Some, delete("Orphan"));
        check(&[Dangling], &["foregroundDeletion"], Dependents::Some, delete("Foreground"));
        check(&[Dangling, Solid, Waiting], &[], Dependents::None, remove(&["0", "2"]));
        check(&[Waiting], &[], Dependents::None, delete("Background"));
        check(&[Waiting, Dangling], &[], Dependents::Some, delete("Foreground"));
        check(&[Waiting], &[], Dependents::SomeWaiting, Action::Delete { policy: "Foreground", unblock_owners: true });
    }
}
