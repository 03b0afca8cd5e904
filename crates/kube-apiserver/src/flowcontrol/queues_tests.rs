//! Seats and queues, without a clock.

use super::queues::*;

type Test = Queues<&'static str>;

fn queue(queues: usize, length_max: usize, limit: u32) -> Test {
    Queues::new(Kind::Queue { queues, hand: 1, length_max }, limit)
}

/// Arrives in the queue of that number: a deck of one card is dealt by the rest of the division.
fn arrive(queues: &mut Test, now: f64, flow: u64, name: &'static str) -> Arrival {
    queues.arrive(now, flow, Width::ONE, || name, &mut |_| panic!("nobody is woken by an arrival here"))
}

#[track_caller]
fn place(arrival: Arrival) -> Place {
    match arrival {
        Arrival::Runs(place) => place,
        other => panic!("it should run, but {other:?}"),
    }
}

fn woken(act: impl FnOnce(&mut dyn FnMut(&'static str))) -> Vec<&'static str> {
    let mut names = Vec::new();
    act(&mut |name| names.push(name));
    names
}

#[test]
fn a_level_without_queues_refuses_what_does_not_fit() {
    let mut level: Test = Queues::new(Kind::Reject, 2);
    let first = place(arrive(&mut level, 0.0, 1, "a"));
    place(arrive(&mut level, 0.0, 1, "b"));
    assert_eq!(arrive(&mut level, 0.0, 2, "c"), Arrival::Refused(Refusal::ConcurrencyLimit));
    level.end(1.0, first, Width::ONE, 1.0, &mut |_| {});
    place(arrive(&mut level, 1.0, 2, "c"));
}

#[test]
fn an_exempt_level_refuses_nobody() {
    let mut level: Test = Queues::new(Kind::Exempt, 0);
    for _ in 0..1000 {
        place(arrive(&mut level, 0.0, 1, "a"));
    }
    assert_eq!(level.seats(), 1000);
}

#[test]
fn a_full_queue_refuses_and_others_do_not() {
    let mut level = queue(4, 2, 1);
    place(arrive(&mut level, 0.0, 0, "runs"));
    for name in ["a", "b"] {
        assert!(matches!(arrive(&mut level, 0.0, 0, name), Arrival::Waits(..)));
    }
    assert_eq!(arrive(&mut level, 0.0, 0, "c"), Arrival::Refused(Refusal::QueueFull));
    assert!(matches!(arrive(&mut level, 0.0, 1, "other"), Arrival::Waits(..)));
}

#[test]
fn flows_take_turns_however_many_one_sends() {
    let mut level = queue(4, 100, 1);
    let mut running = place(arrive(&mut level, 0.0, 0, "first"));
    for name in ["a1", "a2", "a3", "a4"] {
        arrive(&mut level, 0.0, 0, name);
    }
    for name in ["b1", "b2"] {
        arrive(&mut level, 0.0, 1, name);
    }
    let (mut order, mut now) = (Vec::new(), 0.0);
    while order.len() < 6 {
        now += 0.01;
        let names = woken(|wake| level.end(now, running, Width::ONE, 0.01, &mut |name| wake(name)));
        assert_eq!(names.len(), 1);
        order.extend(names);
        // Places are told by the flow's number.
        let flow = u64::from(order.last().is_some_and(|name| name.starts_with('b')));
        running = place_of(flow);
    }
    // The flow that has run already lets the other catch up first.
    assert_eq!(order, ["b1", "a1", "b2", "a2", "a3", "a4"]);
}

/// A place as an arrival in an empty level gives it.
fn place_of(flow: u64) -> Place {
    place(arrive(&mut queue(4, 1, 1), 0.0, flow, ""))
}

#[test]
fn who_leaves_is_not_woken_and_who_was_woken_cannot_leave() {
    let mut level = queue(1, 10, 1);
    let running = place(arrive(&mut level, 0.0, 0, "first"));
    let Arrival::Waits(at, gone) = arrive(&mut level, 0.0, 0, "gone") else { panic!() };
    let Arrival::Waits(_, stays) = arrive(&mut level, 0.0, 0, "stays") else { panic!() };
    assert!(level.leave(0.1, at, gone));
    assert!(!level.leave(0.1, at, gone));
    let names = woken(|wake| level.end(0.2, running, Width::ONE, 0.2, &mut |name| wake(name)));
    assert_eq!(names, ["stays"]);
    assert!(!level.leave(0.2, at, stays));
    assert_eq!((level.seats(), level.waiting_seats()), (1, 0));
}

#[test]
fn a_wide_request_takes_its_seats_and_runs_alone_where_there_are_too_few() {
    let wide = Width { running: 3, ..Width::ONE };
    let mut level = queue(1, 10, 4);
    let place_of_wide = place(level.arrive(0.0, 0, wide, || "wide", &mut |_| {}));
    place(arrive(&mut level, 0.0, 0, "one"));
    assert!(matches!(arrive(&mut level, 0.0, 0, "two"), Arrival::Waits(..)));
    assert_eq!(woken(|wake| level.end(1.0, place_of_wide, wide, 1.0, &mut |name| wake(name))), ["two"]);

    let mut narrow = queue(1, 10, 1);
    place(narrow.arrive(0.0, 0, wide, || "wide", &mut |_| {}));
    assert!(matches!(arrive(&mut narrow, 0.0, 0, "one"), Arrival::Waits(..)));
}

#[test]
fn watchers_keep_the_seats_of_a_write_for_a_while() {
    let width = Width { running: 1, after: 2, after_seconds: 0.01 };
    let mut level = queue(1, 10, 2);
    let at = place(level.arrive(0.0, 0, width, || "write", &mut |_| {}));
    assert!(matches!(arrive(&mut level, 0.0, 0, "next"), Arrival::Waits(..)));
    assert!(woken(|wake| level.end(0.1, at, width, 0.1, &mut |name| wake(name))).is_empty());
    assert_eq!(woken(|wake| level.rest(0.11, at, width, &mut |name| wake(name))), ["next"]);
    assert_eq!(level.seats(), 1);
}

#[test]
fn changes_take_effect_on_those_who_wait() {
    let mut level = queue(4, 10, 1);
    place(arrive(&mut level, 0.0, 0, "runs"));
    for (flow, name) in [(1, "a"), (3, "b")] {
        arrive(&mut level, 0.0, flow, name);
    }
    level.change_kind(Kind::Queue { queues: 2, hand: 1, length_max: 10 });
    let mut names = woken(|wake| level.change_limit(0.1, 3, &mut |name| wake(name)));
    names.sort();
    assert_eq!(names, ["a", "b"]);
}
