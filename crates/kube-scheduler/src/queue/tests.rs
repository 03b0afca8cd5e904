//! Whose turn it is, and when.

use super::*;

fn pod(name: &str, priority: i32) -> Arc<PodInfo> {
    let object = serde_json::json!({"metadata": {"name": name, "namespace": "a", "uid": name},
        "spec": {"containers": [], "priority": priority}});
    Arc::new(PodInfo::new(Arc::new(serde_json::from_value(object).expect("a pod"))))
}

fn popped(queue: &mut Queue, now: Instant) -> Option<String> {
    queue.pop(now).map(|popped| popped.pod.uid.clone())
}

#[test]
fn the_important_and_the_older_come_first() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    for (name, priority) in [("a", 0), ("b", 5), ("c", 5), ("gated", 9)] {
        queue.put(pod(name, priority), name == "gated", now, |_| false);
    }
    assert_eq!(queue.counts(), [3, 0, 0, 1]);
    let order: Vec<_> = std::iter::from_fn(|| popped(&mut queue, now)).collect();
    assert_eq!(order, ["b", "c", "a"]);
    queue.put(pod("gated", 9), false, now, |_| false);
    assert_eq!(popped(&mut queue, now).as_deref(), Some("gated"));
}

#[test]
fn a_pod_that_nobody_takes_waits_for_what_may_help() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.put(pod("a", 0), false, now, |_| false);
    assert!(popped(&mut queue, now).is_some());
    queue.failed("a", ["NodePorts"].into(), now);
    queue.changed(now, "NodeAdd", |_| true, |_, plugin| plugin == "NodeAffinity");
    assert_eq!(queue.counts(), [0, 0, 1, 0]);
    queue.changed(now, "NodeAdd", |_| true, |_, plugin| plugin == "NodePorts");
    assert_eq!(queue.counts(), [0, 1, 0, 0]);
    let incoming: Vec<_> =
        queue.incoming().iter().map(|((event, queue), count)| format!("{event} {queue} {count}")).collect();
    assert_eq!(incoming, ["NodeAdd backoff 1", "PodAdd active 1", "ScheduleAttemptFailure unschedulable 1"]);
    // Nobody else is to be tried, so it need not wait out its back-off.
    assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
    assert_eq!(queue.incoming().get(&("PopFromBackoffQ", "active")), Some(&1));
    // Nothing helps: it is tried again all the same, but not soon.
    queue.failed("a", ["NodePorts"].into(), now);
    assert_eq!(queue.next_wake(), Some(now + WAITING_MAX));
    assert_eq!(popped(&mut queue, now + WAITING_MAX - Duration::from_secs(1)), None);
    assert_eq!(popped(&mut queue, now + WAITING_MAX).as_deref(), Some("a"));
}

#[test]
fn ten_thousand_pods_that_wait_cost_nothing() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    for index in 0..10_000 {
        queue.put(pod(&format!("p{index}"), 0), false, now, |_| false);
    }
    while let Some(name) = popped(&mut queue, now) {
        queue.failed(&name, ["NodeResourcesFit"].into(), now);
    }
    let began = Instant::now();
    for _ in 0..10_000 {
        assert_eq!(popped(&mut queue, now), None);
        assert!(queue.next_wake().is_some());
    }
    // Looking at all of them each time would take minutes.
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

