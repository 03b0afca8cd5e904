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
    let (violating, fine) = split_by_budgets(&pods, &[Budget::new(budget("web", 1))]);
    assert_eq!((names(&violating), names(&fine)), (vec!["two"], vec!["one", "free"]));
    let (violating, fine) = split_by_budgets(&pods, &[Budget::new(budget("web", 0))]);
    assert_eq!((names(&violating), names(&fine)), (vec!["one", "two"], vec!["free"]));
    assert!(split_by_budgets(&pods, &[]).0.is_empty());
    let mut other = (*budget("web", 0)).clone();
    other.metadata.namespace = Some("b".into());
    assert!(split_by_budgets(&pods, &[Budget::new(Arc::new(other))]).0.is_empty(), "a budget of another namespace");
    let mut known = (*budget("web", 0)).clone();
    let disrupted = json!({"disruptionsAllowed": 0, "disruptedPods": {"one": "2026-01-01T00:00:00Z"}});
    known.status = Some(serde_json::from_value(disrupted).expect("a status"));
    assert_eq!(names(&split_by_budgets(&pods, &[Budget::new(Arc::new(known))]).0), ["two"], "one was counted already");
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
    let view = View { snapshot: &snapshot, objects: &objects, now: Default::default() };
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
    lost.refused.add(NodeIndex(0), Refusal::final_("node(s) were unschedulable"));
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
        let (profile, view) = (Profile::standard(), View { snapshot: &snapshot, objects, now: Default::default() });
        let new = asking("new", 10);
        let mut random = <rand::rngs::SmallRng as rand::SeedableRng>::seed_from_u64(1);
        let mut failure = Failure { nodes_total: 1, ..Failure::default() };
        failure.refused.add(NodeIndex(0), Refusal::resolvable("Insufficient cpu"));
        match preempt(&profile, view, &new, &failure, &mut random) {
            Outcome::Victims { victims, .. } => names(&victims).join(" "),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(victims(&objects), "guarded", "the less important one");
    objects.budgets = Cache::holding([(*budget("guarded", 0)).clone()]);
    assert_eq!(victims(&objects), "plain", "the budget keeps the other");
}

#[test]
fn a_pod_that_has_not_begun_is_the_first_to_go() {
    let mut pods = [pod("waiting", 1, json!({})), started_at("old", 1, 1), started_at("young", 1, 9)];
    pods.sort_by_key(|pod| importance(pod));
    assert_eq!(names(&pods), ["old", "young", "waiting"]);
    let candidate = |victim: Arc<PodInfo>| Candidate { node: NodeIndex(0), victims: vec![victim], budgets_violated: 0 };
    let (waiting, young) = (candidate(pod("waiting", 1, json!({}))), candidate(started_at("young", 1, 9)));
    assert!(rank(&waiting) < rank(&young), "nothing is lost with it");
}

#[test]
fn budgets_of_everything_are_budgets_of_nothing() {
    let pods = [pod("one", 0, json!({})), pod("two", 0, json!({}))];
    let of = |selector: Value| -> Arc<PodDisruptionBudget> {
        let object = json!({"metadata": {"name": "b", "namespace": "a"}, "spec": {"selector": selector},
            "status": {"disruptionsAllowed": 0}});
        Arc::new(serde_json::from_value(object).expect("a budget"))
    };
    assert!(split_by_budgets(&pods, &[Budget::new(of(json!({})))]).0.is_empty());
    assert!(split_by_budgets(&pods, &[Budget::new(of(Value::Null))]).0.is_empty());
    let exists = Budget::new(of(json!({"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]})));
    assert_eq!(split_by_budgets(&pods, std::slice::from_ref(&exists)).0.len(), 2);
    let bare = pod("bare", 0, json!({"metadata": {"labels": null}}));
    assert!(split_by_budgets(&[bare], &[exists]).0.is_empty(), "a pod without labels has no budget");
}

/// A cluster of nodes with so much CPU, and pods `name node priority cpu` on them.
fn world(nodes: &[(&str, &str)], pods: &[(&str, &str, i32, &str)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, cpu) in nodes {
        let object = json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "pods": "9"}}});
        snapshot.set_node(Arc::new(serde_json::from_value(object).expect("a node")));
    }
    for (name, node, priority, cpu) in pods {
        snapshot.add_pod(asking(name, *priority, cpu, json!({})), node);
    }
    snapshot.freeze();
    snapshot
}

