//! One run of one scenario with one fault.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use kube_apiserver::local::Loopback;
use reconcile::{Caches, Cluster, Connect, Identity, Shutdown};
use serde_json::Value;
use store::Revision;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cloud::FakeCloud;
use crate::controllers::{self, Surroundings};
use crate::fault::Fault;
use crate::flood;
use crate::hostile;
use crate::injector::{Injector, Way};
use crate::kubelet;
use crate::scenario::{Scenario, Show, Step};
use crate::world::World;

const COMPONENT: &str = "system:kube-controller-manager";
const AGENT: &str = "faults";
/// How long a disturbed controller may take to a step: a clock that is an hour behind makes it come back an hour later.
const STEP_TIMEOUT: Duration = Duration::from_secs(3 * 60 * 60);
/// The end must stay the end, for longer than a key waits that has failed for a minute.
const SETTLED: Duration = Duration::from_secs(200);
const LOOKED_AT: Duration = Duration::from_secs(10);
/// What changes within this time is looked at once.
const GATHERED: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub struct Outcome {
    pub writes: usize,
    pub created: BTreeMap<String, usize>,
}

/// Time passes in it only when everything waits.
pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
}

thread_local! {
    /// Panics of the controllers, which go on after them, so that they are found only by counting.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

pub fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            usual(panic);
        }));
    });
}

pub async fn run(world: &Arc<World>, scenario: &Scenario, fault: Fault) -> Result<Outcome, String> {
    PANICS.set(0);
    let began = std::time::Instant::now();
    world.begin_again().await;
    let outcome = live_through(world, scenario, fault).await;
    println!("{} with {fault:?}: {:.2} s", scenario.name, began.elapsed().as_secs_f64());
    match PANICS.get() {
        0 => outcome,
        count => Err(format!("{count} panics; the output has them")),
    }
}

async fn live_through(world: &Arc<World>, scenario: &Scenario, fault: Fault) -> Result<Outcome, String> {
    if scenario.controllers[0] != "serviceaccount-controller" {
        world.create_account("a").await;
    }
    let surroundings = Arc::new(Surroundings::default());
    match fault {
        Fault::Flood => flood::create(world, scenario, &surroundings).await,
        Fault::Hostile => hostile::create(world).await,
        _ => {}
    }
    let injector = Injector::new(fault, scenario.answers.clone());
    let _kubelet = Task(tokio::spawn(kubelet::play(world.clone())));
    let undisturbed = Injector::new(Fault::None, scenario.answers.clone());
    let others = scenario.controllers[1..].iter();
    let _others: Vec<Life> = others.map(|name| Life::start(world, name, &surroundings, &undisturbed)).collect();
    let lives = live(world, &scenario.controllers[0], &surroundings, &injector);
    let steps = perform(world, &surroundings.cloud, scenario, &injector);
    tokio::select! {
        () = lives => unreachable!("a controller lives again after every crash"),
        outcome = steps => outcome?,
    }
    let created = injector.created.lock().clone();
    Ok(Outcome { writes: injector.writes.load(Ordering::SeqCst), created })
}

/// Starts the controller, and after a crash again, from nothing.
async fn live(world: &World, name: &str, surroundings: &Arc<Surroundings>, injector: &Arc<Injector>) {
    loop {
        let _life = Life::start(world, name, surroundings, injector);
        injector.crashed.notified().await;
    }
}

/// Ended when dropped, as a process that is killed.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One life of a controller, with caches of its own.
pub struct Life {
    shutdown: Shutdown,
    alive: Arc<AtomicBool>,
    _task: Task,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::SeqCst);
        self.shutdown.cancel();
    }
}

impl Life {
    pub fn start(world: &World, name: &str, surroundings: &Arc<Surroundings>, injector: &Arc<Injector>) -> Life {
        let (shutdown, alive) = (Shutdown::new(), Arc::new(AtomicBool::new(true)));
        let (app, shared, living) = (world.app.clone(), injector.clone(), alive.clone());
        let connect: Connect = Arc::new(move |identity| {
            let server = match identity {
                Identity::Component(user) => Loopback::component(app.clone(), user, AGENT),
                Identity::Account(name) => Loopback::service_account(app.clone(), "kube-system", name, AGENT),
            };
            kube::Client::new(Way { server, injector: shared.clone(), alive: living.clone() }, "default")
        });
        let caches = Caches::new(connect(&Identity::Component(COMPONENT)), shutdown.clone());
        let cluster = Cluster::new(COMPONENT, connect, caches);
        let clock = if injector.fault == Fault::ClockJumps { world.time.jumping() } else { world.time.clock() };
        let running = controllers::run(name, surroundings, cluster, clock, shutdown.clone());
        let task = Task(tokio::spawn(async move {
            // A controller that ends by itself is a fault, and counted as one.
            running.await.expect("a controller runs until it is told to stop");
        }));
        Life { shutdown, alive, _task: task }
    }
}

