//! Whole admissions on machines that are made up, and restarts.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use machinery::quantity::Quantity;
use serde_json::json;

use super::align::{Options, Policy, Scope};
use super::topology::tests::machine;
use super::topology::{MemoryNode, Topology};
use super::*;

/// The outcomes of upstream's tests of v1.36.4 on four nodes: a manager's resources are divided by `;`, managers by `/`.
#[test]
fn nodes_are_chosen_as_upstream_chooses_them() {
    let cpus: Vec<_> = (0..4).map(|cpu| (cpu, cpu, cpu, cpu, cpu)).collect();
    let topology = machine(&cpus);
    let align = |policy| Align::new(policy, Scope::Container, Options::default(), &topology).unwrap();
    let hint = |text: &str| {
        let (nodes, preferred) = text.strip_suffix('!').map_or((text, false), |nodes| (nodes, true));
        let mask = (nodes != "*").then(|| Mask::of(nodes.parse::<CpuSet>().unwrap().iter()));
        Hint { mask, preferred }
    };
    let resource = |text: &str| match text {
        "any" => None,
        "never" => Some(Vec::new()),
        hints => Some(hints.split(' ').map(hint).collect()),
    };
    let provider = |text: &str| -> Hints {
        let resources = text.split(" ; ").filter(|text| *text != "none").enumerate();
        resources.map(|(number, text)| (number.to_string(), resource(text))).collect()
    };
    let mut count = 0;
    for line in include_str!("testdata/align.txt").lines() {
        let fields: Vec<&str> = line.split(" | ").collect();
        let providers: Vec<Hints> = fields[1].split(" / ").filter(|text| *text != "-").map(provider).collect();
        let policies: &[Policy] = match fields[0] {
            "all" => &[Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode],
            "wide" => &[Policy::BestEffort, Policy::Restricted],
            _ => &[Policy::SingleNumaNode],
        };
        for policy in policies {
            let (best, admitted) = align(*policy).merge(&providers);
            assert_eq!(best, hint(fields[2]), "{policy:?}: {line}");
            assert_eq!(admitted, *policy == Policy::BestEffort || best.preferred, "{policy:?}: {line}");
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
}

#[test]
fn the_closest_of_equal_sets_is_chosen() {
    let cpus: Vec<_> = (0..4).map(|cpu| (cpu, cpu, cpu, cpu, cpu)).collect();
    let mut topology = machine(&cpus);
    for (number, distances) in
        [[10, 21, 11, 21], [21, 10, 21, 11], [11, 21, 10, 21], [21, 11, 21, 10]].iter().enumerate()
    {
        topology.memory_nodes.get_mut(&number).unwrap().distances = distances.to_vec();
    }
    let hints = || {
        let hint = |nodes: [usize; 2]| Hint { mask: Some(Mask::of(nodes)), preferred: true };
        vec![Hints::from([("cpu".to_owned(), Some(vec![hint([0, 1]), hint([1, 3]), hint([0, 2])]))])]
    };
    let best = |closest: bool| {
        let options = Options { prefer_closest_numa_nodes: closest, ..Options::default() };
        Align::new(Policy::BestEffort, Scope::Container, options, &topology).unwrap().merge(&hints()).0.mask.unwrap()
    };
    assert_eq!(best(false), Mask::of([0, 1]));
    assert_eq!(best(true), Mask::of([0, 2]));
    let far = Options { prefer_closest_numa_nodes: true, ..Options::default() };
    let unknown = Align::new(Policy::BestEffort, Scope::Container, far, &machine(&cpus));
    assert!(matches!(unknown.map(drop), Err(align::OptionError::NoDistances)));
}

/// Two sockets, each with a node, two cores of two threads and 2 GiB.
fn two_nodes() -> Topology {
    let core = |cpu: usize| cpu % 4;
    let cpus: Vec<_> = (0..8).map(|cpu| (cpu, core(cpu), core(cpu) / 2, core(cpu) / 2, core(cpu) / 2)).collect();
    let mut topology = machine(&cpus);
    let node = MemoryNode { memory_bytes: 2 << 30, ..MemoryNode::default() };
    topology.memory_nodes.values_mut().for_each(|one| *one = node.clone());
    topology
}

fn settings(topology_policy: Policy, topology_scope: Scope) -> Settings {
    let limits = BTreeMap::from([("memory".to_owned(), "512Mi".to_owned())]);
    Settings {
        cpu_policy: CpuPolicy::Static,
        reserved_cpus: "0".parse().unwrap(),
        memory_policy: MemoryPolicy::Static,
        reserved_memory: (0..2).map(|numa_node| memory::Reservation { numa_node, limits: limits.clone() }).collect(),
        topology_policy,
        topology_scope,
        ..Settings::default()
    }
}

fn start(folder: &Path, settings: &Settings) -> Result<Managers, StartError> {
    let amount = |text: &str| Quantity::parse(text).unwrap();
    let whole = BTreeMap::from([("cpu".to_owned(), amount("1")), ("memory".to_owned(), amount("1Gi"))]);
    Managers::on(two_nodes(), settings, folder, &whole)
}

fn pod(uid: &str, containers: &[(&str, &str)]) -> Pod {
    let container = |(position, (cpu, memory)): (usize, &(&str, &str))| {
        let amounts = json!({"cpu": cpu, "memory": memory});
        json!({"name": format!("c{position}"), "resources": {"requests": amounts, "limits": amounts}})
    };
    serde_json::from_value(json!({
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"containers": containers.iter().enumerate().map(container).collect::<Vec<_>>()},
    }))
    .unwrap()
}

fn refused(outcome: Result<(), Refused>) -> (&'static str, String) {
    let error = outcome.unwrap_err();
    (error.reason(), error.to_string())
}

#[test]
fn processors_and_memory_come_from_one_node_or_the_pod_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let managers = start(folder.path(), &settings(Policy::SingleNumaNode, Scope::Container)).unwrap();
    managers.admit(&pod("a", &[("2", "1Gi")]), None).unwrap();
    let at = |uid: &str, name: &str| (managers.cpus_of(uid, name).unwrap(), managers.memory_nodes_of(uid, name));
    assert_eq!(at("a", "c0"), ("1,5".to_owned(), Some("0".to_owned())));
    managers.admit(&pod("b", &[("3", "1Gi")]), None).unwrap();
    assert_eq!(at("b", "c0"), ("2-3,6".to_owned(), Some("1".to_owned())));
    assert_eq!(at("besteffort", "x"), ("0,4,7".to_owned(), None), "others share what is left");
    let locality = "Resources cannot be allocated with Topology locality".to_owned();
    assert_eq!(refused(managers.admit(&pod("c", &[("2", "256Mi")]), None)), ("TopologyAffinityError", locality));
    assert_eq!(managers.cpus_of("c", "c0").unwrap(), "0,4,7", "what is refused has nothing");
    let active = HashSet::from(["b".to_owned()]);
    managers.admit(&pod("c", &[("2", "256Mi")]), Some(&active)).unwrap();
    assert_eq!(at("c", "c0"), ("1,5".to_owned(), Some("0".to_owned())), "what the pod that is no more had");
    assert_eq!(managers.exclusive_cpus("b", "c0"), [2, 3, 6]);
    assert_eq!(managers.allocatable_cpus(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(managers.memory_of("b", "c0")[0].size, 1 << 30);
}

#[test]
fn a_pod_as_a_whole_goes_to_one_node() {
    let folder = tempfile::tempdir().unwrap();
    let managers = start(folder.path(), &settings(Policy::Restricted, Scope::Pod)).unwrap();
    managers.admit(&pod("a", &[("2", "512Mi"), ("2", "512Mi")]), None).unwrap();
    assert_eq!(managers.cpus_of("a", "c0").unwrap(), "2,6");
    assert_eq!(managers.cpus_of("a", "c1").unwrap(), "3,7");
    let each = folder.path().join("each");
    std::fs::create_dir(&each).unwrap();
    let managers = start(&each, &settings(Policy::Restricted, Scope::Container)).unwrap();
    managers.admit(&pod("a", &[("2", "512Mi"), ("2", "512Mi")]), None).unwrap();
    assert_eq!(managers.cpus_of("a", "c0").unwrap(), "1,5");
}

#[test]
fn without_alignment_a_pod_may_span_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let managers = start(folder.path(), &settings(Policy::None, Scope::Container)).unwrap();
    managers.admit(&pod("a", &[("5", "2Gi")]), None).unwrap();
    assert_eq!(managers.exclusive_cpus("a", "c0").len(), 5);
    assert_eq!(managers.memory_nodes_of("a", "c0").as_deref(), Some("0,1"));
    let short = "Allocate failed due to not enough cpus available to satisfy request: requested=4, available=2, which is unexpected";
    let outcome = refused(managers.admit(&pod("b", &[("4", "256Mi")]), None));
    assert_eq!(outcome, ("UnexpectedAdmissionError", short.to_owned()));
}

#[test]
fn whole_cores_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(Policy::None, Scope::Container);
    settings.cpu_options.full_pcpus_only = true;
    let managers = start(folder.path(), &settings).unwrap();
    let smt = "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2".to_owned();
    assert_eq!(refused(managers.admit(&pod("a", &[("1", "256Mi")]), None)), ("SMTAlignmentError", smt));
}

