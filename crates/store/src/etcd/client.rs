//! Calls to etcd: its messages, made from `proto/etcd.proto`, over one channel to one or several members.
//!
//! A client connects with its first call, and again after a connection broke. Who is asked when, and what is tried again, is
//! for others to say.

use std::time::Duration;

use futures::StreamExt;
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};

pub use messages::*;

#[allow(clippy::all)]
mod messages {
    include!("generated/etcdserverpb.rs");
}

type Guarded = InterceptedService<Channel, RequireLeader>;

/// Etcd bounds what it is sent; what it sends is bounded by what we ask for.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// Why there is no client. Whether a member can be reached shows only with the first call.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("no etcd endpoint is set")]
    NoEndpoint,
    #[error("{0} is not a URL")]
    Address(String, #[source] tonic::transport::Error),
    #[error("{0} is not https, but certificates are set")]
    CertificatesWithoutTls(String),
    #[error("client certificate and key must be set together")]
    HalfIdentity,
    #[error("load certificates for {0}")]
    Certificates(String, #[source] tonic::transport::Error),
}

/// How to connect. Not printable, since it holds a private key.
#[derive(Clone, Default)]
pub struct Options {
    /// PEM of the authority that signed the members' certificates.
    pub ca: Option<Vec<u8>>,
    /// PEM of our certificate and its key, where etcd asks for one.
    pub cert: Option<Vec<u8>>,
    pub key: Option<Vec<u8>>,
    pub connect_timeout: Option<Duration>,
    /// For every call, from its first byte to its last.
    pub timeout: Option<Duration>,
    pub keep_alive: Option<KeepAlive>,
    /// A member that knows no leader refuses, instead of showing an old world.
    pub require_leader: bool,
}

/// A silent connection with an open call is asked for a sign of life.
#[derive(Clone, Copy)]
pub struct KeepAlive {
    pub interval: Duration,
    pub timeout: Duration,
}

impl Options {
    fn tls(&self) -> Result<Option<ClientTlsConfig>, ConnectError> {
        let mut tls = ClientTlsConfig::new();
        if let Some(ca) = &self.ca {
            tls = tls.ca_certificate(Certificate::from_pem(ca));
        }
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => tls = tls.identity(Identity::from_pem(cert, key)),
            (None, None) => {}
            _ => return Err(ConnectError::HalfIdentity),
        }
        Ok((self.ca.is_some() || self.cert.is_some()).then_some(tls))
    }

    fn endpoint(&self, url: &str) -> Result<Endpoint, ConnectError> {
        let tls = self.tls()?;
        let scheme = if tls.is_some() { "https://" } else { "http://" };
        let url = if url.contains("://") { url.to_owned() } else { format!("{scheme}{url}") };
        let mut endpoint =
            Endpoint::from_shared(url.clone()).map_err(|error| ConnectError::Address(url.clone(), error))?;
        match (url.starts_with("https://"), tls) {
            (true, tls) => {
                let tls = tls.unwrap_or_default();
                endpoint = endpoint.tls_config(tls).map_err(|error| ConnectError::Certificates(url, error))?;
            }
            (false, Some(_)) => return Err(ConnectError::CertificatesWithoutTls(url)),
            (false, None) => {}
        }
        if let Some(KeepAlive { interval, timeout }) = self.keep_alive {
            // Etcd hangs up on those who ask for signs of life with no call open.
            endpoint = endpoint
                .keep_alive_while_idle(false)
                .http2_keep_alive_interval(interval)
                .keep_alive_timeout(timeout)
                .tcp_keepalive(Some(interval));
        }
        if let Some(timeout) = self.timeout {
            endpoint = endpoint.timeout(timeout);
        }
        if let Some(timeout) = self.connect_timeout {
            endpoint = endpoint.connect_timeout(timeout);
        }
        Ok(endpoint)
    }
}

#[derive(Clone, Copy)]
struct RequireLeader(bool);

impl Interceptor for RequireLeader {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if self.0 {
            request.metadata_mut().append("hasleader", MetadataValue::from_static("true"));
        }
        Ok(request)
    }
}

