//! TokenRequest, the body of a service account's `token` subresource. It is never stored, so it has no entry in the
//! table of kinds; the subresource calls these functions.

use machinery::field::Errors;
use machinery::node::Node;
use machinery::object::set_default;
use serde_json::Value;

const EXPIRATION_SECONDS: i64 = 3600;
const EXPIRATION_SECONDS_MIN: i64 = 600;
const EXPIRATION_SECONDS_MAX: i64 = 1 << 32;

pub fn defaults(request: &mut Value) {
    machinery::object::child_mut(request, "spec");
    set_default(&mut request["spec"], "expirationSeconds", EXPIRATION_SECONDS);
}

pub fn validate(request: &Node, errors: &mut Errors) {
    let expiration = request.at("spec").at("expirationSeconds");
    let seconds = expiration.int().unwrap_or(0);
    let detail = match seconds {
        ..EXPIRATION_SECONDS_MIN => "may not specify a duration less than 10 minutes",
        EXPIRATION_SECONDS_MIN..=EXPIRATION_SECONDS_MAX => return,
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    errors.invalid_value(&expiration.path, &seconds.into(), detail);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(mut request: Value, expected: &[&str]) {
        defaults(&mut request);
        let mut errors = Errors::default();
        validate(&Node::root(&request), &mut errors);
        let found: Vec<String> = errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn tokens_live_an_hour_and_at_least_ten_minutes() {
        check(json!({}), &[]);
        check(json!({"spec": {"expirationSeconds": 600}}), &[]);
        let short = "spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes";
        check(json!({"spec": {"expirationSeconds": 60}}), &[short]);
        let long =
            "spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds";
        check(json!({"spec": {"expirationSeconds": 4294967297i64}}), &[long]);
    }
}