#[test]
fn a_restart_finds_everything_and_another_policy_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(Policy::BestEffort, Scope::Container);
    let managers = start(folder.path(), &settings).unwrap();
    managers.admit(&pod("a", &[("2", "1Gi")]), None).unwrap();
    let before = managers.cpus_of("a", "c0").unwrap();
    drop(managers);
    let managers = start(folder.path(), &settings).unwrap();
    assert_eq!(managers.cpus_of("a", "c0").unwrap(), before);
    managers.admit(&pod("a", &[("2", "1Gi")]), None).unwrap();
    assert_eq!(managers.cpus_of("a", "c0").unwrap(), before, "a pod that is known keeps what it has");
    drop(managers);
    let error = start(folder.path(), &Settings::default()).map(drop).unwrap_err().to_string();
    assert!(error.contains("configured policy \"none\" differs from state checkpoint policy \"static\""), "{error}");
    assert!(error.contains("please drain this node and delete the CPU manager checkpoint file"), "{error}");
    std::fs::write(folder.path().join(cpu::FILE), "{").unwrap();
    assert!(matches!(start(folder.path(), &settings).map(drop), Err(StartError::Restore { .. })));
}

#[test]
fn what_cannot_be_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let with = |change: fn(&mut Settings)| {
        let mut settings = settings(Policy::None, Scope::Container);
        change(&mut settings);
        start(folder.path(), &settings).map(drop).unwrap_err().to_string()
    };
    assert!(with(|settings| settings.reserved_cpus = "0,99".parse().unwrap()).contains("reservedSystemCPUs: 0,99"));
    assert!(with(|settings| settings.reserved_memory.clear()).contains("is not equal to the value"));
    let socket = with(|settings| {
        settings.cpu_options.align_by_socket = true;
        settings.topology_policy = Policy::SingleNumaNode;
    });
    assert!(socket.contains("incompatible with CPUManager align-by-socket"), "{socket}");
}

