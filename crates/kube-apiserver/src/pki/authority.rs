//! A certificate authority of the cluster: made once, kept for ten years, signs the leaves.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::{Error, files};

const AUTHORITY_LIFETIME: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
const LEAF_LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
/// Clocks of nodes differ a little; a certificate made now must be good on a node that is behind.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

pub struct Authority {
    pub certificate_pem: String,
    pub not_after: Timestamp,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its private key.
#[derive(Clone, PartialEq)]
pub struct Pair {
    pub certificate_pem: String,
    pub key_pem: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// What a certificate shall say.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub common_name: &'a str,
    pub organization: Option<&'a str>,
    /// Under which hosts and addresses a server is reached; empty for clients.
    pub host_names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    pub usage: Usage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    Client,
    Server,
    /// Both, as members of etcd are to each other.
    Peer,
}

/// Why a certificate and a key are of no use.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    #[error(transparent)]
    Key(#[from] rcgen::Error),
    #[error(transparent)]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error(transparent)]
    Certificate(#[from] x509_parser::nom::Err<x509_parser::error::X509Error>),
    #[error("the certificate was made for another key")]
    OtherKey,
    #[error(transparent)]
    Time(#[from] jiff::Error),
}

impl Authority {
    /// Reads `<name>.crt` and `<name>.key` of the folder, or makes them where neither is there.
    pub fn ensure(dir: &Path, name: &str, common_name: &str, now: Timestamp) -> Result<Authority, Error> {
        let (certificate_path, key_path) = paths(dir, name);
        match (files::read(&certificate_path)?, files::read(&key_path)?) {
            (Some(certificate), Some(key)) => Authority::load(certificate, &key)
                .map_err(|why| Error::Unusable { path: certificate_path.clone(), why }),
            (Some(_), None) => Err(Error::HalfAuthority { have: certificate_path, missing: key_path }),
            // The key is written first: a key alone is a first start that was cut off, and nobody has trusted it yet.
            (None, key) => {
                let key = match key {
                    Some(text) => KeyPair::from_pem(&text)
                        .map_err(|error| Error::Unusable { path: key_path.clone(), why: error.into() })?,
                    None => new_key(common_name)?,
                };
                files::write_private(&key_path, &key.serialize_pem())?;
                let authority = Authority::create(common_name, key, now)?;
                files::write_public(&certificate_path, &authority.certificate_pem)?;
                Ok(authority)
            }
        }
    }

    pub fn create(common_name: &str, key: KeyPair, now: Timestamp) -> Result<Authority, Error> {
        let mut params = params(common_name, None, now - BACKDATE, now + AUTHORITY_LIFETIME);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        let certificate = params.self_signed(&key).map_err(issue_error(common_name))?;
        Ok(Authority {
            certificate_pem: certificate.pem(),
            not_after: whole_seconds(now + AUTHORITY_LIFETIME),
            issuer: Issuer::new(params, key),
        })
    }

    fn load(certificate_pem: String, key_pem: &str) -> Result<Authority, PairError> {
        let key = KeyPair::from_pem(key_pem)?;
        let (_, not_after) = check_pair(&certificate_pem, &key)?;
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, key)?;
        Ok(Authority { certificate_pem, not_after, issuer })
    }

    pub(super) fn der(&self) -> Option<CertificateDer<'static>> {
        CertificateDer::from_pem_slice(self.certificate_pem.as_bytes()).ok()
    }

    /// A new key and a certificate for it, good for a year but never longer than the authority itself.
    pub fn issue(&self, request: &Request, now: Timestamp) -> Result<Pair, Error> {
        let key = new_key(request.common_name)?;
        let (not_before, not_after) = (now - BACKDATE, self.not_after.min(now + LEAF_LIFETIME));
        let mut params = params(request.common_name, request.organization, not_before, not_after);
        for name in &request.host_names {
            let name = name.as_str().try_into().map_err(issue_error(&format!("a certificate for host {name:?}")))?;
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        params.subject_alt_names.extend(request.addresses.iter().copied().map(SanType::IpAddress));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = match request.usage {
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Usage::Peer => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).map_err(issue_error(request.common_name))?;
        Ok(Pair {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            not_before: whole_seconds(not_before),
            not_after: whole_seconds(not_after),
        })
    }
}

impl Pair {
    /// `None` where the files are missing, broken or do not belong together: a leaf can always be issued again.
    pub fn read(dir: &Path, name: &str) -> Option<Pair> {
        let (certificate_path, key_path) = paths(dir, name);
        let certificate_pem = files::read(&certificate_path).ok()??;
        let key_pem = files::read(&key_path).ok()??;
        Pair::from_pem(certificate_pem, key_pem).ok()
    }

    /// A certificate that somebody else issued for this key.
    pub fn from_pem(certificate_pem: String, key_pem: String) -> Result<Pair, Error> {
        let unusable = |why: PairError| Error::Unusable { path: "the certificate".into(), why };
        let key = KeyPair::from_pem(&key_pem).map_err(|error| unusable(error.into()))?;
        let (not_before, not_after) = check_pair(&certificate_pem, &key).map_err(unusable)?;
        Ok(Pair { certificate_pem, key_pem, not_before, not_after })
    }

    /// Whose certificate it is.
    pub fn common_name(&self) -> String {
        self.inspect(|certificate| {
            let mut names = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
            names.next().unwrap_or_default().to_owned()
        })
    }

    /// The group that it makes its owner a member of.
    pub fn organization(&self) -> Option<String> {
        self.inspect(|certificate| {
            let mut names = certificate.subject().iter_organization().filter_map(|name| name.as_str().ok());
            names.next().map(str::to_owned)
        })
    }

    /// The addresses it is good for.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.inspect(|certificate| {
            let names = certificate.subject_alternative_name().ok().flatten();
            let names = names.iter().flat_map(|extension| &extension.value.general_names);
            names.filter_map(address).collect()
        })
    }

    fn inspect<T: Default>(&self, read: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
        let der = self.der().unwrap_or_else(|| CertificateDer::from(Vec::new()));
        X509Certificate::from_der(&der).map(|(_, certificate)| read(&certificate)).unwrap_or_default()
    }

    pub fn write(&self, dir: &Path, name: &str) -> Result<(), Error> {
        let (certificate_path, key_path) = paths(dir, name);
        files::write_private(&key_path, &self.key_pem)?;
        files::write_public(&certificate_path, &self.certificate_pem)
    }

    /// The moment when a third of the lifetime is left.
    pub fn renew_at(&self) -> Timestamp {
        let lifetime = self.not_after.duration_since(self.not_before);
        self.not_after - lifetime / 3
    }

    pub(super) fn der(&self) -> Option<CertificateDer<'static>> {
        CertificateDer::from_pem_slice(self.certificate_pem.as_bytes()).ok()
    }
}

