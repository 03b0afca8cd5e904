//! Two controller managers and two schedulers of one cluster: one of each works, and when it is gone the other one goes on where
//! it stopped. Whatever was done is done once, which a watch of every pod from the first to the last shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Client, Component, Options, Server};

const LATER: Duration = Duration::from_secs(120);
const LEASE: Duration = Duration::from_secs(4);

async fn until(what: &str, mut reached: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !reached().await {
        assert!(began.elapsed() < LATER, "{what}: not within {LATER:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn get(client: &Client, path: &str) -> Value {
    client.get(path).await.unwrap().json()
}

async fn create(client: &Client, path: &str, object: Value) -> Value {
    let made = client.post(path, &object).await.unwrap();
    assert_eq!(made.code, 201, "{}", made.text());
    made.json()
}

async fn patch(client: &Client, path: &str, patch: Value) -> u16 {
    client.send("PATCH", path, "application/merge-patch+json", patch.to_string()).await.unwrap().code
}

/// Both candidates of a component. They are told apart by what they log when they lead.
struct Pair {
    kind: &'static str,
    arguments: Vec<&'static str>,
    candidates: Vec<Component>,
    started: usize,
}

impl Pair {
    fn start(server: &Server, kind: &'static str, arguments: &[&'static str]) -> Pair {
        let mut pair = Pair { kind, arguments: arguments.to_vec(), candidates: Vec::new(), started: 0 };
        pair.fill(server);
        pair
    }

    /// Starts as many as are missing.
    fn fill(&mut self, server: &Server) {
        while self.candidates.len() < 2 {
            let name = format!("{}-{}", self.kind, self.started);
            self.candidates.push(Component::start(server, &name, self.kind, &self.arguments).unwrap());
            self.started += 1;
        }
    }

    /// Takes out the one that leads, which another one will replace.
    async fn take_leader(&mut self) -> Component {
        let leads = |log: String| log.matches("became leader").count() > log.matches("no longer leader").count();
        let mut found = None;
        until(&format!("one {} leads", self.kind), async || {
            found = self.candidates.iter().position(|one| leads(one.log()));
            found.is_some()
        })
        .await;
        self.candidates.remove(found.unwrap())
    }

    async fn holder(&self, client: &Client) -> String {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{}", self.kind);
        get(client, &path).await["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// How long it takes until another than that one holds the lease.
    async fn taken_over(&self, client: &Client, from: &str) -> Duration {
        let began = Instant::now();
        until(&format!("another {} leads", self.kind), async || {
            let holder = self.holder(client).await;
            !holder.is_empty() && holder != from
        })
        .await;
        began.elapsed()
    }
}

/// Everything that ever happened to pods.
#[derive(Default)]
struct History {
    /// Pods by who controls them.
    of_owner: BTreeMap<String, BTreeSet<String>>,
    /// Pods by Job and index.
    of_index: BTreeMap<(String, String), BTreeSet<String>>,
    /// The nodes each pod was ever seen on.
    nodes: BTreeMap<String, BTreeSet<String>>,
    deleted: BTreeSet<String>,
}

impl History {
    fn see(&mut self, event: &Value) {
        let pod = &event["object"];
        let metadata = &pod["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let uid = text(&metadata["uid"]);
        for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
            self.of_owner.entry(text(&owner["name"])).or_default().insert(uid.clone());
        }
        if let Some(index) = metadata["annotations"]["batch.kubernetes.io/job-completion-index"].as_str() {
            let job = text(&metadata["labels"]["batch.kubernetes.io/job-name"]);
            self.of_index.entry((job, index.to_owned())).or_default().insert(uid.clone());
        }
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            self.nodes.entry(uid.clone()).or_default().insert(node.to_owned());
        }
        if event["type"] == "DELETED" || !metadata["deletionTimestamp"].is_null() {
            self.deleted.insert(uid);
        }
    }
}

/// Follows all pods from the beginning, and ends those of Jobs once they run, as their nodes would.
async fn follow(client: Client, history: Arc<Mutex<History>>) {
    let mut watch =
        client.watch("/api/v1/namespaces/default/pods?watch=1&resourceVersion=0&timeoutSeconds=3600").await.unwrap();
    while let Ok(Some(event)) = watch.next().await {
        history.lock().unwrap().see(&event);
        let pod = &event["object"];
        let is_jobs = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"].is_string();
        if is_jobs && pod["status"]["phase"] == "Running" {
            let (client, name) = (client.clone(), pod["metadata"]["name"].as_str().unwrap().to_owned());
            tokio::spawn(async move {
                let path = format!("/api/v1/namespaces/default/pods/{name}/status");
                patch(&client, &path, json!({"status": {"phase": "Succeeded"}})).await;
            });
        }
    }
}

fn template(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "demo:1"}]}})
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const SERVICES: &str = "/api/v1/namespaces/default/services";

