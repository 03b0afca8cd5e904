//! Publishes what machines need to join: tokens, cluster-info, settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use kube_apiserver::local::App;
use tokio_util::sync::CancellationToken;

use super::Server;
use crate::join::cluster::{Publication, Settings, bind_own_node};
use crate::join::node_key::NodeKey;

const AGAIN_AFTER: Duration = Duration::from_secs(5);

pub async fn publish(server: &Server) -> anyhow::Result<()> {
    let (flags, api) = (&server.flags, &server.api);
    let settings = Settings {
        cluster_cidr: flags.node.cluster_cidr,
        service_cidr: flags.service_cidr,
        cluster_dns: flags.node.cluster_dns(&flags.service_cidr),
        cluster_domain: flags.node.cluster_domain.clone(),
        etcd_servers: flags.etcd.servers.clone(),
        runs_etcd: flags.runs_etcd,
        disabled: server.disabled.on_all_nodes(),
    };
    let address = SocketAddr::new(api.app.settings.advertise_address.get(), api.address.port());
    let published = Published {
        app: api.app.clone(),
        authority: server.issued.cluster_authority.certificate_pem.clone(),
        url: format!("https://{address}"),
        settings,
        token: flags.token.clone(),
        agent_token: flags.options.agent_token()?,
        data_dir: flags.data_dir.clone(),
    };
    match published.publish().await {
        Err(error) if is_passing(&error) => {
            tracing::error!(error = format!("{error:#}"), "cannot publish tokens of the cluster; retrying");
            tasks::spawn(published.until_published(server.stop.clone()));
        }
        done => done?,
    }
    if !flags.disable_agent {
        // A token must not take over the node of a server either.
        let key = NodeKey::of(&flags.data_dir.join("agent"))?;
        bind_own_node(&api.app, &flags.node.name(), &key).await?;
    }
    Ok(())
}

struct Published {
    app: Arc<App>,
    authority: String,
    url: String,
    settings: Settings,
    token: Option<String>,
    agent_token: Option<String>,
    data_dir: PathBuf,
}

impl Published {
    async fn publish(&self) -> anyhow::Result<()> {
        let publication = Publication {
            authority: &self.authority,
            url: &self.url,
            settings: &self.settings,
            token: self.token.as_deref(),
            agent_token: self.agent_token.as_deref(),
            data_dir: &self.data_dir,
        };
        crate::join::cluster::publish(&self.app, publication).await
    }

    async fn until_published(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(AGAIN_AFTER) => {}
                () = stop.cancelled() => return,
            }
            match self.publish().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "cannot publish tokens of the cluster; retrying")
                }
            }
        }
    }
}

/// Whether the server itself could not do it. Secrets whose KMS plugin is down cannot be read now; that is no reason not to serve the rest.
fn is_passing(error: &anyhow::Error) -> bool {
    let found = error.chain().find_map(|cause| cause.downcast_ref::<kube::Error>());
    matches!(found, Some(kube::Error::Api(status)) if status.code >= 500)
}
