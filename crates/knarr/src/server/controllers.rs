//! Configuration of a server's own controllers: its keys, its ranges, and what operators change.

use anyhow::Context;
use kube_controller_manager::{Config, LocalStorage, PrivateKey, SigningAuthorities, SigningAuthority};

use super::Flags;

pub fn config(flags: &Flags) -> anyhow::Result<Config> {
    let read = |name: &str| {
        let path = flags.data_dir.join("tls").join(name);
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    };
    let root_ca = read("ca.crt")?;
    let signing = SigningAuthority { certificate_pem: root_ca.clone(), key: PrivateKey(read("ca.key")?) };
    let cluster_cidr = flags.node.cluster_cidr;
    let mut controllers = flags.controllers.clone();
    if flags.disables("local-storage") {
        controllers.push("-local-storage".into());
    }
    let folder = flags.options.local_storage_folder(&flags.data_dir)?;
    let local_storage = LocalStorage { folder, ..LocalStorage::default() };
    let defaults = flags.tuning.apply(Config::default());
    Ok(Config {
        controllers,
        root_ca: Some(root_ca),
        local_storage,
        allocate_node_cidrs: true,
        cluster_cidrs: vec![cluster_cidr],
        service_cidrs: vec![flags.service_cidr],
        // A cluster with fewer addresses than a node usually has gives them all to the first.
        node_cidr_mask_size_ipv4: flags
            .options
            .node_cidr_mask_size
            .unwrap_or_else(|| crate::node::node_range_prefix(flags.node.max_pods))
            .max(cluster_cidr.prefix_len().min(32)),
        node_cidr_mask_size_ipv6: defaults.node_cidr_mask_size_ipv6.max(cluster_cidr.prefix_len()),
        signing_authorities: SigningAuthorities::all(signing),
        bind_node_names: true,
        server_addresses: flags.addresses(),
        service_account_key: Some(PrivateKey(read("sa.key")?)),
        ..defaults
    })
}
