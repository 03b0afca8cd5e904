//! The cluster's authority as a signer of what others ask for.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{KeyPair, SigningKey as _};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer;

use super::der::{bit_string, element, extension, integer, named_bits, object_identifier, sequence, time};
use super::request::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY, Parsed};
use crate::PrivateKey;

/// The authority that signs requests: certificate and key, as PEM.
#[derive(Clone, Debug)]
pub struct SigningAuthority {
    pub certificate_pem: String,
    pub key: PrivateKey,
}

/// Which authority signs for which signer.
#[derive(Clone, Debug, Default)]
pub struct SigningAuthorities {
    /// For all signers but those that have one of their own.
    pub common: Option<SigningAuthority>,
    pub kubelet_serving: Option<SigningAuthority>,
    pub kubelet_client: Option<SigningAuthority>,
    pub kube_apiserver_client: Option<SigningAuthority>,
    pub legacy_unknown: Option<SigningAuthority>,
}

impl SigningAuthorities {
    /// One for all.
    pub fn all(authority: SigningAuthority) -> SigningAuthorities {
        SigningAuthorities { common: Some(authority), ..SigningAuthorities::default() }
    }

    /// None for signers that are not this cluster's, or are not to sign.
    pub(super) fn of(&self, signer: &str) -> Option<&SigningAuthority> {
        let own = match signer {
            KUBELET_SERVING => &self.kubelet_serving,
            KUBELET_CLIENT => &self.kubelet_client,
            CLIENT => &self.kube_apiserver_client,
            LEGACY => &self.legacy_unknown,
            _ => return None,
        };
        own.as_ref().or(self.common.as_ref())
    }
}

/// Certificates begin a little earlier, for clocks that are behind.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Those that last less than this do not lose the time by which they begin earlier.
const SHORT: Duration = Duration::from_secs(8 * 60 * 60);

