//! What is said of a pod that no node takes.

use super::*;
use crate::framework::Reasons;

fn refusal(reasons: &[&'static str]) -> Refusal {
    let mut all: Option<Reasons> = None;
    reasons.iter().for_each(|reason| Reasons::push(&mut all, *reason));
    Refusal { reasons: all.expect("at least one reason"), resolvable: true, is_error: false }
}

#[test]
fn reasons_are_counted_and_sorted_as_text() {
    let mut failure = Failure { nodes_total: 12, ..Failure::default() };
    for index in 0..10 {
        failure.refused.add(NodeIndex(index), refusal(&["Insufficient cpu"]));
    }
    failure.refused.add(NodeIndex(10), refusal(&["Insufficient memory", "Too many pods"]));
    failure.refused.add(NodeIndex(11), refusal(&["Too many pods"]));
    assert_eq!(
        failure.message(),
        "0/12 nodes are available: 1 Insufficient memory, 10 Insufficient cpu, 2 Too many pods."
    );
    failure.all = Some(Refusal::final_("pod has unbound immediate PersistentVolumeClaims"));
    assert_eq!(failure.message(), "0/12 nodes are available: pod has unbound immediate PersistentVolumeClaims.");
}

#[test]
fn what_many_nodes_say_is_kept_once() {
    let mut refused = Refused::default();
    for index in 0..1000 {
        let one = if index % 3 == 0 { Refusal::final_("a taint") } else { Refusal::resolvable("Insufficient cpu") };
        refused.add(NodeIndex(index), one);
    }
    assert_eq!(refused.said.len(), 2);
    assert_eq!(refused.iter().filter(|(_, refusal)| refusal.resolvable).count(), 666);
    assert!(refused.of(NodeIndex(999)).is_some_and(|refusal| !refusal.resolvable));
    assert_eq!(refused.of(NodeIndex(1000)), None);
}

#[test]
fn texts_that_all_differ_are_counted_too() {
    let mut failure = Failure { nodes_total: 3 * COMPARED_MAX, ..Failure::default() };
    let texts: Vec<String> = (0..3 * COMPARED_MAX).map(|number| format!("reason {:02}", number / 2)).collect();
    // Each comes twice, so far apart that it is not compared with itself.
    let apart = texts.iter().step_by(2).chain(texts.iter().skip(1).step_by(2));
    for (index, text) in apart.enumerate() {
        failure.refused.add(NodeIndex(index as u32), Refusal::resolvable(text.clone()));
    }
    let message = failure.message();
    assert!(message.starts_with("0/24 nodes are available: 2 reason 00, 2 reason 01,"), "{message}");
}
