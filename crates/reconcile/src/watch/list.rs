//! All objects of a kind as lists of bounded size, for servers that do not send them with the watch.

use kube::Client;
use kube::api::ListParams;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Change, Failure, SILENCE, Taker, Watched};

/// How many objects are asked for at a time, as client-go.
const PAGE: u32 = 500;

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta,
    /// An empty list may be written as null, or not at all.
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

/// Hands on every object and answers the revision from where a watch goes on.
pub(super) async fn list(client: &Client, watched: &Watched, taker: &mut dyn Taker) -> Result<u64, Failure> {
    let (mut limit, mut token) = (PAGE, String::new());
    _ = taker.take(Change::Listing);
    let revision = loop {
        let text = match page(client, watched, limit, &token).await {
            Ok(text) => text,
            Err(failure) if failure.is_expired() && !token.is_empty() => {
                // What is left was forgotten meanwhile; in one piece it cannot be.
                (limit, token) = (0, String::new());
                _ = taker.take(Change::Listing);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let page: Page = serde_json::from_str(&text).map_err(Failure::UnreadableList)?;
        for object in page.items.iter().flatten() {
            if let Err(error) = taker.take(Change::Listed(object.get())) {
                tracing::warn!(kind = watched.kind, %error, "skipping object that cannot be decoded");
            }
        }
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => token = next,
            None => break page.metadata.resource_version.and_then(|version| version.parse().ok()).unwrap_or(0),
        }
    };
    _ = taker.take(Change::Complete);
    Ok(revision)
}

async fn page(client: &Client, watched: &Watched, limit: u32, token: &str) -> Result<String, Failure> {
    let mut params = ListParams::default();
    if !watched.fields.is_empty() {
        params = params.fields(&watched.fields);
    }
    if !watched.labels.is_empty() {
        params = params.labels(&watched.labels);
    }
    if limit > 0 {
        params = params.limit(limit);
    }
    if !token.is_empty() {
        params = params.continue_token(token);
    }
    let request = kube::core::Request::new(watched.path.as_str()).list(&params).map_err(kube::Error::BuildRequest)?;
    let answer = tokio::time::timeout(SILENCE, client.request_text(request)).await;
    Ok(answer.map_err(|_| Failure::Silent)??)
}
