//! Pod templates, inside of workloads and of their histories.

use serde_json::Value;

use super::container::containers;
use super::{annotations, items, map, pairs, text, volume};

/// The lines below `Pod Template:`. `added` are annotations that the template itself does not have.
pub(crate) fn pod_template(template: &Value, added: &[(&str, &str)]) -> String {
    let mut out = pairs("Labels", "  ", &map(template, "/metadata/labels"));
    let mut notes = map(template, "/metadata/annotations");
    for (key, value) in added.iter().filter(|(_, value)| *value != "<none>") {
        notes.insert(key.to_string(), (*value).into());
    }
    if !notes.is_empty() {
        out += &annotations("Annotations", "  ", &notes);
    }
    if !text(template, "/spec/serviceAccountName").is_empty() {
        out += &format!("  Service Account:\t{}\n", text(template, "/spec/serviceAccountName"));
    }
    if !items(template, "/spec/initContainers").is_empty() {
        out += &containers("Init Containers", items(template, "/spec/initContainers"), None, "  ", template);
    }
    out += &containers("Containers", items(template, "/spec/containers"), None, "  ", template);
    out += &volume::volumes(items(template, "/spec/volumes"), "  ");
    out += &super::pod::spread(items(template, "/spec/topologySpreadConstraints"), "  ");
    if !text(template, "/spec/priorityClassName").is_empty() {
        out += &format!("  Priority Class Name:\t{}\n", text(template, "/spec/priorityClassName"));
    }
    out += &pairs("Node-Selectors", "  ", &map(template, "/spec/nodeSelector"));
    out += &super::pod::tolerations(items(template, "/spec/tolerations"), "  ");
    out + &super::pod::group(&template["spec"], "  ")
}
