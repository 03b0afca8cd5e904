//! The dashboard of a server: users are known as the API server knows them, and asked for without a socket.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use component_base::clock::Clock;
use dashboard::body::{Body, full};
use dashboard::{Access, Connection, Credential, Dashboard};
use futures::{FutureExt, StreamExt};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Body as _;
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube_apiserver::authn::{ANONYMOUS, User};
use kube_apiserver::local::App;
use kube_apiserver::local::Loopback;
use kube_apiserver::local::mount::{self, Peer, Reply, Sent};
use machinery::status::Status;
use reconcile::{Caches, Shutdown};
use serde_json::{Value, json};
use store::{Change, Expect, StoreError};

use super::AGENT;
use super::insight::{History, Plugins, Policies};

const PATH: &str = "/dashboard";
/// A server whose clock is behind may take a session for good for so much longer.
const CLOCKS_APART: Duration = Duration::from_secs(300);

/// What the server knows of itself.
pub struct Config<'a> {
    pub data_dir: &'a Path,
    pub name: String,
    /// Names in the serving certificate besides the fixed ones.
    pub hosts: Vec<String>,
    pub cluster_domain: &'a str,
    /// With what the scheduler decides here.
    pub profiles: Vec<kube_scheduler::profile::Profile>,
    /// What the components of this process have read anyway.
    pub caches: Arc<Caches>,
}

/// Serves it from now on.
pub async fn start(app: &Arc<App>, config: Config<'_>, shutdown: Shutdown) -> anyhow::Result<()> {
    for object in permissions() {
        let made = kube_apiserver::local::ensure(app, object).await;
        made.map_err(|status| anyhow::anyhow!("create role of the dashboard: {}", status.message))?;
    }
    let service = format!("kubernetes.default.svc.{}", config.cluster_domain);
    let fixed = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", &service, &config.name];
    let page = dashboard::Config {
        scheme: http::uri::Scheme::HTTPS,
        hosts: fixed.into_iter().map(str::to_owned).chain(config.hosts).collect(),
        secret: secret(config.data_dir)?,
        version: kube_apiserver::VERSION.into(),
        name: config.name.clone(),
        scheduling: Some(Arc::new(Plugins(config.profiles))),
        policy: Some(Arc::new(Policies)),
        revisions: Some(Arc::new(History { app: app.clone() })),
        certificates: Some(certificates(config.data_dir.join("tls"))),
        history: Some(dashboard::HistoryConfig {
            folder: config.data_dir.join("dashboard"),
            client: kube::Client::new(Loopback::component(app.clone(), USER, AGENT), "default"),
            restarts: restarts(config.caches),
        }),
        clock: Clock::system(),
    };
    let page = Dashboard::new(page, Arc::new(Local { app: app.clone() }), shutdown);
    let server = app.clone();
    let handler: mount::Handler = Arc::new(move |peer, request| {
        let (page, app) = (page.clone(), server.clone());
        async move {
            let connection = connection(&app, &peer).await;
            let answer = AssertUnwindSafe(page.answer(connection, request.map(incoming))).catch_unwind().await;
            match answer {
                Ok(answer) => outgoing(answer).await,
                Err(_) => {
                    tracing::error!("dashboard request panicked");
                    mount::text(500, "This request caused the dashboard to panic; the server keeps running\n")
                }
            }
        }
        .boxed()
    });
    app.mounts.mount(PATH, handler);
    Ok(())
}

/// As whom measurements are read; nothing else is done without somebody who signed in. It is no service account, because
/// whoever may make tokens in kube-system would have its rights.
const USER: &str = "system:knarr:dashboard";
const ROLE: &str = "system:knarr:dashboard";

/// What it may read to measure.
pub fn permissions() -> [Value; 2] {
    let annotations = json!({"rbac.authorization.kubernetes.io/autoupdate": "true"});
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": ROLE, "annotations": annotations},
            "rules": [
                {"apiGroups": [""], "resources": ["nodes/proxy", "nodes/stats"], "verbs": ["get"]},
                {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": ROLE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
        }),
    ]
}

/// Read off the copy that the scheduler and the controllers keep; without them nothing is known.
fn restarts(caches: Arc<Caches>) -> dashboard::Restarts {
    Arc::new(move || {
        let pods = caches.get::<Pod>("").map(|cache| cache.list()).unwrap_or_default();
        let count = |pod: Arc<Pod>| {
            let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            let count: i32 = containers.into_iter().flatten().map(|container| container.restart_count).sum();
            let meta = &pod.metadata;
            let key = format!(
                "{}/{}",
                meta.namespace.as_deref().unwrap_or_default(),
                meta.name.as_deref().unwrap_or_default()
            );
            (key, u8::try_from(count).unwrap_or(u8::MAX))
        };
        pods.into_iter().map(count).collect()
    })
}

