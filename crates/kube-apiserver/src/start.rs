//! Assembles and starts a server, once it has certificates: listeners, state, background tasks.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use component_base::tasks;
use store::Store;
use store::cache::Cache;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::app::{self, App, Settings};
use crate::authn::external_signer::ExternalSigner;
use crate::{
    Config, Error, admission, aggregate, allocate, audit, authn, authz, bootstrap, configuration, connections, custom,
    edge, egress, encryption, flagz, flowcontrol, health, leaving, metrics, pki, resources, stored, subresources,
    traces, views,
};

/// A server that answers, whoever made its certificates.
pub struct Serving {
    pub address: SocketAddr,
    pub app: Arc<App>,
    pub certificate: Arc<pki::ServingCertificate>,
    pub handshake: Arc<pki::Handshake>,
    pub accepting: JoinHandle<()>,
    pub announcing: Option<JoinHandle<()>>,
}

/// Files whose changes are taken over, as they were read at the start.
struct Followed {
    authentication: String,
    authorization: String,
    encryption: String,
}

pub async fn serve(
    config: &Config,
    credentials: &pki::Credentials,
    store: Arc<dyn Store>,
    shutdown: CancellationToken,
) -> Result<Serving, Error> {
    let leaving = shutdown;
    let shutdown = delayed(&leaving, config.options.shutdown_delay);
    let certificate = Arc::new(pki::ServingCertificate::with_named(&credentials.serving, &credentials.named)?);
    let clients = credentials.client_authorities()?;
    let handshake = Arc::new(pki::Handshake::new(certificate.clone(), clients, &config.options.tls)?);

    let wanted = SocketAddr::new(config.bind_address, config.https_port);
    let listener = TcpListener::bind(wanted).await.map_err(|source| Error::Listen { address: wanted, source })?;
    let address = listener.local_addr().map_err(|source| Error::Listen { address: wanted, source })?;

    let health = health::Health { leaving, stopping: shutdown.clone(), ..Default::default() };
    let (app, followed) = app(config, credentials, store, address.port(), health).await?;
    bootstrap::create(&app, credentials, &config.options.front_proxy).await.map_err(Error::Bootstrap)?;
    let announcing = announce(config, &app, &shutdown).await?;
    follow_files(config, &app, followed, &shutdown);
    tasks::spawn(authn::token_use::follow(app.clone(), shutdown.clone()));
    flowcontrol::start(&app, shutdown.clone()).await;
    allocate::repair(&app, &shutdown).await.map_err(Error::Bootstrap)?;
    custom::follow::start(&app, shutdown.clone()).await?;
    refuse_unreadable(&app.table.load())?;
    aggregate::start(&app, shutdown.clone());
    tasks::spawn(encryption::repair(app.encrypted.encryption().clone(), app.cache.clone(), shutdown.clone()));
    tasks::spawn(encryption::keep_rewriting(app.clone(), shutdown.clone()));
    app.health.bootstrapped.store(true, Ordering::Release);

    let accepting = tasks::spawn(connections::accept(app.clone(), listener, handshake.clone()));
    Ok(Serving { address, app, certificate, handshake, accepting, announcing })
}

/// Ends a while after the server was told to: load balancers that read `/readyz` send nothing new by then.
fn delayed(leaving: &CancellationToken, delay: Duration) -> CancellationToken {
    if delay.is_zero() {
        return leaving.clone();
    }
    let (leaving, stopping) = (leaving.clone(), CancellationToken::new());
    let ended = stopping.clone();
    tasks::spawn(async move {
        leaving.cancelled().await;
        tracing::info!(seconds = delay.as_secs(), "not ready any more; serving until the shutdown delay is over");
        tokio::time::sleep(delay).await;
        ended.cancel();
    });
    stopping
}

