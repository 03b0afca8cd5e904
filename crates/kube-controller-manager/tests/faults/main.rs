//! Does to every controller what can go wrong: crashes between any two writes, lost and refused writes, stale caches, cut and
//! repeated watches, conflicts, an API server that is away, floods, hostile objects, a clock that jumps. Each run must end in
//! the state that an undisturbed run ends in, which is the one its scenario tells.
//!
//! A controller takes part by a line below and a file in `scenarios/`, named after it; `scenario.rs` says how such a file is
//! written. `FAULT=Crash` does only what begins so; `FLOOD=10000` makes every flood so large; `FAULTS_LOG=debug` shows what the
//! controllers log.

mod scenario;
mod fault;
mod run;
mod injector;
mod controllers;
mod world;
mod memory;
mod clock;
mod kubelet;
mod cloud;
mod flood;
mod hostile;

use std::collections::BTreeSet;
use std::sync::Arc;

use fault::Fault;
use run::Outcome;
use scenario::Scenario;
use world::World;

macro_rules! scenarios {
    ($($name:ident)*) => {
        const SCENARIOS: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            suffer(stringify!($name));
        })*
    };
}

scenarios! {
    bootstrap_signer_controller
    certificatesigningrequest_approving_controller
    certificatesigningrequest_cleaner_controller
    certificatesigningrequest_signing_controller
    cloud_node_controller
    clusterrole_aggregation_controller
    cronjob_controller
    daemonset_controller
    deployment_controller
    disruption_controller
    endpoints_controller
    endpointslice_controller
    endpointslice_mirroring_controller
    ephemeral_volume_controller
    garbage_collector_controller
    horizontal_pod_autoscaler_controller
    job_controller
    legacy_serviceaccount_token_cleaner_controller
    local_storage
    namespace_controller
    node_ipam_controller
    node_lifecycle_controller
    node_route_controller
    persistentvolume_attach_detach_controller
    persistentvolume_binder_controller
    persistentvolume_expander_controller
    persistentvolume_protection_controller
    persistentvolumeclaim_protection_controller
    pod_garbage_collector_controller
    podcertificaterequest_cleaner_controller
    replicaset_controller
    replicationcontroller_controller
    resourceclaim_controller
    device_taint_eviction_controller
    resourcequota_controller
    root_ca_certificate_publisher_controller
    service_cidr_controller
    service_lb_controller
    serviceaccount_controller
    serviceaccount_token_controller
    statefulset_controller
    storage_version_migrator_controller
    taint_eviction_controller
    token_cleaner_controller
    ttl_after_finished_controller
    ttl_controller
    validatingadmissionpolicy_status_controller
    volumeattributesclass_protection_controller
}

#[test]
fn every_controller_has_a_scenario() {
    let told: BTreeSet<String> = SCENARIOS.iter().map(|name| name.replace('_', "-")).collect();
    let there: BTreeSet<String> = controllers::names().into_iter().map(Into::into).collect();
    assert_eq!(told, there, "every controller has a line in main.rs and a file in scenarios, and nothing else has");
}

/// Every fault, by how many writes the undisturbed run took. The flood is the last: what it leaves behind is much to clean up.
fn faults(writes: usize) -> Vec<Fault> {
    let crashes = (1..=writes).map(Fault::Crash);
    let others = [
        Fault::Refused,
        Fault::Conflicts,
        Fault::Lost(1),
        Fault::Lost(writes.max(2) / 2),
        Fault::Away(0),
        Fault::Away(1),
        Fault::Away(writes / 2 + 1),
        Fault::Stale,
        Fault::Cut,
        Fault::Repeated,
        Fault::ClockJumps,
        Fault::Hostile,
        Fault::Flood,
    ];
    crashes.chain(others).collect()
}

/// Hostile objects may be worked on, but not without end.
const WRITES_FOR_HOSTILE_OBJECTS: usize = 2_000;

/// Runs a scenario undisturbed, and then with each of the faults.
fn suffer(name: &str) {
    // The log helps to find out why; where it is set up already, that one is used.
    let filter = tracing_subscriber::EnvFilter::try_from_env("FAULTS_LOG").unwrap_or_else(|_| "off".into());
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    let only = std::env::var("FAULT").unwrap_or_default();
    run::count_panics();
    let scenario = Scenario::read(&name.replace('_', "-"));
    let failures = run::runtime().block_on(async {
        let world = Arc::new(World::start().await);
        let calm = match run::run(&world, &scenario, Fault::None).await {
            Ok(calm) => calm,
            Err(why) => return vec![format!("undisturbed: {why}")],
        };
        let mut failures = Vec::new();
        for fault in faults(calm.writes).into_iter().filter(|fault| format!("{fault:?}").starts_with(&only)) {
            let outcome = run::run(&world, &scenario, fault).await;
            if let Err(why) = outcome.and_then(|disturbed| compare(fault, &calm, &disturbed)) {
                failures.push(format!("with {fault:?}: {why}"));
            }
        }
        failures
    });
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
