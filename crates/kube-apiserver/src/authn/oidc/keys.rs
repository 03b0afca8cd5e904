//! The public keys of a provider, as its JSON web key set says them, and which signatures they make believable. Pure.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

/// More keys than any provider has.
const KEYS_MAX: usize = 256;

/// What tokens may be signed with, by JOSE's names. ES512 is not among them: the library has no P-521.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Es256,
    Es384,
    Ps256,
    Ps384,
    Ps512,
}

impl Algorithm {
    pub const ALL: [Algorithm; 8] = [
        Algorithm::Es256,
        Algorithm::Es384,
        Algorithm::Ps256,
        Algorithm::Ps384,
        Algorithm::Ps512,
        Algorithm::Rs256,
        Algorithm::Rs384,
        Algorithm::Rs512,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Rs384 => "RS384",
            Algorithm::Rs512 => "RS512",
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
            Algorithm::Ps256 => "PS256",
            Algorithm::Ps384 => "PS384",
            Algorithm::Ps512 => "PS512",
        }
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Algorithm::Rs256 => Some(&RSA_PKCS1_2048_8192_SHA256),
            Algorithm::Rs384 => Some(&RSA_PKCS1_2048_8192_SHA384),
            Algorithm::Rs512 => Some(&RSA_PKCS1_2048_8192_SHA512),
            Algorithm::Ps256 => Some(&RSA_PSS_2048_8192_SHA256),
            Algorithm::Ps384 => Some(&RSA_PSS_2048_8192_SHA384),
            Algorithm::Ps512 => Some(&RSA_PSS_2048_8192_SHA512),
            Algorithm::Es256 | Algorithm::Es384 => None,
        }
    }
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("oidc: unsupported signing alg: {0:?}: use RS256, RS384, RS512, ES256, ES384, PS256, PS384 or PS512")]
pub struct NoSuchAlgorithm(String);

impl std::str::FromStr for Algorithm {
    type Err = NoSuchAlgorithm;

    fn from_str(text: &str) -> Result<Algorithm, NoSuchAlgorithm> {
        Algorithm::ALL.into_iter().find(|known| known.name() == text).ok_or_else(|| NoSuchAlgorithm(text.to_owned()))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("the key set is not JSON")]
    Json,
    #[error("the key set has more than {KEYS_MAX} keys")]
    TooMany,
}

/// Keys that can verify; others of the set are left out, as they may be for something else.
#[derive(Debug, Default)]
pub struct Keys(Vec<WebKey>);

#[derive(Debug)]
struct WebKey {
    id: String,
    key: Key,
}

#[derive(Debug)]
enum Key {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Written>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Written {
    kid: String,
    kty: String,
    crv: String,
    n: String,
    e: String,
    x: String,
    y: String,
}

impl Keys {
    pub fn parse(body: &[u8]) -> Result<Keys, KeysError> {
        let set: Set = serde_json::from_slice(body).map_err(|_| KeysError::Json)?;
        if set.keys.len() > KEYS_MAX {
            return Err(KeysError::TooMany);
        }
        Ok(Keys(set.keys.into_iter().filter_map(WebKey::read).collect()))
    }

    /// Whether one of them signed it. Where the token names a key, only that one counts.
    pub fn verify(&self, algorithm: Algorithm, id: Option<&str>, signed: &[u8], signature: &[u8]) -> bool {
        let candidates = self.0.iter().filter(|key| id.is_none_or(|id| id.is_empty() || id == key.id));
        candidates.into_iter().any(|key| key.verify(algorithm, signed, signature))
    }
}

impl WebKey {
    fn read(written: Written) -> Option<WebKey> {
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
        let point = |length: usize| {
            let (x, y) = (decode(&written.x)?, decode(&written.y)?);
            (x.len() == length && y.len() == length).then(|| [&[4][..], &x, &y].concat())
        };
        let key = match (written.kty.as_str(), written.crv.as_str()) {
            ("RSA", _) => Key::Rsa { n: number(decode(&written.n)?)?, e: number(decode(&written.e)?)? },
            ("EC", "P-256") => Key::P256(point(32)?),
            ("EC", "P-384") => Key::P384(point(48)?),
            _ => return None,
        };
        Some(WebKey { id: written.kid, key })
    }

    fn verify(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        let verified = match (&self.key, algorithm, algorithm.rsa()) {
            (Key::Rsa { n, e }, _, Some(parameters)) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, signed, signature)
            }
            (Key::P256(point), Algorithm::Es256, _) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
            (Key::P384(point), Algorithm::Es384, _) => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point).verify(signed, signature)
            }
            // A key of another kind than the token says.
            _ => return false,
        };
        verified.is_ok()
    }
}

/// Without the zeros in front, which the library does not take.
fn number(bytes: Vec<u8>) -> Option<Vec<u8>> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Some(bytes[zeros..].to_vec()).filter(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::super::jwt::SigningKey;
    use super::*;
    use serde_json::json;

    #[test]
    fn published_keys_verify_what_they_signed() {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let signer = SigningKey::from_pem(&pair.serialize_pem()).unwrap();
        let token = signer.sign(&json!({"sub": "a"}));
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let web_key = signer.public().web_key.clone();
        let keys = Keys::parse(json!({"keys": [{"kty": "oct", "k": "AA"}, web_key]}).to_string().as_bytes()).unwrap();
        let id = web_key["kid"].as_str();
        let check = |algorithm, id, signed: &str, expected| {
            assert_eq!(keys.verify(algorithm, id, signed.as_bytes(), &signature), expected, "{algorithm:?} {id:?}");
        };
        check(Algorithm::Es256, id, signed, true);
        check(Algorithm::Es256, None, signed, true);
        check(Algorithm::Es256, Some("other"), signed, false);
        check(Algorithm::Es256, id, "changed", false);
        check(Algorithm::Rs256, id, signed, false);
        check(Algorithm::Es384, id, signed, false);
    }

    #[test]
    fn sets_are_bounded_and_must_be_json() {
        assert!(matches!(Keys::parse(b"<html>"), Err(KeysError::Json)));
        let many = json!({"keys": vec![json!({"kty": "RSA"}); KEYS_MAX + 1]});
        assert!(matches!(Keys::parse(many.to_string().as_bytes()), Err(KeysError::TooMany)));
        assert!("ES512".parse::<Algorithm>().unwrap_err().to_string().contains("unsupported signing alg: \"ES512\""));
        assert_eq!("PS384".parse(), Ok(Algorithm::Ps384));
    }
}
