//! Flags of the API server that it has under upstream's names: how many requests run at once, and what is audited.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use component_base::features::Gates;
use kube_apiserver::options::{Edge, EdgeSettings, Options, RuntimeConfig, StorageMedia, TracingConfiguration};
use kube_apiserver::{audit, encryption};

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Limit requests by FlowSchemas and priority levels (API Priority and Fairness) instead of the two plain limits.
    #[arg(long, env = "KNARR_ENABLE_PRIORITY_AND_FAIRNESS", default_value_t = true, action = clap::ArgAction::Set,
        num_args = 0..=1, default_missing_value = "true")]
    enable_priority_and_fairness: bool,
    /// Maximum number of concurrent non-mutating requests; the sum with the mutating ones is what priority levels
    /// share.
    #[arg(long, env = "KNARR_MAX_REQUESTS_INFLIGHT", default_value_t = 400)]
    max_requests_inflight: u32,
    /// Maximum number of concurrent mutating requests.
    #[arg(long, env = "KNARR_MAX_MUTATING_REQUESTS_INFLIGHT", default_value_t = 200)]
    max_mutating_requests_inflight: u32,
    /// Audit policy file (Policy of audit.k8s.io/v1). A server writes a default one to <data-dir>/audit/policy.yaml,
    /// which you can edit.
    #[arg(long, env = "KNARR_AUDIT_POLICY_FILE")]
    audit_policy_file: Option<PathBuf>,
    /// Write audit events to this file, one per line; - is standard output, an empty value disables the log. Default of
    /// a server: <data-dir>/audit/audit.log.
    #[arg(long, env = "KNARR_AUDIT_LOG_PATH", value_parser = maybe_empty)]
    audit_log_path: Option<PathBuf>,
    /// Format of the audit log.
    #[arg(long, env = "KNARR_AUDIT_LOG_FORMAT", default_value = "json", value_parser = ["json"])]
    audit_log_format: String,
    /// Days to keep old audit logs; 0 keeps them forever. Default of a server: 30.
    #[arg(long, env = "KNARR_AUDIT_LOG_MAXAGE")]
    audit_log_maxage: Option<u64>,
    /// Number of old audit logs to keep; 0 keeps all. Default of a server: 10.
    #[arg(long, env = "KNARR_AUDIT_LOG_MAXBACKUP")]
    audit_log_maxbackup: Option<usize>,
    /// Rotate the audit log at this size in megabytes (default: 100).
    #[arg(long, env = "KNARR_AUDIT_LOG_MAXSIZE")]
    audit_log_maxsize: Option<u64>,
    /// Send audit events to the webhook of this kubeconfig.
    #[arg(long, env = "KNARR_AUDIT_WEBHOOK_CONFIG_FILE")]
    audit_webhook_config_file: Option<PathBuf>,
    /// Maximum number of audit events in a batch.
    #[arg(long, env = "KNARR_AUDIT_WEBHOOK_BATCH_MAX_SIZE", default_value_t = 400)]
    audit_webhook_batch_max_size: usize,
    /// Maximum time to wait before sending a batch of audit events.
    #[arg(long, env = "KNARR_AUDIT_WEBHOOK_BATCH_MAX_WAIT", default_value = "30s", value_parser = crate::leader::duration)]
    audit_webhook_batch_max_wait: Duration,
    /// Time to wait before retrying a failed audit webhook request.
    #[arg(long, env = "KNARR_AUDIT_WEBHOOK_INITIAL_BACKOFF", default_value = "10s", value_parser = crate::leader::duration)]
    audit_webhook_initial_backoff: Duration,
    /// EncryptionConfiguration file: which resources are encrypted in the store, and with which keys or KMS plugins.
    #[arg(long, env = "KNARR_ENCRYPTION_PROVIDER_CONFIG")]
    encryption_provider_config: Option<PathBuf>,
    /// Reload the EncryptionConfiguration when the file changes.
    #[arg(long, env = "KNARR_ENCRYPTION_PROVIDER_CONFIG_AUTOMATIC_RELOAD", default_value_t = false,
        action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    encryption_provider_config_automatic_reload: bool,
    /// Form in which objects of built-in kinds are stored: application/json, or application/vnd.kubernetes.protobuf as
    /// upstream by default. Both are read.
    #[arg(long, env = "KNARR_STORAGE_MEDIA_TYPE", default_value = "application/json",
        value_parser = ["application/json", "application/vnd.kubernetes.protobuf"])]
    storage_media_type: String,
    /// Serve groups, versions or resources that are off by default, or turn some off: group/version=true,
    /// group/version/resource=false, api/beta=true, api/alpha=true, api/all=true.
    #[arg(long, env = "KNARR_RUNTIME_CONFIG", value_delimiter = ',')]
    runtime_config: Vec<String>,
    /// Feature gates of the API server, such as ClusterTrustBundle=true.
    #[arg(long, env = "KNARR_FEATURE_GATES", value_delimiter = ',')]
    feature_gates: Vec<String>,
    /// TracingConfiguration file: send spans of requests to an OpenTelemetry collector.
    #[arg(long, env = "KNARR_TRACING_CONFIG_FILE")]
    tracing_config_file: Option<PathBuf>,
    #[command(flatten)]
    tls: crate::tls::Flags,
    /// Origins whose web pages may read answers of the API, as regular expressions that pin the host, such as
    /// //console\.example(:|$).
    #[arg(long, env = "KNARR_CORS_ALLOWED_ORIGINS", value_delimiter = ',')]
    cors_allowed_origins: Vec<String>,
    /// Send a Strict-Transport-Security header with these directives, such as max-age=31536000,includeSubDomains.
    #[arg(long, env = "KNARR_STRICT_TRANSPORT_SECURITY_DIRECTIVES", value_delimiter = ',')]
    strict_transport_security_directives: Vec<String>,
    /// End the HTTP/2 connection of a request with this probability, up to 0.02, so that clients spread over servers.
    #[arg(long, env = "KNARR_GOAWAY_CHANCE", default_value_t = 0.0)]
    goaway_chance: f64,
}

