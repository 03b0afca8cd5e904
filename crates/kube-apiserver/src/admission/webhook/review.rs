//! AdmissionReview: what is sent, and what may come back. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::status::{Cause, Details, Status};
use serde_json::{Value, json};

const GROUP: &str = "admission.k8s.io";
/// What a reason is told by, if Kubernetes has it; others stay in the message.
const REASONS: &[&str] = &[
    "Unauthorized",
    "Forbidden",
    "NotFound",
    "AlreadyExists",
    "Conflict",
    "Gone",
    "Invalid",
    "ServerTimeout",
    "Timeout",
    "TooManyRequests",
    "BadRequest",
    "MethodNotAllowed",
    "NotAcceptable",
    "RequestEntityTooLarge",
    "UnsupportedMediaType",
    "InternalError",
    "Expired",
    "ServiceUnavailable",
];

/// The body of a review. `request` says everything but the objects.
pub fn review(version: &str, uid: &str, mut request: Value, object: &Value, old: &Value) -> Value {
    request["uid"] = uid.into();
    request["object"] = object.clone();
    request["oldObject"] = old.clone();
    json!({"kind": "AdmissionReview", "apiVersion": format!("{GROUP}/{version}"), "request": request})
}

/// A good answer.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    pub allowed: bool,
    pub status: Value,
    pub patch: Option<Value>,
    pub warnings: Vec<String>,
    pub annotations: Vec<(String, String)>,
}

