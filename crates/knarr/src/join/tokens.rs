//! The lasting tokens of a cluster: the files that hold them, and what the API server must know of them.
//!
//! The text of a token never gets into an object. What is kept is derived from it (`stretch`): the secret of a bootstrap token,
//! the sealed keys, and a proof for those who joined without the hash of the authority.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::bundle::{self, Bundle};
use super::cluster::{BootstrapToken, Publication, bootstrap_secret};
use super::stretch::{self, Stretched};
use super::token::{Form, Role, Token};

/// The files below `<data>/server` that hold the tokens with which nodes and further servers join.
pub const NODE_TOKEN: &str = "node-token";
pub const SERVER_TOKEN: &str = "token";
/// The groups of those who joined with a text.
pub const SERVERS: &str = "system:bootstrappers:knarr:servers";
pub const AGENTS: &str = "system:bootstrappers:knarr:agents";
/// The ConfigMap in kube-public with the salt of this cluster, and its field.
pub const SALT: &str = "knarr-join";
const SALT_FIELD: &str = "salt";
/// The Secret for those who join with a text of agents; that of servers is `bundle::SECRET`.
pub const OF_AGENTS: &str = "knarr-agents";
const PROOF: &str = "proof";
const SECRET_TYPE: &str = "knarr.dev/servers";

/// How long a node token that knarr made can be used, and how long before that another takes its place in the file.
const NODE_TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(90 * 24);
const NODE_TOKEN_LEFT_MIN: SignedDuration = SignedDuration::from_hours(30 * 24);
const LOOK_EVERY: Duration = Duration::from_secs(12 * 60 * 60);
const ATTEMPTS_MAX: usize = 5;

pub async fn publish(client: &Client, publication: &Publication<'_>) -> anyhow::Result<()> {
    let Publication { authority, token, agent_token, data_dir, .. } = publication;
    let salt = ensure_salt(client).await?;
    let kept = kept_token(SERVER_TOKEN, data_dir)?;
    let of_servers = match (token, &kept) {
        (Some(text), _) => text.parse::<Token>()?.with_authority(authority),
        (None, Some(kept)) => kept.clone(),
        (None, None) => Token::generate_text(authority)?,
    };
    let replaced = kept.is_some_and(|kept| kept.secret() != of_servers.secret());
    keep_token(SERVER_TOKEN, Role::Servers, &of_servers, data_dir)?;
    let key = Stretched::beside(of_servers.secret(), salt.clone()).await?;
    publish_servers(client, publication, &key, replaced).await?;
    // What older versions left: the token itself, in clear.
    end(client, &bundle::legacy_parts(&of_servers).0).await?;
    match agent_token {
        Some(text) => publish_agents(client, publication, &text.parse::<Token>()?, &salt).await,
        None => renew_node_token(client, authority, data_dir, Timestamp::now()).await,
    }
}

/// The salt of the cluster, made by the first server.
async fn ensure_salt(client: &Client) -> anyhow::Result<Vec<u8>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    if let Some(map) = maps.get_opt(SALT).await.context("read token salt")? {
        return salt_in(&map);
    }
    let text = STANDARD.encode(stretch::new_salt()?);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SALT, "namespace": "kube-public"},
        "data": {SALT_FIELD: text},
    });
    match maps.create(&PostParams::default(), &machinery::codec::typed(&map)?).await {
        Ok(map) => salt_in(&map),
        Err(kube::Error::Api(status)) if status.code == 409 => salt_in(&maps.get(SALT).await?),
        Err(error) => Err(error).context("save token salt"),
    }
}

pub fn salt_in(map: &ConfigMap) -> anyhow::Result<Vec<u8>> {
    let text = map.data.as_ref().and_then(|data| data.get(SALT_FIELD)).context("the cluster has no token salt")?;
    let salt = STANDARD.decode(text).context("read token salt")?;
    anyhow::ensure!(salt.len() >= stretch::SALT_LENGTH, "the token salt is too short");
    Ok(salt)
}

