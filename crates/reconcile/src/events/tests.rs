//! The correlator over small histories, and the writer against an API that comes and goes.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use testkit::{FakeApi, Fault};

use super::correlate::{Correlator, Decision};
use super::*;

fn about(name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        namespace: Some("a".into()),
        name: Some(name.into()),
        uid: Some(format!("uid-of-{name}")),
        api_version: Some("v1".into()),
        field_path: Some("spec.containers{c}".into()),
        resource_version: Some("7".into()),
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn event(name: &str, seconds: i64, reason: &str, message: &str) -> Event {
    let source = EventSource { component: Some("kubelet".into()), host: Some("n1".into()) };
    make(&source, at(seconds), &about(name), EventType::Warning, reason, message.into())
}

/// What is decided, in short: `create <message>`, `count <n> <message>` or `drop`.
fn told(correlator: &mut Correlator, name: &str, seconds: i64, reason: &str, message: &str) -> String {
    let (_, decision) = correlator.decide(event(name, seconds, reason, message), at(seconds));
    match decision {
        Decision::Create(event) => format!("create {}", event.message.unwrap()),
        Decision::Count(event) => format!("count {} {}", event.count.unwrap(), event.message.unwrap()),
        Decision::Drop => "drop".into(),
    }
}

#[test]
fn the_same_event_is_counted() {
    let mut correlator = Correlator::default();
    assert_eq!(told(&mut correlator, "p", 0, "BackOff", "again"), "create again");
    assert_eq!(told(&mut correlator, "p", 5, "BackOff", "again"), "count 2 again");
    assert_eq!(told(&mut correlator, "p", 9, "BackOff", "other"), "create other");
    assert_eq!(told(&mut correlator, "q", 9, "BackOff", "again"), "create again");
    let (_, Decision::Count(third)) = correlator.decide(event("p", 10, "BackOff", "again"), at(10)) else { panic!() };
    assert_eq!(
        (third.count, third.first_timestamp, third.last_timestamp),
        (Some(3), Some(Time(at(0))), Some(Time(at(10))))
    );
    let name = format!("p.{:x}", at(0).as_nanosecond());
    assert_eq!(third.metadata.name, Some(name), "the count stays on the first event's object");
}

#[test]
fn ten_similar_events_become_one() {
    let mut correlator = Correlator::default();
    for number in 0..9 {
        assert_eq!(told(&mut correlator, "p", number, "Failed", &format!("m{number}")), format!("create m{number}"));
    }
    assert_eq!(told(&mut correlator, "p", 9, "Failed", "m9"), "create (combined from similar events): m9");
    assert_eq!(told(&mut correlator, "p", 10, "Failed", "m10"), "count 2 (combined from similar events): m10");
    assert_eq!(told(&mut correlator, "p", 11, "Other", "m11"), "create m11");
    assert_eq!(
        told(&mut correlator, "p", 700, "Failed", "m12"),
        "create m12",
        "after ten quiet minutes it begins anew"
    );
}

#[test]
fn one_object_cannot_talk_without_end() {
    let mut correlator = Correlator::default();
    let spoken = (0..40).filter(|_| told(&mut correlator, "p", 0, "Failed", "same") != "drop").count();
    assert_eq!(spoken, 25);
    assert_eq!(told(&mut correlator, "q", 0, "Failed", "same"), "create same");
    assert_eq!(told(&mut correlator, "p", 299, "Failed", "same"), "drop");
    assert_eq!(told(&mut correlator, "p", 302, "Failed", "same"), "count 42 same", "what was dropped is counted");
    assert_eq!(told(&mut correlator, "p", 303, "Failed", "same"), "drop");
}

fn stored(api: &FakeApi) -> Vec<Value> {
    api.paths().iter().filter_map(|path| api.get(path)).collect()
}

/// A clock that follows tokio's, so that a paused test owns both.
fn clock() -> Clock {
    let start = tokio::time::Instant::now();
    Clock::from_fn(move || at(0) + jiff::SignedDuration::try_from(start.elapsed()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn events_look_as_the_kubelet_writes_them() {
    let api = FakeApi::default();
    let recorder = Recorder::with_clock(api.client().0, "kubelet", "n1", clock());
    recorder.event(&about("p"), EventType::Normal, "Started", "Container started");
    tokio::time::sleep(Duration::from_secs(3)).await;
    recorder.event(&about("p"), EventType::Normal, "Started", "Container started");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let events = stored(&api);
    assert_eq!(events.len(), 1);
    let mut event = events[0].clone();
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        event["metadata"].as_object_mut().unwrap().remove(field);
    }
    let expected = serde_json::json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": format!("p.{:x}", at(0).as_nanosecond()), "namespace": "a" },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": "a", "name": "p", "uid": "uid-of-p", "resourceVersion": "7",
            "fieldPath": "spec.containers{c}",
        },
        "reason": "Started", "message": "Container started", "type": "Normal", "count": 2,
        "firstTimestamp": "2027-01-15T08:00:00Z", "lastTimestamp": "2027-01-15T08:00:03Z",
        "source": { "component": "kubelet", "host": "n1" }, "reportingComponent": "kubelet", "reportingInstance": "n1",
    });
    assert_eq!(event, expected);
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_away_is_waited_for_but_not_for_ever() {
    for fault in [Fault::Refused, Fault::Silent, Fault::Status(503)] {
        let api = FakeApi::default();
        let (client, link) = api.client();
        let recorder = Recorder::with_clock(client, "kubelet", "n1", clock());
        link.set(fault.clone());
        recorder.event(&about("p"), EventType::Normal, "Started", "one");
        tokio::time::sleep(Duration::from_secs(60)).await;
        link.set(Fault::None);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(stored(&api).len(), 1, "{fault:?}");

        link.set(fault.clone());
        recorder.event(&about("p"), EventType::Normal, "Started", "lost");
        tokio::time::sleep(Duration::from_secs(1000)).await;
        link.set(Fault::None);
        recorder.event(&about("p"), EventType::Normal, "Started", "kept");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let messages: Vec<Value> = stored(&api).into_iter().map(|mut event| event["message"].take()).collect();
        assert_eq!(messages, ["one", "kept"], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_and_a_forgotten_event_is_made_again() {
    let api = FakeApi::default();
    let (client, link) = api.client();
    let recorder = Recorder::with_clock(client, "kubelet", "n1", clock());
    recorder.event(&about("p"), EventType::Normal, "Started", "one");
    tokio::time::sleep(Duration::from_secs(1)).await;
    api.remove(&api.paths()[0]);
    recorder.event(&about("p"), EventType::Normal, "Started", "one");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(stored(&api)[0]["count"], 2);

    link.set(Fault::Silent);
    for number in 0..WAITING_MAX + 10 {
        recorder.event(&about(&format!("q{number}")), EventType::Normal, "Started", "one");
    }
    assert_eq!(recorder.dropped(), 10);
}