#[test]
fn a_guaranteed_pod_is_not_resized() {
    let folder = tempfile::tempdir().unwrap();
    let managers = start(folder.path(), &settings(Policy::None, Scope::Container)).unwrap();
    let message = "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"";
    assert_eq!(managers.forbids_resize("cpu").as_deref(), Some(message));
    assert!(managers.forbids_resize("memory").is_some());
}

#[test]
fn managers_count_what_they_give_and_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let managers = start(folder.path(), &settings(Policy::SingleNumaNode, Scope::Container)).unwrap();
    managers.admit(&pod("a", &[("2", "1Gi")]), None).unwrap();
    // It would have to be on both nodes.
    managers.admit(&pod("b", &[("6", "1Gi")]), None).unwrap_err();
    let mut page = component_base::metrics::Page::default();
    managers.write_metrics(&mut page);
    let text = page.text();
    for line in [
        "kubelet_cpu_manager_pinning_requests_total 1",
        "kubelet_cpu_manager_pinning_errors_total 0",
        "kubelet_cpu_manager_shared_pool_size_millicores 5000",
        "kubelet_cpu_manager_exclusive_cpu_allocation_count 2",
        "kubelet_cpu_manager_allocation_per_numa{numa_node=\"0\"} 2",
        "kubelet_memory_manager_pinning_requests_total 1",
        "kubelet_topology_manager_admission_requests_total 2",
        "kubelet_topology_manager_admission_errors_total 1",
        "kubelet_topology_manager_admission_duration_ms_count 2",
        "kubelet_container_aligned_compute_resources_count{boundary=\"numa_node\",scope=\"container\"} 1",
        "kubelet_container_aligned_compute_resources_failure_count{boundary=\"numa_node\",scope=\"container\"} 1",
        "kubelet_container_aligned_compute_resources_failure_count{boundary=\"numa_node\",scope=\"pod\"} 0",
        "kubelet_container_aligned_compute_resources_count{boundary=\"physical_cpu\",scope=\"container\"} 0",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} in\n{text}");
    }
}
