//! The container runtime of a node: our own with its network, or the one that an endpoint leads to.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use component_base::tasks;
use container_runtime::ContainerRuntime;
use container_runtime::image::registries::Registries;
use container_runtime::image::{Images, ImagesConfig};
use reconcile::Shutdown;

use super::images::{built_in_images, import_demo, import_folder};
use super::values::size;
use super::{Flags, Membership};
use crate::network::PodNetwork;

const LAYER_PULLS_MAX: usize = 3;

/// Our own runtime, or the one that an endpoint leads to.
pub async fn runtime(
    flags: &Flags,
    data_dir: &Path,
    membership: &Membership,
    shutdown: &Shutdown,
) -> anyhow::Result<Arc<dyn cri::Runtime>> {
    if let Some(endpoint) = &flags.container_runtime_endpoint {
        let remote = cri::remote::Remote::connect(endpoint).await;
        return Ok(Arc::new(remote.with_context(|| format!("connect to container runtime at {endpoint}"))?));
    }
    // The roots of pods with users of their own pass through both.
    for folder in [Path::new(RUN_DIR), &state_dir(data_dir)] {
        linux::file::make_passable_folder(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    let network_state = state_dir(data_dir).join("network");
    linux::file::make_private_folder(&network_state).with_context(|| format!("create {}", network_state.display()))?;
    let pod_network = PodNetwork::open(flags, membership, &state_dir(data_dir))?;
    let network = pod_network.network();
    pod_network.start(membership, shutdown.clone());
    let config = runtime_config(flags, data_dir, network)?;
    let images = Images::open(ImagesConfig {
        root_dir: ImagesConfig::root_dir_of(&config.root_dir),
        registries: config.registries.clone(),
        layer_pulls_max: config.layer_pulls_max,
        built_in: built_in_images(),
    })
    .await
    .context("open image store")?;
    // A disk too full for it is no reason to leave the pods alone that run already.
    if let Err(error) = import_demo(&images, data_dir).await {
        tracing::error!(error = format!("{error:#}"), "cannot import built-in image");
    }
    tasks::spawn(import_folder(images.clone(), data_dir.join("images")));
    let runtime = ContainerRuntime::with_images(config, images).await.context("start container runtime")?;
    super::cri_socket::start(&runtime, data_dir, shutdown).await?;
    Ok(Arc::new(runtime))
}

/// Our own runtime, as a service was told to run it.
pub fn runtime_config(
    flags: &Flags,
    data_dir: &Path,
    network: Arc<dyn cri::Network>,
) -> anyhow::Result<container_runtime::Config> {
    Ok(container_runtime::Config {
        root_dir: data_dir.join("runtime"),
        state_dir: state_dir(data_dir),
        shim_program: std::env::current_exe().context("find own executable")?,
        network,
        registries: registries(&flags.private_registry)?,
        layer_pulls_max: LAYER_PULLS_MAX,
        handlers: flags.handlers.programs()?,
        log_max_size: size(&flags.container_log_max_size).context("--container-log-max-size")?,
        log_max_files: flags.container_log_max_files,
        shim_answers_within: container_runtime::ANSWER_WITHIN,
    })
}

const RUN_DIR: &str = "/run/knarr";

/// Where what is of no use after a reboot is kept. Sockets live there, whose paths must be short.
pub fn state_dir(data_dir: &Path) -> PathBuf {
    let run = Path::new(RUN_DIR);
    if data_dir == Path::new("/var/lib/knarr") {
        return run.into();
    }
    let mut hasher = DefaultHasher::new();
    data_dir.hash(&mut hasher);
    run.join(format!("{:016x}", hasher.finish()))
}

/// The bridge's addresses at the last start, for the time until the node's object can be read.
pub fn last_bridge_addresses(data_dir: &Path) -> Vec<IpAddr> {
    let text = std::fs::read_to_string(state_dir(data_dir).join("network/ranges")).unwrap_or_default();
    let ranges = text.split(',').filter_map(|range| range.trim().parse::<ipnet::IpNet>().ok());
    ranges.filter_map(|range| range.trunc().hosts().find(|address| *address != range.network())).collect()
}

pub(super) fn registries(file: &Path) -> anyhow::Result<Registries> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Registries::parse(&text).with_context(|| format!("read {}", file.display()))?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Default::default()),
        Err(error) => Err(error).with_context(|| format!("read {}", file.display())),
    }
}
