//! Certificates and keys that somebody else makes and renews, as kubeadm does: they are read again now and then.

use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::pki::{self, Credentials, ServingCertificate};
use crate::start::{Serving, hand_out, serve};
use crate::{Config, Error};

/// How often certificates are read again, as upstream.
const READ_EVERY: Duration = Duration::from_secs(60);

/// What reading certificates and keys can fail with: whoever reads them has errors of its own.
pub type ReadError = Box<dyn std::error::Error + Send + Sync>;

/// Where certificates and keys come from.
#[derive(Clone)]
pub struct ExternalCredentials(Arc<dyn Fn() -> Result<Credentials, ReadError> + Send + Sync>);

impl ExternalCredentials {
    pub fn new(read: impl Fn() -> Result<Credentials, ReadError> + Send + Sync + 'static) -> ExternalCredentials {
        ExternalCredentials(Arc::new(read))
    }

    fn read(&self) -> Result<Credentials, ReadError> {
        (self.0)()
    }
}

/// Makes no certificates and keeps no files.
pub async fn start(
    config: &Config,
    external: ExternalCredentials,
    store: Arc<dyn Store>,
    shutdown: CancellationToken,
) -> Result<Serving, Error> {
    let credentials = external.read().map_err(|error| Error::Pki(pki::Error::Tls(error.to_string())))?;
    let serving = serve(config, &credentials, store, shutdown.clone()).await?;
    let follow = follow(external, credentials, serving.app.clone(), serving.certificate.clone());
    tasks::spawn(async move {
        tokio::select! {
            () = follow => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(serving)
}

async fn follow(external: ExternalCredentials, mut last: Credentials, app: Arc<App>, serving: Arc<ServingCertificate>) {
    loop {
        tokio::time::sleep(READ_EVERY).await;
        let credentials = match external.read() {
            Ok(credentials) if credentials == last => continue,
            Ok(credentials) => credentials,
            Err(error) => {
                tracing::error!(%error, "cannot reload certificates; keeping the old ones");
                continue;
            }
        };
        if let Err(error) = serving.replace_all(&credentials.serving, &credentials.named) {
            tracing::error!(%error, "cannot use new serving certificate");
        }
        hand_out(&app, &credentials);
        if (&credentials.client_ca, &credentials.front_proxy_ca) != (&last.client_ca, &last.front_proxy_ca)
            || (&credentials.service_account_key, &credentials.service_account_public_keys)
                != (&last.service_account_key, &last.service_account_public_keys)
        {
            tracing::warn!("client CA or service account keys changed; restart to use them");
        }
        tracing::info!(until = %credentials.serving.not_after, "reloaded certificates");
        last = credentials;
    }
}
