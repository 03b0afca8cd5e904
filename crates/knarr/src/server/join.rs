//! Publishes what machines need to join: tokens, cluster-info, settings.

use std::net::SocketAddr;

use super::Server;
use crate::join::cluster::{Publication, Settings, bind_own_node};
use crate::join::node_key::NodeKey;

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
    let agent_token = flags.options.agent_token()?;
    let address = SocketAddr::new(api.app.settings.advertise_address.get(), api.address.port());
    let publication = Publication {
        authority: &server.issued.cluster_authority.certificate_pem,
        url: &format!("https://{address}"),
        settings: &settings,
        token: flags.token.as_deref(),
        agent_token: agent_token.as_deref(),
        data_dir: &flags.data_dir,
    };
    crate::join::cluster::publish(&api.app, publication).await?;
    if !flags.disable_agent {
        // A token must not take over the node of a server either.
        let key = NodeKey::of(&flags.data_dir.join("agent"))?;
        bind_own_node(&api.app, &flags.node.name(), &key).await?;
    }
    Ok(())
}
