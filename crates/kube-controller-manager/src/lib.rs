//! kube-controller-manager: the controllers that make the cluster what its objects say. One folder each, under
//! upstream's name: `mod.rs` is the entry, `plan.rs` the pure decision.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use component_base::features::Gates;
use ipnet::IpNet;
use reconcile::{Clock, Cluster, Shutdown};

mod aliases;
mod common;
mod clusterroleaggregation;
mod garbagecollector;
mod namespace;
mod deployment;
mod endpoints;
mod endpointslice;
mod endpointslicemirroring;
mod replicaset;
mod replicationcontroller;
mod daemonset;
mod statefulset;
mod job;
mod cronjob;
mod ttlafterfinished;
mod horizontalpodautoscaler;
mod disruption;
mod resourcequota;
mod rootcacertificatepublisher;
mod serviceaccount;
mod nodelifecycle;
mod persistentvolumebinder;
mod localstorage;
mod pvcprotection;
mod pvprotection;
mod ephemeralvolume;
mod persistentvolumeexpander;
mod attachdetach;

pub use localstorage::LocalStorage;
pub use localstorage::PROVISIONERS as LOCAL_STORAGE_PROVISIONERS;
mod tainteviction;
mod nodeipam;
mod podgc;
mod certificates;
mod bootstrapsigner;
mod tokencleaner;
mod serviceaccounttoken;
mod legacytokencleaner;
mod resourceclaim;
mod devicetainteviction;
mod vacprotection;
mod servicecidr;
mod storageversionmigrator;
mod validatingadmissionpolicystatus;
mod ttl;
#[cfg(test)]
mod example;

pub use certificates::{SigningAuthorities, SigningAuthority, node_key};
pub use cronjob::Schedule;
pub use cronjob::ScheduleError;
pub use horizontalpodautoscaler::Autoscaling;
pub use nodelifecycle::NodeLifecycle;

pub type Context = reconcile::Context<Config>;
pub type Controller = reconcile::Controller<Config>;

/// Every controller there is.
pub static CONTROLLERS: &[&Controller] = &[
    &serviceaccount::CONTROLLER,
    &rootcacertificatepublisher::CONTROLLER,
    &namespace::CONTROLLER,
    &garbagecollector::CONTROLLER,
    &clusterroleaggregation::CONTROLLER,
    &replicaset::CONTROLLER,
    &deployment::CONTROLLER,
    &nodelifecycle::CONTROLLER,
    &endpointslice::CONTROLLER,
    &endpoints::CONTROLLER,
    &endpointslicemirroring::CONTROLLER,
    &replicationcontroller::CONTROLLER,
    &daemonset::CONTROLLER,
    &statefulset::CONTROLLER,
    &persistentvolumebinder::CONTROLLER,
    &localstorage::CONTROLLER,
    &pvcprotection::CONTROLLER,
    &pvprotection::CONTROLLER,
    &ephemeralvolume::CONTROLLER,
    &persistentvolumeexpander::CONTROLLER,
    &attachdetach::CONTROLLER,
    &job::CONTROLLER,
    &cronjob::CONTROLLER,
    &ttlafterfinished::CONTROLLER,
    &horizontalpodautoscaler::CONTROLLER,
    &disruption::CONTROLLER,
    &resourcequota::CONTROLLER,
    &tainteviction::CONTROLLER,
    &nodeipam::CONTROLLER,
    &podgc::CONTROLLER,
    &certificates::APPROVING,
    &certificates::SIGNING,
    &certificates::CLEANER,
    &certificates::POD_CLEANER,
    &bootstrapsigner::CONTROLLER,
    &tokencleaner::CONTROLLER,
    &serviceaccounttoken::CONTROLLER,
    &ttl::CONTROLLER,
    &resourceclaim::CONTROLLER,
    &devicetainteviction::CONTROLLER,
    &vacprotection::CONTROLLER,
    &servicecidr::CONTROLLER,
    &validatingadmissionpolicystatus::CONTROLLER,
    &legacytokencleaner::CONTROLLER,
    &storageversionmigrator::CONTROLLER,
];

/// Controllers that run only where their feature gate is open.
pub const GATED: &[(&str, &str)] = &[
    ("podcertificaterequest-cleaner-controller", "PodCertificateRequest"),
    ("storage-version-migrator-controller", "StorageVersionMigrator"),
];

