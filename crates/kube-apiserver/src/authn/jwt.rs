//! JSON web tokens, and those of service accounts: ES256 and RS256. Pure.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use serde_json::{Value, json};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Longer than any token we issue; whoever sends more is refused before any work is done.
const TOKEN_LENGTH_MAX: usize = 16 * 1024;

/// The DER of a P-256 public key up to the point itself.
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum KeyError {
    #[error("key is not PEM: {0}")]
    Pem(String),
    #[error("the signing key is neither a P-256 nor an RSA key in PKCS#8: {0}")]
    Signing(String),
    #[error("the public key is neither P-256 nor RSA")]
    Public,
}

pub struct SigningKey {
    key: Secret,
    random: SystemRandom,
    public: PublicKeyEntry,
}

enum Secret {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

/// A key that tokens may be signed with.
#[derive(Clone, Debug)]
pub struct PublicKeyEntry {
    /// The hash of the key, as upstream computes it: tokens of the same key carry the same id in both worlds.
    id: String,
    algorithm: Algorithm,
    bytes: Vec<u8>,
    /// The key as a JSON web key.
    pub web_key: Value,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Algorithm {
    Es256,
    Rs256,
}

/// A token taken apart; nothing about it is proven yet.
pub struct Unverified<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    header: Value,
    pub claims: Value,
}

impl SigningKey {
    pub fn from_pem(pem: &str) -> Result<SigningKey, KeyError> {
        let der =
            PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| KeyError::Pem(error.to_string()))?;
        let random = SystemRandom::new();
        let der = der.secret_pkcs8_der();
        if let Ok(key) = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random) {
            let public = PublicKeyEntry::p256(key.public_key().as_ref());
            return Ok(SigningKey { key: Secret::Es256(key), random, public });
        }
        let key = RsaKeyPair::from_pkcs8(der).map_err(|error| KeyError::Signing(error.to_string()))?;
        let public = PublicKeyEntry::rsa(key.public().as_ref())?;
        Ok(SigningKey { key: Secret::Rs256(key), random, public })
    }

    pub fn public(&self) -> &PublicKeyEntry {
        &self.public
    }

    pub fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": self.public.algorithm_name(), "kid": self.public.id});
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = encode(self.signature(&signed));
        format!("{signed}.{signature}")
    }

    pub(super) fn signature(&self, signed: &str) -> Vec<u8> {
        let signature = match &self.key {
            Secret::Es256(key) => {
                key.sign(&self.random, signed.as_bytes()).map(|signature| signature.as_ref().to_vec())
            }
            Secret::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &self.random, signed.as_bytes(), &mut signature).map(|()| signature)
            }
        };
        signature.expect("signing fails only where the system has no randomness")
    }
}

impl PublicKeyEntry {
    /// From `-----BEGIN PUBLIC KEY-----`.
    pub fn from_pem(pem: &str) -> Result<PublicKeyEntry, KeyError> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| KeyError::Pem(error.to_string()))?;
        PublicKeyEntry::from_der(&der)
    }

    /// A key under a name that somebody else has given it.
    pub(super) fn named(id: &str, der: &[u8]) -> Result<PublicKeyEntry, KeyError> {
        let mut entry = PublicKeyEntry::from_der(der)?;
        entry.id = id.to_owned();
        entry.web_key["kid"] = id.into();
        Ok(entry)
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    fn from_der(der: &[u8]) -> Result<PublicKeyEntry, KeyError> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| KeyError::Public)?;
        let bytes = info.subject_public_key.data.as_ref();
        match info.parsed().map_err(|_| KeyError::Public)? {
            PublicKey::EC(_) if der.starts_with(&P256_PREFIX) => Ok(PublicKeyEntry::p256(bytes)),
            PublicKey::RSA(rsa) => {
                let id = encode(digest(&SHA256, der));
                let number = |bytes: &[u8]| encode(&bytes[bytes.iter().take_while(|byte| **byte == 0).count()..]);
                let (n, e) = (number(rsa.modulus), number(rsa.exponent));
                let web_key = json!({"use": "sig", "kty": "RSA", "kid": id, "alg": "RS256", "n": n, "e": e});
                Ok(PublicKeyEntry { id, algorithm: Algorithm::Rs256, bytes: bytes.to_vec(), web_key })
            }
            _ => Err(KeyError::Public),
        }
    }

    /// `key` is modulus and exponent, as PKCS#1 writes them.
    fn rsa(key: &[u8]) -> Result<PublicKeyEntry, KeyError> {
        // What the key's kind is called, and that it has no parameters.
        const RSA: [u8; 15] = [0x30, 0x0d, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
        let bits = element(3, &[&[0], key].concat());
        PublicKeyEntry::from_der(&element(0x30, &[&RSA[..], &bits].concat()))
    }

    /// `point` is uncompressed: one byte of form, then both coordinates.
    fn p256(point: &[u8]) -> PublicKeyEntry {
        let id = encode(digest(&SHA256, &[&P256_PREFIX[..], point].concat()));
        let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
        let web_key = json!({"use": "sig", "kty": "EC", "kid": id, "crv": "P-256", "alg": "ES256", "x": x, "y": y});
        PublicKeyEntry { id, algorithm: Algorithm::Es256, bytes: point.to_vec(), web_key }
    }

    pub(crate) fn algorithm_name(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Es256 => "ES256",
            Algorithm::Rs256 => "RS256",
        }
    }
}

/// One element of DER: what it is, how long it is, what it holds.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut out = vec![tag];
    match length {
        0..=0x7f => out.push(length as u8),
        _ => {
            let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            out.push(0x80 | bytes.len() as u8);
            out.extend(bytes);
        }
    }
    out.extend(content);
    out
}

