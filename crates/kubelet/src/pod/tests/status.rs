//! Statuses against those that upstream's kubelet wrote for the same pods (`testdata/upstream-pods.yaml`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use serde_json::Value;

use crate::pod::memory::{Failed, Memory, Waiting};
use crate::pod::observed::{Container, Observed, Sandbox, State};
use crate::pod::plan::Progress;
use crate::pod::spec;
use crate::pod::status::{Input, status};
use crate::probe::{Outcome, Results};

fn cases() -> Vec<Pod> {
    let text = include_str!("testdata/upstream-pods.yaml");
    let documents = text.split("\n---\n");
    documents
        .map(|document| {
            let decoded = machinery::codec::decode_yaml(document.as_bytes()).expect("YAML");
            serde_json::from_value(decoded.value).expect("a pod")
        })
        .collect()
}

/// What the runtime must have shown for upstream to write such a container status, newest first.
fn containers(written: &ContainerStatus) -> Vec<Container> {
    let id = |full: Option<&String>| {
        full.map(|full| full.trim_start_matches("containerd://").to_owned()).unwrap_or_default()
    };
    let ended = |end: &ContainerStateTerminated, attempt: i32| Container {
        id: id(end.container_id.as_ref()),
        state: State::Exited,
        attempt: attempt as u32,
        exit_code: end.exit_code,
        // Runtimes give no reason for plain ends.
        reason: end.reason.clone().filter(|reason| reason != "Error" && reason != "Completed").unwrap_or_default(),
        message: end.message.clone().unwrap_or_default(),
        started_at: end.started_at.as_ref().expect("a time").0,
        finished_at: end.finished_at.as_ref().expect("a time").0,
        ..Default::default()
    };
    let state = |state: &Option<ContainerState>| state.clone().unwrap_or_default();
    let mut found = Vec::new();
    if let Some(running) = state(&written.state).running {
        found.push(Container {
            id: id(written.container_id.as_ref()),
            state: State::Running,
            attempt: written.restart_count as u32,
            started_at: running.started_at.expect("a time").0,
            ..Default::default()
        });
    }
    found.extend(state(&written.state).terminated.map(|end| ended(&end, written.restart_count)));
    found.extend(
        state(&written.last_state).terminated.map(|end| ended(&end, written.restart_count - found.len() as i32)),
    );
    for container in &mut found {
        container.name = written.name.clone();
        container.sandbox = "s".to_owned();
        container.image = written.image.clone();
        container.image_id = written.image_id.clone();
    }
    found
}

fn check(pod: &Pod) {
    let written = pod.status.clone().expect("a status");
    let condition = |name: &str| {
        let mut all = written.conditions.iter().flatten();
        all.find(|condition| condition.type_ == name).is_some_and(|condition| condition.status == "True")
    };
    let mut observed = Observed::default();
    let ips: Vec<String> = written.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).collect();
    if !ips.is_empty() {
        let ready = condition("PodReadyToStartContainers");
        observed.sandboxes.push(Sandbox { id: "s".to_owned(), ready, ips, ..Default::default() });
    }
    let mut memory = Memory { start_time: written.start_time.as_ref().map(|time| time.0), ..Default::default() };
    let all = written.init_container_statuses.iter().flatten().chain(written.container_statuses.iter().flatten());
    for container in all {
        observed.containers.extend(containers(container));
        let waiting = container.state.as_ref().and_then(|state| state.waiting.clone());
        let plain = ["ContainerCreating", "PodInitializing"].map(|reason| Some(reason.to_owned()));
        if let Some(waiting) = waiting.filter(|waiting| !plain.contains(&waiting.reason)) {
            let waiting = Waiting { reason: waiting.reason.unwrap_or_default(), message: waiting.message };
            memory.waiting.insert(container.name.clone(), waiting);
        }
        let ready = |ready: bool| Some(if ready { Outcome::Success } else { Outcome::Failure });
        let results = Results {
            startup: ready(container.started == Some(true)),
            liveness: None,
            readiness: ready(container.ready),
        };
        if let Some(running) = observed.containers.iter().find(|seen| seen.name == container.name) {
            memory.probes.insert(running.id.clone(), results);
        }
    }
    if let Some(reason) = written.reason.clone() {
        let message = written.message.clone().unwrap_or_default();
        memory.failed = Some(Failed { reason, message, condition: None, grace_seconds: None, refused: false });
    }
    let over = matches!(written.phase.as_deref(), Some("Succeeded" | "Failed"));
    // Only the times of conditions are known from before; everything else is worked out.
    let previous = PodStatus { conditions: written.conditions.clone(), ..Default::default() };
    let host_ips: Vec<String> = written.host_ips.iter().flatten().map(|ip| ip.ip.clone()).collect();
    let made = status(&Input {
        pod,
        observed: &observed,
        memory: &memory,
        progress: if over { Progress::Ended } else { Progress::Active },
        previous: &previous,
        host_ips: &host_ips,
        runtime: "containerd",
        devices: &BTreeMap::new(),
        now: Timestamp::UNIX_EPOCH,
    });
    let value = |status: &PodStatus| serde_json::to_value(status).expect("JSON");
    let text = |value: &Value| machinery::codec::to_yaml(value);
    let (made, written) = (value(&made), value(&written));
    assert_eq!(text(&made), text(&written), "status of {}", spec::name(pod));
}

#[test]
fn statuses_are_those_of_upstream() {
    let cases = cases();
    assert_eq!(cases.len(), 13);
    cases.iter().for_each(check);
}