/// A channel to members of etcd. Several share the calls. Copies of it share the connections.
#[derive(Clone)]
pub struct Client {
    kv: kv_client::KvClient<Guarded>,
    watch: watch_client::WatchClient<Guarded>,
    lease: lease_client::LeaseClient<Guarded>,
    cluster: cluster_client::ClusterClient<Guarded>,
    maintenance: maintenance_client::MaintenanceClient<Guarded>,
}

impl Client {
    /// Must be called in a runtime, which its connections then live in.
    pub fn new<E: AsRef<str>>(endpoints: &[E], options: &Options) -> Result<Client, ConnectError> {
        let endpoints: Vec<Endpoint> =
            endpoints.iter().map(|url| options.endpoint(url.as_ref())).collect::<Result<_, _>>()?;
        if endpoints.is_empty() {
            return Err(ConnectError::NoEndpoint);
        }
        let channel = Channel::balance_list(endpoints.into_iter());
        let channel = InterceptedService::new(channel, RequireLeader(options.require_leader));
        Ok(Client {
            kv: kv_client::KvClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
            watch: watch_client::WatchClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
            lease: lease_client::LeaseClient::new(channel.clone()),
            cluster: cluster_client::ClusterClient::new(channel.clone()),
            maintenance: maintenance_client::MaintenanceClient::new(channel),
        })
    }

    pub async fn range(&mut self, request: RangeRequest) -> Result<RangeResponse, Status> {
        Ok(self.kv.range(request).await?.into_inner())
    }

    pub async fn txn(&mut self, request: TxnRequest) -> Result<TxnResponse, Status> {
        Ok(self.kv.txn(request).await?.into_inner())
    }

    /// Forgets what was before this revision.
    pub async fn compact(&mut self, revision: i64) -> Result<(), Status> {
        self.kv.compact(CompactionRequest { revision }).await.map(drop)
    }

    /// One watch, for as long as its answers are read.
    pub async fn watch(&mut self, request: WatchCreateRequest) -> Result<Streaming<WatchResponse>, Status> {
        let request = WatchRequest { request_union: Some(watch_request::RequestUnion::CreateRequest(request)) };
        // A stream of requests that ends would end the watch.
        let requests = futures::stream::once(std::future::ready(request)).chain(futures::stream::pending());
        Ok(self.watch.watch(requests).await?.into_inner())
    }

    /// A lease that ends after so many seconds; answers its id.
    pub(crate) async fn lease_grant(&mut self, seconds: i64) -> Result<i64, Status> {
        Ok(self.lease.lease_grant(LeaseGrantRequest { ttl: seconds, id: 0 }).await?.into_inner().id)
    }

    pub async fn lease_revoke(&mut self, id: i64) -> Result<(), Status> {
        self.lease.lease_revoke(LeaseRevokeRequest { id }).await.map(drop)
    }

    /// The ids of all leases.
    pub async fn leases(&mut self) -> Result<Vec<i64>, Status> {
        let found = self.lease.lease_leases(LeaseLeasesRequest {}).await?.into_inner();
        Ok(found.leases.into_iter().map(|lease| lease.id).collect())
    }

    /// The members as the one that is asked knows them.
    pub async fn members(&mut self) -> Result<Vec<Member>, Status> {
        Ok(self.cluster.member_list(MemberListRequest {}).await?.into_inner().members)
    }

    /// Adds a member that listens and does not vote yet; answers all members.
    pub async fn add_learner(&mut self, peer_url: &str) -> Result<Vec<Member>, Status> {
        let request = MemberAddRequest { peer_urls: vec![peer_url.to_owned()], is_learner: true };
        Ok(self.cluster.member_add(request).await?.into_inner().members)
    }

    pub async fn remove_member(&mut self, id: u64) -> Result<(), Status> {
        self.cluster.member_remove(MemberRemoveRequest { id }).await.map(drop)
    }

