//! Snapshots of etcd: by command, and regularly into `<data>/server/snapshots`, the newest of which are kept.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::Timestamp;
use reconcile::Shutdown;
use tokio::io::AsyncWriteExt;

const PREFIX: &str = "etcd-snapshot-";

pub fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("server/snapshots")
}

/// Writes what etcd holds to a file: whole or not at all.
pub async fn save(config: &store::etcd::Config, file: &Path) -> anyhow::Result<u64> {
    let mut client = client(config).await?;
    let partial = file.with_extension("partial");
    let mut output =
        tokio::fs::File::create(&partial).await.with_context(|| format!("create {}", partial.display()))?;
    let mut stream = client.snapshot().await.context("ask etcd for a snapshot")?;
    let (mut bytes, mut last) = (0, None);
    while let Some(part) = stream.message().await.context("read the snapshot")? {
        output.write_all(part.blob()).await?;
        bytes += part.blob().len() as u64;
        last = Some(part.remaining_bytes());
    }
    if last != Some(0) {
        bail!("etcd's snapshot is not complete");
    }
    output.sync_all().await?;
    tokio::fs::rename(&partial, file).await.with_context(|| format!("write {}", file.display()))?;
    Ok(bytes)
}

async fn client(config: &store::etcd::Config) -> anyhow::Result<etcd_client::Client> {
    let mut options = etcd_client::ConnectOptions::new().with_connect_timeout(config.connect_timeout);
    if let Some(ca) = &config.ca {
        let mut tls = etcd_client::TlsOptions::new().ca_certificate(etcd_client::Certificate::from_pem(ca));
        if let (Some(certificate), Some(key)) = (&config.cert, &config.key) {
            tls = tls.identity(etcd_client::Identity::from_pem(certificate, key));
        }
        options = options.with_tls(tls);
    }
    // A snapshot is that of one member; the nearest will do.
    let nearest = config.endpoints.iter().take(1);
    let nearest: Vec<&String> = nearest.collect();
    etcd_client::Client::connect(nearest, Some(options)).await.context("reach etcd")
}

/// Saves one every so often, and removes the oldest.
pub async fn keep(config: store::etcd::Config, data_dir: PathBuf, every: Duration, kept: usize, shutdown: Shutdown) {
    let folder = folder(&data_dir);
    loop {
        let wait = until_next(&folder, every);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shutdown.cancelled() => return,
        }
        let saved = async {
            tokio::fs::create_dir_all(&folder).await?;
            let file = folder.join(format!("{PREFIX}{}", Timestamp::now().as_second()));
            let bytes = save(&config, &file).await?;
            tracing::info!(file = %file.display(), bytes, "saved a snapshot");
            remove_old(&folder, kept)
        };
        if let Err(error) = saved.await {
            tracing::error!(error = format!("{error:#}"), "no snapshot is saved");
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }
}

/// The snapshots of a folder, the oldest first.
fn list(folder: &Path) -> Vec<(i64, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(i64, PathBuf)> = entries
        .filter_map(|entry| {
            let second = entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
            Some((second, entry.path()))
        })
        .collect();
    found.sort();
    found
}

/// A start does not make one at once where the last is young.
fn until_next(folder: &Path, every: Duration) -> Duration {
    let Some((last, _)) = list(folder).pop() else { return every };
    let age = Duration::from_secs(u64::try_from(Timestamp::now().as_second() - last).unwrap_or(0));
    every.saturating_sub(age)
}

fn remove_old(folder: &Path, kept: usize) -> anyhow::Result<()> {
    let all = list(folder);
    for (_, file) in all.iter().take(all.len().saturating_sub(kept)) {
        std::fs::remove_file(file).with_context(|| format!("remove {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        for second in [5, 20, 100, 3] {
            std::fs::write(folder.path().join(format!("{PREFIX}{second}")), "x").unwrap();
        }
        std::fs::write(folder.path().join("other"), "x").unwrap();
        remove_old(folder.path(), 2).unwrap();
        let left: Vec<i64> = list(folder.path()).into_iter().map(|(second, _)| second).collect();
        assert_eq!(left, [20, 100]);
        assert!(folder.path().join("other").is_file());
        assert_eq!(until_next(folder.path(), Duration::from_secs(60)), Duration::ZERO);
    }
}