/// A queue with these pods, all of which were tried once and refused by that plugin.
fn refused(names: &[(&str, i32)], plugin: &'static str, now: Instant) -> Queue {
    let mut queue = Queue::default();
    for (name, priority) in names {
        queue.put(pod(name, *priority), false, now, |_| false);
    }
    while let Some(name) = popped(&mut queue, now) {
        queue.failed(&name, [plugin].into(), now);
    }
    queue
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn who_has_others_ended_waits_until_they_were_told() {
    let now = Instant::now();
    let change = |queue: &mut Queue| queue.changed(now, "AssignedPodDelete", |_| true, |_, _| true);
    let check = |failed: bool, changed_before: bool, expected: [usize; 4]| {
        let mut queue = refused(&[("a", 0), ("b", 0)], "NodeResourcesFit", now);
        queue.make_room("a");
        if changed_before {
            change(&mut queue);
            assert_eq!(queue.counts(), [0, 1, 1, 0], "only the other is tried again");
        }
        queue.room_made("a", failed, now);
        assert_eq!(queue.counts(), expected, "failed: {failed}, changed before: {changed_before}");
        queue
    };
    // What came while its victims were being told is not lost.
    check(false, true, [0, 2, 0, 0]);
    let mut queue = check(false, false, [0, 0, 2, 0]);
    change(&mut queue);
    assert_eq!(queue.counts(), [0, 2, 0, 0], "their end comes later");
    // Nothing may come of it when a victim could not be told.
    check(true, false, [0, 1, 1, 0]);
    let mut queue = check(true, true, [0, 2, 0, 0]);
    // It is not asked for again and again: it waits out its back-off even when nobody else is to be tried.
    assert_eq!(popped(&mut queue, now).as_deref(), Some("b"));
    assert_eq!((popped(&mut queue, now), popped(&mut queue, now + SECOND)), (None, Some("a".to_owned())));
    let mut queue = refused(&[("a", 0)], "NodeResourcesFit", now);
    queue.make_room("a");
    queue.remove("a");
    queue.room_made("a", true, now);
    assert_eq!((queue.counts(), queue.making_room.len()), ([0; 4], 0), "it is gone");
}

#[test]
fn back_off_doubles_up_to_its_limit() {
    let limits = Limits::default();
    let seconds: Vec<u64> = (0..8).map(|failures| limits.back_off(failures).as_secs()).collect();
    assert_eq!(seconds, [1, 1, 2, 4, 8, 10, 10, 10]);
    assert_eq!(limits.back_off(u32::MAX), BACKOFF_MAX, "no overflow");
    let odd = Limits { backoff_first: 3 * SECOND, backoff_max: 5 * SECOND, ..limits };
    assert_eq!([1, 2].map(|failures| odd.back_off(failures).as_secs()), [3, 5]);
}

#[test]
fn who_was_tried_stands_behind_who_came_meanwhile() {
    let now = Instant::now();
    let mut queue = Queue::default();
    for name in ["first", "second"] {
        queue.put(pod(name, 0), false, now, |_| false);
    }
    assert_eq!(popped(&mut queue, now).as_deref(), Some("first"));
    queue.failed("first", ["NodePorts"].into(), now);
    let later = now + 60 * SECOND;
    queue.changed(later, "NodeAdd", |_| true, |_, _| true);
    assert_eq!(queue.counts(), [2, 0, 0, 0], "its back-off is over");
    let order: Vec<_> = std::iter::from_fn(|| popped(&mut queue, later)).collect();
    assert_eq!(order, ["second", "first"]);
}

#[test]
fn the_important_are_tried_first_of_those_that_back_off() {
    let now = Instant::now();
    let mut queue = refused(&[("low", 1), ("high", 9), ("middle", 5)], "NodePorts", now);
    queue.changed(now, "NodeAdd", |_| true, |_, _| true);
    assert_eq!(queue.counts(), [0, 3, 0, 0]);
    // One that is new goes before them, however unimportant.
    queue.put(pod("new", 0), false, now, |_| false);
    let order: Vec<_> = std::iter::from_fn(|| popped(&mut queue, now)).collect();
    assert_eq!(order, ["new", "high", "middle", "low"]);
}

#[test]
fn a_back_off_that_is_over_brings_pods_back_by_importance() {
    let now = Instant::now();
    let mut queue = refused(&[("old", 9)], "NodePorts", now);
    queue.changed(now, "NodeAdd", |_| true, |_, _| true);
    let later = now + 3 * SECOND;
    queue.put(pod("new", 0), false, later, |_| false);
    assert_eq!(popped(&mut queue, later).as_deref(), Some("old"));
    assert_eq!(queue.incoming().get(&("BackoffComplete", "active")), Some(&1));
}

#[test]
fn errors_are_waited_out() {
    let now = Instant::now();
    let mut queue = Queue::default();
    queue.put(pod("a", 0), false, now, |_| false);
    for (attempt, expected) in [1, 2, 4, 8, 10, 10].into_iter().enumerate() {
        assert!(popped(&mut queue, now + 100 * SECOND).is_some(), "attempt {attempt}");
        queue.back_off("a", now);
        assert_eq!(queue.next_wake(), Some(now + expected * SECOND), "attempt {attempt}");
        assert_eq!(popped(&mut queue, now), None, "it is not tried before, though nobody else is");
    }
    assert!(popped(&mut queue, now + 10 * SECOND).is_some());
    // A refusal ends the row of errors, and its own back-off is the first.
    queue.failed("a", ["NodePorts"].into(), now);
    queue.changed(now + 3 * SECOND, "NodeAdd", |_| true, |_, _| true);
    assert_eq!(queue.counts(), [1, 0, 0, 0]);
    assert!(popped(&mut queue, now + 3 * SECOND).is_some());
    queue.back_off("a", now);
    assert_eq!(queue.next_wake(), Some(now + SECOND), "the row of errors begins anew");
}

#[test]
fn who_nobody_refused_is_tried_again_after_a_while() {
    let now = Instant::now();
    let mut queue = Queue::default();
    queue.put(pod("a", 0), false, now, |_| false);
    assert!(popped(&mut queue, now).is_some());
    queue.failed("a", BTreeSet::new(), now);
    assert_eq!((queue.counts(), queue.next_wake()), ([0, 1, 0, 0], Some(now + SECOND)));
}

#[test]
fn a_change_of_its_own_counts_with_those_who_refused_it() {
    let now = Instant::now();
    let mut queue = refused(&[("a", 0)], "TaintToleration", now);
    queue.put(pod("a", 0), false, now, |plugin| plugin == "NodePorts");
    assert_eq!(queue.counts(), [0, 0, 1, 0], "NodePorts did not refuse it");
    queue.put(pod("a", 7), false, now, |plugin| plugin == "TaintToleration");
    assert_eq!(queue.counts(), [0, 1, 0, 0]);
    assert_eq!(queue.get("a").map(|pod| pod.priority), Some(7), "it is known as it is now");
}

#[test]
fn a_new_priority_changes_the_order() {
    let now = Instant::now();
    let mut queue = Queue::default();
    for name in ["a", "b"] {
        queue.put(pod(name, 0), false, now, |_| false);
    }
    queue.put(pod("b", 3), false, now, |_| false);
    assert_eq!(popped(&mut queue, now).as_deref(), Some("b"));
    let mut queue = refused(&[("a", 0), ("b", 0)], "NodePorts", now);
    queue.changed(now, "NodeAdd", |_| true, |_, _| true);
    queue.put(pod("b", 3), false, now, |_| false);
    assert_eq!(popped(&mut queue, now).as_deref(), Some("b"), "of those that back off, too");
    assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
}

#[test]
fn pods_are_counted_where_they_are() {
    let now = Instant::now();
    let mut queue = refused(&[("a", 0), ("b", 0)], "NodePorts", now);
    assert_eq!(queue.refused().into_iter().collect::<Vec<_>>(), [(("NodePorts", "default-scheduler".into()), 2)]);
    queue.put(pod("c", 0), false, now, |_| false);
    assert_eq!((queue.in_flight(), queue.any_waiting()), (0, true));
    assert!(popped(&mut queue, now).is_some());
    assert_eq!(queue.in_flight(), 1);
    for name in ["a", "b", "c"] {
        queue.remove(name);
    }
    assert_eq!((queue.counts(), queue.in_flight(), queue.any_waiting()), ([0; 4], 0, false));
    assert!(queue.refused().is_empty() && queue.next_wake().is_none() && queue.get("a").is_none());
    // Who is gone is spoken of no more.
    queue.failed("a", ["NodePorts"].into(), now);
    queue.back_off("b", now);
    assert_eq!(queue.counts(), [0; 4]);
}

#[test]
fn gates_close_again() {
    let now = Instant::now();
    let mut queue = Queue::default();
    queue.put(pod("a", 0), true, now, |_| true);
    assert_eq!((queue.counts(), popped(&mut queue, now)), ([0, 0, 0, 1], None));
    queue.put(pod("a", 0), false, now, |_| false);
    assert_eq!(queue.counts(), [1, 0, 0, 0]);
    queue.put(pod("a", 0), true, now, |_| false);
    assert_eq!((queue.counts(), popped(&mut queue, now)), ([0, 0, 0, 1], None));
}
