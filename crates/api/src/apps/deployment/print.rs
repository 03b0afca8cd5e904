//! The row of a Deployment.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::common::workload::{containers_and_images, number, selector_text};

pub(super) fn row(deployment: &Value, now: Timestamp) -> Vec<Cell> {
    let [containers, images] = containers_and_images(deployment.pointer("/spec/template/spec"));
    vec![
        deployment.name().into(),
        format!("{}/{}", number(deployment, "/status/readyReplicas"), number(deployment, "/spec/replicas")).into(),
        number(deployment, "/status/updatedReplicas").into(),
        number(deployment, "/status/availableReplicas").into(),
        age(deployment, now),
        containers,
        images,
        selector_text(deployment.pointer("/spec/selector")).into(),
    ]
}
