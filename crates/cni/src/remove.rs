//! Takes the pods' network of a node away: nothing of it is left in the kernel.

use nlink::netlink::nftables::{Family, NFT_MSG_NEWTABLE, NFTA_TABLE_NAME, RawMessage};

use crate::builtin::links::{self, Step};
use crate::builtin::text_attribute;
use crate::routes::{self, Backend, plan};
use crate::{Config, Error, Result, policy};

/// `NLM_F_CREATE`.
const CREATE: u16 = 0x400;

/// Devices, routes and rules; what is gone already is fine. The node's switches, such as that for forwarding, stay as they
/// are, because others may need them by now.
pub async fn remove(config: &Config) -> Result<()> {
    let node = links::node(config)?;
    let routes = routes::Config::new("", Backend::Auto, config);
    let mut kernel = routes::kernel::read(&routes, &node).await?;
    for change in plan::changes(&kernel.is, &plan::Plan::default()) {
        kernel.make(&routes, &node, &change).await?;
    }
    links::unlink_others(config, &Default::default()).await?;
    for name in [&routes.tunnel, &config.bridge] {
        node.del_link_if_exists(name.as_str()).await.step(|| format!("remove {name}"))?;
    }
    let policies = policy::Config::new(config.node_namespace.clone());
    let tunnel = routes::guard::TABLE.to_owned();
    let tables = [
        (&config.table, Family::Inet),
        (&config.table, Family::Bridge),
        (&policies.table, Family::Inet),
        (&tunnel, Family::Inet),
    ];
    for (table, family) in tables {
        remove_table(config, table, family).await?;
    }
    Ok(())
}

async fn remove_table(config: &Config, table: &str, family: Family) -> Result<()> {
    let connection = crate::builtin::connect(config)?;
    // Making it first means that there is one to delete.
    let made = RawMessage::new(NFT_MSG_NEWTABLE, family).flags(CREATE).attrs(text_attribute(NFTA_TABLE_NAME, table));
    let committed = connection.transaction().raw(made).del_table(table, family).commit(&connection).await;
    committed.map_err(|source| Error::Rules { table: table.to_owned(), source })
}
