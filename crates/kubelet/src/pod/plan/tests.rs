//! Plans from small texts: a pod, what the runtime shows, and what is expected to be done.

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::pod::memory::Failed;
use crate::pod::observed::Sandbox;
use crate::probe::Results;

const NOW: i64 = 1_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).expect("a time")
}

fn pod(yaml: &str) -> Pod {
    let yaml = format!("metadata: {{name: p, namespace: 'n', uid: u}}\n{yaml}");
    let decoded = machinery::codec::decode_yaml(yaml.as_bytes()).expect("YAML");
    serde_json::from_value(decoded.value).expect("a pod")
}

/// Lines such as `sandbox ready`, `c running`, `c exited 1 5s ago`, newest first; `c running anew` was just created.
fn observed(pod: &Pod, text: &str) -> Observed {
    let mut observed = Observed::default();
    let mut number = 100;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        number -= 1;
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] == "sandbox" {
            let ips = vec!["10.0.0.1".to_owned()];
            let ready = words[1] == "ready";
            let id = format!("s{}", words.get(2).unwrap_or(&"0"));
            let attempt = words.get(2).map_or(0, |attempt| attempt.parse().expect("an attempt"));
            observed.sandboxes.push(Sandbox { id, ready, ips, attempt, created_at: at(number) });
            continue;
        }
        let state = match words[1] {
            "running" => State::Running,
            "exited" => State::Exited,
            "created" => State::Created,
            other => panic!("unknown state {other}"),
        };
        let hash = spec::container(pod, words[0]).map(|(_, container)| spec::hash(&container)).unwrap_or_default();
        let before = observed.containers.iter().filter(|seen: &&observed::Container| seen.name == words[0]).count();
        let ago: i64 = words.get(3).map_or(1, |ago| ago.trim_end_matches('s').parse().expect("seconds"));
        observed.containers.push(observed::Container {
            id: format!("{}-{before}", words[0]),
            name: words[0].to_owned(),
            sandbox: observed.sandboxes.first().map(|sandbox| sandbox.id.clone()).unwrap_or_default(),
            attempt: 5 - before as u32,
            state,
            created_at: if words.last() == Some(&"anew") { at(0) } else { at(number - 500) },
            started_at: at(-200),
            finished_at: at(-ago),
            exit_code: words.get(2).filter(|_| state == State::Exited).map_or(0, |code| code.parse().expect("a code")),
            hash,
            ..Default::default()
        });
    }
    observed
}

fn said(plan: &Plan) -> String {
    let mut lines: Vec<String> = plan
        .actions
        .iter()
        .map(|action| match action {
            Action::CreateSandbox { attempt } => format!("create sandbox {attempt}"),
            Action::StopSandbox { id } => format!("stop sandbox {id}"),
            Action::Start { name, attempt, .. } => format!("start {name} #{attempt}"),
            Action::Kill(kill) => {
                let after =
                    if kill.after.is_empty() { String::new() } else { format!(" after {}", kill.after.join(",")) };
                format!("kill {} in {}s{after}: {}", kill.id, kill.grace_seconds, kill.message)
            }
            Action::Resize { id, .. } => format!("resize {id}"),
            Action::RemoveSandbox { id } => format!("remove sandbox {id}"),
            Action::RemoveContainer { id } => format!("remove {id}"),
        })
        .collect();
    for (name, waiting) in &plan.waiting {
        lines.push(format!("{name} waits: {} {}", waiting.reason, waiting.message.clone().unwrap_or_default()));
    }
    match plan.progress {
        Progress::Active => {}
        Progress::Ending => lines.push("ending".to_owned()),
        Progress::Ended => lines.push("ended".to_owned()),
    }
    lines.join("\n")
}

fn check_with(memory: &Memory, yaml: &str, seen: &str, expected: &str) -> Plan {
    let pod = pod(yaml);
    let observed = observed(&pod, seen);
    let plan = plan(Input { pod: &pod, observed: &observed, memory, now: at(0) });
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(said(&plan), expected.join("\n"), "pod:\n{yaml}\nseen:\n{seen}");
    plan
}

fn check(yaml: &str, seen: &str, expected: &str) -> Plan {
    check_with(&Memory::default(), yaml, seen, expected)
}

const TWO: &str = "spec: {containers: [{name: a, image: x}, {name: b, image: x}]}";
const INIT: &str =
    "spec: {initContainers: [{name: i}, {name: side, restartPolicy: Always}, {name: j}], containers: [{name: c}]}";