async fn perform(world: &World, cloud: &FakeCloud, scenario: &Scenario, injector: &Injector) -> Result<(), String> {
    const MERGE: &str = "application/merge-patch+json";
    const JSON: &str = "application/json";
    let send = async |method: &str, path: &str, media: &str, body: &str| {
        let body = filled_in(world, body)?;
        let sent = world.send(method, path, media, &body).await;
        sent.map(|_| ()).map_err(|error| format!("{method} {path}: {error}"))
    };
    for step in &scenario.steps {
        match step {
            Step::Create(object) => {
                let object = filled_in(world, object)?;
                world.create(&object).await.map_err(|error| format!("create {object}: {error}"))?;
            }
            Step::Patch(path, patch) => send("PATCH", path, MERGE, patch).await?,
            Step::Put(path, body) => send("PUT", path, JSON, body).await?,
            Step::Delete(path, options) => send("DELETE", path, JSON, options).await?,
            Step::Wait(seconds) => tokio::time::sleep(*seconds).await,
            Step::Skip(time) => world.time.skip(*time),
            Step::Until(line) => {
                reached(world, cloud, injector, &scenario.shows, line, |state| state.contains(line)).await?;
            }
        }
    }
    let end = scenario.end.join("\n");
    loop {
        reached(world, cloud, injector, &scenario.shows, &end, |state| *state == scenario.end).await?;
        tokio::time::sleep(SETTLED).await;
        if state(world, cloud, &scenario.shows, &mut Lines::new()) == scenario.end {
            return Ok(());
        }
    }
}

/// The object of a text in which `{now}` is the time and `{now+90}` that many seconds later.
fn filled_in(world: &World, text: &str) -> Result<Value, String> {
    let mut text = text.to_owned();
    while let Some(start) = text.find("{now") {
        let end = text[start..].find('}').map_or(text.len(), |length| start + length + 1);
        let seconds: i64 = text[start + 4..end - 1].parse().unwrap_or(0);
        let at = world.time.now().checked_add(jiff::SignedDuration::from_secs(seconds));
        text.replace_range(start..end, &kube_apiserver::stamp(at.map_err(|error| error.to_string())?));
    }
    serde_json::from_str(&text).map_err(|error| format!("{text}: {error}"))
}

async fn reached(
    world: &World,
    cloud: &FakeCloud,
    injector: &Injector,
    shows: &[Show],
    expected: &str,
    is: impl Fn(&Vec<String>) -> bool,
) -> Result<(), String> {
    let (deadline, mut newest, mut known) = (Instant::now() + STEP_TIMEOUT, world.store.newest(), Lines::new());
    loop {
        newest.borrow_and_update();
        let now = state(world, cloud, shows, &mut known);
        if is(&now) {
            return Ok(());
        }
        if injector.is_mad() {
            return Err(format!("it asks without end; there is\n{}", now.join("\n")));
        }
        if Instant::now() >= deadline {
            return Err(format!("expected\n{expected}\nbut there is\n{}", now.join("\n")));
        }
        // The cloud changes without the store; that is looked at now and then.
        let soon = if shows.iter().any(|show| show.path == "cloud") { Instant::now() + LOOKED_AT } else { deadline };
        let _ = tokio::time::timeout_at(soon, newest.changed()).await;
        tokio::time::sleep(GATHERED).await;
    }
}

/// The lines of what is shown, and at which revision of the object each was right.
type Lines = HashMap<(usize, Arc<str>), (Revision, Option<String>)>;

/// What is shown, counted and sorted.
fn state(world: &World, cloud: &FakeCloud, shows: &[Show], known: &mut Lines) -> Vec<String> {
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for (number, show) in shows.iter().enumerate() {
        if show.path == "cloud" {
            cloud.lines().into_iter().for_each(|line| *counted.entry(line).or_default() += 1);
            continue;
        }
        for entry in world.stored(&show.path) {
            let (at, line) = known.entry((number, entry.key)).or_default();
            if *at != entry.revision {
                let object = serde_json::from_slice(&entry.value).expect("objects are stored as text");
                (*at, *line) = (entry.revision, show.line(&object));
            }
            if let Some(line) = line {
                *counted.entry(line.clone()).or_default() += 1;
            }
        }
    }
    let mut lines: Vec<String> = counted.into_iter().map(|(line, count)| format!("{count} {line}")).collect();
    lines.sort();
    lines
}
