//! The secure port of a component that runs alone, as upstream: HTTPS, health for everyone, its
//! metrics only to those whom the API server knows and allows to see them.

mod proxies;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use component_base::status_page::{self, Answer, Pages, StatusCode};
use component_base::{Shutdown, tasks};
use component_helpers::zpages;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use kube_apiserver::authn::FrontProxy;
use kube_apiserver::pki::{
    self, Authority, ClientAuthorities, Pair, Request, ServingCertificate, Signer, TlsSettings, Usage,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::health::Page;
use proxies::Proxies;

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Address to serve /healthz, /livez, /readyz and /metrics on, with HTTPS.
    #[arg(long, default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// Port to serve on; 0 disables it.
    #[arg(long)]
    secure_port: Option<u16>,
    /// Serving certificate (default: self-signed).
    #[arg(long, requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    #[arg(long, requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Directory of self-signed certificates; ignored, because they are created at every start.
    #[arg(long)]
    cert_dir: Option<PathBuf>,
    /// CA of client certificates (default: the cluster's).
    #[arg(long)]
    client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    tls: crate::tls::Flags,
    #[command(flatten)]
    proxies: proxies::Flags,
    /// Kubeconfig for TokenReviews.
    #[arg(long)]
    authentication_kubeconfig: Option<PathBuf>,
    /// Kubeconfig for SubjectAccessReviews.
    #[arg(long)]
    authorization_kubeconfig: Option<PathBuf>,
    /// Paths that need no authorization.
    #[arg(long, value_delimiter = ',', default_value = "/healthz,/readyz,/livez")]
    authorization_always_allow_paths: Vec<String>,
    /// What `/flagz` shows.
    #[arg(skip)]
    pub shown: zpages::Flags,
}

impl Flags {
    /// Answers from now on, beside the caller.
    pub async fn serve(
        &self,
        default_port: u16,
        component: &'static str,
        agent: &'static str,
        page: Page,
    ) -> anyhow::Result<()> {
        let port = self.secure_port.unwrap_or(default_port);
        if port == 0 {
            return Ok(());
        }
        let address = SocketAddr::new(self.bind_address, port);
        let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
        let client_of = async |file: &Option<PathBuf>| -> anyhow::Result<Option<Client>> {
            let Some(file) = file else { return Ok(None) };
            Ok(Some(crate::alone::client(crate::alone::from_file(file).await?, agent)?))
        };
        let read = |file: &PathBuf| std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()));
        let client_authority = self.client_ca_file.as_ref().map(read).transpose()?;
        let told = TrustSettings { client_authority, proxies: self.proxies.read()? };
        // What cannot be used is said at the start.
        Trusted::new(&told)?;
        let access = Arc::new(Access {
            open: self.authorization_always_allow_paths.clone(),
            authentication: client_of(&self.authentication_kubeconfig).await?,
            authorization: client_of(&self.authorization_kubeconfig).await?,
            told,
            trusted: tokio::sync::OnceCell::new(),
            pages: Pages::new(page).and(crate::shown::zpages(component, self.shown.clone())),
        });
        accept(listener, access, &self.certificate()?, &self.tls.settings()?, Shutdown::new())
    }

    fn certificate(&self) -> anyhow::Result<Pair> {
        match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => read_pair(certificate, key),
            _ => self_signed(&[self.bind_address]),
        }
    }
}

/// The secure port of a component within a server's process, for this machine. The server itself says who asks and who may.
pub async fn serve_beside(port: u16, client: Client, pages: Pages, shutdown: Shutdown) -> anyhow::Result<()> {
    if port == 0 {
        return Ok(());
    }
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
    let access = Arc::new(Access {
        open: ["/healthz", "/readyz", "/livez"].map(str::to_owned).into(),
        authentication: Some(client.clone()),
        authorization: Some(client),
        told: TrustSettings::default(),
        trusted: tokio::sync::OnceCell::new(),
        pages,
    });
    accept(listener, access, &self_signed(&[address.ip()])?, &TlsSettings::default(), shutdown)
}

fn accept(
    listener: TcpListener,
    access: Arc<Access>,
    pair: &Pair,
    settings: &TlsSettings,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let certificate = Arc::new(ServingCertificate::new(pair)?);
    // Whatever is shown is taken here and judged with the request.
    let mut tls = pki::server_config(certificate, &ClientAuthorities::new(None, None)?, settings)?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    tasks::spawn(status_page::accept(listener, shutdown, move |stream| {
        let (acceptor, access) = (acceptor.clone(), access.clone());
        tasks::boxed(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let chain = stream.get_ref().1.peer_certificates().unwrap_or(&[]);
            let chain: Vec<_> = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
            status_page::answer(stream, async |request| access.answer(&request, &chain).await).await;
        })
    }));
    Ok(())
}

/// A certificate and its key from their files.
pub fn read_pair(certificate: &std::path::Path, key: &std::path::Path) -> anyhow::Result<Pair> {
    let read =
        |path: &std::path::Path| std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let key_pem = crate::keys::pkcs8(&read(key)?).with_context(|| format!("use {}", key.display()))?;
    Pair::from_pem(read(certificate)?, key_pem).with_context(|| format!("use {}", certificate.display()))
}

