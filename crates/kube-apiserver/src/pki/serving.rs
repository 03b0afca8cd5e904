//! The TLS side of the server: the certificate it shows, which can be swapped while it runs, and how clients show theirs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::peer::ClientAuthorities;
use super::tls::{NamedPair, TlsSettings, is_for};
use super::{Error, Pair};

/// New connections get whatever was put here last; open ones keep theirs.
#[derive(Debug)]
pub struct ServingCertificate {
    current: ArcSwap<Shown>,
}

#[derive(Debug)]
struct Shown {
    default: Arc<CertifiedKey>,
    /// With the names that clients ask for; the first that fits is shown.
    named: Vec<(Vec<String>, Arc<CertifiedKey>)>,
}

impl ServingCertificate {
    pub fn new(pair: &Pair) -> Result<ServingCertificate, Error> {
        ServingCertificate::with_named(pair, &[])
    }

    /// Others for clients that ask for certain names.
    pub(crate) fn with_named(pair: &Pair, named: &[NamedPair]) -> Result<ServingCertificate, Error> {
        Ok(ServingCertificate { current: ArcSwap::from_pointee(Shown::new(pair, named)?) })
    }

    pub fn replace(&self, pair: &Pair) -> Result<(), Error> {
        self.replace_all(pair, &[])
    }

    pub(crate) fn replace_all(&self, pair: &Pair, named: &[NamedPair]) -> Result<(), Error> {
        self.current.store(Arc::new(Shown::new(pair, named)?));
        Ok(())
    }
}

#[cfg(test)]
impl ServingCertificate {
    pub(super) fn shown_for(&self, host: &str) -> Vec<u8> {
        self.current.load().for_host(Some(host)).cert[0].to_vec()
    }
}

impl Shown {
    fn new(pair: &Pair, named: &[NamedPair]) -> Result<Shown, Error> {
        let named = named.iter().map(|named| Ok((named.all_names()?, certified(&named.pair)?)));
        Ok(Shown { default: certified(pair)?, named: named.collect::<Result<_, Error>>()? })
    }

    fn for_host(&self, host: Option<&str>) -> &Arc<CertifiedKey> {
        let host = host.map(str::to_lowercase).unwrap_or_default();
        let fits = |pattern: &String| is_for(pattern, &host);
        let named = self.named.iter().find(|(names, _)| names.iter().any(fits));
        named.map_or(&self.default, |(_, certificate)| certificate)
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load().for_host(hello.server_name()).clone())
    }
}

/// How connections begin: the TLS settings of new ones, and the CAs that judge the client certificates of all. Both change together.
pub struct Handshake {
    serving: Arc<ServingCertificate>,
    settings: TlsSettings,
    tls: ArcSwap<ServerConfig>,
    clients: ArcSwap<ClientAuthorities>,
}

impl Handshake {
    pub(crate) fn new(
        serving: Arc<ServingCertificate>,
        clients: ClientAuthorities,
        settings: &TlsSettings,
    ) -> Result<Handshake, Error> {
        let tls = ArcSwap::from_pointee(server_config(serving.clone(), &clients, settings)?);
        Ok(Handshake { serving, settings: settings.clone(), tls, clients: ArcSwap::from_pointee(clients) })
    }

    /// Checks whether these certificates and CAs can be used, and changes nothing. CAs that stay the same are left out.
    pub(crate) fn prepare(
        &self,
        pair: &Pair,
        named: &[NamedPair],
        clients: Option<ClientAuthorities>,
    ) -> Result<NextHandshake, Error> {
        let shown = Arc::new(Shown::new(pair, named)?);
        let clients = match clients {
            Some(clients) => {
                let tls = server_config(self.serving.clone(), &clients, &self.settings)?;
                Some((Arc::new(tls), Arc::new(clients)))
            }
            None => None,
        };
        Ok(NextHandshake { shown, clients })
    }

    /// New connections get the certificates. Other CAs count from the next request on; new connections also name them to
    /// clients that choose a certificate by it.
    pub(crate) fn take_over(&self, next: NextHandshake) {
        self.serving.current.store(next.shown);
        if let Some((tls, clients)) = next.clients {
            self.tls.store(tls);
            self.clients.store(clients);
        }
    }

    pub(crate) fn tls(&self) -> Arc<ServerConfig> {
        self.tls.load_full()
    }

    pub(crate) fn clients(&self) -> &ArcSwap<ClientAuthorities> {
        &self.clients
    }
}

/// Certificates and CAs that can be used, and are not yet.
pub(crate) struct NextHandshake {
    shown: Arc<Shown>,
    clients: Option<(Arc<ServerConfig>, Arc<ClientAuthorities>)>,
}

/// TLS 1.2 and 1.3 unless told otherwise, HTTP/2 preferred, sessions resumed without state on the server, client certificates
/// welcome.
pub fn server_config(
    serving: Arc<ServingCertificate>,
    clients: &ClientAuthorities,
    settings: &TlsSettings,
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(settings.provider()))
        .with_protocol_versions(settings.versions())
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
