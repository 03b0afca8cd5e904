//! A client that has nothing to do with what goes on, and asks for one small object again and again.

use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use tokio::task::JoinHandle;

use super::world::World;
use crate::load::{Connection, Protocol};
use crate::report::Latencies;

const PATH: &str = "/api/v1/namespaces/default";
/// A request without an answer counts with this.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

pub struct Asking {
    stop: tokio::sync::oneshot::Sender<()>,
    task: JoinHandle<Vec<Duration>>,
}

/// Begins to ask, on a connection of its own.
pub fn start_asking(world: &World, every: Duration) -> anyhow::Result<Asking> {
    let client = world.cluster.server.client()?;
    let (stop, mut stopped) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move {
        let mut latencies = Vec::new();
        let mut connection: Option<Connection> = None;
        loop {
            let began = Instant::now();
            let asked = tokio::time::timeout(ANSWER_WITHIN, ask(&client, &mut connection)).await;
            if !matches!(asked, Ok(Ok(()))) {
                connection = None;
            }
            latencies.push(began.elapsed());
            tokio::select! {
                _ = &mut stopped => return latencies,
                () = tokio::time::sleep(every) => {}
            }
        }
    });
    Ok(Asking { stop, task })
}

async fn ask(client: &testkit::Client, connection: &mut Option<Connection>) -> anyhow::Result<()> {
    if connection.is_none() {
        *connection = Some(Connection::open(client, Protocol::Http1).await?);
    }
    let connection = connection.as_mut().context("just opened")?;
    let (code, _) = connection.send("GET", PATH, "", Bytes::new()).await?;
    anyhow::ensure!(code == 200, "refused with {code}");
    Ok(())
}

impl Asking {
    pub async fn end(self) -> anyhow::Result<Latencies> {
        // It has ended by itself only where its task failed, which the next line tells.
        let _ = self.stop.send(());
        Ok(Latencies::new(self.task.await?))
    }
}
