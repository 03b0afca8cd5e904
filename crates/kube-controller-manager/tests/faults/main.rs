//! Does to every controller what can go wrong: crashes between any two writes, lost and refused writes, stale caches, cut and
//! repeated watches, conflicts, an API server that is away, floods, hostile objects, a clock that jumps. Each run must end in
//! the state that an undisturbed run ends in, which is the one its scenario tells.
//!
//! A controller takes part by a file in `scenarios/`, named after it; `scenario.rs` says how such a file is written.
//! `FAULTS=name` runs only the scenarios whose name contains that; `FAULTS_LOG=debug` shows what the controllers log.

mod scenario;
mod fault;
mod run;
mod injector;
mod controllers;
mod world;
mod store;
mod clock;
mod kubelet;
mod cloud;
mod hostile;

use std::time::Instant;

use fault::Fault;
use run::Outcome;
use scenario::Scenario;

#[test]
fn every_controller_has_a_scenario() {
    let scenarios = Scenario::all();
    let told = |name: &str| scenarios.iter().any(|scenario| scenario.controllers[0] == name);
    let missing: Vec<&str> = controllers::names().into_iter().filter(|name| !told(name)).collect();
    assert!(missing.is_empty(), "write tests/faults/scenarios/<name>.txt for {missing:?}");
}

#[test]
fn crashes_between_writes() {
    disturb(|writes| (1..=writes).map(Fault::Crash).collect());
}

#[test]
fn writes_that_fail() {
    disturb(|writes| vec![Fault::Refused, Fault::Lost(1), Fault::Lost(writes.max(2) / 2), Fault::Conflicts]);
}

#[test]
fn watches_that_lag_break_and_repeat() {
    disturb(|_| vec![Fault::Stale, Fault::Cut, Fault::Repeated]);
}

#[test]
fn an_api_server_that_is_away_for_a_minute() {
    disturb(|writes| vec![Fault::Away(0), Fault::Away(1), Fault::Away(writes / 2 + 1)]);
}

#[test]
fn floods() {
    disturb(|_| vec![Fault::Flood]);
}

#[test]
fn hostile_objects_and_jumping_clocks() {
    disturb(|_| vec![Fault::Hostile, Fault::ClockJumps]);
}

/// Hostile objects may be worked on, but not without end.
const WRITES_FOR_HOSTILE_OBJECTS: usize = 2_000;

/// Runs every scenario undisturbed, and then with each of the faults that are chosen by how many writes that took.
fn disturb(faults: impl Fn(usize) -> Vec<Fault>) {
    let only = std::env::var("FAULTS").unwrap_or_default();
    // The log helps to find out why; where it is set up already, that one is used.
    let filter = tracing_subscriber::EnvFilter::try_from_env("FAULTS_LOG").unwrap_or_else(|_| "off".into());
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    run::count_panics();
    let (mut failures, began) = (Vec::new(), Instant::now());
    for scenario in Scenario::all().iter().filter(|scenario| scenario.name.contains(&only)) {
        let calm = match run::run(scenario, Fault::None) {
            Ok(calm) => calm,
            Err(why) => {
                failures.push(format!("{} undisturbed: {why}", scenario.name));
                continue;
            }
        };
        for fault in faults(calm.writes) {
            let wrong = run::run(scenario, fault).and_then(|disturbed| compare(fault, &calm, &disturbed));
            if let Err(why) = wrong {
                failures.push(format!("{} with {fault:?}: {why}", scenario.name));
            }
        }
    }
    println!("{:.1} s in all", began.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

fn compare(fault: Fault, calm: &Outcome, disturbed: &Outcome) -> Result<(), String> {
    if fault.is_exact() && disturbed.created != calm.created {
        return Err(format!("{:?} were created, undisturbed {:?}", disturbed.created, calm.created));
    }
    if fault == Fault::Hostile && disturbed.writes > calm.writes + WRITES_FOR_HOSTILE_OBJECTS {
        return Err(format!("{} writes, undisturbed {}", disturbed.writes, calm.writes));
    }
    Ok(())
}
