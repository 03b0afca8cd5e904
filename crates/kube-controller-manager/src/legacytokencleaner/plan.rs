//! What becomes of one token.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::ToSpan;
use jiff::civil::Date;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::{Key, Write};
use serde_json::json;

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const ACCOUNT: &str = "kubernetes.io/service-account.name";

/// Whether so many days have gone by since then.
pub(super) fn is_past(since: Date, days: i64, today: Date) -> bool {
    since.checked_add(days.days()).is_ok_and(|end| end < today)
}

/// The Secrets that a pod mounts.
pub(super) fn mounted(pod: &Pod) -> impl Iterator<Item = String> + '_ {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| volume.secret.as_ref()?.secret_name.clone())
}

pub(super) fn plan(
    secret: &Secret,
    accounts: &[Arc<ServiceAccount>],
    mounted: &BTreeSet<String>,
    days: i64,
    today: Date,
) -> Option<Write> {
    let name = secret.metadata.name.as_ref()?;
    let account = secret.metadata.annotations.as_ref()?.get(ACCOUNT)?;
    let account = accounts.iter().find(|one| one.metadata.name.as_ref() == Some(account))?;
    // Those that somebody made by hand are not named by their account, and are never touched.
    let generated = account.secrets.iter().flatten().any(|one| one.name.as_ref() == Some(name));
    if !generated || mounted.contains(name) || secret.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let label = |name: &str| -> Option<Date> {
        let text = secret.metadata.labels.as_ref()?.get(name)?;
        text.parse().ok()
    };
    let created = secret.metadata.creation_timestamp.as_ref()?.0.to_zoned(jiff::tz::TimeZone::UTC).date();
    let lay_unused = |since: Date| is_past(since, days, today);
    if !lay_unused(created) || label(LAST_USED).is_some_and(|used| !lay_unused(used)) {
        return None;
    }
    match label(INVALID_SINCE) {
        Some(invalid) if lay_unused(invalid) => Some(Write::delete(secret, DeleteOptions::default())),
        Some(_) => None,
        None => {
            let metadata = json!({"uid": secret.metadata.uid, "resourceVersion": secret.metadata.resource_version,
                "labels": {INVALID_SINCE: today.to_string()}});
            let write = Write::merge_patch::<Secret>(&Key::of(&secret.metadata), json!({"metadata": metadata}));
            Some(write.accept(&["NotFound", "Conflict"]))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn only_what_nobody_used_for_long_goes() {
        let check = |created: &str, labels: Value, named: bool, mounts: bool, expected: Option<&str>| {
            let metadata = json!({"name": "t", "namespace": "a", "uid": "1", "creationTimestamp": created, "labels": labels,
                "annotations": {ACCOUNT: "robot"}});
            let secret: Secret = serde_json::from_value(json!({"metadata": metadata})).expect("a secret");
            let named = if named { json!([{"name": "t"}]) } else { json!([]) };
            let account = json!({"metadata": {"name": "robot", "namespace": "a"}, "secrets": named});
            let account: ServiceAccount = serde_json::from_value(account).expect("an account");
            let mounted = if mounts { BTreeSet::from(["t".to_owned()]) } else { BTreeSet::new() };
            let today = "2026-06-01".parse().expect("a day");
            let write = plan(&secret, &[Arc::new(account)], &mounted, 365, today);
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
        check(old, json!({INVALID_SINCE: "2026-05-01"}), true, false, None);
        check(old, json!({INVALID_SINCE: "2025-05-01"}), true, false, Some("delete"));
        check(old, json!({INVALID_SINCE: "2025-05-01", LAST_USED: "2026-05-30"}), true, false, None);
    }
}
