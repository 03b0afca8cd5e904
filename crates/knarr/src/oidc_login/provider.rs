//! The provider: what its discovery document says, and what its token endpoint answers.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use serde::Deserialize;

use super::Wanted;
use super::claims::Claims;
use super::kept::Kept;

/// What one answer may take, and how long it may be.
const TIMEOUT: Duration = Duration::from_secs(30);
const BODY_MAX: usize = 1 << 20;

#[derive(Deserialize)]
pub struct Endpoints {
    issuer: String,
    token_endpoint: String,
    pub authorization_endpoint: Option<String>,
    pub device_authorization_endpoint: Option<String>,
}

pub struct Provider {
    pub endpoints: Endpoints,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// An answer that is no token.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Refusal {
    #[serde(default)]
    pub error: String,
    #[serde(default)]
    error_description: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.error_description.as_str() {
            "" => write!(f, "{}", self.error),
            why => write!(f, "{} ({why})", self.error),
        }
    }
}

impl Provider {
    pub async fn discover(issuer: &str, authority: Option<&Path>) -> anyhow::Result<Provider> {
        ensure!(issuer.starts_with("https://"), "--issuer-url must begin with https://");
        let trusted = match authority {
            Some(path) => {
                let pem = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
                trust::bundle(&pem).with_context(|| format!("read {}", path.display()))?
            }
            None => trust::system(),
        };
        let tls = trust::client(trusted).context("load CAs")?.with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        let client = Client::builder(TokioExecutor::new()).build(HttpsConnector::from((connector, tls)));
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let request = http::Request::get(&url).body(Full::default())?;
        let (code, body) = answer(&client, request).await.with_context(|| format!("GET {url}"))?;
        ensure!(code == 200, "GET {url}: answered with code {code}");
        let endpoints: Endpoints = serde_json::from_slice(&body).with_context(|| format!("read answer of {url}"))?;
        ensure!(endpoints.issuer == issuer, "the provider calls itself {:?}, not {issuer:?}", endpoints.issuer);
        let others = [&endpoints.authorization_endpoint, &endpoints.device_authorization_endpoint];
        for endpoint in others.into_iter().flatten().chain([&endpoints.token_endpoint]) {
            ensure!(endpoint.starts_with("https://"), "the provider names {endpoint:?}, which is not https");
        }
        Ok(Provider { endpoints, client })
    }

    /// What the token endpoint has for that, checked but for the nonce.
    pub async fn token(&self, wanted: &Wanted, form: &[(&str, &str)]) -> anyhow::Result<Kept> {
        match self.try_token(wanted, form).await? {
            Ok(kept) => Ok(kept),
            Err(refusal) => bail!("the provider refuses: {refusal}"),
        }
    }

    /// The same, for those whom a refusal tells something.
    pub async fn try_token(&self, wanted: &Wanted, form: &[(&str, &str)]) -> anyhow::Result<Result<Kept, Refusal>> {
        let (code, body) = self.post(&self.endpoints.token_endpoint, wanted, form).await?;
        if code != 200 {
            let refusal: Refusal = serde_json::from_slice(&body).unwrap_or_default();
            let named = Refusal { error: format!("code {code}"), ..Refusal::default() };
            return Ok(Err(if refusal.error.is_empty() { named } else { refusal }));
        }
        let kept: Kept = serde_json::from_slice(&body).context("the provider answers without an id token")?;
        let claims = Claims::parse(&kept.id_token).context("the provider answers with something that is no token")?;
        claims.check(&self.endpoints.issuer, &wanted.client_id, None, Timestamp::now())?;
        Ok(Ok(kept))
    }

    pub async fn post(&self, url: &str, wanted: &Wanted, form: &[(&str, &str)]) -> anyhow::Result<(u16, Bytes)> {
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(form).append_pair("client_id", &wanted.client_id);
        if let Some(secret) = &wanted.client_secret {
            body.append_pair("client_secret", secret);
        }
        let request = http::Request::post(url)
            .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(http::header::ACCEPT, "application/json")
            .body(Full::from(body.finish()))?;
        answer(&self.client, request).await.with_context(|| format!("POST {url}"))
    }
}

async fn answer(
    client: &Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    request: http::Request<Full<Bytes>>,
) -> anyhow::Result<(u16, Bytes)> {
    let whole = async {
        let answer = client.request(request).await?;
        let code = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), BODY_MAX).collect().await;
        Ok((code, body.map_err(|error| anyhow::anyhow!(error)).context("read the answer")?.to_bytes()))
    };
    tokio::time::timeout(TIMEOUT, whole).await.unwrap_or_else(|_| bail!("no answer within {TIMEOUT:?}"))
}
