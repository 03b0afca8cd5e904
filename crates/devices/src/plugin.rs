//! One device plugin behind its socket.

use std::path::Path;
use std::time::Duration;

use csi::channel::{channel, within};
use tonic::transport::Channel;

use crate::v1beta1::device_plugin_client::DevicePluginClient;
use crate::{Error, Result, v1beta1};

/// As upstream's kubelet waits for a connection and the options.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Upstream waits for ever, and with it every pod of the node.
pub(crate) const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const PRE_START_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Plugin {
    client: DevicePluginClient<Channel>,
}

/// What a plugin says of its devices, again and again.
pub struct Lists {
    stream: tonic::Streaming<v1beta1::ListAndWatchResponse>,
}

impl Plugin {
    pub fn new(socket: &Path) -> Plugin {
        Plugin { client: DevicePluginClient::new(channel(socket)) }
    }

    pub async fn options(&self) -> Result<v1beta1::DevicePluginOptions> {
        within(CONNECT_TIMEOUT, self.client.clone().get_device_plugin_options(v1beta1::Empty {})).await
    }

    pub async fn list_and_watch(&self) -> Result<Lists> {
        let stream = within(CONNECT_TIMEOUT, self.client.clone().list_and_watch(v1beta1::Empty {})).await?;
        Ok(Lists { stream })
    }

    /// Which of the available devices it would rather have allocated; none where it does not mind.
    pub async fn preferred(
        &self,
        available: Vec<String>,
        must_include: Vec<String>,
        allocation_size: i32,
    ) -> Result<Vec<String>> {
        let request = v1beta1::ContainerPreferredAllocationRequest {
            available_device_i_ds: available,
            must_include_device_i_ds: must_include,
            allocation_size,
        };
        let request = v1beta1::PreferredAllocationRequest { container_requests: vec![request] };
        let answer = within(ALLOCATE_TIMEOUT, self.client.clone().get_preferred_allocation(request)).await?;
        Ok(answer.container_responses.into_iter().next().map(|one| one.device_i_ds).unwrap_or_default())
    }

    /// What a container needs to use these devices; nothing when the plugin forgot to say.
    pub async fn allocate(&self, devices_ids: Vec<String>) -> Result<Option<v1beta1::ContainerAllocateResponse>> {
        let request = v1beta1::ContainerAllocateRequest { devices_ids };
        let request = v1beta1::AllocateRequest { container_requests: vec![request] };
        let answer = within(ALLOCATE_TIMEOUT, self.client.clone().allocate(request)).await?;
        Ok(answer.container_responses.into_iter().next())
    }

    pub async fn pre_start(&self, devices_ids: Vec<String>) -> Result<()> {
        let request = v1beta1::PreStartContainerRequest { devices_ids };
        within(PRE_START_TIMEOUT, self.client.clone().pre_start_container(request)).await.map(drop)
    }
}

impl Lists {
    /// The next list; nothing when the plugin has ended the stream.
    pub async fn next(&mut self) -> Result<Option<Vec<v1beta1::Device>>> {
        let message = self.stream.message().await.map_err(Error::from)?;
        Ok(message.map(|list| list.devices))
    }
}
