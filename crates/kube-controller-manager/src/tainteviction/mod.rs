//! Pods leave nodes with `NoExecute` taints that they do not tolerate, or do not tolerate any longer.

mod plan;

use std::collections::HashMap;
use std::sync::Arc;

use component_helpers::pods::node as node_of;
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use reconcile::{Cache, Error, Key, Next, Plan, Queue, Shutdown, Work, perform};

use crate::common::pods::BY_NODE;
use crate::{Context, Controller};
use plan::Fate;

pub(crate) static CONTROLLER: Controller = Controller {
    name: "taint-eviction-controller",
    account: "node-controller",
    source: "taint-eviction-controller",
    rules: crate::nodelifecycle::RULES,
    work: Work::Own(|cx, shutdown| run(cx, shutdown).boxed()),
};

const WORKERS_MAX: usize = 8;

struct Evictions {
    cx: Arc<Context>,
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    queue: Queue<Key>,
    /// Pods that are to leave: their uid, and since when by a time that only goes forward. Taints need not say when they were added, so this process counts.
    leaving: Mutex<HashMap<Key, (String, Timestamp)>>,
}

async fn run(cx: Arc<Context>, shutdown: Shutdown) -> Result<(), Error> {
    let evictions = Arc::new(Evictions {
        nodes: cx.follow(""),
        pods: cx.follow(""),
        queue: cx.queue("taint-eviction-controller"),
        leaving: Mutex::default(),
        cx,
    });
    let synced = async {
        evictions.nodes.synced().await;
        evictions.pods.synced().await;
    };
    tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        () = synced => {}
    }
    evictions.listen();
    reconcile::work(CONTROLLER.name, &evictions.queue, WORKERS_MAX, &shutdown, |key| {
        let evictions = evictions.clone();
        async move { evictions.attend(key).await }
    })
    .await;
    Ok(())
}

impl Evictions {
    fn listen(self: &Arc<Self>) {
        // A controller that has ended listens no more.
        let this = Arc::downgrade(self);
        self.pods.listen(move |old, new| {
            let Some(this) = this.upgrade() else { return };
            let matters = |pod: &Arc<Pod>| {
                let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.clone());
                (pod.metadata.uid.clone(), node_of(pod).map(str::to_owned), tolerations)
            };
            if let Some(pod) = new.or(old)
                && old.map(matters) != new.map(matters)
            {
                this.queue.add(Key::of(&pod.metadata));
            }
        });
        let this = Arc::downgrade(self);
        self.nodes.listen(move |old, new| {
            let (Some(this), Some(node)) = (this.upgrade(), new) else { return };
            let before = old.map(|node| plan::no_execute(node)).unwrap_or_default();
            if before != plan::no_execute(node) {
                let theirs = this.pods.found_by(BY_NODE, node.metadata.name.as_deref().unwrap_or_default());
                theirs.iter().for_each(|pod| this.queue.add(Key::of(&pod.metadata)));
            }
        });
    }

    async fn attend(&self, key: Key) -> Next {
        let (plan, done) = self.decide(&key);
        match perform(&self.cx, plan).await {
            Ok(Some(delay)) => Next::After(delay),
            Ok(None) => {
                if done {
                    self.leaving.lock().remove(&key);
                }
                Next::Done
            }
            Err(error) => Next::Retry(error.to_string()),
        }
    }

    /// What to do now, and whether the pod need not be remembered after it.
    fn decide(&self, key: &Key) -> (Plan, bool) {
        let Some(pod) = self.pods.get(key).filter(|pod| pod.metadata.deletion_timestamp.is_none()) else {
            return (Plan::nothing(), true);
        };
        let node = node_of(&pod).and_then(|name| self.nodes.get(&Key::cluster(name)));
        let taints = node.map(|node| plan::no_execute(&node)).unwrap_or_default();
        // A clock that is set makes nobody leave earlier or later.
        let (now, steady) = (self.cx.now(), self.cx.steady());
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut leaving = self.leaving.lock();
        let since = leaving.get(key).filter(|(of, _)| *of == uid).map(|(_, since)| *since);
        match plan::fate(&pod, &taints) {
            Fate::Stays if since.is_some() => (plan::cancel(&pod), true),
            Fate::Stays => (Plan::nothing(), true),
            Fate::LeavesAfter(stays) => {
                let since = since.unwrap_or(steady);
                leaving.insert(key.clone(), (uid, since));
                let left = stays - steady.duration_since(since);
                match std::time::Duration::try_from(left) {
                    Ok(left) if !left.is_zero() => (Plan::after(left), false),
                    Ok(_) | Err(_) => (plan::evict(&pod, now), true),
                }
            }
        }
    }
}