#[test]
fn a_new_pod_gets_a_sandbox_and_its_containers_in_order() {
    check(TWO, "", "create sandbox 0");
    check(TWO, "sandbox ready", "start a #0");
    check(TWO, "sandbox ready\na running", "start b #0");
    check(TWO, "sandbox ready\na running\nb running", "");
    // One that keeps ending does not keep others from their first start.
    check(TWO, "sandbox ready\na exited 1", "start b #0");
}

#[test]
fn init_containers_one_after_the_other() {
    check(INIT, "sandbox ready", "start i #0");
    check(INIT, "sandbox ready\ni running", "");
    check(INIT, "sandbox ready\ni exited 0", "start side #0");
    check(INIT, "sandbox ready\nside running\ni exited 0", "start j #0");
    check(INIT, "sandbox ready\nj exited 0\nside running\ni exited 0", "start c #0");
    check(INIT, "sandbox ready\nc running\nj exited 0\nside running\ni exited 0", "");
    // A sidecar is always restarted, without the others noticing.
    check(INIT, "sandbox ready\nc running\nj exited 0\nside exited 0\ni exited 0", "start side #6");
    // A failing init container is tried again.
    check(INIT, "sandbox ready\ni exited 1", "start i #6");
    check(
        &INIT.replace("spec: {", "spec: {restartPolicy: Never, "),
        "sandbox ready\ni exited 1",
        "stop sandbox s0\nending",
    );
}

#[test]
fn a_sidecar_counts_when_its_startup_probe_has_passed() {
    let yaml = "spec: {initContainers: [{name: side, restartPolicy: Always, startupProbe: {exec: {command: [x]}}}], containers: [{name: c}]}";
    check(yaml, "sandbox ready\nside running", "");
    let mut memory = Memory::default();
    memory.probes.insert("side-0".to_owned(), Results { startup: Some(Outcome::Success), ..Default::default() });
    check_with(&memory, yaml, "sandbox ready\nside running", "start c #0");
}

#[test]
fn restart_policies() {
    let with = |policy: &str| format!("spec: {{restartPolicy: {policy}, containers: [{{name: a}}, {{name: b}}]}}");
    check(&with("Always"), "sandbox ready\na exited 0\nb running", "start a #6");
    check(&with("OnFailure"), "sandbox ready\na exited 0\nb running", "");
    check(&with("OnFailure"), "sandbox ready\na exited 1\nb running", "start a #6");
    check(&with("Never"), "sandbox ready\na exited 1\nb running", "");
    check(&with("Never"), "sandbox ready\na exited 1\nb exited 0", "stop sandbox s0\nending");
    check(&with("Never"), "sandbox notready\na exited 1\nb exited 0", "ended");
    // A container's own policy and rules come before the pod's.
    let own = "spec: {restartPolicy: Never, containers: [{name: a, restartPolicy: OnFailure}, {name: b}]}";
    check(own, "sandbox ready\na exited 1\nb running", "start a #6");
    let rule = "spec: {restartPolicy: Never, containers: [{name: a, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]}]}";
    check(rule, "sandbox ready\na exited 42", "start a #6");
    check(rule, "sandbox ready\na exited 41", "stop sandbox s0\nending");
    let all = "spec: {containers: [{name: a, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]}, {name: b}]}";
    check(all, "sandbox ready\na exited 42\nb running", "kill b-0 in 0s: killing");
    check(all, "sandbox ready\na exited 42\nb exited 1", "start a #6");
}

