//! The certificates the control plane holds for itself: who they are for, and when they are due again.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use jiff::Timestamp;
use rcgen::SanType;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::authority::{Authority, Pair, Request, Usage};
use super::{Error, Material, Options};

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

    fn subject(self) -> (&'static str, Option<&'static str>) {
        match self {
            Leaf::Serving => ("kube-apiserver", None),
            Leaf::KubeletClient => ("kube-apiserver-kubelet-client", Some("system:masters")),
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
        let request = match self {
            Leaf::Serving => Request { common_name, organization, names: names(options), usage: Usage::Server },
            _ => Request { common_name, organization, names: Vec::new(), usage: Usage::Client },
        };
        let pair = self.authority(material).issue(&request, now)?;
        pair.write(&material.dir, self.file())?;
        Ok(pair)
    }

    pub(super) fn is_due(self, pair: &Pair, authority: &Authority, options: &Options, now: Timestamp) -> bool {
        // Where the authority ends first, a new certificate would end no later than this one: nothing is gained.
        let worn = now >= pair.renew_at() && (pair.not_after < authority.not_after || now >= pair.not_after);
        let early = now < pair.not_before;
        worn || early
            || !is_signed_by(pair, authority)
            || (self == Leaf::Serving && names_of(pair) != names(options).iter().map(describe).collect())
    }
}

/// Every name and address under which clients reach the API server.
fn names(options: &Options) -> Vec<SanType> {
    let service = format!("kubernetes.default.svc.{}", options.cluster_domain);
    let fixed = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", &service, "localhost"];
    let hosts = fixed.into_iter().chain([options.host_name.as_str()]);
    let hosts = hosts.chain(options.extra_names.iter().map(String::as_str)).filter(|name| !name.is_empty());
    // A name that is not ASCII cannot stand in a certificate; the operator's other names must not suffer from it.
    let hosts = hosts.filter_map(|name| Some(SanType::DnsName(name.try_into().ok()?)));

    let local = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let addresses = local.into_iter().chain(options.service_addresses.iter().copied());
    let addresses = addresses.chain(options.extra_addresses.iter().copied()).map(SanType::IpAddress);

    let mut seen = BTreeSet::new();
    hosts.chain(addresses).filter(|name| seen.insert(describe(name))).collect()
}

fn describe(name: &SanType) -> String {
    match name {
        SanType::DnsName(name) => name.as_str().to_string(),
        SanType::IpAddress(address) => address.to_string(),
        other => format!("{other:?}"),
    }
}

fn names_of(pair: &Pair) -> BTreeSet<String> {
    let Some(der) = pair.der() else { return BTreeSet::new() };
    let Ok((_, certificate)) = X509Certificate::from_der(&der) else { return BTreeSet::new() };
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return BTreeSet::new() };
    extension.value.general_names.iter().filter_map(describe_parsed).collect()
}

fn describe_parsed(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(name.to_string()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => Some(IpAddr::from(<[u8; 4]>::try_from(*bytes).ok()?).to_string()),
            _ => Some(IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?).to_string()),
        },
        other => Some(format!("{other:?}")),
    }
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
