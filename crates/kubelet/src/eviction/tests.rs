//! The loop with observations that a test makes up, and pods whose orders it reads.

use k8s_openapi::api::core::v1::PodStatus;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;
use crate::node::tests::Fixture;
use crate::pods::ContainerRef;

fn pod(name: &str, spec: serde_json::Value) -> Pod {
    let metadata = json!({ "name": name, "namespace": "a", "uid": name });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

fn add(pods: &Pods, pod: Pod) -> mpsc::Receiver<Order> {
    let (sender, orders) = mpsc::channel(8);
    let uid = pod.metadata.uid.clone().unwrap();
    let container = ContainerRef {
        name: "c".into(),
        id: format!("{uid}-c"),
        attempt: 0,
        running: true,
        log_path: "/nonexistent/c/0.log".into(),
    };
    let state = PodState {
        pod: Arc::new(pod),
        status: PodStatus { phase: Some("Running".into()), ..PodStatus::default() },
        containers: vec![container],
        sandbox: None,
        finished: false,
    };
    pods.set(&uid, state, &sender);
    orders
}

fn eviction(fixture: &Fixture, pods: &Arc<Pods>) -> Eviction {
    let (stats, images, counters) = Default::default();
    let (kubelet, health) = (fixture.kubelet.clone(), fixture.health.clone());
    Eviction::new(kubelet, pods.clone(), health, stats, images, counters, &BTreeMap::new())
}

fn working_set(uid: &str, bytes: u64) -> cri::v1::ContainerStats {
    cri::v1::ContainerStats {
        attributes: Some(cri::v1::ContainerAttributes { id: format!("{uid}-c"), ..Default::default() }),
        memory: Some(cri::v1::MemoryUsage {
            working_set_bytes: Some(cri::v1::UInt64Value { value: bytes }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn one_pod_per_look_goes_and_the_node_says_so() {
    let fixture = Fixture::new(|config| {
        config.eviction_hard.insert("memory.available".into(), "100Mi".into());
    });
    let pods = Arc::new(Pods::default());
    let spec = |priority: i32| json!({ "priority": priority, "containers": [{ "name": "c" }] });
    let mut critical = add(&pods, pod("critical", spec(2_000_000_000)));
    let mut small = add(&pods, pod("small", spec(0)));
    let mut large = add(&pods, pod("large", spec(0)));
    *fixture.runtime.stats.lock() =
        vec![working_set("critical", 9 << 30), working_set("small", 1 << 20), working_set("large", 1 << 30)];
    let eviction = eviction(&fixture, &pods);
    let mut memory = threshold::Memory::default();
    let enough = Observations::from([(Signal::Memory, Observation { available: 200 << 20, capacity: 8 << 30 })]);
    eviction.look(&enough, &mut memory).await;
    assert!(fixture.health.pressures().is_empty() && large.try_recv().is_err());

    let short = Observations::from([(Signal::Memory, Observation { available: 50 << 20, capacity: 8 << 30 })]);
    eviction.look(&short, &mut memory).await;
    assert_eq!(fixture.health.pressures(), [Pressure::Memory]);
    let Order::Evict { reason, message, condition, grace_period_seconds } = large.try_recv().unwrap();
    let expected = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 1Gi, request is 0, has larger consumption of memory. ";
    assert_eq!((reason.as_str(), message.as_str(), grace_period_seconds), ("Evicted", expected, Some(1)));
    assert_eq!(condition.unwrap().reason, "TerminationByKubelet");
    assert!(small.try_recv().is_err() && critical.try_recv().is_err());

    // The worker of an evicted pod ends it; the next look takes the next one, and never the critical one.
    pods.remove("large");
    eviction.look(&short, &mut memory).await;
    assert!(small.try_recv().is_ok());
    pods.remove("small");
    eviction.look(&short, &mut memory).await;
    assert!(critical.try_recv().is_err());
    sleep(Duration::from_secs(1)).await;
    assert!(fixture.event_reasons().contains(&"EvictionThresholdMet".into()));
    assert_eq!(eviction.counters.evictions.lock()["memory.available"], 2);
}

#[tokio::test]
async fn a_volume_over_its_limit_ends_the_pod() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::new(|config| config.root_dir = folder.path().to_owned());
    let volume = folder.path().join("pods/p/volumes/kubernetes.io~empty-dir/x");
    std::fs::create_dir_all(&volume).unwrap();
    let pods = Arc::new(Pods::default());
    let volumes = json!([{ "name": "x", "emptyDir": { "sizeLimit": "1Mi" } }]);
    let mut orders = add(&pods, pod("p", json!({ "containers": [{ "name": "c" }], "volumes": volumes })));
    let eviction = eviction(&fixture, &pods);
    std::fs::write(volume.join("f"), vec![1; 500_000]).unwrap();
    eviction.look(&Observations::new(), &mut threshold::Memory::default()).await;
    assert!(orders.try_recv().is_err());
    std::fs::write(volume.join("g"), vec![1; 900_000]).unwrap();
    eviction.look(&Observations::new(), &mut threshold::Memory::default()).await;
    let Order::Evict { message, condition, .. } = orders.try_recv().unwrap();
    assert_eq!(message, "Usage of EmptyDir volume \"x\" exceeds the limit \"1Mi\". ");
    assert!(condition.is_none());
    assert!(fixture.health.pressures().is_empty());
}

#[tokio::test]
async fn the_machine_can_be_observed() {
    let fixture = Fixture::new(|config| {
        config.eviction_hard.insert("nodefs.available".into(), "1%".into());
    });
    let seen = eviction(&fixture, &Arc::default()).observe().await;
    for signal in [Signal::Memory, Signal::Pids, Signal::NodeFs, Signal::ImageFs] {
        let seen = seen.get(&signal).unwrap_or_else(|| panic!("{signal:?} is not seen"));
        assert!(seen.capacity > 0 && seen.available <= seen.capacity, "{signal:?} {seen:?}");
    }
}

#[test]
fn who_is_taken_under_pressure() {
    let best_effort = pod("p", json!({ "containers": [{ "name": "c" }] }));
    let burstable =
        pod("p", json!({ "containers": [{ "name": "c", "resources": { "requests": { "memory": "1Mi" } } }] }));
    let tolerating = pod(
        "p",
        json!({
            "containers": [{ "name": "c" }],
            "tolerations": [{ "key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule" }],
        }),
    );
    let critical = pod("p", json!({ "priority": 2_000_000_000, "containers": [{ "name": "c" }] }));
    let told = |pressures: &[Pressure], pod: &Pod| {
        refuses(pressures, pod).map(|(reason, message)| format!("{reason}: {message}"))
    };
    let memory = Some("Evicted: The node had condition: [MemoryPressure]. ".to_owned());
    assert_eq!(told(&[Pressure::Memory], &best_effort), memory);
    assert_eq!(told(&[Pressure::Memory], &burstable), None);
    assert_eq!(told(&[Pressure::Memory], &tolerating), None);
    assert_eq!(told(&[], &best_effort), None);
    let both = Some("Evicted: The node had condition: [DiskPressure MemoryPressure]. ".to_owned());
    assert_eq!(told(&[Pressure::Memory, Pressure::Disk], &burstable), both);
    assert_eq!(told(&[Pressure::Memory, Pressure::Disk], &critical), None);
}