impl<'a> Unverified<'a> {
    /// `None` for anything that is not a token of this form: it may be another kind of token.
    pub fn parse(token: &'a str) -> Option<Unverified<'a>> {
        if token.len() > TOKEN_LENGTH_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let parse = |text: &str| serde_json::from_slice(&decode(text)?).ok();
        Some(Unverified { signed, signature: decode(signature)?, header: parse(header)?, claims: parse(claims)? })
    }

    /// What the header says; nothing about it is proven.
    pub fn algorithm(&self) -> Option<&str> {
        self.header.get("alg").and_then(Value::as_str)
    }

    pub(crate) fn key_id(&self) -> Option<&str> {
        self.header.get("kid").and_then(Value::as_str)
    }

    pub fn signed(&self) -> &[u8] {
        self.signed.as_bytes()
    }

    pub fn signature(&self) -> &[u8] {
        &self.signature
    }

    /// Whether one of the keys signed it. The header names the key; the key, not the header, names the algorithm.
    pub(crate) fn is_signed_by(&self, keys: &[PublicKeyEntry]) -> bool {
        let text = |field: &str| self.header.get(field).and_then(Value::as_str);
        let candidates = keys
            .iter()
            .filter(|key| text("kid").is_none_or(|id| id == key.id) && text("alg") == Some(key.algorithm_name()));
        candidates.into_iter().any(|key| {
            let algorithm: &dyn VerificationAlgorithm = match key.algorithm {
                Algorithm::Es256 => &ECDSA_P256_SHA256_FIXED,
                Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            };
            UnparsedPublicKey::new(algorithm, &key.bytes).verify(self.signed.as_bytes(), &self.signature).is_ok()
        })
    }
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> (SigningKey, rcgen::KeyPair) {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        (SigningKey::from_pem(&pair.serialize_pem()).unwrap(), pair)
    }

    #[test]
    fn signed_tokens_verify_and_changed_ones_do_not() {
        let ((signer, pair), (other, _)) = (key(), key());
        let token = signer.sign(&json!({"sub": "a"}));
        let check = |token: &str, keys: &[PublicKeyEntry], expected: bool| {
            let verified = Unverified::parse(token).is_some_and(|token| token.is_signed_by(keys));
            assert_eq!(verified, expected, "{token}");
        };
        let own = [signer.public().clone()];
        check(&token, &own, true);
        check(&token, &[PublicKeyEntry::from_pem(&pair.public_key_pem()).unwrap()], true);
        check(&token, &[other.public().clone(), signer.public().clone()], true);
        check(&token, &[other.public().clone()], false);
        check(&token, &[], false);
        let parts: Vec<&str> = token.split('.').collect();
        check(&format!("{}.{}.{}", parts[0], encode("{\"sub\":\"b\"}"), parts[2]), &own, false);
        check(&format!("{}.{}.", encode("{\"alg\":\"none\"}"), parts[1]), &own, false);
        check(&format!("{}.{}.{}", encode("{\"alg\":\"HS256\"}"), parts[1], parts[2]), &own, false);
        check(&format!("{}.{}.{}", encode("{\"alg\":\"ES256\"}"), parts[1], parts[2]), &own, false);
        for junk in ["", ".", "a.b", "a.b.c", "e30.e30.!", &"a".repeat(TOKEN_LENGTH_MAX + 1)] {
            check(junk, &own, false);
        }
    }

    #[test]
    fn key_ids_are_upstreams() {
        let (signer, pair) = key();
        let der = rcgen::PublicKeyData::subject_public_key_info(&pair);
        assert_eq!(signer.public().id, encode(digest(&SHA256, &der)));
        let web_key = &signer.public().web_key;
        assert_eq!((web_key["kty"].as_str(), web_key["crv"].as_str()), (Some("EC"), Some("P-256")));
        assert_eq!(web_key["x"].as_str().unwrap().len(), 43);
    }

    #[test]
    fn wrong_keys_are_named() {
        assert!(matches!(SigningKey::from_pem("nonsense"), Err(KeyError::Pem(_))));
        let ed25519 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        assert!(matches!(SigningKey::from_pem(&ed25519.serialize_pem()), Err(KeyError::Signing(_))));
        assert!(matches!(PublicKeyEntry::from_pem(&ed25519.public_key_pem()), Err(KeyError::Public)));
    }

    #[test]
    fn rsa_keys_sign_too() {
        let openssl = |arguments: &str| {
            let output = std::process::Command::new("openssl").args(arguments.split(' ')).output();
            String::from_utf8(output.expect("there is an openssl").stdout).unwrap()
        };
        let signer = SigningKey::from_pem(&openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048")).unwrap();
        let token = signer.sign(&json!({"sub": "a"}));
        let token = Unverified::parse(&token).unwrap();
        assert_eq!(token.header["alg"], "RS256");
        assert!(token.is_signed_by(&[signer.public().clone()]));
        assert!(!token.is_signed_by(&[key().0.public().clone()]));
    }

    #[test]
    fn rsa_keys_of_an_older_cluster_are_accepted() {
        let key = PublicKeyEntry::from_pem(include_str!("testdata/rsa-public-key.pem")).unwrap();
        assert_eq!((key.algorithm_name(), key.web_key["e"].as_str()), ("RS256", Some("AQAB")));
        let token = include_str!("testdata/rsa-signed-token.txt").trim();
        assert!(Unverified::parse(token).unwrap().is_signed_by(&[key]));
    }
}
