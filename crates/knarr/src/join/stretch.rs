//! A shared text becomes keys, slowly: Argon2id with the cluster's salt, so that guessing is dear for whoever got hold of what
//! was derived. What is sent, what seals and what proves are unrelated, and none of them leads back to the text.
//!
//! What is sent is bound to the authority that the server showed: a server that is not the true one learns nothing that the true
//! one would accept. Nothing that everybody may read is derived from a text, so that there is nothing to try guesses on.

use anyhow::Context;
use argon2::{Algorithm, Argon2, Params, Version};
use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};

use super::token::{self, LETTERS, Role};

pub const SALT_LENGTH: usize = 16;
/// A guess costs this much memory and as many passes over it, about 50 ms of one processor.
const MEMORY_KIB: u32 = 32 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;
const KEY_LENGTH: usize = 32;
/// Of the secret of a bootstrap token.
const BEARER_LENGTH: usize = 16;

/// What a shared text is worth in one cluster.
#[derive(Clone)]
pub struct Stretched([u8; KEY_LENGTH]);

impl Stretched {
    /// Takes its time; not for a thread that others wait for.
    pub fn new(text: &str, salt: &[u8]) -> anyhow::Result<Stretched> {
        let params = Params::new(MEMORY_KIB, PASSES, LANES, Some(KEY_LENGTH)).map_err(failed)?;
        let mut key = [0; KEY_LENGTH];
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        argon.hash_password_into(text.as_bytes(), salt, &mut key).map_err(failed)?;
        Ok(Stretched(key))
    }

    /// The same beside other work.
    pub async fn beside(text: String, salt: Vec<u8>) -> anyhow::Result<Stretched> {
        tokio::task::spawn_blocking(move || Stretched::new(&text, &salt)).await.context("derive key from token")?
    }

    /// The secret of the bootstrap token with which that role asks a cluster of that authority.
    pub fn bearer_secret(&self, role: Role, authority_pem: &str) -> anyhow::Result<String> {
        let bytes = self.expand("bearer", role, &token::hash(authority_pem))?;
        Ok(bytes.iter().take(BEARER_LENGTH).map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
    }

    /// What only a cluster can show that knows the text, to those who proved that they know it.
    pub fn proof(&self, role: Role, authority_pem: &str) -> anyhow::Result<[u8; KEY_LENGTH]> {
        self.expand("proof", role, &token::hash(authority_pem))
    }

    /// What seals the keys of the cluster.
    pub fn seal(&self) -> anyhow::Result<LessSafeKey> {
        let key = self.expand("seal", Role::Servers, "")?;
        Ok(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).ok().context("create key")?))
    }

    fn expand(&self, purpose: &str, role: Role, context: &str) -> anyhow::Result<[u8; KEY_LENGTH]> {
        let info = [b"knarr ", purpose.as_bytes(), b" ", role.id().as_bytes(), b" ", context.as_bytes()];
        let prk = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &self.0);
        let mut out = [0; KEY_LENGTH];
        let filled = prk.expand(&info, hkdf::HKDF_SHA256).and_then(|material| material.fill(&mut out));
        filled.ok().context("derive key")?;
        Ok(out)
    }
}

fn failed(error: argon2::Error) -> anyhow::Error {
    anyhow::anyhow!("derive key from token: {error}")
}

/// A salt for a new cluster.
pub fn new_salt() -> anyhow::Result<[u8; SALT_LENGTH]> {
    let mut salt = [0; SALT_LENGTH];
    SystemRandom::new().fill(&mut salt).ok().context("get random numbers from the system")?;
    Ok(salt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_derived_depends_on_text_salt_role_and_authority() {
        let bearer = |text: &str, salt: &[u8], role, authority: &str| {
            Stretched::new(text, salt).unwrap().bearer_secret(role, authority).unwrap()
        };
        let base = || bearer("a text of one's own", b"0123456789abcdef", Role::Servers, "authority");
        let others = [
            bearer("another text", b"0123456789abcdef", Role::Servers, "authority"),
            bearer("a text of one's own", b"fedcba9876543210", Role::Servers, "authority"),
            bearer("a text of one's own", b"0123456789abcdef", Role::Agents, "authority"),
            bearer("a text of one's own", b"0123456789abcdef", Role::Servers, "a liar's authority"),
        ];
        assert_eq!(base(), base());
        assert_eq!(base().len(), BEARER_LENGTH);
        assert!(others.iter().all(|other| *other != base()), "{others:?}");
        assert_ne!(new_salt().unwrap(), new_salt().unwrap());
    }

    #[test]
    fn a_guess_costs_more_than_a_hash() {
        let begin = std::time::Instant::now();
        Stretched::new("sunshine1sunshine1", b"0123456789abcdef").unwrap();
        assert!(begin.elapsed() > std::time::Duration::from_millis(5), "{:?}", begin.elapsed());
    }
}
