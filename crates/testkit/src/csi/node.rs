//! The node service: what it is asked is noted, then done right or wrong.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use csi::v1::node_server::Node;
use csi::v1::node_service_capability::{Rpc, Type, rpc};
use csi::v1::volume_capability::AccessType;
use csi::v1::{self, VolumeCapability, VolumeUsage, volume_usage};
use tonic::{Request, Response, Status};

use super::{Fault, State, disk};

pub(super) struct Service {
    pub state: Arc<State>,
}

type Answer<T> = Result<Response<T>, Status>;

impl Service {
    /// Notes the call, and does what it was told to do wrong before the work.
    async fn called(
        &self,
        call: &str,
        volume: &str,
        request: &(dyn std::fmt::Debug + Sync),
    ) -> Result<Option<Fault>, Status> {
        self.state.requests.lock().push(format!("{call} {request:?}"));
        self.state.calls.lock().push(format!("{call} {volume}"));
        let fault = self.state.faults.lock().get(call).cloned();
        match &fault {
            Some(Fault::Hang) => self.hang(call).await,
            Some(Fault::Refuse) => return Err(Status::internal("told to refuse")),
            Some(Fault::Garbage) => {
                return Err(Status::with_details(tonic::Code::Unknown, "\u{0}\u{1}", vec![0xff; 64].into()));
            }
            _ => {}
        }
        Ok(fault)
    }

    async fn hang(&self, call: &str) {
        loop {
            let released = self.state.released.notified();
            let hangs =
                self.state.faults.lock().get(call).is_some_and(|fault| matches!(fault, Fault::Hang | Fault::HangAfter));
            if !hangs {
                return;
            }
            released.await;
        }
    }

    async fn finished(&self, call: &str, fault: Option<Fault>) {
        if fault == Some(Fault::HangAfter) {
            self.hang(call).await;
        }
    }
}

fn is_block(capability: &Option<VolumeCapability>) -> bool {
    matches!(capability.as_ref().and_then(|it| it.access_type.as_ref()), Some(AccessType::Block(_)))
}

fn failed(error: std::io::Error) -> Status {
    Status::internal(error.to_string())
}

#[tonic::async_trait]
impl Node for Service {
    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Answer<v1::NodeStageVolumeResponse> {
        let asked = request.into_inner();
        let fault = self.called("NodeStageVolume", &asked.volume_id, &asked).await?;
        let content = self.state.data.join(&asked.volume_id);
        let target = Path::new(&asked.staging_target_path);
        match is_block(&asked.volume_capability) {
            _ if fault == Some(Fault::Lie) => {}
            true => drop(disk::attach(&content).map_err(failed)?),
            false => disk::show_folder(&content, target, false).map_err(failed)?,
        }
        self.finished("NodeStageVolume", fault).await;
        Ok(Response::new(v1::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Answer<v1::NodeUnstageVolumeResponse> {
        let asked = request.into_inner();
        let fault = self.called("NodeUnstageVolume", &asked.volume_id, &asked).await?;
        if fault != Some(Fault::Lie) {
            disk::hide(Path::new(&asked.staging_target_path)).map_err(failed)?;
            disk::detach(&self.state.data.join(&asked.volume_id)).map_err(failed)?;
        }
        self.finished("NodeUnstageVolume", fault).await;
        Ok(Response::new(v1::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Answer<v1::NodePublishVolumeResponse> {
        let asked = request.into_inner();
        let fault = self.called("NodePublishVolume", &asked.volume_id, &asked).await?;
        let content = self.state.data.join(&asked.volume_id);
        let target = Path::new(&asked.target_path);
        match &fault {
            Some(Fault::Climb) => std::os::unix::fs::symlink("/etc", target).map_err(failed)?,
            Some(Fault::Lie) => {}
            _ if is_block(&asked.volume_capability) => disk::show_device(&content, target).map_err(failed)?,
            _ => disk::show_folder(&content, target, asked.readonly).map_err(failed)?,
        }
        if fault == Some(Fault::Twice) {
            disk::bind(&content, target, asked.readonly).map_err(failed)?;
        }
        self.finished("NodePublishVolume", fault).await;
        Ok(Response::new(v1::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Answer<v1::NodeUnpublishVolumeResponse> {
        let asked = request.into_inner();
        let fault = self.called("NodeUnpublishVolume", &asked.volume_id, &asked).await?;
        if fault != Some(Fault::Lie) {
            disk::hide(Path::new(&asked.target_path)).map_err(failed)?;
        }
        self.finished("NodeUnpublishVolume", fault).await;
        Ok(Response::new(v1::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Answer<v1::NodeGetVolumeStatsResponse> {
        let asked = request.into_inner();
        self.called("NodeGetVolumeStats", &asked.volume_id, &asked).await?;
        let usage = |unit: volume_usage::Unit, total| VolumeUsage {
            total,
            used: total / 4,
            available: total - total / 4,
            unit: unit as i32,
        };
        let usage = vec![usage(volume_usage::Unit::Bytes, 1 << 20), usage(volume_usage::Unit::Inodes, 400)];
        Ok(Response::new(v1::NodeGetVolumeStatsResponse { usage, volume_condition: None }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<v1::NodeExpandVolumeRequest>,
    ) -> Answer<v1::NodeExpandVolumeResponse> {
        let asked = request.into_inner();
        self.called("NodeExpandVolume", &asked.volume_id, &asked).await?;
        let capacity_bytes = asked.capacity_range.map(|range| range.required_bytes).unwrap_or_default();
        Ok(Response::new(v1::NodeExpandVolumeResponse { capacity_bytes }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Answer<v1::NodeGetCapabilitiesResponse> {
        let options = &self.state.options;
        let has = [
            (rpc::Type::StageUnstageVolume, options.stages),
            (rpc::Type::GetVolumeStats, true),
            (rpc::Type::ExpandVolume, options.expands),
            (rpc::Type::VolumeMountGroup, options.volume_mount_group),
        ];
        let capability =
            |kind: rpc::Type| v1::NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: kind as i32 })) };
        let capabilities = has.into_iter().filter(|(_, has)| *has).map(|(kind, _)| capability(kind)).collect();
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(&self, _: Request<v1::NodeGetInfoRequest>) -> Answer<v1::NodeGetInfoResponse> {
        let options = &self.state.options;
        let segments: HashMap<String, String> = options.topology.clone().into_iter().collect();
        Ok(Response::new(v1::NodeGetInfoResponse {
            node_id: format!("{}-node", options.name),
            max_volumes_per_node: options.max_volumes,
            accessible_topology: (!segments.is_empty()).then_some(v1::Topology { segments }),
        }))
    }
}
