//! Three servers with etcd and three agents under a steady load, and everything that can happen to servers, one after the
//! other. No acknowledged write is lost, no container is started again, pods are reached all the time, and who knows all
//! servers is without an API for less than five seconds. The numbers of every step are printed and kept in the target folder.

#[path = "support/load.rs"]
mod load;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use load::{Asker, CONFIG_MAPS, Writer};
use serde_json::{Value, json};
use testkit::{Agent, Client, Hub, Machine, Options, Place, Server};

/// Debug builds on a machine that runs other tests, too.
const PATIENCE: Duration = Duration::from_secs(90);
const OUTAGE_MAX: Duration = Duration::from_secs(5);
const CUT_FOR: Duration = Duration::from_secs(60);
/// How long a server is dead, and how long a disk is full.
const AWAY_FOR: Duration = Duration::from_secs(3);
const FULL_FOR: Duration = Duration::from_secs(15);
/// etcd takes two files of 64 MiB at once.
const SMALL_DISK: &str = "500m";
const SMALL: usize = 2;

fn becomes(mut holds: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    false
}

fn eventually(what: &str, holds: impl FnMut() -> bool) {
    assert!(becomes(holds), "{what}");
}

struct World {
    writers: Vec<Writer>,
    askers: Vec<Asker>,
    clients: Vec<Client>,
    /// As they were when the load began.
    containers: BTreeMap<String, Container>,
    report: String,
    broken: Vec<String>,
    agents: Vec<Agent>,
    servers: Vec<Server>,
    hub: Arc<Hub>,
}

/// A container, so that no other one is the same.
#[derive(Debug, PartialEq)]
struct Container {
    id: String,
    restarts: u64,
    /// With the moments they began.
    processes: BTreeMap<String, String>,
}

impl World {
    fn start() -> World {
        let hub = Arc::new(Hub::start(1).unwrap());
        let machine = |host| Arc::new(Machine::start_on(&hub, Place { link: 0, host }).unwrap());
        let mut servers: Vec<Server> = Vec::new();
        for index in 0..3 {
            let machine = machine(index as u8 + 1);
            let folder = tempfile::Builder::new().prefix("knarr-test-").tempdir().unwrap();
            if index == SMALL {
                // Only this machine sees it, and it goes with the machine.
                let mount = format!("mount -t tmpfs -o size={SMALL_DISK} knarr-test {}", folder.path().display());
                machine.shell(&mount).unwrap();
            }
            let mut arguments =
                vec!["--node-name".to_owned(), format!("server-{}", index + 1), "--token=shared by all".into()];
            arguments.push(match servers.first() {
                None => "--cluster-init".into(),
                Some(first) => format!("--server={}", outside(first)),
            });
            servers.push(Server::start_in(folder, Options { arguments, machine: Some(machine) }).unwrap());
        }
        let mut agents = Vec::new();
        for number in 1..=3 {
            let agent = Agent::join(&servers[0], machine(10 + number), &format!("agent-{number}"), &[]);
            agents.push(agent.unwrap());
        }
        let tls = servers[0].data_dir().join("tls");
        let clients = servers.iter().map(|server| Client::with_certificate(&outside(server), &tls, "admin").unwrap());
        let clients = clients.collect();
        let (writers, askers, containers) = Default::default();
        let (report, broken) = (String::new(), Vec::new());
        World { writers, askers, clients, containers, report, broken, agents, servers, hub }
    }

    fn get(&self, path: &str) -> Value {
        let (client, path) = (self.clients[0].clone().within(Some(self.hub.network())), path.to_owned());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let reply = runtime.block_on(client.get(&path)).unwrap();
        assert_eq!(reply.code, 200, "{}", reply.text());
        reply.json()
    }