/// Usage, and its bit in the key usage extension.
static KEY_USAGES: [(&str, u8); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// Usage, and the last part of its identifier in 1.3.6.1.5.5.7.3.
static EXTENDED_KEY_USAGES: [(&str, u8); 9] = [
    ("server auth", 1),
    ("client auth", 2),
    ("code signing", 3),
    ("email protection", 4),
    ("s/mime", 4),
    ("ipsec end system", 5),
    ("ipsec tunnel", 6),
    ("ipsec user", 7),
    ("timestamping", 8),
];

/// Why nothing can be signed: the authority itself is at fault.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignError {
    #[error("read CA key: {0}")]
    Key(#[source] rcgen::Error),
    #[error("read CA certificate: {0}")]
    Pem(#[source] x509_parser::nom::Err<x509_parser::error::PEMError>),
    #[error("read CA certificate: {0}")]
    Certificate(#[source] x509_parser::nom::Err<x509_parser::error::X509Error>),
    #[error("the CA key cannot sign certificates")]
    Algorithm,
    #[error("sign: {0}")]
    Sign(#[source] rcgen::Error),
}

impl SigningAuthority {
    /// The certificate that the request asks for, as PEM.
    pub(super) fn sign(
        &self,
        request: &Parsed,
        usages: &[String],
        lasts: Duration,
        now: Timestamp,
    ) -> Result<String, SignError> {
        let key = KeyPair::from_pem(&self.key.0).map_err(SignError::Key)?;
        let (_, block) = x509_parser::pem::parse_x509_pem(self.certificate_pem.as_bytes()).map_err(SignError::Pem)?;
        let (_, authority) =
            x509_parser::certificate::X509Certificate::from_der(&block.contents).map_err(SignError::Certificate)?;
        let algorithm = algorithm(&key)?;
        let begins = now - BACKDATE;
        let ends = if lasts < SHORT { now } else { begins };
        let ends = ends + SignedDuration::try_from(lasts).unwrap_or(SignedDuration::MAX);
        let ends =
            Timestamp::from_second(authority.validity().not_after.timestamp()).map_or(ends, |last| last.min(ends));
        let mut extensions = Vec::new();
        extensions.extend(key_usage(usages));
        extensions.extend(extended_key_usage(usages));
        extensions.push(extension(BASIC_CONSTRAINTS, true, &sequence(&[])));
        let identifier = authority.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
            _ => None,
        });
        if let Some(identifier) = identifier {
            extensions.push(extension(AUTHORITY_KEY, false, &sequence(&[element(0x80, &identifier)])));
        }
        // Alternative names must be believed where they are all that names the holder.
        let names = request.names.as_ref();
        extensions.extend(names.map(|names| extension(ALTERNATIVE_NAMES, request.subject == EMPTY_NAME, names)));
        let body = sequence(&[
            element(0xa0, &integer(&[VERSION_3])),
            integer(&serial()),
            algorithm.clone(),
            authority.subject().as_raw().to_vec(),
            sequence(&[time(begins), time(ends)]),
            request.subject.clone(),
            request.key.clone(),
            element(0xa3, &sequence(&extensions)),
        ]);
        let signature = key.sign(&body).map_err(SignError::Sign)?;
        let certificate = sequence(&[body, algorithm, bit_string(&signature)]);
        Ok(to_pem(&certificate))
    }
}

/// Versions are counted from 0.
const VERSION_3: u8 = 2;
const KEY_USAGE: u8 = 15;
const ALTERNATIVE_NAMES: u8 = 17;
const BASIC_CONSTRAINTS: u8 = 19;
const AUTHORITY_KEY: u8 = 35;
const EXTENDED_KEY_USAGE: u8 = 37;
const EMPTY_NAME: [u8; 2] = [0x30, 0];

/// How the signature is made, as certificates name it.
fn algorithm(key: &KeyPair) -> Result<Vec<u8>, SignError> {
    const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
    const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
    const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
    const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
    const NULL: [u8; 2] = [5, 0];
    let used = key.algorithm();
    let simple = |identifier: &[u8]| sequence(&[object_identifier(identifier)]);
    match () {
        () if used == &rcgen::PKCS_ECDSA_P256_SHA256 => Ok(simple(ECDSA_SHA256)),
        () if used == &rcgen::PKCS_ECDSA_P384_SHA384 => Ok(simple(ECDSA_SHA384)),
        () if used == &rcgen::PKCS_ED25519 => Ok(simple(ED25519)),
        () if used == &rcgen::PKCS_RSA_SHA256 => Ok(sequence(&[object_identifier(RSA_SHA256), NULL.to_vec()])),
        () => Err(SignError::Algorithm),
    }
}

fn key_usage(usages: &[String]) -> Option<Vec<u8>> {
    let bits = KEY_USAGES.iter().filter(|(name, _)| usages.iter().any(|usage| usage == name));
    let bits: Vec<u8> = bits.map(|(_, bit)| *bit).collect();
    (!bits.is_empty()).then(|| extension(KEY_USAGE, true, &named_bits(&bits)))
}

fn extended_key_usage(usages: &[String]) -> Option<Vec<u8>> {
    let found = EXTENDED_KEY_USAGES.iter().filter(|(name, _)| usages.iter().any(|usage| usage == name));
    let found: Vec<Vec<u8>> = found.map(|(_, last)| object_identifier(&[0x2b, 6, 1, 5, 5, 7, 3, *last])).collect();
    (!found.is_empty()).then(|| extension(EXTENDED_KEY_USAGE, false, &sequence(&found)))
}

/// Sixteen random bytes, so that no two certificates have the same; the first is never 0.
fn serial() -> [u8; 16] {
    use ring::rand::SecureRandom;
    let mut bytes = [0; 16];
    ring::rand::SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
    bytes[0] = bytes[0] & 0x7f | 0x40;
    bytes
}

fn to_pem(der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<String> =
        text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}
