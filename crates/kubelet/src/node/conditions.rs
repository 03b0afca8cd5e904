//! The node's conditions, and what is said when one changes. Pure; words and reasons are upstream's.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What a node can have too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pressure {
    Memory,
    Disk,
    Pid,
}

/// Condition, and for no pressure and pressure each: reason, message, the event's reason.
struct Words {
    pressure: Pressure,
    kind: &'static str,
    without: (&'static str, &'static str, &'static str),
    with: (&'static str, &'static str, &'static str),
}

static WORDS: [Words; 3] = [
    Words {
        pressure: Pressure::Memory,
        kind: "MemoryPressure",
        without: ("KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"),
        with: (
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
            "NodeHasInsufficientMemory",
        ),
    },
    Words {
        pressure: Pressure::Disk,
        kind: "DiskPressure",
        without: ("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
        with: ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
    },
    Words {
        pressure: Pressure::Pid,
        kind: "PIDPressure",
        without: ("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
        with: ("KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"),
    },
];

impl Pressure {
    /// The name of its condition.
    pub fn condition(self) -> &'static str {
        WORDS.iter().find(|words| words.pressure == self).expect("the table has all three").kind
    }
}

/// The four conditions of a kubelet. `problems` say why the node is not ready; none means that it is.
pub fn conditions(
    old: &[NodeCondition],
    pressures: &[Pressure],
    problems: &[String],
    now: Timestamp,
) -> Vec<NodeCondition> {
    let mut new: Vec<NodeCondition> = WORDS
        .iter()
        .map(|words| {
            let pressed = pressures.contains(&words.pressure);
            let (reason, message, _) = if pressed { words.with } else { words.without };
            condition(old, words.kind, pressed, reason, message, now)
        })
        .collect();
    new.push(match problems {
        [] => condition(old, "Ready", true, "KubeletReady", "kubelet is posting ready status", now),
        problems => condition(old, "Ready", false, "KubeletNotReady", &aggregate(problems), now),
    });
    // What others set, such as NetworkUnavailable, stays as it is.
    let foreign = old.iter().filter(|old| new.iter().all(|new| new.type_ != old.type_));
    let foreign: Vec<NodeCondition> = foreign.cloned().collect();
    foreign.into_iter().chain(new).collect()
}

/// The reasons of the events to tell when conditions become others: `Node n1 status is now: NodeReady`.
pub fn changes(old: &[NodeCondition], new: &[NodeCondition]) -> Vec<&'static str> {
    let status = |of: &[NodeCondition], kind: &str| of.iter().find(|it| it.type_ == kind).map(|it| it.status.clone());
    let pressures = WORDS.iter().filter_map(|words| {
        let now = status(new, words.kind)?;
        let event = if now == "True" { words.with.2 } else { words.without.2 };
        (status(old, words.kind) != Some(now)).then_some(event)
    });
    // A node that registers is not ready yet, and everybody knows: that it is ready, and later changes, are told.
    let ready = status(new, "Ready").filter(|now| status(old, "Ready").map_or(now == "True", |before| before != *now));
    pressures.chain(ready.map(|now| if now == "True" { "NodeReady" } else { "NodeNotReady" })).collect()
}

/// Whether two lists say the same, whenever they were said.
pub fn same(old: &[NodeCondition], new: &[NodeCondition]) -> bool {
    let timeless = |conditions: &[NodeCondition]| -> Vec<NodeCondition> {
        let mut conditions = conditions.to_vec();
        conditions.iter_mut().for_each(|condition| condition.last_heartbeat_time = None);
        conditions
    };
    timeless(old) == timeless(new)
}

fn condition(
    old: &[NodeCondition],
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> NodeCondition {
    let status = if holds { "True" } else { "False" };
    let before = old.iter().find(|old| old.type_ == kind && old.status == status);
    NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: before.and_then(|old| old.last_transition_time.clone()).or(Some(Time(now))),
    }
}

/// As upstream joins errors: one stands alone, several stand in brackets.
fn aggregate(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(conditions: &[NodeCondition]) -> Vec<String> {
        let text = |it: &NodeCondition| {
            let since = it.last_transition_time.as_ref().unwrap().0.as_second();
            let heard = it.last_heartbeat_time.as_ref().unwrap().0.as_second();
            let (reason, message) = (it.reason.as_deref().unwrap(), it.message.as_deref().unwrap());
            format!("{}={} since {since} heard {heard} {reason}: {message}", it.type_, it.status)
        };
        conditions.iter().map(text).collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn transitions_are_kept_and_heartbeats_move() {
        let first = conditions(&[], &[], &["container runtime is down".into()], at(1));
        let second = conditions(&first, &[Pressure::Memory], &[], at(2));
        let third = conditions(&second, &[Pressure::Memory], &[], at(3));
        let expected = [
            "MemoryPressure=True since 2 heard 3 KubeletHasInsufficientMemory: kubelet has insufficient memory available",
            "DiskPressure=False since 1 heard 3 KubeletHasNoDiskPressure: kubelet has no disk pressure",
            "PIDPressure=False since 1 heard 3 KubeletHasSufficientPID: kubelet has sufficient PID available",
            "Ready=True since 2 heard 3 KubeletReady: kubelet is posting ready status",
        ];
        assert_eq!(told(&third), expected);
        assert!(same(&second, &third) && !same(&first, &second));
        assert_eq!(changes(&[], &first), ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]);
        assert_eq!(changes(&first, &second), ["NodeHasInsufficientMemory", "NodeReady"]);
        assert_eq!(changes(&[], &second).last(), Some(&"NodeReady"));
        assert!(changes(&second, &third).is_empty());
    }

    #[test]
    fn foreign_conditions_stay_and_problems_are_joined() {
        let foreign = NodeCondition {
            type_: "NetworkUnavailable".into(),
            status: "False".into(),
            last_heartbeat_time: Some(Time(at(0))),
            last_transition_time: Some(Time(at(0))),
            reason: Some("RouteCreated".into()),
            message: Some("routes".into()),
        };
        let new = conditions(&[foreign], &[], &["a".into(), "b".into()], at(5));
        assert_eq!(told(&new)[0], "NetworkUnavailable=False since 0 heard 0 RouteCreated: routes");
        assert_eq!(told(&new)[4], "Ready=False since 5 heard 5 KubeletNotReady: [a, b]");
    }
}
