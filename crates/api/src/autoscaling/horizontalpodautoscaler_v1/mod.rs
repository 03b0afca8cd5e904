//! HorizontalPodAutoscaler of autoscaling/v1, which is stored as v2: rules beyond the defaults are those of v2.

mod behavior;
mod convert;
mod metrics;

use jiff::Timestamp;
use machinery::kind::{Convert, Kind, Subresource};
use machinery::object::set_default;
use machinery::table::{Cell, Column};
use serde_json::Value;

use super::horizontalpodautoscaler as stored;

pub(crate) static KIND: Kind = Kind {
    group: "autoscaling",
    version: "v1",
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
    singular: "horizontalpodautoscaler",
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[Subresource::status("HorizontalPodAutoscaler")],
    schema: "io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler",
    storage: "horizontalpodautoscalers",
    columns: COLUMNS,
    convert: Some(CONVERT),
    defaults,
    row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Reference", "string", 0),
    Column::new("Targets", "string", 0),
    Column::new("MinPods", "string", 0),
    Column::new("MaxPods", "string", 0),
    Column::new("Replicas", "string", 0),
    Column::new("Age", "string", 0),
];

const CONVERT: Convert = Convert {
    group: "autoscaling",
    version: "v2",
    to_storage: convert::to_storage,
    from_storage: convert::from_storage,
};

/// The CPU target is defaulted on the way to v2, where other metrics are known.
fn defaults(autoscaler: &mut Value) {
    if let Some(spec) = autoscaler.get_mut("spec") {
        set_default(spec, "minReplicas", 1);
    }
}

/// The row of the stored version.
fn row(autoscaler: &Value, now: Timestamp) -> Vec<Cell> {
    (stored::KIND.row)(&convert::to_storage(autoscaler.clone()), now)
}
