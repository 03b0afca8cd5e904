//! Devices for administrators (`adminAccess`) are given only where the namespace says so, since they may be in use by others.
//! Upstream asks this while it validates claims; here it is one more question of admission, with the same answer.

use machinery::field::{Errors, FieldError, Problem};
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;

use super::{Operation, Plugin, Request};

const GROUP: &str = "resource.k8s.io";
const LABEL: &str = "resource.kubernetes.io/admin-access";

pub struct AdminAccess;

#[async_trait::async_trait]
impl Plugin for AdminAccess {
    fn name(&self) -> &'static str {
        "DRAAdminAccess"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let kind = &request.resource.kind;
        let Some(object) = object.filter(|_| kind.group == GROUP) else { return Ok(()) };
        let asked = match (kind.plural, request.operation, request.subresource) {
            // The requests of what is there cannot be changed.
            ("resourceclaims", Operation::Create, "") => of_requests(&object["spec"]),
            ("resourceclaimtemplates", Operation::Create, "") => of_requests(&object["spec"]["spec"]),
            ("resourceclaims", Operation::Update, "status") => of_results(object, request.old),
            _ => None,
        };
        let Some(field) = asked else { return Ok(()) };
        let namespace = request.app.views.one("namespaces", "", object.namespace());
        let label =
            namespace.as_ref().and_then(|namespace| namespace.pointer("/metadata/labels")?.get(LABEL)?.as_str());
        if label == Some("true") {
            return Ok(());
        }
        let why = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
        let mut errors = Errors::default();
        errors.push(FieldError::new(Problem::Forbidden, field, "", why));
        Err(Status::invalid(kind.group, kind.kind, object.name(), &errors))
    }
}

/// The first request that asks for it. Older versions have no `exactly`. A template's is named as a claim's, as upstream.
fn of_requests(spec: &Value) -> Option<String> {
    let requests = spec["devices"]["requests"].as_array()?;
    let asks = |request: &Value| request["exactly"]["adminAccess"] == true || request["adminAccess"] == true;
    let index = requests.iter().position(asks)?;
    Some(format!("spec.devices.requests[{index}].adminAccess"))
}

/// The first device that is given so, unless some were already: what was given stays.
fn of_results(object: &Value, old: Option<&Value>) -> Option<String> {
    let first = |object: &Value| {
        let results = object.pointer("/status/allocation/devices/results")?.as_array()?;
        results.iter().position(|result| result["adminAccess"] == true)
    };
    if old.and_then(first).is_some() {
        return None;
    }
    Some(format!("status.allocation.devices.results[{}].adminAccess", first(object)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_who_asks_for_it_is_asked_for_the_label() {
        let spec = |request: Value| json!({"devices": {"requests": [{"exactly": {"deviceClassName": "a"}}, request]}});
        let field = Some("spec.devices.requests[1].adminAccess".to_owned());
        assert_eq!(of_requests(&spec(json!({"exactly": {"adminAccess": true}}))), field);
        assert_eq!(of_requests(&spec(json!({"adminAccess": true}))), field);
        assert_eq!(of_requests(&spec(json!({"exactly": {"adminAccess": false}}))), None);
        let given =
            |access: bool| json!({"status": {"allocation": {"devices": {"results": [{"adminAccess": access}]}}}});
        assert!(of_results(&given(true), Some(&given(false))).is_some());
        assert_eq!(of_results(&given(true), Some(&given(true))), None);
        assert_eq!(of_results(&given(false), None), None);
    }
}
