//! How many requests proved who asks and were allowed, and how long that took, under upstream's names. Labels are few and
//! fixed: whatever users are called, memory stays bounded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::durations::{Buckets, Durations};
use super::render::{head, line};
use crate::authn::User;
use crate::authz::Decision;

/// Upstream's: each twice the one before.
const SECONDS: Buckets =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
const AUTHENTICATION: [&str; 2] = ["success", "error"];
const AUTHORIZATION: [&str; 4] = ["allowed", "denied", "no-opinion", "error"];
/// Names that upstream shows; all others count under the last two.
const USERS: [&str; 7] =
    ["admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default", "email_id", "other"];

#[derive(Default)]
pub struct Identity {
    authentication: [Durations; 2],
    authorization: [Durations; 4],
    users: [AtomicU64; 7],
}

impl Identity {
    pub fn authenticated(&self, user: Option<&User>, took: Duration) {
        self.authentication[usize::from(user.is_none())].add_to(SECONDS, took);
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
        self.authorization[index].add_to(SECONDS, took);
    }

    pub fn render(&self, out: &mut String) {
        let name = "authenticated_user_requests";
        head(out, name, "counter", "Counter of authenticated requests broken out by username.");
        for (user, count) in USERS.iter().zip(&self.users) {
            match count.load(Ordering::Relaxed) {
                0 => {}
                count => line(out, name, &format!("username=\"{user}\""), count),
            }
        }
        let attempts = ("authentication_attempts", "Counter of authenticated attempts.");
        let times = ("authentication_duration_seconds", "Authentication duration in seconds broken out by result.");
        family(out, attempts, times, &AUTHENTICATION, &self.authentication);
        let help = "Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', \
                    'no-opinion' or 'error'.";
        let times = ("authorization_duration_seconds", "Authorization duration in seconds broken out by result.");
        family(out, ("authorization_attempts_total", help), times, &AUTHORIZATION, &self.authorization);
    }
}

fn family(out: &mut String, attempts: (&str, &str), times: (&str, &str), results: &[&str], counted: &[Durations]) {
    let some = || results.iter().zip(counted).filter(|(_, times)| times.count() > 0);
    let labels = |result: &str| format!("result=\"{result}\"");
    head(out, attempts.0, "counter", attempts.1);
    for (result, times) in some() {
        line(out, attempts.0, &labels(result), times.count());
    }
    head(out, times.0, "histogram", times.1);
    for (result, taken) in some() {
        taken.render(out, times.0, &labels(result), SECONDS);
    }
}
