//! Joins a machine to a cluster as a node, and keeps its credentials valid.
//!
//! The cluster says in public who it is (`cluster-info`). A new machine checks that with the token it was given, asks for a
//! certificate with it, and is itself from then on: `system:node:<name>`. The name is bound to a key of that machine, so that
//! nobody else gets it with a token alone.

pub mod bundle;
pub mod certificates;
pub mod cluster;
pub mod discovery;
pub mod node_key;
pub mod server;
pub mod servers;
pub mod stretch;
pub mod token;
pub mod tokens;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use component_base::tasks;
use jiff::Timestamp;
use kube_apiserver::pki::Pair;

use self::certificates::Kind;
use self::cluster::Settings;
use self::node_key::NodeKey;
use self::servers::{ClientIdentity, Servers};
use self::token::{Role, Token};

/// A machine that belongs to a cluster.
pub struct Joined {
    pub client: kube::Client,
    pub identity: Arc<ClientIdentity>,
    pub servers: Arc<Servers>,
    pub pair: Pair,
    /// The cluster's authority.
    pub authority: String,
    pub settings: Settings,
    /// Where what was learned is kept.
    pub dir: PathBuf,
}

/// The files of a member.
const AUTHORITY: &str = "ca.crt";
const CLIENT: &str = "client-kubelet";

/// Takes up a membership that was kept, or joins with a token.
pub async fn join(
    server: Option<&str>,
    token: Option<&str>,
    dir: PathBuf,
    node_name: &str,
    agent: &'static str,
) -> anyhow::Result<Joined> {
    linux::file::make_private_folder(&dir).with_context(|| format!("create {}", dir.display()))?;
    let (authority, pair) = match kept(&dir, node_name) {
        Some(kept) => kept,
        None => first_time(server, token, &dir, node_name).await?,
    };
    let servers = Arc::new(Servers::new(dir.join("servers"), server)?);
    let identity = Arc::new(ClientIdentity::new(&pair)?);
    let client = servers::client(servers.clone(), &authority, identity.clone(), agent)?;
    let settings = cluster::settings(&client, &dir).await?;
    Ok(Joined { client, identity, servers, pair, authority, settings, dir })
}

/// What an earlier start left, unless the certificate has ended meanwhile or is another node's.
fn kept(dir: &Path, node_name: &str) -> Option<(String, Pair)> {
    let authority = std::fs::read_to_string(dir.join(AUTHORITY)).ok()?;
    let pair = Pair::read(dir, CLIENT)?;
    let usable = pair.not_after > Timestamp::now() && pair.common_name() == certificates::subject(node_name);
    usable.then_some((authority, pair))
}

async fn first_time(
    server: Option<&str>,
    token: Option<&str>,
    dir: &Path,
    node_name: &str,
) -> anyhow::Result<(String, Pair)> {
    let (Some(server), Some(token)) = (server, token) else {
        bail!(
            "this machine has not joined a cluster yet: set --server and --token, which `knarr token create` prints on a server"
        );
    };
    let token: Token = token.parse()?;
    let discovery::Known { authority, client, .. } =
        discovery::enter(server, &token, &[Role::Agents, Role::Servers]).await?;
    let key = NodeKey::of(dir)?;
    let request = certificates::Request { kind: Kind::Client, node_name, addresses: &[], key: Some(&key) };
    let pair = certificates::obtain(&client, &request).await.context("get client certificate of the node")?;
    // The authority last: without it nothing counts as kept.
    pair.write(dir, CLIENT)?;
    linux::file::write(&dir.join(AUTHORITY), &authority, 0o600).context("save CA of the cluster")?;
    tracing::info!(server, node = node_name, "joined the cluster");
    Ok((authority, pair))
}

impl Joined {
    pub fn authority_file(&self) -> PathBuf {
        self.dir.join(AUTHORITY)
    }

    /// Keeps the node's own certificate from ending, and its list of servers true.
    pub fn keep(&self, node_name: &str, shutdown: reconcile::Shutdown) {
        let (client, identity, servers) = (self.client.clone(), self.identity.clone(), self.servers.clone());
        let (dir, name) = (self.dir.clone(), node_name.to_owned());
        let key_dir = dir.clone();
        let renewed = move |pair: &Pair| {
            pair.write(&dir, CLIENT)?;
            identity.replace(pair)?;
            // Open connections still speak for the old certificate.
            servers.reconnect();
            Ok(())
        };
        let obtain = move || {
            let (client, name, key_dir) = (client.clone(), name.clone(), key_dir.clone());
            async move {
                let key = NodeKey::of(&key_dir)?;
                let request =
                    certificates::Request { kind: Kind::Client, node_name: &name, addresses: &[], key: Some(&key) };
                certificates::obtain(&client, &request).await
            }
        };
        tasks::spawn(certificates::keep(
            self.pair.renew_at(),
            certificates::no_addresses(),
            obtain,
            renewed,
            shutdown.clone(),
        ));
        tasks::spawn(servers::follow(self.client.clone(), self.servers.clone(), shutdown));
    }
}
