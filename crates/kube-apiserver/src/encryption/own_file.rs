//! The configuration that a server makes by itself, for those who want no files: Secrets, with keys of secretbox. It is an
//! EncryptionConfiguration like any other, so that upstream's server reads the same values with it. The first key writes; the others
//! are there until nothing needs them.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use component_base::files;
use machinery::status::GroupResource;
use serde_json::{Value, json};

use super::config::{self, KeyKind, Provider};
use super::{Encryption, cipher};
use crate::configuration;

#[derive(Debug, thiserror::Error)]
pub enum OwnFileError {
    #[error("encryption is configured by --encryption-provider-config={0}: change that file instead")]
    OtherFile(String),
    #[error("this server has no folder for keys of its own: use --encryption-provider-config")]
    NoFolder,
    #[error(
        "servers that share a store need the same keys: write an EncryptionConfiguration and give it to every server by \
         --encryption-provider-config"
    )]
    Shared,
    #[error("encryption is enabled already; `knarr secrets-encrypt rotate` makes a new key")]
    Enabled,
    #[error("encryption is not enabled; `knarr secrets-encrypt enable` turns it on")]
    NotEnabled,
    #[error("values are still being encrypted: wait until `knarr secrets-encrypt status` says that it is done")]
    Busy,
    #[error(transparent)]
    Cipher(#[from] cipher::CipherError),
    #[error(transparent)]
    File(#[from] configuration::Error),
    #[error("write {path}")]
    Write {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{0}")]
    Apply(super::ReplaceError),
}

impl Encryption {
    /// Makes the first key, and lets everything be written anew with it.
    pub async fn enable(&self) -> Result<(), OwnFileError> {
        let _alone = self.own.lock().await;
        let path = self.changeable_path()?;
        if path.exists() {
            return Err(OwnFileError::Enabled);
        }
        self.write(path, &[new_key(&self.key_name())?]).await
    }

    /// Makes another key, and lets everything be written anew with it. The old one goes when that is done.
    pub async fn rotate(&self) -> Result<(), OwnFileError> {
        let _alone = self.own.lock().await;
        let path = self.changeable_path()?;
        if !path.exists() {
            return Err(OwnFileError::NotEnabled);
        }
        let keys = read(path)?;
        if keys.len() > 1 || self.progress().is_running {
            return Err(OwnFileError::Busy);
        }
        let mut all = vec![new_key(&self.key_name())?];
        all.extend(keys);
        self.write(path, &all).await
    }

    /// Forgets the keys that no value needs any more. Called when nothing is left that they wrote.
    pub(super) async fn forget_old_keys(&self) -> Result<(), OwnFileError> {
        let _alone = self.own.lock().await;
        let Ok(path) = self.own_path() else { return Ok(()) };
        if !path.exists() {
            return Ok(());
        }
        let keys = read(path)?;
        if keys.len() < 2 {
            return Ok(());
        }
        self.apply(path, &keys[..1]).await
    }

    /// Whether values may be left on the disk that an older key wrote, or none.
    pub(super) fn is_unfinished(&self) -> bool {
        self.own_path().is_ok_and(|path| unfinished(path).exists())
    }

    pub(super) fn finish(&self) -> Result<(), OwnFileError> {
        let Ok(path) = self.own_path() else { return Ok(()) };
        match std::fs::remove_file(unfinished(path)) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(OwnFileError::Write { path: unfinished(path).display().to_string(), source })
            }
            _ => Ok(()),
        }
    }

    /// The names of the keys, the one that writes first; none where this server has made none.
    pub fn own_keys(&self) -> Vec<String> {
        let keys = self.own_path().and_then(read).unwrap_or_default();
        keys.into_iter().map(|key| key.name).collect()
    }

    fn own_path(&self) -> Result<&Path, OwnFileError> {
        if let Some(other) = &self.settings.file {
            return Err(OwnFileError::OtherFile(other.display().to_string()));
        }
        self.settings.own_file.as_deref().ok_or(OwnFileError::NoFolder)
    }

    fn changeable_path(&self) -> Result<&Path, OwnFileError> {
        let path = self.own_path()?;
        if self.settings.is_shared { Err(OwnFileError::Shared) } else { Ok(path) }
    }

    /// What `knarr secrets-encrypt status` shows. Secrets of keys are not among it.
    pub fn status(&self) -> Value {
        let progress = self.progress();
        let secrets = GroupResource { group: "", resource: "secrets" };
        let file = self.settings.file.as_ref().map(|path| path.display().to_string());
        json!({
            "secretsAreEncrypted": self.encrypts(secrets), "file": file, "keys": self.own_keys(),
            "running": progress.is_running, "done": progress.is_done, "seen": progress.seen,
            "rewritten": progress.rewritten, "total": progress.total, "error": progress.error,
        })
    }

    fn key_name(&self) -> String {
        format!("key-{}", self.around.clock.now().as_millisecond())
    }

    async fn write(&self, path: &Path, keys: &[config::Key]) -> Result<(), OwnFileError> {
        let marker = unfinished(path);
        let failed = |source| OwnFileError::Write { path: marker.display().to_string(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        files::write_durably(&marker, "", 0o600).map_err(failed)?;
        self.apply(path, keys).await?;
        self.start_rewriting();
        Ok(())
    }

    /// Durable before it is used: a value whose key is lost is lost.
    async fn apply(&self, path: &Path, keys: &[config::Key]) -> Result<(), OwnFileError> {
        let text = text(keys);
        let parsed = config::parse(&text)?;
        let failed = |source| OwnFileError::Write { path: path.display().to_string(), source };
        files::write_durably(path, &text, 0o600).map_err(failed)?;
        self.replace(parsed).await.map_err(OwnFileError::Apply)?;
        self.reloads.in_use(&text);
        Ok(())
    }
}

/// Is there from before a key is used until nothing of the time before is left.
fn unfinished(path: &Path) -> std::path::PathBuf {
    path.with_extension("unfinished")
}

fn new_key(name: &str) -> Result<config::Key, OwnFileError> {
    Ok(config::Key { name: name.to_owned(), secret: cipher::random::<32>()?.to_vec() })
}

fn text(keys: &[config::Key]) -> String {
    let keys: Vec<Value> =
        keys.iter().map(|key| json!({"name": key.name, "secret": STANDARD.encode(&key.secret)})).collect();
    // JSON is YAML, and needs no writer of its own. What was written before encryption was on must stay readable.
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{
            "resources": ["secrets"],
            "providers": [{"secretbox": {"keys": keys}}, {"identity": {}}],
        }],
    });
    format!("{configuration:#}\n")
}

