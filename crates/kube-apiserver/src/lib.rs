//! kube-apiserver: the one door to the cluster's objects.
//!
//! `serve.rs` has the steps of a request in order. There is one server and one table of kinds; it runs no controllers.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use store::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

// What others name.
pub mod local;
pub mod options;
pub mod authn;
pub mod authz;
pub mod admission;
pub mod flowcontrol;
pub mod audit;
pub mod encryption;
pub mod pki;

mod start;
mod managed;
mod external;
mod publish;
mod app;
mod serve;
mod edge;
mod connections;
mod target;
mod query;
mod negotiate;
mod body;
mod call;
mod decode;
mod respond;
mod table;
mod transcode;
mod filter;
mod resources;
mod conversion;
mod runtime_config;
mod reduced;
mod stored;
mod describe;
mod custom;
mod verbs;
mod write;
mod offload;
mod subresources;
mod allocate;
mod bootstrap;
mod webhooks;
mod configuration;
mod outgoing;
mod discovery;
mod flagz;
mod egress;
mod leaving;
mod traces;
mod aggregate;
mod openapi;
mod health;
mod metrics;
mod views;
mod revisions;
mod key_locks;
mod names;
mod refusal;

use local::App;
use options::{Flags, Options};

pub use app::{Clock, stamp};
pub use discovery::VERSION;
pub use external::ExternalCredentials;
pub use managed::{Issued, Managed};

/// What the operator decides.
#[derive(Clone)]
pub struct Config {
    pub credentials: Credentials,
    pub bind_address: IpAddr,
    pub https_port: u16,
    /// Where others reach this server; chosen from the host's addresses where it is not given.
    pub advertise_address: Option<IpAddr>,
    pub service_cidr: ipnet::IpNet,
    /// The domain of the cluster's names.
    pub cluster_domain: String,
    /// What Services of type NodePort get.
    pub node_ports: std::ops::RangeInclusive<u16>,
    pub host_name: String,
    pub token_auth_file: Option<PathBuf>,
    pub event_ttl: Duration,
    /// Other API servers use the same store.
    pub shared_store: bool,
    /// The APIServices that parts of this process serve; each is attached to the aggregator once it can.
    pub attached: Vec<String>,
    pub flow: flowcontrol::Config,
    pub audit: audit::Config,
    pub options: Options,
    /// What `/flagz` shows beside the settings above: flags of the program under upstream's names, such as files.
    pub flags: Flags,
    pub clock: Clock,
}

/// Who makes and renews certificates and keys.
#[derive(Clone)]
pub enum Credentials {
    Managed(Managed),
    External(ExternalCredentials),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("certificates")]
    Pki(#[from] pki::Error),
    #[error("store")]
    Store(#[from] store::StoreError),
    #[error("listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("create bootstrap objects: {0}")]
    Bootstrap(machinery::status::Status),
    #[error(transparent)]
    Authentication(#[from] authn::oidc::Error),
    #[error(transparent)]
    Authorization(#[from] authz::config::Error),
    #[error(transparent)]
    Edge(#[from] edge::Error),
    #[error("encryption configuration")]
    Encryption(#[from] encryption::Error),
    #[error("read token file: {0}")]
    Tokens(String),
    #[error(transparent)]
    Traces(#[from] traces::TracesError),
    #[error(transparent)]
    Egress(#[from] egress::EgressError),
    #[error(transparent)]
    Signer(#[from] authn::external_signer::SignerError),
    #[error("{0}")]
    Settings(String),
    #[error(transparent)]
    Flow(#[from] flowcontrol::NoSeats),
    #[error(transparent)]
    Audit(#[from] audit::AuditError),
    #[error("cannot decode values in the store, so this server does not start; delete or repair these keys: {0}")]
    Unreadable(String),
}

/// A server that answers. Dropping it does not stop it; the shutdown token does.
pub struct Running {
    pub address: SocketAddr,
    pub app: Arc<App>,
    /// Of a server whose credentials are managed.
    pub issued: Option<Issued>,
    accepting: JoinHandle<()>,
    announcing: Option<JoinHandle<()>>,
}

impl Running {
    /// Until the server has stopped and its connections have ended.
    pub async fn ended(self) {
        // A panic there has been logged by the runtime; there is nothing left to stop.
        let _ = self.accepting.await;
        if let Some(announcing) = self.announcing {
            let _ = announcing.await;
        }
    }
}

/// Serves until told to stop, for a program that is nothing but an API server.
pub async fn run(config: Config, store: Arc<dyn Store>, shutdown: CancellationToken) -> Result<(), Error> {
    let began = tokio::time::Instant::now();
    let server = start(config, store, shutdown).await?;
    tracing::info!(address = %server.address, ms = began.elapsed().as_millis(), "API server is ready");
    server.ended().await;
    Ok(())
}

/// Starts to serve; answers when the first request can be sent, with what other components of the process need.
pub async fn start(mut config: Config, store: Arc<dyn Store>, shutdown: CancellationToken) -> Result<Running, Error> {
    config.flow.check()?;
    if config.options.issuers.is_empty() {
        config.options.issuers = vec![format!("https://kubernetes.default.svc.{}", config.cluster_domain)];
    }
    let (serving, issued) = match config.credentials.clone() {
        Credentials::Managed(managed) => {
            let (serving, issued) = managed::start(&mut config, managed, store, shutdown).await?;
            (serving, Some(issued))
        }
        Credentials::External(external) => (external::start(&config, external, store, shutdown).await?, None),
    };
    let start::Serving { address, app, accepting, announcing, .. } = serving;
    Ok(Running { address, app, issued, accepting, announcing })
}
