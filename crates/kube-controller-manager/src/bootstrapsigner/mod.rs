//! Whoever holds a bootstrap token can check that the public `cluster-info` is the true one: it is signed with each token.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use reconcile::{Key, On, Plan, Rule, Work, Write};
use ring::hmac;

use crate::common::bootstrap::{NAMESPACE, TOKENS, ends, text};
use crate::{Context, Controller};

const CLUSTER_INFO: &str = "metadata.name=cluster-info";
const PREFIX: &str = "jws-kubeconfig-";

pub(crate) static CONTROLLER: Controller = Controller {
    name: "bootstrap-signer-controller",
    account: "bootstrap-signer",
    source: "bootstrap-signer",
    // Bound in kube-public and kube-system only, each for its own part.
    rules: &[
        Rule { groups: &[""], resources: &["configmaps"], verbs: &["get", "list", "watch", "update"] },
        Rule { groups: &[""], resources: &["secrets"], verbs: &["get", "list", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::selected(CLUSTER_INFO, |_, _: &ConfigMap| vec![key()]),
            &On::selected(TOKENS, |_, _: &Secret| vec![key()]),
        ],
        workers_max: 1,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

fn key() -> Key {
    Key::new("kube-public", "cluster-info")
}

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(map) = cx.cache_where::<ConfigMap>(CLUSTER_INFO).get(key) else { return Ok(Plan::nothing()) };
    Ok(plan(&map, &cx.cache_where::<Secret>(TOKENS).in_namespace(NAMESPACE), cx.now()))
}

fn plan(map: &ConfigMap, secrets: &[Arc<Secret>], now: Timestamp) -> Plan {
    let mut data = map.data.clone().unwrap_or_default();
    let Some(kubeconfig) = data.get("kubeconfig").cloned() else { return Plan::nothing() };
    let valid = secrets.iter().filter(|secret| {
        secret.metadata.deletion_timestamp.is_none()
            && text(secret, "usage-bootstrap-signing") == "true"
            && ends(secret).is_none_or(|end| end > now)
    });
    let signatures: BTreeMap<String, String> = valid
        .filter_map(|secret| {
            let (id, key) = (text(secret, "token-id"), text(secret, "token-secret"));
            let named = secret.metadata.name.as_deref() == Some(&format!("bootstrap-token-{id}"));
            (named && !key.is_empty()).then(|| (format!("{PREFIX}{id}"), sign(&kubeconfig, id, key)))
        })
        .collect();
    data.retain(|name, _| !name.starts_with(PREFIX));
    data.extend(signatures);
    let mut plan = if Some(&data) == map.data.as_ref() {
        Plan::nothing()
    } else {
        Plan::one(Write::update(&ConfigMap { data: Some(data), ..map.clone() }).accept(&["NotFound"]))
    };
    let next = secrets.iter().filter_map(|secret| ends(secret)).filter(|end| *end > now).min();
    if let Some(left) = next.and_then(|end| Duration::try_from(end.duration_since(now)).ok()) {
        plan.come_back(left);
    }
    plan
}

/// A web signature of HMAC-SHA256 whose content is left out, because it stands next to it.
fn sign(content: &str, id: &str, secret: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(signature))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(id: &str, fields: &[(&str, &str)]) -> Arc<Secret> {
        let name = format!("bootstrap-token-{id}");
        let mut secret: Secret = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        let fields = [("token-id", id), ("token-secret", "0123456789abcdef")].into_iter().chain(fields.iter().copied());
        let data = fields.map(|(name, text)| (name.to_owned(), k8s_openapi::ByteString(text.into())));
        secret.data = Some(data.collect());
        Arc::new(secret)
    }

    #[test]
    fn valid_tokens_sign_and_others_do_not() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let map = json!({"metadata": {"name": "cluster-info", "namespace": "kube-public"},
            "data": {"kubeconfig": "text", "jws-kubeconfig-gone00": "x", "mine": "y"}});
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        let signing = ("usage-bootstrap-signing", "true");
        let secrets = [
            secret("abcdef", &[signing, ("expiration", "2026-01-01T00:01:00Z")]),
            secret("noyes1", &[]),
            secret("ended1", &[signing, ("expiration", "2025-01-01T00:00:00Z")]),
        ];
        let first = plan(&map, &secrets, now);
        let data = first.writes[0].body()["data"].as_object().unwrap().clone();
        assert_eq!(data.keys().collect::<Vec<_>>(), ["jws-kubeconfig-abcdef", "kubeconfig", "mine"]);
        assert_eq!(first.again, Some(Duration::from_secs(60)));
        let signed: ConfigMap = serde_json::from_value(first.writes[0].body().clone()).unwrap();
        assert!(plan(&signed, &secrets, now).writes.is_empty());
        assert!(plan(&ConfigMap::default(), &secrets, now).writes.is_empty());
    }

    #[test]
    fn a_signature_can_be_checked_by_who_holds_the_token() {
        let signature = sign("text", "abcdef", "secret");
        let (header, rest) = signature.split_once("..").unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(header).unwrap(), br#"{"alg":"HS256","kid":"abcdef"}"#);
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode("text"));
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
        hmac::verify(&key, signed.as_bytes(), &URL_SAFE_NO_PAD.decode(rest).unwrap()).unwrap();
    }
}
