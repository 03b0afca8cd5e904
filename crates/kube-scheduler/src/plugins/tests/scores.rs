//! Scores of nodes by what is left on them: nodes, pods and sums of upstream's tests of both strategies.

use super::*;

/// What nodes have, what runs there (node, CPU, memory), what is asked, weights, and the scores of emptier and fuller nodes first.
struct Case {
    nodes: [Value; 2],
    running: &'static [(&'static str, &'static str, &'static str)],
    asked: Value,
    weights: &'static [(&'static str, i64)],
    least: [i64; 2],
    most: [i64; 2],
}

const EVEN: &[(&str, i64)] = &[("cpu", 1), ("memory", 1)];

fn has(cpu: &str, memory: &str) -> Value {
    json!({"cpu": cpu, "memory": memory, "pods": "110"})
}

fn asks(cpu: &str, memory: &str) -> Value {
    json!({"cpu": cpu, "memory": memory})
}

fn cases() -> Vec<Case> {
    let three = || asks("3000", "5000");
    let large = || [has("10000", "20000"), has("10000", "20000")];
    vec![
        Case {
            nodes: [has("4000", "10000"), has("6000", "10000")],
            running: &[],
            asked: three(),
            weights: EVEN,
            least: [37, 50],
            most: [62, 50],
        },
        Case {
            nodes: large(),
            running: &[("n1", "3000", "0"), ("n2", "3000", "5000")],
            asked: three(),
            weights: EVEN,
            least: [57, 45],
            most: [42, 55],
        },
        Case {
            nodes: [has("10000", "20000"), has("10000", "50000")],
            running: &[("n1", "3000", "0"), ("n2", "3000", "5000")],
            asked: three(),
            weights: EVEN,
            least: [57, 60],
            most: [42, 40],
        },
        Case {
            nodes: [has("4000", "10000"), has("4000", "10000")],
            running: &[("n1", "3000", "0"), ("n2", "3000", "5000")],
            asked: asks("3000", "0"),
            weights: EVEN,
            least: [50, 25],
            most: [50, 75],
        },
        Case {
            nodes: [json!({}), json!({})],
            running: &[("n1", "3000", "0"), ("n2", "3000", "5000")],
            asked: three(),
            weights: EVEN,
            least: [0, 0],
            most: [0, 0],
        },
        Case {
            nodes: [has("4000", "10000"), has("6000", "10000")],
            running: &[],
            asked: three(),
            weights: &[("memory", 2), ("cpu", 1)],
            least: [41, 50],
            most: [58, 50],
        },
        Case {
            nodes: [has("5000", "10000"), has("10000", "9000")],
            running: &[],
            asked: asks("5000", "9000"),
            weights: EVEN,
            least: [5, 25],
            most: [95, 75],
        },
    ]
}

#[test]
fn what_is_left_is_scored_as_upstream_does() {
    for (at, case) in cases().into_iter().enumerate() {
        let [one, other] = case.nodes;
        let mut world = World::new([node("n1", json!({}), json!({}), one), node("n2", json!({}), json!({}), other)]);
        for (number, (place, cpu, memory)) in case.running.iter().enumerate() {
            let spec = json!({"containers": [{"name": "c", "resources": {"requests": asks(cpu, memory)}}]});
            world = world.with(&pod(&format!("p{number}"), json!({}), spec), place);
        }
        let weights: Vec<(String, i64)> = case.weights.iter().map(|(name, weight)| ((*name).into(), *weight)).collect();
        let pod = asking(case.asked);
        for (strategy, expected) in [(Strategy::LeastAllocated, case.least), (Strategy::MostAllocated, case.most)] {
            let plugin =
                node_resources_fit::NodeResourcesFit { strategy, weights: weights.clone(), ..Default::default() };
            assert_eq!(world.scores(&plugin, &pod), expected, "case {at}");
        }
    }
}

/// A container that asks for nothing counts as a tenth of a processor and two hundred mebibytes.
#[test]
fn who_asks_for_nothing_counts_all_the_same() {
    let small = |name: &str| node(name, json!({}), json!({}), has("250m", "1000Mi"));
    let nothing = json!({"containers": [{"name": "c"}]});
    let mut world = World::new([small("n1"), small("n2")])
        .with(&pod("p1", json!({}), nothing.clone()), "n1")
        .with(&pod("p2", json!({}), nothing.clone()), "n1");
    let new = pod("new", json!({}), nothing);
    let plugin = node_resources_fit::NodeResourcesFit { strategy: Strategy::MostAllocated, ..Default::default() };
    assert_eq!(world.scores(&plugin, &new), [80, 30]);
}

/// Resources of vendors count only for pods that ask for them.
#[test]
fn resources_that_are_not_asked_for_are_passed_over() {
    let with = |name: &str, amount: &str| {
        node(
            name,
            json!({}),
            json!({}),
            json!({"cpu": "6000", "memory": "10000", "example.com/gpu": amount, "pods": "9"}),
        )
    };
    let weights = vec![("cpu".into(), 1), ("memory".into(), 1), ("example.com/gpu".into(), 1)];
    let scores = |world: &mut World, strategy: Strategy, pod: &PodInfo| {
        let plugin = node_resources_fit::NodeResourcesFit { strategy, weights: weights.clone(), ..Default::default() };
        world.scores(&plugin, pod)
    };
    let plain = node("n1", json!({}), json!({}), has("6000", "10000"));
    let mut world = World::new([plain, with("n2", "4")]);
    let asked = asking(json!({"cpu": "3000", "memory": "5000"}));
    assert_eq!(scores(&mut world, Strategy::LeastAllocated, &asked), [50, 50]);
    assert_eq!(scores(&mut world, Strategy::MostAllocated, &asked), [50, 50]);
    let mut world = World::new([with("n1", "4"), with("n2", "10")]);
    let asked = asking(json!({"cpu": "3000", "memory": "5000", "example.com/gpu": "2"}));
    assert_eq!(scores(&mut world, Strategy::LeastAllocated, &asked), [50, 60]);
    assert_eq!(scores(&mut world, Strategy::MostAllocated, &asked), [50, 40]);
}
