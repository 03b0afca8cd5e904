//! Values that a KMS v2 plugin has a part in: each is encrypted with a key derived from a seed, and the plugin has encrypted the seed.
//! The seed of this server's writes comes from `probe`; seeds of others are decrypted by the plugin once, when they are first met.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use component_base::clock::Clock;
use component_base::tasks;
use jiff::Timestamp;
use kms::Plugin;
use kms::v2::{EncryptedDekSourceType, EncryptedObject};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::{Notify, OnceCell};
use tokio::time::Instant;

use super::cipher::{CipherError, Gcm, Seed};
use super::metrics::{Direction, Metrics};
use super::probe::Probe;

const ANNOTATIONS_BYTES_MAX: usize = 32 * 1024;
pub const KEY_ID_BYTES_MAX: usize = 1024;
const SOURCE_BYTES_MAX: usize = 1024;
/// How many seeds of others are kept; there are about as many as servers were started since values were last rewritten.
const SOURCES_MAX: usize = 10_000;
/// How long a plugin that did not answer is not asked again: a store full of values must not wait for it once for each.
const UNREACHABLE_FOR: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("{0}")]
    Object(#[from] Invalid),
    #[error("proto: cannot parse invalid wire-format data")]
    Wire,
    #[error("got unexpected nil transformer")]
    NoState,
    #[error("encryptedDEKSource with keyID hash {hash:?} expired at {at} (current time is {now})")]
    Expired { hash: String, at: String, now: String },
    #[error("failed to decrypt DEK, error: {0}")]
    Decrypt(kms::Error),
    #[error("failed to encrypt DEK, error: {0}")]
    Encrypt(kms::Error),
    #[error(transparent)]
    Cipher(#[from] CipherError),
}

/// What is wrong with an encrypted object, or with what a plugin answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("unknown encryptedDEKSourceType: {0}")]
    SourceType(i32),
    #[error("encrypted data is empty")]
    NoData,
    #[error("failed to validate encrypted DEK source: encrypted DEK source is empty")]
    NoSource,
    #[error(
        "failed to validate encrypted DEK source: encrypted DEK source is {0} bytes, which exceeds the max size of {SOURCE_BYTES_MAX}"
    )]
    SourceTooLong(usize),
    #[error("failed to validate key id: {0}")]
    KeyId(#[from] InvalidKeyId),
    #[error("failed to validate annotations: {0}")]
    Annotations(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKeyId {
    #[error("keyID is empty")]
    Empty,
    #[error("keyID is {0} bytes, which exceeds the max size of {KEY_ID_BYTES_MAX}")]
    TooLong(usize),
}

/// What this server writes with.
pub struct State {
    pub seed: Arc<Seed>,
    pub key_id: String,
    pub source: Vec<u8>,
    pub annotations: BTreeMap<String, Vec<u8>>,
    /// Writes fail after this; reads go on.
    pub expires: Timestamp,
}

/// One plugin, and everything that is known of its keys.
pub struct Envelope {
    pub name: String,
    pub probe: Probe,
    plugin: Plugin,
    sources: Mutex<HashMap<SourceKey, Arc<Source>>>,
    unreachable: Mutex<Option<(Instant, kms::Error)>>,
    /// Told when a seed was decrypted that somebody could not wait for.
    resolved: Arc<Notify>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct SourceKey {
    kind: i32,
    source: Vec<u8>,
    key_id: String,
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Default)]
struct Source(OnceCell<Opener>);

#[derive(Clone)]
enum Opener {
    Seed(Arc<Seed>),
    Key(Arc<Gcm>),
}

/// Whether to wait for a plugin as long as its timeout says, or only for a moment because all changes of the store wait behind this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    Full,
    Short,
}

/// How long changes of the store wait for a plugin.
pub const SHORT_WAIT: Duration = Duration::from_millis(500);

impl Envelope {
    pub fn new(
        name: &str,
        plugin: Plugin,
        resolved: Arc<Notify>,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> Arc<Envelope> {
        Arc::new(Envelope {
            name: name.to_owned(),
            probe: Probe::new(name, plugin.clone(), metrics.clone(), clock.clone()),
            plugin,
            sources: Mutex::default(),
            unreachable: Mutex::default(),
            resolved,
            metrics,
            clock,
        })
    }

    pub fn timeout(&self) -> Duration {
        self.plugin.timeout()
    }

    pub fn seal(&self, text: &[u8], place: &[u8]) -> Result<Vec<u8>, EnvelopeError> {
        let state = self.probe.state().ok_or(EnvelopeError::NoState)?;
        let now = self.clock.now();
        if now > state.expires {
            let [at, now] = [state.expires, now].map(component_base::clock::stamp);
            return Err(EnvelopeError::Expired { hash: hash(&state.key_id), at, now });
        }
        self.keep(&state);
        self.metrics.key_used(Direction::ToStorage, &self.name, &state.key_id, now);
        let object = EncryptedObject {
            encrypted_data: state.seed.seal(text, place)?,
            key_id: state.key_id.clone(),
            encrypted_dek_source: state.source.clone(),
            annotations: state.annotations.clone(),
            encrypted_dek_source_type: EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed.into(),
        };
        check(&object)?;
        Ok(object.encode_to_vec())
    }

    /// The value, and whether it would be written in another way today.
    pub async fn open(
        self: &Arc<Envelope>,
        data: &[u8],
        place: &[u8],
        patience: Patience,
    ) -> Result<(Vec<u8>, bool), EnvelopeError> {
        let object = EncryptedObject::decode(data).map_err(|_| EnvelopeError::Wire)?;
        check(&object)?;
        let state = self.probe.state().ok_or(EnvelopeError::NoState)?;
        let opener = self.opener(&object, patience).await?;
        self.metrics.key_used(Direction::FromStorage, &self.name, &object.key_id, self.clock.now());
        let text = match opener {
            Opener::Seed(seed) => seed.open(&object.encrypted_data, place)?,
            Opener::Key(key) => key.open(&object.encrypted_data, place)?,
        };
        let seeded = i32::from(EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed);
        Ok((text, object.key_id != state.key_id || object.encrypted_dek_source_type != seeded))
    }

    /// This server's own seed need not be asked for.
    fn keep(&self, state: &State) {
        let key = SourceKey {
            kind: EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed.into(),
            source: state.source.clone(),
            key_id: state.key_id.clone(),
            annotations: state.annotations.clone(),
        };
        let mut sources = self.sources.lock();
        make_room(&mut sources);
        let cell = OnceCell::new_with(Some(Opener::Seed(state.seed.clone())));
        sources.entry(key).or_insert_with(|| Arc::new(Source(cell)));
        self.metrics.sources(&self.name, sources.len());
    }

    async fn opener(
        self: &Arc<Envelope>,
        object: &EncryptedObject,
        patience: Patience,
    ) -> Result<Opener, EnvelopeError> {
        let key = SourceKey {
            kind: object.encrypted_dek_source_type,
            source: object.encrypted_dek_source.clone(),
            key_id: object.key_id.clone(),
            annotations: object.annotations.clone(),
        };
        let source = {
            let mut sources = self.sources.lock();
            make_room(&mut sources);
            sources.entry(key.clone()).or_default().clone()
        };
        if let Some(opener) = source.0.get() {
            return Ok(opener.clone());
        }
        if let Some((at, error)) = self.unreachable.lock().clone()
            && at.elapsed() < UNREACHABLE_FOR
        {
            return Err(EnvelopeError::Decrypt(error));
        }
        // A task of its own: who gives up waiting does not end the call for the others.
        let (me, cell) = (self.clone(), source.clone());
        let asked = tasks::spawn(async move { cell.0.get_or_try_init(|| me.ask(&key)).await.cloned() });
        let gave_up = || EnvelopeError::Decrypt(deadline());
        let answer = match patience {
            Patience::Full => asked.await,
            Patience::Short => match tokio::time::timeout(SHORT_WAIT, asked).await {
                Ok(answer) => answer,
                Err(_) => return Err(gave_up()),
            },
        };
        answer.unwrap_or_else(|_| Err(gave_up()))
    }

    async fn ask(&self, key: &SourceKey) -> Result<Opener, EnvelopeError> {
        self.metrics.cache_missed();
        let (began, annotations) = (Instant::now(), key.annotations.clone().into_iter().collect());
        let answer = self.plugin.decrypt(&key.source, &super::probe::uid(), &key.key_id, &annotations).await;
        self.metrics.called(&self.name, "Decrypt", began.elapsed(), answer.as_ref().err());
        let plain = match answer {
            Ok(plain) => plain,
            Err(error) => {
                if error.is_deadline() {
                    *self.unreachable.lock() = Some((Instant::now(), error.clone()));
                }
                return Err(EnvelopeError::Decrypt(error));
            }
        };
        *self.unreachable.lock() = None;
        let opener = if key.kind == i32::from(EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed) {
            Opener::Seed(Arc::new(Seed::new(&plain)?))
        } else {
            Opener::Key(Arc::new(Gcm::new(&plain)?))
        };
        self.metrics.sources(&self.name, self.sources.lock().len());
        self.resolved.notify_one();
        Ok(opener)
    }
}

/// Something has to go where there are too many; whatever it is can be asked for again.
fn make_room(sources: &mut HashMap<SourceKey, Arc<Source>>) {
    if sources.len() >= SOURCES_MAX
        && let Some(key) = sources.keys().next().cloned()
    {
        sources.remove(&key);
    }
}

fn deadline() -> kms::Error {
    kms::Error::deadline("context deadline exceeded")
}

/// As logs and metrics show a key id.
pub fn hash(key_id: &str) -> String {
    if key_id.is_empty() { String::new() } else { crate::configuration::hash(key_id) }
}

pub fn check_key_id(key_id: &str) -> Result<(), InvalidKeyId> {
    match key_id.len() {
        0 => Err(InvalidKeyId::Empty),
        length if length > KEY_ID_BYTES_MAX => Err(InvalidKeyId::TooLong(length)),
        _ => Ok(()),
    }
}

/// What upstream checks before it writes and after it reads.
pub fn check(object: &EncryptedObject) -> Result<(), Invalid> {
    if EncryptedDekSourceType::try_from(object.encrypted_dek_source_type).is_err() {
        return Err(Invalid::SourceType(object.encrypted_dek_source_type));
    }
    if object.encrypted_data.is_empty() {
        return Err(Invalid::NoData);
    }
    match object.encrypted_dek_source.len() {
        0 => return Err(Invalid::NoSource),
        length if length > SOURCE_BYTES_MAX => return Err(Invalid::SourceTooLong(length)),
        _ => {}
    }
    check_key_id(&object.key_id)?;
    let mut problems: Vec<String> = Vec::new();
    for name in object.annotations.keys() {
        let mut wrong = machinery::names::dns_subdomain(name);
        if wrong.is_empty() && !name.contains('.') {
            wrong.push("should be a domain with at least two segments separated by dots".into());
        }
        problems.extend(wrong.into_iter().map(|why| format!("annotations: Invalid value: {name:?}: {why}")));
    }
    let bytes: usize = object.annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        problems.push(format!(
            "total size of annotations is {bytes}, which exceeds the max size of {ANNOTATIONS_BYTES_MAX}"
        ));
    }
    match problems.len() {
        0 => Ok(()),
        1 => Err(Invalid::Annotations(problems.remove(0))),
        _ => Err(Invalid::Annotations(format!("[{}]", problems.join(", ")))),
    }
}

#[cfg(test)]
mod tests;