async fn deployment(client: &Client, name: &str, replicas: usize) {
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name)});
    create(client, DEPLOYMENTS, json!({"metadata": {"name": name}, "spec": spec})).await;
    let spec = json!({"selector": {"app": name}, "ports": [{"port": 80}]});
    create(client, SERVICES, json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn job(client: &Client, name: &str, completions: usize) {
    let mut template = template(name);
    template["spec"]["restartPolicy"] = "Never".into();
    let spec = json!({"completions": completions, "parallelism": 5, "completionMode": "Indexed", "template": template});
    create(client, JOBS, json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn scale(client: &Client, name: &str, replicas: usize) {
    let path = format!("{DEPLOYMENTS}/{name}/scale");
    assert_eq!(patch(client, &path, json!({"spec": {"replicas": replicas}})).await, 200);
}

/// Only what nobody may do twice: no scheduler and no controllers of its own.
fn bare_server() -> Server {
    let parts = "--disable=kube-controller-manager,kube-scheduler,cloud-controller-manager,local-storage";
    let server = Server::start_with(Options { arguments: vec![parts.into()], ..Options::default() }).unwrap();
    server.default_account("default").unwrap();
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_leader_is_killed_the_other_goes_on_and_nothing_is_done_twice() {
    let server = bare_server();
    let client = server.client().unwrap();
    let _nodes = Component::start(&server, "nodes", "hollow-nodes", &["--count=5"]).unwrap();
    let leases =
        ["--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms"];
    let mut managers = Pair::start(&server, "kube-controller-manager", &leases);
    let mut schedulers = Pair::start(&server, "kube-scheduler", &leases);
    let history = Arc::<Mutex<History>>::default();
    let following = tokio::spawn(follow(client.clone(), history.clone()));

    const ROUNDS: usize = 3;
    const STEP: usize = 15;
    for name in ["a", "b"] {
        deployment(&client, name, STEP).await;
    }
    let mut slowest = Duration::ZERO;
    for round in 0..ROUNDS {
        // Work that the leaders have only begun when they are killed.
        job(&client, &format!("job-{round}"), STEP).await;
        for name in ["a", "b"] {
            scale(&client, name, STEP * (round + 2)).await;
        }
        let pods = history.lock().unwrap().nodes.len();
        until("some of it is done", async || history.lock().unwrap().nodes.len() > pods + 2).await;
        for pair in [&mut managers, &mut schedulers] {
            let mut leader = pair.take_leader().await;
            let holder = pair.holder(&client).await;
            leader.kill().unwrap();
            slowest = slowest.max(pair.taken_over(&client, &holder).await);
            pair.fill(&server);
        }
    }
    println!("the slowest take-over took {slowest:?} with a lease of {LEASE:?}");
    // A candidate looks once in a retry period of up to 1.1 s; the rest is for a machine that is busy.
    assert!(slowest < LEASE + Duration::from_secs(6), "{slowest:?}");

    let replicas = STEP * (ROUNDS + 1);
    for name in ["a", "b"] {
        until("all replicas are ready", async || {
            get(&client, &format!("{DEPLOYMENTS}/{name}")).await["status"]["readyReplicas"] == replicas
        })
        .await;
    }
    for round in 0..ROUNDS {
        let path = format!("{JOBS}/job-{round}");
        until("the job is complete", async || {
            get(&client, &path).await["status"]["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["type"] == "Complete" && one["status"] == "True"))
        })
        .await;
        let status = get(&client, &path).await["status"].clone();
        assert_eq!((&status["succeeded"], &status["failed"]), (&json!(STEP), &Value::Null), "{status}");
        assert_eq!(status["completedIndexes"], format!("0-{}", STEP - 1));
    }

    // Every pod of a Deployment that ever was is one of those that are, so none was made twice or ended for nothing.
    let sets = get(&client, "/apis/apps/v1/namespaces/default/replicasets").await;
    let sets: Vec<&str> =
        sets["items"].as_array().unwrap().iter().filter_map(|set| set["metadata"]["name"].as_str()).collect();
    assert_eq!(sets.len(), 2, "{sets:?}");
    {
        let history = history.lock().unwrap();
        for set in sets {
            assert_eq!(history.of_owner[set].len(), replicas, "pods of {set}");
        }
        assert_eq!(history.of_index.len(), ROUNDS * STEP);
        let twice: Vec<_> = history.of_index.iter().filter(|(_, pods)| pods.len() != 1).collect();
        assert!(twice.is_empty(), "indexes done twice: {twice:?}");
        let moved: Vec<_> = history.nodes.iter().filter(|(_, nodes)| nodes.len() != 1).collect();
        assert!(moved.is_empty(), "pods bound twice: {moved:?}");
        assert_eq!(history.nodes.len(), 2 * replicas + ROUNDS * STEP);
        assert!(history.deleted.is_empty(), "pods that were deleted: {:?}", history.deleted);
    }
    assert_nothing_was_refused(&client).await;
    assert_addresses_are_told_once(&client, replicas).await;
    following.abort();
}

/// A second scheduler that works beside the first one shows in bindings that are refused.
async fn assert_nothing_was_refused(client: &Client) {
    let events = get(client, "/api/v1/namespaces/default/events").await;
    let refused: Vec<&Value> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["reason"] == "FailedScheduling" && event["message"].to_string().contains("Bind"))
        .map(|event| &event["message"])
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// Services have addresses of their own, and each of their pods stands in one slice once.
async fn assert_addresses_are_told_once(client: &Client, replicas: usize) {
    let services = get(client, SERVICES).await;
    let services = services["items"].as_array().unwrap();
    let addresses: BTreeSet<&str> = services.iter().filter_map(|one| one["spec"]["clusterIP"].as_str()).collect();
    assert_eq!(addresses.len(), services.len());
    for name in ["a", "b"] {
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name={name}"
        );
        let mut told = Vec::new();
        until("all pods are told", async || {
            let slices = get(client, &path).await;
            let slices = slices["items"].as_array().cloned().unwrap_or_default();
            let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
            told = endpoints.map(|one| one["addresses"][0].as_str().unwrap_or_default().to_owned()).collect();
            told.len() >= replicas
        })
        .await;
        let once: BTreeSet<&String> = told.iter().collect();
        assert_eq!((told.len(), once.len()), (replicas, replicas), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_told_to_stop_hands_over_at_once() {
    let server = bare_server();
    let client = server.client().unwrap();
    let _nodes = Component::start(&server, "nodes", "hollow-nodes", &["--count=2"]).unwrap();
    // So long that nobody would wait for its end.
    let leases =
        ["--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m", "--leader-elect-retry-period=500ms"];
    let mut managers = Pair::start(&server, "kube-controller-manager", &leases);
    let mut schedulers = Pair::start(&server, "kube-scheduler", &leases);
    deployment(&client, "a", 10).await;
    let path = format!("{DEPLOYMENTS}/a");
    let ready = async |count: usize| get(&client, &path).await["status"]["readyReplicas"] == count;
    until("the first pods", async || ready(10).await).await;
    scale(&client, "a", 40).await;
    for pair in [&mut managers, &mut schedulers] {
        let mut leader = pair.take_leader().await;
        let holder = pair.holder(&client).await;
        let began = Instant::now();
        assert!(leader.terminate().unwrap().success(), "{} ended badly", leader.name);
        let ended = began.elapsed();
        pair.taken_over(&client, &holder).await;
        println!("{} ended after {ended:?}, the other led after {:?}", leader.name, began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
    until("the other pods", async || ready(40).await).await;
    let pods = get(&client, "/api/v1/namespaces/default/pods").await;
    assert_eq!(pods["items"].as_array().map(Vec::len), Some(40));
}
