//! Approved requests are signed with the cluster's authority, or fail with the reason why not.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use reconcile::{Error, Key, Plan, Write};

use super::authority::{SignError, SigningAuthorities};
use super::request::{self, has_condition, is_issued};
use crate::Context;
use crate::common::conditions::seconds;

pub(super) async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, Error> {
    let Some(request) = cx.cache::<CertificateSigningRequest>().get(key) else { return Ok(Plan::nothing()) };
    let plan = plan(&cx.settings.signing_authorities, cx.settings.signing_duration, &request, cx.now());
    plan.map_err(|why| Error::Other(format!("sign {key}: {why}")))
}

pub(super) fn plan(
    authorities: &SigningAuthorities,
    longest: Duration,
    object: &CertificateSigningRequest,
    now: Timestamp,
) -> Result<Plan, SignError> {
    let Some(authority) = authorities.of(&object.spec.signer_name) else { return Ok(Plan::nothing()) };
    let refused = has_condition(object, "Denied") || has_condition(object, "Failed");
    if refused || is_issued(object) || !has_condition(object, "Approved") {
        return Ok(Plan::nothing());
    }
    let usages = object.spec.usages.as_deref().unwrap_or_default();
    let parsed = match request::parse(&object.spec.request.0) {
        Ok(parsed) => parsed,
        Err(why) => return Ok(fail(object, &format!("unable to parse csr: {why}"), now)),
    };
    if let Some(why) = request::refusal(&object.spec.signer_name, usages, &parsed) {
        return Ok(fail(object, why, now));
    }
    let asked = object.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let lasts = asked.map_or(longest, |seconds| Duration::from_secs(seconds).min(longest));
    let certificate = authority.sign(&parsed, usages, lasts, now)?;
    let mut object = object.clone();
    object.status.get_or_insert_default().certificate = Some(ByteString(certificate.into_bytes()));
    Ok(Plan::one(Write::update_sub(&object, "status").accept(&["NotFound"])))
}

fn fail(object: &CertificateSigningRequest, why: &str, now: Timestamp) -> Plan {
    let mut object = object.clone();
    let time = Some(Time(seconds(now)));
    object.status.get_or_insert_default().conditions.get_or_insert_default().push(CertificateSigningRequestCondition {
        type_: "Failed".into(),
        status: "True".into(),
        reason: Some("SignerValidationFailure".into()),
        message: Some(why.into()),
        last_update_time: time.clone(),
        last_transition_time: time,
    });
    Plan::one(Write::update_sub(&object, "status").accept(&["NotFound"]))
}
