//! Encryption of stored values, by an EncryptionConfiguration (`config`): ciphers with keys from the file (`cipher`), or keys that a
//! KMS v2 plugin keeps (`envelope`, `probe`). `transform` chooses among providers, `store` puts them between the cache and the store,
//! `rewrite` brings old values into today's form. Bytes and messages are upstream's.

mod config;
mod cipher;
mod transform;
mod envelope;
mod probe;
mod keys;
mod store;
mod rewrite;
mod own_file;
mod metrics;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::store::Store;
use arc_swap::ArcSwap;
use bytes::Bytes;
use component_base::clock::Clock;
use component_base::metrics::Page;
use component_base::tasks;
use machinery::status::GroupResource;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::configuration::{self, Applied, Reloads};
use envelope::{Envelope, Patience};
use transform::{Around, Rules, TransformError};

#[cfg(test)]
pub(crate) use config::parse;
pub(crate) use keys::resource_of;
pub use own_file::OwnFileError;
pub use rewrite::{Progress, keep as keep_rewriting};
pub use store::Encrypted;
pub(crate) use store::reason;

/// How long a new configuration has at least until its plugins are well, and how often it is looked.
const WELL_WAIT_MIN: Duration = Duration::from_secs(10);
const WELL_LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often values that could not be decrypted are tried again.
const REPAIR_EVERY: Duration = Duration::from_secs(10);

/// What the operator decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The EncryptionConfiguration.
    pub file: Option<PathBuf>,
    /// Whether the file is read again when it changes.
    pub reload: bool,
    /// A file that this server makes and changes by itself when told to encrypt; used where `file` is not given.
    pub own_file: Option<PathBuf>,
    /// Other servers use the same store: they would not know a key that this one makes.
    pub is_shared: bool,
    /// Where keys lie in the store: a value is bound to its key.
    pub key_prefix: String,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { file: None, reload: false, own_file: None, is_shared: false, key_prefix: "/registry".into() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("error while parsing file: {path}")]
    File {
        path: PathBuf,
        #[source]
        source: configuration::Error,
    },
    #[error("error while building transformers: {0}")]
    Cipher(#[from] cipher::CipherError),
}

/// Everything about encryption that requests share.
pub struct Encryption {
    settings: Settings,
    active: ArcSwap<Active>,
    pub reloads: Reloads,
    around: Around,
    rewriting: rewrite::Rewriting,
    /// One change of the own file at a time.
    own: tokio::sync::Mutex<()>,
    shutdown: CancellationToken,
}

/// Rules that are in use, until others take their place.
struct Active {
    rules: Rules,
    /// Ends the questions to its plugins.
    ended: CancellationToken,
}

impl Encryption {
    /// Reads the file, and asks plugins for their first keys. One that does not answer is asked again in the background: its values
    /// cannot be read until then, and everything else can.
    pub async fn load(
        settings: &Settings,
        clock: Clock,
        shutdown: &CancellationToken,
    ) -> Result<(Arc<Encryption>, String), Error> {
        let around = Around { metrics: Arc::default(), resolved: Arc::new(Notify::new()), clock };
        let path = settings.file.clone().or_else(|| settings.own_file.clone().filter(|path| path.exists()));
        let (rules, text) = match path {
            None => (Rules::none(), String::new()),
            Some(path) => {
                let wrong = |source| Error::File { path: path.clone(), source };
                let text = configuration::read(&path).map_err(wrong)?;
                let parsed = config::parse(&text).map_err(wrong)?;
                (Rules::new(parsed, &around)?, text)
            }
        };
        let ended = shutdown.child_token();
        let encryption = Arc::new(Encryption {
            settings: settings.clone(),
            active: ArcSwap::from_pointee(Active { rules, ended: ended.clone() }),
            reloads: Reloads::default(),
            around,
            rewriting: rewrite::Rewriting::default(),
            own: tokio::sync::Mutex::default(),
            shutdown: shutdown.clone(),
        });
        if !text.is_empty() {
            encryption.reloads.in_use(&text);
        }
        let active = encryption.active.load_full();
        futures::future::join_all(active.rules.envelopes.iter().map(|envelope| envelope.probe.check())).await;
        follow_plugins(&active.rules.envelopes, &ended);
        Ok((encryption, text))
    }

