//! Flags of the API server that it has under upstream's names: how many requests run at once, and what is audited.

use std::path::PathBuf;
use std::time::Duration;

use kube_apiserver::audit;

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Divide the server among requests by FlowSchemas and priority levels; otherwise two plain limits hold.
    #[arg(long, env = "KNARR_ENABLE_PRIORITY_AND_FAIRNESS", default_value_t = true, action = clap::ArgAction::Set,
        num_args = 0..=1, default_missing_value = "true")]
    enable_priority_and_fairness: bool,
    /// How many reading requests run at once; together with the mutating ones, the seats that priority levels divide.
    #[arg(long, env = "KNARR_MAX_REQUESTS_INFLIGHT", default_value_t = 400)]
    max_requests_inflight: u32,
    /// How many mutating requests run at once.
    #[arg(long, env = "KNARR_MAX_MUTATING_REQUESTS_INFLIGHT", default_value_t = 200)]
    max_mutating_requests_inflight: u32,
    /// What is audited: a Policy of audit.k8s.io/v1.
    #[arg(long, env = "KNARR_AUDIT_POLICY_FILE")]
    audit_policy_file: Option<PathBuf>,
    /// Where audit events are written, one a line; - is standard output.
    #[arg(long, env = "KNARR_AUDIT_LOG_PATH")]
    audit_log_path: Option<PathBuf>,
    /// How audit events are written.
    #[arg(long, env = "KNARR_AUDIT_LOG_FORMAT", default_value = "json", value_parser = ["json"])]
    audit_log_format: String,
    /// How many days old audit logs are kept; 0 for ever.
    #[arg(long, env = "KNARR_AUDIT_LOG_MAXAGE", default_value_t = 0)]
    audit_log_maxage: u64,
    /// How many old audit logs are kept; 0 for all.
    #[arg(long, env = "KNARR_AUDIT_LOG_MAXBACKUP", default_value_t = 0)]
    audit_log_maxbackup: usize,
    /// At how many megabytes an audit log is put aside; 0 for 100.
    #[arg(long, env = "KNARR_AUDIT_LOG_MAXSIZE", default_value_t = 0)]
    audit_log_maxsize: u64,
    /// A kubeconfig of who is sent audit events.
    #[arg(long, env = "KNARR_AUDIT_WEBHOOK_CONFIG_FILE")]
    audit_webhook_config_file: Option<PathBuf>,
    /// How many audit events are sent together at most.
    #[arg(long, env = "KNARR_AUDIT_WEBHOOK_BATCH_MAX_SIZE", default_value_t = 400)]
    audit_webhook_batch_max_size: usize,
    /// How long audit events wait for others to be sent with.
    #[arg(long, env = "KNARR_AUDIT_WEBHOOK_BATCH_MAX_WAIT", default_value = "30s", value_parser = crate::leader::duration)]
    audit_webhook_batch_max_wait: Duration,
    /// How long until audit events that could not be sent are sent again.
    #[arg(long, env = "KNARR_AUDIT_WEBHOOK_INITIAL_BACKOFF", default_value = "10s", value_parser = crate::leader::duration)]
    audit_webhook_initial_backoff: Duration,
}

impl Flags {
    pub fn flow(&self) -> kube_apiserver::flowcontrol::Config {
        kube_apiserver::flowcontrol::Config {
            enabled: self.enable_priority_and_fairness,
            reading_max: self.max_requests_inflight,
            writing_max: self.max_mutating_requests_inflight,
            ..Default::default()
        }
    }

    pub fn audit(&self) -> audit::Config {
        audit::Config {
            policy_file: self.audit_policy_file.clone(),
            log_path: self.audit_log_path.clone(),
            rotation: audit::Rotation {
                megabytes_max: self.audit_log_maxsize,
                files_max: self.audit_log_maxbackup,
                days_max: self.audit_log_maxage,
            },
            webhook_config_file: self.audit_webhook_config_file.clone(),
            batch: audit::Batch {
                events_max: self.audit_webhook_batch_max_size.max(1),
                wait_max: self.audit_webhook_batch_max_wait,
                retry_after: self.audit_webhook_initial_backoff,
            },
        }
    }
}
