//! Who answers a PodCertificateRequest must be allowed to sign for its signer, and the certificate must be of now. Upstream asks this
//! while it validates the status; here it is one more question of admission, with the same answers.

use jiff::{SignedDuration, Timestamp};
use machinery::field::{Errors, FieldError, Problem};
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;

use super::{Plugin, Request, certificates};

/// How far the clocks of signer and server may be apart.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

pub struct PodCertificates;

#[async_trait::async_trait]
impl Plugin for PodCertificates {
    fn name(&self) -> &'static str {
        "PodCertificateRequestSigning"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let of_status =
            request.is_for("certificates.k8s.io", "podcertificaterequests") && request.subresource == "status";
        let (Some(old), Some(new)) = (request.old, object.filter(|_| of_status)) else { return Ok(()) };
        if old["status"] == new["status"] {
            return Ok(());
        }
        let mut errors = Errors::default();
        let signer = old.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or("");
        if !certificates::may(request, "sign", signer).await {
            let why = format!("User {:?} is not permitted to \"sign\" for signer {signer:?}", request.user.name);
            errors.push(FieldError::new(Problem::Forbidden, "spec.signerName", "", why));
        } else if let Some(from) = issued_from(old, new).filter(|from| !is_near(*from, request.app.clock.now())) {
            let shown = new.pointer("/status/notBefore").map(Value::to_string).unwrap_or_else(|| from.to_string());
            let why = "must be set to within 5 minutes of kube-apiserver's current time";
            errors.push(FieldError::new(Problem::Invalid, "status.notBefore", shown, why));
        }
        if errors.is_empty() {
            return Ok(());
        }
        let kind = &request.resource.kind;
        Err(Status::invalid(kind.group, kind.kind, new.name(), &errors))
    }
}

/// From when a certificate is valid that is given now.
fn issued_from(old: &Value, new: &Value) -> Option<Timestamp> {
    let is_issued = |object: &Value| {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|one| one["type"] == "Issued" && one["status"] == "True")
    };
    let from = new.pointer("/status/notBefore").and_then(Value::as_str)?;
    from.parse().ok().filter(|_| is_issued(new) && !is_issued(old))
}

fn is_near(one: Timestamp, other: Timestamp) -> bool {
    one.duration_since(other).abs() < SKEW
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_certificate_that_is_new_must_be_of_now() {
        let from = "2026-01-01T00:00:00Z";
        let issued = json!({"status": {"notBefore": from, "conditions": [{"type": "Issued", "status": "True"}]}});
        let time: Timestamp = from.parse().expect("a time");
        assert_eq!(issued_from(&json!({}), &issued), Some(time));
        assert_eq!(issued_from(&issued, &issued), None);
        assert_eq!(issued_from(&json!({}), &json!({"status": {"notBefore": from}})), None);
        assert!(
            is_near(time, time + SignedDuration::from_secs(299))
                && is_near(time, time - SignedDuration::from_secs(299))
        );
        assert!(!is_near(time, time + SKEW) && !is_near(time, time - SKEW));
    }
}