    /// Whether values of this key are anybody's business.
    pub fn concerns(&self, key: &str) -> bool {
        keys::resource_of(key).is_some_and(|resource| self.active.load().rules.concerns(resource))
    }

    /// Whether a resource is written encrypted.
    pub fn encrypts(&self, resource: GroupResource) -> bool {
        !self.active.load().rules.writes(resource).is_empty()
    }

    pub fn seal(&self, key: &str, text: Bytes) -> Result<Bytes, TransformError> {
        let Some(resource) = keys::resource_of(key) else { return Ok(text) };
        self.active.load().rules.seal(resource, text, &self.place(key), &self.around.metrics)
    }

    /// The value in clear, and whether it would be written in another way today.
    async fn open(&self, key: &str, value: Bytes, patience: Patience) -> Result<(Bytes, bool), TransformError> {
        let Some(resource) = keys::resource_of(key) else { return Ok((value, false)) };
        // Held as a whole: a reload does not wait for values that wait for a plugin.
        let active = self.active.load_full();
        active.rules.open(resource, value, &self.place(key), patience, &self.around.metrics).await
    }

    /// What a value is bound to: its key as the store has it.
    fn place(&self, key: &str) -> Vec<u8> {
        let prefix = self.settings.key_prefix.trim_matches('/');
        match key.strip_prefix("/registry/") {
            Some(rest) => format!("/{prefix}/{rest}").into_bytes(),
            None => key.as_bytes().to_vec(),
        }
    }

    /// Takes a changed file over, once its plugins are well.
    pub async fn reload(&self, text: String) -> Applied {
        let parsed = match config::parse(&text) {
            Ok(parsed) => parsed,
            Err(error) => return Applied::Refused(error.to_string()),
        };
        match self.replace(parsed).await {
            Ok(()) => Applied::Yes,
            Err(why) => Applied::NotNow(why.to_string()),
        }
    }

    async fn replace(&self, parsed: config::Configuration) -> Result<(), ReplaceError> {
        let rules = Rules::new(parsed, &self.around)?;
        let wait = grace(&rules.envelopes).max(WELL_WAIT_MIN);
        well(&rules.envelopes, wait).await?;
        let ended = self.shutdown.child_token();
        follow_plugins(&rules.envelopes, &ended);
        let old = self.active.swap(Arc::new(Active { rules, ended }));
        // Requests that hold the old rules end within their plugins' timeouts.
        let grace = grace(&old.rules.envelopes);
        tasks::spawn(async move {
            tokio::time::sleep(grace).await;
            old.ended.cancel();
        });
        self.around.resolved.notify_one();
        Ok(())
    }

    fn has_plugins(&self) -> bool {
        !self.active.load().rules.envelopes.is_empty()
    }

    /// Whether `/healthz` has a check of plugins.
    pub fn has_health_check(&self) -> bool {
        (self.settings.reload && self.settings.file.is_some()) || self.has_plugins()
    }

    /// Why a plugin is not well.
    pub async fn health(&self) -> Result<(), PluginsUnwell> {
        health(&self.active.load_full().rules.envelopes).await
    }

    pub fn follows_file(&self) -> Option<PathBuf> {
        self.settings.file.clone().filter(|_| self.settings.reload)
    }

    pub fn render(&self, page: &mut Page, server: &str) {
        self.around.metrics.render(page, server);
        self.reloads.render(page, "encryption", server);
    }
}

