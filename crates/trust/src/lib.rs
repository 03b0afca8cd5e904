//! Certificate verification of our TLS clients (the CAs of a bundle, and a certificate in the bundle itself), and the handshake
//! of servers that look at client certificates.
//!
//! The second is what `openssl req -x509` makes: one certificate that is its own authority and is also what the server
//! shows. Go's clients take it, webpki does not (`CaUsedAsEndEntity`); users have such certificates in the `caBundle` of
//! webhooks and APIServices, on kubelets and on registries.

mod client_certificate;
mod kubelet;
mod no_verification;

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring as tls_ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

pub use client_certificate::UncheckedClientCertificate;
pub use kubelet::kubelet_verifier;
pub use no_verification::client_without_verification;

/// Where most systems keep the authorities that they trust.
const SYSTEM_BUNDLES: &[&str] =
    &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("read CA bundle: {0}")]
    Pem(rustls::pki_types::pem::Error),
    #[error("load CA certificate of the bundle: {0}")]
    Authority(rustls::Error),
    #[error("the CA bundle has no certificate")]
    Empty,
    #[error("configure TLS: {0}")]
    Tls(rustls::Error),
    #[error("read key of client certificate: {0}")]
    Key(rustls::pki_types::pem::Error),
    #[error("load client certificate: {0}")]
    Identity(rustls::Error),
}

/// A client's own certificate and its key, as PEM.
pub struct Identity {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

/// The certificates of a bundle; one that cannot be read is an error.
pub fn bundle(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(Error::Pem)
}

/// The authorities that this system trusts. One that cannot be used is one less.
pub fn system() -> Vec<CertificateDer<'static>> {
    let pem = SYSTEM_BUNDLES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
    let usable = |certificate: &CertificateDer<'static>| RootCertStore::empty().add(certificate.clone()).is_ok();
    CertificateDer::pem_slice_iter(&pem).flatten().filter(usable).collect()
}

/// A client that believes servers with a certificate of these authorities, or one of these certificates themselves.
pub fn client(trusted: Vec<CertificateDer<'static>>) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let provider = Arc::new(tls_ring::default_provider());
    let verifier = verifier(trusted)?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(Error::Tls)?.dangerous().with_custom_certificate_verifier(verifier))
}

/// What such a client asks about a server's certificate, for those that ask for more besides.
pub fn verifier(trusted: Vec<CertificateDer<'static>>) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    Ok(Arc::new(Verifier::new(trusted)?))
}

/// The same with the certificate that it shows, if it has one.
pub fn client_config(
    trusted: Vec<CertificateDer<'static>>,
    identity: Option<&Identity>,
) -> Result<ClientConfig, Error> {
    let builder = client(trusted)?;
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_slice(&identity.key).map_err(Error::Key)?;
    builder.with_client_auth_cert(bundle(&identity.certificate)?, key).map_err(Error::Identity)
}

#[derive(Debug)]
struct Verifier {
    trusted: Vec<CertificateDer<'static>>,
    /// None where nobody is trusted.
    authorities: Option<Arc<WebPkiServerVerifier>>,
}

