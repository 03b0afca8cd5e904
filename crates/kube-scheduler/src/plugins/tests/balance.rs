//! Scores by resources, with the nodes, pods and numbers of upstream's tests of v1.36.

use super::*;
use balanced_allocation::BalancedAllocation;
use node_resources_fit::NodeResourcesFit;

const GPU: &str = "nvidia.com/gpu";

/// `cpu memory gpu`, CPU in thousandths; a gpu of 0 is not listed.
fn amounts(cpu: i64, memory: i64, gpu: i64) -> Value {
    let mut amounts = json!({"pods": "110"});
    for (name, amount, unit) in [("cpu", cpu, "m"), ("memory", memory, ""), (GPU, gpu, "")] {
        if amount > 0 {
            amounts[name] = format!("{amount}{unit}").into();
        }
    }
    amounts
}

fn asking_for(name: &str, (cpu, memory, gpu): (i64, i64, i64)) -> Arc<PodInfo> {
    let mut requests = amounts(cpu, memory, gpu);
    requests.as_object_mut().expect("an object").remove("pods");
    pod(name, json!({}), json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
}

type Amounts = (i64, i64, i64);

/// Two nodes: what each has and what is used of it, then what the pod asks for and both scores.
fn check(plugin: &dyn Plugin, nodes: [(Amounts, Amounts); 2], asked: Amounts, expected: &[i64]) {
    let sized = |name: &str, (cpu, memory, gpu): Amounts| node(name, json!({}), json!({}), amounts(cpu, memory, gpu));
    let mut world = World::new([sized("n1", nodes[0].0), sized("n2", nodes[1].0)])
        .with(&asking_for("old1", nodes[0].1), "n1")
        .with(&asking_for("old2", nodes[1].1), "n2");
    assert_eq!(world.scores(plugin, &asking_for("new", asked)), expected, "{nodes:?} {asked:?}");
}

const NONE: Amounts = (0, 0, 0);

#[test]
fn a_pod_that_brings_balance_is_welcome() {
    let plugin = BalancedAllocation::default();
    let check = |nodes, asked, expected: [i64; 2]| check(&plugin, nodes, asked, &expected);
    check([((4000, 10000, 0), NONE), ((6000, 10000, 0), NONE)], (3000, 5000, 0), [68, 75]);
    let large = (10000, 20000, 0);
    check([(large, (3000, 0, 0)), (large, (3000, 5000, 0))], (3000, 5000, 0), [73, 74]);
    check([(large, (3000, 0, 0)), ((10000, 50000, 0), (3000, 5000, 0))], (3000, 5000, 0), [73, 70]);
    check([((3000, 5000, 0), (3000, 0, 0)), ((3000, 5000, 0), NONE)], (0, 5000, 0), [100, 50]);
    let medium = (6000, 10000, 0);
    check([(medium, (3000, 0, 0)), (medium, (3000, 5000, 0))], (3000, 0, 0), [62, 62]);
}

#[test]
fn devices_count_for_those_who_ask_for_them() {
    let plugin = BalancedAllocation { resources: ["cpu", "memory", GPU].map(str::to_owned).to_vec() };
    let with_gpu = (3500, 40000, 8);
    check(&plugin, [(with_gpu, (3000, 5000, 3)), (with_gpu, (3000, 5000, 0))], (0, 0, 1), &[75, 76]);
    check(&plugin, [(with_gpu, NONE), ((3500, 40000, 0), NONE)], (3000, 5000, 0), &[56, 56]);
}

#[test]
fn a_pod_that_asks_for_none_of_the_resources_is_not_judged() {
    let all = [((4000, 10000, 8), NONE), ((4000, 10000, 8), NONE)];
    check(&BalancedAllocation::default(), all, NONE, &[]);
    check(&BalancedAllocation::default(), all, (0, 0, 1), &[]);
    let gpus = BalancedAllocation { resources: vec![GPU.into()] };
    check(&gpus, all, (1000, 1000, 0), &[]);
    // A single resource is always in balance.
    check(&gpus, all, (0, 0, 8), &[75, 75]);
}

#[test]
fn more_than_everything_is_everything() {
    check(
        &BalancedAllocation::default(),
        [((4000, 10000, 0), NONE), ((8000, 5000, 0), NONE)],
        (9000, 20000, 0),
        &[75, 75],
    );
}

#[test]
fn devices_are_weighed_only_for_those_who_ask_for_them() {
    let strategy = |strategy| NodeResourcesFit {
        strategy,
        weights: vec![("cpu".into(), 1), (GPU.into(), 3)],
        ..NodeResourcesFit::default()
    };
    let nodes = [((1000, 1000, 4), (0, 0, 2)), ((1000, 1000, 4), NONE)];
    check(&strategy(Strategy::LeastAllocated), nodes, (500, 0, 0), &[40, 40]);
    // A node uses half of its CPU (with the least that is assumed of the pod there) and 3 or 1 of 4 devices.
    check(&strategy(Strategy::LeastAllocated), nodes, (400, 0, 1), &[31, 68]);
    check(&strategy(Strategy::MostAllocated), nodes, (400, 0, 1), &[68, 31]);
}

#[test]
fn shapes_are_straight_between_their_points() {
    let at = |shape: &[(i64, i64)], percent: i64| {
        let plugin = NodeResourcesFit {
            strategy: Strategy::RequestedToCapacityRatio(shape.to_vec()),
            weights: vec![("memory".into(), 1)],
            ..NodeResourcesFit::default()
        };
        let mut world = World::new([node("n1", json!({}), json!({}), json!({"memory": "100", "pods": "9"}))]);
        world.scores(&plugin, &asking(json!({"memory": percent.to_string()})))[0]
    };
    let check = |shape: &[(i64, i64)], expected: &[(i64, i64)]| {
        for (percent, score) in expected {
            assert_eq!(at(shape, *percent), *score, "{shape:?} at {percent}");
        }
    };
    check(&[(10, 1), (90, 9)], &[(1, 10), (9, 10), (10, 10), (15, 15), (20, 20), (89, 89), (90, 90), (100, 90)]);
    check(&[(0, 2), (40, 10), (100, 0)], &[(20, 60), (30, 80), (40, 100), (70, 50), (100, 0), (110, 0)]);
    check(&[(0, 2), (40, 2), (100, 2)], &[(20, 20), (70, 20), (110, 20)]);
}
