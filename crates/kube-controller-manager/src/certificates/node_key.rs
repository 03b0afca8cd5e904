//! Which machine a node's name belongs to: the one that had it first. A machine that joins shows a key of its own and signs its
//! request with it; the hash of the key is kept in a Secret beside the name. A token alone then takes over no node.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, OwnerReference};
use reconcile::{Error, Key, Plan, Write};
use ring::signature::{ED25519, UnparsedPublicKey};

use crate::Context;

/// Annotations of a request for a certificate.
pub const KEY: &str = "knarr.dev/node-key";
pub const SIGNATURE: &str = "knarr.dev/node-key-signature";

/// The Secrets that say which key a node has.
pub const NAMESPACE: &str = "kube-system";
pub(super) const SECRETS: &str = "type=knarr.dev/node-key";
const SECRET_TYPE: &str = "knarr.dev/node-key";
const SUFFIX: &str = ".node-password.knarr";
const FIELD: &str = "hash";

/// A machine that got its certificate makes its Node within this time, or its name is free again.
const JOIN_TIME_MAX: SignedDuration = SignedDuration::from_mins(10);

pub fn secret_name(node: &str) -> String {
    format!("{node}{SUFFIX}")
}

/// What the key signs: nothing else can be taken for it.
pub fn signed(request: &[u8]) -> Vec<u8> {
    [b"knarr node key\0", request].concat()
}

/// What is kept of a public key.
pub fn hash(key: &[u8]) -> String {
    ring::digest::digest(&ring::digest::SHA256, key).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of the key that the request shows, if it is really signed with it.
pub fn shown(annotations: &BTreeMap<String, String>, request: &[u8]) -> Option<String> {
    let bytes = |name: &str| STANDARD.decode(annotations.get(name)?).ok();
    let (key, signature) = (bytes(KEY)?, bytes(SIGNATURE)?);
    UnparsedPublicKey::new(&ED25519, &key).verify(&signed(request), &signature).ok()?;
    Some(hash(&key))
}

/// The Secret that binds a name to a key.
pub fn secret(node: &str, hash: &str) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(node)),
            namespace: Some(NAMESPACE.into()),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.into()),
        data: Some([(FIELD.to_owned(), ByteString(hash.into()))].into()),
        ..Secret::default()
    }
}

/// A request for a node's client certificate, as far as its name is concerned.
pub(super) struct Claim<'a> {
    /// The node itself asks, with the certificate it has.
    pub own: bool,
    pub shown: Option<&'a str>,
    pub kept: Option<&'a Secret>,
    pub node_exists: bool,
    pub now: Timestamp,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As upstream would.
    Approve,
    /// And remember the key from now on.
    Bind,
    Deny(&'static str),
}

pub(super) fn judge(claim: &Claim<'_>) -> Verdict {
    let matches = claim.kept.and_then(kept_hash).is_some_and(|kept| claim.shown == Some(kept.as_str()));
    match (claim.own, claim.kept) {
        (true, None) if claim.shown.is_some() => Verdict::Bind,
        (true, _) => Verdict::Approve,
        (false, Some(_)) if matches => Verdict::Approve,
        (false, Some(kept)) if !claim.node_exists && is_stale(kept, claim.now) => bind(claim),
        (false, Some(_)) => Verdict::Deny(
            "a node of that name has joined from another machine: choose another name, or remove that node with `kubectl delete node` if it is gone",
        ),
        (false, None) if claim.node_exists => Verdict::Deny(
            "a node of that name exists and has no key yet: remove it with `kubectl delete node` if its machine is gone",
        ),
        (false, None) => bind(claim),
    }
}

/// A kubelet of another kind has no key; its name is as free as upstream leaves it.
fn bind(claim: &Claim<'_>) -> Verdict {
    if claim.shown.is_some() { Verdict::Bind } else { Verdict::Approve }
}

fn kept_hash(secret: &Secret) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(FIELD)?.0.clone()).ok()
}

/// The node was there and is gone, or never came.
fn is_stale(secret: &Secret, now: Timestamp) -> bool {
    let made = secret.metadata.creation_timestamp.as_ref().map(|time| time.0);
    is_owned(secret) || made.is_some_and(|made| now.duration_since(made) > JOIN_TIME_MAX)
}

