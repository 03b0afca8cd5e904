//! The certificate of the kubelet's server, on a machine that has the authority's key.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use component_base::tasks;
use jiff::Timestamp;
use kube_apiserver::pki::{Authority, Request, ServingCertificate, Usage};
use kubelet::node::addresses::Addresses;
use reconcile::Shutdown;

use super::Flags;

/// The certificate of the kubelet's server beside the authority's key, issued anew at every start and long before it ends.
pub fn own_certificate(
    flags: &Flags,
    addresses: &Addresses,
    authority: &Arc<Authority>,
    shutdown: Shutdown,
) -> anyhow::Result<Arc<ServingCertificate>> {
    let name = flags.name();
    let (announced, mut changes) = (addresses.clone(), addresses.changes());
    let authority = authority.clone();
    let issue = move || {
        let request = Request {
            common_name: &format!("system:node:{name}"),
            organization: Some("system:nodes"),
            host_names: vec![name.clone(), "localhost".into()],
            addresses: announced.get().into_iter().chain([IpAddr::from([127, 0, 0, 1])]).collect(),
            usage: Usage::Server,
        };
        authority.issue(&request, Timestamp::now())
    };
    let first = issue().context("issue kubelet certificate")?;
    let serving = Arc::new(ServingCertificate::new(&first)?);
    let (renewed, mut renew_at) = (serving.clone(), first.renew_at());
    tasks::spawn(async move {
        loop {
            let wait = Duration::try_from(renew_at.duration_since(Timestamp::now())).unwrap_or(RENEWAL_RETRY);
            tokio::select! {
                () = tokio::time::sleep(wait.max(RENEWAL_RETRY)) => {}
                Ok(()) = changes.changed() => {}
                () = shutdown.cancelled() => return,
            }
            match issue().map(|pair| renewed.replace(&pair).map(|()| pair.renew_at())) {
                Ok(Ok(next)) => renew_at = next,
                Ok(Err(error)) | Err(error) => {
                    tracing::error!(%error, "cannot renew serving certificate of the kubelet")
                }
            }
        }
    });
    Ok(serving)
}

const RENEWAL_RETRY: Duration = Duration::from_secs(60);
