//! The row of a PodTemplate.

use jiff::Timestamp;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::common::workload::{containers_and_images, labels_text};

pub(super) fn row(object: &Value, _now: Timestamp) -> Vec<Cell> {
    let [containers, images] = containers_and_images(object.pointer("/template/spec"));
    vec![object.name().into(), containers, images, labels_text(object.pointer("/template/metadata/labels")).into()]
}
