//! The controllers of both managers, and what they find around them.

use std::sync::{Arc, OnceLock};

use kube_controller_manager::{Config, PrivateKey, SigningAuthorities, SigningAuthority};
use reconcile::{Clock, Cluster, Error, Shutdown};

use crate::cloud::FakeCloud;

/// What is outside of the cluster and so survives a crash.
#[derive(Default)]
pub struct Surroundings {
    pub cloud: Arc<FakeCloud>,
}

pub fn names() -> Vec<&'static str> {
    let cloud = cloud_controller_manager::CONTROLLERS.iter().map(|controller| controller.name);
    kube_controller_manager::CONTROLLERS.iter().map(|controller| controller.name).chain(cloud).collect()
}

/// Runs the one of that name.
pub fn run(
    name: &str,
    surroundings: &Surroundings,
    cluster: Cluster,
    clock: Clock,
    shutdown: Shutdown,
) -> futures::future::BoxFuture<'static, Result<(), Error>> {
    if let Some(controller) = kube_controller_manager::CONTROLLERS.iter().find(|controller| controller.name == name) {
        return Box::pin(reconcile::run(controller, Arc::new(config()), cluster, clock, shutdown));
    }
    let mut cloudy = cloud_controller_manager::CONTROLLERS.iter();
    let controller = cloudy.find(|controller| controller.name == name);
    let controller = controller.unwrap_or_else(|| panic!("there is no controller {name:?}"));
    let settings = cloud_controller_manager::Config::new(surroundings.cloud.clone());
    Box::pin(reconcile::run(controller, Arc::new(settings), cluster, clock, shutdown))
}

fn config() -> Config {
    let authority = authority();
    Config {
        root_ca: Some("an authority".into()),
        allocate_node_cidrs: true,
        cluster_cidrs: vec!["10.128.0.0/9".parse().expect("a network")],
        service_cidrs: vec!["10.96.0.0/16".parse().expect("a network")],
        terminated_pods_max: 2,
        signing_authorities: SigningAuthorities::all(authority.clone()),
        service_account_key: Some(authority.key),
        ..Config::default()
    }
}

fn authority() -> SigningAuthority {
    static AUTHORITY: OnceLock<SigningAuthority> = OnceLock::new();
    let make = || {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut parameters = rcgen::CertificateParams::default();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).expect("a certificate");
        SigningAuthority { certificate_pem: certificate.pem(), key: PrivateKey(key.serialize_pem()) }
    };
    AUTHORITY.get_or_init(make).clone()
}