/// Gates that the API server has both ways.
const OPEN_GATES: &[&str] = &[
    "ClusterTrustBundle",
    "ClusterTrustBundleProjection",
    "ContainerStopSignals",
    "PodCertificateRequest",
    "StorageVersionMigrator",
];

impl Flags {
    pub fn flow(&self) -> kube_apiserver::flowcontrol::Config {
        kube_apiserver::flowcontrol::Config {
            enabled: self.enable_priority_and_fairness,
            reading_max: self.max_requests_inflight,
            writing_max: self.max_mutating_requests_inflight,
            ..Default::default()
        }
    }

    pub fn storage_media(&self) -> StorageMedia {
        let is_protobuf = self.storage_media_type == StorageMedia::Protobuf.name();
        if is_protobuf { StorageMedia::Protobuf } else { StorageMedia::Json }
    }

    /// What is served, and how connections are.
    pub fn serving(&self, base: Options) -> anyhow::Result<Options> {
        let gates = Gates::parse(&self.feature_gates.join(","), OPEN_GATES).context("--feature-gates")?;
        let settings = EdgeSettings {
            cors_allowed_origins: self.cors_allowed_origins.clone(),
            strict_transport_security: self.strict_transport_security_directives.clone(),
            goaway_chance: self.goaway_chance,
        };
        // What cannot be used is said before anything starts.
        Edge::new(&settings)?;
        let runtime = RuntimeConfig::parse(&self.runtime_config.join(","), gates).context("--runtime-config")?;
        let tracing_file = self.tracing_config_file.clone();
        // What cannot be used is said before anything starts.
        tracing_file.as_deref().map(TracingConfiguration::read).transpose()?;
        Ok(Options { runtime, tls: self.tls.settings()?, edge: settings, tracing_file, ..base })
    }

    /// What is encrypted: as the file says.
    pub fn encryption(&self) -> anyhow::Result<encryption::Settings> {
        anyhow::ensure!(
            !self.encryption_provider_config_automatic_reload || self.encryption_provider_config.is_some(),
            "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
        );
        Ok(encryption::Settings {
            file: self.encryption_provider_config.clone(),
            reload: self.encryption_provider_config_automatic_reload,
            ..encryption::Settings::default()
        })
    }

    /// What is audited, and where to: as upstream, nothing unless it was asked for.
    pub fn audit(&self) -> audit::Config {
        audit::Config {
            policy_file: self.audit_policy_file.clone(),
            log_path: self.audit_log_path.clone().filter(|path| !path.as_os_str().is_empty()),
            rotation: audit::Rotation {
                megabytes_max: self.audit_log_maxsize.unwrap_or_default(),
                files_max: self.audit_log_maxbackup.unwrap_or_default(),
                days_max: self.audit_log_maxage.unwrap_or_default(),
            },
            webhook_config_file: self.audit_webhook_config_file.clone(),
            batch: audit::Batch {
                events_max: self.audit_webhook_batch_max_size.max(1),
                wait_max: self.audit_webhook_batch_max_wait,
                retry_after: self.audit_webhook_initial_backoff,
            },
        }
    }

