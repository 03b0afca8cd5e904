//! The row of a Pod: its status in one word, which is harder than it looks.

use jiff::Timestamp;
use machinery::kind::{age, since};
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::common::workload::or_none;

pub(super) fn row(pod: &Value, now: Timestamp) -> Vec<Cell> {
    let summary = Summary::of(pod);
    let restarts = match summary.restarts {
        (count, Some(last)) if count != 0 => format!("{count} ({} ago)", since(last, now)),
        (count, _) => count.to_string(),
    };
    vec![
        pod.name().into(),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        restarts.into(),
        age(pod, now),
        or_none(text(pod, "/status/podIPs/0/ip").into()).into(),
        or_none(text(pod, "/spec/nodeName").into()).into(),
        or_none(text(pod, "/status/nominatedNodeName").into()).into(),
        readiness_gates(pod).into(),
    ]
}

struct Summary<'a> {
    ready: usize,
    total: usize,
    reason: String,
    /// How often containers were started again, and when the last one had ended.
    restarts: (i64, Option<&'a str>),
}

impl<'a> Summary<'a> {
    fn of(pod: &'a Value) -> Summary<'a> {
        let sidecars: Vec<&str> = list(pod, "/spec/initContainers")
            .filter(|container| container["restartPolicy"] == "Always")
            .filter_map(|container| container["name"].as_str())
            .collect();
        let mut summary = Summary {
            ready: 0,
            total: list(pod, "/spec/containers").count() + sidecars.len(),
            reason: phase(pod),
            restarts: (0, None),
        };
        let mut sidecar_restarts = (0, None);
        let initializing = summary.init_containers(pod, &sidecars, &mut sidecar_restarts);
        if !initializing || condition(pod, "Initialized") {
            summary.restarts = sidecar_restarts;
            summary.containers(pod);
        }
        if pod.is_deleting() {
            let phase = text(pod, "/status/phase");
            if text(pod, "/status/reason") == "NodeLost" {
                summary.reason = "Unknown".into();
            } else if !["Succeeded", "Failed"].contains(&phase) {
                summary.reason = "Terminating".into();
            }
        }
        summary
    }

    /// Looks at init containers up to the first that is not done, and says whether there is one.
    fn init_containers(
        &mut self,
        pod: &'a Value,
        sidecars: &[&str],
        sidecar_restarts: &mut (i64, Option<&'a str>),
    ) -> bool {
        let count = list(pod, "/spec/initContainers").count();
        for (index, status) in list(pod, "/status/initContainerStatuses").enumerate() {
            add_restarts(&mut self.restarts, status);
            let sidecar = status["name"].as_str().is_some_and(|name| sidecars.contains(&name));
            if sidecar {
                add_restarts(sidecar_restarts, status);
            }
            let (ended, waiting) = (&status["state"]["terminated"], &status["state"]["waiting"]);
            let why = waiting["reason"].as_str().unwrap_or("");
            if ended.is_object() && ended["exitCode"].as_i64().unwrap_or(0) == 0 {
                continue;
            }
            if sidecar && status["started"] == true {
                self.ready += usize::from(status["ready"] == true);
                continue;
            }
            self.reason = if ended.is_object() {
                format!("Init:{}", end_reason(ended))
            } else if !why.is_empty() && why != "PodInitializing" {
                format!("Init:{why}")
            } else {
                format!("Init:{index}/{count}")
            };
            return true;
        }
        false
    }

    fn containers(&mut self, pod: &'a Value) {
        let statuses: Vec<&Value> = list(pod, "/status/containerStatuses").collect();
        let mut running = false;
        // The first container's word is the last that counts.
        for status in statuses.into_iter().rev() {
            add_restarts(&mut self.restarts, status);
            let state = &status["state"];
            let why = state["waiting"]["reason"].as_str().unwrap_or("");
            if !why.is_empty() {
                self.reason = why.into();
            } else if state["terminated"].is_object() {
                self.reason = end_reason(&state["terminated"]);
            } else if status["ready"] == true && state["running"].is_object() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            self.reason = if condition(pod, "Ready") { "Running" } else { "NotReady" }.into();
        }
    }
}

fn phase(pod: &Value) -> String {
    let gated = list(pod, "/status/conditions")
        .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated");
    match text(pod, "/status/reason") {
        _ if gated => "SchedulingGated".into(),
        "" => text(pod, "/status/phase").into(),
        reason => reason.into(),
    }
}

fn end_reason(ended: &Value) -> String {
    let number = |field: &str| ended[field].as_i64().unwrap_or(0);
    match ended["reason"].as_str().unwrap_or("") {
        "" if number("signal") != 0 => format!("Signal:{}", number("signal")),
        "" => format!("ExitCode:{}", number("exitCode")),
        reason => reason.into(),
    }
}

fn add_restarts<'a>(restarts: &mut (i64, Option<&'a str>), status: &'a Value) {
    restarts.0 += status["restartCount"].as_i64().unwrap_or(0);
    // Stamps are in one form and one zone, so the later one is the greater text.
    restarts.1 = restarts.1.max(status["lastState"]["terminated"]["finishedAt"].as_str());
}

