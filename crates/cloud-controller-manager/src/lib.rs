//! cloud-controller-manager: what a cloud does for a cluster. `cloud.rs` is what a provider must offer, `builtin.rs` the one
//! that is always there, and the folders are the controllers that use it, under upstream's names.

use std::sync::Arc;

use futures::future::join_all;
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
}

/// Runs the controllers that the cloud has something for, until they are told to stop.
pub async fn run(config: Config, cluster: Cluster, shutdown: Shutdown) {
    let settings = Arc::new(config);
    let useful = |controller: &&&Controller| match controller.name {
        "service-lb-controller" => settings.cloud.load_balancers().is_some(),
        "cloud-node-controller" => settings.cloud.instances().is_some(),
        _ => settings.cloud.routes().is_some(),
    };
    let running = CONTROLLERS.iter().filter(useful).map(|controller| {
        let run = reconcile::run(controller, settings.clone(), cluster.clone(), Clock::system(), shutdown.clone());
        let task = tasks::spawn(run);
        async move {
            match task.await {
                Ok(Ok(())) => tracing::debug!(controller = controller.name, "ended"),
                Ok(Err(error)) => tracing::error!(controller = controller.name, %error, "a controller has failed"),
                Err(error) => tracing::error!(controller = controller.name, %error, "a controller has panicked"),
            }
        }
    });
    join_all(running).await;
}
