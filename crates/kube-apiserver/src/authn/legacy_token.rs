//! Tokens kept in Secrets of type `kubernetes.io/service-account-token`: no end of their own, they end with the Secret.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use machinery::node::Node;

use super::service_account::{check_account, groups, user_name};
use super::token_error::TokenError;
use super::token_use::Uses;
use super::{Objects, User};

pub(crate) const ISSUER: &str = "kubernetes/serviceaccount";
/// Put on tokens nobody used for a year; the token is refused until the label is gone.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

pub fn check(
    claims: &Node,
    token: &str,
    objects: &dyn Objects,
    uses: &Uses,
    now: Timestamp,
) -> Result<User, TokenError> {
    let claim = |name: &'static str| match claims.text(&format!("kubernetes.io/serviceaccount/{name}")) {
        "" => Err(TokenError::NoClaim(name)),
        text => Ok(text),
    };
    let (namespace, secret_name) = (claim("namespace")?, claim("secret.name")?);
    let (name, uid) = (claim("service-account.name")?, claim("service-account.uid")?);
    if claims.text("sub") != user_name(namespace, name) {
        return Err(TokenError::Subject);
    }
    let secret = objects.get("secrets", namespace, secret_name).ok_or(TokenError::Invalidated)?;
    let secret = Node::root(&secret);
    if secret.at("metadata").has("deletionTimestamp") {
        return Err(TokenError::Invalidated);
    }
    let stored = STANDARD.decode(secret.at("data").text("token")).unwrap_or_default();
    // The signature is proven already, so the time this takes tells nobody anything.
    if stored != token.as_bytes() {
        return Err(TokenError::OtherCopy);
    }
    check_account(namespace, name, uid, objects, now)?;
    if secret.at("metadata").at("labels").has(INVALID_SINCE) {
        return Err(TokenError::MarkedInvalid);
    }
    uses.note(secret.value, now);
    Ok(User { name: user_name(namespace, name), uid: uid.into(), groups: groups(namespace), ..User::default() })
}
