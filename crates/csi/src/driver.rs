//! The node service of one driver.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::transport::Channel;

use crate::channel::{channel, within};
use crate::v1::node_client::NodeClient;
use crate::v1::node_service_capability::{Type, rpc};
use crate::{Result, v1};

/// What a driver has for each call, as with upstream's kubelet.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// A driver behind its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    socket: PathBuf,
    timeout: Duration,
}

/// What a driver can do beyond publishing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub stages: bool,
    pub volume_stats: bool,
    pub expands: bool,
    pub single_node_multi_writer: bool,
    pub volume_mount_group: bool,
}

impl Driver {
    pub fn new(socket: &Path) -> Driver {
        Driver { socket: socket.to_owned(), timeout: CALL_TIMEOUT }
    }

    /// For callers that cannot wait as long as a mount may.
    pub fn within(&self, timeout: Duration) -> Driver {
        Driver { socket: self.socket.clone(), timeout }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    fn client(&self) -> NodeClient<Channel> {
        NodeClient::new(channel(&self.socket))
    }

    pub async fn info(&self) -> Result<v1::NodeGetInfoResponse> {
        within(self.timeout, self.client().node_get_info(v1::NodeGetInfoRequest {})).await
    }

    pub async fn capabilities(&self) -> Result<Capabilities> {
        let request = v1::NodeGetCapabilitiesRequest {};
        let answer = within(self.timeout, self.client().node_get_capabilities(request)).await?;
        Ok(Capabilities::of(&answer))
    }

    pub async fn stage(&self, request: v1::NodeStageVolumeRequest) -> Result<()> {
        within(self.timeout, self.client().node_stage_volume(request)).await.map(drop)
    }

    pub async fn unstage(&self, volume_id: &str, staging_target_path: &str) -> Result<()> {
        let request = v1::NodeUnstageVolumeRequest {
            volume_id: volume_id.to_owned(),
            staging_target_path: staging_target_path.to_owned(),
        };
        within(self.timeout, self.client().node_unstage_volume(request)).await.map(drop)
    }

    pub async fn publish(&self, request: v1::NodePublishVolumeRequest) -> Result<()> {
        within(self.timeout, self.client().node_publish_volume(request)).await.map(drop)
    }

    pub async fn unpublish(&self, volume_id: &str, target_path: &str) -> Result<()> {
        let request =
            v1::NodeUnpublishVolumeRequest { volume_id: volume_id.to_owned(), target_path: target_path.to_owned() };
        within(self.timeout, self.client().node_unpublish_volume(request)).await.map(drop)
    }

    pub async fn volume_stats(&self, volume_id: &str, volume_path: &str) -> Result<v1::NodeGetVolumeStatsResponse> {
        let request = v1::NodeGetVolumeStatsRequest {
            volume_id: volume_id.to_owned(),
            volume_path: volume_path.to_owned(),
            ..Default::default()
        };
        within(self.timeout, self.client().node_get_volume_stats(request)).await
    }

    pub async fn expand(&self, request: v1::NodeExpandVolumeRequest) -> Result<v1::NodeExpandVolumeResponse> {
        within(self.timeout, self.client().node_expand_volume(request)).await
    }
}

impl Capabilities {
    fn of(answer: &v1::NodeGetCapabilitiesResponse) -> Capabilities {
        let has = |wanted: rpc::Type| {
            answer.capabilities.iter().any(|capability| match &capability.r#type {
                Some(Type::Rpc(rpc)) => rpc.r#type == wanted as i32,
                None => false,
            })
        };
        Capabilities {
            stages: has(rpc::Type::StageUnstageVolume),
            volume_stats: has(rpc::Type::GetVolumeStats),
            expands: has(rpc::Type::ExpandVolume),
            single_node_multi_writer: has(rpc::Type::SingleNodeMultiWriter),
            volume_mount_group: has(rpc::Type::VolumeMountGroup),
        }
    }
}
