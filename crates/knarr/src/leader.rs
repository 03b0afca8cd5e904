//! Of several controller managers or schedulers of a cluster only one works at a time.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use machinery::duration::InvalidDuration;
use reconcile::lease::{Durations, LeaseConfig, lead};
use reconcile::{Clock, Shutdown};

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Run only while holding the leader lease, so that several instances can be started.
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    leader_elect: bool,
    /// Time after the last renewal until another instance may take the lease.
    #[arg(long, value_parser = duration, default_value = "15s")]
    leader_elect_lease_duration: Duration,
    /// Time for the leader to renew the lease before it stops.
    #[arg(long, value_parser = duration, default_value = "10s")]
    leader_elect_renew_deadline: Duration,
    /// Time between attempts to acquire or renew the lease.
    #[arg(long, value_parser = duration, default_value = "2s")]
    leader_elect_retry_period: Duration,
    /// Namespace of the lease.
    #[arg(long, default_value = NAMESPACE)]
    leader_elect_resource_namespace: String,
    /// Name of the lease (default: the component's name).
    #[arg(long)]
    leader_elect_resource_name: Option<String>,
}

const NAMESPACE: &str = "kube-system";

/// Whether and how a component is one of several.
pub struct Election {
    /// None where it is the only one.
    lease: Option<LeaseConfig>,
    leads: Arc<AtomicBool>,
}

/// The `leaderElection` of a configuration file.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct InFile {
    leader_elect: Option<bool>,
    lease_duration: Option<String>,
    renew_deadline: Option<String>,
    retry_period: Option<String>,
    resource_lock: Option<String>,
    resource_name: Option<String>,
    resource_namespace: Option<String>,
}

impl Flags {
    /// Puts what a file says in the place of what is usual.
    pub fn follow(&mut self, file: InFile) -> anyhow::Result<()> {
        if let Some(lock) = file.resource_lock.filter(|lock| !matches!(lock.as_str(), "" | "leases")) {
            anyhow::bail!("leaderElection.resourceLock: {lock}: only leases is supported");
        }
        self.leader_elect = file.leader_elect.unwrap_or(self.leader_elect);
        for (text, time) in [
            (file.lease_duration, &mut self.leader_elect_lease_duration),
            (file.renew_deadline, &mut self.leader_elect_renew_deadline),
            (file.retry_period, &mut self.leader_elect_retry_period),
        ] {
            let said = text.map(|text| duration(&text)).transpose();
            let said = said.map_err(|error| anyhow::anyhow!("leaderElection: {error}"))?;
            *time = said.filter(|said| !said.is_zero()).unwrap_or(*time);
        }
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        self.leader_elect_resource_name = said(file.resource_name).or(self.leader_elect_resource_name.take());
        if let Some(namespace) = said(file.resource_namespace) {
            self.leader_elect_resource_namespace = namespace;
        }
        Ok(())
    }

    pub fn election(&self, component: &str) -> anyhow::Result<Election> {
        if !self.leader_elect {
            return Ok(Election::alone());
        }
        let durations = Durations {
            lease: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry: self.leader_elect_retry_period,
        };
        if durations.lease <= durations.renew_deadline || durations.renew_deadline <= durations.retry {
            anyhow::bail!(
                "the lease duration must be longer than the renew deadline, and that longer than the retry period"
            );
        }
        Ok(Election::by(LeaseConfig {
            namespace: self.leader_elect_resource_namespace.clone(),
            name: self.leader_elect_resource_name.clone().unwrap_or_else(|| component.to_owned()),
            identity: identity(),
            durations,
            clock: Clock::system(),
        }))
    }
}

impl Election {
    pub fn alone() -> Election {
        Election { lease: None, leads: Arc::default() }
    }

    fn by(lease: LeaseConfig) -> Election {
        Election { lease: Some(lease), leads: Arc::default() }
    }

    /// Whether it is this process's turn, from now on.
    pub fn leads(&self) -> Arc<AtomicBool> {
        self.leads.clone()
    }

    /// Among the servers of one cluster, which share what they keep.
    pub fn among_servers(component: &str) -> Election {
        Election::by(LeaseConfig {
            namespace: NAMESPACE.to_owned(),
            name: component.to_owned(),
            identity: identity(),
            durations: Durations::default(),
            clock: Clock::system(),
        })
    }

    /// Runs the work until shutdown, whenever it is this process's turn.
    pub async fn run<F>(self, client: kube::Client, shutdown: Shutdown, work: impl Fn(Shutdown) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let work = |stop: Shutdown| {
            let turn = Turn::begin(&self.leads);
            let work = work(stop);
            async move {
                work.await;
                drop(turn);
            }
        };
        match self.lease {
            None => work(shutdown).await,
            Some(lease) => lead(client, lease, shutdown, work).await,
        }
    }
}

/// Says that this process works, until it is dropped, however that comes about.
struct Turn(Arc<AtomicBool>);

impl Turn {
    fn begin(leads: &Arc<AtomicBool>) -> Turn {
        leads.store(true, Ordering::Relaxed);
        Turn(leads.clone())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The host, and something no other process has.
fn identity() -> String {
    let random =
        std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_else(|_| std::process::id().to_string());
    format!("{}_{}", crate::server::host_name(), random.trim())
}

/// A time as Go writes it, such as 15s or 1m30s.
pub fn duration(text: &str) -> Result<Duration, InvalidDuration> {
    machinery::duration::parse_positive(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, seconds) in [("15s", Some(15)), ("1m30s", Some(90)), ("2h", Some(7200)), ("-1s", None), ("x", None)]
        {
            assert_eq!(duration(text).ok().map(|duration| duration.as_secs()), seconds, "{text}");
        }
    }

    #[test]
    fn no_two_candidates_are_the_same() {
        assert_ne!(identity(), identity());
    }
}
