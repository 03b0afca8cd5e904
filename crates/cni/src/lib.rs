//! The pod network of one node, behind [`cri::Network`].
//!
//! Two implementations: [`Builtin`] needs nothing but the kernel (a bridge, a pair of devices per pod, addresses from the
//! node's range, nftables), [`Exec`] runs third-party CNI plugins.

pub mod builtin;
pub mod exec;
pub mod policy;
pub mod routes;
mod host_ports;
mod remove;
mod watch;

pub use builtin::{Builtin, Config};
pub use exec::Exec;
pub use remove::remove;

use std::path::PathBuf;

/// What went wrong, and with what.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid sandbox name {0:?}")]
    Sandbox(String),
    #[error("the node has no pod CIDR yet")]
    NoRange,
    #[error("{text:?} is not a CIDR range")]
    Range { text: String },
    #[error("no free address in {range}")]
    Full { range: ipnet::IpNet },
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{step}: {source}")]
    Link { step: String, source: nlink::netlink::Error },
    #[error("update nftables table {table}: {source}")]
    Rules { table: String, source: nlink::netlink::Error },
    #[error("network namespace {path}: {source}", path = path.display())]
    Namespace { path: PathBuf, source: std::io::Error },
    #[error("host port {port}/{protocol} of pod {pod} is in use by the node itself")]
    PortInUse { pod: String, port: u16, protocol: &'static str },
    #[error("list listening sockets of this machine: {0}")]
    Sockets(std::io::Error),
    #[error("NetworkPolicy rules of pod {pod} are not in place")]
    NoPolicies { pod: String },
    #[error("network configuration {path}: {source}", path = path.display())]
    Configuration { path: PathBuf, source: exec::ConfigurationError },
    #[error("no networks found in {}", .0.display())]
    NoConfiguration(PathBuf),
    #[error("plugin {plugin} not found in {searched:?}")]
    NoPlugin { plugin: String, searched: Vec<PathBuf> },
    #[error("plugin type=\"{plugin}\" failed ({command}): {source}")]
    Plugin { plugin: String, command: &'static str, source: exec::PluginError },
}

impl From<Error> for cri::Error {
    fn from(error: Error) -> cri::Error {
        let code = match &error {
            Error::Sandbox(_) | Error::Range { .. } => cri::Code::InvalidArgument,
            Error::NoRange | Error::NoConfiguration(_) | Error::NoPolicies { .. } => cri::Code::Unavailable,
            Error::Full { .. } => cri::Code::ResourceExhausted,
            _ => cri::Code::Unknown,
        };
        cri::Error::new(code, error.to_string())
    }
}

type Result<T> = std::result::Result<T, Error>;

/// Writes a file so that after a crash there is the old one or the new one, never a part.
fn write_atomically(path: &std::path::Path, bytes: &[u8]) -> Result<()> {
    component_base::files::write_durably(path, bytes, 0o600)
        .map_err(|source| Error::File { path: path.to_owned(), source })
}

/// The id becomes a file name: only what cannot lead elsewhere.
fn check_sandbox(id: &str) -> Result<()> {
    let good = !id.is_empty()
        && id.len() <= 200
        && !id.starts_with('.')
        && id.chars().all(|character| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.'));
    if good { Ok(()) } else { Err(Error::Sandbox(id.to_owned())) }
}

/// Waits so long, or for ever.
async fn after(time: Option<std::time::Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
