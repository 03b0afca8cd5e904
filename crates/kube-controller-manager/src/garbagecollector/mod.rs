//! Objects whose owners are gone are deleted; owners that wait for their dependents wait no longer than needed.
//!
//! `watches.rs` follows the metadata of everything that can be deleted into `graph.rs`, which says what is worth a look.
//! `attempt.rs` looks, at the live object and its live owners, and does what `plan.rs` decides.

mod absent;
mod attempt;
mod graph;
mod live;
mod plan;
mod watches;

use std::sync::Arc;

use futures::FutureExt;
use parking_lot::{Mutex, RwLock};
use reconcile::{Discovered, Error, Queue, Rule, Shutdown, Work};
use tokio::sync::watch;

use crate::{Context, Controller};
use graph::{Graph, Job, Todo};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "garbage-collector-controller",
    account: "generic-garbage-collector",
    source: "garbage-collector-controller",
    rules: &[Rule { groups: &["*"], resources: &["*"], verbs: &["get", "list", "watch", "patch", "update", "delete"] }],
    work: Work::Own(|cx, shutdown| run(cx, shutdown).boxed()),
};

/// How many objects are looked at at the same time, as upstream.
const WORKERS_MAX: usize = 20;

/// What the watches fill and the workers read.
struct Collector {
    cx: Arc<Context>,
    graph: Mutex<Graph>,
    absent: Mutex<absent::Absent>,
    queue: Queue<Job>,
    resources: RwLock<Arc<Discovered>>,
    /// How many watches have not brought their first list. Until all have, dependents may be unknown.
    unsynced: watch::Sender<usize>,
}

async fn run(cx: Arc<Context>, shutdown: Shutdown) -> Result<(), Error> {
    let collector = Arc::new(Collector {
        queue: cx.queue("garbage-collector-controller"),
        cx,
        graph: Mutex::default(),
        absent: Mutex::default(),
        resources: RwLock::default(),
        // The first discovery counts as one.
        unsynced: watch::Sender::new(1),
    });
    // Discovery may wait for a server that does not answer.
    let watching = shutdown.run_until_cancelled(watches::follow(collector.clone(), shutdown.clone()));
    let working =
        reconcile::work(CONTROLLER.name, &collector.queue, collector.cx.workers(WORKERS_MAX), &shutdown, |job| {
            let collector = collector.clone();
            async move { attempt::attempt(&collector, job).await }
        });
    futures::future::join(watching, working).await;
    Ok(())
}

impl Collector {
    /// Changes the graph, and queues what is worth a look now.
    fn change(&self, change: impl FnOnce(&mut Graph, &mut Vec<Todo>)) {
        let mut todo = Vec::new();
        change(&mut self.graph.lock(), &mut todo);
        for todo in todo {
            match todo {
                Todo::Now(job) => self.queue.add(job),
                Todo::Soon(job) => self.queue.add_after(job, graph::SOON),
                Todo::Absent(identity) => self.absent.lock().add(identity),
            }
        }
    }
}
