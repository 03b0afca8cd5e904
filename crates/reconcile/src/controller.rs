//! The entry of a controller: its name, what wakes it, what it may do, and how it decides.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cache::{Cache, Kind};
use crate::cluster::Cluster;
use crate::events::Recorder;
use crate::key::Key;
use crate::plan::Plan;
use crate::queue::{Backoff, Queue};
use crate::{Error, Shutdown};
use component_base::Clock;
use component_base::metrics::Page;

/// One controller. `S` is the component's configuration, which every controller of it can read.
pub struct Controller<S: 'static> {
    /// Upstream's name, as in `--controllers`.
    pub name: &'static str,
    /// Its service account in `kube-system`; empty where it acts as the component itself.
    pub account: &'static str,
    /// Who its Events say they are from, such as `replicaset-controller`.
    pub source: &'static str,
    /// What the account must be allowed besides reading; bound as `system:controller:<account>`.
    pub rules: &'static [Rule],
    pub work: Work<S>,
}

pub enum Work<S: 'static> {
    /// Woken by changes of cached kinds, with a key.
    Keys {
        /// What wakes it; what it reads stands here too, or it would not be cached.
        wakes: &'static [&'static dyn Wake<S>],
        /// How many keys are worked on at the same time.
        workers_max: usize,
        reconcile: Reconcile<S>,
    },
    /// For the few that keep more than caches: they run until told to stop.
    Own(Run<S>),
}

/// Looks at the object of a key and decides. It gets no event: after a restart there is none to get.
pub type Reconcile<S> = for<'a> fn(&'a Context<S>, &'a Key) -> BoxFuture<'a, Result<Plan, Error>>;

pub type Run<S> = fn(Arc<Context<S>>, Shutdown) -> BoxFuture<'static, Result<(), Error>>;

/// An RBAC rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub groups: &'static [&'static str],
    pub resources: &'static [&'static str],
    pub verbs: &'static [&'static str],
}

/// What a controller sees of the world.
pub struct Context<S> {
    pub settings: Arc<S>,
    /// Asks and writes under the controller's own identity.
    pub client: Client,
    /// Tells users what happened, in the controller's name.
    pub events: Recorder,
    pub(crate) cluster: Cluster,
    pub(crate) clock: Clock,
    /// How many keys the operator wants to be worked on at the same time.
    pub(crate) workers: Option<NonZeroUsize>,
    /// When the controller began, by its clock and by one that never jumps.
    pub(crate) began: (Timestamp, Instant),
    pub(crate) memory: Memory,
}

/// What a controller remembers between two looks, one of each type. It ends with the controller.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl<S> Context<S> {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How many keys are worked on at the same time: what the operator wants, or what is usual.
    pub fn workers(&self, usual: usize) -> usize {
        self.workers.map_or(usual, NonZeroUsize::get)
    }

    /// A queue of the controller's own, which shows how it is under that name.
    pub fn queue<T: Clone + Eq + Hash + Send + 'static>(&self, name: &'static str) -> Queue<T> {
        Queue::watched(Backoff::default(), name, self.cluster.metrics())
    }

    /// Families that only this controller has, for the component's metrics. Those of an earlier run are forgotten.
    pub fn shows(&self, name: &'static str, render: impl Fn(&mut Page) + Send + Sync + 'static) {
        self.cluster.metrics().show(name, Box::new(render));
    }

    /// A time that only goes forward and is good for nothing but to measure how long something takes: the clock of a
    /// machine may be set while a controller waits.
    pub fn steady(&self) -> Timestamp {
        let (began, instant) = self.began;
        let passed = SignedDuration::try_from(instant.elapsed()).unwrap_or(SignedDuration::MAX);
        began.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// What the controller remembers of its own, empty at first. Only what may be lost by a restart belongs here.
    pub fn memory<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut memory = self.memory.0.lock();
        let entry = memory.entry(TypeId::of::<T>()).or_insert_with(|| Arc::<T>::default());
        entry.clone().downcast().expect("a memory is kept under its type")
    }

    /// The component's own client, for what is read on behalf of all controllers.
    pub fn component_client(&self) -> &Client {
        self.cluster.client()
    }

    /// The copy of a kind that is among the controller's wakes.
    pub fn cache<K: Kind>(&self) -> Arc<Cache<K>> {
        self.cache_where("")
    }

    /// The copy of a kind, begun if nobody has; for controllers that run on their own and so have no wakes.
    pub fn follow<K: Kind>(&self, fields: &'static str) -> Arc<Cache<K>> {
        self.cluster.caches.start(fields)
    }

    /// The copy of those objects that a wake's field selector names.
    pub fn cache_where<K: Kind>(&self, fields: &'static str) -> Arc<Cache<K>> {
        let cache = self.cluster.caches.get(fields);
        cache.unwrap_or_else(|| panic!("a controller reads only what is among its wakes; {} is not", K::KIND))
    }
}

