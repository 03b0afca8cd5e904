//! Certificate signing requests: kubelets' own are approved, what is approved is signed, what is old is removed.

mod authority;
mod cleaner;
mod der;
mod request;
mod approver;
mod signer;
#[cfg(test)]
mod tests;

use futures::FutureExt;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use reconcile::{Key, On, Rule, Work};

use crate::{Config, Controller};

pub use authority::{SigningAuthorities, SigningAuthority};

static RULES: &[Rule] = &[
    Rule {
        groups: &["certificates.k8s.io"],
        resources: &["certificatesigningrequests"],
        verbs: &["get", "list", "watch", "delete"],
    },
    Rule {
        groups: &["certificates.k8s.io"],
        resources: &["certificatesigningrequests/approval", "certificatesigningrequests/status"],
        verbs: &["update"],
    },
    Rule { groups: &["certificates.k8s.io"], resources: &["signers"], verbs: &["approve", "sign"] },
    Rule { groups: &["authorization.k8s.io"], resources: &["subjectaccessreviews"], verbs: &["create"] },
    Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
];

static WAKE: On<Config, CertificateSigningRequest> =
    On::every(|_, request: &CertificateSigningRequest| vec![Key::of(&request.metadata)]);

pub(crate) static APPROVING: Controller = Controller {
    name: "certificatesigningrequest-approving-controller",
    account: "certificate-controller",
    source: "certificate-controller",
    rules: RULES,
    work: Work::Keys { wakes: &[&WAKE], workers_max: 5, reconcile: |cx, key| approver::reconcile(cx, key).boxed() },
};

pub(crate) static SIGNING: Controller = Controller {
    name: "certificatesigningrequest-signing-controller",
    account: "certificate-controller",
    source: "certificate-controller",
    rules: RULES,
    work: Work::Keys { wakes: &[&WAKE], workers_max: 5, reconcile: |cx, key| signer::reconcile(cx, key).boxed() },
};

pub(crate) static CLEANER: Controller = Controller {
    name: "certificatesigningrequest-cleaner-controller",
    account: "certificate-controller",
    source: "certificate-controller",
    rules: RULES,
    work: Work::Keys { wakes: &[&WAKE], workers_max: 1, reconcile: |cx, key| cleaner::reconcile(cx, key).boxed() },
};
