//! Earlier states of an object, as far back as the store keeps its history. Whoever asks has been authorized as for a `get`.

use std::time::Duration;

use futures::StreamExt;
use machinery::status::Status;
use serde_json::Value;
use store::{Event, Revision, StoreError};

use crate::app::App;

/// So many are read at most; newer ones push older ones out.
const REVISIONS_MAX: usize = 200;

/// Newest first, and whether the oldest is the object's creation.
pub async fn of(
    app: &App,
    (group, version, plural): (&str, &str, &str),
    namespace: &str,
    name: &str,
    timeout: Duration,
) -> Result<(Vec<(u64, Value)>, bool), Status> {
    let resource = app.table.load().get(group, version, plural).cloned().ok_or_else(Status::no_such_resource)?;
    let key = resource.key(namespace, name)?;
    let mut states = match tokio::time::timeout(timeout, changes(app, &key)).await {
        Ok(states) => states.map_err(|error| Status::unavailable(error.to_string()))?,
        Err(_) => Vec::new(),
    };
    // What has not changed for longer than the history lasts is at least what it is now.
    if let Some(item) = resource.state()?.get(&key)
        && states.last().is_none_or(|(revision, ..)| *revision < item.revision)
    {
        states.push((item.revision, item.value.clone(), false));
    }
    let complete = states.first().is_some_and(|(_, _, created)| *created);
    let mut shown = Vec::new();
    for (revision, value, _) in states.into_iter().rev() {
        let mut object: Value = serde_json::from_slice(&value).map_err(|error| Status::internal(error.to_string()))?;
        machinery::object::Meta::meta_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
        shown.push((revision.0, resource.conversion.show(app, object).await?));
    }
    Ok((shown, complete))
}

/// A value, when it was written, and whether that made the object.
type State = (Revision, bytes::Bytes, bool);

/// Every value of the key that the history knows, oldest first.
async fn changes(app: &App, key: &str) -> Result<Vec<State>, StoreError> {
    let store = app.cache.store();
    let newest = store.revision().await?;
    let mut after = Revision(0);
    loop {
        let stream = match store.watch_from(after).await {
            Ok(stream) => stream,
            Err(StoreError::Compacted { oldest, .. }) if oldest > after => {
                after = oldest;
                continue;
            }
            Err(error) => return Err(error),
        };
        match read(stream, key, newest).await {
            Err(StoreError::Compacted { oldest, .. }) if oldest > after => after = oldest,
            outcome => return outcome,
        }
    }
}

async fn read(
    mut events: futures::stream::BoxStream<'static, Result<Vec<Event>, StoreError>>,
    key: &str,
    newest: Revision,
) -> Result<Vec<State>, StoreError> {
    let mut states: Vec<State> = Vec::new();
    let mut seen = Revision(0);
    while seen < newest {
        let Some(batch) = events.next().await else { break };
        for event in batch? {
            seen = event.revision;
            if *event.key != *key {
                continue;
            }
            let is_new = event.previous.is_none();
            if let Some((value, revision)) = event.previous.filter(|_| states.is_empty()) {
                states.push((revision, value, false));
            }
            match event.value {
                Some(value) => states.push((event.revision, value, is_new)),
                // Another object had this name: what comes is a life of its own.
                None => states.clear(),
            }
            if states.len() > REVISIONS_MAX {
                states.remove(0);
            }
        }
    }
    Ok(states)
}
