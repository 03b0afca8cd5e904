//! Certificates of a node: asked for by a CertificateSigningRequest, and again while the old one is good.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use kube_apiserver::pki::Pair;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use reconcile::{Seen, Watching};
use tokio::sync::watch;

use super::node_key::NodeKey;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// With which the node asks the API server.
    Client,
    /// With which its kubelet answers.
    Serving,
}

pub struct Request<'a> {
    pub kind: Kind,
    pub node_name: &'a str,
    pub addresses: &'a [IpAddr],
    /// With what the machine shows that it is the one that joined by that name.
    pub key: Option<&'a NodeKey>,
}

/// Somebody may have to approve by hand.
const WAIT: Duration = Duration::from_secs(5 * 60);
/// Behind address translation nobody approves them.
const WAIT_FOR_ADDRESSES: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_secs(20);

pub fn subject(node_name: &str) -> String {
    format!("system:node:{node_name}")
}

/// Makes a key, asks for a certificate and waits until it is issued.
pub async fn obtain(client: &kube::Client, request: &Request<'_>) -> anyhow::Result<Pair> {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).context("create key")?;
    let text = params(request)?
        .serialize_request(&key)
        .and_then(|request| request.pem())
        .context("create certificate signing request")?;
    let (signer, usage) = match request.kind {
        Kind::Client => ("kubernetes.io/kube-apiserver-client-kubelet", "client auth"),
        Kind::Serving => ("kubernetes.io/kubelet-serving", "server auth"),
    };
    let object = CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some("csr-".into()),
            annotations: request.key.map(|key| key.annotations(text.as_bytes())),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(text.into_bytes()),
            signer_name: signer.into(),
            usages: Some(vec!["digital signature".into(), usage.into()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let made = requests.create(&PostParams::default(), &object).await.context("create CertificateSigningRequest")?;
    let name = made.metadata.name.unwrap_or_default();
    let certificate = tokio::time::timeout(WAIT, issued(client, &name)).await.with_context(|| {
        format!("CertificateSigningRequest {name} was not approved in time; approve it with `kubectl certificate approve {name}`")
    })??;
    Pair::from_pem(certificate, key.serialize_pem()).context("load certificate")
}

/// The addresses that requests to those servers leave from: the others cannot be proven.
pub fn asked_from(addresses: &[IpAddr], servers: &[String]) -> Vec<IpAddr> {
    let towards = |server: &String| {
        let to: SocketAddr = server.parse().ok()?;
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        // Connecting a datagram socket sends nothing; it only asks the kernel for a route.
        let socket = std::net::UdpSocket::bind(any).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let from: Vec<IpAddr> = servers.iter().filter_map(towards).collect();
    addresses.iter().copied().filter(|address| from.contains(address)).collect()
}

/// The certificate of a kubelet's server, for its name and, where the cluster sees that they are its own, its addresses.
pub async fn obtain_serving(client: &kube::Client, node_name: &str, addresses: &[IpAddr]) -> anyhow::Result<Pair> {
    let request = Request { kind: Kind::Serving, node_name, addresses, key: None };
    if !addresses.is_empty() {
        match tokio::time::timeout(WAIT_FOR_ADDRESSES, obtain(client, &request)).await {
            Ok(obtained) => return obtained,
            Err(_) => tracing::warn!(
                ?addresses,
                "cluster cannot verify addresses of this node; requesting a certificate for its name only"
            ),
        }
    }
    obtain(client, &Request { addresses: &[], ..request }).await
}

async fn issued(client: &kube::Client, name: &str) -> anyhow::Result<String> {
    let only = format!("metadata.name={name}");
    let mut watching = Watching::<CertificateSigningRequest>::fields(client.clone(), None, only);
    while let Some(seen) = watching.next().await {
        let request = match seen {
            Seen::Listed(request) | Seen::Put(request) => request,
            Seen::Listing | Seen::Complete => continue,
            Seen::Gone(_) => break,
            Seen::Failed(error) => bail!("watch CertificateSigningRequest {name}: {error}"),
        };
        let status = request.status.unwrap_or_default();
        if let Some(refused) = status.conditions.iter().flatten().find(|condition| condition.type_ != "Approved") {
            bail!(
                "CertificateSigningRequest {name} was denied: {}",
                refused.message.as_deref().unwrap_or(&refused.type_)
            );
        }
        if let Some(certificate) = status.certificate.filter(|certificate| !certificate.0.is_empty()) {
            return String::from_utf8(certificate.0).context("read certificate");
        }
    }
    bail!("CertificateSigningRequest {name} was deleted")
}

fn params(request: &Request<'_>) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, subject(request.node_name));
    if request.kind == Kind::Serving {
        let name =
            request.node_name.try_into().with_context(|| format!("{:?} is not a host name", request.node_name))?;
        params.subject_alt_names.push(SanType::DnsName(name));
        params.subject_alt_names.extend(request.addresses.iter().copied().map(SanType::IpAddress));
    }
    Ok(params)
}

/// For certificates without addresses, which never change.
pub fn no_addresses() -> watch::Receiver<Vec<IpAddr>> {
    watch::channel(Vec::new()).1
}

/// Obtains a new certificate whenever a third of the old one's life is left, or when the addresses in it have changed.
pub async fn keep<O, F>(
    mut renew_at: Timestamp,
    mut addresses: watch::Receiver<Vec<IpAddr>>,
    obtain: O,
    renewed: impl Fn(&Pair) -> anyhow::Result<()>,
    shutdown: reconcile::Shutdown,
) where
    O: Fn() -> F,
    F: Future<Output = anyhow::Result<Pair>>,
{
    loop {
        let wait = Duration::try_from(renew_at.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO);
        tokio::select! {
            () = tokio::time::sleep(wait.max(RETRY)) => {}
            Ok(()) = addresses.changed() => {}
            () = shutdown.cancelled() => return,
        }
        match obtain().await.and_then(|pair| renewed(&pair).map(|()| pair)) {
            Ok(pair) => {
                renew_at = pair.renew_at();
                tracing::info!(until = %pair.not_after, "renewed certificate");
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "cannot renew certificate; retrying");
                renew_at = Timestamp::now();
            }
        }
    }
}
