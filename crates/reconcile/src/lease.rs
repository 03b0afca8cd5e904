//! Leader election by a Lease, as upstream: of several candidates one works, and another takes over when it is gone.
//!
//! Clocks of machines differ, so a lease of another counts from when this process saw it change. A slow disk or API never
//! ends the process: leadership is then lost, the work is told to stop, and the candidate tries again.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::time::Duration;

use component_base::{Clock, tasks};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::Shutdown;

#[derive(Clone)]
pub struct LeaseConfig {
    pub namespace: String,
    pub name: String,
    /// Who this candidate is; no other may have the same.
    pub identity: String,
    pub durations: Durations,
    /// What the lease is stamped with; how long it lasts is measured by a clock that nobody sets.
    pub clock: Clock,
}

#[derive(Clone, Copy, Debug)]
pub struct Durations {
    /// How long others wait after the last renewal they saw before one takes over.
    pub lease: Duration,
    /// How long the leader tries to renew before it gives up. Shorter than `lease`; the difference is the time the work has to stop.
    pub renew_deadline: Duration,
    /// How long to wait between tries.
    pub retry: Duration,
}

impl Default for Durations {
    fn default() -> Durations {
        Durations {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Waits between tries to become leader are up to so much longer, so that candidates do not meet every time.
const JITTER: f64 = 1.2;

/// So often a lease that changes meanwhile is tried to be given up.
const RELEASE_TRIES_MAX: usize = 5;

/// So long the process stays to give the lease up; then it runs out.
const RELEASE_MAX: Duration = Duration::from_secs(2);

/// Runs `work` while this candidate leads, until shutdown. The work gets a token that says when to stop; when it has not stopped
/// by the time that another may lead, it is aborted. Work that ends by itself gives the lease up and is tried again.
pub async fn lead<F>(client: Client, config: LeaseConfig, shutdown: Shutdown, work: impl Fn(Shutdown) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut candidate = Candidate::new(client, config);
    while !shutdown.is_cancelled() {
        // Who only wants to lead has nothing to end first. An answer that is not waited for may make it the leader all the same;
        // then the lease runs out.
        let Some(leads) = shutdown.run_until_cancelled(candidate.attempt()).await else { break };
        if leads {
            tracing::info!(lease = candidate.config.name, identity = candidate.config.identity, "became leader");
            candidate.work(&shutdown, &work).await;
            tracing::info!(lease = candidate.config.name, identity = candidate.config.identity, "no longer leader");
        }
        let retry = candidate.config.durations.retry;
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = sleep(retry.mul_f64(1.0 + JITTER * rand::random::<f64>())) => {}
        }
    }
}

struct Candidate {
    leases: Api<Lease>,
    config: LeaseConfig,
    /// The lease as last seen, and when it was first seen so.
    seen: Option<(Lease, Instant)>,
    /// When the request was sent with which this candidate last took or renewed the lease. Others saw the renewal later than
    /// that, so counting from here errs on the safe side.
    renewed: Instant,
}

impl Candidate {
    fn new(client: Client, config: LeaseConfig) -> Candidate {
        let leases = Api::namespaced(client, &config.namespace);
        Candidate { leases, config, seen: None, renewed: Instant::now() }
    }

    /// Leads: renews while the work runs, and answers when no work runs any more.
    async fn work<F>(&mut self, shutdown: &Shutdown, work: &impl Fn(Shutdown) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Durations { lease, renew_deadline, retry } = self.config.durations;
        let stop = shutdown.child_token();
        // A task of its own: work that keeps its thread busy must not keep the lease from being renewed.
        let mut running = AbortOnDrop(tasks::spawn(work(stop.clone())));
        let mut next = Instant::now() + retry;
        let lost = loop {
            // While the work ends after a shutdown, the lease is still renewed: nobody else may begin before.
            tokio::select! {
                ended = &mut running.0 => break report(ended),
                () = sleep_until(next) => {}
            }
            let deadline = self.renewed + renew_deadline;
            let renewal = async {
                while !self.attempt().await {
                    sleep(retry).await;
                }
            };
            tokio::select! {
                ended = &mut running.0 => break report(ended),
                renewal = timeout_at(deadline, renewal) => match renewal {
                    Ok(()) => next = Instant::now() + retry,
                    Err(_) => break true,
                },
            }
        };
        if !lost {
            return self.release().await;
        }
        tracing::warn!(lease = self.config.name, "cannot renew lease in time; stopping leader work");
        stop.cancel();
        if let Ok(ended) = timeout_at(self.renewed + lease, &mut running.0).await {
            report(ended);
        } else {
            running.0.abort();
            tracing::error!(lease = self.config.name, "leader work did not stop in time; aborted it");
        }
    }

    /// Tries once to take or renew the lease; a request without an answer counts as failed.
    async fn attempt(&mut self) -> bool {
        let within = self.config.durations.renew_deadline / 2;
        match timeout(within, self.take_or_renew()).await {
            Ok(Ok(leads)) => leads,
            // Another candidate was faster.
            Ok(Err(error)) if matches!(crate::reason(&error), "AlreadyExists" | "Conflict") => false,
            Ok(Err(error)) => {
                tracing::warn!(lease = self.config.name, %error, "cannot get or update lease");
                false
            }
            Err(_) => {
                tracing::warn!(lease = self.config.name, "timed out getting or updating lease");
                false
            }
        }
    }

    async fn take_or_renew(&mut self) -> Result<bool, kube::Error> {
        let old = match self.leases.get_opt(&self.config.name).await? {
            Some(lease) => lease,
            None => {
                let sent = Instant::now();
                let metadata = ObjectMeta { name: Some(self.config.name.clone()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(self.spec(None)) };
                let created = self.leases.create(&PostParams::default(), &lease).await?;
                self.leads_since(created, sent);
                return Ok(true);
            }
        };
        self.observe(&old);
        if !self.holds(&old) && self.is_held(&old) {
            return Ok(false);
        }
        let sent = Instant::now();
        let lease = Lease { spec: Some(self.spec(Some(&old))), ..old };
        // The version read goes with it: of two candidates that found it free, one gets a conflict.
        let stored = self.leases.replace(&self.config.name, &PostParams::default(), &lease).await?;
        self.leads_since(stored, sent);
        Ok(true)
    }

    /// Gives the lease up, so that another need not wait. Failing is no harm: it then runs out.
    async fn release(&mut self) {
        match timeout(RELEASE_MAX.min(self.config.durations.renew_deadline / 2), self.try_release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(lease = self.config.name, %error, "cannot release lease"),
            Err(_) => tracing::warn!(lease = self.config.name, "timed out releasing lease"),
        }
    }

    /// A renewal that was under way when the work ended may still arrive, so the lease is read first, and again after a conflict.
    async fn try_release(&mut self) -> Result<(), kube::Error> {
        let mut tries = 0;
        loop {
            let Some(lease) = self.leases.get_opt(&self.config.name).await?.filter(|lease| self.holds(lease)) else {
                return Ok(());
            };
            let now = Some(MicroTime(self.config.clock.now()));
            let spec = LeaseSpec {
                holder_identity: Some(String::new()),
                lease_duration_seconds: Some(1),
                acquire_time: now.clone(),
                renew_time: now,
                lease_transitions: lease.spec.and_then(|spec| spec.lease_transitions),
                ..LeaseSpec::default()
            };
            let lease = Lease { metadata: lease.metadata, spec: Some(spec) };
            tries += 1;
            match self.leases.replace(&self.config.name, &PostParams::default(), &lease).await {
                Ok(lease) => {
                    self.seen = Some((lease, Instant::now()));
                    return Ok(());
                }
                Err(error) if crate::reason(&error) == "Conflict" && tries < RELEASE_TRIES_MAX => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn leads_since(&mut self, lease: Lease, sent: Instant) {
        self.renewed = sent;
        self.seen = Some((lease, Instant::now()));
    }

    /// Counts anew when the lease has changed.
    fn observe(&mut self, lease: &Lease) {
        let same = self.seen.as_ref().is_some_and(|(seen, _)| seen.spec == lease.spec);
        if !same {
            self.seen = Some((lease.clone(), Instant::now()));
        }
    }

    fn holds(&self, lease: &Lease) -> bool {
        holder(lease) == self.config.identity
    }

    /// Whether another holds it and has renewed it lately, by this process's own measure.
    fn is_held(&self, lease: &Lease) -> bool {
        let Some((seen, since)) = &self.seen else { return false };
        let seconds = seen.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
        let lasts = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        !holder(lease).is_empty() && since.elapsed() < lasts
    }

    /// What to write: a renewal where this candidate held the lease already, otherwise a new term.
    fn spec(&self, old: Option<&Lease>) -> LeaseSpec {
        let now = MicroTime(self.config.clock.now());
        let before = old.and_then(|old| old.spec.clone()).unwrap_or_default();
        let renewal = old.is_some_and(|old| self.holds(old));
        let transitions = before.lease_transitions.unwrap_or(0);
        let seconds = self.config.durations.lease.as_secs();
        LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            acquire_time: if renewal { before.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(if renewal || old.is_none() { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        }
    }
}

/// Work that has ended has not lost the lease. A panic in it is said and not passed on: other candidates may fare better.
fn report(ended: Result<(), tokio::task::JoinError>) -> bool {
    if let Err(error) = ended {
        tracing::error!(%error, "leader work panicked");
    }
    false
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or("")
}

/// A leader that is dropped works no longer.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
