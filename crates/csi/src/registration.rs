//! Client of a plugin's registration socket: reads the plugin's name, endpoint and versions, and reports whether it was registered.

use std::path::Path;
use std::time::Duration;

use tonic::transport::Channel;

use crate::channel::{channel, within};
use crate::pluginregistration::registration_client::RegistrationClient;
use crate::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus};
use crate::{Error, Result};

/// As upstream's kubelet waits.
const INFO_TIMEOUT: Duration = Duration::from_secs(10);
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
/// Names, versions and paths are short; longer ones are nobody's.
const TEXT_BYTES_MAX: usize = 4096;
const VERSIONS_MAX: usize = 64;
const MESSAGE_BYTES_MAX: usize = 1 << 20;

pub struct Registration {
    client: RegistrationClient<Channel>,
}

impl Registration {
    pub fn new(socket: &Path) -> Registration {
        Registration { client: RegistrationClient::new(channel(socket)).max_decoding_message_size(MESSAGE_BYTES_MAX) }
    }

    pub async fn info(&self) -> Result<PluginInfo> {
        let info = within(INFO_TIMEOUT, self.client.clone().get_info(InfoRequest {})).await?;
        let texts = [&info.r#type, &info.name, &info.endpoint].into_iter().chain(&info.supported_versions);
        if info.supported_versions.len() > VERSIONS_MAX || texts.into_iter().any(|text| text.len() > TEXT_BYTES_MAX) {
            let message = "the plugin's description of itself is too long".to_owned();
            return Err(Error { code: tonic::Code::InvalidArgument, message });
        }
        Ok(info)
    }

    /// Tells the plugin that it is registered, or why not.
    pub async fn notify(&self, outcome: std::result::Result<(), &str>) -> Result<()> {
        let status = RegistrationStatus {
            plugin_registered: outcome.is_ok(),
            error: outcome.err().unwrap_or_default().to_owned(),
        };
        within(NOTIFY_TIMEOUT, self.client.clone().notify_registration_status(status)).await.map(drop)
    }
}
