//! What the server's memory is for. The process is looked at from outside at each step of its life, and each step adds one thing:
//! what a thing takes is the difference of two steps.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use testkit::Server;

use crate::load::{self, Bounds, Client, Connection, Protocol};
use crate::pods::{self, Template};
use crate::{process, report};

pub const PODS: [usize; 3] = [1_000, 10_000, 30_000];

const CLIENTS: usize = 16;
/// What was written must have come to rest, and freed pages must have been given back.
const SETTLE: Duration = Duration::from_secs(12);
const FILL_MAX: Duration = Duration::from_secs(600);

pub async fn run(sizes: &[usize]) -> anyhow::Result<()> {
    println!("\nmemory of the server, resident, by what it is for (load average {})", report::load_average());
    let (mut api, mut whole) = (Vec::new(), Vec::new());
    for count in sizes {
        api.push((*count as f64, api_alone(*count).await?));
        whole.push((*count as f64, everything(*count, api[api.len() - 1].1).await?));
    }
    report::curve("memory: pods in the API server alone", "pods", "MiB", &api);
    report::curve("memory: pods in the whole server", "pods", "MiB", &whole);
    Ok(())
}

/// The API server by itself: the program, an empty server, pods, their past, and what stays of them. Answers what the pods took.
async fn api_alone(count: usize) -> anyhow::Result<f64> {
    let name = |what: &str| format!("{} pods, API server alone: {what}", thousands(count));
    let server = Server::start_api(&[])?;
    server.default_account(pods::NAMESPACE)?;
    tokio::time::sleep(SETTLE).await;
    let empty = resident(&server)?;
    let heap = process::anonymous_mib(server.pid())?;
    report::line(&name("pages of the program, shared with its file"), empty - heap, "MiB");
    report::line(&name("empty server"), heap, "MiB");
    send_all(&server, count, Deed::Create).await?;
    tokio::time::sleep(SETTLE).await;
    let full = resident(&server)?;
    let bytes = listed_bytes(&server).await?;
    report::line(&name("pods as they are stored"), bytes as f64 / f64::from(1 << 20), "MiB");
    report::line(&name("pods as they take memory"), full - empty, "MiB");
    send_all(&server, count, Deed::Change).await?;
    tokio::time::sleep(SETTLE).await;
    let changed = resident(&server)?;
    report::line(&name("the past, after one change of each"), changed - full, "MiB");
    send_all(&server, count, Deed::Delete).await?;
    tokio::time::sleep(SETTLE).await;
    report::line(&name("kept after all were deleted"), resident(&server)? - empty, "MiB");
    report::line(&name("most that was resident"), process::peak_mib(server.pid())?, "MiB");
    Ok(full - empty)
}

/// With scheduler and controllers: their copies, and what they write. There are no nodes, so the scheduler tells of every pod that
/// it waits. Answers what the pods took.
async fn everything(count: usize, alone: f64) -> anyhow::Result<f64> {
    let name = |what: &str| format!("{} pods, whole server: {what}", thousands(count));
    let server = Server::start()?;
    server.default_account(pods::NAMESPACE)?;
    tokio::time::sleep(SETTLE).await;
    let empty = resident(&server)?;
    report::line(&name("empty server"), empty, "MiB");
    send_all(&server, count, Deed::Create).await?;
    tokio::time::sleep(SETTLE).await;
    let full = resident(&server)?;
    report::line(&name("resident memory"), full, "MiB");
    report::line(&name("pods as they take memory"), full - empty, "MiB");
    report::line(&name("of that copies of scheduler and controllers, and events"), full - empty - alone, "MiB");
    send_all(&server, count, Deed::Delete).await?;
    tokio::time::sleep(SETTLE).await;
    report::line(&name("kept after all were deleted"), resident(&server)? - empty, "MiB");
    Ok(full - empty)
}

fn resident(server: &Server) -> anyhow::Result<f64> {
    process::resident_mib(server.pid())
}

async fn listed_bytes(server: &Server) -> anyhow::Result<usize> {
    let mut connection = Connection::open(&server.client()?, Protocol::Http1).await?;
    Ok(connection.send("GET", pods::PATH, "application/json", Bytes::new()).await?.1)
}

#[derive(Clone, Copy)]
enum Deed {
    Create,
    Change,
    Delete,
}

/// One of the clients, with every sixteenth pod.
struct Doer {
    template: Arc<Template>,
    deed: Deed,
    first: usize,
}

impl Client for Doer {
    async fn step(&mut self, connection: &mut Connection, number: usize) -> anyhow::Result<bool> {
        let name = format!("pod-{}", self.first + number * CLIENTS);
        let path = format!("{}/{name}", pods::PATH);
        let (code, _) = match self.deed {
            Deed::Create => {
                connection.send("POST", pods::PATH, "application/json", self.template.pod(&name, 0)).await?
            }
            Deed::Change => {
                let patch = Bytes::from_static(br#"{"metadata":{"annotations":{"bench/changed":"yes"}}}"#);
                connection.send("PATCH", &path, "application/merge-patch+json", patch).await?
            }
            Deed::Delete => {
                let now = Bytes::from_static(br#"{"gracePeriodSeconds":0}"#);
                connection.send("DELETE", &path, "application/json", now).await?
            }
        };
        match code {
            200 | 201 => Ok(true),
            code => bail!("pod {name} is refused with {code}"),
        }
    }
}

async fn send_all(server: &Server, count: usize, deed: Deed) -> anyhow::Result<()> {
    let template = Arc::new(Template::new());
    let doers = (0..CLIENTS).map(|first| Doer { template: template.clone(), deed, first }).collect();
    let bounds = Bounds { requests_each_max: count / CLIENTS, time_max: FILL_MAX };
    load::run(server, Protocol::Http1, bounds, doers).await?;
    Ok(())
}

/// With a comma between thousands, as in the names of aims.
fn thousands(number: usize) -> String {
    match number / 1000 {
        0 => number.to_string(),
        whole => format!("{whole},{:03}", number % 1000),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_written_as_in_the_aims() {
        assert_eq!([999, 1_000, 30_000, 1_001].map(super::thousands), ["999", "1,000", "30,000", "1,001"]);
    }
}
