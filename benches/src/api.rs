//! The API server as its clients meet it: a release build in a process of its own, over TLS, as administrator.

mod changes;
mod encryption;
mod policies;
mod reads;
mod watches;
mod webhooks;
mod writes;

use std::time::{Duration, Instant};

use anyhow::bail;
use bytes::Bytes;
use testkit::Server;

use crate::load::{Bounds, Connection, Protocol};
use crate::report::{self, Better};
use crate::{process, upstream};

const PODS: usize = 10_000;
const PARTS: [&str; 11] =
    ["start", "create", "encryption", "policies", "webhooks", "change", "get", "list", "watch", "patch", "whole"];

pub async fn run(parts: &[String]) -> anyhow::Result<()> {
    if let Some(unknown) = parts.iter().find(|part| !PARTS.contains(&part.as_str())) {
        bail!("there is no part {unknown:?}; there are {}", PARTS.join(", "));
    }
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    report::head("API server over TLS, pods of 2-3 KiB", "upstream");
    if wanted("start") {
        start().await?;
    }
    if wanted("create") {
        writes::creates(&ready_server().await?).await?;
    }
    if wanted("encryption") {
        encryption::costs().await?;
    }
    if wanted("policies") {
        policies::costs().await?;
    }
    if wanted("webhooks") {
        webhooks::costs().await?;
    }
    if wanted("patch") {
        writes::patches(&ready_server().await?).await?;
    }
    if wanted("change") {
        changes::changes(&ready_server().await?).await?;
    }
    if wanted("whole") {
        whole().await?;
    }
    if wanted("get") || wanted("list") {
        let mut server = ready_server().await?;
        full_server(&server).await?;
        if wanted("get") {
            reads::gets(&server).await?;
        }
        if wanted("list") {
            reads::lists(&server).await?;
        }
        let began = Instant::now();
        server.restart()?;
        report::line("from start to ready with 10,000 pods", began.elapsed().as_secs_f64() * 1000.0, "ms");
    }
    if wanted("watch") {
        watches::watches().await?;
    }
    println!("upstream: {}", upstream::SOURCE);
    Ok(())
}

async fn start() -> anyhow::Result<()> {
    let began = Instant::now();
    let server = Server::start_api(&[])?;
    let ready = began.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_secs(2)).await;
    report::compare(
        "from start in an empty folder to ready",
        ready * 1000.0,
        upstream::READY_SECONDS * 1000.0,
        "ms",
        Better::Less,
    );
    report::compare(
        "resident memory, idle",
        process::resident_mib(server.pid())?,
        upstream::IDLE_MIB,
        "MiB",
        Better::Less,
    );
    Ok(())
}

/// The same with scheduler and all controllers in the process, which watch what is created and write about it.
async fn whole() -> anyhow::Result<()> {
    println!("with scheduler and controllers in the same process:");
    writes::creates(&ready(Server::start()?).await?).await?;
    changes::changes(&ready(Server::start()?).await?).await
}

/// A new server in which pods can be created.
async fn ready_server() -> anyhow::Result<Server> {
    ready_server_with(&[]).await
}

async fn ready_server_with(flags: &[&str]) -> anyhow::Result<Server> {
    ready(Server::start_api(flags)?).await
}

async fn ready(server: Server) -> anyhow::Result<Server> {
    let mut connection = Connection::open(&server.client()?, Protocol::Http1).await?;
    let account = r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#;
    let path = "/api/v1/namespaces/default/serviceaccounts";
    match connection.send("POST", path, "application/json", Bytes::from_static(account.as_bytes())).await?.0 {
        201 | 409 => Ok(server),
        code => bail!("the service account was refused with {code}"),
    }
}

/// Fills a server with the pods that reading is measured on, and says what they cost.
async fn full_server(server: &Server) -> anyhow::Result<()> {
    const CLIENTS: usize = 16;
    let bounds = Bounds { requests_each_max: PODS / CLIENTS, time_max: Duration::from_secs(60) };
    let outcome = writes::create(server, Protocol::Http1, CLIENTS, bounds, "pod").await?;
    if outcome.latencies.count() != PODS {
        bail!("only {} of {PODS} pods were created", outcome.latencies.count());
    }
    report::line("processor time of the server for 10,000 creates", outcome.cpu_seconds, "s");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let resident = process::resident_mib(server.pid())?;
    report::compare("resident memory with 10,000 pods", resident, upstream::MIB_WITH_10000_PODS, "MiB", Better::Less);
    Ok(())
}
