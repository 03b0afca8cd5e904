//! The TLS side of the server: the certificate it shows, which can be swapped while it runs, and how clients show theirs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};

use super::peer::ClientAuthorities;
use super::{Error, Pair};

/// New connections get whatever was put here last; open ones keep theirs.
#[derive(Debug)]
pub struct ServingCertificate {
    current: ArcSwap<CertifiedKey>,
}

impl ServingCertificate {
    pub fn new(pair: &Pair) -> Result<ServingCertificate, Error> {
        Ok(ServingCertificate { current: ArcSwap::new(certified(pair)?) })
    }

    pub fn replace(&self, pair: &Pair) -> Result<(), Error> {
        self.current.store(certified(pair)?);
        Ok(())
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

/// TLS 1.2 and 1.3, HTTP/2 preferred, sessions resumed without state on the server, client certificates welcome.
pub fn server_config(serving: Arc<ServingCertificate>, clients: &ClientAuthorities) -> Result<ServerConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(tls_error)?
        .with_client_cert_verifier(clients.handshake())
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer = ring::Ticketer::new().map_err(tls_error)?;
    Ok(config)
}

fn certified(pair: &Pair) -> Result<Arc<CertifiedKey>, Error> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.certificate_pem.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).map_err(tls_error)?;
    let certified = CertifiedKey::from_der(chain.map_err(tls_error)?, key, &ring::default_provider());
    certified.map(Arc::new).map_err(tls_error)
}

pub(super) fn tls_error(error: impl std::fmt::Display) -> Error {
    Error::Tls(error.to_string())
}