    /// The same for a cluster of our own: what concerns its keys, rights and rules is written down unless the operator decides.
    pub fn audit_of_server(&self, data_dir: &Path) -> anyhow::Result<audit::Config> {
        let mut config = self.audit();
        config.rotation = audit::Rotation {
            megabytes_max: self.audit_log_maxsize.unwrap_or(LOG_MEGABYTES),
            files_max: self.audit_log_maxbackup.unwrap_or(LOG_FILES),
            days_max: self.audit_log_maxage.unwrap_or(LOG_DAYS),
        };
        // Who names a place and no policy gets upstream's warning that nothing is written there.
        if self.audit_log_path.is_some() || self.audit_webhook_config_file.is_some() {
            return Ok(config);
        }
        let folder = data_dir.join("audit");
        linux::file::make_private_folder(&folder).with_context(|| format!("create {}", folder.display()))?;
        if config.policy_file.is_none() {
            let policy = folder.join("policy.yaml");
            if !policy.exists() {
                linux::file::write(&policy, POLICY, 0o600).with_context(|| format!("write {}", policy.display()))?;
            }
            config.policy_file = Some(policy);
        }
        config.log_path = Some(folder.join("audit.log"));
        Ok(config)
    }
}

/// What the CIS benchmark asks for, and no more than a gigabyte.
const LOG_MEGABYTES: u64 = 100;
const LOG_FILES: usize = 10;
const LOG_DAYS: u64 = 30;

/// What is written down where nobody says what: who changed rights, keys and rules, who read a Secret, who went into a container.
/// What the parts of the cluster do all day is left out, or the log would be nothing else.
const POLICY: &str = include_str!("audit_policy.yaml");

fn maybe_empty(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(PathBuf::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn flags(line: &str) -> Flags {
        let words = std::iter::once("knarr").chain(line.split_whitespace());
        <Line as clap::Parser>::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).flags
    }

    #[test]
    fn limits_are_upstreams() {
        let flow = flags("").flow();
        assert_eq!((flow.enabled, flow.reading_max, flow.writing_max), (true, 400, 200));
        let flow = flags("--enable-priority-and-fairness=false --max-requests-inflight 7").flow();
        assert_eq!((flow.enabled, flow.reading_max), (false, 7));
        assert!(flags("--enable-priority-and-fairness").flow().enabled);
    }

    #[test]
    fn what_is_served_is_checked_before_the_start() {
        let serving = |line: &str| flags(line).serving(Options::default()).map_err(|error| format!("{error:#}"));
        assert_eq!(serving(""), Ok(Options::default()));
        let options = serving("--goaway-chance=0.01 --cors-allowed-origins=//a(:|$),//b(:|$)").expect("good");
        assert_eq!((options.edge.goaway_chance, options.edge.cors_allowed_origins.len()), (0.01, 2));
        let runtime =
            serving("--runtime-config=api/beta=true --runtime-config=batch/v1/cronjobs=false").expect("good").runtime;
        let once = RuntimeConfig::parse("api/beta=true,batch/v1/cronjobs=false", Gates::default()).expect("good");
        assert_eq!(runtime, once);
        for (line, expected) in [
            ("--runtime-config=batch/v9=true", "--runtime-config: group version batch/v9 that has not been registered"),
            ("--feature-gates=No=true", "--feature-gates: unrecognized feature gate: No"),
            ("--goaway-chance=1", "--goaway-chance can not be less than 0 or greater than 0.02: 1"),
        ] {
            assert_eq!(serving(line).expect_err(line), expected);
        }
    }

    #[test]
    fn upstreams_server_audits_nothing_unasked() {
        let audit = flags("").audit();
        assert!(audit.policy_file.is_none() && audit.log_path.is_none() && audit.webhook_config_file.is_none());
        let rotation = &audit.rotation;
        assert_eq!((rotation.megabytes_max, rotation.files_max, rotation.days_max), (0, 0, 0));
        assert_eq!((audit.batch.events_max, audit.batch.wait_max), (400, Duration::from_secs(30)));
        assert_eq!(audit.batch.retry_after, Duration::from_secs(10));
        assert_eq!(flags("--audit-webhook-batch-max-size 0").audit().batch.events_max, 1);
        assert_eq!(flags("--audit-log-path=").audit().log_path, None, "an empty name turns it off");
    }

    #[test]
    fn a_server_of_ours_writes_a_policy_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let audit = |line: &str| flags(line).audit_of_server(folder.path()).expect("good flags");
        let made = audit("");
        let policy = folder.path().join("audit/policy.yaml");
        assert_eq!(
            (made.policy_file.as_ref(), made.log_path),
            (Some(&policy), Some(folder.path().join("audit/audit.log")))
        );
        let rotation = made.rotation;
        assert_eq!((rotation.megabytes_max, rotation.files_max, rotation.days_max), (100, 10, 30));
        std::fs::write(&policy, "edited").expect("it is there");
        audit("");
        assert_eq!(std::fs::read_to_string(&policy).expect("it is there"), "edited");
        // Who names a place decides about the rest as well.
        let own = audit("--audit-log-path /var/log/audit.log --audit-log-maxage 0");
        assert_eq!((own.policy_file, own.log_path), (None, Some("/var/log/audit.log".into())));
        assert_eq!(own.rotation.days_max, 0);
        assert_eq!(audit("--audit-log-path=").log_path, None);
    }
}
