//! Asks one endpoint of a registry: requests, credentials, and errors in the words that containerd's users know.

use std::collections::HashMap;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, RANGE, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Method, Response, StatusCode};

use super::Credentials;
use super::error::ImageError;
use super::registries::{Endpoint, is_loopback};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const TRIES_MAX: u32 = 4;
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
const TOKEN_BYTES_MAX: usize = 1 << 20;
const MESSAGE_BYTES_MAX: usize = 16 << 10;

pub(crate) struct Client {
    http: reqwest::Client,
    pub endpoint: Endpoint,
    authorization: parking_lot::Mutex<Option<HeaderValue>>,
    silence_max: Duration,
}

/// What went wrong with a request, before a caller gives it a place.
#[derive(Debug)]
pub(crate) enum RequestError {
    NotFound,
    /// The registry answered and does not give it.
    Refused(String),
    /// There was no answer to speak of.
    Unreachable(String),
    Silent(String),
}

impl RequestError {
    pub fn into_error(self, what: &str) -> ImageError {
        match self {
            RequestError::NotFound => ImageError::NotFound(what.to_owned()),
            RequestError::Refused(message) | RequestError::Unreachable(message) => ImageError::Registry(message),
            RequestError::Silent(message) => ImageError::Silent(message),
        }
    }
}

impl Client {
    pub fn new(endpoint: Endpoint, silence_max: Duration) -> Result<Client, ImageError> {
        let http = build(&endpoint)?;
        let authorization = endpoint
            .credentials
            .as_ref()
            .filter(|credentials| !credentials.registry_token.is_empty())
            .and_then(|credentials| secret(format!("Bearer {}", credentials.registry_token)));
        Ok(Client { http, endpoint, authorization: authorization.into(), silence_max })
    }

