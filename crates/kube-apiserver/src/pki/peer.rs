//! The certificate a client shows: whose CA signed it and which identity it carries.
//!
//! As upstream, the handshake takes any certificate the client owns the key of, and authentication judges it: a client
//! with an outdated certificate reads "401 Unauthorized" instead of a broken connection, and one that also sends a
//! good token is let in.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use rustls::crypto::ring as tls_ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};
use trust::UncheckedClientCertificate;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Error;
use super::serving::tls_error;
use crate::authn::{CREDENTIAL_ID, User};

/// The subject attribute that carries a user's uid: an object identifier of the Kubernetes project.
const UID_ATTRIBUTE: &str = "1.3.6.1.4.1.57683.2";

/// A client certificate that was shown on a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerCertificate {
    pub signer: Signer,
    /// The identity in the subject: common name, organizations, uid. The name is empty where there is none.
    pub user: User,
    /// Connections outlive certificates, so each request compares these again. Seconds since 1970.
    pub not_before: i64,
    pub not_after: i64,
}

/// Who vouches for a client certificate. Only the front proxy's CA makes `X-Remote-User` believable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    Cluster,
    FrontProxy,
    Unknown,
}

/// The CAs whose client certificates are believed.
#[derive(Debug)]
pub struct ClientAuthorities {
    cluster: Option<Arc<dyn ClientCertVerifier>>,
    front_proxy: Option<Arc<dyn ClientCertVerifier>>,
}

impl ClientAuthorities {
    /// Both may be bundles of several CAs, for the time in which one follows another.
    pub fn new(cluster_pem: Option<&str>, front_proxy_pem: Option<&str>) -> Result<ClientAuthorities, Error> {
        let (cluster, front_proxy) =
            (cluster_pem.map(verifier).transpose()?, front_proxy_pem.map(verifier).transpose()?);
        Ok(ClientAuthorities { cluster, front_proxy })
    }

    /// What takes part in the handshake; `identify` decides afterwards.
    pub(super) fn handshake(&self) -> Arc<dyn ClientCertVerifier> {
        let both = [&self.cluster, &self.front_proxy].into_iter().flatten();
        let hints: Vec<DistinguishedName> = both.flat_map(|one| one.root_hint_subjects().to_vec()).collect();
        Arc::new(UncheckedClientCertificate::new(hints))
    }

    /// Judges the chain a connection ended up with, leaf first; `None` where the client showed nothing.
    /// It checks signatures, so `ShownChain` remembers the result.
    pub fn identify(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Option<PeerCertificate> {
        let (leaf, intermediates) = chain.split_first()?;
        let seconds = std::time::Duration::from_secs(now.as_second().max(0).unsigned_abs());
        let now = UnixTime::since_unix_epoch(seconds);
        let chains_to = |verifier: &Option<Arc<dyn ClientCertVerifier>>| {
            verifier.as_ref().is_some_and(|verifier| verifier.verify_client_cert(leaf, intermediates, now).is_ok())
        };
        let signer = match () {
            () if chains_to(&self.cluster) => Signer::Cluster,
            () if chains_to(&self.front_proxy) => Signer::FrontProxy,
            () => Signer::Unknown,
        };
        Some(read(leaf, signer))
    }
}

/// What a client showed on its connection, which may outlive the CAs that counted at its handshake: as upstream, each request is
/// judged by those that count now.
pub struct ShownChain {
    chain: Vec<CertificateDer<'static>>,
    judged: Mutex<Judged>,
}

/// By which CAs, and as what.
type Judged = (Arc<ClientAuthorities>, Option<Arc<PeerCertificate>>);

impl ShownChain {
    pub(crate) fn new(chain: &[CertificateDer<'_>], by: Arc<ClientAuthorities>, now: Timestamp) -> ShownChain {
        let certificate = by.identify(chain, now).map(Arc::new);
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        ShownChain { chain, judged: Mutex::new((by, certificate)) }
    }

    pub(crate) fn certificate(
        &self,
        current: &ArcSwap<ClientAuthorities>,
        now: Timestamp,
    ) -> Option<Arc<PeerCertificate>> {
        if self.chain.is_empty() {
            return None;
        }
        let mut judged = self.judged.lock();
        let current = current.load();
        if !Arc::ptr_eq(&judged.0, &current) {
            *judged = (current.clone(), current.identify(&self.chain, now).map(Arc::new));
        }
        judged.1.clone()
    }
}

fn verifier(bundle_pem: &str) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle_pem.as_bytes()) {
        roots.add(certificate.map_err(tls_error)?).map_err(tls_error)?;
    }
    let provider = Arc::new(tls_ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(tls_error)
}

fn read(leaf: &CertificateDer<'_>, signer: Signer) -> PeerCertificate {
    let mut peer = PeerCertificate { signer, user: User::default(), not_before: 0, not_after: 0 };
    let Ok((_, certificate)) = X509Certificate::from_der(leaf) else {
        // Whatever the chain check thought of it, nothing can be said about a certificate that does not parse.
        return PeerCertificate { signer: Signer::Unknown, ..peer };
    };
    peer.not_before = certificate.validity().not_before.timestamp();
    peer.not_after = certificate.validity().not_after.timestamp();

    let subject = certificate.subject();
    let last = subject.iter_common_name().last().and_then(|name| name.as_str().ok());
    peer.user.name = last.unwrap_or("").to_string();
    peer.user.groups = subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_string).collect();
    let uid = subject.iter_attributes().find(|attribute| attribute.attr_type().to_id_string() == UID_ATTRIBUTE);
    peer.user.uid = uid.and_then(|attribute| attribute.as_str().ok()).unwrap_or("").to_string();

    let hash = digest(&SHA256, leaf).as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    peer.user.extra = BTreeMap::from([(CREDENTIAL_ID.to_string(), vec![format!("X509SHA256={hash}")])]);
    peer
}
