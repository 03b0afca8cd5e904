//! The certificate of the kubelet's server: given, asked for from the cluster, or of its own making.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use component_base::tasks;
use jiff::Timestamp;
use kube_apiserver::pki::{Pair, ServingCertificate};
use kubelet::node::addresses::Addresses;
use reconcile::Shutdown;

use super::file::File;
use crate::join::certificates::{self, Kind};

/// The names of the files.
const ASKED_FOR: &str = "kubelet-server-current";
const OWN: &str = "kubelet";
const AGAIN: Duration = Duration::from_secs(10);

pub fn certificate(
    file: &File,
    dir: &Path,
    node_name: &str,
    addresses: &Addresses,
    client: &kube::Client,
    shutdown: &Shutdown,
) -> anyhow::Result<Arc<ServingCertificate>> {
    if !file.tls_cert_file.as_os_str().is_empty() {
        let pair = crate::secure::read_pair(&file.tls_cert_file, &file.tls_private_key_file)?;
        return Ok(Arc::new(ServingCertificate::new(&pair)?));
    }
    std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    let is_good = |pair: &Pair| {
        pair.renew_at() > Timestamp::now() && addresses.get().iter().all(|address| pair.addresses().contains(address))
    };
    let own = match Pair::read(dir, OWN).filter(is_good) {
        Some(pair) => pair,
        None => {
            let pair = crate::secure::self_signed(&addresses.get())?;
            pair.write(dir, OWN)?;
            pair
        }
    };
    if !file.server_tls_bootstrap {
        return Ok(Arc::new(ServingCertificate::new(&own)?));
    }
    let kept = Pair::read(dir, ASKED_FOR).filter(is_good);
    // Until somebody has approved the request, the kubelet answers with its own.
    let serving = Arc::new(ServingCertificate::new(kept.as_ref().unwrap_or(&own))?);
    let (replaced, dir) = (serving.clone(), dir.to_path_buf());
    let renewed = move |pair: &Pair| {
        pair.write(&dir, ASKED_FOR)?;
        Ok(replaced.replace(pair)?)
    };
    let (client, name, announced, changes) =
        (client.clone(), node_name.to_owned(), addresses.clone(), addresses.changes());
    let obtain = move || {
        let (client, name, addresses) = (client.clone(), name.clone(), announced.get());
        async move {
            let request =
                certificates::Request { kind: Kind::Serving, node_name: &name, addresses: &addresses, key: None };
            certificates::obtain(&client, &request).await
        }
    };
    let shutdown = shutdown.clone();
    tasks::spawn(async move {
        let renew_at = match kept {
            Some(pair) => pair.renew_at(),
            None => loop {
                match obtain().await.and_then(|pair| renewed(&pair).map(|()| pair)) {
                    Ok(pair) => break pair.renew_at(),
                    Err(error) => {
                        tracing::warn!(
                            error = format!("{error:#}"),
                            "cannot get serving certificate of the kubelet yet; retrying"
                        )
                    }
                }
                tokio::select! {
                    () = tokio::time::sleep(AGAIN) => {}
                    () = shutdown.cancelled() => return,
                }
            },
        };
        certificates::keep(renew_at, changes, obtain, renewed, shutdown).await;
    });
    Ok(serving)
}
