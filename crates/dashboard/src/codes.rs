//! Codes that sign somebody in once, and how often signing in may fail. Both in memory, both bounded.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use machinery::status::Status;
use parking_lot::Mutex;

use crate::access::Credential;

pub(crate) const CODE_LIFETIME: SignedDuration = SignedDuration::from_mins(5);
const CODES_MAX: usize = 1024;
/// Of one user, so that nobody takes away those of others.
const CODES_PER_USER_MAX: usize = 8;
/// So many attempts may fail from one address within a window.
const FAILURES_MAX: u32 = 10;
const WINDOW: SignedDuration = SignedDuration::from_mins(1);
const ADDRESSES_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct Codes {
    /// By the code's hash: whoever reads the memory of a table finds no code in it by its order in time.
    codes: Mutex<BTreeMap<Vec<u8>, Code>>,
}

struct Code {
    user: String,
    credential: Credential,
    /// When the credential itself ends.
    until: Option<Timestamp>,
    expires: Timestamp,
}

impl Codes {
    pub fn put(
        &self,
        user: &str,
        code: &str,
        credential: Credential,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), Status> {
        let mut codes = self.codes.lock();
        codes.retain(|_, code| code.expires > now);
        let own = codes.values().filter(|code| code.user == user).count();
        if own >= CODES_PER_USER_MAX || codes.len() >= CODES_MAX {
            return Err(Status::too_many_requests("too many codes wait to be used", 60));
        }
        codes.insert(hash(code), Code { user: user.into(), credential, until, expires: now + CODE_LIFETIME });
        Ok(())
    }

    /// Takes a code away and says whose it is: nobody can use it twice.
    pub fn take(&self, code: &str, now: Timestamp) -> Option<(Credential, Option<Timestamp>)> {
        let found = self.codes.lock().remove(&hash(code))?;
        (found.expires > now).then_some((found.credential, found.until))
    }
}

fn hash(code: &str) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, code.as_bytes()).as_ref().to_vec()
}

/// Who guesses waits.
#[derive(Default)]
pub(crate) struct Failures {
    counts: Mutex<BTreeMap<Option<IpAddr>, (u32, Timestamp)>>,
}

impl Failures {
    pub fn check(&self, from: Option<IpAddr>, now: Timestamp) -> Result<(), Status> {
        let counts = self.counts.lock();
        match counts.get(&from) {
            Some((count, since)) if *count >= FAILURES_MAX && *since + WINDOW > now => {
                Err(Status::too_many_requests("too many failed attempts to sign in, please try again later", 60))
            }
            _ => Ok(()),
        }
    }

    pub fn count(&self, from: Option<IpAddr>, now: Timestamp) {
        let mut counts = self.counts.lock();
        if counts.len() >= ADDRESSES_MAX {
            counts.retain(|_, (_, since)| *since + WINDOW > now);
            if counts.len() >= ADDRESSES_MAX {
                counts.pop_first();
            }
        }
        let entry = counts.entry(from).or_insert((0, now));
        if entry.1 + WINDOW <= now {
            *entry = (0, now);
        }
        entry.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_code_is_good_once_and_not_for_long() {
        let codes = Codes::default();
        codes.put("ann", "one", Credential::Kubeconfig, None, at(0)).unwrap();
        codes.put("ann", "two", Credential::Kubeconfig, None, at(0)).unwrap();
        assert!(codes.take("three", at(1)).is_none());
        assert!(codes.take("one", at(1)).is_some());
        assert!(codes.take("one", at(1)).is_none());
        assert!(codes.take("two", at(300)).is_none());
        for number in 0..CODES_PER_USER_MAX {
            codes.put("ann", &number.to_string(), Credential::Kubeconfig, None, at(0)).unwrap();
        }
        assert_eq!(codes.put("ann", "more", Credential::Kubeconfig, None, at(0)).unwrap_err().code, 429);
        codes.put("ben", "other", Credential::Kubeconfig, None, at(0)).unwrap();
        codes.put("ann", "later", Credential::Kubeconfig, None, at(301)).unwrap();
    }

    #[test]
    fn who_guesses_waits_and_nobody_else() {
        let failures = Failures::default();
        let (one, other) = (Some([10, 0, 0, 1].into()), Some([10, 0, 0, 2].into()));
        for _ in 0..FAILURES_MAX {
            failures.check(one, at(0)).unwrap();
            failures.count(one, at(0));
        }
        assert_eq!(failures.check(one, at(59)).unwrap_err().code, 429);
        failures.check(other, at(59)).unwrap();
        failures.check(one, at(60)).unwrap();
    }
}
