//! The requests of kubelets that may have what they ask for are approved.

use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;
use reconcile::{Error, Key, Plan, Write};

use super::request::{self, KUBELET_CLIENT, KUBELET_SERVING, Parsed, has_condition, is_issued};
use crate::Context;
use crate::common::conditions::seconds;

/// What a kubelet may be allowed to get approved, and what is said then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recognized {
    pub subresource: &'static str,
    pub message: &'static str,
}

const SELF: Recognized = Recognized {
    subresource: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
const OTHER: Recognized = Recognized {
    subresource: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};
/// Upstream leaves serving certificates to whoever runs the cluster; here it is whoever may create `selfnodeserver`.
const SERVING: Recognized = Recognized {
    subresource: "selfnodeserver",
    message: "Auto approving self kubelet serving certificate after SubjectAccessReview.",
};

pub(super) async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, Error> {
    let Some(request) = cx.cache::<CertificateSigningRequest>().get(key) else { return Ok(Plan::nothing()) };
    for recognized in recognize(&request) {
        if may(cx, &request, recognized).await? {
            return Ok(Plan::one(approve(&request, recognized, cx.now())));
        }
    }
    Ok(Plan::nothing())
}

/// The permissions any of which would do.
pub(super) fn recognize(object: &CertificateSigningRequest) -> Vec<Recognized> {
    let settled = is_issued(object) || has_condition(object, "Approved") || has_condition(object, "Denied");
    if settled {
        return Vec::new();
    }
    let Ok(parsed) = request::parse(&object.spec.request.0) else { return Vec::new() };
    let usages = object.spec.usages.as_deref().unwrap_or_default();
    if request::refusal(&object.spec.signer_name, usages, &parsed).is_some() {
        return Vec::new();
    }
    let own = object.spec.username.as_deref() == Some(&parsed.common_name);
    match object.spec.signer_name.as_str() {
        KUBELET_CLIENT if own => vec![SELF, OTHER],
        KUBELET_CLIENT => vec![OTHER],
        KUBELET_SERVING if own && names_only_itself(&parsed) => vec![SERVING],
        _ => Vec::new(),
    }
}

/// A node may not ask for the name of another host.
fn names_only_itself(request: &Parsed) -> bool {
    let name = request.common_name.strip_prefix("system:node:").unwrap_or_default();
    request.dns_names.iter().all(|host| host == name || host == "localhost")
}

async fn may(cx: &Context, object: &CertificateSigningRequest, recognized: Recognized) -> Result<bool, Error> {
    let spec = SubjectAccessReviewSpec {
        user: object.spec.username.clone(),
        uid: object.spec.uid.clone(),
        groups: object.spec.groups.clone(),
        extra: object.spec.extra.clone(),
        resource_attributes: Some(ResourceAttributes {
            group: Some("certificates.k8s.io".into()),
            resource: Some("certificatesigningrequests".into()),
            verb: Some("create".into()),
            subresource: Some(recognized.subresource.into()),
            version: Some("*".into()),
            ..ResourceAttributes::default()
        }),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let answer = Api::all(cx.client.clone()).create(&PostParams::default(), &review).await;
    let answer = answer.map_err(|error| Error::api("review the access of a kubelet", error))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

pub(super) fn approve(object: &CertificateSigningRequest, recognized: Recognized, now: Timestamp) -> Write {
    let mut object = object.clone();
    let time = Some(Time(seconds(now)));
    object.status.get_or_insert_default().conditions.get_or_insert_default().push(CertificateSigningRequestCondition {
        type_: "Approved".into(),
        status: "True".into(),
        reason: Some("AutoApproved".into()),
        message: Some(recognized.message.into()),
        last_update_time: time.clone(),
        last_transition_time: time,
    });
    Write::update_sub(&object, "approval").accept(&["NotFound"])
}
