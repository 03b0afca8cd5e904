//! `knarr oidc-login`: kubectl's exec plugin for single sign-on. Prints an id token of an OpenID Connect provider; where the
//! last one is at its end it is refreshed, and where it cannot be, somebody signs in: in a browser (authorization code with
//! PKCE), or on another device.

mod claims;
mod provider;
mod browser;
mod device;
mod kept;

use std::path::PathBuf;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

use claims::Claims;
use kept::{Folder, Kept};
use provider::Provider;

#[derive(clap::Args)]
pub struct Flags {
    /// URL of the OIDC issuer (https), as the API server knows it.
    #[arg(long)]
    issuer_url: String,
    /// Client id that the provider knows kubectl by.
    #[arg(long)]
    client_id: String,
    /// File with the secret of the client (default: none, as for public clients).
    #[arg(long)]
    client_secret_file: Option<PathBuf>,
    /// Ask for this scope too, besides openid and offline_access; repeatable.
    #[arg(long)]
    scope: Vec<String>,
    /// CA of the issuer (default: the system's CAs).
    #[arg(long)]
    certificate_authority: Option<PathBuf>,
    /// Sign in on another device: print a code instead of opening a browser.
    #[arg(long)]
    device: bool,
    /// Address on this machine that the browser is sent back to (port 0: any free one).
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: std::net::SocketAddr,
    /// Print the page to open instead of opening a browser.
    #[arg(long)]
    no_browser: bool,
    /// Folder where tokens are kept until they expire (default: ~/.kube/cache/knarr-oidc).
    #[arg(long)]
    cache_dir: Option<PathBuf>,
}

/// What is asked of the provider.
struct Wanted {
    client_id: String,
    client_secret: Option<String>,
    scopes: String,
}

pub fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let token = runtime.block_on(token(&flags))?;
    let asked = std::env::var("KUBERNETES_EXEC_INFO").unwrap_or_default();
    println!("{}", credential(&asked, &token)?);
    Ok(())
}

async fn token(flags: &Flags) -> anyhow::Result<String> {
    let wanted = wanted(flags)?;
    let folder = Folder::new(flags.cache_dir.clone())?;
    let name = kept::name(&flags.issuer_url, &wanted.client_id, &wanted.scopes);
    let kept = folder.read(&name);
    if let Some(kept) = &kept
        && Claims::parse(&kept.id_token).is_some_and(|claims| claims.is_fresh(Timestamp::now()))
    {
        return Ok(kept.id_token.clone());
    }
    let authority = flags.certificate_authority.as_deref();
    let provider = Provider::discover(&flags.issuer_url, authority).await?;
    let refreshed = match kept.and_then(|kept| kept.refresh_token) {
        Some(refresh_token) => refresh(&provider, &wanted, &refresh_token).await,
        None => None,
    };
    let tokens = match refreshed {
        Some(tokens) => tokens,
        None if flags.device => device::sign_in(&provider, &wanted).await?,
        None => browser::sign_in(&provider, &wanted, flags.listen, flags.no_browser).await?,
    };
    folder.write(&name, &tokens)?;
    Ok(tokens.id_token)
}

fn wanted(flags: &Flags) -> anyhow::Result<Wanted> {
    let client_secret = match &flags.client_secret_file {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
            Some(text.trim().to_owned())
        }
        None => None,
    };
    let given = flags.scope.iter().map(String::as_str);
    let mut scopes: Vec<&str> = ["openid", "offline_access"].into_iter().chain(given).collect();
    let mut seen = std::collections::HashSet::new();
    scopes.retain(|scope| seen.insert(*scope));
    Ok(Wanted { client_id: flags.client_id.clone(), client_secret, scopes: scopes.join(" ") })
}

/// Nothing where the provider wants the user to sign in again.
async fn refresh(provider: &Provider, wanted: &Wanted, refresh_token: &str) -> Option<Kept> {
    let form = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
    match provider.token(wanted, &form).await {
        Ok(mut tokens) => {
            // A provider that keeps the old one in use need not repeat it.
            tokens.refresh_token.get_or_insert_with(|| refresh_token.to_owned());
            Some(tokens)
        }
        Err(error) => {
            eprintln!("cannot refresh the token: {error:#}; please sign in again");
            None
        }
    }
}

/// The answer that kubectl reads, in the version that it asked in.
fn credential(asked: &str, token: &str) -> anyhow::Result<Value> {
    let asked: Value = serde_json::from_str(asked).unwrap_or_default();
    let version = asked["apiVersion"].as_str().unwrap_or("client.authentication.k8s.io/v1");
    if !matches!(version, "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1") {
        bail!("kubectl asks for a credential of {version}; use client.authentication.k8s.io/v1");
    }
    let until = Claims::parse(token).and_then(|claims| Timestamp::from_second(claims.exp).ok());
    let mut status = json!({"token": token});
    if let Some(until) = until {
        status["expirationTimestamp"] = json!(until.to_string());
    }
    Ok(json!({"apiVersion": version, "kind": "ExecCredential", "status": status}))
}

/// Something that nobody guesses.
fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).ok().context("get random numbers from the system")?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_the_version_of_the_question() {
        let token = claims::tests::token(json!({"exp": 1_800_000_000}));
        let v1beta1 = r#"{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential"}"#;
        let answer = credential(v1beta1, &token).unwrap();
        assert_eq!(answer["apiVersion"], "client.authentication.k8s.io/v1beta1");
        assert_eq!(answer["status"], json!({"token": token, "expirationTimestamp": "2027-01-15T08:00:00Z"}));
        assert_eq!(credential("", "opaque").unwrap()["status"], json!({"token": "opaque"}));
        let old = r#"{"apiVersion": "client.authentication.k8s.io/v1alpha1"}"#;
        assert!(credential(old, &token).is_err());
    }
}