#[test]
fn all_containers_restart_together() {
    let rules = "restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
    let yaml = format!(
        "spec: {{restartPolicy: Never, initContainers: [{{name: i}}, {{name: side, restartPolicy: Always}}], \
         containers: [{{name: a, restartPolicy: Never, {rules}}}, {{name: b}}]}}"
    );
    let ended = "b exited 137\na exited 42\nside exited 137\ni exited 0";
    check(
        &yaml,
        "sandbox ready\nb running\na exited 42\nside running\ni exited 0",
        "kill b-0 in 0s: killing\nkill side-0 in 0s: killing",
    );
    // In the sandbox that is there, from the first init container on.
    check(&yaml, &format!("sandbox ready\n{ended}"), "start i #6");
    check(&yaml, &format!("sandbox ready\ni running anew\n{ended}"), "");
    check(&yaml, &format!("sandbox ready\ni exited 0 0s anew\n{ended}"), "start side #6");
    let again = "side running anew\ni exited 0 0s anew";
    check(&yaml, &format!("sandbox ready\n{again}\n{ended}"), "start a #6");
    check(&yaml, &format!("sandbox ready\na running anew\n{again}\n{ended}"), "start b #6");
    check(&yaml, &format!("sandbox ready\nb running anew\na running anew\n{again}\n{ended}"), "");
    // One that has ended well meanwhile does not end the pod: the others have their turn still.
    check(&yaml, &format!("sandbox ready\na exited 0 0s anew\n{again}\n{ended}"), "start b #6");
    // One that was just being started when that happened is restarted too.
    let mut memory = Memory { starting: Some("b".to_owned()), ..Memory::default() };
    let seen = "sandbox ready\nb running anew\na exited 42\nside exited 137\ni exited 0";
    memory.note_restart(Some(at(-1)), at(1));
    assert_eq!(memory.restart, None);
    memory.starting = None;
    memory.note_restart(Some(at(-1)), at(1));
    memory.note_restart(Some(at(-1)), at(9));
    check_with(&memory, &yaml, seen, "kill b-0 in 0s: killing");
    // An init container may ask for it too.
    let init = format!(
        "spec: {{restartPolicy: Never, initContainers: [{{name: side, restartPolicy: Always}}, {{name: i, {rules}}}], containers: [{{name: a}}]}}"
    );
    check(&init, "sandbox ready\ni exited 42\nside running", "kill side-0 in 0s: killing");
    check(&init, "sandbox ready\ni exited 42\nside exited 137", "start side #6");
}

#[test]
fn back_off_after_crashes() {
    let yaml = "spec: {containers: [{name: a, image: x}]}";
    let mut memory = Memory::default();
    let key = backoff_key(&spec::wishes(&pod(yaml)).containers[0]);
    memory.backoffs.next(&key, at(-20), at(-20));
    let plan = check_with(
        &memory,
        yaml,
        "sandbox ready\na exited 3 4s ago",
        "a waits: CrashLoopBackOff back-off 10s restarting failed container=a pod=p_n(u)",
    );
    assert_eq!(plan.wake_at, Some(at(6)));
    check_with(&memory, yaml, "sandbox ready\na exited 3 11s ago", "start a #6");
    // A new image is tried at once.
    check_with(&memory, &yaml.replace("image: x", "image: z"), "sandbox ready\na exited 3 4s ago", "start a #6");
}

#[test]
fn failed_tries_wait_without_holding_up_others() {
    let mut memory = Memory::default();
    memory.retry_at.insert("a".to_owned(), at(7));
    let plan = check_with(&memory, TWO, "sandbox ready", "start b #0");
    assert_eq!(plan.wake_at, Some(at(7)));
    memory.starting = Some("b".to_owned());
    check_with(&memory, TWO, "sandbox ready", "");
}

#[test]
fn probes_and_changed_images_end_containers() {
    let yaml = "spec: {containers: [{name: a, image: x, livenessProbe: {terminationGracePeriodSeconds: 3}}]}";
    let mut memory = Memory::default();
    memory.probes.insert("a-0".to_owned(), Results { liveness: Some(Outcome::Failure), ..Default::default() });
    check_with(
        &memory,
        yaml,
        "sandbox ready\na running",
        "kill a-0 in 3s: Container a failed liveness probe, will be restarted",
    );
    memory.killing.insert("a-0".to_owned());
    check_with(&memory, yaml, "sandbox ready\na running", "");

    let old = pod(yaml);
    let seen = observed(&old, "sandbox ready\na running");
    let new = pod(&yaml.replace("image: x", "image: z"));
    let memory = Memory::default();
    let plan = plan(Input { pod: &new, observed: &seen, memory: &memory, now: at(0) });
    assert_eq!(said(&plan), "kill a-0 in 30s: Container a definition changed, will be restarted");
}

#[test]
fn a_lost_sandbox_is_replaced_with_all_that_was_in_it() {
    check(TWO, "sandbox notready\na running\nb exited 1", "kill a-0 in 30s: Stopping container a");
    check(TWO, "sandbox notready\na exited 137\nb exited 137", "create sandbox 1");
    check(TWO, "sandbox ready 1\nsandbox notready 0", "remove sandbox s0\nstart a #0");
    let once = "spec: {restartPolicy: Never, containers: [{name: a}, {name: b}]}";
    check(once, "sandbox notready\na exited 137\nb exited 137", "ended");
}

