//! `knarr etcd`: who belongs to the servers' etcd, and who no longer shall.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::certificates::{self, Files};
use super::{CLIENT_PORT, follow, removal, url};

#[derive(clap::Args)]
#[group(skip)]
pub struct Folder {
    /// Data directory of the server on this machine.
    #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
}

#[derive(clap::Subcommand)]
pub enum Command {
    /// List the etcd members of the servers.
    List {
        #[command(flatten)]
        folder: Folder,
    },
    /// Remove the etcd member of a server, as `kubectl delete node` does.
    Remove {
        /// Name of the member (the name of its node) or its id.
        name: String,
        #[command(flatten)]
        folder: Folder,
    },
    /// Remove the etcd member of this machine, to retire this server. If the server is running, it stops.
    Leave {
        #[command(flatten)]
        folder: Folder,
    },
}

pub fn run(command: Command) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::List { folder } => list(&folder.data_dir).await,
            Command::Remove { name, folder } => remove(&folder.data_dir, &name).await,
            Command::Leave { folder } => {
                let own = certificates::kept(&folder.data_dir)?.pair.common_name().to_owned();
                remove(&folder.data_dir, &own).await?;
                println!("to make this machine a server again, empty {} first", folder.data_dir.display());
                Ok(())
            }
        }
    })
}

/// The member on this machine first, then those it knew.
fn endpoints(data_dir: &Path) -> Vec<String> {
    let local = url(std::net::IpAddr::from([127, 0, 0, 1]), CLIENT_PORT);
    std::iter::once(local).chain(follow::kept(data_dir)).collect()
}

/// How this machine's member is reached, and with what.
pub fn access(data_dir: &Path) -> anyhow::Result<store::etcd::Config> {
    let files = certificates::kept(data_dir)?;
    Ok(store::etcd::Config {
        endpoints: endpoints(data_dir),
        ca: Some(files.authority.into()),
        cert: Some(files.pair.certificate_pem.into()),
        key: Some(files.pair.key_pem.into()),
        ..Default::default()
    })
}

async fn look(data_dir: &Path) -> anyhow::Result<(Vec<removal::View>, Files)> {
    let files = certificates::kept(data_dir)?;
    let members = removal::look(&endpoints(data_dir), &files).await.context("no etcd member answers")?;
    Ok((members, files))
}

async fn list(data_dir: &Path) -> anyhow::Result<()> {
    let (members, _) = look(data_dir).await?;
    println!("{:<24}{:<18}{:<15}{:<9}PEER URLS", "NAME", "ID", "ROLE", "ANSWERS");
    for member in members {
        let id = format!("{:x}", member.id);
        let answers = if member.answers { "yes" } else { "no" };
        println!("{:<24}{id:<18}{:<15}{answers:<9}{}", member.name, member.role(), member.peer_urls.join(","));
    }
    Ok(())
}

async fn remove(data_dir: &Path, name: &str) -> anyhow::Result<()> {
    let (members, files) = look(data_dir).await?;
    let Some(leaving) = members.iter().find(|one| one.name == name || format!("{:x}", one.id) == name) else {
        bail!("etcd has no member {name:?}; `knarr etcd list` shows them");
    };
    removal::remove(&members, leaving.id, &files).await?;
    println!("removed etcd member {name}");
    Ok(())
}
