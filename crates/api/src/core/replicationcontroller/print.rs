//! The row of a ReplicationController.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::common::workload::{containers_and_images, labels_text, number};

pub(super) fn row(controller: &Value, now: Timestamp) -> Vec<Cell> {
    let [containers, images] = containers_and_images(controller.pointer("/spec/template/spec"));
    vec![
        controller.name().into(),
        number(controller, "/spec/replicas").into(),
        number(controller, "/status/replicas").into(),
        number(controller, "/status/readyReplicas").into(),
        age(controller, now),
        containers,
        images,
        labels_text(controller.pointer("/spec/selector")).into(),
    ]
}
