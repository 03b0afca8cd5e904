//! The list of etcd endpoints, read from etcd itself and saved for a start at which this machine's own does not serve.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reconcile::Shutdown;

use super::{Config, certificates, members};

const LOOK_AGAIN: Duration = Duration::from_secs(10);

fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("etcd/members")
}

/// Where members were reached last.
pub fn kept(data_dir: &Path) -> Vec<String> {
    std::fs::read_to_string(file(data_dir)).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// After a reset nobody else is a member.
pub fn forget(data_dir: &Path) {
    let _ = std::fs::remove_file(file(data_dir));
}

fn keep(data_dir: &Path, endpoints: &[String]) {
    if kept(data_dir) == endpoints {
        return;
    }
    if let Err(error) = linux::file::write(&file(data_dir), endpoints.join("\n"), 0o600) {
        tracing::warn!(%error, "cannot save list of etcd endpoints");
    }
}

/// All that can be known: what the members say, or else what they said last.
pub async fn known(config: &Config, files: &certificates::Files) -> Vec<String> {
    let own = config.client_url();
    let asked: Vec<String> = [own.clone()].into_iter().chain(config.others.iter().cloned()).collect();
    match members::list(&asked, files).await {
        Ok(members) => {
            let endpoints = members::endpoints(&members, &own);
            keep(&config.data_dir, &endpoints);
            endpoints
        }
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "cannot list etcd members; using last known endpoints");
            let mut endpoints = asked;
            endpoints.extend(kept(&config.data_dir));
            let mut seen = std::collections::BTreeSet::new();
            endpoints.retain(|endpoint| seen.insert(endpoint.clone()));
            endpoints
        }
    }
}

pub async fn run(mut config: Config, store: Arc<store::etcd::EtcdStore>, shutdown: Shutdown) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = shutdown.cancelled() => return,
        }
        // It may have been renewed.
        let Ok(files) = certificates::ensure(&config) else { continue };
        config.others = kept(&config.data_dir);
        let endpoints = known(&config, &files).await;
        if let Err(error) = store.set_endpoints(&endpoints).await {
            tracing::warn!(%error, "cannot update etcd endpoints of the store");
        }
    }
}
