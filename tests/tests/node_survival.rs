//! Pods outlive knarr: killed or stopped and started again, it finds the same containers, counts no restart that was
//! none, loses no line of a log and knows how those ended that ended meanwhile. After a reboot they are started anew.

#[path = "support/node.rs"]
mod node;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use node::{Node, container, container_id, is_ready, restarts, script, with_folder};
use serde_json::{Value, json};

const CODES: [i64; 6] = [0, 1, 7, 42, 126, 255];
const LOG_LINES_PER_SECOND: u64 = 50;

/// Pods of every sort, thirty for each unit of `many`, and the folder through which they and the test talk.
struct World {
    node: Node,
    folder: PathBuf,
    many: usize,
}

impl World {
    fn new(many: usize) -> World {
        let node = Node::start(&[]);
        let folder = node.server.data_dir().join("shared");
        std::fs::create_dir(&folder).unwrap();
        World { node, folder, many }
    }

    /// All pods, running or, if that is their nature, crashing.
    fn fill(&self) -> BTreeMap<String, Value> {
        for n in 0..6 * self.many {
            self.node.create_pod(&script(&format!("sleeper-{n}"), "Always", "exec sleep infinity"));
            let log = format!("exec log --rate {LOG_LINES_PER_SECOND}");
            self.node.create_pod(&script(&format!("logger-{n}"), "Always", &log));
            let code = CODES[n % CODES.len()];
            let ends = format!("while sleep 0.05; do if test -e /host/go; then exit {code}; fi; done");
            self.node.create_pod(&with_folder(script(&format!("ends-{n}"), "Never", &ends), &self.folder));
        }
        for n in 0..3 * self.many {
            let once = format!(
                "if test -e /host/died-{n}; then exec sleep infinity; fi; \
                 while sleep 0.05; do if test -e /host/go; then touch /host/died-{n}; exit 3; fi; done"
            );
            self.node.create_pod(&with_folder(script(&format!("once-{n}"), "Always", &once), &self.folder));
            // Each run leaves a line, so that the true number of runs is known.
            let crash = format!("echo run >> /host/runs-{n}; exit 5");
            self.node.create_pod(&with_folder(script(&format!("crash-{n}"), "Always", &crash), &self.folder));
        }
        let replicas = 6 * self.many;
        let template = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"nodeName": "node-1", "containers": [{
                "name": "web", "image": node::IMAGE, "imagePullPolicy": "IfNotPresent",
                "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
            }]},
        });
        let deployment = json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        });
        self.node.create("/apis/apps/v1/namespaces/default/deployments", &deployment);
        self.until("all run", |pods| {
            pods.len() == 30 * self.many
                && pods.iter().all(|(name, pod)| match name.starts_with("crash-") {
                    true => restarts(pod) >= 1,
                    false => is_ready(pod),
                })
        })
    }

    fn until(&self, what: &str, wanted: impl Fn(&BTreeMap<String, Value>) -> bool) -> BTreeMap<String, Value> {
        let until = std::time::Instant::now() + node::PATIENCE;
        loop {
            let pods = self.node.pods();
            if wanted(&pods) {
                return pods;
            }
            if std::time::Instant::now() > until {
                let statuses: Vec<_> = pods.iter().map(|(name, pod)| format!("{name}: {}", short(pod))).collect();
                panic!("not {what}:\n{}", statuses.join("\n"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn runs(&self, n: usize) -> u64 {
        std::fs::read_to_string(self.folder.join(format!("runs-{n}"))).unwrap_or_default().lines().count() as u64
    }

    /// Stops knarr in some way, lets some pods end meanwhile, starts it again and looks at everything.
    fn survives(&mut self, stop: fn(&mut Node)) {
        let before = self.fill();
        let lives = |name: &str| !["ends-", "once-", "crash-"].iter().any(|start| name.starts_with(start));
        let processes: BTreeMap<&str, _> = before
            .iter()
            .filter(|(name, _)| lives(name))
            .map(|(name, pod)| (name.as_str(), self.node.processes(&container_id(pod))))
            .collect();
        assert!(processes.values().all(|processes| !processes.is_empty()), "{processes:?}");

        stop(&mut self.node);
        let from = Timestamp::now();
        std::fs::write(self.folder.join("go"), "").unwrap();
        std::thread::sleep(Duration::from_secs(4));
        let to = Timestamp::now();
        self.node.server.restart().unwrap();

        let after = self.until("what ended is known", |pods| {
            pods.len() == before.len()
                && pods.iter().all(|(name, pod)| match name.split('-').next() {
                    Some("ends") => !container(pod)["state"]["terminated"].is_null(),
                    Some("once") => is_ready(pod) && restarts(pod) == 1,
                    Some("crash") => true,
                    _ => is_ready(pod),
                })
        });
        for (name, pod) in &after {
            if lives(name) {
                assert_eq!(container_id(pod), container_id(&before[name]), "{name}");
                assert_eq!(restarts(pod), 0, "{name}");
                assert_eq!(self.node.processes(&container_id(pod)), processes[name.as_str()], "{name}");
                let status = |pod: &Value| (pod["status"]["podIP"].clone(), container(pod)["state"].clone());
                assert_eq!(status(pod), status(&before[name]), "{name}");
            }
            let ended = match name.split('-').next() {
                Some("ends") => &container(pod)["state"]["terminated"],
                Some("once") => &container(pod)["lastState"]["terminated"],
                _ => continue,
            };
            let code = match name.strip_prefix("ends-") {
                Some(n) => CODES[n.parse::<usize>().unwrap() % CODES.len()],
                None => 3,
            };
            assert_eq!(ended["exitCode"], code, "{name}: {ended}");
            assert_eq!(ended["reason"], if code == 0 { "Completed" } else { "Error" }, "{name}: {ended}");
            // Times of the API have whole seconds.
            let finished: Timestamp = ended["finishedAt"].as_str().unwrap().parse().unwrap();
            let second = k8s_openapi::jiff::SignedDuration::from_secs(1);
            assert!(from - second <= finished && finished <= to, "{name}: {from} {finished} {to}");
            if name.starts_with("ends-") {
                let phase = if code == 0 { "Succeeded" } else { "Failed" };
                assert_eq!(pod["status"]["phase"], phase, "{name}");
            }
        }
        self.logs_are_whole();
        self.restarts_are_the_true_ones();
    }

    fn logs_are_whole(&self) {
        for n in 0..6 * self.many {
            let name = format!("logger-{n}");
            let text = self.node.log(&name);
            let numbers: Vec<u64> =
                text.lines().map(|line| line.strip_prefix("line ").unwrap().parse().unwrap()).collect();
            let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
            assert_eq!(numbers, expected, "{name}");
            // Knarr was away for four seconds, and the log went on.
            assert!(numbers.len() as u64 > 4 * LOG_LINES_PER_SECOND / 2, "{name}: {} lines", numbers.len());
        }
    }

    fn restarts_are_the_true_ones(&self) {
        for n in 0..3 * self.many {
            let (name, runs) = (format!("crash-{n}"), self.runs(n));
            let pod = self.node.until(&name, "counted", |pod| restarts(pod) + 1 >= runs);
            // One more may have begun since; it is counted when it is.
            assert!((runs..=self.runs(n)).contains(&(restarts(&pod) + 1)), "{name}: {runs} runs, {}", pod["status"]);
            let last = &container(&pod)["lastState"]["terminated"];
            assert_eq!((&last["exitCode"], &last["reason"]), (&json!(5), &json!("Error")), "{name}");
        }
    }
}

/// What a failing test shows of a pod.
fn short(pod: &Value) -> String {
    let status = container(pod);
    format!(
        "{} {} {} {}",
        pod["status"]["phase"], status["restartCount"], status["state"], pod["status"]["conditions"][0]
    )
}

#[test]
fn thirty_pods_survive_a_killed_knarr() {
    World::new(1).survives(|node| node.server.kill().unwrap());
}

#[test]
fn pods_survive_a_knarr_that_stops_in_order() {
    World::new(1).survives(|node| assert!(node.server.terminate().unwrap(), "it ends with success"));
}

#[test]
fn after_a_reboot_pods_are_started_again() {
    let mut world = World::new(1);
    let start = with_folder(script("server", "Always", "echo run >> /host/starts; exec sleep infinity"), &world.folder);
    world.node.create_pod(&start);
    world.node.create_pod(&script("task", "Never", "exec sleep infinity"));
    world.node.create_pod(&script("done", "Never", "exit 0"));
    let before = world.node.ready("server");
    world.node.ready("task");
    let done = world.node.until("done", "done", |pod| pod["status"]["phase"] == "Succeeded");

    world.node.server.reboot().unwrap();

    let after = world.node.until("server", "started again", |pod| is_ready(pod) && restarts(pod) == 1);
    assert_ne!(container_id(&after), container_id(&before));
    let last = &container(&after)["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["reason"]), (&json!(255), &json!("Unknown")), "{last}");
    assert_eq!(last["containerID"], container(&before)["containerID"]);
    assert_eq!(std::fs::read_to_string(world.folder.join("starts")).unwrap(), "run\nrun\n");
    assert_eq!(world.node.processes(&container_id(&after)).len(), 1);

    // One that shall not be started again has failed, and one that had ended stays as it was.
    let task = world.node.until("task", "failed", |pod| pod["status"]["phase"] == "Failed");
    let state = &container(&task)["state"]["terminated"];
    assert_eq!((&state["exitCode"], &state["reason"]), (&json!(255), &json!("Unknown")), "{state}");
    assert_eq!(restarts(&task), 0);
    assert_eq!(container(&world.node.pod("done")), container(&done));
}
