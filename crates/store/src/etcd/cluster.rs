//! The members of an etcd cluster, one connection each. All calls go to one member while it answers; when it does
//! not, the next one is taken. Every call has a deadline.

use std::future::Future;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, KvClient, LeaseClient, TlsOptions, WatchClient};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::Config;
use super::failure::Failure;
use crate::StoreError;

/// A silent connection is asked for a sign of life this often; etcd allows no more than one in five seconds.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two tries.
const RETRY_WAIT: Duration = Duration::from_millis(50);
/// Etcd bounds what it is sent; what it sends is bounded by what we ask for.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

#[derive(Clone)]
pub(super) struct Member {
    pub endpoint: String,
    pub kv: KvClient,
    pub lease: LeaseClient,
    pub watch: WatchClient,
    index: usize,
}

pub(super) struct Cluster {
    members: Vec<Member>,
    /// The index of the member to ask.
    preferred: watch::Sender<usize>,
}

impl Cluster {
    pub async fn new(config: &Config) -> Result<Cluster, StoreError> {
        if config.endpoints.is_empty() {
            return Err(StoreError::Other("no etcd endpoints are given".to_owned()));
        }
        let options = options(config)?;
        let mut members = Vec::new();
        for (index, endpoint) in config.endpoints.iter().enumerate() {
            let client = Client::connect([endpoint], Some(options.clone()))
                .await
                .map_err(|error| StoreError::Other(format!("etcd endpoint {endpoint}: {error}")))?;
            members.push(Member {
                endpoint: endpoint.clone(),
                kv: client.kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX),
                lease: client.lease_client(),
                watch: client.watch_client().max_decoding_message_size(MESSAGE_BYTES_MAX),
                index,
            });
        }
        Ok(Cluster { members, preferred: watch::Sender::new(0) })
    }

    /// The member to ask.
    pub fn member(&self) -> Member {
        self.members[*self.preferred.borrow()].clone()
    }

    /// Turns to the next member, unless someone already did.
    pub fn turn_from(&self, failed: &Member, why: &Failure) {
        let next = (failed.index + 1) % self.members.len();
        let turned = self.preferred.send_if_modified(|preferred| {
            let turns = *preferred == failed.index && next != failed.index;
            if turns {
                *preferred = next;
            }
            turns
        });
        if turned {
            tracing::warn!(endpoint = %failed.endpoint, ?why, "etcd member does not serve, turning to the next");
        }
    }

    /// Comes back when another member is asked instead of this one.
    pub async fn turned_from(&self, member: &Member) {
        let mut preferred = self.preferred.subscribe();
        if preferred.wait_for(|preferred| *preferred != member.index).await.is_err() {
            // The sender lives in `self`, so this does not happen; then nothing is turned either.
            std::future::pending::<()>().await;
        }
    }

    /// A call that may be made twice: tried until it is answered, every member at least once.
    pub async fn read<T, F, A>(&self, patience: Duration, call: F) -> Result<T, Failure>
    where
        F: Fn(Member) -> A,
        A: Future<Output = Result<T, etcd_client::Error>>,
    {
        let deadline = Instant::now() + patience;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.once(patience, &call).await {
                Err(Failure::NotDone(_) | Failure::Unknown(_))
                    if tries < self.members.len() || Instant::now() < deadline =>
                {
                    tokio::time::sleep(RETRY_WAIT).await;
                }
                result => return result,
            }
        }
    }

    /// A call that must not be made twice: tried again only where it certainly had no effect.
    pub async fn write<T, F, A>(&self, patience: Duration, call: F) -> Result<T, Failure>
    where
        F: Fn(Member) -> A,
        A: Future<Output = Result<T, etcd_client::Error>>,
    {
        let deadline = Instant::now() + patience;
        loop {
            match self.once(patience, &call).await {
                Err(Failure::NotDone(_)) if Instant::now() < deadline => tokio::time::sleep(RETRY_WAIT).await,
                result => return result,
            }
        }
    }

    async fn once<T, F, A>(&self, patience: Duration, call: &F) -> Result<T, Failure>
    where
        F: Fn(Member) -> A,
        A: Future<Output = Result<T, etcd_client::Error>>,
    {
        let member = self.member();
        let result = match timeout(patience, call(member.clone())).await {
            Ok(result) => result.map_err(|error| Failure::of(error, &member.endpoint)),
            Err(_) => Err(Failure::Unknown(format!("{} did not answer in {patience:?}", member.endpoint))),
        };
        if let Err(why @ (Failure::NotDone(_) | Failure::Unknown(_))) = &result {
            self.turn_from(&member, why);
        }
        result
    }
}

fn options(config: &Config) -> Result<ConnectOptions, StoreError> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(config.connect_timeout)
        .with_keep_alive(KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT)
        // Etcd hangs up on those who ask for signs of life with no call open.
        .with_keep_alive_while_idle(false)
        .with_tcp_keepalive(KEEP_ALIVE_INTERVAL)
        // A member cut off from the others must say so instead of showing us an old world.
        .with_require_leader(true);
    if config.ca.is_some() || config.cert.is_some() || config.key.is_some() {
        let mut tls = TlsOptions::new();
        if let Some(ca) = &config.ca {
            tls = tls.ca_certificate(Certificate::from_pem(ca));
        }
        match (&config.cert, &config.key) {
            (Some(cert), Some(key)) => tls = tls.identity(Identity::from_pem(cert, key)),
            (None, None) => {}
            _ => return Err(StoreError::Other("etcd needs both a client certificate and its key".to_owned())),
        }
        options = options.with_tls(tls);
    }
    Ok(options)
}
