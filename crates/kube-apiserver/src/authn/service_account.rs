//! Service account tokens: issued here, and believed only while the account and what the token is bound to exist.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use machinery::node::Node;
use serde_json::{Value, json};

use super::external_signer::{ExternalSigner, SignError};
use super::jwt::{KeyError, PublicKeyEntry, SigningKey, Unverified};
use super::token_cache::TokenCache;
use super::token_error::TokenError;
use super::token_use::Uses;
use super::{CREDENTIAL_ID, Objects, User, legacy_token};

/// Where a pod asks for this time, its mounted token really lives for a year, so that clients which never read it
/// again keep working; `warnafter` says when they should have.
const EXTENDED_FROM_SECONDS: i64 = 3607;
const EXTENDED_TO_SECONDS: i64 = 365 * 24 * 3600;
/// A token outlives the deletion of its object by this much: clocks differ, and a pod's last words take time.
pub(super) const DELETION_LEEWAY: SignedDuration = SignedDuration::from_secs(60);

pub struct ServiceAccounts {
    issuer: String,
    /// Earlier issuers, whose tokens are still in use.
    older_issuers: Vec<String>,
    /// What a token must be for to be accepted by this server.
    pub(super) audiences: Vec<String>,
    signing: Signing,
    cache: TokenCache,
    uses: Uses,
    lifetime: Lifetime,
}

/// Who has the keys.
enum Signing {
    /// The first of these keys is the one that signs.
    Here(Box<SigningKey>, Vec<PublicKeyEntry>),
    Elsewhere(Arc<ExternalSigner>),
}

/// How long tokens live.
#[derive(Clone, Copy, Debug)]
struct Lifetime {
    seconds_max: Option<i64>,
    /// Whether those of pods live for longer than they say.
    extended: bool,
}

/// Name and uid of an object a token refers to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference<'a> {
    pub name: &'a str,
    pub uid: &'a str,
}

/// What a token shall say. A pod's token also names the node the pod is on.
#[derive(Clone, Debug)]
pub struct TokenRequest<'a> {
    pub namespace: &'a str,
    pub account: Reference<'a>,
    pub pod: Option<Reference<'a>>,
    pub secret: Option<Reference<'a>>,
    pub node: Option<Reference<'a>>,
    /// Empty for the API server's own.
    pub audiences: &'a [String],
    pub expiration_seconds: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Issued {
    pub token: String,
    /// `JTI=<id>`, for the audit log.
    pub credential_id: String,
    /// What the status of the TokenRequest says; a token for a pod may be accepted for longer.
    pub expiration: Timestamp,
}

impl ServiceAccounts {
    /// `issuer` is `https://kubernetes.default.svc.<cluster domain>`; empty audiences mean the issuer.
    /// `older_keys_pem` are public keys of which tokens are still in use.
    pub fn new(
        issuer: &str,
        audiences: &[String],
        signing_key_pem: &str,
        older_keys_pem: &[String],
    ) -> Result<ServiceAccounts, KeyError> {
        let signing = SigningKey::from_pem(signing_key_pem)?;
        let mut keys = vec![signing.public().clone()];
        for pem in older_keys_pem {
            keys.push(PublicKeyEntry::from_pem(pem)?);
        }
        Ok(ServiceAccounts::signing(issuer, audiences, Signing::Here(Box::new(signing), keys)))
    }

    /// The same with keys that another program has.
    pub fn signed_elsewhere(issuer: &str, audiences: &[String], signer: Arc<ExternalSigner>) -> ServiceAccounts {
        ServiceAccounts::signing(issuer, audiences, Signing::Elsewhere(signer))
    }

    fn signing(issuer: &str, audiences: &[String], signing: Signing) -> ServiceAccounts {
        let audiences = if audiences.is_empty() { vec![issuer.to_string()] } else { audiences.to_vec() };
        let (cache, uses) = (TokenCache::default(), Uses::default());
        let (issuer, older_issuers) = (issuer.into(), Vec::new());
        let lifetime = Lifetime { seconds_max: None, extended: true };
        ServiceAccounts { issuer, older_issuers, audiences, signing, cache, uses, lifetime }
    }

