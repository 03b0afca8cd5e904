//! What a further server must have of the first: the keys of the cluster. They are kept in a Secret, sealed with the token of
//! servers, so that neither who reads the store nor who may read Secrets has them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use kube_apiserver::pki;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};

use super::token::Token;

/// The Secret in kube-system, and its field.
pub const SECRET: &str = "knarr-servers";
pub const FIELD: &str = "bundle";

/// Keys are private, the rest is not. Those of etcd are there only where knarr runs etcd itself.
const FILES: [&str; 8] =
    ["ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub", "etcd-ca.crt", "etcd-ca.key"];
const SALT: usize = 16;

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

    pub fn seal(&self, token: &Token) -> anyhow::Result<Vec<u8>> {
        let mut head = [0; SALT + NONCE_LEN];
        SystemRandom::new().fill(&mut head).ok().context("the system gives no random numbers")?;
        let (salt, nonce) = head.split_at(SALT);
        let mut text = serde_json::to_vec(&self.0)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok().context("a nonce")?;
        let sealed = key(token, salt)?.seal_in_place_append_tag(nonce, Aad::from(&token.id), &mut text);
        sealed.ok().context("seal the cluster's keys")?;
        Ok([&head[..], &text].concat())
    }

    pub fn open(sealed: &[u8], token: &Token) -> anyhow::Result<Bundle> {
        if sealed.len() < SALT + NONCE_LEN {
            bail!("the keys that the servers share are damaged");
        }
        let (salt, rest) = sealed.split_at(SALT);
        let (nonce, text) = rest.split_at(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok().context("a nonce")?;
        let mut text = text.to_vec();
        let opened = key(token, salt)?.open_in_place(nonce, Aad::from(&token.id), &mut text);
        let opened = opened.ok().context("the keys that the servers share were sealed with another token")?;
        Ok(Bundle(serde_json::from_slice(opened).context("read the keys that the servers share")?))
    }
}

fn key(token: &Token, salt: &[u8]) -> anyhow::Result<LessSafeKey> {
    let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(token.secret.as_bytes());
    let material = secret.expand(&[b"knarr servers"], &AES_256_GCM).ok().context("derive a key")?;
    Ok(LessSafeKey::new(UnboundKey::from(material)))
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
        assert_eq!(bundle.0.len(), 2);
        let token = Token::generate("certificate").unwrap();
        let sealed = bundle.seal(&token).unwrap();
        assert_ne!(sealed, bundle.seal(&token).unwrap(), "each time another");
        assert_eq!(Bundle::open(&sealed, &token).unwrap(), bundle);
        assert!(Bundle::open(&sealed, &Token::generate("certificate").unwrap()).is_err());
        let mut damaged = sealed.clone();
        damaged[40] ^= 1;
        assert!(Bundle::open(&damaged, &token).is_err());
        assert!(Bundle::open(&[], &token).is_err());
        let other = tempfile::tempdir().unwrap();
        bundle.write(&other.path().join("tls")).unwrap();
        assert_eq!(Bundle::read(&other.path().join("tls")).unwrap(), bundle);
    }
}
