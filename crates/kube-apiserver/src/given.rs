//! The server with certificates that somebody else makes and renews, as kubeadm does: they are read again now and then.

use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::app::{App, Clock};
use crate::pki::{self, Credentials, ServingCertificate};
use crate::{Config, Error, Options, hand_out, serve_with};

/// How often certificates are read again, as upstream.
const READ_EVERY: Duration = Duration::from_secs(60);

/// Where certificates and keys come from.
#[derive(Clone)]
pub struct Given(Arc<dyn Fn() -> Result<Credentials, String> + Send + Sync>);

impl Given {
    pub fn new(read: impl Fn() -> Result<Credentials, String> + Send + Sync + 'static) -> Given {
        Given(Arc::new(read))
    }
}

/// A server that answers; the shutdown token stops it.
pub struct Running {
    pub address: std::net::SocketAddr,
    pub app: Arc<App>,
    accepting: tokio::task::JoinHandle<()>,
    announcing: Option<tokio::task::JoinHandle<()>>,
}

impl Running {
    /// Until the server has stopped and its connections have ended.
    pub async fn ended(self) {
        // A panic there has been logged by the runtime; there is nothing left to stop.
        let _ = self.accepting.await;
        if let Some(announcing) = self.announcing {
            let _ = announcing.await;
        }
    }
}

/// Starts to serve; answers when the first request can be sent. It makes no certificates and keeps no files.
pub async fn start_given(
    config: Config,
    options: Options,
    given: Given,
    store: Arc<dyn Store>,
    shutdown: CancellationToken,
) -> Result<Running, Error> {
    let credentials = (given.0)().map_err(|error| Error::Pki(pki::Error::Tls(error)))?;
    let serving = serve_with(&config, &options, &credentials, store, Clock::system(), shutdown.clone()).await?;
    let follow = follow(given, credentials, serving.app.clone(), serving.certificate);
    tasks::spawn(async move {
        tokio::select! {
            () = follow => {}
            () = shutdown.cancelled() => {}
        }
    });
    let (accepting, announcing) = (serving.accepting, serving.announcing);
    Ok(Running { address: serving.address, app: serving.app, accepting, announcing })
}

async fn follow(given: Given, mut last: Credentials, app: Arc<App>, serving: Arc<ServingCertificate>) {
    loop {
        tokio::time::sleep(READ_EVERY).await;
        let credentials = match (given.0)() {
            Ok(credentials) if credentials == last => continue,
            Ok(credentials) => credentials,
            Err(error) => {
                tracing::error!(error, "certificates cannot be read again; the old ones are used");
                continue;
            }
        };
        if let Err(error) = serving.replace(&credentials.serving) {
            tracing::error!(%error, "the new serving certificate cannot be used");
        }
        hand_out(&app, &credentials);
        if (&credentials.client_ca, &credentials.front_proxy_ca) != (&last.client_ca, &last.front_proxy_ca)
            || (&credentials.service_account_key, &credentials.service_account_public_keys)
                != (&last.service_account_key, &last.service_account_public_keys)
        {
            tracing::warn!("authorities of clients or keys of tokens have changed: they count from the next start on");
        }
        tracing::info!(until = %credentials.serving.not_after, "certificates were read again");
        last = credentials;
    }
}
