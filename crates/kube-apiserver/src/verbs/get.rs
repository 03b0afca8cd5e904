//! `get`: one object, from memory.

use std::time::Duration;

use machinery::status::Status;
use store::Revision;

use crate::call::Call;
use crate::respond::{self, Reply};
use crate::write::store_status;

/// How long a client that names a revision waits for it, as upstream.
pub(crate) const REVISION_TIMEOUT: Duration = Duration::from_secs(3);

pub async fn get(call: &Call) -> Result<Reply, Status> {
    let resource = &call.resource;
    let state = resource.state()?;
    let key = resource.key(&call.target.namespace, &call.target.name)?;
    match revision(call.query.get("resourceVersion"))? {
        None => {
            call.app.cache.fresh().await.map_err(store_status)?;
        }
        Some(Revision(0)) => {}
        Some(revision) => call.app.cache.wait_for(revision, REVISION_TIMEOUT).await.map_err(store_status)?,
    }
    match state.get(&key) {
        Some(item) => respond::stored(call, resource, 200, &item.value, Some(item.revision.0)).await,
        None => {
            let damaged = state.damaged().into_iter().find(|(damaged, _)| damaged.as_ref() == key);
            Err(match damaged {
                Some((key, why)) => crate::write::undecodable(&key, &why),
                None => crate::write::missing(resource, &key, &call.target.name),
            })
        }
    }
}

/// A resourceVersion parameter; none where it is not given.
pub fn revision(text: &str) -> Result<Option<Revision>, Status> {
    match text {
        "" => Ok(None),
        text => match text.parse() {
            Ok(number) => Ok(Some(Revision(number))),
            Err(_) => Err(Status::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
            ))),
        },
    }
}
