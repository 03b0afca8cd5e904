//! The device flow (RFC 8628): a code is shown here, somebody enters it in a browser anywhere, and the provider is asked
//! until that is done.

use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;

use super::Wanted;
use super::kept::Kept;
use super::provider::{Provider, Refusal};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// How much longer the next wait is where the provider finds this one too short.
const SLOWER: Duration = Duration::from_secs(5);
/// No provider's codes are waited for longer.
const PATIENCE: Duration = Duration::from_secs(1800);

#[derive(Deserialize)]
struct Begun {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    #[serde(default = "five")]
    interval: u64,
}

fn five() -> u64 {
    5
}

pub async fn sign_in(provider: &Provider, wanted: &Wanted) -> anyhow::Result<Kept> {
    let endpoint = provider.endpoints.device_authorization_endpoint.as_deref();
    let endpoint = endpoint.context("the provider offers no sign-in on another device; leave out --device")?;
    let (code, body) = provider.post(endpoint, wanted, &[("scope", &wanted.scopes)]).await?;
    if code != 200 {
        let refusal: Refusal = serde_json::from_slice(&body).unwrap_or_default();
        bail!("the provider refuses ({code}): {refusal}");
    }
    let begun: Begun = serde_json::from_slice(&body).context("read the provider's answer")?;
    match &begun.verification_uri_complete {
        Some(page) => eprintln!("Sign in at {page} (code {})", begun.user_code),
        None => eprintln!("Sign in at {} with the code {}", begun.verification_uri, begun.user_code),
    }
    let patience = Duration::from_secs(begun.expires_in).min(PATIENCE);
    let signed_in = tokio::time::timeout(patience, ask(provider, wanted, &begun)).await;
    signed_in.unwrap_or_else(|_| bail!("nobody signed in within {patience:?}"))
}

async fn ask(provider: &Provider, wanted: &Wanted, begun: &Begun) -> anyhow::Result<Kept> {
    let mut every = Duration::from_secs(begun.interval);
    loop {
        tokio::time::sleep(every).await;
        let form = [("grant_type", GRANT), ("device_code", begun.device_code.as_str())];
        match provider.try_token(wanted, &form).await? {
            Ok(kept) => return Ok(kept),
            Err(refusal) => every = next_wait(every, &refusal)?,
        }
    }
}

/// How long to wait for the next try, unless there is none.
fn next_wait(every: Duration, refusal: &Refusal) -> anyhow::Result<Duration> {
    match refusal.error.as_str() {
        "authorization_pending" => Ok(every),
        "slow_down" => Ok(every + SLOWER),
        _ => bail!("the provider refuses: {refusal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_too_fast_slows_down_and_who_is_refused_stops() {
        let wait = |error: &str| {
            let refusal: Refusal = serde_json::from_value(serde_json::json!({"error": error})).unwrap();
            next_wait(Duration::from_secs(5), &refusal).map_err(|error| error.to_string())
        };
        assert_eq!(wait("authorization_pending"), Ok(Duration::from_secs(5)));
        assert_eq!(wait("slow_down"), Ok(Duration::from_secs(10)));
        assert_eq!(wait("access_denied"), Err("the provider refuses: access_denied".into()));
    }
}
