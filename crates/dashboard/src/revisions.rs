//! Earlier states of an object, as far back as the store keeps them.

use machinery::status::Status;
use serde_json::{Value, json};

use crate::Dashboard;
use crate::insight::{Named, Revision};
use crate::serve::Query;
use crate::session::SignedIn;

const REVISIONS_MAX: usize = 100;
/// All objects together; what is older is left out.
const BYTES_MAX: usize = 8 * 1024 * 1024;

pub(crate) async fn answer(dashboard: &Dashboard, signed_in: &SignedIn, query: &Query) -> Result<Value, Status> {
    let Some(revisions) = &dashboard.config.revisions else {
        let message =
            "earlier revisions are kept by the store of a knarr server, which this dashboard does not run beside";
        return Err(Status::new(501, "NotImplemented", message));
    };
    let object = Named::new(query.kind(), query.get("namespace"), query.get("name"));
    let (found, complete) = revisions.of(&signed_in.user, &object).await?;
    Ok(shown(found, complete))
}

fn shown(found: Vec<Revision>, mut complete: bool) -> Value {
    let (mut list, mut bytes) = (Vec::new(), 0);
    for one in found {
        bytes += one.object.to_string().len();
        if list.len() >= REVISIONS_MAX || bytes > BYTES_MAX {
            complete = false;
            break;
        }
        let (time, manager) = last_change(&one.object);
        list.push(
            json!({"revision": one.revision.to_string(), "time": time, "manager": manager, "object": one.object}),
        );
    }
    json!({"revisions": list, "complete": complete})
}

/// Who wrote last and when, as far as managed fields say.
fn last_change(object: &Value) -> (Option<&str>, Option<&str>) {
    let fields = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let newest = fields.iter().max_by_key(|one| one["time"].as_str().unwrap_or_default());
    match newest {
        Some(newest) => (newest["time"].as_str(), newest["manager"].as_str()),
        None => (object["metadata"]["creationTimestamp"].as_str(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_come_first_and_the_rest_is_said_to_be_missing() {
        let one = |revision| Revision {
            revision,
            object: json!({"metadata": {"managedFields": [
            {"manager": "old", "time": "2026-01-01T00:00:00Z"}, {"manager": "kubectl", "time": "2026-01-02T00:00:00Z"}]}}),
        };
        let few = shown(vec![one(9), one(5)], true);
        assert_eq!((few["complete"].clone(), few["revisions"][0]["manager"].clone()), (json!(true), json!("kubectl")));
        let many = shown((0..150).rev().map(one).collect(), true);
        assert_eq!(
            (many["complete"].clone(), many["revisions"].as_array().unwrap().len()),
            (json!(false), REVISIONS_MAX)
        );
    }
}