fn condition(pod: &Value, kind: &str) -> bool {
    list(pod, "/status/conditions").any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn readiness_gates(pod: &Value) -> String {
    let total = list(pod, "/spec/readinessGates").count();
    let open =
        list(pod, "/spec/readinessGates").filter(|gate| condition(pod, gate["conditionType"].as_str().unwrap_or("")));
    match total {
        0 => "<none>".into(),
        _ => format!("{}/{total}", open.count()),
    }
}

fn text<'a>(pod: &'a Value, pointer: &str) -> &'a str {
    pod.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

fn list<'a>(pod: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    pod.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    fn check(spec: Value, status: Value, meta: Value, expected: [&str; 3]) {
        let pod = json!({ "metadata": meta, "spec": spec, "status": status });
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().expect("a time");
        let row = super::row(&pod, now);
        assert_eq!([&row[1], &row[2], &row[3]], expected, "{pod}");
    }

    #[test]
    fn init_containers() {
        let spec = json!({ "containers": [{}], "initContainers": [{ "name": "i" }, { "name": "j" }] });
        let done = json!({ "name": "i", "state": { "terminated": { "exitCode": 0 } } });
        let check = |second: Value, expected: [&str; 3]| {
            let status = json!({ "phase": "Pending", "initContainerStatuses": [done, second] });
            check(spec.clone(), status, json!({}), expected);
        };
        check(json!({ "name": "j", "state": { "running": {} } }), ["0/1", "Init:1/2", "0"]);
        check(
            json!({ "name": "j", "state": { "waiting": { "reason": "PodInitializing" } } }),
            ["0/1", "Init:1/2", "0"],
        );
        let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        let last = json!({ "terminated": { "finishedAt": "2026-01-01T00:05:00Z" } });
        check(
            json!({ "name": "j", "restartCount": 3, "state": waiting, "lastState": last }),
            ["0/1", "Init:CrashLoopBackOff", "3 (5m ago)"],
        );
        check(json!({ "name": "j", "state": { "terminated": { "exitCode": 2 } } }), ["0/1", "Init:ExitCode:2", "0"]);
        check(
            json!({ "name": "j", "state": { "terminated": { "exitCode": 137, "signal": 9 } } }),
            ["0/1", "Init:Signal:9", "0"],
        );
    }

    #[test]
    fn sidecars_count_as_containers() {
        let spec = json!({ "containers": [{}], "initContainers": [{ "name": "s", "restartPolicy": "Always" }] });
        let sidecar =
            json!({ "name": "s", "started": true, "ready": true, "restartCount": 2, "state": { "running": {} } });
        let status = json!({
            "phase": "Running",
            "initContainerStatuses": [sidecar],
            "containerStatuses": [{ "ready": true, "restartCount": 1, "state": { "running": {} } }],
        });
        check(spec, status, json!({}), ["2/2", "Running", "3"]);
    }

    #[test]
    fn pods_that_end() {
        let spec = json!({ "containers": [{}, {}] });
        let running =
            json!({ "phase": "Running", "containerStatuses": [{ "ready": true, "state": { "running": {} } }] });
        let deleted = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        check(spec.clone(), running, deleted.clone(), ["1/2", "Terminating", "0"]);
        check(
            spec.clone(),
            json!({ "phase": "Running", "reason": "NodeLost" }),
            deleted.clone(),
            ["0/2", "Unknown", "0"],
        );
        check(spec.clone(), json!({ "phase": "Failed", "reason": "Evicted" }), deleted, ["0/2", "Evicted", "0"]);
        let half = |conditions: Value| {
            json!({ "phase": "Running", "conditions": conditions, "containerStatuses": [
                { "state": { "terminated": { "reason": "Completed" } } }, { "ready": true, "state": { "running": {} } },
            ] })
        };
        check(spec.clone(), half(json!([])), json!({}), ["1/2", "NotReady", "0"]);
        check(spec, half(json!([{ "type": "Ready", "status": "True" }])), json!({}), ["1/2", "Running", "0"]);
    }
}
