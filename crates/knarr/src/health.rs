//! Health and metrics of a component that runs alone. Here without TLS, for the machine
//! itself; `secure.rs` answers the same to everyone else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use component_base::features::Gates;
use component_base::metrics::{self, Metric};
use component_base::status_page::{self, Pages};
use component_base::{Shutdown, tasks};
use tokio::net::TcpListener;

/// What `/metrics` answers.
pub type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// Listens from now on, until the process ends; the answers are given beside the caller.
pub async fn serve(address: SocketAddr, page: Page) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
    let pages = Pages::new(page);
    tasks::spawn(status_page::serve(listener, Arc::new(move |request| pages.answer(request)), Shutdown::new()));
    Ok(())
}

/// What every component shows that leads or is led: whether it leads, its queues and requests, its gates, its process.
pub fn page(component: &'static str, leads: Arc<AtomicBool>, counted: Arc<reconcile::Metrics>, gates: Gates) -> Page {
    Arc::new(move || {
        let mut page = metrics::Page::default();
        page.family(&LEADERSHIP).sample(&[("name", component)], u8::from(leads.load(Ordering::Relaxed)));
        counted.render(&mut page);
        gates.write(&mut page);
        metrics::process::write(&mut page);
        page.text()
    })
}

/// One page behind the other.
pub fn both(first: impl Fn() -> String + Send + Sync + 'static, second: Page) -> Page {
    Arc::new(move || first() + &second())
}

const LEADERSHIP: Metric = Metric::gauge(
    "leader_election_master_status",
    "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. \
     'name' is the string used to identify the lease. Please make sure to group by name.",
);
