//! How long pods have to end when the machine goes down, and whether logind is asked to wait for them.

use std::time::Duration;

use anyhow::ensure;

use super::values::seconds;
use crate::power_off::Periods;

#[derive(clap::Args, Clone, Default)]
#[group(skip)]
pub struct Flags {
    /// Hold the shutdown of the machine by systemd-logind until pods have ended, at most this long, such as 30s (default: do not ask logind).
    #[arg(long, env = "KNARR_SHUTDOWN_GRACE_PERIOD", value_parser = seconds)]
    pub shutdown_grace_period: Option<Duration>,
    /// Time of --shutdown-grace-period reserved for critical pods.
    #[arg(long, env = "KNARR_SHUTDOWN_GRACE_PERIOD_CRITICAL_PODS", value_parser = seconds)]
    pub shutdown_grace_period_critical_pods: Option<Duration>,
}

impl Flags {
    /// What was said, or what holds without.
    pub fn periods(&self) -> anyhow::Result<Periods> {
        let Some(all) = self.asks_logind() else {
            ensure!(
                self.shutdown_grace_period_critical_pods.unwrap_or_default().is_zero(),
                "--shutdown-grace-period-critical-pods is a part of --shutdown-grace-period, which is not set"
            );
            return Ok(Periods::default());
        };
        let critical = self.shutdown_grace_period_critical_pods.unwrap_or_default();
        ensure!(
            critical <= all,
            "--shutdown-grace-period-critical-pods must not be longer than --shutdown-grace-period"
        );
        Ok(Periods { all, critical })
    }

    pub(super) fn asks_logind(&self) -> Option<Duration> {
        self.shutdown_grace_period.filter(|period| !period.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_critical_pods_is_part_of_the_whole() {
        let flags = |all: Option<u64>, critical: Option<u64>| Flags {
            shutdown_grace_period: all.map(Duration::from_secs),
            shutdown_grace_period_critical_pods: critical.map(Duration::from_secs),
        };
        let periods = flags(Some(20), Some(5)).periods().unwrap();
        assert_eq!((periods.all.as_secs(), periods.critical.as_secs()), (20, 5));
        let periods = flags(None, None).periods().unwrap();
        assert_eq!((periods.all.as_secs(), periods.critical.as_secs()), (30, 10));
        assert!(flags(None, Some(5)).periods().is_err());
        assert!(flags(Some(5), Some(6)).periods().is_err());
        assert_eq!(flags(Some(0), None).asks_logind(), None);
    }
}
