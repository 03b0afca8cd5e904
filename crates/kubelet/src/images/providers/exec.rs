//! Asks a credential provider: its program is started with the request on its input, and answers on its output.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::Provider;

/// As upstream.
const TIME_MAX: Duration = Duration::from_secs(60);
/// More than any credentials are.
const OUTPUT_MAX: u64 = 1 << 20;
/// What of its complaints is told.
const COMPLAINT_MAX: usize = 1024;

pub(super) struct Request<'a> {
    pub image: &'a str,
    pub token: &'a str,
    pub annotations: &'a BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum CacheKey {
    Image,
    Registry,
    Global,
}

#[derive(Debug)]
pub(super) struct Response {
    pub cache_key: CacheKey,
    pub cache_duration: Option<Duration>,
    /// Credentials by the images they are for.
    pub auth: Map<String, Value>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ExecError {
    #[error("error execing credential provider plugin {name} for image {image}: {source}")]
    Start { name: String, image: String, source: std::io::Error },
    #[error("error execing credential provider plugin {name} for image {image}: {status}: {complaint}")]
    Failed { name: String, image: String, status: ExitStatus, complaint: String },
    #[error("error execing credential provider plugin {name} for image {image}: context deadline exceeded")]
    Late { name: String, image: String },
    #[error("error decoding credential provider plugin response from stdout")]
    Decode(#[source] serde_json::Error),
    #[error(
        "apiVersion from credential plugin response did not match expected apiVersion:{expected}, actual apiVersion:{found}"
    )]
    Version { expected: String, found: String },
    #[error("failed to decode CredentialProviderResponse, unexpected Kind: {0:?}")]
    Kind(String),
    #[error("cacheDuration of the response is no duration: {0:?}")]
    Duration(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    api_version: String,
    kind: String,
    cache_key_type: CacheKey,
    #[serde(default)]
    cache_duration: Option<String>,
    #[serde(default)]
    auth: Option<BTreeMap<String, Auth>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct Auth {
    username: String,
    password: String,
}

pub(super) async fn run(folder: &Path, provider: &Provider, request: Request<'_>) -> Result<Response, ExecError> {
    let (name, image) = (provider.name.clone(), request.image.to_owned());
    let output = match tokio::time::timeout(TIME_MAX, output(folder, provider, &request)).await {
        Ok(output) => output.map_err(|source| ExecError::Start { name: name.clone(), image: image.clone(), source })?,
        Err(_) => return Err(ExecError::Late { name, image }),
    };
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.complaint).trim().to_owned();
        return Err(ExecError::Failed { name, image, status: output.status, complaint });
    }
    decode(&provider.api_version, &output.answer)
}

struct Output {
    status: ExitStatus,
    answer: Vec<u8>,
    complaint: Vec<u8>,
}

/// The program is ended when nobody waits for it any more.
async fn output(folder: &Path, provider: &Provider, request: &Request<'_>) -> std::io::Result<Output> {
    let mut child = Command::new(folder.join(&provider.name))
        .args(&provider.args)
        .envs(provider.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (mut input, answer, complaint) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let question = encode(&provider.api_version, request).to_string();
    let write = async {
        // A program that does not read its input may answer all the same.
        if let Some(mut input) = input.take() {
            let _ = input.write_all(question.as_bytes()).await;
        }
    };
    let complain = async {
        let mut text = read_complaint(complaint).await?;
        text.truncate(COMPLAINT_MAX);
        std::io::Result::Ok(text)
    };
    let ((), answer, complaint) = tokio::join!(write, read_at_most(answer, OUTPUT_MAX), complain);
    Ok(Output { answer: answer?, complaint: complaint?, status: child.wait().await? })
}

async fn read_at_most(stream: Option<tokio::process::ChildStdout>, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

async fn read_complaint(stream: Option<tokio::process::ChildStderr>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(OUTPUT_MAX).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

fn encode(api_version: &str, request: &Request) -> Value {
    let mut question = json!({"kind": "CredentialProviderRequest", "apiVersion": api_version, "image": request.image});
    if !request.token.is_empty() {
        question["serviceAccountToken"] = json!(request.token);
    }
    if !request.annotations.is_empty() {
        question["serviceAccountAnnotations"] = json!(request.annotations);
    }
    question
}

fn decode(expected: &str, answer: &[u8]) -> Result<Response, ExecError> {
    let written: Written = serde_json::from_slice(answer).map_err(ExecError::Decode)?;
    if written.api_version != expected {
        return Err(ExecError::Version { expected: expected.to_owned(), found: written.api_version });
    }
    if written.kind != "CredentialProviderResponse" {
        return Err(ExecError::Kind(written.kind));
    }
    let duration = |text: String| machinery::duration::parse_positive(&text).map_err(|_| ExecError::Duration(text));
    let auth = written.auth.unwrap_or_default().into_iter();
    Ok(Response {
        cache_key: written.cache_key_type,
        cache_duration: written.cache_duration.map(duration).transpose()?,
        auth: auth.map(|(key, auth)| (key, json!({"username": auth.username, "password": auth.password}))).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::settings::V1;
    use super::*;

    #[test]
    fn answers_are_read_or_refused() {
        let check = |text: &str, expected: &str| {
            let shown = match decode(V1, text.as_bytes()) {
                Ok(response) => {
                    format!("{:?} {:?} {}", response.cache_key, response.cache_duration, response.auth.len())
                }
                Err(error) => error.to_string(),
            };
            assert_eq!(shown, expected, "{text}");
        };
        let head = format!("\"apiVersion\":\"{V1}\",\"kind\":\"CredentialProviderResponse\"");
        check(
            &format!(
                "{{{head},\"cacheKeyType\":\"Registry\",\"cacheDuration\":\"1m0s\",\"auth\":{{\"a\":{{\"username\":\"u\",\"password\":\"p\"}}}}}}"
            ),
            "Registry Some(60s) 1",
        );
        check(&format!("{{{head},\"cacheKeyType\":\"Global\"}}"), "Global None 0");
        let garbage = "error decoding credential provider plugin response from stdout";
        check(&format!("{{{head},\"cacheKeyType\":\"Never\"}}"), garbage);
        check("", garbage);
        check(
            "{\"apiVersion\":\"v2\",\"kind\":\"CredentialProviderResponse\",\"cacheKeyType\":\"Image\"}",
            "apiVersion from credential plugin response did not match expected apiVersion:credentialprovider.kubelet.k8s.io/v1, actual apiVersion:v2",
        );
    }
}
