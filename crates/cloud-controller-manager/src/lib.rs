//! cloud-controller-manager: what a cloud does for a cluster. `cloud.rs` is what a provider must offer, `builtin.rs` the one
//! that is always there, and the folders are the controllers that use it, under upstream's names.

use std::num::NonZeroUsize;
use std::sync::Arc;

use reconcile::{Clock, Cluster, Shutdown};

mod cloud;
mod builtin;
mod service;
mod node;
mod route;
#[cfg(test)]
mod fake;

pub use builtin::Builtin;
pub use cloud::{Balance, Cloud, CloudError, Instance, Instances, LoadBalancers, Route, Routes};

pub type Context = reconcile::Context<Config>;
pub type Controller = reconcile::Controller<Config>;

/// Every controller there is.
pub static CONTROLLERS: &[&Controller] = &[&service::CONTROLLER, &node::CONTROLLER, &route::CONTROLLER];

pub struct Config {
    pub cloud: Arc<dyn Cloud>,
    /// `*` for all, a name for one, `-name` for all but one, as upstream's `--controllers`.
    pub controllers: Vec<String>,
    /// How many Services are worked on at the same time, where that is not as usual.
    pub service_workers: Option<NonZeroUsize>,
    pub clock: Clock,
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not in the list of known controllers")]
pub struct UnknownController(String);

/// Upstream's short names of controllers.
const ALIASES: [(&str, &str); 4] = [
    ("service", "service-lb-controller"),
    ("route", "node-route-controller"),
    ("cloud-node", "cloud-node-controller"),
    ("cloud-node-lifecycle", LIFECYCLE),
];

/// Upstream's for nodes that the cloud has removed; providers here that know of nodes do it as part of `cloud-node-controller`.
const LIFECYCLE: &str = "cloud-node-lifecycle-controller";

impl Config {
    pub fn new(cloud: Arc<dyn Cloud>) -> Config {
        Config { cloud, controllers: vec!["*".into()], service_workers: None, clock: Clock::system() }
    }

    /// Whether every controller that is named exists.
    pub fn check(&self) -> Result<(), UnknownController> {
        let known = |name: &str| {
            name == "*" || name == LIFECYCLE || CONTROLLERS.iter().any(|controller| controller.name == name)
        };
        match self.controllers.iter().find(|name| !known(current(name.trim_start_matches('-')))) {
            Some(unknown) => Err(UnknownController(unknown.clone())),
            None => Ok(()),
        }
    }

    fn runs(&self, name: &str) -> bool {
        let said = |word: &str| self.controllers.iter().any(|one| current(one) == word);
        let denied = |one: &String| one.strip_prefix('-').is_some_and(|one| current(one) == name);
        said(name) || (said("*") && !self.controllers.iter().any(denied))
    }
}

fn current(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, current)| *current)
}

/// Runs the controllers that the cloud has something for, until they are told to stop.
pub async fn run(config: Config, cluster: Cluster, shutdown: Shutdown) {
    let settings = Arc::new(config);
    let useful = |controller: &&&Controller| match controller.name {
        "service-lb-controller" => settings.cloud.load_balancers().is_some(),
        "cloud-node-controller" => settings.cloud.instances().is_some(),
        _ => settings.cloud.routes().is_some(),
    };
    let chosen = CONTROLLERS.iter().filter(useful).filter(|controller| settings.runs(controller.name));
    let chosen = chosen.map(|controller| {
        let workers = settings.service_workers.filter(|_| controller.name == service::CONTROLLER.name);
        (*controller, workers)
    });
    reconcile::run_all(chosen, settings.clone(), cluster, settings.clock.clone(), shutdown).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_by_name() {
        let config = |list: &str| {
            let controllers = list.split(',').map(Into::into).collect();
            Config { controllers, ..Config::new(Arc::new(Builtin)) }
        };
        for (list, runs) in [("*", true), ("*,-service", false), ("service", true), ("route", false)] {
            assert_eq!(config(list).runs("service-lb-controller"), runs, "{list}");
            config(list).check().unwrap();
        }
        config("*,-cloud-node-lifecycle").check().unwrap();
        assert_eq!(config("*,-x").check().unwrap_err().to_string(), "\"-x\" is not in the list of known controllers");
    }
}