    /// Makes sure that the key of a token of ours is known, where another program has the keys.
    pub(super) async fn find_key(&self, token: &str) {
        let Signing::Elsewhere(signer) = &self.signing else { return };
        let Some(unverified) = Unverified::parse(token) else { return };
        let issuer = unverified.claims.get("iss").and_then(Value::as_str);
        if issuer == Some(&self.issuer)
            && let Some(key_id) = unverified.key_id()
        {
            signer.find(key_id).await;
        }
    }

    /// Another program that has the keys.
    pub(crate) fn signer(&self) -> Option<&Arc<ExternalSigner>> {
        match &self.signing {
            Signing::Here(..) => None,
            Signing::Elsewhere(signer) => Some(signer),
        }
    }

    /// Which tokens of Secrets were used.
    pub fn uses(&self) -> &Uses {
        &self.uses
    }

    /// Tokens of these issuers are believed as well.
    pub fn believing(self, older_issuers: &[String]) -> ServiceAccounts {
        ServiceAccounts { older_issuers: older_issuers.to_vec(), ..self }
    }

    /// Tokens live no longer than that, and those of pods as long as they say unless `extended`.
    pub fn living(self, most: Option<std::time::Duration>, extended: bool) -> ServiceAccounts {
        let seconds_max = most.and_then(|most| i64::try_from(most.as_secs()).ok()).filter(|seconds| *seconds > 0);
        ServiceAccounts { lifetime: Lifetime { seconds_max, extended }, ..self }
    }

    /// What a token gets that is asked for so many seconds.
    pub(crate) fn seconds_of(&self, asked: i64) -> i64 {
        self.lifetime.seconds_max.map_or(asked, |most| asked.min(most))
    }

    pub async fn issue(&self, request: &TokenRequest<'_>, now: Timestamp) -> Result<Issued, SignError> {
        let (claims, issued) = self.draft(request, now);
        let token = match &self.signing {
            Signing::Here(key, _) => key.sign(&claims),
            Signing::Elsewhere(signer) => signer.sign(&claims).await?,
        };
        Ok(Issued { token, ..issued })
    }

    /// The same in tests, where the key is here.
    #[cfg(test)]
    pub(crate) fn issue_here(&self, request: &TokenRequest, now: Timestamp) -> Issued {
        let (claims, issued) = self.draft(request, now);
        let Signing::Here(key, _) = &self.signing else { panic!("tests have their keys here") };
        Issued { token: key.sign(&claims), ..issued }
    }

    /// What a token says, and what is said of it.
    fn draft(&self, request: &TokenRequest, now: Timestamp) -> (Value, Issued) {
        let audiences = if request.audiences.is_empty() { &self.audiences } else { request.audiences };
        let ours = audiences.iter().all(|audience| self.audiences.contains(audience));
        let seconds = request.expiration_seconds;
        let extended = self.lifetime.extended && ours && request.pod.is_some() && seconds == EXTENDED_FROM_SECONDS;
        let extended_to = self.seconds_of(EXTENDED_TO_SECONDS);

        let reference = |reference: Reference| json!({"name": reference.name, "uid": reference.uid});
        let mut private = json!({"namespace": request.namespace, "serviceaccount": reference(request.account)});
        for (kind, bound) in [("pod", request.pod), ("secret", request.secret), ("node", request.node)] {
            if let Some(bound) = bound {
                private[kind] = reference(bound);
            }
        }
        let issued_at = now.as_second();
        if extended {
            private["warnafter"] = (issued_at + seconds).into();
        }
        let id = new_uuid();
        let claims = json!({
            "iss": self.issuer,
            "sub": user_name(request.namespace, request.account.name),
            "aud": audiences,
            "iat": issued_at,
            "nbf": issued_at,
            "exp": issued_at + if extended { extended_to } else { seconds },
            "jti": id,
            "kubernetes.io": private,
        });
        let expiration = Timestamp::from_second(issued_at.saturating_add(seconds)).unwrap_or(Timestamp::MAX);
        (claims, Issued { token: String::new(), credential_id: format!("JTI={id}"), expiration })
    }

