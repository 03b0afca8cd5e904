//! The row of a DaemonSet.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::common::workload::{containers_and_images, labels_text, number, selector_text};

pub(super) fn row(set: &Value, now: Timestamp) -> Vec<Cell> {
    let [containers, images] = containers_and_images(set.pointer("/spec/template/spec"));
    vec![
        set.name().into(),
        number(set, "/status/desiredNumberScheduled").into(),
        number(set, "/status/currentNumberScheduled").into(),
        number(set, "/status/numberReady").into(),
        number(set, "/status/updatedNumberScheduled").into(),
        number(set, "/status/numberAvailable").into(),
        labels_text(set.pointer("/spec/template/spec/nodeSelector")).into(),
        age(set, now),
        containers,
        images,
        selector_text(set.pointer("/spec/selector")).into(),
    ]
}
