//! metrics-server: what nodes and pods use now, for `kubectl top` and autoscalers, as the API metrics.k8s.io/v1beta1.
//!
//! `scrape.rs` scrapes the kubelets, `window.rs` turns their counters into rates, `serve.rs` answers requests. Kubelets are scraped
//! only while metrics are requested: the first request takes two measurements, later ones keep the window open.

mod window;
mod scrape;
mod serve;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use reconcile::{Clock, Cluster, Shutdown};

use scrape::Scraper;

/// The APIService that this is.
pub const API_SERVICE: &str = "v1beta1.metrics.k8s.io";

#[derive(Clone)]
pub struct Config {
    /// How often kubelets are asked while somebody wants to know.
    pub resolution: Duration,
    /// How long the window is kept after the last request.
    pub keep: Duration,
    /// The first window, which whoever asks first waits for.
    pub first_window: Duration,
    pub clock: Clock,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            resolution: Duration::from_secs(15),
            keep: Duration::from_secs(300),
            first_window: Duration::from_secs(2),
            clock: Clock::system(),
        }
    }
}

pub type Handler = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>;

/// Serves the API until told to stop. `attach` hands the handler to the API server, which asks it instead of a socket.
pub async fn run(config: Config, cluster: Cluster, attach: impl FnOnce(Handler), shutdown: Shutdown) {
    attach(handler(config, cluster.client().clone(), shutdown.clone()));
    shutdown.cancelled().await;
}

/// What answers requests of that API. Who may ask has been decided before.
fn handler(config: Config, client: Client, shutdown: Shutdown) -> Handler {
    let scraper = Scraper::new(config, client.clone(), shutdown);
    Arc::new(move |request| {
        let (client, scraper) = (client.clone(), scraper.clone());
        Box::pin(async move { serve::answer(&client, &scraper, &request).await })
    })
}
