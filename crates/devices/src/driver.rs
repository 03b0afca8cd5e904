//! One driver of claimed devices behind its socket, in whichever version it speaks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use csi::channel::{channel, within};

use crate::dra::health::dra_resource_health_client::DraResourceHealthClient;
use crate::dra::health::{DeviceHealth, NodeWatchResourcesRequest, NodeWatchResourcesResponse};
use crate::dra::v1::dra_plugin_client::DraPluginClient;
use crate::dra::v1beta1::dra_plugin_client::DraPluginClient as BetaClient;
use crate::dra::{v1, v1beta1};
use crate::{Error, Result};

/// What a driver has for each call, as with upstream's kubelet.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(45);
/// What a driver says of its devices is short; what it says beyond is nobody's.
const DEVICES_MAX: usize = 4096;
const TEXT_BYTES_MAX: usize = 4096;

/// The service that a driver has, by the names under which it registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V1Beta1,
}

impl Version {
    /// The first of those that a driver lists which is spoken here.
    pub fn choose(services: &[String]) -> Option<Version> {
        services.iter().find_map(|service| match service.as_str() {
            "v1.DRAPlugin" => Some(Version::V1),
            "v1beta1.DRAPlugin" => Some(Version::V1Beta1),
            _ => None,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    socket: PathBuf,
    version: Version,
}

/// What became of each claim, by its uid.
pub type Prepared = BTreeMap<String, v1::NodePrepareResourceResponse>;
pub type Unprepared = BTreeMap<String, v1::NodeUnprepareResourceResponse>;

/// What a driver says of its devices' health, again and again.
pub struct Healths {
    stream: tonic::Streaming<NodeWatchResourcesResponse>,
}

impl Healths {
    /// All that it says of its devices; nothing when the driver has ended the stream.
    pub async fn next(&mut self) -> Result<Option<Vec<DeviceHealth>>> {
        let message = self.stream.message().await.map_err(Error::from)?;
        Ok(message.map(|list| list.devices))
    }
}

impl Driver {
    pub fn new(socket: &Path, version: Version) -> Driver {
        Driver { socket: socket.to_owned(), version }
    }

    /// The full name of a method of its service.
    pub fn method(&self, call: &str) -> String {
        let version = match self.version {
            Version::V1 => "v1",
            Version::V1Beta1 => "v1beta1",
        };
        format!("/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/{call}")
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Drivers that know nothing of health answer `Unimplemented`, some of them only with the first message.
    pub async fn watch_health(&self) -> Result<Healths> {
        let mut client = DraResourceHealthClient::new(channel(&self.socket));
        let stream = within(CALL_TIMEOUT, client.node_watch_resources(NodeWatchResourcesRequest {})).await?;
        Ok(Healths { stream })
    }

    pub async fn prepare(&self, claims: Vec<v1::Claim>) -> Result<Prepared> {
        let channel = channel(&self.socket);
        let prepared = match self.version {
            Version::V1 => {
                let request = v1::NodePrepareResourcesRequest { claims };
                within(CALL_TIMEOUT, DraPluginClient::new(channel).node_prepare_resources(request)).await?.claims
            }
            Version::V1Beta1 => {
                let request = v1beta1::NodePrepareResourcesRequest { claims: claims.into_iter().map(beta).collect() };
                let answer = within(CALL_TIMEOUT, BetaClient::new(channel).node_prepare_resources(request)).await?;
                answer.claims.into_iter().map(|(uid, prepared)| (uid, from_beta(prepared))).collect()
            }
        };
        check(&prepared)?;
        Ok(prepared)
    }

    pub async fn unprepare(&self, claims: Vec<v1::Claim>) -> Result<Unprepared> {
        let channel = channel(&self.socket);
        match self.version {
            Version::V1 => {
                let request = v1::NodeUnprepareResourcesRequest { claims };
                let mut client = DraPluginClient::new(channel);
                Ok(within(CALL_TIMEOUT, client.node_unprepare_resources(request)).await?.claims)
            }
            Version::V1Beta1 => {
                let request = v1beta1::NodeUnprepareResourcesRequest { claims: claims.into_iter().map(beta).collect() };
                let answer = within(CALL_TIMEOUT, BetaClient::new(channel).node_unprepare_resources(request)).await?;
                let same = |(uid, one): (String, v1beta1::NodeUnprepareResourceResponse)| {
                    (uid, v1::NodeUnprepareResourceResponse { error: one.error })
                };
                Ok(answer.claims.into_iter().map(same).collect())
            }
        }
    }
}

/// What it says is kept on disk, so it must not be without end.
fn check(prepared: &Prepared) -> Result<()> {
    let devices = || prepared.values().flat_map(|one| &one.devices);
    let texts = devices().flat_map(|device| {
        let names = device.request_names.iter().chain(&device.cdi_device_ids).chain(&device.share_id);
        names.chain([&device.pool_name, &device.device_name])
    });
    let mut count = 0;
    for text in texts {
        count += 1;
        if count > DEVICES_MAX * 4 || text.len() > TEXT_BYTES_MAX {
            let message = "the driver's description of the devices is too long".to_owned();
            return Err(Error { code: tonic::Code::InvalidArgument, message });
        }
    }
    Ok(())
}

fn beta(claim: v1::Claim) -> v1beta1::Claim {
    v1beta1::Claim { namespace: claim.namespace, uid: claim.uid, name: claim.name }
}

fn from_beta(prepared: v1beta1::NodePrepareResourceResponse) -> v1::NodePrepareResourceResponse {
    let device = |device: v1beta1::Device| v1::Device {
        request_names: device.request_names,
        pool_name: device.pool_name,
        device_name: device.device_name,
        cdi_device_ids: device.cdi_device_ids,
        share_id: None,
    };
    v1::NodePrepareResourceResponse {
        devices: prepared.devices.into_iter().map(device).collect(),
        error: prepared.error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_known_service_is_spoken() {
        let check = |services: &[&str], expected: Option<Version>| {
            let services: Vec<String> = services.iter().map(|service| service.to_string()).collect();
            assert_eq!(Version::choose(&services), expected, "{services:?}");
        };
        check(&["v1.DRAPlugin", "v1beta1.DRAPlugin"], Some(Version::V1));
        check(&["v1alpha1.DRAResourceHealth", "v1beta1.DRAPlugin"], Some(Version::V1Beta1));
        check(&["v1alpha4.Node", "1.0.0"], None);
        check(&[], None);
    }

    #[test]
    fn descriptions_have_an_end() {
        let one = |text: &str| {
            let device = v1::Device { cdi_device_ids: vec![text.to_owned()], ..Default::default() };
            let prepared = v1::NodePrepareResourceResponse { devices: vec![device], error: String::new() };
            check(&Prepared::from([("u".to_owned(), prepared)]))
        };
        assert!(one("vendor.test/gpu=0").is_ok());
        assert!(one(&"x".repeat(TEXT_BYTES_MAX + 1)).is_err());
    }
}
