//! Certificates from Secrets, found by the name that a client asks for.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::Secret;
use reconcile::Key;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Certificates by host, as Ingresses write hosts.
#[derive(Default)]
pub struct Certificates {
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By what follows `*.`
    wildcards: HashMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    pub fn new(hosts: impl IntoIterator<Item = (String, Arc<CertifiedKey>)>) -> Certificates {
        let mut certificates = Certificates::default();
        for (host, certificate) in hosts {
            match host.strip_prefix("*.") {
                Some(rest) => _ = certificates.wildcards.insert(rest.to_owned(), certificate),
                None => _ = certificates.exact.insert(host, certificate),
            }
        }
        certificates
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let exact = self.exact.get(name);
        exact.or_else(|| self.wildcards.get(name.split_once('.')?.1))
    }
}

/// Answers every handshake from the newest certificates; those who ask for no host we have get the default one.
pub struct Resolver {
    pub current: ArcSwap<Certificates>,
    pub default: Arc<CertifiedKey>,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Resolver")
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.load();
        // Names come in lower case from rustls.
        let found = hello.server_name().and_then(|name| current.find(name));
        Some(found.unwrap_or(&self.default).clone())
    }
}

/// What is wrong with a Secret, as the rest of a sentence that begins with it. Readings are kept, so the causes are too, as far as they
/// can be copied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SecretFault {
    #[error("not found")]
    NotFound,
    #[error("has no {0}")]
    Missing(&'static str),
    #[error("has an invalid tls.crt: {0}")]
    Certificate(String),
    #[error("has no certificate in its tls.crt")]
    NoCertificate,
    #[error("has an invalid tls.key: {0}")]
    Key(String),
    #[error("has a key that cannot be used: {0}")]
    Unusable(#[source] rustls::Error),
    #[error("has a key that does not belong to its certificate")]
    Mismatch,
}

/// The certificate of a Secret, or what is wrong with it.
pub fn read(secret: &Secret) -> Result<CertifiedKey, SecretFault> {
    let data = |name: &'static str| {
        let value = secret.data.as_ref().and_then(|data| data.get(name)).filter(|value| !value.0.is_empty());
        value.map(|value| value.0.as_slice()).ok_or(SecretFault::Missing(name))
    };
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(data("tls.crt")?).collect();
    let chain = chain.map_err(|error| SecretFault::Certificate(error.to_string()))?;
    if chain.is_empty() {
        return Err(SecretFault::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(data("tls.key")?);
    let key = key.map_err(|error| SecretFault::Key(error.to_string()))?;
    let signing = rustls::crypto::ring::sign::any_supported_type(&key);
    let signing = signing.map_err(SecretFault::Unusable)?;
    let certified = CertifiedKey::new(chain, signing);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(certified),
        Err(_) => Err(SecretFault::Mismatch),
    }
}

/// What those see who ask for a host that has no certificate: signed by nobody, and made anew at every start.
pub fn self_signed() -> Result<CertifiedKey, rcgen::Error> {
    let mut parameters = rcgen::CertificateParams::new(vec!["ingress.local".to_owned()])?;
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "knarr ingress default certificate");
    let key = rcgen::KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    let der = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let signing = rustls::crypto::ring::sign::any_supported_type(&der).expect("a key that was just made can be used");
    Ok(CertifiedKey::new(vec![certificate.der().clone()], signing))
}

/// Secrets that were read already, by the version that was read: reading a key takes longer than all the rest of a table.
#[derive(Default)]
pub struct Readings(BTreeMap<Key, Reading>);

struct Reading {
    version: Option<String>,
    outcome: Result<Arc<CertifiedKey>, SecretFault>,
}

impl Readings {
    pub fn read(&mut self, key: &Key, secret: Option<&Secret>) -> Result<Arc<CertifiedKey>, SecretFault> {
        let Some(secret) = secret else {
            self.0.remove(key);
            return Err(SecretFault::NotFound);
        };
        let version = &secret.metadata.resource_version;
        if let Some(known) = self.0.get(key).filter(|known| known.version == *version && version.is_some()) {
            return known.outcome.clone();
        }
        let outcome = read(secret).map(Arc::new);
        self.0.insert(key.clone(), Reading { version: version.clone(), outcome: outcome.clone() });
        outcome
    }

    /// Forgets every other Secret.
    pub fn keep(&mut self, wanted: &std::collections::BTreeSet<Key>) {
        self.0.retain(|key, _| wanted.contains(key));
    }
}
