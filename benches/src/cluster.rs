//! A server with its controllers and scheduler, reached as an administrator by the client that every component uses.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use futures::{StreamExt, stream};
use kube::Client;
use serde_json::{Value, json};
use testkit::{Options, Server};

use crate::load::{Connection, Protocol};

const REQUESTS_AT_ONCE: usize = 32;

pub struct Cluster {
    pub server: Server,
    pub client: Client,
}

impl Cluster {
    pub async fn start() -> anyhow::Result<Cluster> {
        // A range for each of very many nodes.
        Cluster::start_with(vec!["--cluster-cidr=10.64.0.0/10".to_owned()]).await
    }

    pub async fn start_with(arguments: Vec<String>) -> anyhow::Result<Cluster> {
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
        self.create_each(objects.map(|object| (path.to_owned(), object))).await
    }

    /// The same with a path for each.
    pub async fn create_each(&self, objects: impl Iterator<Item = (String, Value)>) -> anyhow::Result<()> {
        let sending = objects.map(|(path, object)| async move { self.send("POST", &path, &object).await });
        all(sending).await.context("create an object")
    }

    /// Merge patches, so many at the same time.
    pub async fn patch_each(&self, patches: impl Iterator<Item = (String, Value)>) -> anyhow::Result<()> {
        let sending = patches.map(|(path, patch)| async move {
            let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
            let request = request.body(patch.to_string().into_bytes()).expect("a request of known parts");
            self.client.request::<Value>(request).await
        });
        all(sending).await.context("patch an object")
    }

    /// Reads an answer to its end on a new connection, whatever its format, and tells how many bytes it had.
    pub async fn read(&self, path: &str, accept: &'static str) -> anyhow::Result<usize> {
        let mut connection = Connection::open(&self.server.client()?, Protocol::Http1).await?;
        let (code, bytes) = connection.send("GET", path, accept, Bytes::new()).await?;
        if code != 200 {
            bail!("GET {path} is refused with {code}");
        }
        Ok(bytes)
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
        let nodes = self.hollow("hollow-", count, &[])?;
        self.nodes_settled("hollow-", count, Duration::from_secs(120)).await?;
        Ok(nodes)
    }

    /// Starts hollow nodes of a prefix, and does not wait for them.
    pub fn hollow(&self, prefix: &str, count: usize, more: &[&str]) -> anyhow::Result<HollowNodes> {
        let mut command = Command::new(testkit::server::binary()?);
        command.args(["hollow-nodes", "--cpu", "4", "--memory", "32Gi", "--prefix", prefix]).args(more);
        command.args(["--count", &count.to_string(), "--kubeconfig"]).arg(self.server.kubeconfig());
        let log = self.server.data_dir().join(format!("{prefix}nodes.log"));
        command.env("KNARR_LOG", "warn").stdin(Stdio::null()).stderr(std::fs::File::create(log)?);
        Ok(HollowNodes(command.spawn().context("start the hollow nodes")?))
    }

    /// New nodes are work for controllers too; what follows is measured when that is done.
    pub async fn nodes_settled(&self, prefix: &str, count: usize, time_max: Duration) -> anyhow::Result<()> {
        let mut there = 0;
        let settled = async || {
            let list = self.send("GET", "/api/v1/nodes", &Value::Null).await.unwrap_or_default();
            let is_settled = |node: &&Value| {
                node["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix))
                    && node["spec"]["taints"].is_null()
                    && node["spec"]["podCIDR"].is_string()
            };
            there = list["items"].as_array().into_iter().flatten().filter(is_settled).count();
            if there < count {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            there >= count
        };
        let outcome = self.until("the nodes' ranges and readiness", time_max, settled).await;
        outcome.with_context(|| format!("{there} of {count} nodes"))
    }
}

/// All of them, so many at the same time, until the first fails.
async fn all<T>(
    sending: impl Iterator<Item = impl Future<Output = Result<T, kube::Error>>>,
) -> Result<(), kube::Error> {
    let mut sending = stream::iter(sending).buffer_unordered(REQUESTS_AT_ONCE);
    while let Some(sent) = sending.next().await {
        sent?;
    }
    Ok(())
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