fn is_owned(secret: &Secret) -> bool {
    secret.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty())
}

/// Writes the binding, in the place of a stale one.
pub(super) fn write(node: &str, hash: &str, kept: Option<&Secret>) -> Write {
    let mut wanted = secret(node, hash);
    match kept {
        None => Write::create(&wanted),
        Some(kept) => {
            wanted.metadata.resource_version = kept.metadata.resource_version.clone();
            Write::update(&wanted)
        }
    }
}

/// The key of a Secret, as it is queued beside those of requests.
pub(super) fn key_of_node(node: &Node) -> Key {
    Key::new(NAMESPACE, secret_name(node.metadata.name.as_deref().unwrap_or_default()))
}

/// A binding belongs to its Node and goes with it.
pub(super) fn reconcile(cx: &Context, key: &Key) -> Result<Plan, Error> {
    let Some(secret) = cx.cache_where::<Secret>(SECRETS).get(key) else { return Ok(Plan::nothing()) };
    let Some(name) = key.name.strip_suffix(SUFFIX) else { return Ok(Plan::nothing()) };
    let node = cx.cache::<Node>().get(&Key::new("", name));
    Ok(follow(&secret, node.as_deref()))
}

fn follow(secret: &Secret, node: Option<&Node>) -> Plan {
    match node {
        Some(node) if !is_owned(secret) => {
            let mut owned = secret.clone();
            owned.metadata.owner_references = Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: node.metadata.name.clone().unwrap_or_default(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            }]);
            Plan::one(Write::update(&owned).accept(&["NotFound"]))
        }
        None if is_owned(secret) => Plan::one(Write::delete(secret, DeleteOptions::default()).accept(&["NotFound"])),
        _ => Plan::nothing(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-06-01T00:00:00Z".parse().unwrap()
    }

    fn kept(minutes: i64, owned: bool) -> Secret {
        let mut secret = secret("n1", "abc");
        let made = now() - SignedDuration::from_mins(minutes);
        secret.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(made));
        if owned {
            secret.metadata.owner_references = Some(vec![OwnerReference::default()]);
        }
        secret
    }

    #[test]
    fn a_name_stays_with_the_machine_that_had_it_first() {
        let check = |own: bool, shown: Option<&str>, kept: Option<&Secret>, node_exists: bool, expected: &str| {
            let verdict = judge(&Claim { own, shown, kept, node_exists, now: now() });
            let said = format!("{verdict:?}");
            assert!(said.starts_with(expected), "{own} {shown:?} {node_exists}: {said}");
        };
        let (fresh, old, gone) = (kept(1, false), kept(60, false), kept(1, true));
        // A new name, with a key and without.
        check(false, Some("abc"), None, false, "Bind");
        check(false, None, None, false, "Approve");
        // The same machine again, and another one, and one without a key.
        check(false, Some("abc"), Some(&gone), true, "Approve");
        check(false, Some("xyz"), Some(&gone), true, "Deny");
        check(false, None, Some(&gone), true, "Deny");
        // Before the Node is there, the name is taken already; not for ever.
        check(false, Some("xyz"), Some(&fresh), false, "Deny");
        check(false, Some("xyz"), Some(&old), false, "Bind");
        // After `kubectl delete node`.
        check(false, Some("xyz"), Some(&gone), false, "Bind");
        // A node of an older version, and how it gets its key.
        check(false, Some("xyz"), None, true, "Deny");
        check(true, Some("abc"), None, true, "Bind");
        check(true, None, None, true, "Approve");
        check(true, Some("xyz"), Some(&gone), true, "Approve");
    }

    #[test]
    fn a_binding_goes_with_its_node() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "7"}})).unwrap();
        let plan = follow(&kept(1, false), Some(&node));
        assert_eq!(plan.writes[0].body()["metadata"]["ownerReferences"][0]["uid"], "7");
        assert!(follow(&kept(1, true), Some(&node)).writes.is_empty());
        assert!(follow(&kept(1, true), None).writes[0].to_string().starts_with("delete"));
        assert!(follow(&kept(1, false), None).writes.is_empty());
    }
}
