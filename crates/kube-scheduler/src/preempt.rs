//! Preemption: which less important pods would have to go so that a pod fits. Data in, data out.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use component_helpers::labels::{compiled, selects};
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use machinery::selector::LabelSelector;
use rand::Rng;

use crate::cycle::{Questions, nominated_node};
use crate::failure::Failure;
use crate::framework::{Reasons, View};
use crate::pod_info::PodInfo;
use crate::profile::Profile;
use crate::snapshot::{NodeIndex, NodeInfo};

/// At least so many nodes are looked at, and at least this share of them.
pub(crate) const CANDIDATES_MIN: usize = 100;
pub(crate) const CANDIDATES_PERCENT: usize = 10;

#[derive(Debug)]
pub enum Outcome {
    /// These must go from that node.
    Victims { node: NodeIndex, victims: Vec<Arc<PodInfo>> },
    /// Nothing helps; the text says why for every node.
    Nothing(String),
    /// The pod may not, or waits for those that already go.
    NotNow(NotEligible),
    /// The profile does not preempt.
    Disabled,
}

/// Why a pod may not preempt others now; a part of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotEligible {
    #[error("not eligible due to preemptionPolicy=Never.")]
    Never,
    #[error("not eligible due to a terminating pod on the nominated node.")]
    Terminating,
}

struct Candidate {
    node: NodeIndex,
    victims: Vec<Arc<PodInfo>>,
    budgets_violated: usize,
}

/// Looks for pods to end, among the nodes where that could help.
pub fn preempt(profile: &Profile, view: View, pod: &PodInfo, failure: &Failure, random: &mut impl Rng) -> Outcome {
    if let Err(why) = is_eligible(view, pod, failure) {
        return Outcome::NotNow(why);
    }
    let mut questions = match Questions::new(profile, view, pod) {
        Ok(questions) => questions,
        Err(_) => {
            return Outcome::Nothing(explained(&BTreeMap::from([(NOT_HELPFUL.to_owned(), view.snapshot.len())]), view));
        }
    };
    let helpful = failure.refused.iter().filter(|(_, refusal)| refusal.resolvable);
    let helpful: Vec<NodeIndex> = helpful.map(|(node, _)| node).collect();
    let mut reasons = BTreeMap::from([(NOT_HELPFUL.to_owned(), view.snapshot.len() - helpful.len())]);
    let enough = (helpful.len() * profile.candidates_percent / 100).max(profile.candidates_min);
    let start = if helpful.is_empty() { 0 } else { random.random_range(0..helpful.len()) };
    let budgets: Vec<Budget> = view.objects.budgets.list().into_iter().map(Budget::new).collect();
    let mut candidates = Vec::new();
    for offset in 0..helpful.len() {
        let node = view.snapshot.node(helpful[(start + offset) % helpful.len()]);
        match candidate(&mut questions, pod, node, &budgets) {
            Ok(candidate) => candidates.push(candidate),
            Err(whys) => whys.iter().for_each(|why| count(&mut reasons, why)),
        }
        // One that violates a budget is not good enough as long as no other is found.
        let any_harmless = candidates.iter().any(|candidate| candidate.budgets_violated == 0);
        if any_harmless && candidates.len() >= enough {
            break;
        }
    }
    match candidates.into_iter().min_by_key(rank) {
        Some(best) => Outcome::Victims { node: best.node, victims: best.victims },
        None => Outcome::Nothing(explained(&reasons, view)),
    }
}

fn count(reasons: &mut BTreeMap<String, usize>, reason: &str) {
    match reasons.get_mut(reason) {
        Some(nodes) => *nodes += 1,
        None => _ = reasons.insert(reason.to_owned(), 1),
    }
}

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

fn explained(reasons: &BTreeMap<String, usize>, view: View) -> String {
    let mut counted: Vec<String> =
        reasons.iter().filter(|(_, count)| **count > 0).map(|(reason, count)| format!("{count} {reason}")).collect();
    counted.sort();
    if counted.is_empty() {
        format!("0/{} nodes are available.", view.snapshot.len())
    } else {
        format!("0/{} nodes are available: {}.", view.snapshot.len(), counted.join(", "))
    }
}

fn is_eligible(view: View, pod: &PodInfo, failure: &Failure) -> Result<(), NotEligible> {
    if pod.spec().preemption_policy.as_deref() == Some("Never") {
        return Err(NotEligible::Never);
    }
    // While pods that were preempted for it are still ending, there is nothing more to do.
    if let Some(node) = nominated_node(view, pod) {
        let refusal = failure.refused.of(node.index).or(failure.all.as_ref());
        let still_possible = refusal.is_none_or(|refusal| refusal.resolvable);
        let ending = node.pods.iter().any(|other| {
            let target = component_helpers::pods::condition(&other.pod, "DisruptionTarget");
            let preempted = target.is_some_and(|condition| {
                condition.status == "True" && condition.reason.as_deref() == Some("PreemptionByScheduler")
            });
            other.priority < pod.priority && other.pod.metadata.deletion_timestamp.is_some() && preempted
        });
        if still_possible && ending {
            return Err(NotEligible::Terminating);
        }
    }
    Ok(())
}

