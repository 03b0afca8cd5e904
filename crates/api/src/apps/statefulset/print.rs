//! The row of a StatefulSet.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::common::workload::{containers_and_images, number};

pub(super) fn row(set: &Value, now: Timestamp) -> Vec<Cell> {
    let [containers, images] = containers_and_images(set.pointer("/spec/template/spec"));
    vec![
        set.name().into(),
        format!("{}/{}", number(set, "/status/readyReplicas"), number(set, "/spec/replicas")).into(),
        age(set, now),
        containers,
        images,
    ]
}
