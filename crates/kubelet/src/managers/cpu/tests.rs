//! Machines, requests and outcomes of upstream's tests of v1.36.4. Left out are those whose machine contradicts itself, and those for
//! gates that are off.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::super::mask::{Hint, Mask};
use super::super::topology::Topology;
use super::super::topology::tests::machine;
use super::assign::{Sorting, take_packed};
use super::distribute::take_distributed;
use super::*;

const UPSTREAM: &str = include_str!("testdata/upstream.txt");

fn set(text: &str) -> CpuSet {
    if text == "-" { CpuSet::default() } else { text.parse().unwrap() }
}

/// `0*3 1` is 0, 0, 0, 1.
fn runs(text: &str) -> Vec<usize> {
    let run = |word: &str| match word.split_once('*') {
        Some((value, count)) => vec![value.parse().unwrap(); count.parse().unwrap()],
        None => vec![word.parse().unwrap()],
    };
    text.split(' ').flat_map(run).collect()
}

fn machines() -> HashMap<&'static str, Topology> {
    let mut columns: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    let mut names = Vec::new();
    for line in UPSTREAM.lines() {
        let fields: Vec<&str> = line.split(" | ").collect();
        match fields[0] {
            "machine" => names.push(fields[1]),
            "core" | "socket" | "node" | "uncore" => drop(columns.insert((fields[1], fields[0]), runs(fields[2]))),
            _ => {}
        }
    }
    let of = |name: &'static str| {
        let column = |what: &'static str| &columns[&(name, what)];
        let cpus: Vec<_> = (0..column("core").len())
            .map(|cpu| (cpu, column("core")[cpu], column("socket")[cpu], column("node")[cpu], column("uncore")[cpu]))
            .collect();
        (name, machine(&cpus))
    };
    names.into_iter().map(of).collect()
}

fn cases(kind: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    UPSTREAM.lines().map(|line| line.split(" | ").collect::<Vec<_>>()).filter(move |fields| fields[0] == kind)
}

fn options(text: &str) -> Options {
    let given: BTreeMap<String, String> =
        text.split(',').filter(|name| *name != "-").map(|name| (name.to_owned(), "true".to_owned())).collect();
    Options::parse(&given, true).unwrap()
}

