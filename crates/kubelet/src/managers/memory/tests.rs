//! The static policy on two nodes, as upstream's tests have it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::super::mask::{Hint, Mask};
use super::super::topology::{MemoryNode, Topology};
use super::policy::AllocateError;
use super::*;

const GI: u64 = 1 << 30;

/// Nodes of 1.5 GiB with a huge page of 1 GiB beside (upstream's machine), and half a GiB reserved on each.
fn policy(nodes: usize) -> Static {
    let node = MemoryNode {
        memory_bytes: GI + GI / 2 + GI,
        huge_pages: BTreeMap::from([(GI, GI)]),
        distances: vec![10; nodes],
    };
    let topology =
        Topology { memory_nodes: (0..nodes).map(|number| (number, node.clone())).collect(), ..Topology::default() };
    let reserved = BTreeMap::from([("memory".to_owned(), GI / 2)]);
    Static::new(topology, (0..nodes).map(|number| (number, reserved.clone())).collect()).unwrap()
}

fn pod(uid: &str, init: &[&str], regular: &[&str]) -> Pod {
    let container = |(position, memory): (usize, &&str), kind: &str| {
        let (memory, huge) = memory.split_once('+').map_or((*memory, None), |(memory, huge)| (memory, Some(huge)));
        let mut amounts = json!({"cpu": "1", "memory": memory});
        if let Some(huge) = huge {
            amounts["hugepages-1Gi"] = json!(huge);
        }
        json!({"name": format!("{kind}{position}"), "resources": {"requests": amounts, "limits": amounts}})
    };
    let init: Vec<_> = init.iter().enumerate().map(|one| container(one, "init")).collect();
    let regular: Vec<_> = regular.iter().enumerate().map(|one| container(one, "c")).collect();
    serde_json::from_value(json!({
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"initContainers": init, "containers": regular},
    }))
    .unwrap()
}

fn hint(nodes: &[usize], preferred: bool) -> Hint {
    Hint { mask: (!nodes.is_empty()).then(|| Mask::of(nodes.iter().copied())), preferred }
}

fn allocate(policy: &mut Static, state: &mut State, pod: &Pod, name: &str, hint: Hint) -> Result<(), AllocateError> {
    let container = crate::pod::spec::container(pod, name).unwrap().1;
    policy.allocate(state, pod, &container, hint)
}

/// Free memory and assignments of each node.
fn shown(state: &State) -> Vec<(u64, i64, Vec<usize>)> {
    let node = |node: &Node| (node.memory_map["memory"].free >> 20, node.number_of_assignments, node.cells.clone());
    state.machine.values().map(node).collect()
}

#[test]
fn memory_is_given_by_nodes_and_taken_back() {
    let mut policy = policy(2);
    let mut state = State::default();
    policy.start(&mut state).unwrap();
    assert_eq!(shown(&state), [(1024, 0, vec![0]), (1024, 0, vec![1])]);
    let one = pod("one", &[], &["512Mi"]);
    allocate(&mut policy, &mut state, &one, "c0", hint(&[], false)).unwrap();
    let block = Block { nodes: vec![0], resource: "memory".into(), size: GI / 2 };
    assert_eq!(state.of("one", "c0").unwrap(), &[block]);
    allocate(&mut policy, &mut state, &one, "c0", hint(&[], false)).unwrap();
    assert_eq!(shown(&state), [(512, 1, vec![0]), (1024, 0, vec![1])], "once, however often it is asked for");

    // What fits no single node takes a group, which nobody divides while it is given.
    let wide = pod("wide", &[], &["1536Mi"]);
    let refused = allocate(&mut policy, &mut state, &wide, "c0", hint(&[], false));
    assert_eq!(refused, Err(AllocateError::NoDefault), "node 0 is given alone");
    policy.retain(&mut state, |uid| uid != "one");
    allocate(&mut policy, &mut state, &wide, "c0", hint(&[], false)).unwrap();
    assert_eq!(shown(&state), [(0, 1, vec![0, 1]), (512, 1, vec![0, 1])]);
    let small = pod("small", &[], &["256Mi"]);
    let refused = allocate(&mut policy, &mut state, &small, "c0", hint(&[1], true)).map(|()| shown(&state));
    assert_eq!(refused, Ok(vec![(0, 1, vec![0, 1]), (256, 2, vec![1])]), "a hint of one node is followed, as upstream");
    policy.retain(&mut state, |_| false);
    assert_eq!(shown(&state), [(1024, 0, vec![0]), (1024, 0, vec![1])]);
    assert!(state.entries.is_empty());
}

