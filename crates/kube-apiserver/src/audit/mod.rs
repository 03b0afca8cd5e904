//! Auditing: what was asked by whom, and what became of it, as far as the policy wants it written down. Where nothing is
//! configured, a request pays for nothing.

mod policy;
mod event;
mod record;
mod log;
pub(crate) mod kubeconfig;
mod webhook;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

pub use log::Rotation;
pub use record::{Asked, Record};

use kubeconfig::KubeconfigError;
use policy::{Policy, PolicyError};

/// For tests of files of every kind.
#[cfg(test)]
pub(crate) use policy::Policy as TestedPolicy;

use crate::app::Clock;

/// What the operator decides.
#[derive(Clone, Debug)]
pub struct Config {
    pub policy_file: Option<PathBuf>,
    /// `-` for standard output.
    pub log_path: Option<PathBuf>,
    pub rotation: Rotation,
    /// A kubeconfig that leads to who wants to know.
    pub webhook_config_file: Option<PathBuf>,
    pub batch: Batch,
}

/// How events are gathered for the webhook.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    pub events_max: usize,
    pub wait_max: Duration,
    /// How long until a batch that could not be sent is sent again.
    pub retry_after: Duration,
}

impl Default for Config {
    fn default() -> Config {
        let batch = Batch { events_max: 400, wait_max: Duration::from_secs(30), retry_after: Duration::from_secs(10) };
        Config { policy_file: None, log_path: None, rotation: Rotation::default(), webhook_config_file: None, batch }
    }
}

/// Why auditing cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("read {}: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("audit policy {}: {error}", path.display())]
    Policy { path: PathBuf, error: PolicyError },
    #[error("open audit log {}: {error}", path.display())]
    Log { path: PathBuf, error: std::io::Error },
    #[error("audit webhook configuration {}: {error}", path.display())]
    Webhook { path: PathBuf, error: KubeconfigError },
}

pub struct Audit {
    policy: Policy,
    clock: Clock,
    log: Option<log::Log>,
    webhook: Option<webhook::Webhook>,
}

impl Audit {
    /// None where nothing is to be written down or there is no place for it.
    pub fn start(config: &Config, clock: Clock, shutdown: CancellationToken) -> Result<Option<Audit>, AuditError> {
        if config.log_path.is_none() && config.webhook_config_file.is_none() {
            return Ok(None);
        }
        let Some(path) = &config.policy_file else {
            tracing::warn!("auditing is off: --audit-policy-file is not set");
            return Ok(None);
        };
        let text = std::fs::read_to_string(path).map_err(|error| AuditError::Read { path: path.clone(), error })?;
        let policy = Policy::parse(&text).map_err(|error| AuditError::Policy { path: path.clone(), error })?;
        let log = match &config.log_path {
            None => None,
            Some(path) => Some(
                log::Log::open(path, config.rotation, clock.clone())
                    .map_err(|error| AuditError::Log { path: path.clone(), error })?,
            ),
        };
        let webhook = match &config.webhook_config_file {
            None => None,
            Some(path) => {
                let place =
                    kubeconfig::read(path).map_err(|error| AuditError::Webhook { path: path.clone(), error })?;
                Some(webhook::Webhook::start(place, config.batch, shutdown))
            }
        };
        Ok(Some(Audit { policy, clock, log, webhook }))
    }

    fn write(&self, event: &event::Event) {
        let text = match serde_json::to_string(event) {
            Ok(text) => text,
            Err(error) => {
                tracing::error!(%error, "cannot encode audit event");
                return;
            }
        };
        if let Some(log) = &self.log {
            let rest = text.strip_prefix('{').unwrap_or(&text);
            log.write(format!("{{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",{rest}\n").as_bytes());
        }
        if let Some(webhook) = &self.webhook {
            webhook.take(Bytes::from(text));
        }
    }
}