fn shown<E: std::fmt::Display>(result: Result<CpuSet, E>) -> String {
    match result {
        Ok(cpus) if cpus.is_empty() => "-".to_owned(),
        Ok(cpus) => cpus.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn processors_are_taken_as_upstream_takes_them() {
    let machines = machines();
    let mut count = 0;
    for case in cases("take") {
        let options = options(case[2]);
        let sorting = if options.distribute_cpus_across_cores { Sorting::Spread } else { Sorting::Packed };
        let by_uncore = options.prefer_align_cpus_by_uncorecache;
        let taken = take_packed(&machines[case[1]], &set(case[4]), case[3].parse().unwrap(), sorting, by_uncore);
        assert_eq!(shown(taken), case[5], "{case:?}");
        count += 1;
    }
    assert!(count > 25, "{count}");
}

#[test]
fn processors_are_spread_over_nodes_as_upstream_spreads_them() {
    let machines = machines();
    let mut count = 0;
    for case in cases("distribute") {
        let (group, wanted) = (case[2].parse().unwrap(), case[3].parse().unwrap());
        let taken = take_distributed(&machines[case[1]], &set(case[4]), wanted, group, Sorting::Packed);
        assert_eq!(shown(taken), case[5], "{case:?}");
        count += 1;
    }
    assert!(count > 10, "{count}");
}

fn pod(uid: &str, init: &[(&str, &str, bool)], regular: &[(&str, &str)]) -> Pod {
    let resources = |cpu: &str| {
        let (request, limit) = cpu.split_once('/').unwrap_or((cpu, cpu));
        json!({"requests": {"cpu": request, "memory": "1Gi"}, "limits": {"cpu": limit, "memory": "1Gi"}})
    };
    let init: Vec<_> = init
        .iter()
        .map(|(name, cpu, sidecar)| {
            let mut container = json!({"name": name, "resources": resources(cpu)});
            if *sidecar {
                container["restartPolicy"] = json!("Always");
            }
            container
        })
        .collect();
    let regular: Vec<_> =
        regular.iter().map(|(name, cpu)| json!({"name": name, "resources": resources(cpu)})).collect();
    serde_json::from_value(json!({
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"initContainers": init, "containers": regular},
    }))
    .unwrap()
}

fn container(pod: &Pod, name: &str) -> k8s_openapi::api::core::v1::Container {
    crate::pod::spec::container(pod, name).unwrap().1
}

#[test]
fn containers_get_what_upstream_gives_them() {
    let machines = machines();
    let mut count = 0;
    for case in cases("allocate") {
        let (reserved_count, reserved) = case[3].split_once(' ').unwrap();
        let reserved_count = reserved_count.parse().unwrap();
        let mut policy =
            Static::new(machines[case[1]].clone(), options(case[2]), reserved_count, &set(reserved)).unwrap();
        let mut state = State { shared: set(case[5]), ..State::default() };
        for entry in case[4].split(' ').filter(|entry| *entry != "-") {
            let (owner, cpus) = entry.split_once('=').unwrap();
            let (uid, name) = owner.split_once('/').unwrap();
            state.entries.entry(uid.to_owned()).or_default().insert(name.to_owned(), set(cpus));
        }
        let words: Vec<&str> = case[6].split(' ').collect();
        let (uid, name) = words[0].split_once('/').unwrap();
        let cpus = format!("{}/{}", words[1], words[2]);
        let pod = pod(uid, &[], &[(name, &cpus)]);
        let near = (case[7] != "-").then(|| Mask::of(set(case[7]).iter()));
        let outcome = match policy.allocate(&mut state, &pod, &container(&pod, name), near) {
            Ok(()) => state.of(uid, name).map_or("none".to_owned(), ToString::to_string),
            Err(error) => error.to_string(),
        };
        assert_eq!(outcome, case[8], "{case:?}");
        if let Some(cpus) = state.of(uid, name) {
            assert!(cpus.intersection(&state.shared).is_empty(), "{case:?}");
        }
        count += 1;
    }
    assert!(count > 20, "{count}");
}

/// One socket with four cores of two threads, and one processor reserved.
fn small(options: Options) -> Static {
    Static::new(machines().remove("topoSingleSocketHT").unwrap(), options, 1, &set("0")).unwrap()
}

#[test]
fn what_init_containers_had_is_used_again() {
    let check = |init: &[(&str, &str, bool)], regular: &[(&str, &str)], expected: &[(&str, &str)], shared: &str| {
        let mut policy =
            Static::new(machines().remove("topoSingleSocketHT").unwrap(), Options::default(), 0, &set("-")).unwrap();
        let mut state = State::default();
        policy.start(&mut state).unwrap();
        let pod = pod("u", init, regular);
        let names = init.iter().map(|(name, _, _)| *name).chain(regular.iter().map(|(name, _)| *name));
        for name in names {
            policy.allocate(&mut state, &pod, &container(&pod, name), None).unwrap();
        }
        for (name, cpus) in expected {
            assert_eq!(state.of("u", name).unwrap().to_string(), *cpus, "{name}");
        }
        assert_eq!(state.shared.to_string(), shared);
        assert!(policy.retain(&mut state, |_| false));
        assert_eq!(state.shared.to_string(), "0-7");
    };
    check(&[("i", "4", false)], &[("c", "2")], &[("i", "0-1,4-5"), ("c", "0,4")], "2-3,6-7");
    check(&[("i", "2", false)], &[("c", "4")], &[("i", "0,4"), ("c", "0-1,4-5")], "2-3,6-7");
    check(&[("i", "4", false)], &[("a", "2"), ("b", "2")], &[("a", "0,4"), ("b", "1,5")], "2-3,6-7");
    check(&[("i", "2", true)], &[("c", "2")], &[("i", "0,4"), ("c", "1,5")], "2-3,6-7");
}

#[test]
fn a_state_of_another_machine_is_refused() {
    let strict = Options { strict_cpu_reservation: true, ..Options::default() };
    let check = |options: Options, shared: &str, entries: &[(&str, &str)], expected: &str| {
        let containers = entries.iter().map(|(name, cpus)| (name.to_string(), set(cpus))).collect::<BTreeMap<_, _>>();
        let mut state = State { shared: set(shared), ..State::default() };
        if !containers.is_empty() {
            state.entries.insert("u".to_owned(), containers);
        }
        let outcome = small(options).start(&mut state);
        assert_eq!(outcome.map_or_else(|error| error.to_string(), |()| state.shared.to_string()), expected);
    };
    let usual = Options::default();
    check(usual, "-", &[], "0-7");
    check(strict, "-", &[], "1-7");
    check(usual, "0-3,6-7", &[("c", "4-5")], "0-3,6-7");
    check(usual, "-", &[("c", "4-5")], "default cpuset cannot be empty");
    check(usual, "1-7", &[], "not all reserved cpus: \"0\" are present in defaultCpuSet: \"1-7\"");
    check(strict, "0-7", &[], "some of strictly reserved cpus: \"0\" are present in defaultCpuSet: \"0-7\"");
    check(usual, "0-7", &[("c", "4")], "pod: u, container: c cpuset: \"4\" overlaps with default cpuset \"0-7\"");
    check(usual, "0-8", &[], "current set of available CPUs \"0-7\" doesn't match with CPUs in state \"0-8\"");
}

#[test]
fn options_are_those_of_upstream() {
    let parse = |text: &[(&str, &str)], alpha| {
        let given = text.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Options::parse(&given, alpha).map_err(|error| error.to_string())
    };
    assert!(parse(&[("full-pcpus-only", "true")], false).unwrap().full_pcpus_only);
    assert_eq!(
        parse(&[("align-by-socket", "true")], false).unwrap_err(),
        "CPU Manager Policy Alpha-level Options not enabled, but option \"align-by-socket\" provided"
    );
    assert_eq!(parse(&[("x", "true")], true).unwrap_err(), "unknown CPU Manager Policy option: \"x\"");
    assert!(parse(&[("full-pcpus-only", "yes")], true).is_err());
    assert_eq!(
        parse(&[("full-pcpus-only", "1"), ("distribute-cpus-across-cores", "1")], true).unwrap_err(),
        "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time"
    );
}

/// Two sockets with a node, and three cores of two threads, each, as upstream's tests of hints.
#[test]
fn hints_are_those_of_upstream() {
    let core = |cpu: usize| cpu % 6;
    let cpus: Vec<_> = (0..12).map(|cpu| (cpu, core(cpu), core(cpu) / 3, core(cpu) / 3, core(cpu) / 3)).collect();
    let policy = Static::new(machine(&cpus), Options::default(), 0, &set("-")).unwrap();
    let check = |wanted: &str, shared: &str, had: Option<&str>, expected: Option<&[(&[usize], bool)]>| {
        let pod = pod("u", &[], &[("c", wanted)]);
        let mut state = State { shared: set(shared), ..State::default() };
        if let Some(had) = had {
            state.entries.entry("u".into()).or_default().insert("c".into(), set(had));
        }
        let hint =
            |&(nodes, preferred): &(&[usize], bool)| Hint { mask: Some(Mask::of(nodes.iter().copied())), preferred };
        let expected = expected.map(|hints| hints.iter().map(hint).collect::<Vec<_>>());
        assert_eq!(policy.hints(&state, &pod, &container(&pod, "c")).remove("cpu").flatten(), expected, "{wanted}");
        assert_eq!(policy.pod_hints(&state, &pod).remove("cpu").flatten(), expected, "{wanted}");
    };
    check("2", "0-11", None, Some(&[(&[0], true), (&[1], true), (&[0, 1], false)]));
    check("5", "0-11", None, Some(&[(&[0], true), (&[1], true), (&[0, 1], false)]));
    check("7", "0-11", None, Some(&[(&[0, 1], true)]));
    check("11", "0-11", None, Some(&[(&[0, 1], true)]));
    check("2", "0,3", None, Some(&[(&[0, 1], false)]));
    check("2", "3-5", None, Some(&[(&[1], true), (&[0, 1], false)]));
    check("2", "-", Some("0,6"), Some(&[(&[0], true), (&[0, 1], false)]));
    check("2", "-", Some("3,9"), Some(&[(&[1], true), (&[0, 1], false)]));
    check("11", "-", Some("0-10"), Some(&[(&[0, 1], true)]));
    check("2", "-", Some("0,6,3,9"), Some(&[]));
    check("1500m", "0-11", None, None);
    check("1/2", "0-11", None, None);
}