/// What the operator decides.
#[derive(Clone, Debug)]
pub struct Config {
    pub clock: Clock,
    /// `*` for all, a name for one, `-name` for all but one, as upstream's `--controllers`.
    pub controllers: Vec<String>,
    pub gates: Gates,
    /// The authority that pods check the API server's certificate against; without one it is not published.
    pub root_ca: Option<String>,
    pub local_storage: LocalStorage,
    /// Whether nodes get ranges of pod addresses.
    pub allocate_node_cidrs: bool,
    /// Addresses of pods, one range per family.
    pub cluster_cidrs: Vec<IpNet>,
    /// Addresses of Services, which no pod gets.
    pub service_cidrs: Vec<IpNet>,
    pub node_cidr_mask_size_ipv4: u8,
    pub node_cidr_mask_size_ipv6: u8,
    /// So many pods that have ended are kept; 0 keeps all.
    pub terminated_pods_max: usize,
    /// Who signs certificate requests; those of signers without an authority wait.
    pub signing_authorities: SigningAuthorities,
    /// The longest that a signed certificate lasts.
    pub signing_duration: Duration,
    /// Whether a node's name belongs to the machine that had it first.
    pub bind_node_names: bool,
    /// Addresses of API servers, which no node gets a certificate for.
    pub server_addresses: Vec<std::net::IpAddr>,
    pub node_lifecycle: NodeLifecycle,
    pub autoscaling: Autoscaling,
    /// How many objects a controller works on at the same time, by its name, where that is not as usual.
    pub workers: BTreeMap<&'static str, NonZeroUsize>,
    /// Whether volumes are detached from nodes that do not answer for long, though they may be mounted there.
    pub force_detach_on_timeout: bool,
    /// The most endpoints that an EndpointSlice gets.
    pub endpoints_per_slice_max: usize,
    /// The most addresses of a subset of Endpoints that are mirrored.
    pub mirrored_addresses_max: usize,
    /// How often every ResourceQuota is counted again: nothing tells of some changes, such as pods whose time to end is over.
    pub quota_sync_period: Duration,
    /// A token of a Secret that nobody has used for so long is marked, and after the same time again removed.
    pub legacy_token_clean_up_period: Duration,
    /// Signs the tokens of service accounts that are kept in Secrets; without one they stay empty.
    pub service_account_key: Option<PrivateKey>,
}

/// A private key as PEM.
#[derive(Clone)]
pub struct PrivateKey(pub String);

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the key: it would end in a log.
        f.write_str("PrivateKey")
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            clock: Clock::system(),
            controllers: vec!["*".into()],
            gates: Gates::default(),
            root_ca: None,
            local_storage: LocalStorage::default(),
            allocate_node_cidrs: false,
            cluster_cidrs: Vec::new(),
            service_cidrs: Vec::new(),
            node_cidr_mask_size_ipv4: 24,
            node_cidr_mask_size_ipv6: 64,
            terminated_pods_max: 12500,
            signing_authorities: SigningAuthorities::default(),
            signing_duration: Duration::from_secs(365 * 24 * 60 * 60),
            bind_node_names: false,
            server_addresses: Vec::new(),
            node_lifecycle: NodeLifecycle::default(),
            autoscaling: Autoscaling::default(),
            workers: BTreeMap::new(),
            force_detach_on_timeout: true,
            endpoints_per_slice_max: 100,
            mirrored_addresses_max: 1000,
            quota_sync_period: Duration::from_secs(5 * 60),
            legacy_token_clean_up_period: Duration::from_secs(365 * 24 * 60 * 60),
            service_account_key: None,
        }
    }
}

impl Config {
    /// Whether nodes get their ranges of pod addresses from here.
    pub fn gives_ranges(&self) -> bool {
        self.allocate_node_cidrs && self.runs("node-ipam-controller")
    }

    /// Whether every controller that is named exists.
    pub fn check(&self) -> Result<(), Error> {
        let is_there = |name: &str| CONTROLLERS.iter().any(|controller| controller.name == aliases::current(name));
        let known = |name: &str| name == "*" || is_there(name);
        match self.controllers.iter().find(|name| !known(name.trim_start_matches('-'))) {
            Some(unknown) => Err(Error::UnknownController(unknown.clone())),
            None => Ok(()),
        }
    }

    fn runs(&self, name: &str) -> bool {
        let said = |word: &str| self.controllers.iter().any(|one| aliases::current(one) == word);
        let denied = |one: &String| one.strip_prefix('-').is_some_and(|one| aliases::current(one) == name);
        if GATED.iter().any(|(gated, gate)| *gated == name && !self.gates.is_on(gate)) {
            return false;
        }
        said(name) || (said("*") && !self.controllers.iter().any(denied))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("unknown controller {0:?}")]
    UnknownController(String),
}

/// Runs the controllers until they are told to stop.
pub async fn run(config: Config, cluster: Cluster, shutdown: Shutdown) -> Result<(), Error> {
    config.check()?;
    let settings = Arc::new(config);
    let chosen = CONTROLLERS.iter().filter(|controller| settings.runs(controller.name));
    let chosen = chosen.map(|controller| {
        let workers = settings.workers.get(controller.name).copied();
        (*controller, workers)
    });
    reconcile::run_all(chosen, settings.clone(), cluster, settings.clock.clone(), shutdown).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_by_name() {
        let check = |list: &str, name: &str, expected: bool| {
            let controllers = list.split(',').map(Into::into).collect();
            assert_eq!(Config { controllers, ..Config::default() }.runs(name), expected, "{list} {name}");
        };
        check("*", "a", true);
        check("*,-a", "a", false);
        check("*,-a", "b", true);
        check("a", "b", false);
        check("a", "a", true);
        check("*,-podgc", "pod-garbage-collector-controller", false);
        check("podgc", "pod-garbage-collector-controller", true);
        check("*", "storage-version-migrator-controller", false);
    }

    #[test]
    fn some_run_only_where_their_gate_is_open() {
        for (name, gate) in GATED {
            let gates = Gates::parse(&format!("{gate}=true"), &[gate]).expect("a gate of upstream's");
            assert!(Config { gates, ..Config::default() }.runs(name), "{name}");
            assert!(CONTROLLERS.iter().any(|controller| controller.name == *name), "{name}");
        }
    }
}