/// What every request shares.
async fn app(
    config: &Config,
    credentials: &pki::Credentials,
    store: Arc<dyn Store>,
    https_port: u16,
    health: health::Health,
) -> Result<(Arc<App>, Followed), Error> {
    let (options, shutdown) = (&config.options, &health.stopping.clone());
    let (encryption, encrypting) =
        encryption::Encryption::load(&options.encryption, config.clock.clone(), shutdown).await?;
    let measured = metrics::Measured::new(store);
    let encrypted = encryption::Encrypted::new(measured.clone(), encryption);
    let cache = Cache::start(stored::Readable::wrap(encrypted.clone(), options.storage_media)).await?;
    let table = resources::built_in(&cache, &options.runtime).await?;
    refuse_unreadable(&table)?;
    let settings = settings(config, https_port);
    let (authorizer, authorization) = authz::Authorizer::new(&options.authorization)?;
    let (authenticator, authentication) = authenticator(config, credentials).await?;
    if let Some(signer) = authenticator.service_accounts().signer() {
        tasks::spawn(signer.clone().follow(shutdown.clone()));
    }
    let audit = audit::Audit::start(&config.audit, config.clock.clone(), shutdown.clone())?;
    let cluster = options.egress_file.as_deref().map(egress::read).transpose()?.unwrap_or_default();
    let traced = options.tracing_file.as_deref().map(traces::Configuration::read).transpose()?;
    let start = |traced| traces::Tracer::start(&traced, &config.host_name, config.clock.clone(), shutdown.clone());
    let tracer = traced.map(start);
    let reaches_loopback = settings.advertise_address.get().is_loopback() || config.bind_address.is_loopback();
    let app = App {
        views: views(&table),
        table: ArcSwap::from_pointee(table),
        cache,
        encrypted,
        flow: flowcontrol::FlowControl::new(config.flow.clone()),
        authenticator,
        authorizer,
        admission: admission::Admission::new(options),
        locks: Default::default(),
        tracer,
        leaving: leaving::Leaving::new(shutdown.clone(), options.shutdown_send_retry_after),
        health,
        edge: edge::Edge::new(&options.edge)?,
        measured,
        metrics: Default::default(),
        openapi: Default::default(),
        audit: audit.map(Arc::new),
        nodes: subresources::kubelet::Nodes::new(credentials, reaches_loopback, cluster.clone())?,
        aggregator: aggregate::Aggregator::new(credentials, &config.attached, cluster.clone())?,
        webhooks: crate::webhooks::Pool::new(cluster),
        offload: Default::default(),
        mounts: Default::default(),
        settings,
        zpages: flagz::zpages(config),
        clock: config.clock.clone(),
    };
    Ok((Arc::new(app), Followed { authentication, authorization, encryption: encrypting }))
}

fn settings(config: &Config, https_port: u16) -> Settings {
    let options = &config.options;
    let advertise = config.advertise_address.unwrap_or_else(|| advertise_address(config.bind_address));
    Settings {
        advertise_address: app::Advertised::new(advertise),
        https_port,
        service_cidr: config.service_cidr,
        node_ports: config.node_ports.clone(),
        issuer: options.issuers.first().cloned().unwrap_or_default(),
        jwks_uri: options.jwks_uri.clone(),
        external_hostname: options.external_hostname.clone(),
        identity_hash: configuration::hash(&config.host_name),
        event_ttl: config.event_ttl,
        kubelet_address_types: options.kubelet_address_types.clone(),
        gates: options.runtime.gates().clone(),
    }
}

/// Tells clients within the cluster where this server is; with other servers, for as long as it lives.
async fn announce(
    config: &Config,
    app: &Arc<App>,
    shutdown: &CancellationToken,
) -> Result<Option<JoinHandle<()>>, Error> {
    if config.shared_store {
        return Ok(Some(tasks::spawn(bootstrap::endpoints::keep(app.clone(), shutdown.clone()))));
    }
    bootstrap::endpoints::only_this(app).await.map_err(Error::Bootstrap)?;
    tasks::spawn(bootstrap::endpoints::follow_this(app.clone(), shutdown.clone()));
    Ok(None)
}

fn follow_files(config: &Config, app: &Arc<App>, texts: Followed, shutdown: &CancellationToken) {
    if let Some(path) = &config.options.authentication.file {
        let (path, text, what) = (path.clone(), texts.authentication, "authentication configuration");
        let followed = configuration::Follow { path, text, what };
        tasks::spawn(follow_authentication(app.clone(), followed, shutdown.clone()));
    }
    if let Some(path) = &config.options.authorization.file {
        let (path, text, what) = (path.clone(), texts.authorization, "authorization configuration");
        let followed = configuration::Follow { path, text, what };
        tasks::spawn(follow_authorization(app.clone(), followed, shutdown.clone()));
    }
    if let Some(path) = app.encrypted.encryption().follows_file() {
        let followed = configuration::Follow { path, text: texts.encryption, what: "encryption configuration" };
        tasks::spawn(follow_encryption(app.clone(), followed, shutdown.clone()));
    }
}

/// Takes a changed EncryptionConfiguration over.
async fn follow_encryption(app: Arc<App>, followed: configuration::Follow, shutdown: CancellationToken) {
    let encryption = app.encrypted.encryption();
    let apply = |text: String| encryption.reload(text);
    configuration::follow(followed, &encryption.reloads, &app.clock, apply, shutdown).await;
}

/// Takes a changed AuthenticationConfiguration over.
async fn follow_authentication(app: Arc<App>, followed: configuration::Follow, shutdown: CancellationToken) {
    let dynamic = app.authenticator.dynamic();
    let path = followed.path.clone();
    let apply = |text: String| dynamic.reload(path.clone(), text);
    configuration::follow(followed, &dynamic.reloads, &app.clock, apply, shutdown).await;
}

