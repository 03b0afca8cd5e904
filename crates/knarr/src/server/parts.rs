//! The parts of a server, in the order in which they start.

use std::future::Future;
use std::pin::Pin;

use anyhow::Context;
use component_base::tasks;

use super::{AGENT, Flags, Server, join, node};
use crate::parts::Part as NodePart;

/// A part of the server. The API server runs when the first of them starts.
pub struct Part {
    pub name: &'static str,
    /// Each of these keeps it from starting.
    pub disabled_by: &'static [DisabledBy],
    /// The parts that start before it, where they do start.
    pub needs: &'static [&'static str],
    pub start: fn(&mut Server) -> Starting<'_>,
}

type Starting<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'a>>;

/// Why a part does not run here.
#[derive(Debug, PartialEq, Eq)]
pub enum DisabledBy {
    /// `--disable` names this.
    Disable(&'static str),
    /// `--disable-agent`: it belongs to the machine's node, and there is none.
    NoNode,
    /// `--agent-token`: the operator has chosen the token of agents.
    AgentToken,
    /// This server runs no member of etcd.
    NoEtcd,
}

use DisabledBy::{AgentToken, Disable, NoEtcd, NoNode};

pub static PARTS: &[Part] = &[
    Part {
        name: "local-storage",
        disabled_by: &[Disable("local-storage")],
        needs: &[],
        start: |server| Box::pin(make_storage_class(server)),
    },
    Part {
        name: "dns-service",
        disabled_by: &[Disable("dns")],
        needs: &[],
        start: |server| Box::pin(make_dns_objects(server)),
    },
    Part {
        name: "metrics-server",
        disabled_by: &[Disable("metrics-server")],
        needs: &[],
        start: |server| Box::pin(start_metrics_server(server)),
    },
    Part {
        name: "dashboard",
        disabled_by: &[Disable(crate::disable::DASHBOARD)],
        needs: &[],
        start: |server| Box::pin(start_dashboard(server)),
    },
    // Before any controller could look at what disabled parts have left.
    Part {
        name: "removal-of-disabled-parts",
        disabled_by: &[],
        needs: &[],
        start: |server| Box::pin(remove_disabled(server)),
    },
    Part {
        name: "kube-controller-manager",
        disabled_by: &[Disable("kube-controller-manager")],
        needs: &["removal-of-disabled-parts"],
        start: |server| Box::pin(start_controllers(server)),
    },
    Part {
        name: "kube-scheduler",
        disabled_by: &[Disable("kube-scheduler")],
        needs: &["removal-of-disabled-parts"],
        start: |server| Box::pin(start_scheduler(server)),
    },
    Part {
        name: "cloud-controller-manager",
        disabled_by: &[Disable("cloud-controller-manager")],
        needs: &["removal-of-disabled-parts"],
        start: |server| Box::pin(start_cloud(server)),
    },
    Part { name: "cluster-settings", disabled_by: &[], needs: &[], start: |server| Box::pin(publish_settings(server)) },
    Part {
        name: "node-token",
        disabled_by: &[AgentToken],
        needs: &["cluster-settings"],
        start: |server| Box::pin(start_node_token(server)),
    },
    Part { name: "etcd-members", disabled_by: &[NoEtcd], needs: &[], start: |server| Box::pin(start_members(server)) },
    // The controllers say whether nodes are given their ranges; the settings bind the node's name to its key.
    Part {
        name: "node",
        disabled_by: &[NoNode],
        needs: &["kube-controller-manager", "cluster-settings"],
        start: |server| Box::pin(node::start(server)),
    },
    Part {
        name: "kube-proxy",
        disabled_by: &[NoNode, Disable("kube-proxy")],
        needs: &["node"],
        start: |server| Box::pin(start_proxy(server)),
    },
    // Where `--disable` names it, it takes this node out of its Service instead.
    Part { name: "dns", disabled_by: &[NoNode], needs: &["node"], start: |server| Box::pin(start_dns(server)) },
    // Like the node it belongs to this machine: a server without a node has no requests from outside. Agents have none,
    // because it reads every certificate's key; their ports lead here.
    Part {
        name: "ingress",
        disabled_by: &[NoNode, Disable("ingress")],
        needs: &["node"],
        start: |server| Box::pin(start_ingress(server)),
    },
    Part { name: "manifests", disabled_by: &[], needs: &[], start: |server| Box::pin(start_manifests(server)) },
];

impl Part {
    /// Whether it starts on this server.
    pub fn runs(&self, server: &Server) -> anyhow::Result<bool> {
        for reason in self.disabled_by {
            if reason.holds(&server.flags, server.etcd.is_some())? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl DisabledBy {
    fn holds(&self, flags: &Flags, runs_etcd: bool) -> anyhow::Result<bool> {
        Ok(match self {
            Disable(name) => flags.disables(name),
            NoNode => flags.disable_agent,
            AgentToken => flags.options.agent_token()?.is_some(),
            NoEtcd => !runs_etcd,
        })
    }
}

async fn make_storage_class(server: &mut Server) -> anyhow::Result<()> {
    let made = kube_apiserver::local::ensure(&server.api.app, crate::local_storage::class()).await;
    made.map_err(|status| anyhow::anyhow!("create StorageClass of local storage: {}", status.message))
}

/// The Service and the roles of the cluster's DNS. Without them it cannot be reached, but everything else works.
async fn make_dns_objects(server: &mut Server) -> anyhow::Result<()> {
    let flags = &server.flags;
    for object in crate::dns::objects(&flags.node.cluster_dns(&flags.service_cidr)) {
        let kind = object["kind"].clone();
        if let Err(status) = kube_apiserver::local::ensure(&server.api.app, object).await {
            tracing::error!(%kind, error = status.message, "cannot create DNS object");
        }
    }
    Ok(())
}

async fn start_metrics_server(server: &mut Server) -> anyhow::Result<()> {
    let started = crate::metrics::start(&server.api.app, server.local.caches(), server.stop.clone()).await?;
    server.running.push(started);
    Ok(())
}

async fn start_dashboard(server: &mut Server) -> anyhow::Result<()> {
    let flags = &server.flags;
    let config = crate::dashboard::LocalConfig {
        data_dir: &flags.data_dir,
        name: super::host_name(),
        hosts: flags.tls_san.clone(),
        cluster_domain: &flags.node.cluster_domain,
        profiles: server.scheduling.profiles.clone(),
        caches: server.local.caches(),
    };
    crate::dashboard::start(&server.api.app, config, server.stop.clone()).await.context("start dashboard")
}

async fn remove_disabled(server: &mut Server) -> anyhow::Result<()> {
    crate::disable::remove(&server.local.administrator(AGENT), &server.flags.disable).await;
    Ok(())
}

async fn start_controllers(server: &mut Server) -> anyhow::Result<()> {
    let config = super::controllers::config(&server.flags)?;
    config.check()?;
    server.gives_ranges = config.gives_ranges();
    let options = &server.flags.options;
    let shown = (options.controller_manager_secure_port, options.controllers_shown.clone());
    let started = server.local.start_controllers(config, shown, server.stop.clone()).await;
    server.running.push(started);
    Ok(())
}

async fn start_scheduler(server: &mut Server) -> anyhow::Result<()> {
    let options = &server.flags.options;
    let shown = (options.scheduler_secure_port, options.scheduler_shown.clone());
    let started = server.local.start_scheduler(server.scheduling.clone(), shown, server.stop.clone()).await;
    server.running.push(started);
    Ok(())
}

async fn start_cloud(server: &mut Server) -> anyhow::Result<()> {
    server.running.push(server.local.start_cloud(server.stop.clone()));
    Ok(())
}

async fn publish_settings(server: &mut Server) -> anyhow::Result<()> {
    join::publish(server).await.context("publish cluster-info and tokens")
}

async fn start_node_token(server: &mut Server) -> anyhow::Result<()> {
    let authority = server.issued.cluster_authority.certificate_pem.clone();
    let (client, data_dir) = (server.local.administrator(AGENT), server.flags.data_dir.clone());
    tasks::spawn(crate::join::tokens::keep_node_token(client, authority, data_dir, server.stop.clone()));
    Ok(())
}

async fn start_members(server: &mut Server) -> anyhow::Result<()> {
    if let Some(etcd) = &server.etcd {
        server.local.start_members(etcd.config.clone(), server.stop.clone());
    }
    Ok(())
}

async fn start_proxy(server: &mut Server) -> anyhow::Result<()> {
    let (flags, cluster) = (&server.flags, server.local.cluster_of(NodePart::Proxy));
    let started = flags.parts.start_proxy(&flags.node_of_parts(), cluster, server.stop.clone());
    server.running.extend(started.context("start node components")?);
    Ok(())
}

async fn start_dns(server: &mut Server) -> anyhow::Result<()> {
    let (flags, cluster) = (&server.flags, server.local.cluster_of(NodePart::Dns));
    server.running.extend(flags.parts.start_dns(&flags.node_of_parts(), cluster, server.stop.clone()));
    Ok(())
}

async fn start_ingress(server: &mut Server) -> anyhow::Result<()> {
    for object in crate::ingress::permissions() {
        let made = kube_apiserver::local::ensure(&server.api.app, object).await;
        made.map_err(|status| anyhow::anyhow!("create role of ingress: {}", status.message))?;
    }
    let (flags, cluster) = (&server.flags, server.local.ingress_cluster());
    let started = crate::ingress::start(&flags.ingress, flags.node.name(), cluster, server.stop.clone());
    server.running.push(started);
    Ok(())
}

async fn start_manifests(server: &mut Server) -> anyhow::Result<()> {
    let config = crate::manifests::Config {
        folder: crate::manifests::folder(&server.flags.data_dir),
        server: server.flags.node.name(),
        disabled: server.disabled.manifests.clone(),
    };
    let client = server.local.administrator(crate::manifests::AGENT);
    server.running.push(crate::manifests::start(config, client, server.stop.clone()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_part_needs_starts_before_it() {
        for (place, part) in PARTS.iter().enumerate() {
            assert!(PARTS[..place].iter().all(|other| other.name != part.name), "{} is there twice", part.name);
            for need in part.needs {
                assert!(PARTS[..place].iter().any(|other| other.name == *need), "{} needs {need}", part.name);
            }
        }
    }

    #[test]
    fn whatever_a_server_can_disable_is_a_part() {
        // Policies are a part of the node's network; DNS withdraws where it is disabled, and has its Service here.
        let elsewhere = [crate::disable::NETWORK_POLICY];
        for name in crate::disable::names() {
            let is_part = PARTS.iter().any(|part| part.disabled_by.contains(&Disable(name)));
            assert_eq!(is_part, !elsewhere.contains(&name), "{name}");
        }
    }
}