/// The sealed keys, and with what servers ask for them.
async fn publish_servers(
    client: &Client,
    publication: &Publication<'_>,
    key: &Stretched,
    replaced: bool,
) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let bundle = Bundle::read(&publication.data_dir.join("tls"))?;
    let there = secrets.get_opt(bundle::SECRET).await.context("read encrypted cluster keys")?;
    let sealed = there.and_then(|secret| secret.data?.remove(bundle::FIELD));
    match sealed.map(|sealed| Bundle::open(&sealed.0, key)) {
        Some(Ok(opened)) if opened == bundle || !bundle.covers(&opened) => {}
        Some(Err(_)) if !replaced => tracing::warn!(
            "the token in <data-dir>/server/token differs from the other servers' token: it was rotated; update it on this server"
        ),
        _ => {
            let fields = [
                (bundle::FIELD, bundle.seal(key)?),
                (PROOF, key.proof(Role::Servers, publication.authority)?.to_vec()),
            ];
            put(&secrets, machinery::codec::typed(&proof_secret(bundle::SECRET, fields))?).await?;
        }
    }
    let description = "The token of this cluster's servers, derived.";
    put(&secrets, machinery::codec::typed(&derived(key, Role::Servers, publication.authority, description)?)?).await
}

async fn publish_agents(
    client: &Client,
    publication: &Publication<'_>,
    token: &Token,
    salt: &[u8],
) -> anyhow::Result<()> {
    let Publication { authority, data_dir, .. } = publication;
    let token = token.with_authority(authority);
    // One that knarr made before is good no more.
    if let Some(old) = kept_token(NODE_TOKEN, data_dir)?.filter(|old| *old != token) {
        end(client, &bundle::legacy_parts(&old).0).await?;
    }
    keep_token(NODE_TOKEN, Role::Agents, &token, data_dir)?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    if let Form::Bootstrap { id, secret } = &token.form {
        let description = "The token of this cluster's nodes.";
        let chosen = BootstrapToken { id, secret, description, group: None, signs: true, expiration: None };
        return put(&secrets, machinery::codec::typed(&bootstrap_secret(&chosen))?).await;
    }
    let key = Stretched::beside(token.secret(), salt.to_vec()).await?;
    let fields = [(PROOF, key.proof(Role::Agents, authority)?.to_vec())];
    put(&secrets, machinery::codec::typed(&proof_secret(OF_AGENTS, fields))?).await?;
    put(
        &secrets,
        machinery::codec::typed(&derived(
            &key,
            Role::Agents,
            authority,
            "The token of this cluster's nodes, derived.",
        )?)?,
    )
    .await?;
    end(client, &bundle::legacy_parts(&token).0).await
}

/// The node token that knarr makes itself ends, and another takes its place before.
pub async fn keep_node_token(
    client: Client,
    authority: String,
    data_dir: std::path::PathBuf,
    shutdown: reconcile::Shutdown,
) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = shutdown.cancelled() => return,
        }
        if let Err(error) = renew_node_token(&client, &authority, &data_dir, Timestamp::now()).await {
            tracing::warn!(error = format!("{error:#}"), "cannot renew node join token");
        }
    }
}

async fn renew_node_token(client: &Client, authority: &str, data_dir: &Path, now: Timestamp) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let end = now + NODE_TOKEN_LIFE;
    let description = "The token of this cluster's nodes.";
    let kept = kept_token(NODE_TOKEN, data_dir)?;
    if let Some(Form::Bootstrap { id, secret }) = kept.as_ref().map(|kept| &kept.form) {
        let there = secrets.get_opt(&format!("bootstrap-token-{id}")).await.context("read node token")?;
        match there.as_ref().map(expiration) {
            Some(Some(until)) if until.duration_since(now) >= NODE_TOKEN_LEFT_MIN => return Ok(()),
            // It had no end when an older version made it.
            Some(None) => {
                let token = BootstrapToken { id, secret, description, group: None, signs: true, expiration: Some(end) };
                return put(&secrets, machinery::codec::typed(&bootstrap_secret(&token))?).await;
            }
            // It ended, it was ended, or it ends soon.
            _ => {}
        }
    }
    let token = Token::generate(authority)?;
    let Form::Bootstrap { id, secret } = &token.form else { bail!("a new node token must be a bootstrap token") };
    let made = BootstrapToken { id, secret, description, group: None, signs: true, expiration: Some(end) };
    put(&secrets, machinery::codec::typed(&bootstrap_secret(&made))?).await?;
    keep_token(NODE_TOKEN, Role::Agents, &token, data_dir)
}

fn expiration(secret: &Secret) -> Option<Timestamp> {
    let text = secret.data.as_ref()?.get("expiration")?;
    String::from_utf8_lossy(&text.0).parse().ok()
}

