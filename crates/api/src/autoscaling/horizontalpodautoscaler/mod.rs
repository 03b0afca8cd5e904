//! HorizontalPodAutoscaler.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use machinery::kind::{Kind, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "autoscaling",
    version: "v2",
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
    singular: "horizontalpodautoscaler",
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[Subresource::status("HorizontalPodAutoscaler")],
    schema: SchemaGenerator::subschema_for::<HorizontalPodAutoscaler>,
    storage: "horizontalpodautoscalers",
    columns: COLUMNS,
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
