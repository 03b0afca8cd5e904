//! kube-controller-manager: the controllers that make the cluster what its objects say. One folder each, under
//! upstream's name: `mod.rs` is the entry, `plan.rs` the pure decision.

use std::sync::Arc;

use futures::future::join_all;
use reconcile::{Clock, Cluster, Shutdown};

mod common;
mod clusterroleaggregation;
mod garbagecollector;
mod namespace;
mod deployment;
mod replicaset;
mod job;
mod cronjob;
mod ttlafterfinished;
mod horizontalpodautoscaler;
mod disruption;
mod resourcequota;
mod rootcacertificatepublisher;
mod serviceaccount;

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
    &job::CONTROLLER,
    &cronjob::CONTROLLER,
    &ttlafterfinished::CONTROLLER,
    &horizontalpodautoscaler::CONTROLLER,
    &disruption::CONTROLLER,
    &resourcequota::CONTROLLER,
];

/// What the operator decides.
#[derive(Clone, Debug)]
pub struct Config {
    /// `*` for all, a name for one, `-name` for all but one, as upstream's `--controllers`.
    pub controllers: Vec<String>,
    /// The authority that pods check the API server's certificate against; without one it is not published.
    pub root_ca: Option<String>,
}

impl Default for Config {
    fn default() -> Config {
        Config { controllers: vec!["*".into()], root_ca: None }
    }
}

impl Config {
    fn runs(&self, name: &str) -> bool {
        let said = |word: &str| self.controllers.iter().any(|one| one == word);
        said(name) || (said("*") && !self.controllers.iter().any(|one| one.strip_prefix('-') == Some(name)))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no controller {0:?}")]
    UnknownController(String),
}

/// Runs the controllers until they are told to stop.
pub async fn run(config: Config, cluster: Cluster, shutdown: Shutdown) -> Result<(), Error> {
    let known = |name: &str| name == "*" || CONTROLLERS.iter().any(|controller| controller.name == name);
    if let Some(unknown) = config.controllers.iter().find(|name| !known(name.trim_start_matches('-'))) {
        return Err(Error::UnknownController(unknown.clone()));
    }
    let settings = Arc::new(config);
    let chosen = CONTROLLERS.iter().filter(|controller| settings.runs(controller.name));
    let running = chosen.map(|controller| {
        let run = reconcile::run(controller, settings.clone(), cluster.clone(), Clock::system(), shutdown.clone());
        let task = tokio::spawn(run);
        async move {
            match task.await {
                Ok(Ok(())) => tracing::debug!(controller = controller.name, "ended"),
                Ok(Err(error)) => tracing::error!(controller = controller.name, %error, "a controller has failed"),
                Err(error) => tracing::error!(controller = controller.name, %error, "a controller has panicked"),
            }
        }
    });
    join_all(running).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_by_name() {
        let check = |list: &str, name: &str, expected: bool| {
            let controllers = list.split(',').map(Into::into).collect();
            assert_eq!(Config { controllers, root_ca: None }.runs(name), expected, "{list} {name}");
        };
        check("*", "a", true);
        check("*,-a", "a", false);
        check("*,-a", "b", true);
        check("a", "b", false);
        check("a", "a", true);
    }
}
