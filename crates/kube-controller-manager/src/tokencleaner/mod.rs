//! Bootstrap tokens that have ended are removed.

use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::{Key, On, Plan, Rule, Work, Write};

use crate::common::bootstrap::{NAMESPACE, TOKENS, ends};
use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "token-cleaner-controller",
    account: "token-cleaner",
    source: "token-cleaner",
    // Bound in kube-system only.
    rules: &[
        Rule { groups: &[""], resources: &["secrets"], verbs: &["get", "watch", "list", "delete"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[&On::selected(TOKENS, |_, secret: &Secret| vec![Key::of(&secret.metadata)])],
        workers_max: 1,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let secret = cx.cache_where::<Secret>(TOKENS).get(key).filter(|_| key.namespace == NAMESPACE);
    Ok(secret.map_or_else(Plan::nothing, |secret| plan(&secret, cx.now())))
}

fn plan(secret: &Secret, now: Timestamp) -> Plan {
    let Some(end) = ends(secret) else { return Plan::nothing() };
    match Duration::try_from(end.duration_since(now)) {
        Ok(left) if !left.is_zero() => Plan::after(left),
        Ok(_) | Err(_) => Plan::one(Write::delete(secret, DeleteOptions::default())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ended_tokens_go() {
        let check = |expiration: Option<&str>, goes: bool, comes_back: bool| {
            let mut secret: Secret = serde_json::from_value(json!({"metadata": {"name": "t", "uid": "1"}})).unwrap();
            let data = expiration.map(|text| ("expiration".to_owned(), k8s_openapi::ByteString(text.into())));
            secret.data = Some(data.into_iter().collect());
            let plan = plan(&secret, "2026-01-01T00:00:00Z".parse().unwrap());
            assert_eq!((!plan.writes.is_empty(), plan.again.is_some()), (goes, comes_back), "{expiration:?}");
        };
        check(None, false, false);
        check(Some("2026-01-01T00:00:01Z"), false, true);
        check(Some("2026-01-01T00:00:00Z"), true, false);
        check(Some("2025-12-31T23:00:00-02:00"), false, true);
        check(Some("soon"), true, false);
    }
}
