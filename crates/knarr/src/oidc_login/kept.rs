//! Tokens that are kept between two calls, each in a file that nobody else can read.

use std::path::PathBuf;

use anyhow::Context;
use kube_apiserver::pki;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

#[derive(Clone, Deserialize, Serialize)]
pub struct Kept {
    pub id_token: String,
    pub refresh_token: Option<String>,
}

pub struct Folder(PathBuf);

impl Folder {
    pub fn new(given: Option<PathBuf>) -> anyhow::Result<Folder> {
        if let Some(folder) = given {
            return Ok(Folder(folder));
        }
        let home = std::env::var_os("HOME").context("find the home directory: set HOME or --cache-dir")?;
        Ok(Folder(PathBuf::from(home).join(".kube/cache/knarr-oidc")))
    }

    /// Nothing where there is no file, or none that can be read: then somebody signs in again.
    pub fn read(&self, name: &str) -> Option<Kept> {
        serde_json::from_slice(&std::fs::read(self.0.join(name)).ok()?).ok()
    }

    pub fn write(&self, name: &str, kept: &Kept) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.0).with_context(|| format!("create {}", self.0.display()))?;
        let path = self.0.join(name);
        pki::write_private_file(&path, &serde_json::to_string(kept)?)
            .with_context(|| format!("write {}", path.display()))
    }
}

/// One file for each provider, client and set of scopes.
pub fn name(issuer: &str, client: &str, scopes: &str) -> String {
    let mut hash = Sha256::new();
    for part in [issuer, client, scopes] {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + ".json"
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn tokens_are_kept_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Folder::new(Some(folder.path().join("deep/er"))).unwrap();
        let name = name("https://a", "b", "c");
        assert_ne!(name, super::name("https://ab", "", "c"));
        assert!(kept.read(&name).is_none());
        kept.write(&name, &Kept { id_token: "t".into(), refresh_token: Some("r".into()) }).unwrap();
        let read = kept.read(&name).unwrap();
        assert_eq!((read.id_token.as_str(), read.refresh_token.as_deref()), ("t", Some("r")));
        let mode = std::fs::metadata(folder.path().join("deep/er").join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(folder.path().join("deep/er").join(&name), "{").unwrap();
        assert!(kept.read(&name).is_none(), "what cannot be read is none");
    }
}
