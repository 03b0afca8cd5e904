//! `knarr dashboard`: the page by itself on this machine, against any Kubernetes API.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use component_base::clock::Clock;
use component_base::tasks;
use dashboard::{Access, Connection, Credential, Dashboard, User};
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use machinery::status::Status;
use parking_lot::Mutex;
use reconcile::Shutdown;
use ring::rand::SecureRandom;
use serde_json::{Value, json};

use super::insight::{Plugins, Policies};

/// How long it is believed who a token's user is.
const KNOWN: Duration = Duration::from_secs(30);
/// Tokens whose connections are kept.
const TOKENS_MAX: usize = 64;
const CONNECTIONS_MAX: usize = 512;

#[derive(clap::Args)]
#[group(skip)]
pub struct Flags {
    #[command(flatten)]
    cluster: crate::alone::Flags,
    /// Loopback address to serve the dashboard on, without TLS.
    #[arg(long, default_value = "127.0.0.1:6480")]
    address: SocketAddr,
}

/// Until it is told to stop.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    anyhow::ensure!(
        flags.address.ip().is_loopback(),
        "--address {}: without TLS the dashboard must listen on loopback, for example 127.0.0.1:6480",
        flags.address
    );
    crate::alone::run(async move |shutdown| serve(flags, shutdown).await)
}

async fn serve(flags: Flags, shutdown: Shutdown) -> anyhow::Result<()> {
    let config = flags.cluster.config().await?;
    let access = Arc::new(Remote::new(config)?);
    let user = access.identify(&Credential::Kubeconfig).await;
    let user = user.map_err(|status| anyhow::anyhow!("get the user of this kubeconfig: {}", status.message))?;
    let listener = tokio::net::TcpListener::bind(flags.address).await;
    let listener = listener.with_context(|| format!("listen on {}", flags.address))?;
    let address = listener.local_addr()?;
    let mut secret = [0; 32];
    // Sessions end with this process: nobody else can take over its port and be given a cookie that means something.
    ring::rand::SystemRandom::new().fill(&mut secret).ok().context("get random numbers from the system")?;
    let page = dashboard::Config {
        scheme: http::uri::Scheme::HTTP,
        hosts: Vec::new(),
        secret,
        version: access.version().await,
        name: access.config.cluster_url.to_string(),
        // What upstream's scheduler does without a configuration.
        scheduling: Some(Arc::new(Plugins(vec![kube_scheduler::profile::Profile::standard()]))),
        policy: Some(Arc::new(Policies)),
        revisions: None,
        certificates: None,
        history: None,
        clock: Clock::system(),
    };
    let page = Dashboard::new(page, access, shutdown.clone());
    let code = page.new_code(&user.name, Credential::Kubeconfig, None);
    let code = code.map_err(|status| anyhow::anyhow!("create sign-in code: {}", status.message))?;
    println!("dashboard of {} as {}: http://{address}/dashboard/signin#code={code}", page.name(), user.name);
    accept(listener, page, shutdown).await;
    Ok(())
}

async fn accept(listener: tokio::net::TcpListener, page: Arc<Dashboard>, shutdown: Shutdown) {
    let places = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (Ok((stream, address)), Ok(place)) = (accepted, places.clone().try_acquire_owned()) else {
            // Out of descriptors or places: give others time to end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let page = page.clone();
        tasks::spawn(async move {
            let _place = place;
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let page = page.clone();
                let connection = Connection { address: Some(address), certificate: None };
                let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
                async move { Ok::<_, Infallible>(page.answer(connection, request).await) }
            });
            let server = Builder::new(TokioExecutor::new());
            // How a browser ends its connection is no concern of ours.
            let _ = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        });
    }
}

/// Users as a foreign API server knows them.
struct Remote {
    config: kube::Config,
    own: kube::Client,
    tokens: Mutex<HashMap<Vec<u8>, kube::Client>>,
    users: Mutex<HashMap<Vec<u8>, (User, Instant)>>,
}

impl Remote {
    fn new(config: kube::Config) -> anyhow::Result<Remote> {
        let own = crate::alone::client(config.clone(), super::AGENT)?;
        Ok(Remote { config, own, tokens: Mutex::default(), users: Mutex::default() })
    }

    async fn version(&self) -> String {
        let version = self.own.apiserver_version().await;
        version.map(|version| version.git_version).unwrap_or_default()
    }

    fn client_of(&self, credential: &Credential) -> Result<kube::Client, Status> {
        let token = match credential {
            Credential::Kubeconfig => return Ok(self.own.clone()),
            Credential::Identity(_) => return Err(Status::unauthorized()),
            Credential::Token(token) => token,
        };
        let key = hash(credential);
        let mut tokens = self.tokens.lock();
        if let Some(client) = tokens.get(&key) {
            return Ok(client.clone());
        }
        let mut config = self.config.clone();
        config.auth_info = kube::config::AuthInfo { token: Some(token.clone().into()), ..Default::default() };
        let client =
            crate::alone::client(config, super::AGENT).map_err(|error| Status::internal(format!("{error:#}")))?;
        if tokens.len() >= TOKENS_MAX {
            tokens.clear();
        }
        tokens.insert(key, client.clone());
        Ok(client)
    }
}

#[async_trait::async_trait]
impl Access for Remote {
    async fn identify(&self, credential: &Credential) -> Result<User, Status> {
        let key = hash(credential);
        if let Some((user, at)) = self.users.lock().get(&key)
            && at.elapsed() < KNOWN
        {
            return Ok(user.clone());
        }
        let user = ask_who(&self.client_of(credential)?).await?;
        let mut users = self.users.lock();
        if users.len() >= TOKENS_MAX {
            users.clear();
        }
        users.insert(key, (user.clone(), Instant::now()));
        Ok(user)
    }

    fn client(&self, credential: &Credential, _: &User, _: &Connection) -> Result<kube::Client, Status> {
        self.client_of(credential)
    }

    fn takes_certificates(&self) -> bool {
        false
    }

    /// Nobody else knows sessions of this process.
    async fn sign_out(&self, _: &str, _: Duration) -> Result<(), Status> {
        Ok(())
    }

    async fn is_signed_out(&self, _: &str) -> Result<bool, Status> {
        Ok(false)
    }
}

async fn ask_who(client: &kube::Client) -> Result<User, Status> {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(|error| Status::internal(error.to_string()))?;
    let review: Value = client.request(request).await.map_err(|error| match error {
        kube::Error::Api(said) if said.code == 401 => Status::unauthorized(),
        error => Status::unavailable(format!("authenticate with the Kubernetes API: {error}")),
    })?;
    let info = &review["status"]["userInfo"];
    let name = info["username"].as_str().unwrap_or_default().to_string();
    // Who may ask as nobody has not signed in.
    if name.is_empty() || name == kube_apiserver::authn::ANONYMOUS {
        return Err(Status::unauthorized());
    }
    let groups = info["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    Ok(User { name, groups, ..User::default() })
}

/// Tokens are not kept as keys.
fn hash(credential: &Credential) -> Vec<u8> {
    let text = match credential {
        Credential::Token(token) => token.as_str(),
        Credential::Identity(_) | Credential::Kubeconfig => "",
    };
    ring::digest::digest(&ring::digest::SHA256, text.as_bytes()).as_ref().to_vec()
}
