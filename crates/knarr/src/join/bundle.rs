//! The keys of the cluster that all servers share. They are kept in a Secret, encrypted with a key that only
//! the token of servers leads to. That token is in no Secret, so that neither who reads the store nor who may read Secrets has them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use kube_apiserver::pki;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

use super::stretch::Stretched;
use super::token::{Form, LETTERS, Token};

/// The Secret in kube-system, and its fields.
pub const SECRET: &str = "knarr-servers";
pub const FIELD: &str = "sealed";
/// As it was called when the token itself sealed it.
pub const LEGACY_FIELD: &str = "bundle";

/// Keys are private, the rest is not. Those of etcd are there only where knarr runs etcd itself, those of encryption only where it was
/// enabled before there were several servers.
const FILES: [&str; 9] = [
    "ca.crt",
    "ca.key",
    "front-proxy-ca.crt",
    "front-proxy-ca.key",
    "sa.key",
    "sa.pub",
    "etcd-ca.crt",
    "etcd-ca.key",
    crate::secrets_encrypt::FILE,
];
const PURPOSE: &[u8] = b"knarr servers";
const LEGACY_SALT: usize = 16;

/// The files of a server's folder, by their names.
#[derive(Debug, PartialEq)]
pub struct Bundle(BTreeMap<String, String>);

impl Bundle {
    pub fn read(tls: &Path) -> anyhow::Result<Bundle> {
        let mut files = BTreeMap::new();
        for name in FILES {
            match std::fs::read_to_string(tls.join(name)) {
                Ok(text) => _ = files.insert(name.to_owned(), text),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| format!("read {}", tls.join(name).display())),
            }
        }
        Ok(Bundle(files))
    }

    /// Puts them where a start finds them; the authority's certificate last, because with it the folder counts as filled.
    pub fn write(&self, tls: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(tls).with_context(|| format!("create {}", tls.display()))?;
        let known = self.0.iter().filter(|(name, _)| FILES.contains(&name.as_str()));
        let (last, first): (Vec<_>, Vec<_>) = known.partition(|(name, _)| *name == "ca.crt");
        for (name, text) in first.into_iter().chain(last) {
            pki::write_private_file(&tls.join(name), text)?;
        }
        Ok(())
    }

    /// The same, without those that are there: etcd's authority may be in use already.
    pub fn write_missing(mut self, tls: &Path) -> anyhow::Result<()> {
        self.0.retain(|name, _| !tls.join(name).exists());
        self.write(tls)
    }

    /// The authority that the cluster's certificates are from.
    pub fn authority(&self) -> Option<&str> {
        self.0.get("ca.crt").map(String::as_str)
    }

    /// Whether every file of the other one is among these.
    pub fn covers(&self, other: &Bundle) -> bool {
        other.0.keys().all(|name| self.0.contains_key(name))
    }

    pub fn seal(&self, key: &Stretched) -> anyhow::Result<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok().context("get random numbers from the system")?;
        let mut text = serde_json::to_vec(&self.0)?;
        let sealed =
            key.seal()?.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(PURPOSE), &mut text);
        sealed.ok().context("encrypt the cluster's keys")?;
        Ok([&nonce[..], &text].concat())
    }

    pub fn open(sealed: &[u8], key: &Stretched) -> anyhow::Result<Bundle> {
        unsealed(sealed, &key.seal()?, PURPOSE)
    }

    /// What a snapshot of an older knarr holds: sealed with the token itself.
    pub fn open_legacy(sealed: &[u8], token: &Token) -> anyhow::Result<Bundle> {
        let Some((salt, rest)) = sealed.split_at_checked(LEGACY_SALT) else {
            bail!("the shared cluster keys are damaged");
        };
        let (id, secret) = legacy_parts(token);
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret.as_bytes());
        let material = extracted.expand(&[PURPOSE], &AES_256_GCM).ok().context("derive key")?;
        unsealed(rest, &LessSafeKey::new(UnboundKey::from(material)), id.as_bytes())
    }
}

fn unsealed(sealed: &[u8], key: &LessSafeKey, purpose: &[u8]) -> anyhow::Result<Bundle> {
    let Some((nonce, text)) = sealed.split_at_checked(NONCE_LEN) else {
        bail!("the shared cluster keys are damaged");
    };
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok().context("build nonce")?;
    let mut text = text.to_vec();
    let opened = key.open_in_place(nonce, Aad::from(purpose), &mut text);
    let opened = opened.ok().context("the shared cluster keys were encrypted with another token")?;
    Ok(Bundle(serde_json::from_slice(opened).context("decode shared cluster keys")?))
}

/// The id and secret that a text was before it was stretched. Kept to open and to end what older versions made, never to make anew.
pub fn legacy_parts(token: &Token) -> (String, String) {
    match &token.form {
        Form::Bootstrap { id, secret } => (id.clone(), secret.clone()),
        Form::Text(text) => {
            let word = |purpose: &str, length: usize| -> String {
                let digest = Sha256::digest(format!("knarr {purpose}: {text}"));
                digest.iter().take(length).map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect()
            };
            (word("id", 6), word("secret", 16))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_opens_what_was_sealed() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("ca.crt", "certificate"), ("ca.key", "key"), ("admin.key", "not shared")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let bundle = Bundle::read(folder.path()).unwrap();
        assert_eq!((bundle.0.len(), bundle.authority()), (2, Some("certificate")));
        let key = Stretched::new("a text of one's own", b"0123456789abcdef").unwrap();
        let sealed = bundle.seal(&key).unwrap();
        assert_ne!(sealed, bundle.seal(&key).unwrap(), "each time another");
        assert_eq!(Bundle::open(&sealed, &key).unwrap(), bundle);
        assert!(Bundle::open(&sealed, &Stretched::new("a text of one's own", b"another salt....").unwrap()).is_err());
        let mut damaged = sealed.clone();
        damaged[40] ^= 1;
        assert!(Bundle::open(&damaged, &key).is_err());
        assert!(Bundle::open(&[], &key).is_err());
        let other = tempfile::tempdir().unwrap();
        bundle.write(&other.path().join("tls")).unwrap();
        assert_eq!(Bundle::read(&other.path().join("tls")).unwrap(), bundle);
    }
}
