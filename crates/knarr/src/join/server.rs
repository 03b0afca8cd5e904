//! A further server of a cluster: it gets the cluster's keys and settings from one that is there.

use std::path::Path;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;

use super::bundle::{self, Bundle};
use super::cluster::{self, Settings};
use super::discovery;
use super::stretch::Stretched;
use super::token::{Role, Token};
use super::tokens;

/// Fills `<data>/tls` and keeps the token, unless an earlier start did. What the cluster says of itself is the answer.
pub async fn join(server: &str, token: Option<&str>, data_dir: &Path) -> anyhow::Result<Settings> {
    let token = match token {
        Some(text) => text.parse::<Token>()?,
        None => tokens::kept_token(tokens::SERVER_TOKEN, data_dir)?
            .context("set --token to the content of <data-dir>/server/token of another server")?,
    };
    let dir = data_dir.join("server");
    linux::file::make_private_folder(&dir).with_context(|| format!("create {}", dir.display()))?;
    let tls = data_dir.join("tls");
    // A server that has joined already finds out by itself what has changed, also when that other one is gone.
    if tls.join("ca.crt").is_file() {
        let kept = cluster::kept_settings(&dir);
        return match settings_of(server, &token, &dir).await {
            Ok(settings) => Ok(settings),
            Err(error) => kept.ok_or(error),
        };
    }
    let known = discovery::enter(server, &token, &[Role::Servers]).await?;
    let key = known.key.context("a server token has a stretched key")?;
    let secrets: Api<Secret> = Api::namespaced(known.client.clone(), "kube-system");
    let secret = secrets.get(bundle::SECRET).await.with_context(|| format!("get the cluster's keys from {server}"))?;
    let sealed = secret.data.unwrap_or_default().remove(bundle::FIELD).context("the cluster's keys are missing")?;
    let bundle = Bundle::open(&sealed.0, &key)?;
    // What was sealed proves who the server is, whatever it showed before.
    if bundle.authority() != Some(known.authority.as_str()) {
        bail!("{server} has another CA than the cluster's keys: it is not the cluster of this token");
    }
    let settings = cluster::settings(&known.client, &dir).await?;
    tokens::keep_token(tokens::SERVER_TOKEN, Role::Servers, &token.with_authority(&known.authority), data_dir)?;
    bundle.write(&tls)?;
    tracing::info!(server, "joined the cluster as another server");
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
            "cannot decode the cluster's keys in the store; copy the folder tls of an old server to this one"
        );
        return Ok(());
    };
    let token: Token = token.parse()?;
    let mut data = secret.data.unwrap_or_default();
    let bundle = match (data.remove(bundle::FIELD), data.remove(bundle::LEGACY_FIELD)) {
        (Some(sealed), _) => {
            let entry = store.get(&format!("/registry/configmaps/kube-public/{}", tokens::SALT)).await?;
            let entry = entry.context("the store has no token salt")?;
            let map: ConfigMap = serde_json::from_slice(&entry.value).context("read token salt")?;
            Bundle::open(&sealed.0, &Stretched::beside(token.secret(), tokens::salt_in(&map)?).await?)?
        }
        (None, Some(sealed)) => Bundle::open_legacy(&sealed.0, &token)?,
        (None, None) => bail!("the cluster's keys are missing"),
    };
    bundle.write_missing(&tls)?;
    tracing::info!("restored the cluster's keys from the store");
    Ok(())
}

async fn settings_of(server: &str, token: &Token, dir: &Path) -> anyhow::Result<Settings> {
    let known = discovery::enter(server, token, &[Role::Servers]).await?;
    cluster::settings(&known.client, dir).await
}
