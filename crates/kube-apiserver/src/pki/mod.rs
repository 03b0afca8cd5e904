//! Certificates and keys the cluster makes for itself, and the TLS configuration built from them.
//!
//! `ensure` runs at every start: it makes what is missing in the folder, reads what is there, and issues again what
//! is close to its end or carries the wrong names. A CA is never replaced: a folder with half a CA is an error, since
//! a new CA would lock out every node. While the server runs, `renewal_task` does the same for the leaves.

mod authority;
mod credentials;
mod files;
mod kubeconfig;
mod leaves;
mod peer;
mod renewal;
mod serving;
mod tls;
#[cfg(test)]
pub(crate) mod tests;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

pub use authority::{Authority, Pair, PairError, Request, Usage};
pub use credentials::Credentials;
pub use files::write as write_file;
pub use files::write_private as write_private_file;
pub use kubeconfig::kubeconfig;
pub use leaves::{KUBELET_CLIENT, Leaf};
pub(crate) use peer::ShownChain;
pub use peer::{ClientAuthorities, PeerCertificate, Signer};
pub(crate) use renewal::renewal_task;
pub(crate) use serving::{Handshake, NextHandshake};
pub use serving::{ServingCertificate, server_config};
pub use tls::{MinVersion, NamedPair, TlsSettingError, TlsSettings};

/// What the operator decides about the certificates.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub host_name: String,
    pub cluster_domain: String,
    /// The addresses of the Service `kubernetes`.
    pub service_addresses: Vec<IpAddr>,
    pub extra_names: Vec<String>,
    pub extra_addresses: Vec<IpAddr>,
}

/// Everything `ensure` found or made, in memory.
#[derive(Clone, Debug)]
pub struct Material {
    pub dir: PathBuf,
    pub cluster_ca: Arc<Authority>,
    pub front_proxy_ca: Arc<Authority>,
    /// Signs service account tokens: ECDSA P-256, PKCS#8 PEM.
    pub service_account_key_pem: String,
    leaves: Vec<(Leaf, Pair)>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{action} {path}")]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{have} is there but {missing} is missing: put it back, or remove both to start a new trust domain")]
    HalfAuthority { have: PathBuf, missing: PathBuf },
    #[error("{path} is not usable: {why}")]
    Unusable { path: PathBuf, why: PairError },
    #[error("make {what}")]
    Issue {
        what: String,
        #[source]
        source: rcgen::Error,
    },
    #[error("configure TLS: {0}")]
    Tls(String),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            host_name: String::new(),
            cluster_domain: "cluster.local".into(),
            service_addresses: Vec::new(),
            extra_names: Vec::new(),
            extra_addresses: Vec::new(),
        }
    }
}

/// Makes or reads everything in `dir`, which becomes readable by its owner only.
pub fn ensure(dir: &Path, options: &Options, now: Timestamp) -> Result<Material, Error> {
    files::make_private_dir(dir)?;
    let material = Material {
        dir: dir.to_path_buf(),
        cluster_ca: Arc::new(Authority::ensure(dir, "ca", "kubernetes", now)?),
        front_proxy_ca: Arc::new(Authority::ensure(dir, "front-proxy-ca", "front-proxy-ca", now)?),
        service_account_key_pem: service_account_key(dir)?,
        leaves: Leaf::ALL.iter().filter_map(|leaf| Some((*leaf, leaf.read(dir)?))).collect(),
    };
    Ok(renew_if_needed(&material, options, now)?.unwrap_or(material))
}

/// Issues again the leaves that are missing, about to end, or made for other names. `None` where nothing was due.
pub(crate) fn renew_if_needed(
    material: &Material,
    options: &Options,
    now: Timestamp,
) -> Result<Option<Material>, Error> {
    let due: Vec<Leaf> = Leaf::ALL
        .iter()
        .copied()
        .filter(|leaf| {
            let found = material.leaves.iter().find(|(other, _)| other == leaf);
            found.is_none_or(|(_, pair)| leaf.is_due(pair, leaf.authority(material), options, now))
        })
        .collect();
    if due.is_empty() {
        return Ok(None);
    }
    let mut renewed = material.clone();
    for leaf in due {
        let pair = leaf.issue(material, options, now)?;
        renewed.leaves.retain(|(other, _)| *other != leaf);
        renewed.leaves.push((leaf, pair));
    }
    Ok(Some(renewed))
}

impl Material {
    pub fn leaf(&self, leaf: Leaf) -> &Pair {
        let found = self.leaves.iter().find(|(other, _)| *other == leaf);
        &found.expect("ensure makes every leaf").1
    }

    /// When the first leaf is due again.
    pub(crate) fn next_renewal(&self) -> Timestamp {
        self.leaves.iter().map(|(_, pair)| pair.renew_at()).min().unwrap_or(Timestamp::MAX)
    }

    /// The kubeconfig of one of the clients, such as the administrator, for a server at `url`.
    pub fn kubeconfig(&self, client: Leaf, url: &str) -> String {
        let pair = self.leaf(client);
        kubeconfig(url, &self.cluster_ca.certificate_pem, &pair.certificate_pem, &pair.key_pem)
    }
}

fn service_account_key(dir: &Path) -> Result<String, Error> {
    let path = dir.join("sa.key");
    // An existing key is used as it is: whoever signs tokens with it says whether it fits.
    if let Some(text) = files::read(&path)? {
        return Ok(text);
    }
    let key = authority::new_key("the service account key")?;
    files::write_public(&dir.join("sa.pub"), &key.public_key_pem())?;
    files::write_private(&path, &key.serialize_pem())?;
    Ok(key.serialize_pem())
}
