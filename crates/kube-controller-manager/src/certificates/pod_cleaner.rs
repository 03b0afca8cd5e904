//! Requests for certificates of pods are removed after a quarter of an hour, decided or not: kubelets have read them by then.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::{Error, Key, Plan, Write};

use crate::Context;

const KEPT: SignedDuration = SignedDuration::from_mins(15);

pub(super) async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, Error> {
    let Some(request) = cx.cache::<PodCertificateRequest>().get(key) else { return Ok(Plan::nothing()) };
    Ok(plan(&request, cx.now()))
}

fn plan(request: &PodCertificateRequest, now: Timestamp) -> Plan {
    let Some(created) = &request.metadata.creation_timestamp else { return Plan::nothing() };
    match Duration::try_from((created.0 + KEPT).duration_since(now)) {
        Ok(left) if !left.is_zero() => Plan::after(left),
        Ok(_) | Err(_) => Plan::one(Write::delete(request, DeleteOptions::default())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn they_go_after_a_quarter_of_an_hour() {
        let object = json!({"metadata": {"name": "r", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {
            "signerName": "", "podName": "", "podUID": "", "serviceAccountName": "", "serviceAccountUID": "", "nodeName": "",
            "nodeUID": "", "stubPKCS10Request": "",
        }});
        let request: PodCertificateRequest = serde_json::from_value(object).expect("a request");
        let at = |time: &str| plan(&request, time.parse().expect("a time"));
        let early = at("2026-01-01T00:14:00Z");
        assert_eq!((early.writes.len(), early.again), (0, Some(Duration::from_secs(60))));
        assert_eq!(at("2026-01-01T00:15:00Z").writes.len(), 1);
    }
}
