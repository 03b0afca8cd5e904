//! The other side of a worker: what is wished of its pod, and the bell that wakes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{Notify, watch};

/// What is wished of a pod.
#[derive(Clone, Debug)]
pub struct Wish {
    pub pod: Arc<Pod>,
    /// The object of a static pod in the API.
    pub mirror: Option<Arc<Pod>>,
    /// The object does not exist any more: everything is to be ended and removed.
    pub gone: bool,
}

/// The other side of a worker.
pub struct Handle {
    pub(super) wish: watch::Sender<Wish>,
    pub(super) bell: Arc<Bell>,
    pub(super) task: tokio::task::AbortHandle,
}

impl Handle {
    pub fn wish(&self) -> Wish {
        self.wish.borrow().clone()
    }

    pub fn set(&self, wish: Wish) {
        self.wish.send_replace(wish);
    }

    /// Something happened to the pod in the runtime.
    pub fn look(&self) {
        self.bell.look.store(true, Ordering::Release);
        self.bell.ring.notify_one();
    }

    /// Something that the pod's volumes are made of has changed.
    pub fn refresh(&self) {
        self.bell.refresh.store(true, Ordering::Release);
        self.bell.ring.notify_one();
    }

    /// Something changed on the node that the pod may have waited for.
    pub(crate) fn nudge(&self) {
        self.bell.ring.notify_one();
    }

    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// The containers go on; only the watching ends.
    pub fn abort(&self) {
        self.task.abort();
    }
}

/// Wakes a worker, and says for what.
#[derive(Default)]
pub(super) struct Bell {
    pub ring: Notify,
    pub look: AtomicBool,
    pub refresh: AtomicBool,
}
