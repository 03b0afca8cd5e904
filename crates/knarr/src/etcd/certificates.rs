//! The certificate of a member: for its peers, for the API servers, and as a client of both. etcd reads the files anew for
//! every connection, so that renewing them is enough.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use kube_apiserver::pki::{Authority, Pair, Request, Usage};
use reconcile::Shutdown;

use super::Config;

const AUTHORITY: &str = "etcd-ca";
const MEMBER: &str = "etcd-member";
const LOOK_AGAIN: Duration = Duration::from_secs(12 * 60 * 60);

pub struct Files {
    pub authority: String,
    pub pair: Pair,
}

pub fn folder(config: &Config) -> PathBuf {
    config.data_dir.join("tls")
}

/// The authority, the member's certificate and its key.
pub fn files(data_dir: &Path) -> [PathBuf; 3] {
    let file = |name: &str, end: &str| data_dir.join("tls").join(format!("{name}.{end}"));
    [file(AUTHORITY, "crt"), file(MEMBER, "crt"), file(MEMBER, "key")]
}

/// Makes or reads them. The authority of a further server came with the cluster's keys.
pub fn ensure(config: &Config) -> anyhow::Result<Files> {
    let folder = folder(config);
    linux::file::make_private_folder(&folder)?;
    let now = Timestamp::now();
    let authority = Authority::ensure(&folder, AUTHORITY, AUTHORITY, now)?;
    let addresses = vec![config.address, IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let good = |pair: &Pair| {
        now < pair.renew_at()
            && pair.common_name() == config.name
            && addresses.iter().all(|one| pair.addresses().contains(one))
    };
    let pair = match Pair::read(&folder, MEMBER).filter(good) {
        Some(pair) => pair,
        None => {
            let host_names = vec!["localhost".to_owned(), config.name.clone()];
            let (common_name, addresses) = (config.name.as_str(), addresses.clone());
            let request = Request { common_name, organization: None, host_names, addresses, usage: Usage::Peer };
            let pair = authority.issue(&request, now)?;
            pair.write(&folder, MEMBER)?;
            pair
        }
    };
    Ok(Files { authority: authority.certificate_pem.clone(), pair })
}

/// Those that a member of this folder has.
pub fn kept(data_dir: &Path) -> anyhow::Result<Files> {
    let folder = data_dir.join("tls");
    let missing = || format!("no etcd member in {}", data_dir.display());
    let authority = std::fs::read_to_string(folder.join(format!("{AUTHORITY}.crt"))).with_context(missing)?;
    Ok(Files { authority, pair: Pair::read(&folder, MEMBER).with_context(missing)? })
}

pub async fn keep(config: Config, shutdown: Shutdown) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = shutdown.cancelled() => return,
        }
        if let Err(error) = ensure(&config) {
            tracing::error!(%error, "cannot renew certificate of etcd member");
        }
    }
}
