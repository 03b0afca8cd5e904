//! Does to every controller what can go wrong: crashes between any two writes, lost and refused writes, stale caches, cut and
//! repeated watches, conflicts, an API server that is away, floods, hostile objects, a clock that jumps. Each run must end in
//! the state that an undisturbed run ends in, which is the one its scenario tells.
//!
//! A controller takes part by a file in `scenarios/`, named after it; `scenario.rs` says how such a file is written.
//! `FAULTS=name` runs only the scenarios whose name contains that; `FAULTS_LOG=debug` shows what the controllers log.

mod clock;
mod fault;
mod hostile;
mod injector;
mod kubelet;
mod run;
mod scenario;
mod world;

use fault::Fault;
use kube_controller_manager::CONTROLLERS;
use scenario::Scenario;

/// Controllers that nobody has written a scenario for yet. A new controller brings its own.
const WITHOUT_SCENARIO: &[&str] = &[
    "bootstrap-signer-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "disruption-controller",
    "ephemeral-volume-controller",
    "horizontal-pod-autoscaler-controller",
    "job-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "local-storage",
    "node-ipam-controller",
    "node-lifecycle-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicationcontroller-controller",
    "resourceclaim-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "token-cleaner-controller",
    "ttl-after-finished-controller",
    "ttl-controller",
    "volumeattributesclass-protection-controller",
];

#[test]
fn every_controller_has_a_scenario() {
    let scenarios = Scenario::all();
    let told = |name: &str| scenarios.iter().any(|scenario| scenario.controllers[0] == name);
    let missing: Vec<&str> = CONTROLLERS.iter().map(|controller| controller.name).filter(|name| !told(name)).collect();
    println!("controllers without a scenario: {missing:?}");
    let unexpected: Vec<&&str> = missing.iter().filter(|name| !WITHOUT_SCENARIO.contains(name)).collect();
    assert!(unexpected.is_empty(), "write tests/faults/scenarios/<name>.txt for {unexpected:?}");
}

#[test]
fn crashes_between_writes() {
    // Every place is tried up to this write; later ones are more of the same.
    disturb(|writes| (1..=writes.min(8)).map(Fault::Crash).collect());
}

#[test]
fn writes_that_fail() {
    disturb(|writes| vec![Fault::Refused, Fault::Lost(1), Fault::Lost(writes.max(2) / 2), Fault::Conflicts]);
}

#[test]
fn watches_that_lag_break_and_repeat() {
    disturb(|_| vec![Fault::Stale, Fault::Cut, Fault::Repeated, Fault::Away]);
}

#[test]
fn floods_hostile_objects_and_jumping_clocks() {
    disturb(|_| vec![Fault::Flood, Fault::Hostile, Fault::ClockJumps]);
}

/// Runs every scenario undisturbed, and then with each of the faults that are chosen by how many writes that took.
fn disturb(faults: impl Fn(usize) -> Vec<Fault>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let only = std::env::var("FAULTS").unwrap_or_default();
    // The log helps to find out why; where it is set up already, that one is used.
    let filter = tracing_subscriber::EnvFilter::try_from_env("FAULTS_LOG").unwrap_or_else(|_| "off".into());
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    let mut failures = Vec::new();
    for scenario in Scenario::all().iter().filter(|scenario| scenario.name.contains(&only)) {
        let calm = match runtime.block_on(run::run(scenario, Fault::None)) {
            Ok(calm) => calm,
            Err(why) => {
                failures.push(format!("{} undisturbed: {why}", scenario.name));
                continue;
            }
        };
        for fault in faults(calm.writes) {
            match runtime.block_on(run::run(scenario, fault)) {
                Err(why) => failures.push(format!("{} with {fault:?}: {why}", scenario.name)),
                Ok(disturbed) if fault.is_exact() && !scenario.inexact && disturbed.created != calm.created => failures
                    .push(format!(
                        "{} with {fault:?}: {:?} were created, undisturbed {:?}",
                        scenario.name, disturbed.created, calm.created
                    )),
                Ok(_) => {}
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
