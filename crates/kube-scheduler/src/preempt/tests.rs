//! Who goes, and who may make others go.

use reconcile::Cache;
use serde_json::{Value, json};

use super::*;
use crate::framework::Refusal;
use crate::objects::Objects;
use crate::snapshot::Snapshot;

fn pod(name: &str, priority: i32, more: Value) -> Arc<PodInfo> {
    let mut object = json!({"metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"app": name}},
        "spec": {"containers": [], "priority": priority}});
    for (key, value) in more.as_object().into_iter().flatten() {
        for (inner, value) in value.as_object().into_iter().flatten() {
            object[key][inner] = value.clone();
        }
    }
    Arc::new(PodInfo::new(Arc::new(serde_json::from_value(object).expect("a pod"))))
}

fn started_at(name: &str, priority: i32, minute: u32) -> Arc<PodInfo> {
    pod(name, priority, json!({"status": {"startTime": format!("2026-01-01T00:{minute:02}:00Z")}}))
}

fn budget(selects: &str, allowed: i32) -> Arc<PodDisruptionBudget> {
    let object = json!({"metadata": {"name": selects, "namespace": "a"},
        "spec": {"selector": {"matchLabels": {"app": selects}}}, "status": {"disruptionsAllowed": allowed}});
    Arc::new(serde_json::from_value(object).expect("a budget"))
}

fn names(pods: &[Arc<PodInfo>]) -> Vec<&str> {
    pods.iter().map(|pod| pod.key.name.as_str()).collect()
}

#[test]
fn the_important_and_the_older_stay_first() {
    let mut pods = [started_at("young", 1, 9), started_at("old", 1, 1), started_at("high", 5, 30)];
    pods.sort_by_key(|pod| importance(pod));
    assert_eq!(names(&pods), ["high", "old", "young"]);
}

#[test]
fn budgets_are_used_up_in_order() {
    let twin = |name: &str| pod(name, 0, json!({"metadata": {"labels": {"app": "web"}}}));
    let pods = [twin("one"), twin("two"), pod("free", 0, json!({}))];
    let (violating, fine) = split_by_budgets(&pods, &[budget("web", 1)]);
    assert_eq!((names(&violating), names(&fine)), (vec!["two"], vec!["one", "free"]));
    let (violating, fine) = split_by_budgets(&pods, &[budget("web", 0)]);
    assert_eq!((names(&violating), names(&fine)), (vec!["one", "two"], vec!["free"]));
    assert!(split_by_budgets(&pods, &[]).0.is_empty());
    let mut other = (*budget("web", 0)).clone();
    other.metadata.namespace = Some("b".into());
    assert!(split_by_budgets(&pods, &[Arc::new(other)]).0.is_empty(), "a budget of another namespace");
    let mut known = (*budget("web", 0)).clone();
    let disrupted = json!({"disruptionsAllowed": 0, "disruptedPods": {"one": "2026-01-01T00:00:00Z"}});
    known.status = Some(serde_json::from_value(disrupted).expect("a status"));
    assert_eq!(names(&split_by_budgets(&pods, &[Arc::new(known)]).0), ["two"], "one was counted already");
}

#[test]
fn the_best_node_costs_least() {
    let candidate = |budgets_violated: usize, victims: Vec<Arc<PodInfo>>| Candidate {
        node: NodeIndex(0),
        victims,
        budgets_violated,
    };
    let better = |one: Candidate, other: Candidate, why: &str| assert!(rank(&one) < rank(&other), "{why}");
    better(candidate(0, vec![pod("a", 9, json!({}))]), candidate(1, vec![pod("b", 0, json!({}))]), "fewer budgets");
    better(
        candidate(0, vec![pod("a", 1, json!({})), pod("b", 1, json!({}))]),
        candidate(0, vec![pod("c", 2, json!({}))]),
        "the most important victim is less important",
    );
    better(
        candidate(0, vec![pod("a", 5, json!({})), pod("b", 1, json!({}))]),
        candidate(0, vec![pod("c", 5, json!({})), pod("d", 2, json!({}))]),
        "the sum of priorities is smaller",
    );
    better(
        candidate(0, vec![pod("a", -5, json!({}))]),
        candidate(0, vec![pod("b", -5, json!({})), pod("c", -9, json!({}))]),
        "fewer victims, though a negative priority makes the plain sum smaller",
    );
    better(
        candidate(0, vec![started_at("young", 5, 30)]),
        candidate(0, vec![started_at("old", 5, 1)]),
        "the victim has run for a shorter time",
    );
}

#[test]
fn who_may_not_preempt_is_told_why() {
    let mut snapshot = Snapshot::default();
    let node = json!({"metadata": {"name": "n1"}, "status": {"allocatable": {"pods": "9"}}});
    snapshot.set_node(Arc::new(serde_json::from_value(node).expect("a node")));
    let target = json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]);
    let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": target}});
    snapshot.add_pod(pod("victim", 1, ending), "n1");
    snapshot.freeze();
    let objects = Objects::empty();
    let view = View { snapshot: &snapshot, objects: &objects };
    let check = |pod: &PodInfo, failure: &Failure, expected: Result<(), &str>| {
        let found = is_eligible(view, pod, failure).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    };
    let nobody = Failure::default();
    check(&pod("p", 9, json!({})), &nobody, Ok(()));
    let never = pod("p", 9, json!({"spec": {"preemptionPolicy": "Never"}}));
    check(&never, &nobody, Err("not eligible due to preemptionPolicy=Never."));
    let nominated = |priority: i32| pod("p", priority, json!({"status": {"nominatedNodeName": "n1"}}));
    check(&nominated(9), &nobody, Err("not eligible due to a terminating pod on the nominated node."));
    check(&nominated(1), &nobody, Ok(()));
    // A node that cannot take it whoever goes is not waited for.
    let mut lost = Failure::default();
    lost.nodes.insert(NodeIndex(0), Refusal::final_("node(s) were unschedulable"));
    check(&nominated(9), &lost, Ok(()));
}

#[test]
fn victims_of_budgets_are_the_last_to_go() {
    let full = json!({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "2", "pods": "9"}}});
    let asking = |name: &str, priority: i32| {
        let requests = json!({"resources": {"requests": {"cpu": "1"}}, "name": "c"});
        pod(name, priority, json!({"spec": {"containers": [requests]}}))
    };
    let mut snapshot = Snapshot::default();
    snapshot.set_node(Arc::new(serde_json::from_value(full).expect("a node")));
    snapshot.add_pod(asking("guarded", 1), "n1");
    snapshot.add_pod(asking("plain", 2), "n1");
    snapshot.freeze();
    let mut objects = Objects::empty();
    let victims = |objects: &Objects| {
        let (profile, view) = (Profile::standard(), View { snapshot: &snapshot, objects });
        let new = asking("new", 10);
        let mut random = <rand::rngs::SmallRng as rand::SeedableRng>::seed_from_u64(1);
        let mut failure = Failure { nodes_total: 1, ..Failure::default() };
        failure.nodes.insert(NodeIndex(0), Refusal::resolvable("Insufficient cpu"));
        match preempt(&profile, view, &new, &failure, &mut random) {
            Outcome::Victims { victims, .. } => names(&victims).join(" "),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(victims(&objects), "guarded", "the less important one");
    objects.budgets = Cache::holding([(*budget("guarded", 0)).clone()]);
    assert_eq!(victims(&objects), "plain", "the budget keeps the other");
}
