//! Opens the store of a server: embedded, an etcd that it runs, or an external etcd.

use std::sync::Arc;

use anyhow::Context;
use component_base::tasks;
use store::Store;
use tokio_util::sync::CancellationToken;

use super::Flags;

/// What --cluster-reset asks for.
pub(super) async fn reset(flags: &Flags) -> anyhow::Result<()> {
    if let Some(file) = &flags.cluster_reset_restore_path
        && crate::snapshot::is_embedded(file)?
    {
        anyhow::ensure!(
            !flags.cluster_init && !crate::etcd::is_member(&flags.data_dir),
            "{} is a snapshot of an embedded store, but this server uses etcd",
            file.display()
        );
        let folder = flags.data_dir.join("store");
        crate::etcd::reset::put_aside(&folder)?;
        let revision = store::embedded::snapshot::restore(file, &folder).context("restore snapshot")?;
        println!("restored revision {revision}; start this server without --cluster-reset");
        return Ok(());
    }
    let config = etcd_config(flags)?;
    match &flags.cluster_reset_restore_path {
        Some(file) => crate::etcd::reset::restore(&config, &std::path::absolute(file)?).await?,
        None => crate::etcd::reset::alone(&config).await?,
    }
    println!("{}", crate::etcd::reset::done_message(&config));
    Ok(())
}

/// Which member of etcd this machine is, where servers run them.
fn etcd_config(flags: &Flags) -> anyhow::Result<crate::etcd::Config> {
    let node = &flags.node;
    let address = flags.advertise_address.or_else(|| flags.node_address());
    Ok(crate::etcd::Config {
        data_dir: flags.data_dir.clone(),
        name: node.name(),
        address: address
            .context("etcd needs an address that other servers can reach: set --advertise-address or --node-ip")?,
        others: flags.etcd.servers.clone(),
    })
}

/// The member of etcd that this server runs, where servers do.
pub(super) async fn start_etcd(
    flags: &mut Flags,
    shutdown: CancellationToken,
) -> anyhow::Result<Option<crate::etcd::Etcd>> {
    // Once begun, it goes on without the flag.
    if !flags.cluster_init && !flags.runs_etcd && !crate::etcd::is_member(&flags.data_dir) {
        return Ok(None);
    }
    flags.runs_etcd = true;
    let config = etcd_config(flags)?;
    let name = config.name.clone();
    let etcd = crate::etcd::Etcd::start(config, shutdown.clone()).await.context("start etcd")?;
    // For those who join; the members know it better than what an earlier start was told.
    flags.etcd.servers = etcd.store.endpoints.clone();
    let source = crate::etcd::snapshots::Source::Etcd(etcd.store.clone());
    let (flags, data_dir) = (flags.snapshots.clone(), flags.data_dir.clone());
    tasks::spawn(crate::etcd::snapshots::keep(flags, source, data_dir, name, shutdown));
    Ok(Some(etcd))
}

/// The store, and itself again where it is the embedded one.
pub(super) struct Opened {
    pub store: Arc<dyn Store>,
    pub embedded: Option<Arc<store::embedded::EmbeddedStore>>,
}

/// Opens the store, wherever this server keeps its objects.
pub(super) async fn open_store(
    flags: &Flags,
    etcd: Option<&crate::etcd::Etcd>,
    shutdown: &CancellationToken,
) -> anyhow::Result<Opened> {
    if let Some(etcd) = etcd {
        let opened = store::etcd::EtcdStore::connect(etcd.store.clone()).await.context("connect to etcd")?;
        crate::etcd::migrate::migrate(&flags.data_dir.join("store"), &opened)
            .await
            .context("migrate objects to etcd")?;
        let opened = Arc::new(opened);
        etcd.follow(opened.clone(), shutdown.clone());
        return Ok(Opened { store: opened, embedded: None });
    }
    if flags.etcd.servers.is_empty() {
        let config = store::embedded::Config::new(flags.data_dir.join("store"));
        let opened = tokio::task::spawn_blocking(move || store::embedded::EmbeddedStore::open(config)).await?;
        let opened = opened.context("open store")?;
        for damage in opened.damaged() {
            tracing::error!(?damage, "damaged record in the store");
        }
        let source = crate::etcd::snapshots::Source::Embedded(opened.clone());
        let (data_dir, name) = (flags.data_dir.clone(), flags.node.name());
        tasks::spawn(crate::etcd::snapshots::keep(flags.snapshots.clone(), source, data_dir, name, shutdown.clone()));
        return Ok(Opened { store: opened.clone(), embedded: Some(opened) });
    }
    let config = flags.etcd.config()?;
    let store = store::etcd::EtcdStore::connect(config).await.context("connect to etcd")?;
    Ok(Opened { store: Arc::new(store), embedded: None })
}
