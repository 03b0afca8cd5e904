//! A list of whole objects that is kept up to date, for what is small: one object, its events.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use http::{HeaderValue, Method};
use machinery::status::Status;
use serde_json::Value;

use crate::table::row::each;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;
const RETRY: Duration = Duration::from_secs(2);
/// What may not be watched is asked for so often.
const POLL: Duration = Duration::from_secs(5);

/// One step of what is told.
pub(crate) enum Change {
    /// Everything there is; what was told before counts no more.
    All(Vec<Value>),
    Put(Value),
    Gone(Value),
    Failed(Status),
}

/// Follows a list until `tell` says that nobody listens. `path` has its query, which selects few objects.
pub(crate) async fn follow(client: &kube::Client, path: &str, tell: &mut (dyn AsyncTell + Send)) {
    loop {
        match once(client, path, tell).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(status) if status.code == 410 => {}
            Err(status) => {
                if !tell.tell(Change::Failed(status)).await {
                    return;
                }
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

#[async_trait::async_trait]
pub(crate) trait AsyncTell {
    async fn tell(&mut self, change: Change) -> bool;
}

async fn once(client: &kube::Client, path: &str, tell: &mut (dyn AsyncTell + Send)) -> Result<bool, Status> {
    let list = crate::ask::get(client, path).await?;
    let mut revision = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string();
    if !tell.tell(Change::All(each(&list["items"]).cloned().collect())).await {
        return Ok(false);
    }
    let (api_version, kind) =
        (list["apiVersion"].clone(), list["kind"].as_str().unwrap_or_default().replace("List", ""));
    loop {
        let joint = if path.contains('?') { '&' } else { '?' };
        let watched = format!(
            "{path}{joint}watch=true&allowWatchBookmarks=true&resourceVersion={}",
            crate::ask::segment(&revision)
        );
        let answer = match crate::ask::send(client, Method::GET, &watched, JSON, None).await {
            Ok(answer) => answer,
            Err(status) if matches!(status.code, 403 | 405) => {
                tokio::time::sleep(POLL).await;
                return Ok(true);
            }
            Err(status) => return Err(status),
        };
        let mut lines = pin!(crate::body::lines(answer.into_body(), EVENT_BYTES_MAX));
        while let Some(line) = lines.next().await {
            let broken = |why: String| Status::unavailable(format!("the watch broke: {why}"));
            let line = line.map_err(|error| broken(error.to_string()))?;
            let mut event: Value = serde_json::from_slice(&line).map_err(|error| broken(error.to_string()))?;
            let mut object = event["object"].take();
            if event["type"] == "ERROR" {
                let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
                return Err(Status::new(code, "Expired", object["message"].as_str().unwrap_or_default()));
            }
            if let Some(seen) = object["metadata"]["resourceVersion"].as_str() {
                revision = seen.to_string();
            }
            if object.get("kind").is_none() {
                (object["kind"], object["apiVersion"]) = (kind.clone().into(), api_version.clone());
            }
            let change = match event["type"].as_str().unwrap_or_default() {
                "BOOKMARK" => continue,
                "DELETED" => Change::Gone(object),
                _ => Change::Put(object),
            };
            if !tell.tell(change).await {
                return Ok(false);
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
