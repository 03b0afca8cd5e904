//! Which providers a value passes through, on its way into the store and back. The first provider of a resource writes; every one
//! whose prefix a stored value has may read it, in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use component_base::clock::Clock;
use kms::Plugin;
use machinery::status::GroupResource;
use tokio::sync::Notify;

use super::cipher::{Cipher, CipherError};
use super::config::{self, Configuration, KeyKind};
use super::envelope::{Envelope, EnvelopeError, Patience};
use super::metrics::{Direction, Metrics};

/// Before every encrypted value.
pub const ENCRYPTED: &[u8] = b"k8s:enc:";

/// In upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransformError {
    #[error("identity transformer tried to read encrypted data")]
    Encrypted,
    #[error("no matching prefix found")]
    NoPrefix,
    #[error("no matching key was found for the provided {0} transformer")]
    NoKey(&'static str),
    #[error(transparent)]
    Cipher(#[from] CipherError),
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    #[error("[{}]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Several(Vec<TransformError>),
}

impl TransformError {
    /// gRPC's name of it, where a plugin has answered so.
    fn code(&self) -> Option<String> {
        match self {
            TransformError::Envelope(EnvelopeError::Decrypt(error) | EnvelopeError::Encrypt(error)) => {
                Some(error.code_name())
            }
            _ => None,
        }
    }
}

/// What a configuration makes of values.
pub struct Rules {
    by_group: HashMap<String, HashMap<String, Vec<Arc<Provider>>>>,
    /// In the order of the configuration.
    pub envelopes: Vec<Arc<Envelope>>,
}

struct Provider {
    /// Empty for the identity.
    prefix: String,
    kind: Kind,
}

enum Kind {
    Identity,
    Keys { keys: Vec<(String, Cipher)>, called: &'static str },
    Kms(Arc<Envelope>),
}

/// What rules are made with.
pub struct Around {
    pub metrics: Arc<Metrics>,
    pub resolved: Arc<Notify>,
    pub clock: Clock,
}

type MakeCipher = fn(&[u8]) -> Result<Cipher, CipherError>;

impl Rules {
    /// Nothing is encrypted.
    pub fn none() -> Rules {
        Rules { by_group: HashMap::new(), envelopes: Vec::new() }
    }

    pub fn new(configuration: Configuration, around: &Around) -> Result<Rules, CipherError> {
        let mut rules = Rules::none();
        for rule in configuration.rules {
            let mut providers = Vec::new();
            for provider in rule.providers {
                providers.push(Arc::new(rules.provider(provider, around)?));
            }
            for name in rule.resources {
                let group = rules.by_group.entry(name.group).or_default();
                group.entry(name.resource).or_default().extend(providers.iter().cloned());
            }
        }
        Ok(rules)
    }

    fn provider(&mut self, provider: config::Provider, around: &Around) -> Result<Provider, CipherError> {
        Ok(match provider {
            config::Provider::Identity => Provider { prefix: String::new(), kind: Kind::Identity },
            config::Provider::Keys { kind, keys } => {
                let (prefix, called, make): (_, _, MakeCipher) = match kind {
                    KeyKind::AesGcm => ("k8s:enc:aesgcm:v1:", "AES", Cipher::gcm),
                    KeyKind::AesCbc => ("k8s:enc:aescbc:v1:", "AES", Cipher::cbc),
                    KeyKind::Secretbox => ("k8s:enc:secretbox:v1:", "Secretbox", Cipher::secretbox),
                };
                let keys = keys.into_iter().map(|key| Ok((format!("{}:", key.name), make(&key.secret)?)));
                let keys = keys.collect::<Result<_, CipherError>>()?;
                Provider { prefix: prefix.to_owned(), kind: Kind::Keys { keys, called } }
            }
            config::Provider::Kms { name, socket, timeout } => {
                let plugin = Plugin::new(&socket, timeout);
                let (resolved, metrics) = (around.resolved.clone(), around.metrics.clone());
                let envelope = Envelope::new(&name, plugin, resolved, metrics, around.clock.clone());
                self.envelopes.push(envelope.clone());
                Provider { prefix: format!("k8s:enc:kms:v2:{name}:"), kind: Kind::Kms(envelope) }
            }
        })
    }

    /// The most exact rule; none where a resource is in none.
    fn providers(&self, resource: GroupResource) -> Option<&[Arc<Provider>]> {
        let of = |group: &str, resource: &str| self.by_group.get(group)?.get(resource);
        let exact = of(resource.group, resource.resource).or_else(|| of(resource.group, "*"));
        exact.or_else(|| of("*", "*")).map(Vec::as_slice)
    }

    /// The prefix of what is written of a resource; empty where it is written in clear.
    pub fn writes(&self, resource: GroupResource) -> &str {
        self.providers(resource).and_then(|providers| providers.first()).map_or("", |provider| &provider.prefix)
    }

    /// Whether any value of this resource may need more than a look at its first bytes.
    pub fn concerns(&self, resource: GroupResource) -> bool {
        self.providers(resource).is_some()
    }

    pub fn seal(
        &self,
        resource: GroupResource,
        text: Bytes,
        place: &[u8],
        metrics: &Metrics,
    ) -> Result<Bytes, TransformError> {
        let Some(provider) = self.providers(resource).and_then(|providers| providers.first()) else { return Ok(text) };
        let (began, name) = (Instant::now(), resource.to_string());
        let sealed: Result<Bytes, TransformError> = match &provider.kind {
            Kind::Identity => Ok(text),
            Kind::Keys { keys, called } => match keys.first() {
                None => Err(TransformError::NoKey(called)),
                Some((key, cipher)) => {
                    let sealed = cipher.seal(&text, place).map_err(TransformError::from);
                    record(metrics, &name, Direction::ToStorage, key, began, sealed.as_ref().err());
                    sealed.map(|data| [provider.prefix.as_bytes(), key.as_bytes(), &data].concat().into())
                }
            },
            Kind::Kms(envelope) => {
                let sealed = envelope.seal(&text, place).map_err(TransformError::from);
                sealed.map(|data| [provider.prefix.as_bytes(), &data].concat().into())
            }
        };
        record(metrics, &name, Direction::ToStorage, &provider.prefix, began, sealed.as_ref().err());
        sealed
    }

    /// The value in clear, and whether it would be written in another way today.
    pub async fn open(
        &self,
        resource: GroupResource<'_>,
        value: Bytes,
        place: &[u8],
        patience: Patience,
        metrics: &Metrics,
    ) -> Result<(Bytes, bool), TransformError> {
        let is_encrypted = value.starts_with(ENCRYPTED);
        let Some(providers) = self.providers(resource) else {
            return if is_encrypted { Err(TransformError::Encrypted) } else { Ok((value, false)) };
        };
        let (began, name) = (Instant::now(), resource.to_string());
        let mut errors: Vec<TransformError> = Vec::new();
        for (number, provider) in providers.iter().enumerate() {
            let Some(data) = value.strip_prefix(provider.prefix.as_bytes()) else { continue };
            let (opened, label) = match &provider.kind {
                // Not an error: a later provider may know it.
                Kind::Identity if is_encrypted => continue,
                Kind::Identity => (Ok((value.clone(), false)), "identity"),
                Kind::Keys { keys, called } => {
                    (open_with(keys, called, data, place, metrics, &name), &*provider.prefix)
                }
                Kind::Kms(envelope) => {
                    let opened = envelope.open(data, place, patience).await;
                    (opened.map(|(text, stale)| (text.into(), stale)).map_err(Into::into), &*provider.prefix)
                }
            };
            record(metrics, &name, Direction::FromStorage, label, began, opened.as_ref().err());
            match opened {
                Ok((text, stale)) => return Ok((text, stale || number > 0)),
                // The same provider may stand there again with other keys.
                Err(error) => errors.push(error),
            }
        }
        errors.dedup();
        match errors.len() {
            0 => {
                let error = TransformError::NoPrefix;
                record(metrics, &name, Direction::FromStorage, "unknown", began, Some(&error));
                Err(error)
            }
            1 => Err(errors.remove(0)),
            _ => Err(TransformError::Several(errors)),
        }
    }
}

/// By the key whose name stands in front; a name may be there twice.
fn open_with(
    keys: &[(String, Cipher)],
    called: &'static str,
    data: &[u8],
    place: &[u8],
    metrics: &Metrics,
    resource: &str,
) -> Result<(Bytes, bool), TransformError> {
    let began = Instant::now();
    let mut errors: Vec<TransformError> = Vec::new();
    for (number, (key, cipher)) in keys.iter().enumerate() {
        let Some(data) = data.strip_prefix(key.as_bytes()) else { continue };
        let opened = cipher.open(data, place).map_err(TransformError::from);
        record(metrics, resource, Direction::FromStorage, key, began, opened.as_ref().err());
        match opened {
            Ok(text) => return Ok((text.into(), number > 0)),
            Err(error) => errors.push(error),
        }
    }
    errors.dedup();
    match errors.len() {
        0 => {
            let error = TransformError::NoKey(called);
            record(metrics, resource, Direction::FromStorage, "unknown", began, Some(&error));
            Err(error)
        }
        1 => Err(errors.remove(0)),
        _ => Err(TransformError::Several(errors)),
    }
}

fn record(
    metrics: &Metrics,
    resource: &str,
    direction: Direction,
    prefix: &str,
    began: Instant,
    error: Option<&TransformError>,
) {
    let outcome = error.map_or(Ok(()), |error| Err(error.code()));
    metrics.transformed(resource, direction, prefix, began.elapsed(), outcome);
}

#[cfg(test)]
mod tests {
    use super::super::cipher::tests::{PLACE, TEXT};
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n";
    const SECRETS: GroupResource = GroupResource { group: "", resource: "secrets" };
    const KEY_1: &str = "{name: key1, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}";
    const KEY_2: &str = "{name: key2, secret: ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=}";

    fn rules(text: &str) -> Rules {
        let around = Around { metrics: Arc::default(), resolved: Arc::default(), clock: Clock::system() };
        Rules::new(config::parse(&format!("{HEAD}{text}")).unwrap(), &around).unwrap()
    }

    fn of_secrets(providers: &str) -> Rules {
        rules(&format!("- resources: [secrets]\n  providers: [{{{providers}}}]\n"))
    }

    fn seal(rules: &Rules) -> Bytes {
        rules.seal(SECRETS, Bytes::from_static(TEXT), PLACE, &Metrics::default()).unwrap()
    }

    async fn open(rules: &Rules, value: &Bytes) -> Result<bool, String> {
        let opened = rules.open(SECRETS, value.clone(), PLACE, Patience::Full, &Metrics::default()).await;
        let (text, stale) = opened.map_err(|error| error.to_string())?;
        assert_eq!(text, TEXT);
        Ok(stale)
    }

    #[tokio::test]
    async fn values_have_upstreams_prefixes_and_later_keys_only_read() {
        for provider in ["aescbc", "aesgcm", "secretbox"] {
            let one = of_secrets(&format!("{provider}: {{keys: [{KEY_1}]}}"));
            let value = seal(&one);
            assert!(value.starts_with(format!("k8s:enc:{provider}:v1:key1:").as_bytes()));
            assert_eq!(open(&one, &value).await, Ok(false));
            let rotated = of_secrets(&format!("{provider}: {{keys: [{KEY_2}, {KEY_1}]}}"));
            assert_eq!(open(&rotated, &value).await, Ok(true), "an older key");
            assert!(seal(&rotated).starts_with(format!("k8s:enc:{provider}:v1:key2:").as_bytes()));
            // The same in two elements.
            let split = of_secrets(&format!("{provider}: {{keys: [{KEY_2}]}}}}, {{{provider}: {{keys: [{KEY_1}]}}"));
            assert_eq!(open(&split, &value).await, Ok(true));
            let other = of_secrets(&format!("{provider}: {{keys: [{KEY_2}]}}"));
            let called = if provider == "secretbox" { "Secretbox" } else { "AES" };
            let expected = format!("no matching key was found for the provided {called} transformer");
            assert_eq!(open(&other, &value).await, Err(expected));
        }
    }

    #[tokio::test]
    async fn clear_values_are_read_only_where_identity_is_allowed() {
        let clear = Bytes::from_static(TEXT);
        let strict = of_secrets(&format!("aesgcm: {{keys: [{KEY_1}]}}"));
        assert_eq!(open(&strict, &clear).await, Err("no matching prefix found".into()));
        let lenient = of_secrets(&format!("aesgcm: {{keys: [{KEY_1}]}}}}, {{identity: {{}}"));
        assert_eq!(open(&lenient, &clear).await, Ok(true));
        let leaving = of_secrets(&format!("identity: {{}}}}, {{aesgcm: {{keys: [{KEY_1}]}}"));
        assert_eq!(seal(&leaving), clear);
        assert_eq!(open(&leaving, &seal(&strict)).await, Ok(true));
        assert_eq!(open(&leaving, &clear).await, Ok(false));
        let none = Rules::none();
        let refused = Err("identity transformer tried to read encrypted data".to_owned());
        assert_eq!(open(&none, &seal(&strict)).await, refused);
        assert_eq!(open(&none, &clear).await, Ok(false));
        assert_eq!(open(&of_secrets("identity: {}"), &seal(&strict)).await, Err("no matching prefix found".into()));
    }

    #[test]
    fn the_most_exact_rule_counts() {
        let rules = rules(&format!(
            "- resources: [secrets]\n  providers: [{{aescbc: {{keys: [{KEY_1}]}}}}]\n\
             - resources: [deployments.apps]\n  providers: [{{identity: {{}}}}]\n\
             - resources: ['*.apps']\n  providers: [{{aesgcm: {{keys: [{KEY_1}]}}}}]\n\
             - resources: ['*.']\n  providers: [{{identity: {{}}}}]\n\
             - resources: ['*.*']\n  providers: [{{secretbox: {{keys: [{KEY_1}]}}}}]\n"
        ));
        let check = |group: &'static str, resource: &'static str, expected: &str| {
            assert_eq!(rules.writes(GroupResource { group, resource }), expected, "{resource}.{group}");
        };
        check("", "secrets", "k8s:enc:aescbc:v1:");
        check("", "configmaps", "");
        check("apps", "deployments", "");
        check("apps", "daemonsets", "k8s:enc:aesgcm:v1:");
        check("stable.example.com", "crontabs", "k8s:enc:secretbox:v1:");
    }

    #[tokio::test]
    async fn a_value_in_another_place_is_not_believed() {
        let rules = of_secrets(&format!("aesgcm: {{keys: [{KEY_1}]}}"));
        let metrics = Metrics::default();
        let opened =
            rules.open(SECRETS, seal(&rules), b"/registry/secrets/default/two", Patience::Full, &metrics).await;
        assert_eq!(opened.unwrap_err().to_string(), "cipher: message authentication failed");
    }
}