fn asking(name: &str, priority: i32, cpu: &str, more: Value) -> Arc<PodInfo> {
    let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    pod(name, priority, json!({"spec": spec}))
}

/// `node: victims` in the order in which they were chosen, or the message.
fn outcome(snapshot: &Snapshot, objects: &Objects, profile: &Profile, pod: &PodInfo) -> String {
    use crate::cycle::{Decision, decide};
    use rand::SeedableRng;
    let view = View { snapshot, objects, now: Default::default() };
    let mut random = rand::rngs::SmallRng::seed_from_u64(1);
    let Decision::Unschedulable(failure) = decide(profile, view, pod, &mut 0, &mut random) else {
        return "it fits".into();
    };
    match preempt(profile, view, pod, &failure, &mut random) {
        Outcome::Victims { node, victims } => format!("{}: {}", snapshot.node(node).name, names(&victims).join(" ")),
        Outcome::Nothing(why) => why,
        Outcome::NotNow(why) => why.to_string(),
        Outcome::Disabled => "disabled".into(),
    }
}

#[test]
fn as_few_as_possible_go() {
    let profile = Profile::standard();
    let check = |nodes: &[(&str, &str)], pods: &[(&str, &str, i32, &str)], new: &PodInfo, expected: &str| {
        assert_eq!(outcome(&world(nodes, pods), &Objects::empty(), &profile, new), expected);
    };
    let new = |cpu: &str| asking("new", 10, cpu, json!({}));
    let one = [("n1", "4")];
    check(&one, &[("a", "n1", 1, "2"), ("b", "n1", 2, "2")], &new("2"), "n1: a");
    check(&one, &[("a", "n1", 1, "3"), ("b", "n1", 2, "1")], &new("2"), "n1: a");
    check(&one, &[("a", "n1", 1, "1"), ("b", "n1", 2, "3")], &new("4"), "n1: b a");
    let two = [("n1", "4"), ("n2", "4")];
    check(&two, &[("a", "n1", 5, "4"), ("b", "n2", 4, "4")], &new("4"), "n2: b");
    check(&two, &[("a", "n1", 1, "4"), ("b", "n2", 1, "2"), ("c", "n2", 1, "2")], &new("4"), "n1: a");
}

#[test]
fn where_nothing_helps_each_node_says_why() {
    let profile = Profile::standard();
    let nodes = [("small", "1"), ("equal", "4"), ("partly", "4"), ("tainted", "4")];
    let pods = [("a", "equal", 10, "4"), ("b", "partly", 10, "2"), ("c", "partly", 1, "2"), ("d", "tainted", 1, "4")];
    let mut snapshot = world(&nodes, &pods);
    let taint = json!([{"key": "k", "effect": "NoSchedule"}]);
    let tainted = json!({"metadata": {"name": "tainted"}, "spec": {"taints": taint},
        "status": {"allocatable": {"cpu": "4", "pods": "9"}}});
    snapshot.set_node(Arc::new(serde_json::from_value(tainted).expect("a node")));
    snapshot.freeze();
    let new = asking("new", 10, "4", json!({}));
    let expected = "0/4 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, \
        2 Preemption is not helpful for scheduling.";
    assert_eq!(outcome(&snapshot, &Objects::empty(), &profile, &new), expected);
}

#[test]
fn harm_to_budgets_is_the_last_resort() {
    let nodes = [("n1", "4"), ("n2", "4")];
    let snapshot = world(&nodes, &[("guarded", "n1", 1, "4"), ("free", "n2", 9, "4")]);
    let mut objects = Objects::empty();
    objects.budgets = Cache::holding([(*budget("guarded", 0)).clone()]);
    let new = asking("new", 10, "4", json!({}));
    // Enough candidates are found with the first, but looking goes on as long as it would violate a budget.
    let hasty = Profile { candidates_min: 1, candidates_percent: 0, ..Profile::standard() };
    for profile in [Profile::standard(), hasty] {
        assert_eq!(outcome(&snapshot, &objects, &profile, &new), "n2: free");
    }
    let alone = world(&nodes[..1], &[("guarded", "n1", 1, "4")]);
    assert_eq!(outcome(&alone, &objects, &Profile::standard(), &new), "n1: guarded");
    // Of two that could go, the one without budget does, though it is more important.
    let both = world(&nodes[..1], &[("guarded", "n1", 1, "2"), ("free", "n1", 5, "2")]);
    let half = asking("new", 10, "2", json!({}));
    assert_eq!(outcome(&both, &objects, &Profile::standard(), &half), "n1: free");
}
