//! How many requests proved who asks and were allowed, and how long that took, under upstream's names. Labels are few and
//! fixed: whatever users are called, memory stays bounded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component_base::metrics::{Bounds, Histogram, Metric, Page, exponential};

use crate::authn::User;
use crate::authz::Decision;

/// Upstream's: each twice the one before.
const SECONDS: Bounds = &exponential::<15>(0.001, 2.0);
const AUTHENTICATION: [&str; 2] = ["success", "error"];
const AUTHORIZATION: [&str; 4] = ["allowed", "denied", "no-opinion", "error"];
/// Names that upstream shows; all others count under the last two.
const USERS: [&str; 7] =
    ["admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default", "email_id", "other"];

pub struct Identity {
    authentication: [Histogram; 2],
    authorization: [Histogram; 4],
    users: [AtomicU64; 7],
}

impl Default for Identity {
    fn default() -> Identity {
        Identity {
            authentication: std::array::from_fn(|_| Histogram::new(SECONDS)),
            authorization: std::array::from_fn(|_| Histogram::new(SECONDS)),
            users: Default::default(),
        }
    }
}

impl Identity {
    pub fn authenticated(&self, user: Option<&User>, took: Duration) {
        self.authentication[usize::from(user.is_none())].observe_time(took);
        let Some(user) = user else { return };
        let index = match USERS[..5].iter().position(|known| *known == user.name) {
            Some(index) => index,
            None if user.name.contains('@') => 5,
            None => 6,
        };
        self.users[index].fetch_add(1, Ordering::Relaxed);
    }

    pub fn authorized(&self, decision: &Decision, took: Duration) {
        let index = match decision {
            Decision::Allow(_) => 0,
            Decision::Deny(_) => 1,
            Decision::NoOpinion(_) => 2,
            Decision::Failed { .. } => 3,
        };
        self.authorization[index].observe_time(took);
    }

    pub fn render(&self, page: &mut Page) {
        let mut users = page.family(&USER_REQUESTS);
        for (user, count) in USERS.iter().zip(&self.users) {
            match count.load(Ordering::Relaxed) {
                0 => {}
                count => users.sample(&[("username", user)], count),
            }
        }
        family(page, &ATTEMPTS, &ATTEMPT_SECONDS, &AUTHENTICATION, &self.authentication);
        family(page, &DECISIONS, &DECISION_SECONDS, &AUTHORIZATION, &self.authorization);
    }
}

fn family(page: &mut Page, attempts: &Metric, times: &Metric, results: &[&str], counted: &[Histogram]) {
    let some = || results.iter().zip(counted).filter(|(_, times)| times.count() > 0);
    let mut family = page.family(attempts);
    some().for_each(|(result, times)| family.sample(&[("result", result)], times.count()));
    let mut family = page.family(times);
    some().for_each(|(result, times)| family.histogram(&[("result", result)], times));
}

const USER_REQUESTS: Metric =
    Metric::counter("authenticated_user_requests", "Counter of authenticated requests broken out by username.");
const ATTEMPTS: Metric = Metric::counter("authentication_attempts", "Counter of authenticated attempts.");
const ATTEMPT_SECONDS: Metric =
    Metric::histogram("authentication_duration_seconds", "Authentication duration in seconds broken out by result.");
const DECISIONS: Metric = Metric::counter(
    "authorization_attempts_total",
    "Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.",
);
const DECISION_SECONDS: Metric =
    Metric::histogram("authorization_duration_seconds", "Authorization duration in seconds broken out by result.");
