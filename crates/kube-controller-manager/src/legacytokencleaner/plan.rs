//! Decides whether a legacy token Secret is marked invalid or deleted.

use std::collections::BTreeSet;

use jiff::ToSpan;
use jiff::civil::Date;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use reconcile::{Key, Write};
use serde_json::json;

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// Whether so many days have gone by since then.
pub(super) fn is_past(since: Date, days: i64, today: Date) -> bool {
    since.checked_add(days.days()).is_ok_and(|end| end < today)
}

/// The name of the account that a token is for.
pub(super) fn account(secret: &Secret) -> Option<&str> {
    annotation(secret, ACCOUNT)
}

fn annotation<'a>(secret: &'a Secret, name: &str) -> Option<&'a str> {
    secret.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// `account` is the one of the name that the token tells, `used` are the Secrets that pods of the namespace use.
pub(super) fn plan(
    secret: &Secret,
    account: &ServiceAccount,
    used: &BTreeSet<String>,
    days: i64,
    today: Date,
) -> Option<Write> {
    let name = secret.metadata.name.as_ref()?;
    let same = annotation(secret, ACCOUNT_UID)
        .is_none_or(|uid| uid.is_empty() || account.metadata.uid.as_deref() == Some(uid));
    // Those that somebody made by hand are not named by their account, and are never touched.
    let generated = same && account.secrets.iter().flatten().any(|one| one.name.as_ref() == Some(name));
    if !generated || used.contains(name) || secret.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let label = |name: &str| secret.metadata.labels.as_ref()?.get(name);
    let created = secret.metadata.creation_timestamp.as_ref()?.0.to_zoned(jiff::tz::TimeZone::UTC).date();
    let lay_unused = |since: Date| is_past(since, days, today);
    // What cannot be read may have been yesterday.
    let unused = label(LAST_USED).is_none_or(|used| used.parse().is_ok_and(lay_unused));
    if !lay_unused(created) || !unused {
        return None;
    }
    // Only as it was seen: somebody may have used it since.
    let (uid, version) = (secret.metadata.uid.clone(), secret.metadata.resource_version.clone());
    match label(INVALID_SINCE).and_then(|text| text.parse().ok()) {
        Some(invalid) if lay_unused(invalid) => {
            let preconditions = Some(Preconditions { uid, resource_version: version });
            Some(Write::delete(secret, DeleteOptions { preconditions, ..DeleteOptions::default() }))
        }
        Some(_) => None,
        None => {
            let metadata =
                json!({"uid": uid, "resourceVersion": version, "labels": {INVALID_SINCE: today.to_string()}});
            let write = Write::merge_patch::<Secret>(&Key::of(&secret.metadata), json!({"metadata": metadata}));
            Some(write.accept(&["NotFound"]))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn only_what_nobody_used_for_long_goes() {
        let check = |created: &str, labels: Value, named: bool, uses: bool, expected: Option<&str>| {
            let metadata = json!({"name": "t", "namespace": "a", "uid": "1", "resourceVersion": "7", "creationTimestamp": created,
                "labels": labels, "annotations": {ACCOUNT: "robot", ACCOUNT_UID: "2"}});
            let secret: Secret = serde_json::from_value(json!({"metadata": metadata})).expect("a secret");
            let named = if named { json!([{"name": "t"}]) } else { json!([]) };
            let account = json!({"metadata": {"name": "robot", "namespace": "a", "uid": "2"}, "secrets": named});
            let mut account: ServiceAccount = serde_json::from_value(account).expect("an account");
            let used = if uses { BTreeSet::from(["t".to_owned()]) } else { BTreeSet::new() };
            let today = "2026-06-01".parse().expect("a day");
            let write = plan(&secret, &account, &used, 365, today);
            if let Some(write) = &write {
                let body = write.body();
                let version =
                    body.pointer("/preconditions/resourceVersion").or(body.pointer("/metadata/resourceVersion"));
                assert_eq!(version, Some(&json!("7")), "only what was seen is changed");
            }
            account.metadata.uid = Some("3".into());
            assert!(plan(&secret, &account, &used, 365, today).is_none(), "another account of the same name");
            let text = write.map(|write| {
                format!(
                    "{} {}",
                    write.to_string().split(' ').next().unwrap_or_default(),
                    write.body()["metadata"]["labels"][INVALID_SINCE].as_str().unwrap_or_default()
                )
                .trim()
                .to_owned()
            });
            assert_eq!(text.as_deref(), expected, "{created} {labels}");
        };
        let (old, new) = ("2020-01-01T00:00:00Z", "2026-05-01T00:00:00Z");
        check(old, json!({}), true, false, Some("patch 2026-06-01"));
        check(new, json!({}), true, false, None);
        check(old, json!({}), false, false, None);
        check(old, json!({}), true, true, None);
        check(old, json!({LAST_USED: "2026-05-01"}), true, false, None);
        check(old, json!({LAST_USED: "2025-05-01"}), true, false, Some("patch 2026-06-01"));
        check(old, json!({LAST_USED: "never"}), true, false, None);
        check(old, json!({INVALID_SINCE: "long ago"}), true, false, Some("patch 2026-06-01"));
        check(old, json!({INVALID_SINCE: "2026-05-01"}), true, false, None);
        check(old, json!({INVALID_SINCE: "2025-05-01"}), true, false, Some("delete"));
        check(old, json!({INVALID_SINCE: "2025-05-01", LAST_USED: "2026-05-30"}), true, false, None);
    }
}