/// Of the certificates that this server made for itself.
fn certificates(tls: PathBuf) -> dashboard::Certificates {
    Arc::new(move || {
        let files = std::fs::read_dir(&tls).into_iter().flatten().flatten().map(|entry| entry.path());
        let names = files.filter(|path| path.extension().is_some_and(|end| end == "crt"));
        let names = names.filter_map(|path| Some(path.file_stem()?.to_str()?.to_string()));
        let read = |name: String| Some((name.clone(), kube_apiserver::pki::Pair::read(&tls, &name)?.not_after));
        let mut found: Vec<(String, Timestamp)> = names.filter_map(read).collect();
        found.sort();
        found
    })
}

/// Every server of a cluster has this key, it outlives restarts, and whoever has it can make tokens for anyone as it is.
fn secret(data_dir: &Path) -> anyhow::Result<[u8; 32]> {
    let path = data_dir.join("tls/sa.key");
    let key = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    let derived = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key), b"knarr dashboard sessions");
    Ok(derived.as_ref().try_into().expect("the digest has 32 bytes"))
}

struct Local {
    app: Arc<App>,
}

#[async_trait::async_trait]
impl Access for Local {
    async fn identify(&self, credential: &Credential) -> Result<dashboard::User, Status> {
        match credential {
            Credential::Token(token) => {
                let value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Status::unauthorized())?;
                let headers: HeaderMap = [(http::header::AUTHORIZATION, value)].into_iter().collect();
                let user = self.app.authenticator.authenticate(&headers, None, "", &self.app.views).await?;
                if user.name == ANONYMOUS { Err(Status::unauthorized()) } else { Ok(shown(user)) }
            }
            Credential::Identity(user) => Ok(user.clone()),
            Credential::Kubeconfig => Err(Status::unauthorized()),
        }
    }

    fn client(&self, _: &Credential, user: &dashboard::User, connection: &Connection) -> Result<kube::Client, Status> {
        let user = user.clone();
        let user = User { name: user.name, uid: user.uid, groups: user.groups, extra: user.extra };
        Ok(kube::Client::new(Loopback::user(self.app.clone(), user, connection.address, AGENT), "default"))
    }

    fn takes_certificates(&self) -> bool {
        true
    }

    async fn sign_out(&self, session: &str, lifetime: Duration) -> Result<(), Status> {
        // It is no object of the API: nobody but the servers of the cluster reads or changes it, and it goes by itself.
        let put = Change::Put { value: "{}".into(), ttl: Some(lifetime + CLOCKS_APART) };
        let written = self.app.cache.store().write_if(&signed_out(session), Expect::Absent, put).await;
        written.map(|_| ()).map_err(unreachable_store)
    }

    async fn is_signed_out(&self, session: &str) -> Result<bool, Status> {
        let entry = self.app.cache.store().get(&signed_out(session)).await;
        entry.map(|entry| entry.is_some()).map_err(unreachable_store)
    }
}

/// Where it stands that a session was signed out. Whoever reads the store learns nothing to sign in with.
fn signed_out(session: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, session.as_bytes());
    let text: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("/registry/knarr.dev/dashboard/signed-out/{text}")
}

fn unreachable_store(error: StoreError) -> Status {
    Status::unavailable(format!("cannot tell which sessions were signed out: {error}"))
}

fn shown(user: User) -> dashboard::User {
    dashboard::User { name: user.name, uid: user.uid, groups: user.groups, extra: user.extra }
}

/// Whom the connection's certificate proves, judged as for a request to the API.
async fn connection(app: &App, peer: &Peer) -> Connection {
    let mut connection = Connection { address: peer.address, certificate: None };
    if let Some(certificate) = &peer.certificate {
        let proven = app.authenticator.authenticate(&HeaderMap::new(), Some(certificate), "", &app.views).await;
        let user = proven.ok().filter(|user| user.name != ANONYMOUS);
        let until = Timestamp::from_second(certificate.not_after).unwrap_or(Timestamp::UNIX_EPOCH);
        connection.certificate = user.map(|user| (shown(user), until));
    }
    connection
}

fn incoming(sent: Sent) -> Body {
    match sent {
        Sent::Pieces(body) => body.map_err(Into::into).boxed_unsync(),
        Sent::Whole(bytes) => full(bytes),
    }
}

async fn outgoing(answer: Response<Body>) -> Reply {
    let (parts, body) = answer.into_parts();
    // What is whole already is sent with its length.
    let body = match body.size_hint().exact() {
        Some(_) => {
            let whole = body.collect().await.map(|whole| whole.to_bytes()).unwrap_or_default();
            mount::Body::full(whole)
        }
        None => {
            let pieces = body.into_data_stream().take_while(|piece| {
                // Within the process nothing fails but by ending.
                std::future::ready(piece.is_ok())
            });
            mount::Body::Stream(pieces.filter_map(|piece| std::future::ready(piece.ok())).boxed())
        }
    };
    Response::from_parts(parts, body)
}