    /// The token of a Secret of type `kubernetes.io/service-account-token`, as kube-controller-manager signs it.
    #[cfg(test)]
    pub(crate) fn issue_legacy(&self, namespace: &str, account: Reference, secret_name: &str) -> String {
        let Signing::Here(key, _) = &self.signing else { panic!("tests have their keys here") };
        key.sign(&json!({
            "iss": legacy_token::ISSUER,
            "sub": user_name(namespace, account.name),
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": secret_name,
            "kubernetes.io/serviceaccount/service-account.name": account.name,
            "kubernetes.io/serviceaccount/service-account.uid": account.uid,
        }))
    }

    /// The user and those of the `wanted` audiences the token is good for. `None`: not a token of ours at all.
    pub fn verify(
        &self,
        token: &str,
        wanted: &[String],
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Option<Result<(User, Vec<String>), TokenError>> {
        if let Some(found) = self.cache.get(token, wanted, now) {
            return Some(Ok(found));
        }
        let unverified = Unverified::parse(token)?;
        let issuer = unverified.claims.get("iss").and_then(Value::as_str)?;
        let known = issuer == self.issuer || self.older_issuers.iter().any(|older| older == issuer);
        if !known && issuer != legacy_token::ISSUER {
            return None;
        }
        let result = self.verify_ours(&unverified, token, wanted, objects, now);
        if let Ok((user, audiences)) = &result {
            let end = unverified.claims.get("exp").and_then(Value::as_i64);
            self.cache.put(token, wanted, user, audiences, end, now);
        }
        Some(result)
    }

    fn verify_ours(
        &self,
        unverified: &Unverified,
        token: &str,
        wanted: &[String],
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Result<(User, Vec<String>), TokenError> {
        let is_ours = match &self.signing {
            Signing::Here(_, keys) => unverified.is_signed_by(keys),
            Signing::Elsewhere(signer) => unverified.is_signed_by(&signer.keys().entries),
        };
        if !is_ours {
            return Err(TokenError::Signature);
        }
        let claims = Node::root(&unverified.claims);
        let legacy = claims.text("iss") == legacy_token::ISSUER;
        let mut meant_for = audiences_of(&claims);
        if legacy && meant_for.is_empty() {
            meant_for = self.audiences.clone();
        }
        let good_for: Vec<String> = meant_for.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
        if good_for.is_empty() {
            let (meant_for, wanted) = (quoted(&meant_for), quoted(wanted));
            return Err(TokenError::Audiences { meant_for, wanted });
        }
        let user = if legacy {
            legacy_token::check(&claims, token, objects, &self.uses, now)?
        } else {
            check(&claims, objects, now)?
        };
        Ok((user, good_for))
    }

    /// What `/.well-known/openid-configuration` says; `jwks_uri` is where others find the keys.
    pub fn discovery(&self, jwks_uri: &str) -> Value {
        let mut algorithms: Vec<&str> = self.shown_keys().iter().map(PublicKeyEntry::algorithm_name).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        json!({
            "issuer": self.issuer,
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }

    /// What `/openid/v1/jwks` says.
    pub(crate) fn web_keys(&self) -> Value {
        json!({"keys": self.shown_keys().into_iter().map(|key| key.web_key).collect::<Vec<Value>>()})
    }

    fn shown_keys(&self) -> Vec<PublicKeyEntry> {
        match &self.signing {
            Signing::Here(_, keys) => keys.clone(),
            Signing::Elsewhere(signer) => signer.keys().shown().cloned().collect(),
        }
    }

    /// The audiences of tokens for this server.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }
}

pub fn user_name(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

/// Namespace and name of the account behind a user name.
pub(crate) fn split_user_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

pub fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]
}

/// The account must exist under the same uid, or the token belongs to an earlier one of that name.
pub(super) fn check_account(
    namespace: &str,
    name: &str,
    uid: &str,
    objects: &dyn Objects,
    now: Timestamp,
) -> Result<(), TokenError> {
    let account = objects.get("serviceaccounts", namespace, name);
    let account = account.ok_or_else(|| TokenError::NoAccount(name.into()))?;
    if is_gone(&account, now) {
        return Err(TokenError::AccountDeleted);
    }
    let actual = Node::root(&account).at("metadata").text("uid");
    if actual != uid {
        return Err(TokenError::AccountUid { actual: actual.into(), claimed: uid.into() });
    }
    Ok(())
}

pub(super) fn is_gone(object: &Value, now: Timestamp) -> bool {
    let deleted = object.pointer("/metadata/deletionTimestamp").and_then(Value::as_str);
    deleted.and_then(|text| text.parse::<Timestamp>().ok()).is_some_and(|at| at < now - DELETION_LEEWAY)
}

fn check(claims: &Node, objects: &dyn Objects, now: Timestamp) -> Result<User, TokenError> {
    let seconds = now.as_second();
    let Some(end) = claims.number("exp") else { return Err(TokenError::Incomplete) };
    if seconds >= end {
        return Err(TokenError::Expired);
    }
    if claims.number("nbf").is_some_and(|start| seconds < start) {
        return Err(TokenError::NotYetValid);
    }
    let private = claims.key("kubernetes.io");
    let account = private.at("serviceaccount");
    let (namespace, name, uid) = (private.text("namespace"), account.text("name"), account.text("uid"));
    if namespace.is_empty() || name.is_empty() || uid.is_empty() || claims.text("sub") != user_name(namespace, name) {
        return Err(TokenError::Incomplete);
    }
    check_account(namespace, name, uid, objects, now)?;

    let (pod, secret, node) = (private.at("pod"), private.at("secret"), private.at("node"));
    if secret.exists() {
        check_bound("secret", "secrets", namespace, &secret, objects, now)?;
    }
    if pod.exists() {
        check_bound("pod", "pods", namespace, &pod, objects, now)?;
    } else if node.exists() {
        // The node of a pod's token is told for information; only a token bound to the node itself ends with it.
        check_bound("node", "nodes", "", &node, objects, now)?;
    }

    let mut user =
        User { name: user_name(namespace, name), uid: uid.into(), groups: groups(namespace), ..User::default() };
    for (reference, kind) in [(&pod, "pod"), (&node, "node")] {
        if reference.exists() {
            for field in ["name", "uid"] {
                let key = format!("authentication.kubernetes.io/{kind}-{field}");
                user.extra.insert(key, vec![reference.text(field).to_string()]);
            }
        }
    }
    if !claims.text("jti").is_empty() {
        user.extra.insert(CREDENTIAL_ID.into(), vec![format!("JTI={}", claims.text("jti"))]);
    }
    Ok(user)
}

fn check_bound(
    kind: &'static str,
    resource: &str,
    namespace: &str,
    claim: &Node,
    objects: &dyn Objects,
    now: Timestamp,
) -> Result<(), TokenError> {
    let object = objects.get(resource, namespace, claim.text("name")).ok_or(TokenError::Invalidated)?;
    if is_gone(&object, now) {
        return Err(TokenError::Invalidated);
    }
    let (actual, uid) = (Node::root(&object).at("metadata").text("uid"), claim.text("uid"));
    if actual != uid {
        return Err(TokenError::BoundUid { kind, actual: actual.into(), claimed: uid.into() });
    }
    Ok(())
}

/// One audience may stand alone instead of in a list.
fn audiences_of(claims: &Node) -> Vec<String> {
    match claims.at("aud").value {
        Value::String(one) => vec![one.clone()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).map(str::to_string).collect(),
        _ => Vec::new(),
    }
}

fn quoted(audiences: &[String]) -> String {
    let quoted: Vec<String> = audiences.iter().map(|audience| format!("{audience:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

fn new_uuid() -> String {
    let mut bytes: [u8; 16] = rand::random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