    /// Pods on the agents behind a Service, and those who ask and write.
    fn load(&mut self) {
        self.servers[0].default_account("default").unwrap();
        let kubectl = self.servers[0].kubectl();
        kubectl.ok_with(&["apply", "-f", "-"], &web().to_string());
        kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=120s"]);
        let address = kubectl.ok(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}:80"]).parse().unwrap();
        let pods = self.get("/api/v1/namespaces/default/pods");
        let (one, another) = (self.agents[0].machine(), self.agents[1].machine());
        let on_second = pods["items"].as_array().unwrap().iter().find(|pod| pod["spec"]["nodeName"] == "agent-2");
        let inside = pod_network(another, on_second.unwrap()["status"]["podIP"].as_str().unwrap());
        for (network, from) in [(one.network(), "agent-1"), (inside, "a pod on agent-2")] {
            eventually("the Service answers", || {
                let asker = Asker::start(&network, from, address);
                std::thread::sleep(Duration::from_millis(200));
                let (asked, failed) = asker.count(Instant::now() - Duration::from_secs(1), Instant::now());
                asked > 0 && failed.is_empty()
            });
            self.askers.push(Asker::start(&network, from, address));
        }
        for name in ["first", "second"] {
            self.writers.push(Writer::start(&self.hub.network(), name, self.clients.clone()));
        }
        self.containers = self.containers();
        assert_eq!(self.containers.len(), 6, "{:?}", self.containers);
    }

    fn containers(&self) -> BTreeMap<String, Container> {
        let pods = self.get("/api/v1/namespaces/default/pods");
        let pods = pods["items"].as_array().unwrap().iter();
        pods.map(|pod| {
            let status = &pod["status"]["containerStatuses"][0];
            let id = status["containerID"].as_str().unwrap_or_default().to_owned();
            let agent = self.agents.iter().find(|agent| pod["spec"]["nodeName"] == *agent.name);
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let agent = agent.unwrap_or_else(|| panic!("{name} is on no agent"));
            let processes = processes(agent.machine(), id.rsplit('/').next().unwrap_or_default());
            (name, Container { id, restarts: status["restartCount"].as_u64().unwrap_or_default(), processes })
        })
        .collect()
    }

    /// Does something to the cluster, waits until every server and member is itself again, and writes down what was seen.
    fn step(&mut self, name: &str, happens: impl FnOnce(&mut World)) {
        let began = Instant::now();
        happens(self);
        let over = Instant::now();
        for index in 0..self.servers.len() {
            if !becomes(|| self.is_well(index)) {
                self.broken.push(format!("{name}: server-{} is not itself again", index + 1));
            }
        }
        // The load has gone on for a moment after that.
        std::thread::sleep(Duration::from_secs(1));
        let end = Instant::now();
        let mut outage = Duration::ZERO;
        let (mut acknowledged, mut unanswered) = (0, 0);
        for writer in &self.writers {
            let written = writer.written();
            outage = outage.max(written.longest_silence(began, end));
            let (some, none) = written.count(began, end);
            (acknowledged, unanswered) = (acknowledged + some, unanswered + none);
            self.broken.extend(written.wrong.iter().map(|wrong| format!("{name}: {wrong}")));
        }
        let (mut pages, mut failed) = (0, Vec::new());
        for asker in &self.askers {
            let (asked, wrong) = asker.count(began, end);
            pages += asked;
            failed.extend(wrong);
        }
        let containers = self.containers();
        let restarted = self.containers.iter().filter(|(name, before)| containers.get(*name) != Some(before)).count();
        let _ = writeln!(
            self.report,
            "{name:<34}{:>8.1}{:>10.1}{:>10.1}{acknowledged:>9}{unanswered:>9}{pages:>9}{:>9}{restarted:>9}",
            (over - began).as_secs_f64(),
            (end - over).as_secs_f64() - 1.0,
            outage.as_secs_f64(),
            failed.len(),
        );
        if outage > OUTAGE_MAX {
            self.broken.push(format!("{name}: no write was acknowledged for {outage:?}"));
        }
        if pages == 0 || acknowledged == 0 {
            self.broken.push(format!("{name}: nothing was asked or written"));
        }
        self.broken.extend(failed.into_iter().map(|wrong| format!("{name}: a page was not answered: {wrong}")));
        if restarted > 0 || containers.len() != self.containers.len() {
            self.broken.push(format!("{name}: containers were {:?} and are {containers:?}", self.containers));
        }
    }

