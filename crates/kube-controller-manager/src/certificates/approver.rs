//! The requests of kubelets that may have what they ask for are approved.

use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;
use reconcile::{Error, Key, Plan, Write};

use super::addresses::{self, Taken};
use super::node_key::{self, Claim, Verdict};
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
    if key.namespace == node_key::NAMESPACE {
        return node_key::reconcile(cx, key);
    }
    let Some(request) = cx.cache::<CertificateSigningRequest>().get(key) else { return Ok(Plan::nothing()) };
    for recognized in recognize(&request) {
        if !may(cx, &request, recognized).await? {
            continue;
        }
        return match recognized.subresource {
            "selfnodeserver" => Ok(serving(cx, &request)),
            _ => Ok(client(cx, &request, recognized)),
        };
    }
    Ok(Plan::nothing())
}

/// A serving certificate for addresses that are not proven waits for somebody who approves it by hand.
fn serving(cx: &Context, object: &CertificateSigningRequest) -> Plan {
    let Ok(parsed) = request::parse(&object.spec.request.0) else { return Plan::nothing() };
    let taken = Taken::by_others(cx, node_of(&parsed));
    if addresses::are_own(&parsed.addresses, object, &taken) {
        Plan::one(approve(object, SERVING, cx.now()))
    } else {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        tracing::warn!(name, addresses = ?parsed.addresses, "not approving kubelet serving certificate: its addresses are not verified");
        Plan::nothing()
    }
}

/// A client certificate goes to the machine that the name belongs to.
fn client(cx: &Context, object: &CertificateSigningRequest, recognized: Recognized) -> Plan {
    if !cx.settings.bind_node_names {
        return Plan::one(approve(object, recognized, cx.now()));
    }
    let Ok(parsed) = request::parse(&object.spec.request.0) else { return Plan::nothing() };
    let node = node_of(&parsed);
    let annotations = object.metadata.annotations.clone().unwrap_or_default();
    let shown = node_key::shown(&annotations, &object.spec.request.0);
    let kept =
        cx.cache_where::<Secret>(node_key::SECRETS).get(&Key::new(node_key::NAMESPACE, node_key::secret_name(node)));
    let verdict = node_key::judge(&Claim {
        own: recognized == SELF,
        shown: shown.as_deref(),
        kept: kept.as_deref(),
        node_exists: cx.cache::<Node>().get(&Key::new("", node)).is_some(),
        now: cx.now(),
    });
    match (verdict, &shown) {
        (Verdict::Deny(message), _) => Plan::one(deny(object, message, cx.now())),
        // First the binding: where somebody else was faster it fails, and everything is looked at again.
        (Verdict::Bind, Some(hash)) => {
            let mut plan = Plan::one(node_key::write(node, hash, kept.as_deref()));
            plan.writes.push(approve(object, recognized, cx.now()));
            plan
        }
        (Verdict::Bind | Verdict::Approve, _) => Plan::one(approve(object, recognized, cx.now())),
    }
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

/// A node may not ask for the name of another host, nor for one that every host has.
fn names_only_itself(request: &Parsed) -> bool {
    request.dns_names.iter().all(|host| host == node_of(request) && !is_of_servers(host))
}

/// By these the API server is reached.
fn is_of_servers(host: &str) -> bool {
    host == "localhost" || host == "kubernetes" || host.starts_with("kubernetes.default")
}

fn node_of(request: &Parsed) -> &str {
    request.common_name.strip_prefix("system:node:").unwrap_or_default()
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
    decide(object, "Approved", "AutoApproved", recognized.message, now)
}

fn deny(object: &CertificateSigningRequest, message: &str, now: Timestamp) -> Write {
    decide(object, "Denied", "NodeNameTaken", message, now)
}

fn decide(object: &CertificateSigningRequest, kind: &str, reason: &str, message: &str, now: Timestamp) -> Write {
    let mut object = object.clone();
    let time = Some(Time(seconds(now)));
    object.status.get_or_insert_default().conditions.get_or_insert_default().push(CertificateSigningRequestCondition {
        type_: kind.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: time.clone(),
        last_transition_time: time,
    });
    Write::update_sub(&object, "approval").accept(&["NotFound"])
}
