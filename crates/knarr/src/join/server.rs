//! A further server of a cluster: it gets the cluster's keys and settings from one that is there.

use std::path::Path;

use anyhow::Context;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::bundle::{self, Bundle};
use super::cluster::{self, Settings};
use super::discovery;
use super::token::Token;

/// Fills `<data>/tls` and keeps the token, unless an earlier start did. What the cluster says of itself is the answer.
pub async fn join(server: &str, token: Option<&str>, data_dir: &Path) -> anyhow::Result<Settings> {
    let token = match token {
        Some(text) => text.parse::<Token>()?,
        None => cluster::kept_token(cluster::SERVER_TOKEN, data_dir)?
            .context("give --token: what <data-dir>/server/token holds on another server")?,
    };
    let dir = data_dir.join("server");
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let tls = data_dir.join("tls");
    // A server that has joined already finds out by itself what has changed, also when that other one is gone.
    if tls.join("ca.crt").is_file() {
        let kept = cluster::kept_settings(&dir);
        return match settings_of(server, &token, &dir).await {
            Ok(settings) => Ok(settings),
            Err(error) => kept.ok_or(error),
        };
    }
    let authority = discovery::authority(server, &token).await?;
    let client = discovery::client_with_token(server, &authority, &token)?;
    let secrets: Api<Secret> = Api::namespaced(client, "kube-system");
    let secret = secrets.get(bundle::SECRET).await.with_context(|| {
        format!(
            "get the cluster's keys from {server}; the token must be that of servers, in <data-dir>/server/token there"
        )
    })?;
    let sealed = secret.data.unwrap_or_default().remove(bundle::FIELD).context("the cluster's keys are not there")?;
    let bundle = Bundle::open(&sealed.0, &token)?;
    let settings = settings_of(server, &token, &dir).await?;
    cluster::keep_token(cluster::SERVER_TOKEN, &token.with_authority(&authority), data_dir)?;
    bundle.write(&tls)?;
    tracing::info!(server, "joined as a further server");
    Ok(settings)
}

/// A store that was restored on a new machine knows the cluster's keys: with the token of servers they are taken from there,
/// so that what the old servers signed still counts.
pub async fn recover(store: &dyn store::Store, token: &str, data_dir: &Path) -> anyhow::Result<()> {
    let tls = data_dir.join("tls");
    if tls.join("ca.crt").is_file() {
        return Ok(());
    }
    let Some(entry) = store.get(&format!("/registry/secrets/kube-system/{}", bundle::SECRET)).await? else {
        return Ok(());
    };
    let Ok(secret) = serde_json::from_slice::<Secret>(&entry.value) else {
        tracing::warn!(
            "the cluster's keys in the store cannot be read; copy the folder tls of an old server to this one"
        );
        return Ok(());
    };
    let sealed = secret.data.unwrap_or_default().remove(bundle::FIELD).context("the cluster's keys are not there")?;
    Bundle::open(&sealed.0, &token.parse()?)?.write_missing(&tls)?;
    tracing::info!("took the cluster's keys from the store");
    Ok(())
}

async fn settings_of(server: &str, token: &Token, dir: &Path) -> anyhow::Result<Settings> {
    let authority = discovery::authority(server, token).await?;
    let client = discovery::client_with_token(server, &authority, token)?;
    cluster::settings(&client, dir).await
}
