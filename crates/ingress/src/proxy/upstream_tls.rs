//! TLS to backends. Whoever they are, they are believed, as ingress-nginx does unless told otherwise: pods have addresses, and
//! hardly ever certificates for them.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub struct Connectors {
    http1: TlsConnector,
    http2: TlsConnector,
}

impl Connectors {
    pub fn new(provider: &Arc<CryptoProvider>) -> Result<Connectors, rustls::Error> {
        let make = |protocol: &[u8]| {
            let builder =
                rustls::ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
            let believe = Arc::new(Believe(provider.clone()));
            let mut config = builder.dangerous().with_custom_certificate_verifier(believe).with_no_client_auth();
            config.alpn_protocols = vec![protocol.to_vec()];
            Ok::<_, rustls::Error>(TlsConnector::from(Arc::new(config)))
        };
        Ok(Connectors { http1: make(b"http/1.1")?, http2: make(b"h2")? })
    }

    pub async fn connect(&self, http2: bool, address: IpAddr, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let connector = if http2 { &self.http2 } else { &self.http1 };
        connector.connect(ServerName::IpAddress(address.into()), stream).await
    }
}

#[derive(Debug)]
struct Believe(Arc<CryptoProvider>);

impl ServerCertVerifier for Believe {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