    /// Whether a server reads and its member takes part.
    fn is_well(&self, index: usize) -> bool {
        self.reads(index) && self.etcdctl(index, "endpoint health").is_ok()
    }

    fn reads(&self, index: usize) -> bool {
        let client = self.clients[index].clone().within(Some(self.hub.network()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let path = format!("{CONFIG_MAPS}?limit=1");
        let read = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(5), client.get(&path)).await });
        runtime.shutdown_background();
        matches!(read, Ok(Ok(reply)) if reply.code == 200)
    }

    /// As an operator would look, on the server's machine.
    fn etcdctl(&self, index: usize, line: &str) -> anyhow::Result<String> {
        let tls = self.servers[index].data_dir().join("tls");
        let tls = tls.display();
        self.servers[index].machine().shell(&format!(
            "ETCDCTL_API=3 etcdctl --endpoints=https://127.0.0.1:2379 --dial-timeout=2s --command-timeout=3s \
             --cacert={tls}/etcd-ca.crt --cert={tls}/etcd-member.crt --key={tls}/etcd-member.key {line}"
        ))
    }

    /// The server whose etcd leads.
    fn leader(&self) -> usize {
        let leads = |index: &usize| {
            let status = self.etcdctl(*index, "endpoint status -w json").unwrap_or_default();
            let status: Value = serde_json::from_str(&status).unwrap_or_default();
            let status = &status[0]["Status"];
            !status["leader"].is_null() && status["leader"] == status["header"]["member_id"]
        };
        let mut found = None;
        eventually("a member leads", || {
            found = (0..self.servers.len()).find(leads);
            found.is_some()
        });
        found.unwrap()
    }

    fn kill_etcd(&self, index: usize) {
        let pid = self.servers[index].data_dir().join("etcd/pid");
        self.servers[index].machine().shell(&format!("kill -9 $(cat {})", pid.display())).unwrap();
    }

    /// The server and its etcd, at once.
    fn kill(&mut self, index: usize) {
        self.kill_etcd(index);
        self.servers[index].kill().unwrap();
    }
}

/// How others reach it.
fn outside(server: &Server) -> String {
    server.url.replace("127.0.0.1", &server.machine().address())
}

fn web() -> Value {
    let labels = json!({"app": "web"});
    let on_agents = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["agent-1", "agent-2", "agent-3"]}]}]}});
    let pod = json!({
        "affinity": {"nodeAffinity": on_agents},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels}}],
        "containers": [{"name": "main", "image": "knarr.dev/demo", "imagePullPolicy": "IfNotPresent",
            "args": ["serve", "--port", "8080"], "ports": [{"containerPort": 8080}],
            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 2, "timeoutSeconds": 5}}],
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 6,
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"selector": labels,
            "ports": [{"port": 80, "targetPort": 8080}]}},
    ]})
}

/// The network of the pod with an address, on the machine of its node.
fn pod_network(machine: &Machine, address: &str) -> PathBuf {
    let script = format!(
        "for process in /proc/[0-9]*; do
           if nsenter --net=$process/ns/net ip -4 -o address 2>/dev/null | grep -q ' {address}/'; then echo $process; exit; fi
         done; exit 1"
    );
    let process = machine.shell(&script).unwrap();
    machine.path(format!("{}/ns/net", process.trim()))
}

/// The processes of a container, by their ids, with the moments they began.
fn processes(machine: &Machine, container: &str) -> BTreeMap<String, String> {
    let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(|root| Path::new(root).join(machine.name()));
    let group = roots.iter().find_map(|root| find_folder(root, container));
    let text = group.and_then(|group| std::fs::read_to_string(group.join("cgroup.procs")).ok()).unwrap_or_default();
    let began = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).unwrap_or_default().to_owned()
    };
    text.lines().map(|pid| (pid.to_owned(), began(pid))).collect()
}

fn find_folder(root: &Path, name: &str) -> Option<PathBuf> {
    let mut below = std::fs::read_dir(root).ok()?.flatten().filter(|entry| entry.path().is_dir());
    below.find_map(|entry| match entry.file_name().to_string_lossy().contains(name) {
        true => Some(entry.path()),
        false => find_folder(&entry.path(), name),
    })
}

