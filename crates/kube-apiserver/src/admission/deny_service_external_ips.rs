//! DenyServiceExternalIPs: nobody may claim further addresses for a Service; those it has may stay or go.

use machinery::status::Status;
use serde_json::Value;

use super::{Operation, Plugin, Request};

pub struct DenyServiceExternalIps;

#[async_trait::async_trait]
impl Plugin for DenyServiceExternalIps {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let Some(service) = object.filter(|_| writes && request.is("", "services")) else { return Ok(()) };
        if claims_more(service, request.old) {
            return Err(request.forbidden(Some(service), "Use of external IPs is denied by admission control"));
        }
        Ok(())
    }
}

fn claims_more(new: &Value, old: Option<&Value>) -> bool {
    let had = old.map_or(&[][..], addresses);
    addresses(new).iter().any(|address| !had.contains(address))
}

fn addresses(service: &Value) -> &[Value] {
    service.pointer("/spec/externalIPs").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_new_addresses_are_denied() {
        let service = |ips: &[&str]| json!({"spec": {"externalIPs": ips}});
        assert!(!claims_more(&json!({"spec": {}}), None));
        assert!(claims_more(&service(&["192.0.2.1"]), None));
        assert!(!claims_more(&service(&["192.0.2.1"]), Some(&service(&["192.0.2.2", "192.0.2.1"]))));
        assert!(claims_more(&service(&["192.0.2.3"]), Some(&service(&["192.0.2.2"]))));
    }
}