#[test]
fn hints_say_where_there_is_room() {
    let mut policy = policy(2);
    let mut state = State::default();
    policy.start(&mut state).unwrap();
    let check = |policy: &Static, state: &State, pod: &Pod, expected: &[(&[usize], bool)]| {
        let container = crate::pod::spec::container(pod, "c0").unwrap().1;
        let expected: Vec<Hint> = expected.iter().map(|(nodes, preferred)| hint(nodes, *preferred)).collect();
        let expected = Some(expected).filter(|hints| !hints.is_empty());
        assert_eq!(policy.hints(state, pod, &container).remove("memory").flatten(), expected);
        assert_eq!(policy.pod_hints(state, pod).remove("memory").flatten(), expected);
    };
    let half = pod("half", &[], &["512Mi"]);
    check(&policy, &state, &half, &[(&[0], true), (&[1], true), (&[0, 1], false)]);
    check(&policy, &state, &pod("wide", &[], &["1536Mi"]), &[(&[0, 1], true)]);
    check(&policy, &state, &pod("huge", &[], &["512Mi+1Gi"]), &[(&[0], true), (&[1], true), (&[0, 1], false)]);
    check(&policy, &state, &pod("much", &[], &["4Gi"]), &[]);
    allocate(&mut policy, &mut state, &half, "c0", hint(&[1], true)).unwrap();
    check(&policy, &state, &half, &[(&[1], true)]);
    check(&policy, &state, &pod("other", &[], &["1Gi"]), &[(&[0], true)]);
    check(&policy, &state, &pod("wide", &[], &["1536Mi"]), &[]);
}

#[test]
fn a_hint_that_is_too_narrow_is_extended() {
    let mut policy = policy(2);
    let mut state = State::default();
    policy.start(&mut state).unwrap();
    let wide = pod("wide", &[], &["1536Mi"]);
    allocate(&mut policy, &mut state, &wide, "c0", hint(&[0], false)).unwrap();
    assert_eq!(state.of("wide", "c0").unwrap()[0].nodes, [0, 1]);
    let refused = allocate(&mut policy, &mut state, &pod("next", &[], &["1Gi"]), "c0", hint(&[0, 1], true));
    assert_eq!(refused, Err(AllocateError::NoExtended));
}

#[test]
fn init_containers_leave_their_memory_to_others() {
    let mut policy = policy(1);
    let mut state = State::default();
    policy.start(&mut state).unwrap();
    let pod = pod("u", &["1Gi"], &["512Mi", "512Mi"]);
    for name in ["init0", "c0", "c1"] {
        allocate(&mut policy, &mut state, &pod, name, hint(&[], false)).unwrap();
    }
    assert_eq!(shown(&state)[0].0, 0, "all of it is given once");
    assert_eq!(state.of("u", "init0").unwrap()[0].size, 0);
    let first = crate::pod::spec::container(&pod, "c0").unwrap().1;
    assert!(policy.started(&mut state, &pod, &first));
    assert_eq!((state.of("u", "init0"), shown(&state)[0].0), (None, 0));
    policy.retain(&mut state, |_| false);
    assert_eq!(shown(&state), [(1024, 0, vec![0])]);
}

#[test]
fn a_state_of_another_machine_is_refused() {
    let mut two = policy(2);
    let mut state = State::default();
    two.start(&mut state).unwrap();
    allocate(&mut two, &mut state, &pod("u", &[], &["512Mi"]), "c0", hint(&[1], true)).unwrap();
    assert_eq!(two.start(&mut state.clone()), Ok(()));
    let mut lying = state.clone();
    lying.machine.get_mut(&1).unwrap().memory_map.get_mut("memory").unwrap().free += 1;
    assert_eq!(two.start(&mut lying), Err(StateError::Different));
    let gone = StateError::NoSuchNode { uid: "u".into(), container: "c0".into() };
    assert_eq!(policy(1).start(&mut state), Err(gone));
}

#[test]
fn reservations_of_nodes_are_those_of_the_whole() {
    let topology = policy(2).topology;
    let whole =
        |memory: &str| BTreeMap::from([("memory".to_owned(), machinery::quantity::Quantity::parse(memory).unwrap())]);
    let given = |amounts: &[(usize, &str)]| -> Vec<Reservation> {
        let limits = |amount: &str| BTreeMap::from([("memory".to_owned(), amount.to_owned())]);
        amounts
            .iter()
            .map(|(numa_node, amount)| Reservation { numa_node: *numa_node, limits: limits(amount) })
            .collect()
    };
    let outcome = reserved(&topology, &whole("1Gi"), &given(&[(0, "768Mi"), (1, "256Mi")])).unwrap();
    assert_eq!((outcome[&0]["memory"], outcome[&1]["memory"]), (768 << 20, 256 << 20));
    assert_eq!(
        reserved(&topology, &whole("1Gi"), &given(&[(0, "512Mi")])).unwrap_err().to_string(),
        "the total amount \"512Mi\" of type \"memory\" is not equal to the value \"1Gi\" determined by Node Allocatable feature"
    );
    assert_eq!(reserved(&topology, &whole("1Gi"), &given(&[(7, "1Gi")])), Err(ReservedError::NoSuchNode(7)));
}