impl Verifier {
    fn new(trusted: Vec<CertificateDer<'static>>) -> Result<Verifier, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in &trusted {
            roots.add(certificate.clone()).map_err(Error::Authority)?;
        }
        if roots.is_empty() {
            return Ok(Verifier { trusted, authorities: None });
        }
        let provider = Arc::new(tls_ring::default_provider());
        let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        // Without revocation lists it fails only where there are no roots.
        let authorities = built.map_err(|_| Error::Empty)?;
        Ok(Verifier { trusted, authorities: Some(authorities) })
    }

    /// The certificate itself is trusted: then only whether it is the right one, and when, is asked.
    fn is_itself_trusted(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<bool, rustls::Error> {
        if !self.trusted.iter().any(|trusted| trusted.as_ref() == certificate.as_ref()) {
            return Ok(false);
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
        let (validity, now) = (parsed.validity(), now.as_secs() as i64);
        if now < validity.not_before.timestamp() {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > validity.not_after.timestamp() {
            return Err(CertificateError::Expired.into());
        }
        let usage = parsed.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
        if usage.is_none_or(|usage| usage.value.any || usage.value.server_auth) {
            Ok(true)
        } else {
            Err(CertificateError::InvalidPurpose.into())
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.is_itself_trusted(certificate, name, now)? {
            return Ok(ServerCertVerified::assertion());
        }
        match &self.authorities {
            Some(authorities) => authorities.verify_server_cert(certificate, intermediates, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        supported_schemes()
    }
}

/// That the other side has the key of its certificate.
fn verify_tls12_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let algorithms = tls_ring::default_provider().signature_verification_algorithms;
    rustls::crypto::verify_tls12_signature(message, certificate, signature, &algorithms)
}

fn verify_tls13_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let algorithms = tls_ring::default_provider().signature_verification_algorithms;
    rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
}

fn supported_schemes() -> Vec<SignatureScheme> {
    tls_ring::default_provider().signature_verification_algorithms.supported_schemes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    const NAME: &str = "hook.default.svc";

    fn key() -> KeyPair {
        KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap()
    }

    /// As `openssl req -x509` makes it: its own authority, with a name.
    fn self_signed(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        params.self_signed(&key()).unwrap().der().clone()
    }

    fn judged(
        trusted: &[&CertificateDer<'static>],
        shown: &CertificateDer<'static>,
        name: &str,
    ) -> Result<(), rustls::Error> {
        let verifier = Verifier::new(trusted.iter().map(|one| (*one).clone()).collect()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_780_000_000));
        let name = ServerName::try_from(name.to_string()).unwrap();
        verifier.verify_server_cert(shown, &[], &name, &[], now).map(|_| ())
    }

    fn is_refused(judged: Result<(), rustls::Error>, why: &str) -> bool {
        format!("{judged:?}").contains(why)
    }

    #[test]
    fn a_certificate_that_is_its_own_authority_is_taken() {
        let (own, other) = (self_signed(&[NAME], |_| ()), self_signed(&[NAME], |_| ()));
        assert_eq!(judged(&[&own], &own, NAME), Ok(()));
        assert_eq!(judged(&[&other, &own], &own, NAME), Ok(()));
        assert!(judged(&[&other], &own, NAME).is_err());
        assert!(judged(&[], &own, NAME).is_err());
    }

    #[test]
    fn its_name_its_dates_and_its_purpose_count() {
        let own = self_signed(&[NAME], |_| ());
        assert!(is_refused(judged(&[&own], &own, "other.default.svc"), "NotValidForName"));
        let expired = self_signed(&[NAME], |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
        assert!(is_refused(judged(&[&expired], &expired, NAME), "Expired"));
        let young = self_signed(&[NAME], |params| params.not_before = rcgen::date_time_ymd(2090, 1, 1));
        assert!(is_refused(judged(&[&young], &young, NAME), "NotValidYet"));
        let client = self_signed(&[NAME], |params| {
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        });
        assert!(is_refused(judged(&[&client], &client, NAME), "InvalidPurpose"));
    }

    #[test]
    fn certificates_of_an_authority_are_taken_as_before() {
        let authority_key = key();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&authority_key).unwrap();
        let issuer = Issuer::from_params(&params, &authority_key);
        let leaf = CertificateParams::new(vec![NAME.to_string()]).unwrap().signed_by(&key(), &issuer).unwrap();
        let (authority, leaf) = (authority.der().clone(), leaf.der().clone());
        assert_eq!(judged(&[&authority], &leaf, NAME), Ok(()));
        // One that an authority made is no authority, also where it is named as one.
        assert_eq!(judged(&[&leaf], &leaf, NAME), Ok(()));
        assert!(judged(&[&leaf], &authority, NAME).is_err());
    }
}
