//! Certificates and keys that somebody else makes and renews, as kubeadm does: changed files are taken over while the server runs.

use std::path::PathBuf;
use std::sync::Arc;

use component_base::tasks;
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::authn::FrontProxy;
use crate::configuration::Changes;
use crate::pki::{self, Credentials, Handshake, ServingCertificate};
use crate::start::{Serving, hand_out, serve};
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
    let users = Users {
        app: serving.app.clone(),
        serving: serving.certificate.clone(),
        handshake: serving.handshake.clone(),
        proxy: config.options.front_proxy.clone(),
    };
    tasks::spawn(async move {
        tokio::select! {
            () = follow(external, changes, credentials, users) => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(serving)
}

/// Who uses them.
struct Users {
    app: Arc<App>,
    serving: Arc<ServingCertificate>,
    handshake: Arc<Handshake>,
    proxy: FrontProxy,
}

async fn follow(external: ExternalCredentials, changes: Changes, mut last: Credentials, users: Users) {
    loop {
        changes.wait(changes.look_every()).await;
        match (external.read)() {
            Ok(credentials) if credentials == last => {}
            // A certificate and its key are two files: between them they do not fit, and after the second they are read again.
            Ok(credentials) => match users.take_over(&credentials, &last).await {
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
    async fn take_over(&self, credentials: &Credentials, last: &Credentials) -> Result<(), pki::Error> {
        let clients = credentials.client_authorities()?;
        self.serving.replace_all(&credentials.serving, &credentials.named)?;
        hand_out(&self.app, credentials);
        if (&credentials.client_ca, &credentials.front_proxy_ca) != (&last.client_ca, &last.front_proxy_ca) {
            self.handshake.believe(clients)?;
            if let Err(error) = bootstrap::publish_trusted(&self.app, credentials, &self.proxy).await {
                tracing::error!(%error, "cannot publish new client CAs to extension-apiserver-authentication");
            }
            tracing::info!("reloaded client CAs");
        }
        let keys = |one: &Credentials| (one.service_account_key.clone(), one.service_account_public_keys.clone());
        if keys(credentials) != keys(last) {
            tracing::warn!("service account keys changed; restart to use them");
        }
        Ok(())
    }
}
