//! One run of one scenario with one fault.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kube_apiserver::loopback::Loopback;
use kube_controller_manager::{CONTROLLERS, Config};
use reconcile::{Caches, Clock, Cluster, Connect, Identity, Shutdown};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::clock;
use crate::fault::Fault;
use crate::hostile;
use crate::injector::{Injector, Way};
use crate::kubelet;
use crate::scenario::{Scenario, Show, Step};
use crate::world::World;

const COMPONENT: &str = "system:kube-controller-manager";
const AGENT: &str = "faults";
/// How long a disturbed controller may take; a lost minute of backoff is not counted as failure on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(45);
/// The end must stay the end.
const SETTLED: Duration = Duration::from_millis(400);
const FLOOD: usize = 1000;

#[derive(Debug)]
pub struct Outcome {
    pub writes: usize,
    pub created: BTreeMap<String, usize>,
}

pub async fn run(scenario: &Scenario, fault: Fault) -> Result<Outcome, String> {
    let began = Instant::now();
    let world = Arc::new(World::start().await);
    if scenario.controllers[0] != "serviceaccount-controller" {
        world.create_account("a").await;
    }
    match fault {
        Fault::Flood => flood(&world, scenario).await,
        Fault::Hostile => hostile::create(&world).await,
        _ => {}
    }
    let injector = Injector::new(fault);
    let _kubelet = Task(tokio::spawn(kubelet::play(world.clone())));
    let undisturbed = Injector::new(Fault::None);
    let _others: Vec<Life> =
        scenario.controllers[1..].iter().map(|name| Life::start(&world, name, &undisturbed)).collect();
    let lives = live(world.clone(), scenario.controllers[0].clone(), injector.clone());
    let steps = perform(&world, scenario);
    tokio::select! {
        () = lives => unreachable!("a controller lives again after every crash"),
        outcome = steps => outcome?,
    }
    println!("{} with {fault:?}: {:.1} s", scenario.name, began.elapsed().as_secs_f64());
    Ok(Outcome { writes: injector.writes.load(Ordering::SeqCst), created: injector.created.lock().clone() })
}

/// Starts the controller, and after a crash again, from nothing.
async fn live(world: Arc<World>, name: String, injector: Arc<Injector>) {
    loop {
        let _life = Life::start(&world, &name, &injector);
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
struct Life {
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
    fn start(world: &World, name: &str, injector: &Arc<Injector>) -> Life {
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
        let controller = CONTROLLERS.iter().find(|controller| controller.name == name);
        let controller = controller.unwrap_or_else(|| panic!("there is no controller {name:?}"));
        let clock = if injector.fault == Fault::ClockJumps { clock::jumping() } else { Clock::system() };
        let settings = Arc::new(Config { root_ca: Some("an authority".into()), ..Config::default() });
        let running = reconcile::run(controller, settings, cluster, clock, shutdown.clone());
        let task = Task(tokio::spawn(async move {
            if let Err(error) = running.await {
                eprintln!("the controller ended: {error}");
            }
        }));
        Life { shutdown, alive, _task: task }
    }
}

async fn perform(world: &World, scenario: &Scenario) -> Result<(), String> {
    const MERGE: &str = "application/merge-patch+json";
    for step in &scenario.steps {
        match step {
            Step::Create(object) => _ = world.create(object).await.map_err(|error| error.to_string())?,
            Step::Patch(path, patch) => {
                world.send("PATCH", path, MERGE, patch).await.map_err(|error| format!("patch {path}: {error}"))?;
            }
            Step::Delete(path, options) => {
                let deleted = world.send("DELETE", path, "application/json", options).await;
                deleted.map_err(|error| format!("delete {path}: {error}"))?;
            }
            Step::Until(line) => {
                reached(world, &scenario.shows, line, |state| state.contains(line)).await?;
            }
        }
    }
    let end = scenario.end.join("\n");
    loop {
        reached(world, &scenario.shows, &end, |state| *state == scenario.end).await?;
        tokio::time::sleep(SETTLED).await;
        if state(world, &scenario.shows).await == scenario.end {
            return Ok(());
        }
    }
}

async fn reached(
    world: &World,
    shows: &[Show],
    expected: &str,
    is: impl Fn(&Vec<String>) -> bool,
) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let now = state(world, shows).await;
        if is(&now) {
            return Ok(());
        }
        if began.elapsed() > STEP_TIMEOUT {
            return Err(format!("expected\n{expected}\nbut there is\n{}", now.join("\n")));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What is shown, counted and sorted.
async fn state(world: &World, shows: &[Show]) -> Vec<String> {
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for Show { path, pointers } in shows {
        let plural = path.rsplit('/').next().unwrap_or_default();
        for object in world.list(path).await {
            let words = pointers.iter().map(|pointer| match object.pointer(pointer) {
                None => "-".to_owned(),
                Some(Value::String(text)) => text.clone(),
                // Of lists the length counts.
                Some(Value::Array(list)) => list.len().to_string(),
                Some(other) => other.to_string(),
            });
            let line = std::iter::once(plural.to_owned()).chain(words).collect::<Vec<_>>().join(" ");
            *counted.entry(line).or_default() += 1;
        }
    }
    let mut lines: Vec<String> = counted.into_iter().map(|(line, count)| format!("{count} {line}")).collect();
    lines.sort();
    lines
}

async fn flood(world: &Arc<World>, scenario: &Scenario) {
    const AT_ONCE: usize = 32;
    let Some(object) = &scenario.flood else { return };
    let numbers: Vec<usize> = (0..FLOOD).collect();
    for part in numbers.chunks(AT_ONCE) {
        let creating = part.iter().map(|number| {
            let text = object.replace("{n}", &number.to_string());
            let object: Value = serde_json::from_str(&text).expect("an object");
            async move { world.create(&object).await.expect("an object of the flood") }
        });
        futures::future::join_all(creating).await;
    }
}