/// Takes a changed AuthorizationConfiguration over.
async fn follow_authorization(app: Arc<App>, followed: configuration::Follow, shutdown: CancellationToken) {
    let path = followed.path.clone();
    let apply = |text: String| {
        let reloaded = app.authorizer.reload(&path, &text);
        async move {
            match reloaded {
                Ok(()) => configuration::Applied::Yes,
                Err(error) => configuration::Applied::Refused(error.to_string()),
            }
        }
    };
    configuration::follow(followed, &app.authorizer.reloads, &app.clock, apply, shutdown).await;
}

/// A server that leaves out what it cannot read would do harm with the rest.
fn refuse_unreadable(table: &resources::Table) -> Result<(), Error> {
    stored::unreadable(table).map_or(Ok(()), |keys| Err(Error::Unreadable(keys)))
}

/// The address others would reach this host by: the one it listens on, or the one its default route would use.
pub fn advertise_address(bind: IpAddr) -> IpAddr {
    if !bind.is_unspecified() && !bind.is_loopback() {
        return bind;
    }
    // Connecting a datagram socket sends nothing; it only asks the kernel for a route. The address is one of those
    // reserved for documentation.
    let route = || {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    };
    route().map_or(IpAddr::from([127, 0, 0, 1]), |address| address.ip())
}

/// The resources that the server itself reads, by group and plural name, in version v1.
pub(crate) const READ: &[(&str, &str)] = &[
    ("", "namespaces"),
    ("", "serviceaccounts"),
    ("", "secrets"),
    ("", "configmaps"),
    ("", "pods"),
    ("", "nodes"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "limitranges"),
    ("", "resourcequotas"),
    ("", "services"),
    ("", "endpoints"),
    ("discovery.k8s.io", "endpointslices"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
    ("networking.k8s.io", "ingressclasses"),
    ("networking.k8s.io", "servicecidrs"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("node.k8s.io", "runtimeclasses"),
    ("policy", "poddisruptionbudgets"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourceslices"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
];

fn views(table: &resources::Table) -> views::Views {
    let mut views = views::Views::default();
    for (group, plural) in READ {
        let resource = table.get(group, "v1", plural).expect("a built-in kind is in the table");
        let state = resource.state.clone().expect("a kind that is read is stored");
        views.add(plural, &resource.kind, state);
    }
    // Served only where it was asked for.
    if let Some(resource) = table.get("certificates.k8s.io", "v1beta1", "podcertificaterequests")
        && let Some(state) = resource.state.clone()
    {
        views.add("podcertificaterequests", &resource.kind, state);
    }
    views
}

async fn authenticator(
    config: &Config,
    credentials: &pki::Credentials,
) -> Result<(authn::Authenticator, String), Error> {
    let (options, clock) = (&config.options, config.clock.clone());
    let (issuer, older) = options.issuers.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    let audiences = if options.audiences.is_empty() { &options.issuers } else { &options.audiences };
    let (accounts, lifetime_max) = match &options.signing_endpoint {
        None => {
            let (key, keys) = (&credentials.service_account_key, &credentials.service_account_public_keys);
            let accounts = authn::ServiceAccounts::new(issuer, audiences, key, keys);
            (accounts.map_err(|error| Error::Tokens(error.to_string()))?, options.token_expiration_max)
        }
        Some(socket) => {
            let signer = ExternalSigner::connect(socket, clock.clone()).await?;
            let lifetime_max = signer.lifetime_max(options.token_expiration_max)?;
            (authn::ServiceAccounts::signed_elsewhere(issuer, audiences, signer), Some(lifetime_max))
        }
    };
    let accounts = accounts.believing(older).living(lifetime_max, options.extend_tokens);
    let token_file = match &config.token_auth_file {
        None => Default::default(),
        Some(path) => {
            let text =
                std::fs::read_to_string(path).map_err(|error| Error::Tokens(format!("{}: {error}", path.display())))?;
            authn::TokenFile::parse(&text).map_err(|error| Error::Tokens(error.to_string()))?
        }
    };
    let loaded = options.authentication.load(&options.issuers, options.anonymous, clock.clone())?;
    let authenticator = authn::Authenticator::new(authn::Config {
        clock,
        service_accounts: Arc::new(accounts),
        token_file,
        bootstrap_tokens: options.bootstrap_tokens,
        front_proxy: options.front_proxy.clone(),
        anonymous: loaded.anonymous,
        dynamic: loaded.dynamic,
    });
    Ok((authenticator, loaded.text))
}

/// New certificates of those who show them to others, checked and not in use yet.
pub(crate) struct Outgoing {
    nodes: subresources::kubelet::NextNodes,
    aggregator: aggregate::NextIdentity,
}

impl Outgoing {
    pub(crate) fn prepare(app: &App, credentials: &pki::Credentials) -> Result<Outgoing, pki::Error> {
        let nodes = subresources::kubelet::Nodes::prepare(credentials)?;
        Ok(Outgoing { nodes, aggregator: app.aggregator.prepare(credentials)? })
    }

    pub(crate) fn take_over(self, app: &App) {
        app.nodes.take_over(self.nodes);
        app.aggregator.take_over(self.aggregator);
    }
}
