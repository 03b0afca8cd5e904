//! The public key that a certificate is asked for, and the proof that who asks has the private one.

use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_NIST_EC_P521, OID_PKCS1_RSAENCRYPTION,
    OID_SIG_ED25519,
};
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo, X509CertificationRequest};
use x509_parser::public_key::PublicKey;

/// What is wrong with a key: the value that upstream shows instead of it, and its sentence.
pub(super) struct Wrong {
    pub(super) shown: Option<String>,
    pub(super) detail: &'static str,
}

/// A key of a kind that upstream takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum KeyKind {
    Ed25519,
    P256,
    P384,
    P521,
    Rsa,
}

pub(super) fn request(der: &[u8]) -> Option<X509CertificationRequest<'_>> {
    X509CertificationRequest::from_der(der).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, request)| request)
}

pub(super) fn public_key(der: &[u8]) -> Option<SubjectPublicKeyInfo<'_>> {
    SubjectPublicKeyInfo::from_der(der).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, key)| key)
}

/// Which kind it is, or why no certificate is given for it. `curves` is how the field names the curves that it takes.
pub(super) fn kind(key: &SubjectPublicKeyInfo<'_>, curves: &'static str) -> Result<KeyKind, Wrong> {
    let algorithm = &key.algorithm.algorithm;
    if *algorithm == OID_SIG_ED25519 {
        return Ok(KeyKind::Ed25519);
    }
    if *algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY {
        let curve = key.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
        return match curve {
            Some(curve) if curve == OID_EC_P256 => Ok(KeyKind::P256),
            Some(curve) if curve == OID_NIST_EC_P384 => Ok(KeyKind::P384),
            Some(curve) if curve == OID_NIST_EC_P521 => Ok(KeyKind::P521),
            // The only other one that Go knows.
            _ => Err(Wrong { shown: Some("curve P-224".into()), detail: curves }),
        };
    }
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) if *algorithm == OID_PKCS1_RSAENCRYPTION => match rsa.key_size() {
            3072 | 4096 => Ok(KeyKind::Rsa),
            bits => Err(Wrong {
                shown: Some(format!("{bits}-bit modulus")),
                detail: "RSA keys must have modulus size 3072 or 4096",
            }),
        },
        _ => Err(Wrong { shown: None, detail: "unknown public key type; supported types are Ed25519, ECDSA, and RSA" }),
    }
}

/// Whether the pod's UID was signed with the private key. Signatures by P-521 cannot be verified here, and those by RSA only where the
/// salt is as long as the hash.
pub(super) fn proves(key: &SubjectPublicKeyInfo<'_>, kind: KeyKind, uid: &str, proof: &[u8]) -> bool {
    let algorithm: &dyn VerificationAlgorithm = match kind {
        KeyKind::Ed25519 => &signature::ED25519,
        KeyKind::P256 => &signature::ECDSA_P256_SHA256_ASN1,
        KeyKind::P384 => &signature::ECDSA_P384_SHA256_ASN1,
        KeyKind::Rsa => &signature::RSA_PSS_2048_8192_SHA256,
        KeyKind::P521 => return false,
    };
    UnparsedPublicKey::new(algorithm, &key.subject_public_key.data).verify(uid.as_bytes(), proof).is_ok()
}
