//! Bootstrap tokens `<id>.<secret>`: short-lived tokens with which a new node asks for its certificate.
//! Each is a Secret in kube-system; deleting the Secret ends the token.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use machinery::node::Node;
use ring::hmac;
use ring::rand::SystemRandom;

use super::{Objects, User};

const GROUP: &str = "system:bootstrappers";

/// `None` for everything that is not a valid bootstrap token; the reason goes to the log, not to the guesser.
pub fn authenticate(token: &str, objects: &dyn Objects, now: Timestamp) -> Option<User> {
    let (id, secret) = token.split_once('.')?;
    if !is_word(id, 6) || !is_word(secret, 16) {
        return None;
    }
    let name = format!("bootstrap-token-{id}");
    let object = objects.get("secrets", "kube-system", &name)?;
    let object = Node::root(&object);
    match check(&object, id, secret, now) {
        Ok(groups) => Some(User { name: format!("system:bootstrap:{id}"), groups, ..User::default() }),
        Err(reason) => {
            tracing::debug!(secret = name, %reason, "rejected bootstrap token");
            None
        }
    }
}

/// What is wrong with the Secret of a bootstrap token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Refused {
    #[error("it is being deleted")]
    Deleted,
    #[error("its type is not bootstrap.kubernetes.io/token")]
    Type,
    #[error("its token-secret is another")]
    Secret,
    #[error("its token-id is not that of its name")]
    Id,
    #[error("its expiration is not a time")]
    Expiration,
    #[error("it has expired")]
    Expired,
    #[error("it is not meant for authentication")]
    Usage,
    #[error("its auth-extra-groups are not text")]
    Groups,
    #[error("one of its auth-extra-groups is not system:bootstrappers:...")]
    Group,
}

fn check(object: &Node, id: &str, secret: &str, now: Timestamp) -> Result<Vec<String>, Refused> {
    if object.at("metadata").has("deletionTimestamp") {
        return Err(Refused::Deleted);
    }
    if object.text("type") != "bootstrap.kubernetes.io/token" {
        return Err(Refused::Type);
    }
    let data = object.at("data");
    let field = |name: &str| -> Vec<u8> { STANDARD.decode(data.text(name)).unwrap_or_default() };
    if !are_equal(&field("token-secret"), secret.as_bytes()) {
        return Err(Refused::Secret);
    }
    if field("token-id") != id.as_bytes() {
        return Err(Refused::Id);
    }
    let expiration = String::from_utf8(field("expiration")).unwrap_or_default();
    if !expiration.is_empty() {
        let end: Timestamp = expiration.parse().map_err(|_| Refused::Expiration)?;
        if now >= end {
            return Err(Refused::Expired);
        }
    }
    if field("usage-bootstrap-authentication") != b"true" {
        return Err(Refused::Usage);
    }
    let extra = String::from_utf8(field("auth-extra-groups")).map_err(|_| Refused::Groups)?;
    let mut groups = BTreeSet::from([GROUP.to_string()]);
    for group in extra.split(',').filter(|group| !group.is_empty()) {
        if !is_extra_group(group) {
            return Err(Refused::Group);
        }
        groups.insert(group.to_string());
    }
    Ok(groups.into_iter().collect())
}

/// Takes as long for a guess that is nearly right as for any other.
fn are_equal(stored: &[u8], shown: &[u8]) -> bool {
    let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
    key.is_ok_and(|key| hmac::verify(&key, shown, hmac::sign(&key, stored).as_ref()).is_ok())
}

fn is_word(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// `system:bootstrappers:` and up to 256 of `a-z 0-9 : -`, not ending in `:` or `-`.
fn is_extra_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    rest.len() <= 256
        && rest.bytes().all(|byte| plain(byte) || byte == b':' || byte == b'-')
        && rest.bytes().last().is_some_and(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::authn::fixtures::Map;

    const TOKEN: &str = "abcdef.0123456789abcdef";

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = json!({});
        let usual = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("expiration", "2030-01-01T00:00:00Z"),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (key, value) in usual.iter().chain(changes) {
            data[*key] = STANDARD.encode(value).into();
        }
        json!({
            "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
            "type": "bootstrap.kubernetes.io/token", "data": data,
        })
    }

    #[test]
    fn tokens_are_judged() {
        let now: Timestamp = "2029-01-01T00:00:00Z".parse().unwrap();
        let check = |what: &str, object: Value, token: &str, expected: Option<&[&str]>| {
            let objects = Map::default().with("secrets", [object]);
            let groups = authenticate(token, &objects, now).map(|user| {
                assert_eq!(user.name, "system:bootstrap:abcdef");
                user.groups
            });
            assert_eq!(groups, expected.map(|groups| groups.iter().map(|group| group.to_string()).collect()), "{what}");
        };
        check("a good one", secret(&[]), TOKEN, Some(&[GROUP]));
        let groups = ("auth-extra-groups", "system:bootstrappers:worker,system:bootstrappers:a:b");
        let all: &[&str] = &[GROUP, "system:bootstrappers:a:b", "system:bootstrappers:worker"];
        check("with groups", secret(&[groups]), TOKEN, Some(all));
        check("never ends", secret(&[("expiration", "")]), TOKEN, Some(&[GROUP]));
        check("wrong secret", secret(&[]), "abcdef.0123456789abcdee", None);
        check("wrong id", secret(&[]), "abcdeg.0123456789abcdef", None);
        check("not of the form", secret(&[]), "ABCDEF.0123456789abcdef", None);
        check("id of another", secret(&[("token-id", "zzzzzz")]), TOKEN, None);
        check("expired", secret(&[("expiration", "2028-01-01T00:00:00Z")]), TOKEN, None);
        check("no time", secret(&[("expiration", "soon")]), TOKEN, None);
        check("for signing only", secret(&[("usage-bootstrap-authentication", "false")]), TOKEN, None);
        check("foreign group", secret(&[("auth-extra-groups", "system:masters")]), TOKEN, None);
        check("bad group", secret(&[("auth-extra-groups", "system:bootstrappers:")]), TOKEN, None);
        let mut deleted = secret(&[]);
        deleted["metadata"]["deletionTimestamp"] = "2028-12-31T00:00:00Z".into();
        check("being deleted", deleted, TOKEN, None);
        let mut opaque = secret(&[]);
        opaque["type"] = "Opaque".into();
        check("another type", opaque, TOKEN, None);
    }
}