/// Something that puts keys into a controller's queue.
///
/// All wakes of a controller are ready before the first one begins: to find the keys that a change concerns, a wake may read
/// every kind that is among them, and finds it complete.
pub trait Wake<S>: Sync {
    /// Begins to follow what wakes, and answers when it is known as a whole.
    fn ready(&self, cx: &Context<S>) -> BoxFuture<'static, ()>;
    /// Tells what is there already, and from then on every change.
    fn begin(&self, cx: &Arc<Context<S>>, queue: &Queue<Key>);
}

/// Changes of a kind, and the keys they concern. The function is asked about the object before and after.
pub struct On<S: 'static, K: 'static> {
    fields: &'static str,
    keys: fn(&Context<S>, &K) -> Vec<Key>,
    /// Whether a change matters; all do where this is absent.
    when: Option<fn(&K, &K) -> bool>,
    gather: Duration,
}

impl<S: Send + Sync, K: Kind> On<S, K> {
    pub const fn every(keys: fn(&Context<S>, &K) -> Vec<Key>) -> On<S, K> {
        On { fields: "", keys, when: None, gather: Duration::ZERO }
    }

    /// Only the objects that a field selector names are watched and kept.
    pub const fn selected(fields: &'static str, keys: fn(&Context<S>, &K) -> Vec<Key>) -> On<S, K> {
        On { fields, keys, when: None, gather: Duration::ZERO }
    }

    /// Only changes for which the function answers true wake; what comes and goes always does.
    pub const fn when(mut self, matters: fn(&K, &K) -> bool) -> On<S, K> {
        self.when = Some(matters);
        self
    }

    /// Wakes a little later, so that many changes that concern one key are looked at once.
    pub const fn gathered(mut self, within: Duration) -> On<S, K> {
        self.gather = within;
        self
    }
}

impl<S: Send + Sync + 'static, K: Kind> Wake<S> for On<S, K> {
    fn ready(&self, cx: &Context<S>) -> BoxFuture<'static, ()> {
        let cache = cx.cluster.caches.start::<K>(self.fields);
        async move { cache.synced().await }.boxed()
    }

    fn begin(&self, cx: &Arc<Context<S>>, queue: &Queue<Key>) {
        let cache = cx.cluster.caches.start::<K>(self.fields);
        let (keys, queue, cx): (_, _, Weak<Context<S>>) = (self.keys, queue.clone(), Arc::downgrade(cx));
        let (when, gather) = (self.when, self.gather);
        cache.listen_while(move |old, new| {
            // A controller that has ended listens no more.
            let Some(cx) = cx.upgrade() else { return false };
            if let (Some(matters), Some(old), Some(new)) = (when, old, new)
                && !matters(old, new)
            {
                return true;
            }
            for object in [old, new].into_iter().flatten() {
                keys(&cx, object)
                    .into_iter()
                    .for_each(|key| if gather.is_zero() { queue.add(key) } else { queue.add_after(key, gather) });
            }
            true
        });
    }
}