fn derived(key: &Stretched, role: Role, authority: &str, description: &str) -> anyhow::Result<Value> {
    let group = match role {
        Role::Servers => SERVERS,
        Role::Agents => AGENTS,
    };
    let secret = key.bearer_secret(role, authority)?;
    Ok(bootstrap_secret(&BootstrapToken {
        id: role.id(),
        secret: &secret,
        description,
        group: Some(group),
        signs: false,
        expiration: None,
    }))
}

fn proof_secret(name: &str, fields: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Value {
    let data: serde_json::Map<String, Value> =
        fields.into_iter().map(|(field, bytes)| (field.to_owned(), STANDARD.encode(bytes).into())).collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": {"name": name, "namespace": "kube-system"}, "data": data,
    })
}

/// Whether that Secret proves that the cluster knows the text.
pub fn is_proof(data: &std::collections::BTreeMap<String, ByteString>, expected: &[u8]) -> bool {
    let shown = data.get(PROOF).map(|bytes| bytes.0.as_slice()).unwrap_or_default();
    // Who asks has shown a secret of the same text already, so that time tells nothing.
    shown == expected
}

/// Makes the Secret so, whatever it is now.
pub async fn put(secrets: &Api<Secret>, mut wanted: Secret) -> anyhow::Result<()> {
    let name = wanted.metadata.name.clone().unwrap_or_default();
    for _ in 0..ATTEMPTS_MAX {
        let written = match secrets.get_opt(&name).await.with_context(|| format!("get Secret {name}"))? {
            Some(there) if there.data == wanted.data => return Ok(()),
            Some(there) => {
                wanted.metadata.resource_version = there.metadata.resource_version;
                secrets.replace(&name, &PostParams::default(), &wanted).await
            }
            None => {
                wanted.metadata.resource_version = None;
                secrets.create(&PostParams::default(), &wanted).await
            }
        };
        match written {
            Ok(_) => return Ok(()),
            // Another server was faster.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error).with_context(|| format!("update Secret {name}")),
        }
    }
    bail!("cannot update Secret {name}: too many conflicts")
}

/// Ends the bootstrap token of that id. It is looked for in a list: an id that follows from a text must get into no log.
async fn end(client: &Client, id: &str) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let tokens = secrets.list(&ListParams::default().fields("type=bootstrap.kubernetes.io/token")).await;
    let name = format!("bootstrap-token-{id}");
    let found = tokens
        .context("list bootstrap tokens")?
        .items
        .into_iter()
        .any(|secret| secret.metadata.name.as_ref() == Some(&name));
    if !found {
        return Ok(());
    }
    match secrets.delete(&name, &DeleteParams::default()).await {
        // Another server was faster.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("delete token {id}")),
        Ok(_) => {
            tracing::info!(id, "deleted rotated join token");
            Ok(())
        }
    }
}

pub fn kept_token(name: &str, data_dir: &Path) -> anyhow::Result<Option<Token>> {
    let file = data_dir.join("server").join(name);
    let Ok(text) = std::fs::read_to_string(&file) else { return Ok(None) };
    text.parse().map(Some).with_context(|| format!("read {}", file.display()))
}

pub fn keep_token(name: &str, role: Role, token: &Token, data_dir: &Path) -> anyhow::Result<()> {
    let dir = data_dir.join("server");
    linux::file::make_private_folder(&dir).context("create directory of the token")?;
    Ok(kube_apiserver::pki::write_private_file(&dir.join(name), &format!("{}\n", token.line(role)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_token_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        assert!(kept_token(NODE_TOKEN, folder.path()).unwrap().is_none());
        let token = Token::generate_text("authority").unwrap();
        keep_token(NODE_TOKEN, Role::Agents, &token, folder.path()).unwrap();
        assert!(kept_token(NODE_TOKEN, folder.path()).unwrap().unwrap() == token);
        std::fs::write(folder.path().join("server/node-token"), "short").unwrap();
        assert!(kept_token(NODE_TOKEN, folder.path()).is_err());
    }

    #[test]
    fn what_the_api_server_keeps_neither_holds_nor_signs_with_the_text() {
        let text = "a text of one's own";
        let key = Stretched::new(text, b"0123456789abcdef").unwrap();
        let secret = derived(&key, Role::Servers, "authority", "").unwrap();
        assert!(secret["data"].get("usage-bootstrap-signing").is_none());
        let legacy = bundle::legacy_parts(&text.parse().unwrap());
        for plain in [text, &legacy.0, &legacy.1] {
            assert!(!secret.to_string().contains(&STANDARD.encode(plain)), "{secret}");
        }
    }
}
