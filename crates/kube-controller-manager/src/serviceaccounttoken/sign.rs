//! Tokens of service accounts, signed with the key that the API server checks them by.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PublicKeyData as _};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

/// The key of service account tokens, P-256 or RSA.
pub(super) struct TokenKey {
    key: Key,
    /// The hash of the public key, as the API server computes it too.
    id: String,
}

enum Key {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

/// What is no key for tokens.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyError {
    #[error(transparent)]
    Pem(#[from] rcgen::Error),
    #[error("{0}")]
    Rsa(ring::error::KeyRejected),
}

impl TokenKey {
    pub fn from_pem(pem: &str) -> Result<TokenKey, KeyError> {
        let pair = KeyPair::from_pem(pem)?;
        let der = pair.serialize_der();
        let id = URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, &pair.subject_public_key_info()));
        let key = match EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &SystemRandom::new()) {
            Ok(key) => Key::Es256(key),
            Err(_) => Key::Rs256(RsaKeyPair::from_pkcs8(&der).map_err(KeyError::Rsa)?),
        };
        Ok(TokenKey { key, id })
    }

    pub fn sign(&self, claims: &Value) -> String {
        let algorithm = match self.key {
            Key::Es256(_) => "ES256",
            Key::Rs256(_) => "RS256",
        };
        let header = json!({"alg": algorithm, "kid": self.id}).to_string();
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let random = SystemRandom::new();
        let signature = match &self.key {
            Key::Es256(key) => key.sign(&random, signed.as_bytes()).map(|signature| signature.as_ref().to_vec()),
            Key::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature).map(|()| signature)
            }
        };
        let signature = signature.expect("signing fails only where the system has no randomness");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> TokenKey {
        TokenKey::from_pem(&KeyPair::generate().expect("a key can be made").serialize_pem()).expect("the key is P-256")
    }
}
