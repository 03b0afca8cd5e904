//! Follows what a plugin says of its devices, at a pace that the node can bear.

use std::sync::Arc;
use std::time::Duration;

use devices::plugin::Lists;
use devices::v1beta1::Device;
use tokio::time::{Instant, sleep, timeout_at};

use super::DevicePlugins;

/// What a plugin says within this counts as one change: a flood of lists costs a write each time, not for each list.
const SETTLE: Duration = Duration::from_millis(100);
/// So many lists in one go are a flood; the plugin waits then.
const LISTS_MAX: u32 = 256;

/// Until the plugin ends the stream, or another serves the resource.
pub(super) async fn follow(plugins: Arc<DevicePlugins>, resource: String, number: u64, mut lists: Lists) {
    let ended = loop {
        match next(&mut lists).await {
            Ok(Some(devices)) => plugins.listed(&resource, number, devices),
            Ok(None) => break "the plugin ended it".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    tracing::warn!(resource, ended, "ListAndWatch of device plugin ended");
    plugins.disconnected(&resource, number);
}

/// The newest of the lists that come close together.
async fn next(lists: &mut Lists) -> devices::Result<Option<Vec<Device>>> {
    let Some(mut newest) = lists.next().await? else { return Ok(None) };
    let settled = Instant::now() + SETTLE;
    for _ in 0..LISTS_MAX {
        match timeout_at(settled, lists.next()).await {
            Ok(Ok(Some(list))) => newest = list,
            // Its end is found again with the next look.
            Ok(Ok(None)) | Err(_) => return Ok(Some(newest)),
            Ok(Err(error)) => return Err(error),
        }
    }
    sleep(settled.saturating_duration_since(Instant::now())).await;
    Ok(Some(newest))
}
