//! Identities that come from elsewhere: issuers of OpenID Connect, which may change while the server runs, and a webhook.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;

use super::User;
use super::anonymous::Anonymous;
use super::oidc::{self, Configuration, Error, Issuers, TokenError};
use super::webhook::{self, Webhook};
use crate::app::Clock;
use crate::audit::kubeconfig;
use crate::configuration::{self, Applied, Reloads};
use crate::outgoing::Client;

/// What the operator says of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// An AuthenticationConfiguration, which is read again when it changes.
    pub file: Option<PathBuf>,
    /// The one issuer of the `--oidc-*` flags.
    pub oidc: Option<oidc::Flags>,
    pub webhook: Option<webhook::Flags>,
    /// Whether `--anonymous-auth` was given, which a file may then not say.
    pub anonymous_given: bool,
}

#[derive(Default)]
pub struct Dynamic {
    issuers: ArcSwap<Issuers>,
    pub(super) webhook: Option<Webhook>,
    /// Those of service accounts, which nobody else may be.
    own_issuers: Vec<String>,
    /// What the file said of nobody at the start; it may not change.
    anonymous: Option<Anonymous>,
    metrics: Arc<oidc::Metrics>,
    pub reloads: Reloads,
}

/// What was made of the settings.
pub struct Loaded {
    pub dynamic: Dynamic,
    pub anonymous: Anonymous,
    /// The text of the file.
    pub text: String,
}

impl Settings {
    /// `anonymous` is what the flag says, or its default.
    pub fn load(&self, own_issuers: &[String], anonymous: bool, clock: Clock) -> Result<Loaded, Error> {
        let (mut config, mut text) = (Configuration::default(), String::new());
        if let Some(path) = &self.file {
            let wrong = |why| Error::File { path: path.clone(), why };
            text = configuration::read(path).map_err(wrong)?;
            config = oidc::config::parse(&text, own_issuers).map_err(wrong)?;
        }
        if let Some(flags) = &self.oidc {
            config.issuers.push(flags.issuer(own_issuers)?);
        }
        let by_flag = if anonymous { Anonymous::Everywhere } else { Anonymous::Nowhere };
        let chosen = match (&config.anonymous, self.anonymous_given) {
            (Some(_), true) => return Err(Error::AnonymousTwice),
            (Some(said), false) => said.clone(),
            (None, _) => by_flag,
        };
        let webhook = self.webhook.as_ref().map(connect).transpose()?;
        let metrics = Arc::new(oidc::Metrics::new(clock));
        let issuers = Issuers::new(config.issuers, &Issuers::default(), &metrics)?;
        let dynamic = Dynamic {
            issuers: ArcSwap::from_pointee(issuers),
            webhook,
            own_issuers: own_issuers.to_vec(),
            anonymous: config.anonymous,
            metrics,
            reloads: Reloads::default(),
        };
        Ok(Loaded { dynamic, anonymous: chosen, text })
    }
}

fn connect(flags: &webhook::Flags) -> Result<Webhook, Error> {
    let path = &flags.config_file;
    let place = kubeconfig::read(path).map_err(|why| Error::Kubeconfig { path: path.clone(), why })?;
    Ok(Webhook::new(Client::new(place), flags))
}

impl Dynamic {
    pub(super) async fn verify(&self, token: &str, now: Timestamp) -> Option<Result<User, TokenError>> {
        let issuers = self.issuers.load_full();
        issuers.verify(token, now).await
    }

    /// Takes a changed file over once its providers answer; until then, and where it is wrong, the old one stays.
    pub async fn reload(&self, path: PathBuf, text: String) -> Applied {
        let config = match oidc::config::parse(&text, &self.own_issuers) {
            Ok(config) => config,
            Err(why) => return Applied::Refused(Error::File { path, why }.to_string()),
        };
        if config.anonymous != self.anonymous {
            return Applied::Refused(Error::AnonymousChanged.to_string());
        }
        let issuers = match Issuers::new(config.issuers, &self.issuers.load(), &self.metrics) {
            Ok(issuers) => issuers,
            Err(error) => return Applied::Refused(error.to_string()),
        };
        if let Err(silent) = issuers.become_ready().await {
            return Applied::NotNow(format!("these issuers do not answer: {}", silent.join(", ")));
        }
        self.metrics.retain(&issuers.urls());
        self.issuers.store(Arc::new(issuers));
        Applied::Yes
    }

    pub fn render(&self, page: &mut component_base::metrics::Page, server: &str) {
        self.metrics.render(page, server);
        self.reloads.render(page, "authentication", server);
    }
}
