//! Certificates and keys that somebody else makes and renews, as kubeadm does: changed files are taken over while the server runs.

use std::path::PathBuf;
use std::sync::Arc;

use component_base::tasks;
use store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::configuration::Changes;
use crate::pki::{self, Credentials, Handshake, NextHandshake};
use crate::publish::keep_published;
use crate::start::{Outgoing, Serving, serve};
use crate::{Config, Error, bootstrap};

/// What reading certificates and keys can fail with: whoever reads them has errors of its own.
pub type ReadError = Box<dyn std::error::Error + Send + Sync>;

type Read = dyn Fn() -> Result<Credentials, ReadError> + Send + Sync;

/// Where certificates and keys come from.
#[derive(Clone)]
pub struct ExternalCredentials {
    read: Arc<Read>,
    /// They are read again when one of these changes.
    files: Vec<PathBuf>,
}

impl ExternalCredentials {
    pub fn new(
        read: impl Fn() -> Result<Credentials, ReadError> + Send + Sync + 'static,
        files: Vec<PathBuf>,
    ) -> ExternalCredentials {
        ExternalCredentials { read: Arc::new(read), files }
    }
}

/// Makes no certificates and keeps no files.
pub async fn start(
    config: &Config,
    external: ExternalCredentials,
    store: Arc<dyn Store>,
    shutdown: CancellationToken,
) -> Result<Serving, Error> {
    // Watched before they are read: no change is missed.
    let changes = Changes::of(external.files.iter().map(PathBuf::as_path));
    let credentials = (external.read)().map_err(|error| Error::Pki(pki::Error::Tls(error.to_string())))?;
    let serving = serve(config, &credentials, store, shutdown.clone()).await?;
    let (trusted, changed) = watch::channel(Arc::new(credentials.clone()));
    let users = Users { app: serving.app.clone(), handshake: serving.handshake.clone(), trusted };
    let (app, proxy) = (serving.app.clone(), config.options.front_proxy.clone());
    let publish = async move |credentials: &Credentials| bootstrap::publish_trusted(&app, credentials, &proxy).await;
    tasks::spawn(async move {
        tokio::select! {
            () = follow(external, changes, credentials, users) => {}
            () = keep_published(changed, publish) => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(serving)
}

/// Who uses them.
struct Users {
    app: Arc<App>,
    handshake: Arc<Handshake>,
    /// Whose CAs are published for aggregated API servers and kubelets.
    trusted: watch::Sender<Arc<Credentials>>,
}

async fn follow(external: ExternalCredentials, changes: Changes, mut last: Credentials, users: Users) {
    loop {
        changes.wait(changes.look_every()).await;
        match (external.read)() {
            Ok(credentials) if credentials == last => {}
            // A certificate and its key are two files: between them they do not fit, and after the second they are read again.
            Ok(credentials) => match users.take_over(&credentials, &last) {
                Ok(()) => {
                    tracing::info!(until = %credentials.serving.not_after, "reloaded certificates");
                    last = credentials;
                }
                Err(error) => tracing::error!(%error, "cannot use new certificates; keeping the old ones"),
            },
            Err(error) => tracing::error!(%error, "cannot reload certificates; keeping the old ones"),
        }
    }
}

impl Users {
    /// All of them, or none where they cannot be used.
    fn take_over(&self, credentials: &Credentials, last: &Credentials) -> Result<(), pki::Error> {
        let outgoing = Outgoing::prepare(&self.app, credentials)?;
        let (handshake, has_other_cas) = prepare(&self.handshake, credentials, last)?;
        self.handshake.take_over(handshake);
        outgoing.take_over(&self.app);
        if has_other_cas {
            self.trusted.send_replace(Arc::new(credentials.clone()));
            tracing::info!("reloaded client CAs");
        }
        let keys = |one: &Credentials| (one.service_account_key.clone(), one.service_account_public_keys.clone());
        if keys(credentials) != keys(last) {
            tracing::warn!("service account keys changed; restart to use them");
        }
        Ok(())
    }
}

/// What connections begin with next, and whether client CAs are others then.
fn prepare(
    handshake: &Handshake,
    credentials: &Credentials,
    last: &Credentials,
) -> Result<(NextHandshake, bool), pki::Error> {
    let has_other_cas =
        (&credentials.client_ca, &credentials.front_proxy_ca) != (&last.client_ca, &last.front_proxy_ca);
    let clients = if has_other_cas { Some(credentials.client_authorities()?) } else { None };
    Ok((handshake.prepare(&credentials.serving, &credentials.named, clients)?, has_other_cas))
}
