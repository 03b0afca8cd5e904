//! Requests that nobody needs any more are removed: long settled ones, and those that nobody cared about.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::{Error, Key, Plan, Write};

use super::request::{conditions, is_issued};
use crate::Context;

const SETTLED: SignedDuration = SignedDuration::from_hours(1);
const PENDING: SignedDuration = SignedDuration::from_hours(24);

pub(super) async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, Error> {
    let Some(request) = cx.cache::<CertificateSigningRequest>().get(key) else { return Ok(Plan::nothing()) };
    Ok(plan(&request, cx.now()))
}

pub(super) fn plan(request: &CertificateSigningRequest, now: Timestamp) -> Plan {
    let Some(end) = ends(request) else { return Plan::nothing() };
    match Duration::try_from(end.duration_since(now)) {
        Ok(left) if !left.is_zero() => Plan::after(left),
        Ok(_) | Err(_) => Plan::one(Write::delete(request, DeleteOptions::default())),
    }
}

/// When the request is to go.
fn ends(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let settled = conditions(request).filter(|one| ["Approved", "Denied", "Failed"].contains(&one.type_.as_str()));
    let settled = settled.filter_map(|one| one.last_update_time.as_ref().map(|time| time.0 + SETTLED)).min();
    let pending = request.metadata.creation_timestamp.as_ref().map(|created| created.0 + PENDING);
    let end = settled.or(pending.filter(|_| conditions(request).next().is_none()))?;
    Some(expires(request).map_or(end, |expires| expires.min(end)))
}

fn expires(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let pem = request.status.as_ref().filter(|_| is_issued(request))?.certificate.as_ref()?;
    let (_, block) = x509_parser::pem::parse_x509_pem(&pem.0).ok()?;
    let certificate = block.parse_x509().ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}