#[test]
fn whatever_happens_to_servers_pods_and_writes_stay() {
    let began = Instant::now();
    let mut world = World::start();
    world.load();
    world.report = format!(
        "{:<34}{:>8}{:>10}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}\n",
        "what happened", "for s", "back s", "outage s", "writes", "no reply", "pages", "failed", "restarts"
    );
    world.step("nothing", |_| std::thread::sleep(AWAY_FOR));
    for index in 0..3 {
        world.step(&format!("server-{} is killed", index + 1), |world| {
            world.kill(index);
            std::thread::sleep(AWAY_FOR);
            world.servers[index].restart().unwrap();
        });
    }
    let leader = world.leader();
    world.step(&format!("etcd's leader (server-{}) is killed", leader + 1), |world| world.kill_etcd(leader));
    let leader = world.leader();
    world.step(&format!("server-{}, the leader, is cut off", leader + 1), |world| {
        world.servers[leader].machine().cut().unwrap();
        std::thread::sleep(CUT_FOR);
        world.servers[leader].machine().uncut().unwrap();
    });
    world.step(&format!("the disk of server-{} is full", SMALL + 1), |world| {
        let server = &world.servers[SMALL];
        let file = server.data_dir().join("fill");
        let file = file.display();
        let fill = format!("cat /dev/zero > {file} 2>/dev/null; df --output=avail {file} | tail -1");
        assert_eq!(server.machine().shell(&fill).unwrap().trim(), "0");
        eventually("a member cannot live on a full disk", || world.etcdctl(SMALL, "endpoint health").is_err());
        std::thread::sleep(FULL_FOR);
        // Its server goes on, by way of the others' members.
        assert!(world.reads(SMALL), "the server with the full disk does not answer");
        assert!(Path::new(&format!("/proc/{}", server.pid())).exists(), "the server has ended");
        server.machine().shell(&format!("rm {file}")).unwrap();
    });
    world.step("everything starts again at once", |world| {
        (0..3).for_each(|index| world.kill(index));
        world.agents.iter_mut().for_each(|agent| agent.kill().unwrap());
        std::thread::scope(|scope| {
            for server in &mut world.servers {
                scope.spawn(|| server.restart().unwrap());
            }
            for agent in &mut world.agents {
                scope.spawn(|| agent.restart().unwrap());
            }
        });
    });
    let written: Vec<_> = std::mem::take(&mut world.writers).into_iter().map(Writer::stop).collect();
    let total: usize = written.iter().map(|written| written.last.len()).sum();
    let list = world.get(&format!("{CONFIG_MAPS}?labelSelector=load=yes"));
    let items = list["items"].as_array().unwrap().iter();
    let found: BTreeMap<&str, load::Acknowledged> =
        items.map(|item| (item["metadata"]["name"].as_str().unwrap(), load::read(item))).collect();
    let mut lost = 0;
    for (name, expected) in written.iter().flat_map(|written| &written.last) {
        // What a try without an answer has written later is not lost.
        if !found
            .get(name.as_str())
            .is_some_and(|there| there.revision >= expected.revision && there.value >= expected.value)
        {
            lost += 1;
            world.broken.push(format!("{name}: acknowledged {expected:?}, found {:?}", found.get(name.as_str())));
        }
    }
    let _ = writeln!(world.report, "{total} objects, {lost} lost; {} s in all", began.elapsed().as_secs());
    publish(&world.report);
    let (report, broken) = (std::mem::take(&mut world.report), std::mem::take(&mut world.broken));
    // What the servers said last is not what one wants to read first.
    drop(world);
    assert!(broken.is_empty(), "{report}\n{}", broken.join("\n"));
}

/// For whoever runs the tests, and for later.
fn publish(report: &str) {
    let binary = testkit::server::binary().unwrap();
    let file = binary.parent().and_then(Path::parent).unwrap_or(Path::new(".")).join("failover-report.txt");
    std::fs::write(&file, report).unwrap();
    // Not by a macro, which the test's runner would keep to itself.
    let _ = std::io::stderr().write_all(format!("\n{report}kept in {}\n", file.display()).as_bytes());
}
