//! `knarr snapshot`: save what a server's store holds, show what was saved, and bring it back.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use jiff::Timestamp;

use crate::etcd::access::Access;
use crate::etcd::{self, reset, snapshots};
use crate::progress::Busy;

#[derive(clap::Args)]
#[group(skip)]
pub struct Folder {
    /// Data directory of the server on this machine.
    #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Directory of snapshots (default: <data-dir>/server/snapshots).
    #[arg(long, env = "KNARR_ETCD_SNAPSHOT_DIR")]
    etcd_snapshot_dir: Option<PathBuf>,
}

impl Folder {
    fn snapshots(&self) -> PathBuf {
        self.etcd_snapshot_dir.clone().unwrap_or_else(|| snapshots::folder(&self.data_dir))
    }
}

#[derive(clap::Subcommand)]
pub enum Command {
    /// Save a snapshot of the store to a file. The server may be running.
    Save {
        /// File to write (default: a new file in the snapshot directory).
        file: Option<PathBuf>,
        /// Prefix of the file name in the snapshot directory.
        #[arg(long, default_value = "on-demand")]
        name: String,
        #[command(flatten)]
        folder: Folder,
        #[command(flatten)]
        etcd: Box<Access>,
    },
    /// List the snapshots of this machine.
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        folder: Folder,
    },
    /// Restore a snapshot into the store of a stopped server. An embedded store must be empty; etcd becomes a cluster
    /// of one member, and its old data are moved aside.
    Restore {
        file: PathBuf,
        #[command(flatten)]
        folder: Folder,
    },
}

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Save { file, name, folder, etcd } => {
            let file = match file {
                Some(file) => std::path::absolute(&file)?,
                None => snapshots::file_in(&folder.snapshots(), &format!("{name}-{}", crate::server::host_name()))?,
            };
            save(&file, &folder.data_dir, &etcd)
        }
        Command::List { folder } => {
            println!("{:<56}{:>12}  SAVED", "FILE", "BYTES");
            for (second, file) in snapshots::list(&folder.snapshots(), "") {
                let bytes = std::fs::metadata(&file).map_or(0, |metadata| metadata.len());
                let saved = Timestamp::from_second(second).unwrap_or_default();
                println!("{:<56}{bytes:>12}  {saved}", file.display());
            }
            Ok(())
        }
        Command::Restore { file, folder } => restore(&file, &folder.data_dir),
    }
}

fn save(file: &Path, data_dir: &Path, access: &Access) -> anyhow::Result<()> {
    let busy = Busy::begin(format!("saving what {} holds", data_dir.display()));
    let config = if !access.servers.is_empty() {
        access.config()?
    } else if etcd::is_member(data_dir) {
        etcd::command::access(data_dir)?
    } else {
        let revision = crate::control::save_snapshot(data_dir, file)?;
        drop(busy);
        println!("saved revision {revision} to {}", file.display());
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bytes = runtime.block_on(snapshots::Source::Etcd(config).save(file))?;
    drop(busy);
    println!("saved {bytes} bytes of etcd to {}", file.display());
    Ok(())
}

fn restore(file: &Path, data_dir: &Path) -> anyhow::Result<()> {
    if is_embedded(file)? {
        if etcd::is_member(data_dir) {
            bail!("this server uses etcd, but {} is a snapshot of an embedded store", file.display());
        }
        let busy = Busy::begin(format!("reading {}", file.display()));
        let revision = store::embedded::snapshot::restore(file, &data_dir.join("store")).context("restore snapshot")?;
        drop(busy);
        println!("restored revision {revision} into {}", data_dir.display());
        return Ok(());
    }
    let Ok(config) = etcd::Config::kept(data_dir) else {
        bail!(
            "{} has no etcd member yet; start the server once with its flags and --cluster-reset --cluster-reset-restore-path={}",
            data_dir.display(),
            file.display()
        );
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let busy = Busy::begin(format!("reading {}", file.display()));
    runtime.block_on(reset::restore(&config, file))?;
    drop(busy);
    println!("{}", reset::done_message(&config));
    Ok(())
}

/// Which store a snapshot is of shows at its beginning.
pub fn is_embedded(file: &Path) -> anyhow::Result<bool> {
    let mut start = [0; 8];
    let mut opened = std::fs::File::open(file).with_context(|| format!("open {}", file.display()))?;
    let read = std::io::Read::read_exact(&mut opened, &mut start);
    Ok(read.is_ok() && start == *store::embedded::snapshot::MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_shows_of_which_store_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let is = |bytes: &[u8]| {
            let file = folder.path().join("snapshot");
            std::fs::write(&file, bytes).expect("a file");
            is_embedded(&file).expect("it can be read")
        };
        let mark = store::embedded::snapshot::MARK;
        assert!(is(mark) && is(&[mark.as_slice(), b"and more"].concat()));
        assert!(!is(b"") && !is(&mark[..7]) && !is(b"a file of bbolt"));
        let missing = is_embedded(&folder.path().join("missing")).expect_err("it is not there");
        assert!(missing.to_string().starts_with("open "), "{missing}");
    }

    #[test]
    fn snapshots_lie_below_the_data_unless_told_otherwise() {
        let folder = |dir: Option<&str>| Folder { data_dir: "/data".into(), etcd_snapshot_dir: dir.map(PathBuf::from) };
        assert_eq!(folder(None).snapshots(), PathBuf::from("/data/server/snapshots"));
        assert_eq!(folder(Some("/backup")).snapshots(), PathBuf::from("/backup"));
    }
}
