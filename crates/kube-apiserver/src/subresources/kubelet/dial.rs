//! Connections from this server outward: to kubelets with the server's own certificate, to pods and nodes for proxies.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use machinery::status::Status;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring as tls_ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsConnector;

use crate::pki::{Credentials, Error};

/// How long the other side gets to take the connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Logs, streams and proxied requests that run at once.
const RUNNING_MAX: usize = 8192;

/// How to reach nodes. Held by the server, renewed with its certificates.
pub struct Nodes {
    /// Shows the server's certificate for kubelets, and wants one of the cluster's authority.
    kubelet: ArcSwap<ClientConfig>,
    /// The same, but believes whatever the kubelet shows.
    kubelet_unverified: ArcSwap<ClientConfig>,
    /// For proxies: what pods serve is signed by anyone.
    anyone: Arc<ClientConfig>,
    running: Arc<Semaphore>,
}

/// Held as long as bytes go outward or come back.
pub type Running = OwnedSemaphorePermit;

/// What is asked of the other side's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    Kubelet,
    KubeletUnverified,
    Anyone,
    Plain,
}

/// Where to connect to, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub host: String,
    pub port: u16,
    pub security: Security,
}

impl Place {
    pub fn kubelet(host: &str, port: u16) -> Place {
        Place { host: host.into(), port, security: Security::Kubelet }
    }

    pub fn unverified(self) -> Place {
        Place { security: Security::KubeletUnverified, ..self }
    }

    /// As it stands in an address: IPv6 in brackets.
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }

    pub fn scheme(&self) -> &'static str {
        if self.security == Security::Plain { "http" } else { "https" }
    }
}

pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Nodes {
    pub fn new(credentials: &Credentials) -> Result<Nodes, Error> {
        Ok(Nodes {
            kubelet: ArcSwap::from_pointee(kubelet_config(credentials, credentials.kubelet_ca.as_deref())?),
            kubelet_unverified: ArcSwap::from_pointee(kubelet_config(credentials, None)?),
            anyone: Arc::new(builder()?.with_no_client_auth()),
            running: Arc::new(Semaphore::new(RUNNING_MAX)),
        })
    }

    /// After the server's certificates were renewed.
    pub fn renew(&self, credentials: &Credentials) -> Result<(), Error> {
        self.kubelet.store(Arc::new(kubelet_config(credentials, credentials.kubelet_ca.as_deref())?));
        self.kubelet_unverified.store(Arc::new(kubelet_config(credentials, None)?));
        Ok(())
    }

    /// One more request that goes outward, unless there are too many.
    pub fn enter(&self) -> Result<Running, Status> {
        let refused = |_| Status::too_many_requests("too many streams to nodes are open, please try again later", 1);
        self.running.clone().try_acquire_owned().map_err(refused)
    }

    /// Connects; what goes wrong is told in the words of Go's dialer, which users know.
    pub async fn dial(&self, place: &Place) -> Result<Box<dyn Connection>, String> {
        let config = match place.security {
            Security::Plain => return Ok(Box::new(plain(&place.host, place.port).await?)),
            Security::Kubelet => self.kubelet.load_full(),
            Security::KubeletUnverified => self.kubelet_unverified.load_full(),
            Security::Anyone => self.anyone.clone(),
        };
        let name = ServerName::try_from(place.host.clone());
        let name = name.map_err(|error| format!("dial tcp {}: {error}", place.authority()))?;
        secured(&place.host, place.port, config, name).await
    }
}

pub async fn plain(host: &str, port: u16) -> Result<TcpStream, String> {
    let stream = match tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect((host, port))).await {
        Err(_) => return Err(format!("dial tcp {}: i/o timeout", authority(host, port))),
        Ok(Err(error)) => return Err(format!("dial tcp {}: {}", authority(host, port), in_go_words(&error))),
        Ok(Ok(stream)) => stream,
    };
    // Keystrokes must not wait for more of them; a socket that cannot do this still works.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// A connection to someone who proves to have that name.
pub async fn secured(
    host: &str,
    port: u16,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<Box<dyn Connection>, String> {
    let stream = plain(host, port).await?;
    let handshake = TlsConnector::from(config).connect(name, stream);
    match tokio::time::timeout(DIAL_TIMEOUT, handshake).await {
        Err(_) => Err(format!("dial tcp {}: TLS handshake timeout", authority(host, port))),
        Ok(Err(error)) => Err(format!("tls: failed to verify certificate: {error}")),
        Ok(Ok(stream)) => Ok(Box::new(stream)),
    }
}

fn authority(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

fn in_go_words(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => "connect: connection refused".into(),
        ErrorKind::HostUnreachable => "connect: no route to host".into(),
        ErrorKind::NetworkUnreachable => "connect: network is unreachable".into(),
        ErrorKind::TimedOut => "connect: connection timed out".into(),
        _ => error.to_string(),
    }
}

type Builder = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

/// A client that believes everyone.
pub fn builder() -> Result<Builder, Error> {
    let provider = Arc::new(tls_ring::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(failed)?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(Believer(algorithms))))
}

/// Without an authority it believes whatever kubelets show, as upstream does by default.
fn kubelet_config(credentials: &Credentials, authority: Option<&str>) -> Result<ClientConfig, Error> {
    let builder = match authority {
        None => builder()?,
        Some(authority) => trust::client(trust::bundle(authority.as_bytes()).map_err(failed)?).map_err(failed)?,
    };
    let Some(pair) = &credentials.kubelet_client else { return Ok(builder.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.certificate_pem.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).map_err(failed)?;
    builder.with_client_auth_cert(chain.map_err(failed)?, key).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Tls(error.to_string())
}

/// Takes any certificate whose key the other side has.
#[derive(Debug)]
struct Believer(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