#[test]
fn ephemeral_containers_run_once() {
    let yaml = "spec: {containers: [{name: a}], ephemeralContainers: [{name: debug, targetContainerName: a}]}";
    check(yaml, "sandbox ready\na running", "start debug #0");
    check(yaml, "sandbox ready\ndebug exited 1\na running", "");
}

#[test]
fn deletion_ends_regular_containers_then_sidecars_then_the_sandbox() {
    let yaml = "spec: {terminationGracePeriodSeconds: 20, initContainers: [{name: s, restartPolicy: Always}, {name: t, restartPolicy: Always}], containers: [{name: a}]}";
    let deleted = |grace: i64| {
        let mut pod = pod(yaml);
        pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
        pod.metadata.deletion_grace_period_seconds = Some(grace);
        pod
    };
    let memory = Memory { ending_since: Some(at(-5)), ..Default::default() };
    let check = |pod: &Pod, memory: &Memory, seen: &str, expected: &str| {
        let seen = observed(pod, seen);
        assert_eq!(said(&plan(Input { pod, observed: &seen, memory, now: at(0) })), expected);
    };
    let running = "sandbox ready\na running\nt running\ns running";
    check(
        &deleted(20),
        &memory,
        running,
        "kill a-0 in 15s: Stopping container a\nkill t-0 in 15s after a: Stopping container t\nkill s-0 in 15s after a,t: Stopping container s\nending",
    );
    assert_eq!(ends_at(&deleted(2), &memory, at(0)), at(-3), "a shortened grace period counts from the beginning");
    check(&deleted(20), &memory, "sandbox ready\na exited 0\nt exited 0\ns exited 0", "stop sandbox s0\nending");
    check(&deleted(20), &memory, "sandbox notready\na exited 0\nt exited 0\ns exited 0", "ended");
    check(&deleted(20), &memory, "", "ended");
    let starting = Memory { starting: Some("a".to_owned()), ..memory };
    check(&deleted(20), &starting, "sandbox ready", "ending");
}

#[test]
fn evicted_pods_end_with_the_grace_they_are_given() {
    let failed = Failed {
        reason: "Evicted".into(),
        message: "m".into(),
        condition: None,
        grace_seconds: Some(0),
        refused: false,
    };
    let memory = Memory { failed: Some(failed), ending_since: Some(at(0)), ..Default::default() };
    check_with(
        &memory,
        "spec: {containers: [{name: a}]}",
        "sandbox ready\na running",
        "kill a-0 in 1s: Stopping container a\nending",
    );
}

#[test]
fn what_is_over_is_not_begun_again() {
    let memory = Memory { over: true, ..Default::default() };
    check_with(&memory, TWO, "", "ended");
    check_with(&memory, TWO, "sandbox ready", "stop sandbox s0\nending");
}

#[test]
fn deadlines_wake() {
    let memory = Memory { start_time: Some(at(-10)), ..Default::default() };
    let plan = check_with(
        &memory,
        "spec: {activeDeadlineSeconds: 15, containers: [{name: a}]}",
        "sandbox ready\na running",
        "",
    );
    assert_eq!(plan.wake_at, Some(at(0) + SignedDuration::from_secs(5)));
}

#[test]
fn resources_change_in_place_or_by_restart() {
    let yaml = "spec: {containers: [{name: a, resources: {limits: {memory: 64Mi}}}]}";
    let old = pod(&yaml.replace("64Mi", "32Mi"));
    let mut memory = Memory::default();
    memory.actuated.insert("a-0".to_owned(), spec::wishes(&old).containers[0].resources.clone().expect("resources"));
    check_with(&memory, yaml, "sandbox ready\na running", "resize a-0");
    let init = yaml.replace("containers: [", "containers: [{name: c}], initContainers: [");
    check_with(&memory, &init, "sandbox ready\na running", "resize a-0");
    let restart = yaml
        .replace("resources:", "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}], resources:");
    check_with(&memory, &restart, "sandbox ready\na running", "kill a-0 in 30s: Container a resize requires restart");
}

#[test]
fn only_the_last_two_are_kept() {
    check(TWO, "sandbox ready\na running\na exited 1\na exited 1\na exited 1\nb running", "remove a-2\nremove a-3");
}
