//! `knarr server --cluster-reset`: this server's etcd becomes a cluster of one member, with what it has or with what a
//! snapshot holds. The other servers join again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::Timestamp;

use super::{Config, certificates, follow, members, process};

const TRY_AGAIN: Duration = Duration::from_millis(300);
/// How far revisions jump, so that no client takes a new one for one that it has seen before.
const REVISIONS_SKIPPED: &str = "1000000000";

/// From what the folder has.
pub async fn alone(config: &Config) -> anyhow::Result<()> {
    if !config.has_data() {
        bail!(
            "no etcd data in {} to reset; to restore a snapshot, set --cluster-reset-restore-path",
            config.folder().display()
        );
    }
    let _lock = super::lock(&config.folder())?;
    let files = certificates::ensure(config)?;
    let own = [config.client_url()];
    let until_alone = async {
        loop {
            match members::list(&own, &files).await {
                Ok(members) if members.len() == 1 => return,
                _ => tokio::time::sleep(TRY_AGAIN).await,
            }
        }
    };
    process::make_alone(config, until_alone).await?;
    follow::forget(&config.data_dir);
    Ok(())
}

/// From a snapshot. What was there is kept beside it.
pub async fn restore(config: &Config, file: &Path) -> anyhow::Result<()> {
    if !file.is_file() {
        bail!("snapshot {} not found", file.display());
    }
    std::fs::create_dir_all(config.folder()).context("create etcd data directory")?;
    let _lock = super::lock(&config.folder())?;
    process::stop_left_behind(config).await;
    certificates::ensure(config)?;
    let data = config.folder().join("data");
    let aside = put_aside(&data)?;
    if let Err(error) = unpack(config, file, &data) {
        let _ = std::fs::remove_dir_all(&data);
        if let Some(aside) = aside {
            std::fs::rename(&aside, &data).with_context(|| format!("restore {}", aside.display()))?;
        }
        return Err(error);
    }
    follow::forget(&config.data_dir);
    Ok(())
}

/// Moves a folder out of the way, and says where to.
pub fn put_aside(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    if !folder.exists() {
        return Ok(None);
    }
    let aside = folder.with_extension(format!("before-{}", Timestamp::now().as_second()));
    std::fs::rename(folder, &aside).with_context(|| format!("rename {}", folder.display()))?;
    println!("moved {} to {}", folder.display(), aside.display());
    Ok(Some(aside))
}

/// etcd's own tool makes a member's folder from a snapshot; which one can, depends on etcd's version.
fn unpack(config: &Config, file: &Path, data: &Path) -> anyhow::Result<()> {
    let peers = config.peer_url();
    for program in ["etcdutl", "etcdctl"] {
        let help = Command::new(program).env("ETCDCTL_API", "3").args(["snapshot", "restore", "--help"]).output();
        let Ok(help) = help else { continue };
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        if !help.contains("--initial-cluster") {
            continue;
        }
        let mut command = Command::new(program);
        command.env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(file).arg("--data-dir").arg(data);
        command.args(["--name", &config.name, "--initial-cluster", &format!("{}={peers}", config.name)]);
        command.args(["--initial-advertise-peer-urls", &peers]);
        if help.contains("--bump-revision") {
            command.args(["--bump-revision", REVISIONS_SKIPPED, "--mark-compacted"]);
        }
        let output = command.output().with_context(|| format!("run {program}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("cannot restore {} as an etcd snapshot: {}", file.display(), said.trim());
        }
        return Ok(());
    }
    bail!("restoring an etcd snapshot needs `etcdutl` or `etcdctl`; on Debian: apt install etcd-client")
}

/// What is said when it is done.
pub fn done_message(config: &Config) -> String {
    format!(
        "etcd has one member now, {}. Start this server without --cluster-reset. On every other server stop knarr, remove <data-dir>/etcd \
         and start it with --server and --token, so that it joins again",
        config.name
    )
}