    /// Asks for `/manifests/...` or `/blobs/...` of the repository. Credentials are fetched when asked for, and a registry
    /// that is busy is asked again.
    pub async fn request(&self, method: Method, path: &str, accept: &str, from: u64) -> Result<Response, RequestError> {
        let mut url = format!("{}/{}{path}", self.endpoint.base, self.endpoint.repository);
        if let Some(registry) = &self.endpoint.on_behalf_of {
            url = format!("{url}?ns={registry}");
        }
        let mut authorized = false;
        for attempt in 1.. {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_str(accept).unwrap_or(HeaderValue::from_static("*/*")));
            if from > 0 {
                headers.extend(HeaderValue::from_str(&format!("bytes={from}-")).ok().map(|range| (RANGE, range)));
            }
            let authorization = self.authorization.lock().clone();
            headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
            let response = self.send(self.http.request(method.clone(), &url).headers(headers), &method, &url).await?;
            match response.status() {
                StatusCode::UNAUTHORIZED if !authorized => {
                    authorized = true;
                    let authorization = self.authorize(&response).await?;
                    *self.authorization.lock() = authorization;
                }
                status if is_busy(status) && attempt < TRIES_MAX => {
                    let pause =
                        retry_after(&response).unwrap_or(Duration::from_millis(200 << attempt)).min(RETRY_AFTER_MAX);
                    tracing::debug!(%url, %status, ?pause, "registry is busy; retrying after a pause");
                    tokio::time::sleep(pause).await;
                }
                StatusCode::NOT_FOUND => return Err(RequestError::NotFound),
                status if status.is_success() => return Ok(response),
                _ => return Err(self.unexpected(&method, &url, response).await),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Reads a whole body that must not be longer than so many bytes.
    pub async fn body(&self, mut response: Response, bytes_max: usize) -> Result<Vec<u8>, RequestError> {
        let url = response.url().to_string();
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(&mut response).await? {
            if body.len() + chunk.len() > bytes_max {
                return Err(RequestError::Refused(format!("{url}: answer is longer than {bytes_max} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// The next piece of a body, which must not take forever.
    pub async fn chunk(&self, response: &mut Response) -> Result<Option<bytes::Bytes>, RequestError> {
        match tokio::time::timeout(self.silence_max, response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => {
                Err(RequestError::Unreachable(format!("{}: {}", response.url(), explain(&error, &self.endpoint.host))))
            }
            Err(_) => Err(self.silent(response.url().as_str())),
        }
    }

    async fn send(
        &self,
        request: reqwest::RequestBuilder,
        method: &Method,
        url: &str,
    ) -> Result<Response, RequestError> {
        let verb = match method.as_str() {
            "HEAD" => "Head",
            "POST" => "Post",
            _ => "Get",
        };
        match tokio::time::timeout(self.silence_max, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(RequestError::Unreachable(format!(
                "failed to do request: {verb} {url:?}: {}",
                explain(&error, &self.endpoint.host)
            ))),
            Err(_) => Err(self.silent(url)),
        }
    }

    fn silent(&self, url: &str) -> RequestError {
        RequestError::Silent(format!(
            "{url}: no progress for {} seconds: deadline exceeded",
            self.silence_max.as_secs_f64()
        ))
    }

    async fn unexpected(&self, method: &Method, url: &str, response: Response) -> RequestError {
        let status = response.status();
        let status = format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default());
        let body = self.body(response, MESSAGE_BYTES_MAX).await.unwrap_or_default();
        let message = server_message(&body).map(|message| format!(" - Server message: {message}")).unwrap_or_default();
        RequestError::Refused(format!("unexpected status from {method} request to {url}: {}{message}", status.trim()))
    }

    /// Answers the registry's challenge.
    async fn authorize(&self, response: &Response) -> Result<Option<HeaderValue>, RequestError> {
        let challenges: Vec<Challenge> = response
            .headers()
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| Challenge::parse(value.to_str().ok()?))
            .collect();
        let denied = |why: &str| {
            RequestError::Refused(format!(
                "pull access denied, repository does not exist or may require authorization: {why}"
            ))
        };
        if let Some(bearer) = challenges.iter().find(|challenge| challenge.scheme == "bearer") {
            return self.token(bearer).await.map(Some);
        }
        if !challenges.iter().any(|challenge| challenge.scheme == "basic") {
            return Ok(None);
        }
        match &self.endpoint.credentials {
            Some(credentials) if !credentials.username.is_empty() => Ok(basic(credentials)),
            _ => Err(denied("authorization failed: no basic auth credentials")),
        }
    }

    async fn token(&self, challenge: &Challenge) -> Result<HeaderValue, RequestError> {
        let field = |name: &str| challenge.parameters.get(name).map(String::as_str).filter(|value| !value.is_empty());
        let failed = |what: &str| RequestError::Refused(format!("failed to authorize: {what}"));
        let realm = field("realm").ok_or_else(|| failed("no realm specified for token auth challenge"))?;
        let mut url = reqwest::Url::parse(realm)
            .map_err(|error| failed(&format!("invalid token auth challenge realm: {error}")))?;
        let scope =
            field("scope").map_or_else(|| format!("repository:{}:pull", self.endpoint.repository), str::to_owned);
        let credentials = self.endpoint.credentials.as_ref().filter(|credentials| !credentials.password.is_empty());
        if credentials.is_some() && url.scheme() == "http" && self.endpoint.base.starts_with("https:") {
            return Err(failed("token realm is not encrypted while the registry is"));
        }
        let (kind, method, request) = match credentials {
            Some(credentials) if credentials.username.is_empty() => {
                let form = [
                    ("grant_type", "refresh_token"),
                    ("service", field("service").unwrap_or_default()),
                    ("client_id", "knarr"),
                    ("scope", &scope),
                    ("refresh_token", &credentials.password),
                ];
                let form =
                    form.iter().map(|(key, value)| format!("{key}={}", encode(value))).collect::<Vec<_>>().join("&");
                let request =
                    self.http.post(url.clone()).header("content-type", "application/x-www-form-urlencoded").body(form);
                ("oauth", Method::POST, request)
            }
            credentials => {
                {
                    let mut query = url.query_pairs_mut();
                    field("service").map(|service| query.append_pair("service", service));
                    query.append_pair("scope", &scope);
                }
                let request = self.http.get(url.clone());
                match credentials.and_then(basic) {
                    Some(value) => ("oauth", Method::GET, request.header(AUTHORIZATION, value)),
                    None => ("anonymous", Method::GET, request),
                }
            }
        };
        let prefix = format!("failed to fetch {kind} token");
        let in_place = |error: RequestError| match error {
            RequestError::Refused(message) => failed(&format!("{prefix}: {message}")),
            RequestError::Unreachable(message) => {
                RequestError::Unreachable(format!("failed to authorize: {prefix}: {message}"))
            }
            RequestError::Silent(message) => RequestError::Silent(format!("failed to authorize: {prefix}: {message}")),
            RequestError::NotFound => failed(&prefix),
        };
        let response = self.send(request, &method, url.as_str()).await.map_err(in_place)?;
        if !response.status().is_success() {
            return Err(in_place(self.unexpected(&method, url.as_str(), response).await));
        }
        let body = self.body(response, TOKEN_BYTES_MAX).await.map_err(in_place)?;
        #[derive(serde::Deserialize)]
        struct Answer {
            token: Option<String>,
            access_token: Option<String>,
        }
        let answer: Answer = serde_json::from_slice(&body).map_err(|error| failed(&format!("{prefix}: {error}")))?;
        let token =
            answer.token.or(answer.access_token).ok_or_else(|| failed(&format!("{prefix}: no token in the answer")))?;
        secret(format!("Bearer {token}"))
            .ok_or_else(|| failed(&format!("{prefix}: the token is not a valid header value")))
    }
}

fn build(endpoint: &Endpoint) -> Result<reqwest::Client, ImageError> {
    let wrong = |what: &str, error: &dyn std::fmt::Display| {
        ImageError::Registry(format!("{what} of registry {:?}: {error}", endpoint.host))
    };
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|error| wrong("tls", &format_args!("failed to read {}: {error}", path.display())))
    };
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("knarr/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .tls_danger_accept_invalid_certs(endpoint.tls.insecure_skip_verify);
    if is_loopback(&endpoint.host) {
        builder = builder.no_proxy();
    }
    let identity = match (&endpoint.tls.cert_file, &endpoint.tls.key_file) {
        (Some(certificate), Some(key)) => Some(trust::Identity { certificate: read(certificate)?, key: read(key)? }),
        _ => None,
    };
    match &endpoint.tls.ca_file {
        Some(path) if !endpoint.tls.insecure_skip_verify => {
            let config = tls(&read(path)?, identity.as_ref()).map_err(|error| wrong("ca_file", &error))?;
            builder = builder.tls_backend_preconfigured(config);
        }
        _ => {
            if let Some(trust::Identity { certificate, key }) = identity {
                let pem = [key, b"\n".to_vec(), certificate].concat();
                let identity = reqwest::Identity::from_pem(&pem).map_err(|error| wrong("cert_file", &error))?;
                builder = builder.identity(identity);
            }
        }
    }
    builder.build().map_err(|error| wrong("client", &error))
}

/// Trusts the system's authorities and those of the bundle, or a registry whose own certificate stands there.
fn tls(bundle: &[u8], identity: Option<&trust::Identity>) -> Result<rustls::ClientConfig, trust::Error> {
    let mut trusted = trust::system();
    trusted.extend(trust::bundle(bundle)?);
    let mut config = trust::client_config(trusted, identity)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// `Bearer realm="...",service="..."`
#[derive(Debug, PartialEq)]
struct Challenge {
    scheme: String,
    parameters: HashMap<String, String>,
}

impl Challenge {
    fn parse(text: &str) -> Option<Challenge> {
        let (scheme, mut rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let mut parameters = HashMap::new();
        while let Some((key, value)) = rest.split_once('=') {
            let key = key.trim_matches([' ', ',']).to_ascii_lowercase();
            let (value, next) = match value.strip_prefix('"') {
                Some(quoted) => {
                    let end = quoted.find('"')?;
                    (&quoted[..end], &quoted[end + 1..])
                }
                None => value.split_once(',').unwrap_or((value, "")),
            };
            parameters.insert(key, value.to_owned());
            rest = next;
        }
        Some(Challenge { scheme: scheme.to_ascii_lowercase(), parameters })
    }
}

fn basic(credentials: &Credentials) -> Option<HeaderValue> {
    use base64::Engine as _;
    let pair = format!("{}:{}", credentials.username, credentials.password);
    secret(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair)))
}

fn secret(text: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn is_busy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

fn retry_after(response: &Response) -> Option<Duration> {
    response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// `{"errors":[{"code":"TOOMANYREQUESTS","message":"..."}]}`
fn server_message(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let message = |error: &serde_json::Value| {
        let code = error["code"].as_str().unwrap_or_default().to_lowercase().replace('_', " ");
        let text = error["message"].as_str().unwrap_or_default();
        Some(format!("{code}: {text}")).filter(|text| text.len() > 2)
    };
    let messages: Vec<String> = body["errors"].as_array()?.iter().filter_map(message).collect();
    (!messages.is_empty()).then(|| messages.join("; "))
}

/// Why there was no answer, in the words that Go programs have for it.
fn explain(error: &reqwest::Error, host: &str) -> String {
    let mut texts = Vec::new();
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = source {
        texts.push(error.to_string());
        source = error.source();
    }
    explain_texts(&texts, host, error.is_timeout())
}

fn explain_texts(texts: &[String], host: &str, timed_out: bool) -> String {
    let all = texts.join(": ");
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    const KNOWN: [(&str, &str); 13] = [
        ("Connection refused", "dial tcp {host}: connect: connection refused"),
        ("No route to host", "dial tcp {host}: connect: no route to host"),
        ("Network is unreachable", "dial tcp {host}: connect: network is unreachable"),
        ("dns error", "dial tcp: lookup {name}: no such host"),
        ("failed to lookup address", "dial tcp: lookup {name}: no such host"),
        ("UnknownIssuer", "tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        (
            "certificate not valid for name",
            "tls: failed to verify certificate: x509: certificate is not valid for {name}",
        ),
        ("expired", "tls: failed to verify certificate: x509: certificate has expired or is not yet valid"),
        ("fatal alert: BadCertificate", "remote error: tls: bad certificate"),
        ("fatal alert: CertificateRequired", "remote error: tls: certificate required"),
        ("fatal alert: HandshakeFailure", "remote error: tls: handshake failure"),
        ("InvalidContentType", "http: server gave HTTP response to HTTPS client"),
        ("Connection reset", "read tcp {host}: connection reset by peer"),
    ];
    match KNOWN.iter().find(|(sign, _)| all.contains(sign)) {
        Some((_, words)) => words.replace("{host}", host).replace("{name}", name),
        None if timed_out => format!("dial tcp {host}: i/o timeout"),
        None => texts.last().cloned().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let challenge =
            Challenge::parse(r#"Bearer realm="https://a/token",service="r,x", scope="repository:a:pull",error=bad"#)
                .unwrap();
        assert_eq!(challenge.scheme, "bearer");
        let get = |key: &str| challenge.parameters[key].as_str();
        assert_eq!(
            [get("realm"), get("service"), get("scope"), get("error")],
            ["https://a/token", "r,x", "repository:a:pull", "bad"]
        );
        assert_eq!(Challenge::parse("Basic").unwrap().scheme, "basic");
        assert!(Challenge::parse(r#"Bearer realm="x"#).is_none());
    }

    #[test]
    fn errors_are_in_known_words() {
        let check = |texts: &[&str], expected: &str| {
            let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
            assert_eq!(explain_texts(&texts, "example.com:5000", false), expected);
        };
        check(
            &["error", "tcp connect error", "Connection refused (os error 111)"],
            "dial tcp example.com:5000: connect: connection refused",
        );
        check(&["client error (Connect)", "dns error"], "dial tcp: lookup example.com: no such host");
        check(&["a", "received fatal alert: BadCertificate"], "remote error: tls: bad certificate");
        check(&["a", "something else"], "something else");
        assert_eq!(
            server_message(br#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#).as_deref(),
            Some("toomanyrequests: slow down")
        );
        assert_eq!(server_message(b"<html>"), None);
    }
}
