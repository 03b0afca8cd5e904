//! What a driver says of this node, in the objects where controllers and the scheduler look: CSINode, and labels and an annotation
//! of the Node.

use std::collections::BTreeMap;

use csi::v1::NodeGetInfoResponse;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, VolumeNodeResources};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::objects::in_words;

const NODE_ID: &str = "csi.volume.kubernetes.io/nodeid";

/// Why a driver is not announced, or not taken back. It goes to the driver and into the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnnounceError {
    #[error("error adding CSI driver node info: driverNodeID must not be empty")]
    NoNodeId,
    #[error("error updating Node object with CSI driver node info: {0}")]
    Node(#[source] WriteError),
    #[error("error updating CSINode object with CSI driver node info: {0}")]
    CsiNode(#[source] WriteError),
    #[error("error uninstalling CSI driver from CSINode object {0}")]
    RemoveFromCsiNode(#[source] WriteError),
    #[error("error removing CSI driver node info from Node object {0}")]
    RemoveFromNode(#[source] WriteError),
}

/// Why an object is not read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("{}", in_words(.0))]
    Api(#[from] kube::Error),
    #[error("failed to parse node's {NODE_ID:?} annotation value ({text:?}) err={source}")]
    Annotation { text: String, source: serde_json::Error },
    #[error(
        "detected topology value collision: driver reported {key:?}:{value:?} but existing label is {key:?}:{existing:?}"
    )]
    Topology { key: String, value: String, existing: String },
}

/// What one driver says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Announced {
    entry: CSINodeDriver,
    topology: BTreeMap<String, String>,
}

impl Announced {
    pub fn of(name: &str, info: &NodeGetInfoResponse) -> Result<Announced, AnnounceError> {
        if info.node_id.is_empty() {
            return Err(AnnounceError::NoNodeId);
        }
        let topology = info.accessible_topology.as_ref().map(|topology| &topology.segments);
        let topology: BTreeMap<String, String> =
            topology.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
        // Nothing said means no limit; a number that makes no sense is none either, as upstream.
        let count = Some(info.max_volumes_per_node).filter(|count| *count > 0);
        let count = count.map(|count| i32::try_from(count).unwrap_or(i32::MAX));
        let entry = CSINodeDriver {
            name: name.to_owned(),
            node_id: info.node_id.clone(),
            topology_keys: Some(topology.keys().cloned().collect()).filter(|keys: &Vec<String>| !keys.is_empty()),
            allocatable: count.map(|count| VolumeNodeResources { count: Some(count) }),
        };
        Ok(Announced { entry, topology })
    }
}

pub(super) struct Objects {
    nodes: Api<Node>,
    csi_nodes: Api<CSINode>,
    node_name: String,
}

impl Objects {
    pub fn new(client: kube::Client, node_name: &str) -> Objects {
        Objects { nodes: Api::all(client.clone()), csi_nodes: Api::all(client), node_name: node_name.to_owned() }
    }

    pub async fn announce(&self, announced: &Announced) -> Result<(), AnnounceError> {
        self.write_node(announced).await.map_err(AnnounceError::Node)?;
        let written = self.write_csi_node(|csi_node| with_driver(csi_node, announced)).await;
        written.map_err(AnnounceError::CsiNode)
    }

    /// The topology stays on the Node, as upstream: volumes are where they are, also while their driver is being replaced.
    pub(crate) async fn take_back(&self, name: &str) -> Result<(), AnnounceError> {
        let written = self.write_csi_node(|csi_node| without_driver(csi_node, name)).await;
        written.map_err(AnnounceError::RemoveFromCsiNode)?;
        self.clear_node(name).await.map_err(AnnounceError::RemoveFromNode)
    }

    async fn write_node(&self, announced: &Announced) -> Result<(), WriteError> {
        let node = self.nodes.get(&self.node_name).await?;
        match node_patch(&node, announced)? {
            Some(patch) => self.patch_node(patch).await,
            None => Ok(()),
        }
    }

    async fn clear_node(&self, name: &str) -> Result<(), WriteError> {
        let Some(node) = self.nodes.get_opt(&self.node_name).await? else { return Ok(()) };
        match patch_without(&node, name)? {
            Some(patch) => self.patch_node(patch).await,
            None => Ok(()),
        }
    }

    async fn patch_node(&self, patch: Value) -> Result<(), WriteError> {
        self.nodes.patch_status(&self.node_name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// The object itself is made by `node::csi_node`; without it there is nothing to take back, and announcing is tried again.
    async fn write_csi_node(&self, change: impl Fn(&CSINode) -> Option<CSINode>) -> Result<(), WriteError> {
        let existing = self.csi_nodes.get(&self.node_name).await?;
        let Some(wished) = change(&existing) else { return Ok(()) };
        self.csi_nodes.replace(&self.node_name, &PostParams::default(), &wished).await?;
        Ok(())
    }
}

fn ids(node: &Node) -> Result<BTreeMap<String, String>, WriteError> {
    let text = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(NODE_ID));
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(BTreeMap::new()) };
    let parsed = serde_json::from_str(text);
    parsed.map_err(|source| WriteError::Annotation { text: text.clone(), source })
}

