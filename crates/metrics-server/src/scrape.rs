//! Asks kubelets, through the API server, while somebody wants to know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::window::{Usage, Window, read};

/// How many kubelets are asked at the same time.
const PARALLEL: usize = 16;
/// How long a kubelet gets to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a kubelet does not say what is used.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("no answer in time")]
    Late,
}

pub struct Scraper {
    config: Config,
    client: Client,
    shutdown: CancellationToken,
    state: Mutex<State>,
    /// Whoever comes first measures for all who come meanwhile.
    warming: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    windows: BTreeMap<String, Window>,
    asked: Option<Instant>,
    /// Whether the window is kept by a task.
    kept: bool,
}

impl Scraper {
    pub fn new(config: Config, client: Client, shutdown: CancellationToken) -> Arc<Scraper> {
        Arc::new(Scraper { config, client, shutdown, state: Mutex::default(), warming: tokio::sync::Mutex::default() })
    }

    /// Until there is a window to answer from; from then on it is kept for a while.
    pub async fn ready(self: &Arc<Scraper>) {
        self.state.lock().asked = Some(Instant::now());
        if self.state.lock().kept {
            return;
        }
        let _alone = self.warming.lock().await;
        if self.state.lock().kept {
            return;
        }
        self.scrape().await;
        tokio::time::sleep(self.config.first_window).await;
        self.scrape().await;
        self.state.lock().kept = true;
        let (scraper, shutdown) = (self.clone(), self.shutdown.clone());
        tasks::spawn(async move {
            tokio::select! {
                () = scraper.keep() => {}
                () = shutdown.cancelled() => {}
            }
        });
    }

    async fn keep(&self) {
        loop {
            tokio::time::sleep(self.config.resolution).await;
            {
                let mut state = self.state.lock();
                if state.asked.is_none_or(|asked| asked.elapsed() > self.config.keep) {
                    *state = State::default();
                    return;
                }
            }
            self.scrape().await;
        }
    }

    async fn scrape(&self) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let names = match nodes.list_metadata(&ListParams::default()).await {
            Ok(list) => list.items.into_iter().filter_map(|node| node.metadata.name).collect::<Vec<_>>(),
            Err(error) => {
                tracing::warn!(%error, "cannot list nodes to scrape");
                return;
            }
        };
        self.state.lock().windows.retain(|name, _| names.contains(name));
        let asked = futures::stream::iter(names).map(|name| async {
            let answer = tokio::time::timeout(TIMEOUT, self.ask(&name)).await;
            (name, answer.unwrap_or_else(|_| Err(ScrapeError::Late)))
        });
        let mut asked = asked.buffer_unordered(PARALLEL);
        while let Some((name, answer)) = asked.next().await {
            match answer {
                Ok(text) => self.state.lock().windows.entry(name).or_default().push(read(&text)),
                // Old numbers are worse than none: an autoscaler would act on them.
                Err(error) => {
                    tracing::info!(node = name, %error, "cannot scrape kubelet metrics");
                    self.state.lock().windows.remove(&name);
                }
            }
        }
    }

    async fn ask(&self, node: &str) -> Result<String, ScrapeError> {
        let request = http::Request::get(format!("/api/v1/nodes/{node}/proxy/metrics/resource")).body(Vec::new());
        Ok(self.client.request_text(request?).await?)
    }

    pub fn now(&self) -> jiff::Timestamp {
        self.config.clock.now()
    }

    pub fn node(&self, name: &str) -> Option<Usage> {
        self.state.lock().windows.get(name).and_then(Window::node)
    }

    pub fn pod(&self, namespace: &str, name: &str) -> Option<BTreeMap<String, Usage>> {
        let state = self.state.lock();
        let found = state.windows.values().find_map(|window| window.pod(namespace, name))?;
        Some(found.into_iter().map(|(container, usage)| (container.to_string(), usage)).collect())
    }
}
