//! An etcd that somebody else runs: where it is, and with what one gets in.

use std::path::PathBuf;

use anyhow::Context;

#[derive(clap::Args, Clone, Default)]
#[group(skip)]
pub struct Access {
    /// Store objects in this etcd cluster instead of on the local disk.
    #[arg(id = "etcd_servers", long = "etcd-servers", env = "KNARR_ETCD_SERVERS", value_delimiter = ',')]
    pub servers: Vec<String>,
    /// CA of etcd serving certificates.
    #[arg(long, env = "KNARR_ETCD_CAFILE")]
    etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd.
    #[arg(long, env = "KNARR_ETCD_CERTFILE", requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// Private key of the client certificate for etcd.
    #[arg(long, env = "KNARR_ETCD_KEYFILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
}

impl Access {
    /// As `/flagz` shows it; nothing where no etcd is used.
    pub fn flags(&self) -> kube_apiserver::options::Flags {
        if self.servers.is_empty() {
            return Default::default();
        }
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let flags = [
            ("etcd-servers", self.servers.join(",")),
            ("etcd-cafile", path(&self.etcd_cafile)),
            ("etcd-certfile", path(&self.etcd_certfile)),
            ("etcd-keyfile", path(&self.etcd_keyfile)),
        ];
        flags.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    pub fn config(&self) -> anyhow::Result<store::etcd::Config> {
        let read = |path: &Option<PathBuf>| -> anyhow::Result<Option<Vec<u8>>> {
            let Some(path) = path else { return Ok(None) };
            Ok(Some(std::fs::read(path).with_context(|| format!("read {}", path.display()))?))
        };
        Ok(store::etcd::Config {
            endpoints: self.servers.clone(),
            ca: read(&self.etcd_cafile)?,
            cert: read(&self.etcd_certfile)?,
            key: read(&self.etcd_keyfile)?,
            ..Default::default()
        })
    }
}
