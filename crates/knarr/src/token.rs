//! `knarr token`: with what other machines join.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};

use crate::join::cluster::BootstrapToken;
use crate::join::token::{Form, Token};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Create a token and print the command to run on the next machine.
    Create {
        /// Lifetime of the token, such as 24h; 0 is unlimited.
        #[arg(long, default_value = "24h", value_parser = crate::leader::duration)]
        ttl: Duration,
        /// Description of the token.
        #[arg(long, default_value = "")]
        description: String,
        /// Print only the token.
        #[arg(long)]
        quiet: bool,
        #[command(flatten)]
        at: Place,
    },
    /// List tokens, without their secrets.
    List {
        #[command(flatten)]
        at: Place,
    },
    /// Delete a token. Nodes that joined with it stay.
    Delete {
        /// Id of the token (the part before the dot), or the whole token.
        id: String,
        #[command(flatten)]
        at: Place,
    },
}

#[derive(clap::Args)]
pub struct Place {
    /// Data directory of the server.
    #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Kubeconfig of the cluster (default: <data-dir>/admin.kubeconfig of the server).
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

pub fn run(command: Command) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Create { ttl, description, quiet, at } => create(ttl, &description, quiet, &at).await,
            Command::List { at } => list(&at).await,
            Command::Delete { id, at } => delete(&id, &at).await,
        }
    })
}

async fn config(at: &Place) -> anyhow::Result<kube::Config> {
    let path = at.kubeconfig.clone().unwrap_or_else(|| at.data_dir.join("admin.kubeconfig"));
    let read = kube::config::Kubeconfig::read_from(&path);
    let read = read
        .with_context(|| format!("read {}: run this on a server, or set --data-dir or --kubeconfig", path.display()))?;
    kube::Config::from_custom_kubeconfig(read, &Default::default()).await.context("load kubeconfig")
}

async fn secrets(at: &Place) -> anyhow::Result<Api<Secret>> {
    let client = kube::Client::try_from(config(at).await?).context("create client")?;
    Ok(Api::namespaced(client, "kube-system"))
}

async fn create(ttl: Duration, description: &str, quiet: bool, at: &Place) -> anyhow::Result<()> {
    let secrets = secrets(at).await?;
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> =
        Api::namespaced(secrets.clone().into_client(), "kube-public");
    let info = maps.get("cluster-info").await.context("get cluster-info")?;
    let text = info.data.unwrap_or_default().remove("kubeconfig").context("cluster-info is empty")?;
    let info = crate::join::discovery::read(&text)?;
    let token = Token::generate(&info.authority)?;
    let Form::Bootstrap { id, secret } = &token.form else { bail!("a new token must be a bootstrap token") };
    let expiration = (!ttl.is_zero()).then(|| Timestamp::now() + ttl);
    let made = BootstrapToken { id, secret, description, group: None, signs: true, expiration };
    let secret = machinery::codec::typed(&crate::join::cluster::bootstrap_secret(&made))?;
    secrets.create(&PostParams::default(), &secret).await.context("create token")?;
    if quiet {
        println!("{token}")
    } else {
        println!("knarr agent --server {} --token {token}", info.server)
    }
    Ok(())
}

async fn list(at: &Place) -> anyhow::Result<()> {
    let only = ListParams::default().fields("type=bootstrap.kubernetes.io/token");
    let found = secrets(at).await?.list(&only).await.context("list bootstrap tokens")?;
    println!("{:<10} {:<24} DESCRIPTION", "TOKEN", "EXPIRES");
    found.iter().for_each(|secret| println!("{}", row(secret)));
    Ok(())
}

/// One line of the list. The secret of the token is not part of it.
fn row(secret: &Secret) -> String {
    let text = |name: &str| {
        let bytes = secret.data.iter().flatten().find(|(field, _)| *field == name).map(|(_, bytes)| bytes.0.clone());
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    };
    let end = Some(text("expiration")).filter(|end| !end.is_empty()).unwrap_or("never".into());
    format!("{:<10} {end:<24} {}", text("token-id"), text("description"))
}

/// The id of a token that was given by its id or as a whole.
fn id_of(given: &str) -> String {
    let token = given.parse::<Token>().ok();
    token.and_then(|token| token.bootstrap_id().map(str::to_owned)).unwrap_or_else(|| given.to_owned())
}

async fn delete(id: &str, at: &Place) -> anyhow::Result<()> {
    let id = id_of(id);
    let name = format!("bootstrap-token-{id}");
    secrets(at).await?.delete(&name, &DeleteParams::default()).await.with_context(|| format!("delete token {id}"))?;
    println!("deleted token {id}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::cluster::bootstrap_secret;

    #[test]
    fn a_row_tells_all_but_the_secret() {
        let token = |expiration: Option<&str>| {
            let expiration = expiration.map(|text| text.parse().expect("a time"));
            let made = BootstrapToken {
                id: "abcdef",
                secret: "0123456789abcdef",
                description: "for the second rack",
                group: None,
                signs: true,
                expiration,
            };
            row(&machinery::codec::typed(&bootstrap_secret(&made)).expect("a Secret"))
        };
        assert_eq!(token(Some("2026-03-01T12:00:00Z")), "abcdef     2026-03-01T12:00:00Z     for the second rack");
        assert_eq!(token(None), "abcdef     never                    for the second rack");
        assert_eq!(row(&Secret::default()), "           never                    ");
    }

    #[test]
    fn a_token_is_deleted_by_its_id_or_as_it_was_printed() {
        let whole = Token::generate("an authority").expect("a token");
        let id = whole.bootstrap_id().expect("it has an id").to_owned();
        assert_eq!(id_of(&whole.to_string()), id);
        assert_eq!(id_of(&whole.secret()), id);
        assert_eq!(id_of("abcdef"), "abcdef");
    }
}
