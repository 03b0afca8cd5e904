//! The certificates the control plane holds for itself: who they are for, and when they are due again.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use jiff::Timestamp;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::authority::{Authority, Pair, Request, Usage};
use super::{Error, Material, Options};

/// The user that this server is for kubelets.
pub const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// What the API server shows to its clients.
    Serving,
    /// What the API server shows to kubelets.
    KubeletClient,
    /// What the API server shows to aggregated API servers.
    FrontProxyClient,
    Admin,
    ControllerManager,
    Scheduler,
}

impl Leaf {
    pub const ALL: [Leaf; 6] = [
        Leaf::Serving,
        Leaf::KubeletClient,
        Leaf::FrontProxyClient,
        Leaf::Admin,
        Leaf::ControllerManager,
        Leaf::Scheduler,
    ];

    /// The name of its two files, as kubeadm names them.
    fn file(self) -> &'static str {
        match self {
            Leaf::Serving => "apiserver",
            Leaf::KubeletClient => "apiserver-kubelet-client",
            Leaf::FrontProxyClient => "front-proxy-client",
            Leaf::Admin => "admin",
            Leaf::ControllerManager => "controller-manager",
            Leaf::Scheduler => "scheduler",
        }
    }

    pub(super) fn subject(self) -> (&'static str, Option<&'static str>) {
        match self {
            Leaf::Serving => ("kube-apiserver", None),
            // What it may do there, a role says: a kubelet's answer must not make the server do more in its own name.
            Leaf::KubeletClient => (KUBELET_CLIENT, None),
            Leaf::FrontProxyClient => ("front-proxy-client", None),
            Leaf::Admin => ("system:admin", Some("system:masters")),
            Leaf::ControllerManager => ("system:kube-controller-manager", None),
            Leaf::Scheduler => ("system:kube-scheduler", None),
        }
    }

    pub(super) fn authority(self, material: &Material) -> &Authority {
        match self {
            Leaf::FrontProxyClient => &material.front_proxy_ca,
            _ => &material.cluster_ca,
        }
    }

    pub(super) fn read(self, dir: &Path) -> Option<Pair> {
        Pair::read(dir, self.file())
    }

    pub(super) fn issue(self, material: &Material, options: &Options, now: Timestamp) -> Result<Pair, Error> {
        let (common_name, organization) = self.subject();
        let (host_names, addresses, usage) = match self {
            Leaf::Serving => {
                let (names, addresses) = names(options);
                (names.into_iter().collect(), addresses.into_iter().collect(), Usage::Server)
            }
            _ => (Vec::new(), Vec::new(), Usage::Client),
        };
        let request = Request { common_name, organization, host_names, addresses, usage };
        let pair = self.authority(material).issue(&request, now)?;
        pair.write(&material.dir, self.file())?;
        Ok(pair)
    }

    pub(super) fn is_due(self, pair: &Pair, authority: &Authority, options: &Options, now: Timestamp) -> bool {
        // Where the authority ends first, a new certificate would end no later than this one: nothing is gained.
        let worn = now >= pair.renew_at() && (pair.not_after < authority.not_after || now >= pair.not_after);
        let early = now < pair.not_before;
        // Older versions gave it to somebody else.
        let other = pair.organization().as_deref() != self.subject().1;
        worn || early
            || other
            || !is_signed_by(pair, authority)
            || (self == Leaf::Serving && names_of(pair) != names(options))
    }
}

/// Every name and every address under which clients reach the API server, each once.
fn names(options: &Options) -> (BTreeSet<String>, BTreeSet<IpAddr>) {
    let service = format!("kubernetes.default.svc.{}", options.cluster_domain);
    let fixed = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", &service, "localhost"];
    let names = fixed.into_iter().chain([options.host_name.as_str()]);
    let names = names.chain(options.extra_names.iter().map(String::as_str)).filter(|name| !name.is_empty());

    let local = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let addresses = local.iter().chain(&options.service_addresses).chain(&options.extra_addresses);
    (names.map(str::to_string).collect(), addresses.copied().collect())
}

fn names_of(pair: &Pair) -> (BTreeSet<String>, BTreeSet<IpAddr>) {
    let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    let Some(der) = pair.der() else { return (names, addresses) };
    let Ok((_, certificate)) = X509Certificate::from_der(&der) else { return (names, addresses) };
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return (names, addresses) };
    for name in &extension.value.general_names {
        match name {
            GeneralName::DNSName(name) => {
                names.insert(name.to_string());
            }
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                addresses.extend(v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)));
            }
            _ => {}
        }
    }
    (names, addresses)
}

/// False after an operator put another CA into the folder.
fn is_signed_by(pair: &Pair, authority: &Authority) -> bool {
    let check = || {
        let der = pair.der()?;
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        let authority = authority.der()?;
        let (_, authority) = X509Certificate::from_der(&authority).ok()?;
        certificate.verify_signature(Some(authority.public_key())).ok()
    };
    check().is_some()
}
