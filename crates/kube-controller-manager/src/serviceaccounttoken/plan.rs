//! What a Secret of type `kubernetes.io/service-account-token` lacks.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::{Plan, Write};
use serde_json::{Value, json};

use super::sign::TokenKey;

pub(super) const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";

pub(super) fn account_of(secret: &Secret) -> Option<&str> {
    secret.metadata.annotations.as_ref()?.get(NAME).map(String::as_str).filter(|name| !name.is_empty())
}

pub(super) fn plan(key: &TokenKey, root_ca: Option<&str>, secret: &Secret, account: Option<&ServiceAccount>) -> Plan {
    let Some(name) = account_of(secret) else { return Plan::nothing() };
    let annotations = secret.metadata.annotations.clone().unwrap_or_default();
    let uid = annotations.get(UID).filter(|uid| !uid.is_empty());
    let same = |account: &&ServiceAccount| uid.is_none_or(|uid| account.metadata.uid.as_ref() == Some(uid));
    let Some(account) = account.filter(same) else {
        // Its account is gone, or another one has the name now.
        return Plan::one(Write::delete(secret, DeleteOptions::default()));
    };
    if secret.metadata.deletion_timestamp.is_some() {
        return Plan::nothing();
    }
    let (namespace, secret_name) = (text(&secret.metadata.namespace), text(&secret.metadata.name));
    let account_uid = text(&account.metadata.uid);
    let mut data = secret.data.clone().unwrap_or_default();
    let lacks = |data: &BTreeMap<String, ByteString>, name: &str| data.get(name).is_none_or(|bytes| bytes.0.is_empty());
    if let Some(authority) = root_ca {
        data.insert("ca.crt".into(), ByteString(authority.as_bytes().to_vec()));
    }
    if lacks(&data, "namespace") {
        data.insert("namespace".into(), ByteString(namespace.as_bytes().to_vec()));
    }
    if lacks(&data, "token") {
        let token = key.sign(&claims(namespace, name, account_uid, secret_name));
        data.insert("token".into(), ByteString(token.into_bytes()));
    }
    let mut wanted = annotations.clone();
    wanted.insert(UID.into(), account_uid.to_owned());
    if Some(&data) == secret.data.as_ref() && wanted == annotations {
        return Plan::nothing();
    }
    let mut secret = secret.clone();
    secret.data = Some(data);
    secret.metadata.annotations = Some(wanted);
    Plan::one(Write::update(&secret).accept(&["NotFound"]))
}

fn claims(namespace: &str, account: &str, uid: &str, secret: &str) -> Value {
    json!({
        "iss": "kubernetes/serviceaccount",
        "sub": format!("system:serviceaccount:{namespace}:{account}"),
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": account,
        "kubernetes.io/serviceaccount/service-account.uid": uid,
    })
}

fn text(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(annotations: Value, data: &[(&str, &str)]) -> Secret {
        let metadata = json!({"name": "s", "namespace": "a", "uid": "9", "annotations": annotations});
        let mut secret: Secret = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        secret.data = Some(data.iter().map(|(name, text)| ((*name).into(), ByteString((*text).into()))).collect());
        secret
    }

    #[test]
    fn a_secret_of_an_account_is_filled_in() {
        let key = TokenKey::for_tests();
        let account: ServiceAccount =
            serde_json::from_value(json!({"metadata": {"name": "robot", "namespace": "a", "uid": "1"}})).unwrap();
        let plan_for =
            |secret: &Secret, account: Option<&ServiceAccount>| plan(&key, Some("authority"), secret, account);
        let new = plan_for(&secret(json!({NAME: "robot"}), &[]), Some(&account));
        let filled: Secret = serde_json::from_value(new.writes[0].body().clone()).unwrap();
        let data = filled.data.as_ref().unwrap();
        assert_eq!((data["ca.crt"].0.as_slice(), data["namespace"].0.as_slice()), (&b"authority"[..], &b"a"[..]));
        assert_eq!(data["token"].0.iter().filter(|byte| **byte == b'.').count(), 2);
        assert_eq!(filled.metadata.annotations.as_ref().unwrap()[UID], "1");
        assert!(plan_for(&filled, Some(&account)).writes.is_empty());
        let deleted = |plan: Plan| plan.writes[0].to_string() == "delete /api/v1/namespaces/a/secrets/s";
        assert!(deleted(plan_for(&filled, None)));
        assert!(deleted(plan_for(&secret(json!({NAME: "robot", UID: "old"}), &[]), Some(&account))));
        assert!(plan_for(&secret(json!({}), &[]), None).writes.is_empty());
    }
}
