//! Certificate signing requests: kubelets' own are approved, what is approved is signed, what is old is removed.

mod addresses;
mod authority;
mod cleaner;
mod der;
pub mod node_key;
mod pod_cleaner;
mod request;
mod approver;
mod signer;
#[cfg(test)]
mod tests;

use futures::FutureExt;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;
use k8s_openapi::api::core::v1::{Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
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

/// Besides, for the keys of nodes. They are bound in kube-system only, by whoever wants names bound to keys.
static APPROVING_RULES: &[Rule] = &[
    RULES[0],
    RULES[1],
    RULES[2],
    RULES[3],
    RULES[4],
    Rule { groups: &[""], resources: &["secrets"], verbs: &["create", "update", "delete"] },
];

pub(crate) static APPROVING: Controller = Controller {
    name: "certificatesigningrequest-approving-controller",
    account: "certificate-controller",
    source: "certificate-controller",
    rules: APPROVING_RULES,
    work: Work::Keys {
        wakes: &[
            &WAKE,
            &On::every(|_, node: &Node| vec![node_key::key_of_node(node)]),
            &On::selected(node_key::SECRETS, |_, secret: &Secret| vec![Key::of(&secret.metadata)]),
            // Only looked at.
            &On::every(|_, _: &Service| Vec::new()),
            &On::every(|_, _: &EndpointSlice| Vec::new()),
        ],
        workers_max: 5,
        reconcile: |cx, key| approver::reconcile(cx, key).boxed(),
    },
};

pub(crate) static SIGNING: Controller = Controller {
    name: "certificatesigningrequest-signing-controller",
    account: "certificate-controller",
    source: "certificate-controller",
    rules: RULES,
    work: Work::Keys { wakes: &[&WAKE], workers_max: 5, reconcile: |cx, key| signer::reconcile(cx, key).boxed() },
};

/// Where the gate PodCertificateRequest is open.
pub(crate) static POD_CLEANER: Controller = Controller {
    name: "podcertificaterequest-cleaner-controller",
    account: "podcertificaterequestcleaner",
    source: "podcertificaterequestcleaner",
    rules: &[Rule {
        groups: &["certificates.k8s.io"],
        resources: &["podcertificaterequests"],
        verbs: &["get", "list", "watch", "delete"],
    }],
    work: Work::Keys {
        wakes: &[&On::every(|_, request: &PodCertificateRequest| vec![Key::of(&request.metadata)])],
        workers_max: 1,
        reconcile: |cx, key| pod_cleaner::reconcile(cx, key).boxed(),
    },
};

pub(crate) static CLEANER: Controller = Controller {
    name: "certificatesigningrequest-cleaner-controller",
    account: "certificate-controller",
    source: "certificate-controller",
    rules: RULES,
    work: Work::Keys { wakes: &[&WAKE], workers_max: 1, reconcile: |cx, key| cleaner::reconcile(cx, key).boxed() },
};
