//! Which nodes, pods and Services this server connects to, and how: to kubelets with its own certificate, to the others for proxies.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use machinery::status::Status;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::sync::Semaphore;

use crate::outgoing::dial::{self, Connection, DialError};
use crate::outgoing::relay::Running;
use crate::outgoing::way::Way;
use crate::pki::{Credentials, Error};

/// Logs, streams and proxied requests that run at once.
const RUNNING_MAX: usize = 8192;

/// How to reach nodes. Held by the server, renewed with its certificates.
pub struct Nodes {
    /// Shows the server's certificate for kubelets, and wants one of the cluster's authority.
    kubelet: ArcSwap<ClientConfig>,
    /// Judges what kubelets show; nobody does where whatever they show is believed.
    verifier: Option<Arc<dyn ServerCertVerifier>>,
    /// Whether this server is reached by loopback addresses alone, and its nodes with it.
    local: bool,
    /// The same, but believes whatever the kubelet shows.
    kubelet_unverified: ArcSwap<ClientConfig>,
    /// For proxies: what pods serve is signed by anyone.
    anyone: Arc<ClientConfig>,
    way: Way,
    running: Arc<Semaphore>,
}

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
    /// The node whose kubelet must answer there.
    pub node: String,
}

impl Place {
    pub fn kubelet(node: &str, host: &str, port: u16) -> Place {
        Place { host: host.into(), port, security: Security::Kubelet, node: node.into() }
    }

    /// A server of a pod or Service.
    pub fn other(host: String, port: u16, security: Security) -> Place {
        Place { host, port, security, node: String::new() }
    }

    pub fn unverified(self) -> Place {
        Place { security: Security::KubeletUnverified, ..self }
    }

    pub fn authority(&self) -> String {
        dial::authority(&self.host, self.port)
    }

    pub fn scheme(&self) -> &'static str {
        if self.security == Security::Plain { "http" } else { "https" }
    }
}

/// What a server with other certificates shows to kubelets.
pub struct NextNodes {
    kubelet: Arc<ClientConfig>,
    kubelet_unverified: Arc<ClientConfig>,
}

impl Nodes {
    pub fn new(credentials: &Credentials, local: bool, way: Way) -> Result<Nodes, Error> {
        Ok(Nodes {
            verifier: credentials.kubelet_ca.as_deref().map(verifier).transpose()?,
            local,
            kubelet: ArcSwap::from_pointee(kubelet_config(credentials, credentials.kubelet_ca.as_deref())?),
            kubelet_unverified: ArcSwap::from_pointee(kubelet_config(credentials, None)?),
            anyone: Arc::new(trust::client_without_verification().map_err(failed)?.with_no_client_auth()),
            way,
            running: Arc::new(Semaphore::new(RUNNING_MAX)),
        })
    }

    /// Checks whether other certificates can be used, and changes nothing.
    pub fn prepare(credentials: &Credentials) -> Result<NextNodes, Error> {
        Ok(NextNodes {
            kubelet: Arc::new(kubelet_config(credentials, credentials.kubelet_ca.as_deref())?),
            kubelet_unverified: Arc::new(kubelet_config(credentials, None)?),
        })
    }

    /// After the server's certificates were renewed.
    pub fn take_over(&self, next: NextNodes) {
        self.kubelet.store(next.kubelet);
        self.kubelet_unverified.store(next.kubelet_unverified);
    }

    /// One more request that goes outward, unless there are too many.
    pub fn enter(&self) -> Result<Running, Status> {
        let refused = |_| Status::too_many_requests("too many streams to nodes are open, please try again later", 1);
        self.running.clone().try_acquire_owned().map_err(refused)
    }

    /// Connects; what goes wrong is told in the words of Go's dialer, which users know.
    pub async fn dial(&self, place: &Place) -> Result<Box<dyn Connection>, DialError> {
        let stream = self.reach(place).await?;
        let config = match place.security {
            Security::Plain => return Ok(stream),
            Security::Kubelet => self.expecting(place),
            Security::KubeletUnverified => self.kubelet_unverified.load_full(),
            Security::Anyone => self.anyone.clone(),
        };
        let name = ServerName::try_from(place.host.clone());
        let name = name.map_err(|error| DialError::Name { address: place.authority(), error })?;
        dial::handshake(stream, &place.authority(), config, name).await
    }

    /// A connection to where a node or pod says that it is. A name may lead to this machine as an address may, so what counts
    /// is where it leads.
    async fn reach(&self, place: &Place) -> Result<Box<dyn Connection>, DialError> {
        if let Way::Proxy(proxy) = &self.way {
            // The proxy looks up names, and they lead to where it is.
            let is_refused = |address: IpAddr| !self.may_reach(address);
            if place.host.parse().is_ok_and(is_refused) {
                return Err(DialError::NotAllowed { address: place.authority() });
            }
            return proxy.connect(&place.host, place.port).await;
        }
        let mut found = dial::look_up(&place.host, place.port).await?;
        found.retain(|address| self.may_reach(address.ip()));
        if found.is_empty() {
            return Err(DialError::NotAllowed { address: place.authority() });
        }
        // A name may have addresses of both families, and nobody may listen at one of them.
        Ok(Box::new(dial::to_address(&found, &place.authority()).await?))
    }

    fn may_reach(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        super::proxy::is_allowed(address) || (self.local && address.is_loopback())
    }

    /// The node may have any address, so its certificate may name the node or the address; but never another node or a server.
    fn expecting(&self, place: &Place) -> Arc<ClientConfig> {
        let config = self.kubelet.load_full();
        let Some(verifier) = self.verifier.clone() else { return config };
        let mut config = ClientConfig::clone(&config);
        // A session that is taken up again would not be looked at.
        config.resumption = Resumption::disabled();
        config.dangerous().set_certificate_verifier(trust::kubelet_verifier(place.node.clone(), verifier));
        Arc::new(config)
    }
}

/// Without an authority it believes whatever kubelets show, as upstream does by default.
fn kubelet_config(credentials: &Credentials, authority: Option<&str>) -> Result<ClientConfig, Error> {
    let builder = match authority {
        None => trust::client_without_verification().map_err(failed)?,
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

fn verifier(authority: &str) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    trust::verifier(trust::bundle(authority.as_bytes()).map_err(failed)?).map_err(failed)
}
