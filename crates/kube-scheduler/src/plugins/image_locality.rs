//! ImageLocality: nodes that have the pod's images already are preferred; images that are on few nodes count less.

use crate::framework::{Change, Plugin, SCORE_MAX, Score, Scoring, View};
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

const MEBIBYTE: i64 = 1024 * 1024;
/// Images smaller than this do not matter, larger ones than this per container do not matter more.
const SIZE_MIN: i64 = 23 * MEBIBYTE;
const SIZE_MAX_PER_CONTAINER: i64 = 1000 * MEBIBYTE;

pub struct ImageLocality;

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    fn score<'a>(&'a self, view: View<'a>, pod: &'a PodInfo, _: &[&'a NodeInfo]) -> Scoring<'a> {
        let spec = pod.spec();
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let named = containers.filter_map(|container| container.image.as_deref()).map(normalized);
        let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
        let images: Vec<String> = named.chain(volumes.map(normalized)).collect();
        let spread: Vec<(String, f64)> = images
            .into_iter()
            .filter_map(|image| {
                let nodes = *view.snapshot.image_nodes.get(&image)?;
                Some((image, nodes as f64 / view.snapshot.len().max(1) as f64))
            })
            .collect();
        if spread.is_empty() {
            return Scoring::Skip;
        }
        let containers = spec.init_containers.iter().flatten().count() + spec.containers.len();
        Scoring::Ask(Box::new(Present { images: spread, containers: containers as i64 }))
    }

    fn may_help(&self, _: &PodInfo, _: &Change, _: &Objects) -> bool {
        false
    }
}

/// With a tag, as nodes report their images.
fn normalized(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') || last.contains('@') { image.to_owned() } else { format!("{image}:latest") }
}

struct Present {
    /// The images that any node has, and the share of nodes that do.
    images: Vec<(String, f64)>,
    containers: i64,
}

impl Score for Present {
    fn score(&self, node: &NodeInfo) -> i64 {
        let sizes = self.images.iter().filter_map(|(image, share)| Some(*node.images.get(image)? as f64 * share));
        let sum = sizes.map(|size| size as i64).sum::<i64>();
        let most = SIZE_MAX_PER_CONTAINER * self.containers.max(1);
        SCORE_MAX * (sum.clamp(SIZE_MIN, most) - SIZE_MIN) / (most - SIZE_MIN)
    }
}
