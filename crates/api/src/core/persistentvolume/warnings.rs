//! Sentences for `Warning` headers: sources that no longer work, and what has a better way.

use machinery::node::Node;
use machinery::object::Meta;
use serde_json::Value;

use crate::core::selectors::deprecated_node_labels;

/// Sources by field, the name upstream's sentence gives them, and since when they are deprecated and gone.
const GONE: [(&str, &str, &str, &str); 6] = [
    ("cephfs", "cephfs", "v1.28", "v1.31+"),
    ("photonPersistentDisk", "photonPersistentDisk", "v1.11", "v1.16+"),
    ("scaleIO", "scaleIO", "v1.16", "v1.22+"),
    ("storageos", "storageOS", "v1.22", "v1.25+"),
    ("glusterfs", "glusterfs", "v1.25", "v1.26+"),
    ("rbd", "rbd", "v1.28", "v1.31+"),
];

pub(super) fn warnings(volume: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut sentences = class_annotation(volume);
    let spec = &volume["spec"];
    if spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        sentences.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .into(),
        );
    }
    let affinity = Node::root(volume).at("spec").at("nodeAffinity").at("required");
    for term in affinity.each("nodeSelectorTerms") {
        sentences.extend(deprecated_node_labels(&term));
    }
    for (field, shown, deprecated, gone) in GONE {
        if spec.get(field).is_some_and(Value::is_object) {
            sentences.push(format!("spec.{shown}: deprecated in {deprecated}, non-functional in {gone}"));
        }
    }
    sentences
}

/// Volumes and claims once carried their class in an annotation.
pub(crate) fn class_annotation(object: &Value) -> Vec<String> {
    const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
    match object.annotation(CLASS) {
        Some(_) => vec![format!(
            "metadata.annotations[{CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
        )],
        None => Vec::new(),
    }
}
