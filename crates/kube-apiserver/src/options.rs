//! What an operator of an API server alone decides beyond what a cluster of our own needs; the defaults are that cluster's.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::authn::FrontProxy;
use crate::authz::Mode;

#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Who issues the tokens of service accounts; tokens of all but the first are only believed.
    pub issuers: Vec<String>,
    /// For whom tokens must be meant; the issuers where it is empty.
    pub audiences: Vec<String>,
    pub node_ports: RangeInclusive<u16>,
    pub anonymous: bool,
    pub bootstrap_tokens: bool,
    pub authorization: Vec<Mode>,
    /// Admission plugins that do not run, by upstream's names.
    pub admission_off: BTreeSet<String>,
    /// Whether pods may have privileged containers.
    pub allow_privileged: bool,
    pub front_proxy: FrontProxy,
    /// Which of a node's addresses its kubelet is asked at.
    pub kubelet_address_types: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            issuers: vec!["https://kubernetes.default.svc.cluster.local".into()],
            audiences: Vec::new(),
            node_ports: 30000..=32767,
            anonymous: true,
            bootstrap_tokens: true,
            authorization: vec![Mode::Node, Mode::Rbac],
            admission_off: BTreeSet::new(),
            allow_privileged: true,
            front_proxy: FrontProxy::default(),
            kubelet_address_types: ["InternalIP", "ExternalIP", "Hostname"].map(str::to_owned).into(),
        }
    }
}