/// What is wrong with an answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    #[error("webhook response was absent")]
    NoResponse,
    #[error("expected response.uid={expected:?}, got {found:?}")]
    Uid { expected: String, found: String },
    #[error("expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {got}, Kind={kind}")]
    Review { got: String, kind: String },
    #[error("webhook returned response.patch but not response.patchType")]
    NoPatchType,
    #[error("webhook returned response.patchType but not response.patch")]
    NoPatch,
    #[error("unsupported patch type {0:?}")]
    PatchType(String),
    #[error("validating webhook may not return response.patch")]
    ValidatingPatch,
    #[error("validating webhook may not return response.patchType")]
    ValidatingPatchType,
    #[error("response.patch: {0}")]
    Base64(#[from] base64::DecodeError),
    #[error("response.patch: {0}")]
    Json(#[from] serde_json::Error),
    #[error("response.patch: a JSON patch is a list of operations")]
    NoOperations,
}

/// Reads an answer; what is wrong with it is told in upstream's words.
pub fn read(version: &str, uid: &str, mutating: bool, review: &Value) -> Result<Answer, AnswerError> {
    let response = &review["response"];
    if !response.is_object() {
        return Err(AnswerError::NoResponse);
    }
    let text = |value: &Value| value.as_str().unwrap_or("").to_string();
    let is_v1 = version == "v1";
    if is_v1 {
        if response["uid"] != uid {
            return Err(AnswerError::Uid { expected: uid.into(), found: text(&response["uid"]) });
        }
        let (api_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
        if api_version != format!("{GROUP}/v1") || kind != "AdmissionReview" {
            let got = if api_version.is_empty() { "/".into() } else { api_version };
            return Err(AnswerError::Review { got, kind });
        }
    }
    let patch = text(&response["patch"]);
    let patch_type = response["patchType"].as_str();
    match (mutating, patch.is_empty(), patch_type) {
        (true, false, None) if is_v1 => return Err(AnswerError::NoPatchType),
        (true, true, Some(_)) if is_v1 => {
            return Err(AnswerError::NoPatch);
        }
        (true, false, Some(other)) if other != "JSONPatch" => return Err(AnswerError::PatchType(other.into())),
        (false, false, _) if is_v1 => return Err(AnswerError::ValidatingPatch),
        (false, _, Some(_)) if is_v1 => return Err(AnswerError::ValidatingPatchType),
        _ => {}
    }
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
    };
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    Ok(Answer {
        allowed: response["allowed"].as_bool().unwrap_or(false),
        status: response["status"].clone(),
        patch: if mutating && !patch.is_empty() { Some(decoded(&patch)?) } else { None },
        warnings: texts(&response["warnings"]),
        annotations: annotations.map(|(key, value)| (key.clone(), text(value))).collect(),
    })
}

fn decoded(patch: &str) -> Result<Value, AnswerError> {
    let bytes = STANDARD.decode(patch)?;
    let patch: Value = serde_json::from_slice(&bytes)?;
    match patch {
        Value::Array(_) => Ok(patch),
        // As Go writes a list without operations.
        Value::Null => Ok(json!([])),
        _ => Err(AnswerError::NoOperations),
    }
}

/// What the client is told when a webhook refused.
pub fn refusal(webhook: &str, status: &Value) -> Status {
    let text = |field: &str| status[field].as_str().unwrap_or("");
    let code =
        status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| (400..600).contains(code));
    let denied = format!("admission webhook {webhook:?} denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let reason = REASONS.iter().find(|reason| **reason == text("reason")).copied().unwrap_or("");
    Status { details: details(&status["details"]), ..Status::new(code.unwrap_or(400), reason, message) }
}

fn details(details: &Value) -> Option<Details> {
    details.as_object()?;
    let text = |of: &Value, field: &str| of[field].as_str().unwrap_or("").to_string();
    let causes = details["causes"].as_array().into_iter().flatten().map(|cause| Cause {
        reason: text(cause, "reason"),
        message: text(cause, "message"),
        field: text(cause, "field"),
    });
    Some(Details {
        name: text(details, "name"),
        group: text(details, "group"),
        kind: text(details, "kind"),
        uid: text(details, "uid"),
        causes: causes.collect(),
        retry_after_seconds: details["retryAfterSeconds"].as_u64().and_then(|seconds| u32::try_from(seconds).ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(response: Value) -> Value {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
    }

    #[test]
    fn bad_answers_are_told_in_upstreams_words() {
        let check = |version: &str, mutating: bool, review: Value, expected: &str| {
            let found = read(version, "u", mutating, &review).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(found, expected, "{review}");
        };
        let patch = STANDARD.encode("[]");
        check("v1", true, json!({}), "webhook response was absent");
        check("v1", true, answer(json!({"uid": "x"})), "expected response.uid=\"u\", got \"x\"");
        let got = "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=";
        check("v1", true, json!({"response": {"uid": "u"}}), got);
        let half = "webhook returned response.patch but not response.patchType";
        check("v1", true, answer(json!({"uid": "u", "patch": patch})), half);
        let half = "webhook returned response.patchType but not response.patch";
        check("v1", true, answer(json!({"uid": "u", "patchType": "JSONPatch"})), half);
        let other = answer(json!({"uid": "u", "patch": patch, "patchType": "Merge"}));
        check("v1", true, other.clone(), "unsupported patch type \"Merge\"");
        check("v1", false, other, "validating webhook may not return response.patch");
        let kind = answer(json!({"uid": "u", "patchType": "JSONPatch"}));
        check("v1", false, kind, "validating webhook may not return response.patchType");
        let text = answer(json!({"uid": "u", "patch": STANDARD.encode("{}"), "patchType": "JSONPatch"}));
        check("v1", true, text, "response.patch: a JSON patch is a list of operations");
        // The older version checks neither.
        check("v1beta1", true, json!({"response": {"allowed": true, "patch": patch}}), "");
    }

    #[test]
    fn refusals_say_who_refused() {
        let check = |status: Value, code: u16, reason: &str, message: &str| {
            let found = refusal("a.b.c", &status);
            let expected = format!("admission webhook \"a.b.c\" denied the request{message}");
            assert_eq!((found.code, found.reason, found.message), (code, reason, expected));
        };
        check(Value::Null, 400, "", " without explanation");
        check(json!({"message": "no", "code": 403, "reason": "Forbidden"}), 403, "Forbidden", ": no");
        check(json!({"reason": "Because"}), 400, "", ": Because");
        check(json!({"message": "fine", "code": 200}), 400, "", ": fine");
    }
}