/// Tries values again that could not be decrypted: when a plugin has answered, when the configuration has changed, and, where there
/// are plugins, now and then. A server without them has nothing to wake up for.
pub async fn repair(encryption: Arc<Encryption>, cache: Arc<::store::cache::Cache>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = encryption.around.resolved.notified() => {}
            () = tokio::time::sleep(REPAIR_EVERY), if encryption.has_plugins() => {}
            () = shutdown.cancelled() => return,
        }
        if let Err(error) = cache.repair().await {
            tracing::warn!(%error, "cannot read values again that could not be decrypted");
        }
    }
}

/// A store as a server with these settings reads it, for whoever looks into it before the server starts.
pub async fn readable(
    store: Arc<dyn Store>,
    settings: &Settings,
    shutdown: &CancellationToken,
) -> Result<Arc<dyn Store>, Error> {
    let (encryption, _) = Encryption::load(settings, Clock::system(), shutdown).await?;
    Ok(Encrypted::new(store, encryption))
}

fn follow_plugins(envelopes: &[Arc<Envelope>], ended: &CancellationToken) {
    for envelope in envelopes {
        let (envelope, ended) = (envelope.clone(), ended.clone());
        tasks::spawn(async move { envelope.probe.keep(ended).await });
    }
}

/// Twice what all plugins together may take for an answer, as upstream.
fn grace(envelopes: &[Arc<Envelope>]) -> Duration {
    envelopes.iter().map(|envelope| envelope.timeout()).sum::<Duration>() * 2
}

/// Why a configuration does not take the place of the old one.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    #[error(transparent)]
    Rules(#[from] cipher::CipherError),
    #[error("health check for new transformers failed, polling error timed out: {0}")]
    Unwell(PluginsUnwell),
}

/// Each plugin that is not well, and why.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", in_brackets(.0))]
pub struct PluginsUnwell(Vec<String>);

/// Several errors as upstream writes them.
fn in_brackets(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        _ => format!("[{}]", problems.join(", ")),
    }
}

async fn well(envelopes: &[Arc<Envelope>], wait: Duration) -> Result<(), ReplaceError> {
    let until = Instant::now() + wait;
    loop {
        match health(envelopes).await {
            Ok(()) => return Ok(()),
            Err(why) if Instant::now() >= until => return Err(ReplaceError::Unwell(why)),
            Err(_) => tokio::time::sleep(WELL_LOOK_EVERY).await,
        }
    }
}

async fn health(envelopes: &[Arc<Envelope>]) -> Result<(), PluginsUnwell> {
    let asked = futures::future::join_all(envelopes.iter().map(|envelope| envelope.probe.check())).await;
    let told = |(number, answer): (usize, Result<(), probe::Unwell>)| {
        Some(format!("kms-provider-{number}: {}", answer.err()?))
    };
    let problems: Vec<String> = asked.into_iter().enumerate().filter_map(told).collect();
    if problems.is_empty() { Ok(()) } else { Err(PluginsUnwell(problems)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn values_are_bound_to_their_keys_as_the_store_has_them() {
        for (prefix, expected) in
            [("/registry", "/registry/secrets/default/a"), ("other/place/", "/other/place/secrets/default/a")]
        {
            let settings = Settings { key_prefix: prefix.into(), ..Settings::default() };
            let loaded = Encryption::load(&settings, Clock::system(), &CancellationToken::new()).await.unwrap();
            assert_eq!(loaded.0.place("/registry/secrets/default/a"), expected.as_bytes());
        }
    }

    #[tokio::test]
    async fn a_wrong_change_is_refused_and_changes_nothing() {
        let loaded = Encryption::load(&Settings::default(), Clock::system(), &CancellationToken::new()).await.unwrap();
        assert!(matches!(loaded.0.reload("kind: Pod\n".into()).await, Applied::Refused(_)));
        let secrets = GroupResource { group: "", resource: "secrets" };
        assert!(!loaded.0.encrypts(secrets) && !loaded.0.has_health_check());
    }
}