fn read(path: &Path) -> Result<Vec<config::Key>, OwnFileError> {
    let parsed = config::parse(&configuration::read(path)?)?;
    let providers = parsed.rules.into_iter().flat_map(|rule| rule.providers);
    let keys = providers.filter_map(|provider| match provider {
        Provider::Keys { kind: KeyKind::Secretbox, keys } => Some(keys),
        Provider::Keys { .. } | Provider::Identity | Provider::Kms { .. } => None,
    });
    Ok(keys.flatten().collect())
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::super::Settings;
    use super::*;
    use crate::app::Clock;

    #[tokio::test]
    async fn keys_are_made_kept_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server/encryption-config.yaml");
        let settings = Settings { own_file: Some(path.clone()), ..Settings::default() };
        let load =
            || async { Encryption::load(&settings, Clock::system(), &CancellationToken::new()).await.unwrap().0 };
        let encryption = load().await;
        let (key, value) = ("/registry/secrets/default/a", bytes::Bytes::from_static(b"{}"));
        assert_eq!(encryption.seal(key, value.clone()).unwrap(), value);
        assert!(matches!(encryption.rotate().await, Err(OwnFileError::NotEnabled)));
        encryption.enable().await.unwrap();
        assert!(matches!(encryption.enable().await, Err(OwnFileError::Enabled)));
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let first = encryption.own_keys();
        let sealed = encryption.seal(key, value.clone()).unwrap();
        assert!(sealed.starts_with(format!("k8s:enc:secretbox:v1:{}:", first[0]).as_bytes()));
        // Another process finds the same.
        let again = load().await;
        assert_eq!(again.own_keys(), first);
        let opened = again.open(key, sealed.clone(), super::super::Patience::Full).await.unwrap();
        assert_eq!(opened, (value.clone(), false));
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        again.rotate().await.unwrap();
        assert_eq!(again.own_keys().len(), 2);
        assert!(matches!(again.rotate().await, Err(OwnFileError::Busy)));
        assert!(again.open(key, sealed.clone(), super::super::Patience::Full).await.unwrap().1, "of the older key");
        again.forget_old_keys().await.unwrap();
        assert_eq!(again.own_keys().len(), 1);
        assert_ne!(again.own_keys(), first);
        assert!(again.open(key, sealed, super::super::Patience::Full).await.is_err());
    }

    #[tokio::test]
    async fn a_file_of_the_operator_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.yaml");
        std::fs::write(&path, text(&[new_key("mine").unwrap()])).unwrap();
        let own_file = Some(folder.path().join("own.yaml"));
        let settings = Settings { file: Some(path.clone()), own_file, ..Settings::default() };
        let encryption = Encryption::load(&settings, Clock::system(), &CancellationToken::new()).await.unwrap().0;
        let error = encryption.enable().await.unwrap_err().to_string();
        assert!(error.contains("--encryption-provider-config"), "{error}");
        assert!(!folder.path().join("own.yaml").exists());
    }
}
