//! The row of a ReplicaSet.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::common::workload::{containers_and_images, number, selector_text};

pub(super) fn row(set: &Value, now: Timestamp) -> Vec<Cell> {
    let [containers, images] = containers_and_images(set.pointer("/spec/template/spec"));
    vec![
        set.name().into(),
        number(set, "/spec/replicas").into(),
        number(set, "/status/replicas").into(),
        number(set, "/status/readyReplicas").into(),
        age(set, now),
        containers,
        images,
        selector_text(set.pointer("/spec/selector")).into(),
    ]
}
