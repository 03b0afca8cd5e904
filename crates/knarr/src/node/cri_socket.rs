//! Our own runtime as others see it: a CRI v1 endpoint for `crictl` and tools like it, at `/run/knarr/cri.sock`. Only root may connect.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use component_base::tasks;
use container_runtime::ContainerRuntime;
use kubelet::server::offered::OfferedStreams;
use reconcile::Shutdown;

use super::state_dir;

const SOCKET: &str = "cri.sock";

/// Serves until told to end. What clients make is theirs: the kubelet neither sees nor removes it.
pub(super) async fn start(runtime: &ContainerRuntime, data_dir: &Path, shutdown: &Shutdown) -> anyhow::Result<()> {
    let runtime: Arc<dyn cri::Runtime> = Arc::new(runtime.for_socket());
    let streams = OfferedStreams::start(runtime.clone(), shutdown.clone()).await.context("serve the CRI socket")?;
    let config = cri::serve::Config {
        socket: state_dir(data_dir).join(SOCKET),
        cgroup_driver: cri::v1::CgroupDriver::Cgroupfs,
        streams: Some(streams),
    };
    let ended = shutdown.clone().cancelled_owned();
    tasks::spawn(async move {
        // Pods do not depend on it.
        if let Err(error) = cri::serve::serve(runtime, config, ended).await {
            tracing::error!(%error, "cannot serve the CRI socket");
        }
    });
    Ok(())
}
