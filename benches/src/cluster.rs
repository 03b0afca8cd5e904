//! A server with its controllers and scheduler, reached as an administrator by the client that every component uses.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::{StreamExt, stream};
use kube::Client;
use serde_json::{Value, json};
use testkit::{Options, Server};

const REQUESTS_AT_ONCE: usize = 32;

pub struct Cluster {
    pub server: Server,
    pub client: Client,
}

impl Cluster {
    pub async fn start() -> anyhow::Result<Cluster> {
        // A range for each of very many nodes.
        let arguments = vec!["--cluster-cidr=10.64.0.0/10".to_owned()];
        let server = Server::start_with(Options { arguments, machine: None })?;
        let kubeconfig = kube::config::Kubeconfig::read_from(server.kubeconfig())?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        Ok(Cluster { server, client: Client::try_from(config)? })
    }

    pub async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        self.client.request(request.body(body).expect("a request of known parts")).await
    }

    /// A namespace in which pods can be made.
    pub async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        self.send("POST", "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await?;
        let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        self.until("the service account", Duration::from_secs(10), async || {
            self.send("GET", &account, &Value::Null).await.is_ok()
        })
        .await
    }

    /// Creates many, so many at the same time.
    pub async fn create_all(&self, path: &str, objects: impl Iterator<Item = Value>) -> anyhow::Result<()> {
        let sending = objects.map(|object| async move { self.send("POST", path, &object).await });
        let mut sending = stream::iter(sending).buffer_unordered(REQUESTS_AT_ONCE);
        while let Some(sent) = sending.next().await {
            sent.context("create an object")?;
        }
        Ok(())
    }

    pub async fn until(
        &self,
        what: &str,
        time_max: Duration,
        mut reached: impl AsyncFnMut() -> bool,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        while !reached().await {
            if began.elapsed() > time_max {
                bail!("{what}: not within {} s", time_max.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Hollow nodes in a process of their own, as upstream's node-default: 4 processors, 32 GiB, 110 pods.
    pub async fn hollow_nodes(&self, count: usize) -> anyhow::Result<HollowNodes> {
        let mut command = Command::new(testkit::server::binary()?);
        command.args(["hollow-nodes", "--cpu", "4", "--memory", "32Gi", "--count", &count.to_string(), "--kubeconfig"]);
        command.arg(self.server.kubeconfig()).env("KNARR_LOG", "warn").stdin(Stdio::null()).stderr(Stdio::null());
        let nodes = HollowNodes(command.spawn().context("start the hollow nodes")?);
        let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?limit=1";
        let all = async || {
            let list = self.send("GET", path, &Value::Null).await.unwrap_or_default();
            let items = list["items"].as_array().map_or(0, Vec::len) as u64;
            items + list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0) >= count as u64
        };
        self.until("the hollow nodes", Duration::from_secs(120), all).await?;
        // New nodes are work for controllers too; what follows is measured when that is done.
        let settled = async || {
            let list = self.send("GET", "/api/v1/nodes", &Value::Null).await.unwrap_or_default();
            let nodes = list["items"].as_array().cloned().unwrap_or_default();
            let is_settled = |node: &Value| node["spec"]["taints"].is_null() && node["spec"]["podCIDR"].is_string();
            let settled = nodes.len() >= count && nodes.iter().all(is_settled);
            if !settled {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            settled
        };
        self.until("the nodes' ranges and readiness", Duration::from_secs(120), settled).await?;
        Ok(nodes)
    }
}

/// Ended when dropped.
pub struct HollowNodes(Child);

impl Drop for HollowNodes {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