fn address(name: &GeneralName<'_>) -> Option<IpAddr> {
    let GeneralName::IPAddress(bytes) = name else { return None };
    let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok()
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the key: it would end in a log.
        f.debug_struct("Pair").field("not_before", &self.not_before).field("not_after", &self.not_after).finish()
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

pub(super) fn new_key(what: &str) -> Result<KeyPair, Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(issue_error(what))
}

fn paths(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")))
}

fn params(common_name: &str, organization: Option<&str>, from: Timestamp, to: Timestamp) -> CertificateParams {
    let mut subject = DistinguishedName::new();
    if let Some(organization) = organization {
        subject.push(DnType::OrganizationName, organization);
    }
    subject.push(DnType::CommonName, common_name);
    let epoch = date_time_ymd(1970, 1, 1);
    let at = |time: Timestamp| epoch + std::time::Duration::from_secs(time.as_second().max(0).unsigned_abs());
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params.not_before = at(from);
    params.not_after = at(to);
    params
}

/// The certificate's validity, if it was made for this key.
fn check_pair(certificate_pem: &str, key: &KeyPair) -> Result<(Timestamp, Timestamp), PairError> {
    let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes())?;
    let (_, certificate) = X509Certificate::from_der(&der)?;
    if certificate.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
        return Err(PairError::OtherKey);
    }
    let validity = certificate.validity();
    let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    Ok((Timestamp::from_second(not_before)?, Timestamp::from_second(not_after)?))
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).expect("seconds of a valid time are a valid time")
}

fn issue_error(what: &str) -> impl FnOnce(rcgen::Error) -> Error {
    let what = what.to_string();
    move |source| Error::Issue { what, source }
}