    /// From now on this learner votes.
    pub async fn promote_member(&mut self, id: u64) -> Result<(), Status> {
        self.cluster.member_promote(MemberPromoteRequest { id }).await.map(drop)
    }

    pub async fn status(&mut self) -> Result<StatusResponse, Status> {
        Ok(self.maintenance.status(StatusRequest {}).await?.into_inner())
    }

    /// Everything one member has, in parts.
    pub async fn snapshot(&mut self) -> Result<Streaming<SnapshotResponse>, Status> {
        Ok(self.maintenance.snapshot(SnapshotRequest {}).await?.into_inner())
    }

    /// Asks the member that leads to let another lead.
    pub async fn move_leader(&mut self, target_id: u64) -> Result<(), Status> {
        self.maintenance.move_leader(MoveLeaderRequest { target_id }).await.map(drop)
    }
}

/// The parts of transactions.
impl Compare {
    /// The key was last changed at this revision; 0 where it must not be there.
    pub fn mod_revision(key: impl Into<Vec<u8>>, revision: i64) -> Compare {
        Compare::equal(key, compare::CompareTarget::Mod, compare::TargetUnion::ModRevision(revision))
    }

    /// The key was changed so often since it was made; 0 where it must not be there.
    pub fn version(key: impl Into<Vec<u8>>, version: i64) -> Compare {
        Compare::equal(key, compare::CompareTarget::Version, compare::TargetUnion::Version(version))
    }

    fn equal(key: impl Into<Vec<u8>>, target: compare::CompareTarget, value: compare::TargetUnion) -> Compare {
        Compare {
            result: compare::CompareResult::Equal.into(),
            target: target.into(),
            key: key.into(),
            target_union: Some(value),
        }
    }
}

impl RangeRequest {
    /// One key.
    pub fn one(key: impl Into<Vec<u8>>) -> RangeRequest {
        RangeRequest { key: key.into(), ..RangeRequest::default() }
    }
}

impl RequestOp {
    pub fn get(key: impl Into<Vec<u8>>) -> RequestOp {
        RequestOp { request: Some(request_op::Request::RequestRange(RangeRequest::one(key))) }
    }

    /// Lease 0 is none.
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>, lease: i64) -> RequestOp {
        let put = PutRequest { key: key.into(), value: value.into(), lease };
        RequestOp { request: Some(request_op::Request::RequestPut(put)) }
    }

    pub fn delete(key: impl Into<Vec<u8>>) -> RequestOp {
        RequestOp { request: Some(request_op::Request::RequestDeleteRange(DeleteRangeRequest { key: key.into() })) }
    }
}

impl TxnResponse {
    /// What the first read in the transaction found.
    pub(crate) fn into_found(self) -> Vec<KeyValue> {
        let found = self.responses.into_iter().find_map(|operation| match operation.response {
            Some(response_op::Response::ResponseRange(found)) => Some(found.kvs),
            _ => None,
        });
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(endpoints: &[&str], options: &Options) -> Option<String> {
        Client::new(endpoints, options).err().map(|error| error.to_string())
    }

    #[tokio::test]
    async fn what_cannot_work_is_refused_before_the_first_call() {
        let plain = Options::default();
        let half = Options { cert: Some(b"x".to_vec()), ..Options::default() };
        let tls = Options { ca: Some(b"x".to_vec()), ..Options::default() };
        assert_eq!(refusal(&["http://127.0.0.1:2379", "127.0.0.1:2380"], &plain), None);
        assert_eq!(refusal(&[], &plain).as_deref(), Some("no etcd endpoint is set"));
        assert_eq!(refusal(&["http:// /"], &plain).as_deref(), Some("http:// / is not a URL"));
        let refused = refusal(&["https://127.0.0.1:2379"], &half);
        assert_eq!(refused.as_deref(), Some("client certificate and key must be set together"));
        let refused = refusal(&["http://127.0.0.1:2379"], &tls);
        assert_eq!(refused.as_deref(), Some("http://127.0.0.1:2379 is not https, but certificates are set"));
    }
}
