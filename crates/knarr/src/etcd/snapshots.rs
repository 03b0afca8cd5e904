//! Snapshots: by command, and on a schedule into a folder of which the newest are kept. Flags, names and the schedule are
//! those of k3s.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use kube_controller_manager::Schedule;
use reconcile::Shutdown;
use store::embedded::EmbeddedStore;
use store::etcd::client::{Client, Options};
use tokio::io::AsyncWriteExt;

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Disable scheduled snapshots.
    #[arg(long, env = "KNARR_ETCD_DISABLE_SNAPSHOTS")]
    etcd_disable_snapshots: bool,
    /// Schedule of snapshots in cron format, in local time.
    #[arg(long, env = "KNARR_ETCD_SNAPSHOT_SCHEDULE_CRON", default_value = "0 */12 * * *", value_parser = schedule)]
    etcd_snapshot_schedule_cron: Schedule,
    /// Number of scheduled snapshots to keep.
    #[arg(long, env = "KNARR_ETCD_SNAPSHOT_RETENTION", default_value_t = 5)]
    etcd_snapshot_retention: usize,
    /// Directory of snapshots (default: <data-dir>/server/snapshots).
    #[arg(long, env = "KNARR_ETCD_SNAPSHOT_DIR")]
    etcd_snapshot_dir: Option<PathBuf>,
    /// Prefix of snapshot names, followed by the node name and the time.
    #[arg(long, env = "KNARR_ETCD_SNAPSHOT_NAME", default_value = "etcd-snapshot")]
    etcd_snapshot_name: String,
}

fn schedule(text: &str) -> anyhow::Result<Schedule> {
    Ok(Schedule::parse(text, TimeZone::system())?)
}

pub fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("server/snapshots")
}

/// What is saved.
#[derive(Clone)]
pub enum Source {
    Etcd(store::etcd::Config),
    Embedded(Arc<EmbeddedStore>),
}

impl Source {
    /// Writes all of it to a file, whole or not at all, and answers how many bytes these are.
    pub async fn save(&self, file: &Path) -> anyhow::Result<u64> {
        match self {
            Source::Etcd(config) => save(config, file).await,
            Source::Embedded(store) => {
                store.snapshot_save(file).await?;
                Ok(std::fs::metadata(file)?.len())
            }
        }
    }
}

async fn save(config: &store::etcd::Config, file: &Path) -> anyhow::Result<u64> {
    let mut last = anyhow::anyhow!("no etcd endpoint is known");
    // A snapshot is that of one member; the nearest that answers will do.
    for endpoint in &config.endpoints {
        match save_from(config, endpoint, file).await {
            Ok(bytes) => return Ok(bytes),
            Err(error) => last = error.context(format!("save snapshot of {endpoint}")),
        }
    }
    Err(last)
}

async fn save_from(config: &store::etcd::Config, endpoint: &str, file: &Path) -> anyhow::Result<u64> {
    let mut client = client(config, endpoint)?;
    let mut partial = file.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    // It holds every Secret.
    let options = {
        let mut options = tokio::fs::File::options();
        options.create(true).truncate(true).write(true).mode(0o600);
        options
    };
    let mut output = options.open(&partial).await.with_context(|| format!("create {}", partial.display()))?;
    let written = async {
        let mut stream = client.snapshot().await.context("request etcd snapshot")?;
        let (mut bytes, mut last) = (0, None);
        while let Some(part) = stream.message().await.context("read snapshot")? {
            output.write_all(&part.blob).await?;
            bytes += part.blob.len() as u64;
            last = Some(part.remaining_bytes);
        }
        if last != Some(0) {
            bail!("etcd snapshot is incomplete");
        }
        output.sync_all().await?;
        tokio::fs::rename(&partial, file).await.with_context(|| format!("write {}", file.display()))?;
        Ok(bytes)
    };
    let written = written.await;
    if written.is_err() {
        let _ = tokio::fs::remove_file(&partial).await;
    }
    written
}

fn client(config: &store::etcd::Config, endpoint: &str) -> anyhow::Result<Client> {
    let options = Options {
        ca: config.ca.clone(),
        cert: config.cert.clone(),
        key: config.key.clone(),
        connect_timeout: Some(config.connect_timeout),
        ..Options::default()
    };
    Client::new(&[endpoint], &options).context("connect to etcd")
}

/// Saves them on the schedule, and removes the oldest.
pub async fn keep(flags: Flags, source: Source, data_dir: PathBuf, node_name: String, shutdown: Shutdown) {
    if flags.etcd_disable_snapshots {
        return;
    }
    let folder = flags.etcd_snapshot_dir.unwrap_or_else(|| folder(&data_dir));
    let prefix = format!("{}-{node_name}", flags.etcd_snapshot_name);
    let mut after = Timestamp::now();
    while let Some(next) = flags.etcd_snapshot_schedule_cron.next(after) {
        let wait = Duration::try_from(next.duration_since(Timestamp::now())).unwrap_or_default();
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shutdown.cancelled() => return,
        }
        after = Timestamp::now().max(next);
        let saved = async {
            let file = file_in(&folder, &prefix)?;
            let bytes = source.save(&file).await?;
            tracing::info!(file = %file.display(), bytes, "saved snapshot");
            remove_old(&folder, &prefix, flags.etcd_snapshot_retention)
        };
        if let Err(error) = saved.await {
            tracing::error!(error = format!("{error:#}"), "cannot save snapshot");
        }
    }
}

/// A new name in the folder, which is made if need be.
pub fn file_in(folder: &Path, prefix: &str) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(folder.join(format!("{prefix}-{}", Timestamp::now().as_second())))
}

/// The snapshots of a folder that begin like that, the oldest first, with the second at which they were saved.
pub fn list(folder: &Path, prefix: &str) -> Vec<(i64, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(i64, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let (begins, second) = name.to_str()?.rsplit_once('-')?;
            let second = second.parse().ok()?;
            (prefix.is_empty() || begins == prefix).then(|| (second, entry.path()))
        })
        .collect();
    found.sort();
    found
}

fn remove_old(folder: &Path, prefix: &str, kept: usize) -> anyhow::Result<()> {
    let all = list(folder, prefix);
    for (_, file) in all.iter().take(all.len().saturating_sub(kept)) {
        std::fs::remove_file(file).with_context(|| format!("remove {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_the_schedule_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["etcd-snapshot-a-5", "etcd-snapshot-a-20", "etcd-snapshot-a-100", "etcd-snapshot-a-3"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        for other in ["other", "on-demand-a-1", "etcd-snapshot-b-1"] {
            std::fs::write(folder.path().join(other), "x").unwrap();
        }
        remove_old(folder.path(), "etcd-snapshot-a", 2).unwrap();
        let seconds =
            |prefix: &str| -> Vec<i64> { list(folder.path(), prefix).into_iter().map(|(one, _)| one).collect() };
        assert_eq!(seconds("etcd-snapshot-a"), [20, 100]);
        assert_eq!(seconds(""), [1, 1, 20, 100]);
        assert!(folder.path().join("other").is_file());
    }

    #[test]
    fn schedules_are_those_of_cron() {
        assert!(schedule("0 */12 * * *").is_ok());
        assert!(schedule("every day").is_err());
    }
}