/// What must go from one node, as little as possible; or why that would not help.
fn candidate(
    questions: &mut Questions,
    pod: &PodInfo,
    node: &NodeInfo,
    budgets: &[Budget],
) -> Result<Candidate, Reasons> {
    let mut less_important: Vec<Arc<PodInfo>> =
        node.pods.iter().filter(|other| other.priority < pod.priority).cloned().collect();
    if less_important.is_empty() {
        return Err(NO_VICTIMS.into());
    }
    let mut emptier = node.clone();
    let gone = less_important.clone();
    for other in &gone {
        emptier.remove(&other.uid);
        questions.remove_pod(other, &emptier);
    }
    let fits = |questions: &mut Questions, node: &NodeInfo| questions.check_with_nominated(pod, node);
    let mut victims = Vec::new();
    let mut budgets_violated = 0;
    let emptied = fits(questions, &emptier);
    if emptied.is_ok() {
        // The most important get to stay first; those whose budget would be violated before all others.
        less_important.sort_by_key(|other| importance(other));
        let (violating, fine) = split_by_budgets(&less_important, budgets);
        let mut spare = |other: Arc<PodInfo>, questions: &mut Questions, emptier: &mut NodeInfo| {
            emptier.add(other.clone());
            questions.add_pod(&other, emptier);
            if fits(questions, emptier).is_ok() {
                return true;
            }
            emptier.remove(&other.uid);
            questions.remove_pod(&other, emptier);
            victims.push(other);
            false
        };
        for other in violating {
            if !spare(other, questions, &mut emptier) {
                budgets_violated += 1;
            }
        }
        for other in fine {
            spare(other, questions, &mut emptier);
        }
    }
    // The questions are put to the next node as if nothing had been tried here.
    let away: Vec<&Arc<PodInfo>> = if emptied.is_ok() { victims.iter().collect() } else { gone.iter().collect() };
    away.into_iter().for_each(|other| questions.add_pod(other, node));
    match emptied {
        // What keeps the pod from the emptied node is said as it is of any node.
        Err((_, refusal)) => Err(refusal.reasons),
        Ok(()) if victims.is_empty() => Err(NO_VICTIMS.into()),
        Ok(()) => Ok(Candidate { node: node.index, victims, budgets_violated }),
    }
}

/// Smaller is more important: higher priority first, then older.
fn importance(pod: &PodInfo) -> (Reverse<i32>, Timestamp) {
    (Reverse(pod.priority), started(pod))
}

/// A pod that its kubelet has not begun with starts later than all others.
fn started(pod: &PodInfo) -> Timestamp {
    let status = pod.pod.status.as_ref();
    status.and_then(|status| status.start_time.as_ref()).map_or(Timestamp::MAX, |time| time.0)
}

type Pods = Vec<Arc<PodInfo>>;

/// A budget as it is asked about the pods of every node: its selector is read once.
struct Budget {
    budget: Arc<PodDisruptionBudget>,
    /// None for one that selects nobody: a budget of everything is one of nothing.
    selector: Option<LabelSelector>,
    allowed: i32,
}

impl Budget {
    fn new(budget: Arc<PodDisruptionBudget>) -> Budget {
        let selector = compiled(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()));
        let allowed = budget.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or(0);
        Budget { selector: selector.filter(|selector| !selector.matches_everything()), allowed, budget }
    }

    fn covers(&self, pod: &PodInfo) -> bool {
        // A pod without labels has no budget.
        let labeled = pod.labels().is_some_and(|labels| !labels.is_empty());
        let same = self.budget.metadata.namespace.as_deref() == Some(&pod.key.namespace);
        labeled && same && self.selector.as_ref().is_some_and(|selector| selects(selector, pod.labels()))
    }

    /// Whether the pod's going is counted already.
    fn knows(&self, pod: &PodInfo) -> bool {
        let disrupted = self.budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
        disrupted.is_some_and(|pods| pods.contains_key(&pod.key.name))
    }
}

/// Pods whose going would violate a budget, counting those before them in the list, and the others.
fn split_by_budgets(pods: &[Arc<PodInfo>], budgets: &[Budget]) -> (Pods, Pods) {
    let mut allowed: Vec<i32> = budgets.iter().map(|budget| budget.allowed).collect();
    let (mut violating, mut fine) = (Vec::new(), Vec::new());
    for pod in pods {
        let mut violates = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            if !budget.covers(pod) || budget.knows(pod) {
                continue;
            }
            *allowed -= 1;
            violates |= *allowed < 0;
        }
        if violates { violating.push(pod.clone()) } else { fine.push(pod.clone()) }
    }
    (violating, fine)
}

/// Smaller is better: fewest violated budgets, least important victims, smallest sum of their priorities, fewest of them,
/// and the one whose most important victims started last.
type Rank = (usize, i32, i64, usize, Reverse<Timestamp>);

fn rank(candidate: &Candidate) -> Rank {
    let highest = candidate.victims.iter().map(|pod| pod.priority).max().unwrap_or(i32::MIN);
    // Priorities may be negative: shifted, more victims never make a smaller sum.
    let sum = candidate.victims.iter().map(|pod| i64::from(pod.priority) + i64::from(i32::MAX) + 1).sum();
    let most_important = candidate.victims.iter().filter(|pod| pod.priority == highest);
    let earliest = most_important.map(|pod| started(pod)).min().unwrap_or(Timestamp::MAX);
    (candidate.budgets_violated, highest, sum, candidate.victims.len(), Reverse(earliest))
}

#[cfg(test)]
mod tests;
