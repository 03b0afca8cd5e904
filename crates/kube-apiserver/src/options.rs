//! What an operator of an API server alone decides beyond what a cluster of our own needs; the defaults are that cluster's.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crate::admission;
use crate::authn::{self, FrontProxy};
use crate::authz::{self, Mode};
use crate::encryption;
use crate::pki::TlsSettings;

pub use crate::edge::{Edge, Settings as EdgeSettings};
pub use crate::egress::check as check_egress;
pub use crate::flagz::Flags;
pub use crate::runtime_config::{RuntimeConfig, RuntimeConfigError};
pub use crate::stored::StorageMedia;
pub use crate::traces::Configuration as TracingConfiguration;

#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Who issues the tokens of service accounts, the cluster's own domain where it is empty; tokens of all but the first are
    /// only believed.
    pub issuers: Vec<String>,
    /// For whom tokens must be meant; the issuers where it is empty.
    pub audiences: Vec<String>,
    /// Unless a file says it.
    pub anonymous: bool,
    /// Issuers of OpenID Connect and a webhook.
    pub authentication: authn::Settings,
    pub bootstrap_tokens: bool,
    /// Where others find the keys of service accounts' tokens; this server itself where it is not said.
    pub jwks_uri: Option<String>,
    /// The name by which this server tells others to reach it.
    pub external_hostname: Option<String>,
    /// How long tokens of service accounts live at most, however long one is asked for.
    pub token_expiration_max: Option<Duration>,
    /// The socket of the program that signs tokens of service accounts, where this server does not.
    pub signing_endpoint: Option<PathBuf>,
    /// Whether tokens that are mounted into pods live for a year, so that old clients go on working.
    pub extend_tokens: bool,
    pub authorization: authz::Config,
    /// Admission plugins that do not run, by upstream's names.
    pub admission_off: BTreeSet<String>,
    /// Those that run although they do not by default.
    pub admission_on: BTreeSet<String>,
    pub admission: admission::Configuration,
    /// Whether pods may have privileged containers.
    pub allow_privileged: bool,
    pub front_proxy: FrontProxy,
    pub tls: TlsSettings,
    pub edge: EdgeSettings,
    /// How long requests are still taken after the server was told to stop.
    pub shutdown_delay: Duration,
    /// Whether new requests are told to try again, rather than refused a connection, while the last ones end.
    pub shutdown_send_retry_after: bool,
    /// A TracingConfiguration.
    pub tracing_file: Option<PathBuf>,
    /// By which way the cluster is reached; directly where no file says otherwise.
    pub egress_file: Option<PathBuf>,
    /// Which groups, versions and resources are served.
    pub runtime: RuntimeConfig,
    /// In which form objects are stored.
    pub storage_media: StorageMedia,
    /// What of the store is encrypted, and by what.
    pub encryption: encryption::Settings,
    /// Which of a node's addresses its kubelet is asked at.
    pub kubelet_address_types: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            issuers: Vec::new(),
            audiences: Vec::new(),
            anonymous: true,
            authentication: authn::Settings::default(),
            bootstrap_tokens: true,
            jwks_uri: None,
            external_hostname: None,
            token_expiration_max: None,
            signing_endpoint: None,
            extend_tokens: true,
            authorization: authz::Config::of_modes(&[Mode::Node, Mode::Rbac]),
            admission_off: BTreeSet::new(),
            admission_on: BTreeSet::new(),
            admission: admission::Configuration::default(),
            storage_media: StorageMedia::default(),
            encryption: encryption::Settings::default(),
            allow_privileged: true,
            front_proxy: FrontProxy::default(),
            tls: TlsSettings::default(),
            edge: EdgeSettings::default(),
            shutdown_delay: Duration::ZERO,
            shutdown_send_retry_after: false,
            tracing_file: None,
            egress_file: None,
            runtime: RuntimeConfig::default(),
            kubelet_address_types: ["InternalIP", "ExternalIP", "Hostname"].map(str::to_owned).into(),
        }
    }
}