#[test]
fn pods_whose_containers_are_all_restarted_stay_running() {
    let rules =
        serde_json::json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"restartPolicy": "Never", "initContainers": [{"name": "i"}],
            "containers": [{"name": "a", "restartPolicy": "Never", "restartPolicyRules": rules}, {"name": "b"}]}
    }))
    .expect("a pod");
    let second = |second: i64| Timestamp::from_second(second).expect("a time");
    let container = |name: &str, created: i64, state: State, exit_code: i32| Container {
        id: format!("{name}-{created}"),
        name: name.into(),
        sandbox: "s".into(),
        attempt: u32::from(created > 50),
        state,
        created_at: second(created),
        started_at: second(created),
        finished_at: second(50),
        exit_code,
        ..Default::default()
    };
    let (init, a, b) = (
        container("i", 1, State::Exited, 0),
        container("a", 2, State::Exited, 42),
        container("b", 3, State::Running, 0),
    );
    let ended = Container { state: State::Exited, exit_code: 137, ..b.clone() };
    let anew = container("a", 60, State::Exited, 0);
    let made = |containers: Vec<Container>| {
        let sandbox = Sandbox { id: "s".into(), ready: true, ips: vec!["10.0.0.1".into()], ..Default::default() };
        let observed = Observed { sandboxes: vec![sandbox], containers, ..Default::default() };
        let made = status(&Input {
            pod: &pod,
            observed: &observed,
            memory: &Memory::default(),
            progress: Progress::Active,
            previous: &PodStatus::default(),
            host_ips: &[],
            runtime: "knarr",
            devices: &BTreeMap::new(),
            now: second(70),
        });
        let restarting = made.conditions.into_iter().flatten().find(|found| found.type_ == "AllContainersRestarting");
        let restarting = restarting.map(|condition| (condition.status, condition.reason.unwrap_or_default()));
        (made.phase.unwrap_or_default(), restarting.expect("a condition"))
    };
    let begun = ("True".to_owned(), "RestartAllContainersStarted".to_owned());
    let cleared = ("False".to_owned(), String::new());
    assert_eq!(made(vec![b, a.clone(), init.clone()]), ("Running".to_owned(), begun));
    assert_eq!(made(vec![ended.clone(), a.clone(), init.clone()]), ("Running".to_owned(), cleared.clone()));
    // The one that asked for it has ended well meanwhile, and the other one still waits for its turn.
    assert_eq!(made(vec![anew, ended, a, init]), ("Running".to_owned(), cleared));
}

#[test]
fn gates_hold_back_readiness() {
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "p", "uid": "u", "generation": 2},
        "spec": {"readinessGates": [{"conditionType": "example.test/ok"}], "containers": [{"name": "c"}]}
    }))
    .expect("a pod");
    let observed = Observed {
        sandboxes: vec![Sandbox { id: "s".into(), ready: true, ips: vec!["10.0.0.1".into()], ..Default::default() }],
        containers: vec![Container { id: "1".into(), name: "c".into(), state: State::Running, ..Default::default() }],
        ..Default::default()
    };
    let ready = |conditions: Value| {
        let previous: PodStatus =
            serde_json::from_value(serde_json::json!({"conditions": conditions})).expect("a status");
        let memory = Memory::default();
        let made = status(&Input {
            pod: &pod,
            observed: &observed,
            memory: &memory,
            progress: Progress::Active,
            previous: &previous,
            host_ips: &[],
            runtime: "knarr",
            devices: &BTreeMap::new(),
            now: Timestamp::UNIX_EPOCH,
        });
        let conditions = made.conditions.expect("conditions");
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready").expect("a condition").clone();
        (ready.status, ready.reason, ready.message)
    };
    let reason = Some("ReadinessGatesNotReady".to_owned());
    let missing = "corresponding condition of pod readiness gate \"example.test/ok\" does not exist.".to_owned();
    assert_eq!(ready(serde_json::json!([])), ("False".to_owned(), reason.clone(), Some(missing)));
    let not_yet = "the status of pod readiness gate \"example.test/ok\" is not \"True\", but False".to_owned();
    let gate = |status: &str| serde_json::json!([{"type": "example.test/ok", "status": status}]);
    assert_eq!(ready(gate("False")), ("False".to_owned(), reason, Some(not_yet)));
    assert_eq!(ready(gate("True")), ("True".to_owned(), None, None));
}

/// The runtime tells that a container runs before the start of it has been answered. A pod that was told as Running and not
/// Ready between the two would be left by whoever waits for the phase and then needs the readiness.
#[test]
fn a_container_that_runs_is_ready_at_once_unless_its_hook_goes_on() {
    let ready = |container: Value| {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [container]}
        }))
        .expect("a pod");
        let sandbox = Sandbox { id: "s".into(), ready: true, ips: vec!["10.0.0.1".into()], ..Default::default() };
        let running = Container { id: "1".into(), name: "c".into(), state: State::Running, ..Default::default() };
        let made = status(&Input {
            pod: &pod,
            observed: &Observed { sandboxes: vec![sandbox], containers: vec![running], ..Default::default() },
            memory: &Memory { starting: Some("c".to_owned()), ..Default::default() },
            progress: Progress::Active,
            previous: &PodStatus::default(),
            host_ips: &[],
            runtime: "knarr",
            devices: &BTreeMap::new(),
            now: Timestamp::UNIX_EPOCH,
        });
        let shown = made.container_statuses.expect("statuses").remove(0);
        (made.phase.expect("a phase"), shown.ready, shown.started)
    };
    assert_eq!(ready(serde_json::json!({"name": "c"})), ("Running".to_owned(), true, Some(true)));
    let hook = serde_json::json!({"postStart": {"exec": {"command": ["wait"]}}});
    let hooked = serde_json::json!({"name": "c", "lifecycle": hook});
    assert_eq!(ready(hooked), ("Running".to_owned(), false, Some(false)));
}
