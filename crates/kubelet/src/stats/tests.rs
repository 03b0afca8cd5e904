//! The summary of one pod against a runtime whose numbers are known, and its metrics.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodStatus;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;
use crate::node::machine::Machine;
use crate::node::tests::Fixture;
use crate::pod::terminations::Termination;
use crate::pods::ContainerRef;

fn value(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}

fn container_stats(seconds: i64, usage: u64) -> v1::ContainerStats {
    let timestamp = (1_800_000_000 + seconds) * 1_000_000_000;
    v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes { id: "id1".into(), ..Default::default() }),
        cpu: Some(v1::CpuUsage { timestamp, usage_core_nano_seconds: value(usage), ..Default::default() }),
        memory: Some(v1::MemoryUsage {
            timestamp,
            working_set_bytes: value(5000),
            rss_bytes: value(4000),
            ..Default::default()
        }),
        writable_layer: Some(v1::FilesystemUsage {
            used_bytes: value(700),
            inodes_used: value(3),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// A pod with an emptyDir that holds a file, and one running container.
fn pod(fixture: &Fixture) -> Pods {
    let volume = fixture.root().join("pods/u1/volumes/kubernetes.io~empty-dir/v");
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::write(volume.join("f"), vec![0; 8192]).unwrap();
    let pod = json!({
        "metadata": { "name": "p", "namespace": "a", "uid": "u1" },
        "spec": { "containers": [{ "name": "c" }], "volumes": [{ "name": "v", "emptyDir": {} }] },
    });
    let container = ContainerRef {
        name: "c".into(),
        id: "id1".into(),
        attempt: 0,
        running: true,
        log_path: fixture.root().join("logs/c/0.log").to_string_lossy().into_owned(),
    };
    let state = PodState {
        pod: Arc::new(serde_json::from_value(pod).unwrap()),
        status: PodStatus::default(),
        containers: vec![container],
        sandbox: Some("s1".into()),
        finished: false,
    };
    let pods = Pods::default();
    pods.set("u1", state, &mpsc::channel(1).0);
    pods
}

#[tokio::test]
async fn a_summary_with_rates_from_two_readings() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::new(|config| config.root_dir = folder.path().to_owned());
    let pods = pod(&fixture);
    let image = Some(v1::ImageSpec { image: "web:1".into(), ..Default::default() });
    let created_at = 1_800_000_000 * 1_000_000_000;
    *fixture.runtime.containers.lock() =
        vec![v1::Container { id: "id1".into(), created_at, image, ..Default::default() }];
    let interface =
        |name: &str| v1::NetworkInterfaceUsage { name: name.into(), rx_bytes: value(11), ..Default::default() };
    *fixture.runtime.pod_stats.lock() = vec![v1::PodSandboxStats {
        attributes: Some(v1::PodSandboxAttributes { id: "s1".into(), ..Default::default() }),
        linux: Some(v1::LinuxPodSandboxStats {
            network: Some(v1::NetworkUsage {
                timestamp: created_at,
                default_interface: Some(interface("eth0")),
                interfaces: vec![],
            }),
            process: Some(v1::ProcessUsage { timestamp: created_at, process_count: value(4) }),
            ..Default::default()
        }),
        ..Default::default()
    }];
    let stats = Stats::default();
    *fixture.runtime.stats.lock() = vec![container_stats(0, 1_000_000_000)];
    let first = stats.summary(&fixture.kubelet, &pods).await.unwrap();
    assert_eq!(first.pods[0].containers[0].cpu.usage_nano_cores, None);
    *fixture.runtime.stats.lock() = vec![container_stats(10, 3_500_000_000)];
    let second = stats.summary(&fixture.kubelet, &pods).await.unwrap();
    let pod = serde_json::to_value(&second.pods[0]).unwrap();
    assert_eq!(pod["podRef"], json!({ "name": "p", "namespace": "a", "uid": "u1" }));
    let cpu = json!({ "time": "2027-01-15T08:00:10Z", "usageNanoCores": 250_000_000, "usageCoreNanoSeconds": 3_500_000_000_u64 });
    assert_eq!(pod["containers"][0]["cpu"], cpu);
    assert_eq!(pod["containers"][0]["startTime"], "2027-01-15T08:00:00Z");
    assert_eq!((&pod["cpu"]["usageNanoCores"], &pod["memory"]["workingSetBytes"]), (&json!(250_000_000), &json!(5000)));
    assert_eq!((&pod["network"]["name"], &pod["network"]["rxBytes"]), (&json!("eth0"), &json!(11)));
    assert_eq!(pod["process_stats"], json!({ "process_count": 4 }));
    let volume = &pod["volume"][0];
    assert_eq!(volume["name"], "v");
    assert!(volume["usedBytes"].as_u64() >= Some(8192), "{volume}");
    let whole = pod["ephemeral-storage"]["usedBytes"].as_u64().unwrap();
    assert_eq!(whole, volume["usedBytes"].as_u64().unwrap() + 700);
    assert!(second.node.memory.available_bytes > Some(0) && second.node.rlimit.curproc > 0);
    assert!(second.node.memory.rss_bytes > Some(0) && second.node.memory.page_faults > Some(0));

    let resource = metrics::resource(Some(&second));
    for line in [
        "# TYPE container_cpu_usage_seconds_total counter",
        "container_cpu_usage_seconds_total{container=\"c\",namespace=\"a\",pod=\"p\"} 3.5 1800000010000",
        "pod_memory_working_set_bytes{namespace=\"a\",pod=\"p\"} 5000 ",
        "container_start_time_seconds{container=\"c\",namespace=\"a\",pod=\"p\"} 1800000000\n",
        "resource_scrape_error 0\n",
    ] {
        assert!(resource.contains(line), "{line} in\n{resource}");
    }
    assert!(metrics::resource(None).ends_with("resource_scrape_error 1\n"));
    let machine = Machine { cpus: 2, boot_id: "b".into(), ..Machine::default() };
    let cadvisor = metrics::cadvisor(&second, &machine);
    for line in [
        "container_cpu_usage_seconds_total{container=\"c\",cpu=\"total\",id=\"/kubepods/podu1/id1\",image=\"web:1\",name=\"id1\",namespace=\"a\",pod=\"p\"} 3.5 1800000010000",
        "container_network_receive_bytes_total{container=\"\",id=\"/kubepods/podu1\",image=\"\",interface=\"eth0\",name=\"\",namespace=\"a\",pod=\"p\"} 11 1800000000000",
        "machine_cpu_cores{boot_id=\"b\",machine_id=\"\",system_uuid=\"\"} 2\n",
    ] {
        assert!(cadvisor.contains(line), "{line} in\n{cadvisor}");
    }
    let counters = own::Counters::default();
    let crash = Termination { container_type: "container", exit_code: 139, reason: "Error".to_owned() };
    counters.terminations.lock().insert(crash, 2);
    let own = own::kubelet("n1", &pods.list(), &counters, &[]);
    for line in [
        "kubelet_running_pods 1\n",
        "kubelet_running_containers{container_state=\"running\"} 1\n",
        "kubelet_terminated_containers_total{container_type=\"container\",exit_code=\"139\",reason=\"Error\"} 2\n",
    ] {
        assert!(own.contains(line), "{line} in\n{own}");
    }
}

#[tokio::test]
async fn a_runtime_that_fails_is_said() {
    let fixture = Fixture::new(|_| {});
    *fixture.runtime.stats_fail.lock() = true;
    assert!(Stats::default().summary(&fixture.kubelet, &Pods::default()).await.is_err());
}

fn pressure(seconds: u64) -> PsiStats {
    let data = |total: u64| PsiData { total: total * 1_000_000_000, ..PsiData::default() };
    PsiStats { full: data(seconds), some: data(seconds * 2) }
}

fn counted(time: &str) -> Summary {
    let cpu = || CpuStats {
        time: time.into(),
        usage_core_nano_seconds: Some(2_500_000_000),
        psi: Some(pressure(1)),
        ..Default::default()
    };
    let memory = || MemoryStats {
        time: time.into(),
        usage_bytes: Some(6000),
        working_set_bytes: Some(5000),
        rss_bytes: Some(4000),
        page_faults: Some(30),
        major_page_faults: Some(2),
        psi: Some(pressure(3)),
        ..Default::default()
    };
    let swap = || SwapStats { time: time.into(), swap_usage_bytes: Some(70), ..Default::default() };
    let container = ContainerStats {
        name: "c".into(),
        id: "id1".into(),
        image: "web:1".into(),
        start_time: "2027-01-15T08:00:00.5Z".into(),
        cpu: cpu(),
        memory: memory(),
        swap: swap(),
        rootfs: FsStats { capacity_bytes: Some(900), used_bytes: Some(800), inodes: Some(9), ..Default::default() },
        io: Some(IoStats { time: time.into(), psi: Some(pressure(5)) }),
        bounds: Some(Bounds {
            cpu_period: 100_000,
            cpu_quota: Some(50_000),
            cpu_shares: 256,
            memory_bytes: 64,
            memory_swap_bytes: 65,
        }),
        felt: Some(Felt { periods: 9, throttled_periods: 4, throttled_nanoseconds: 1_500_000_000, oom_kills: 1 }),
        ..Default::default()
    };
    let unknown = ContainerStats { name: "quo\"ted".into(), id: "id2".into(), ..Default::default() };
    let interface = InterfaceStats { name: "eth0".into(), rx_bytes: 11, rx_errors: 12, tx_bytes: 13, tx_errors: 14 };
    let pod = PodStats {
        pod_ref: PodReference { name: "p".into(), namespace: "a".into(), uid: "u1".into() },
        containers: vec![container, unknown],
        cpu: cpu(),
        memory: memory(),
        swap: swap(),
        network: Some(NetworkStats { time: time.into(), interfaces: vec![interface], ..Default::default() }),
        process_stats: Some(ProcessStats { count: 4 }),
        ..Default::default()
    };
    let node = NodeStats { cpu: cpu(), memory: memory(), swap: swap(), ..Default::default() };
    Summary { node, pods: vec![pod] }
}

/// Every family, with its help and type. The texts are compared as a whole, since dashboards and alerts read them.
#[test]
fn the_whole_texts_are_known() {
    let summary = counted("2027-01-15T08:00:10Z");
    let machine = Machine { cpus: 2, memory_bytes: 3, boot_id: "b".into(), ..Machine::default() };
    let counters = own::Counters::default();
    counters.evictions.lock().insert("memory.available".into(), 2);
    let ended =
        crate::pod::terminations::Termination { container_type: "container", exit_code: 1, reason: "Error".into() };
    counters.terminations.lock().insert(ended, 3);
    let amount = crate::volumes::Amount { total: 10, used: 4, available: 6 };
    let claims = [
        ("a".to_owned(), "data".to_owned(), crate::volumes::Amounts { bytes: Some(amount), inodes: None }),
        ("a".to_owned(), "more".to_owned(), crate::volumes::Amounts { bytes: Some(amount), inodes: Some(amount) }),
    ];
    let own = own::kubelet("n1", &[], &counters, &claims);
    // What is measured of this process stands at the end.
    let own = own.split_once("# HELP process_").unwrap().0;
    let text = format!(
        "{}---\n{}---\n{}---\n{own}",
        metrics::resource(None),
        metrics::resource(Some(&summary)),
        metrics::cadvisor(&summary, &machine)
    );
    assert_eq!(text, include_str!("testdata/metrics.txt"));
}
