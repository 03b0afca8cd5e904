//! Lists with their filters, whole or in pieces: a long list does not fit into one message.

use std::collections::HashMap;

use futures::stream::{BoxStream, StreamExt};
use tonic::Status;

use super::Service;
use crate::v1;

/// Items of one message of a streamed list.
const PIECE_ITEMS: usize = 256;

pub(super) type Pieces<T> = BoxStream<'static, Result<T, Status>>;

/// A list as messages of a few items each. An empty list is a stream without messages.
pub(super) fn pieces<I, T>(items: Vec<I>, message: impl Fn(Vec<I>) -> T + Send + 'static) -> Pieces<T>
where
    I: Send + 'static,
    T: Send + 'static,
{
    let mut items = items.into_iter();
    let pieces = std::iter::from_fn(move || {
        let piece: Vec<I> = items.by_ref().take(PIECE_ITEMS).collect();
        (!piece.is_empty()).then_some(piece)
    });
    futures::stream::iter(pieces.map(move |piece| Ok(message(piece)))).boxed()
}

fn has_labels(labels: &HashMap<String, String>, selector: &HashMap<String, String>) -> bool {
    selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}

fn is(id: &str, wanted: &str) -> bool {
    wanted.is_empty() || id == wanted
}

impl Service {
    pub(super) async fn images(&self, filter: Option<v1::ImageFilter>) -> crate::Result<Vec<v1::Image>> {
        let named = filter.and_then(|filter| filter.image).filter(|spec| !spec.image.is_empty());
        match named {
            Some(spec) => Ok(self.runtime.image_status(&spec.image).await?.into_iter().collect()),
            None => self.runtime.list_images().await,
        }
    }

    pub(super) async fn container_stats_of(
        &self,
        filter: Option<v1::ContainerStatsFilter>,
    ) -> crate::Result<Vec<v1::ContainerStats>> {
        let filter = filter.unwrap_or_default();
        let mut stats = self.runtime.list_container_stats().await?;
        if !filter.pod_sandbox_id.is_empty() {
            // The statistics do not say which sandbox they belong to, the list of containers does.
            let of_sandbox =
                v1::ContainerFilter { pod_sandbox_id: filter.pod_sandbox_id.clone(), ..v1::ContainerFilter::default() };
            let containers = self.runtime.list_containers(Some(of_sandbox)).await?;
            let inside = |id: &str| containers.iter().any(|container| container.id == id);
            stats.retain(|stats| stats.attributes.as_ref().is_some_and(|attributes| inside(&attributes.id)));
        }
        stats.retain(|stats| {
            let attributes = stats.attributes.clone().unwrap_or_default();
            is(&attributes.id, &filter.id) && has_labels(&attributes.labels, &filter.label_selector)
        });
        Ok(stats)
    }

    pub(super) async fn sandbox_stats_of(
        &self,
        filter: Option<v1::PodSandboxStatsFilter>,
    ) -> crate::Result<Vec<v1::PodSandboxStats>> {
        let filter = filter.unwrap_or_default();
        let mut stats = self.runtime.list_pod_sandbox_stats().await?;
        stats.retain(|stats| {
            let attributes = stats.attributes.clone().unwrap_or_default();
            is(&attributes.id, &filter.id) && has_labels(&attributes.labels, &filter.label_selector)
        });
        Ok(stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_long_list_comes_in_pieces() {
        let sizes =
            |count: usize| pieces((0..count).collect(), |piece| piece.len()).map(|piece| piece.unwrap()).collect();
        let none: Vec<usize> = sizes(0).await;
        assert_eq!(none, [0; 0]);
        let all: Vec<usize> = sizes(600).await;
        assert_eq!(all, [256, 256, 88]);
    }
}