fn node_patch(node: &Node, announced: &Announced) -> Result<Option<Value>, WriteError> {
    let mut patch = json!({});
    let mut ids = ids(node)?;
    if ids.get(&announced.entry.name) != Some(&announced.entry.node_id) {
        ids.insert(announced.entry.name.clone(), announced.entry.node_id.clone());
        patch["metadata"]["annotations"][NODE_ID] = json!(json!(ids).to_string());
    }
    for (key, value) in &announced.topology {
        match node.metadata.labels.as_ref().and_then(|labels| labels.get(key)) {
            Some(existing) if existing == value => {}
            Some(existing) => {
                let (key, value, existing) = (key.clone(), value.clone(), existing.clone());
                return Err(WriteError::Topology { key, value, existing });
            }
            None => patch["metadata"]["labels"][key] = json!(value),
        }
    }
    Ok(Some(patch).filter(|patch| *patch != json!({})))
}

fn patch_without(node: &Node, name: &str) -> Result<Option<Value>, WriteError> {
    let mut ids = ids(node)?;
    if ids.remove(name).is_none() {
        return Ok(None);
    }
    let text = if ids.is_empty() { Value::Null } else { json!(json!(ids).to_string()) };
    Ok(Some(json!({"metadata": {"annotations": {NODE_ID: text}}})))
}

fn with_driver(csi_node: &CSINode, announced: &Announced) -> Option<CSINode> {
    if csi_node.spec.drivers.contains(&announced.entry) {
        return None;
    }
    let mut wished = csi_node.clone();
    wished.spec.drivers.retain(|driver| driver.name != announced.entry.name);
    wished.spec.drivers.push(announced.entry.clone());
    Some(wished)
}

fn without_driver(csi_node: &CSINode, name: &str) -> Option<CSINode> {
    let mut wished = csi_node.clone();
    wished.spec.drivers.retain(|driver| driver.name != name);
    (wished.spec.drivers.len() < csi_node.spec.drivers.len()).then_some(wished)
}

#[cfg(test)]
mod tests {
    use csi::v1::Topology;

    use super::*;

    fn announced(max: i64, topology: &[(&str, &str)]) -> Announced {
        let segments = topology.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let info = NodeGetInfoResponse {
            node_id: "i-1".into(),
            max_volumes_per_node: max,
            accessible_topology: Some(Topology { segments }),
        };
        Announced::of("d", &info).unwrap()
    }

    fn node(metadata: Value) -> Node {
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn the_node_learns_ids_and_topology() {
        let driver = announced(0, &[("t/zone", "a")]);
        let patch = node_patch(&node(json!({"name": "n"})), &driver).unwrap().unwrap();
        let annotations = json!({NODE_ID: "{\"d\":\"i-1\"}"});
        assert_eq!(patch, json!({"metadata": {"annotations": annotations, "labels": {"t/zone": "a"}}}));
        let known = node(json!({"annotations": annotations, "labels": {"t/zone": "a"}}));
        assert_eq!(node_patch(&known, &driver).unwrap(), None);
        let other = node(json!({"annotations": {NODE_ID: "{\"e\":\"x\"}"}, "labels": {"t/zone": "b"}}));
        assert_eq!(
            node_patch(&other, &driver).unwrap_err().to_string(),
            "detected topology value collision: driver reported \"t/zone\":\"a\" but existing label is \"t/zone\":\"b\""
        );
        assert!(node_patch(&node(json!({"annotations": {NODE_ID: "{"}})), &driver).is_err());
        let gone = patch_without(&known, "d").unwrap().unwrap();
        assert_eq!(gone, json!({"metadata": {"annotations": {NODE_ID: null}}}));
        assert_eq!(patch_without(&other, "d").unwrap(), None);
    }

    #[test]
    fn the_csi_node_lists_each_driver_once() {
        let empty: CSINode = serde_json::from_value(json!({"metadata": {}, "spec": {"drivers": []}})).unwrap();
        let one = with_driver(&empty, &announced(7, &[("z", "1"), ("r", "2")])).unwrap();
        let expected = json!([{"name": "d", "nodeID": "i-1", "topologyKeys": ["r", "z"], "allocatable": {"count": 7}}]);
        assert_eq!(serde_json::to_value(&one.spec.drivers).unwrap(), expected);
        assert!(with_driver(&one, &announced(7, &[("z", "1"), ("r", "2")])).is_none());
        let changed = with_driver(&one, &announced(-1, &[])).unwrap();
        assert_eq!(serde_json::to_value(&changed.spec.drivers).unwrap(), json!([{"name": "d", "nodeID": "i-1"}]));
        assert!(without_driver(&changed, "d").unwrap().spec.drivers.is_empty());
        assert!(without_driver(&empty, "d").is_none());
    }

    #[test]
    fn a_driver_must_say_which_node_this_is() {
        assert!(Announced::of("d", &NodeGetInfoResponse::default()).is_err());
    }
}
