//! What a migration does next, and how its status says so.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::storagemigration::v1beta1::{StorageVersionMigration, StorageVersionMigrationSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use reconcile::{Plan, Write};

const RUNNING: &str = "Running";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    /// It is its turn.
    Begin,
    /// What changes from here on is written in today's form anyway.
    Revision,
    Rewrite {
        until: String,
    },
    /// It has ended, and does not say so of itself yet.
    Finish {
        succeeded: bool,
    },
}

pub(super) fn step(migration: &StorageVersionMigration, all: &[Arc<StorageVersionMigration>]) -> Step {
    if is_ended(migration) {
        let succeeded = is(migration, SUCCEEDED);
        return if is(migration, RUNNING) { Step::Finish { succeeded } } else { Step::Nothing };
    }
    if is(migration, RUNNING) {
        let revision = migration.status.as_ref().and_then(|status| status.resource_version.clone());
        let revision = revision.filter(|revision| !revision.is_empty());
        return revision.map_or(Step::Revision, |until| Step::Rewrite { until });
    }
    let turn = next(all, &migration.spec);
    if turn.is_some_and(|turn| turn.metadata.name == migration.metadata.name) { Step::Begin } else { Step::Nothing }
}

/// Whose turn it is of those that name the same resource: who runs, or the oldest that has not begun.
pub(super) fn next(
    all: &[Arc<StorageVersionMigration>],
    spec: &Option<StorageVersionMigrationSpec>,
) -> Option<Arc<StorageVersionMigration>> {
    let open = all.iter().filter(|one| one.spec == *spec && !is_ended(one));
    let first = |one: &&Arc<StorageVersionMigration>, other: &&Arc<StorageVersionMigration>| {
        is(other, RUNNING).cmp(&is(one, RUNNING)).then_with(|| older(one, other))
    };
    open.min_by(first).cloned()
}

fn older(one: &StorageVersionMigration, other: &StorageVersionMigration) -> Ordering {
    let created = |one: &StorageVersionMigration| one.metadata.creation_timestamp.as_ref().map(|time| time.0);
    created(one).cmp(&created(other)).then_with(|| one.metadata.name.cmp(&other.metadata.name))
}

fn is(migration: &StorageVersionMigration, kind: &str) -> bool {
    let conditions = migration.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

fn is_ended(migration: &StorageVersionMigration) -> bool {
    is(migration, SUCCEEDED) || is(migration, FAILED)
}

/// A whole number of any length, neither zero nor with zeros before it.
pub(super) fn is_revision(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

pub(super) fn begun(migration: &StorageVersionMigration, now: Timestamp) -> Plan {
    with(migration, RUNNING, "True", ("MigrationRunning", "The migration is running"), now)
}

pub(super) fn finished(migration: &StorageVersionMigration, now: Timestamp) -> Plan {
    with(migration, RUNNING, "False", ("MigrationCompleted", "Migration completed"), now)
}

pub(super) fn succeeded(migration: &StorageVersionMigration, now: Timestamp) -> Plan {
    with(migration, SUCCEEDED, "True", ("StorageVersionMigrationSucceeded", ""), now)
}

pub(super) fn failed(migration: &StorageVersionMigration, now: Timestamp, why: &str) -> Plan {
    with(migration, FAILED, "True", ("StorageVersionMigrationFailed", why), now)
}

pub(super) fn from_revision(migration: &StorageVersionMigration, revision: String) -> Plan {
    let mut changed = migration.clone();
    changed.status.get_or_insert_default().resource_version = Some(revision);
    Plan::one(Write::update_sub(&changed, "status"))
}

fn with(
    migration: &StorageVersionMigration,
    kind: &str,
    status: &str,
    (reason, message): (&str, &str),
    now: Timestamp,
) -> Plan {
    let mut changed = migration.clone();
    let conditions = changed.status.get_or_insert_default().conditions.get_or_insert_default();
    let condition = Condition {
        type_: kind.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: Time(now),
        observed_generation: migration.metadata.generation.filter(|_| status == "False"),
    };
    match conditions.iter_mut().find(|one| one.type_ == kind) {
        Some(found) => *found = condition,
        None => conditions.push(condition),
    }
    Plan::one(Write::update_sub(&changed, "status"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn migration(name: &str, minute: u8, resource: &str, conditions: &[(&str, &str)]) -> Arc<StorageVersionMigration> {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, status)| {
                json!({"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        let object = json!({
            "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z")},
            "spec": {"resource": {"group": "", "resource": resource}}, "status": {"conditions": conditions},
        });
        Arc::new(serde_json::from_value(object).expect("a migration"))
    }

    #[test]
    fn one_of_a_resource_at_a_time_and_the_oldest_first() {
        let all = [
            migration("b", 1, "secrets", &[]),
            migration("a", 1, "secrets", &[]),
            migration("c", 0, "pods", &[]),
            migration("done", 0, "secrets", &[("Running", "False"), ("Succeeded", "True")]),
        ];
        let steps: Vec<Step> = all.iter().map(|one| step(one, &all)).collect();
        assert_eq!(steps, [Step::Nothing, Step::Begin, Step::Begin, Step::Nothing]);
        let runs = [migration("a", 0, "secrets", &[]), migration("b", 1, "secrets", &[("Running", "True")])];
        assert_eq!(runs.each_ref().map(|one| step(one, &runs)), [Step::Nothing, Step::Revision]);
    }

    #[test]
    fn what_has_ended_says_so_and_makes_room() {
        let ended = [
            migration("a", 0, "secrets", &[("Running", "True"), ("Failed", "True")]),
            migration("b", 1, "secrets", &[]),
        ];
        assert_eq!(ended.each_ref().map(|one| step(one, &ended)), [Step::Finish { succeeded: false }, Step::Begin]);
        let mut from = (*migration("a", 0, "secrets", &[("Running", "True")])).clone();
        from.status.get_or_insert_default().resource_version = Some("7".into());
        assert_eq!(step(&from, &[]), Step::Rewrite { until: "7".into() });
    }

    #[test]
    fn revisions_are_numbers_that_are_not_zero() {
        assert!(is_revision("1") && is_revision("90071992547409931234"));
        assert!(!is_revision("") && !is_revision("0") && !is_revision("01") && !is_revision("a"));
    }
}