/// A certificate of this host that nobody vouches for.
pub fn self_signed(addresses: &[IpAddr]) -> anyhow::Result<Pair> {
    let name = crate::server::host_name();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).context("create key")?;
    let authority = Authority::create(&format!("{name}-ca"), key, Timestamp::now())?;
    let addresses = addresses.iter().copied().filter(|address| !address.is_unspecified());
    let request = Request {
        common_name: &name,
        organization: None,
        host_names: vec![name.clone(), "localhost".into()],
        addresses: addresses.chain([IpAddr::from([127, 0, 0, 1])]).collect(),
        usage: Usage::Server,
    };
    Ok(authority.issue(&request, Timestamp::now())?)
}

/// Who may see what.
struct Access {
    open: Vec<String>,
    authentication: Option<Client>,
    authorization: Option<Client>,
    told: TrustSettings,
    /// Found out once, when somebody shows a certificate.
    trusted: tokio::sync::OnceCell<Trusted>,
    pages: Pages,
}

/// Whose certificates are trusted; what flags do not say, the cluster does.
#[derive(Clone, Default)]
struct TrustSettings {
    client_authority: Option<String>,
    proxies: Option<Proxies>,
}

struct Trusted {
    authorities: ClientAuthorities,
    /// What proxies may say, and where.
    rules: FrontProxy,
}

impl Trusted {
    fn new(told: &TrustSettings) -> anyhow::Result<Trusted> {
        let proxies = told.proxies.as_ref();
        let authorities =
            ClientAuthorities::new(told.client_authority.as_deref(), proxies.map(|proxies| proxies.authority.as_str()));
        let rules = proxies.map(|proxies| proxies.rules.clone()).unwrap_or_default();
        Ok(Trusted { authorities: authorities?, rules })
    }
}

struct User {
    name: String,
    groups: Vec<String>,
}

impl User {
    fn authenticated(name: String, mut groups: Vec<String>) -> User {
        groups.push("system:authenticated".into());
        User { name, groups }
    }
}

impl Access {
    async fn answer(
        &self,
        request: &status_page::Request,
        chain: &[rustls::pki_types::CertificateDer<'static>],
    ) -> Answer {
        let allowed = |open: &String| match open.strip_suffix('*') {
            Some(prefix) => request.path.starts_with(prefix),
            None => *open == request.path,
        };
        if !self.open.iter().any(allowed) {
            let user = match self.identify(request, chain).await {
                Ok(Some(user)) => user,
                Ok(None) => User { name: "system:anonymous".into(), groups: vec!["system:unauthenticated".into()] },
                Err(error) => {
                    tracing::debug!(error = format!("{error:#}"), "cannot authenticate request");
                    return Answer::text(StatusCode::UNAUTHORIZED, "Unauthorized");
                }
            };
            if !self.may_see(&user, &request.path).await {
                let why = format!("forbidden: User {:?} cannot get path {:?}", user.name, request.path);
                return Answer::text(StatusCode::FORBIDDEN, why);
            }
        }
        self.pages.answer(request)
    }

    async fn identify(
        &self,
        request: &status_page::Request,
        chain: &[rustls::pki_types::CertificateDer<'static>],
    ) -> anyhow::Result<Option<User>> {
        if !chain.is_empty()
            && let Ok(trusted) = self.trusted.get_or_try_init(|| self.find_trusted()).await
            && let Some(peer) = trusted.authorities.identify(chain, Timestamp::now())
        {
            if let Some(user) = trusted.rules.user(&request.headers, &peer, Timestamp::now())? {
                return Ok(Some(User::authenticated(user.name, user.groups)));
            }
            if peer.signer == Signer::Cluster {
                return Ok(Some(User::authenticated(peer.user.name, peer.user.groups)));
            }
        }
        let Some(token) = request.token() else { return Ok(None) };
        let client = self.authentication.as_ref().context("no API server to review tokens")?;
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = Api::<TokenReview>::all(client.clone()).create(&Default::default(), &review).await?.status;
        let status = status.filter(|status| status.authenticated == Some(true)).context("unknown token")?;
        let user = status.user.unwrap_or_default();
        Ok(Some(User { name: user.username.unwrap_or_default(), groups: user.groups.unwrap_or_default() }))
    }

    /// What the flags leave open is what the API server tells everyone who has to know whom to believe.
    async fn find_trusted(&self) -> anyhow::Result<Trusted> {
        let mut told = self.told.clone();
        if told.client_authority.is_none() || told.proxies.is_none() {
            match self.look_up().await {
                Ok(data) => {
                    told.proxies = told.proxies.or_else(|| Proxies::of_cluster(&data));
                    told.client_authority = told.client_authority.or_else(|| data.get("client-ca-file").cloned());
                }
                // One of them is enough for those who show a certificate of it.
                Err(_) if told.client_authority.is_some() || told.proxies.is_some() => {}
                Err(error) => return Err(error),
            }
        }
        Trusted::new(&told)
    }

    async fn look_up(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let client = self.authentication.as_ref().context("no API server to read the client CA from")?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
        maps.get("extension-apiserver-authentication").await?.data.context("no client CA")
    }

    async fn may_see(&self, user: &User, path: &str) -> bool {
        if user.groups.iter().any(|group| group == "system:masters") {
            return true;
        }
        let Some(client) = &self.authorization else { return false };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            groups: Some(user.groups.clone()),
            non_resource_attributes: Some(NonResourceAttributes { path: Some(path.into()), verb: Some("get".into()) }),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = Api::<SubjectAccessReview>::all(client.clone()).create(&Default::default(), &review).await;
        answer.is_ok_and(|review| review.status.is_some_and(|status| status.allowed))
    }
}
