//! How the operator says who decides: modes and flags, or a file with an AuthorizationConfiguration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::metrics::Metrics;
use super::structured::{self, Entry, Kind};
use super::webhook::{Conditions, FailurePolicy, Settings, Version, Webhook};
use super::{Chain, Mode, abac};
use crate::audit::kubeconfig::{self, KubeconfigError};
use crate::configuration;
use crate::outgoing::Client;

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Empty where a file says it.
    pub modes: Vec<Mode>,
    /// An AuthorizationConfiguration, which is read again when it changes.
    pub file: Option<PathBuf>,
    /// The policies of the mode ABAC.
    pub policy_file: Option<PathBuf>,
    /// The webhook of the mode Webhook.
    pub webhook: Option<WebhookFlags>,
}

/// What flags say of the one webhook of the mode Webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookFlags {
    pub config_file: PathBuf,
    pub version: Version,
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
}

impl Config {
    pub(crate) fn of_modes(modes: &[Mode]) -> Config {
        Config { modes: modes.to_vec(), file: None, policy_file: None, webhook: None }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to load AuthorizationConfiguration from file {path:?}: {why}")]
    File { path: PathBuf, why: configuration::Error },
    #[error(transparent)]
    Policies(#[from] abac::Error),
    #[error("authorization-mode {0}: give --authorization-{1}")]
    Missing(&'static str, &'static str),
    #[error("read kubeconfig {path} of authorization webhook {name:?}: {why}")]
    Kubeconfig { name: String, path: PathBuf, why: KubeconfigError },
    #[error("authorizer type {0} is not allowed if it was not enabled at initial server startup")]
    NotAtStart(&'static str),
    #[error("missing required types: [{0}]")]
    Gone(String),
}

/// What was made of a configuration, and what the next one is held against.
pub struct Loaded {
    pub chain: Chain,
    /// The text of the file.
    pub text: String,
    pub first: First,
}

/// What a server has from its start: a reload may neither bring nor take these.
#[derive(Clone, Debug, Default)]
pub struct First {
    modes: Vec<Mode>,
    policies: Option<Arc<abac::Policies>>,
}

pub fn load(config: &Config, metrics: &Arc<Metrics>) -> Result<Loaded, Error> {
    let policies = config.policy_file.as_deref().map(abac::Policies::read).transpose()?.map(Arc::new);
    let (entries, text) = match &config.file {
        None => (of_flags(config)?, String::new()),
        Some(path) => {
            let wrong = |why| Error::File { path: path.clone(), why };
            let text = configuration::read(path).map_err(wrong)?;
            (structured::parse(&text).map_err(wrong)?, text)
        }
    };
    let first = First { modes: modes(&entries).collect(), policies };
    Ok(Loaded { chain: chain(entries, &first, metrics)?, text, first })
}

/// A changed file.
pub fn reload(path: &Path, text: &str, first: &First, metrics: &Arc<Metrics>) -> Result<Chain, Error> {
    let wrong = |why| Error::File { path: path.to_owned(), why };
    let entries = structured::parse(text).map_err(wrong)?;
    let now: Vec<Mode> = modes(&entries).collect();
    if let Some(new) = now.iter().find(|mode| mode.needs_start() && !first.modes.contains(mode)) {
        return Err(Error::NotAtStart(new.name()));
    }
    let gone: Vec<&str> = first.modes.iter().filter(|mode| !now.contains(mode)).map(|mode| mode.name()).collect();
    if !gone.is_empty() {
        return Err(Error::Gone(gone.join(" ")));
    }
    chain(entries, first, metrics)
}

fn modes(entries: &[Entry]) -> impl Iterator<Item = Mode> {
    entries.iter().filter_map(|entry| match entry.kind {
        Kind::Mode(mode) => Some(mode),
        Kind::Webhook(_) => None,
    })
}

fn of_flags(config: &Config) -> Result<Vec<Entry>, Error> {
    let entry = |mode: &Mode| {
        if *mode == Mode::Abac && config.policy_file.is_none() {
            return Err(Error::Missing("ABAC", "policy-file"));
        }
        if *mode != Mode::Webhook {
            return Ok(Entry { name: mode.name().to_lowercase(), kind: Kind::Mode(*mode) });
        }
        let flags = config.webhook.as_ref().ok_or(Error::Missing("Webhook", "webhook-config-file"))?;
        let settings = Settings {
            name: "default".into(),
            version: flags.version,
            timeout: Duration::from_secs(30),
            authorized_ttl: flags.authorized_ttl,
            unauthorized_ttl: flags.unauthorized_ttl,
            failure_policy: FailurePolicy::NoOpinion,
        };
        let hook =
            structured::Hook { settings, kubeconfig: flags.config_file.clone(), conditions: Conditions::default() };
        Ok(Entry { name: "default".into(), kind: Kind::Webhook(Box::new(hook)) })
    };
    config.modes.iter().map(entry).collect()
}

fn chain(entries: Vec<Entry>, first: &First, metrics: &Arc<Metrics>) -> Result<Chain, Error> {
    let mut chain = Chain::default();
    for Entry { name, kind } in entries {
        match kind {
            Kind::Mode(Mode::Abac) => match &first.policies {
                Some(policies) => chain.push_abac(policies.clone(), metrics.of("ABAC", &name)),
                None => return Err(Error::Missing("ABAC", "policy-file")),
            },
            Kind::Mode(mode) => chain.push_mode(mode, metrics.of(mode.name(), &name)),
            Kind::Webhook(hook) => {
                let structured::Hook { settings, kubeconfig: path, conditions } = *hook;
                let place = kubeconfig::read(&path).map_err(|why| Error::Kubeconfig {
                    name: name.clone(),
                    path: path.clone(),
                    why,
                })?;
                let webhook = Webhook::new(settings, conditions, Client::new(place), metrics.clone());
                chain.push_webhook(Arc::new(webhook), metrics.of("Webhook", &name));
            }
        }
    }
    Ok(chain)
}
