//! HorizontalPodAutoscaler.

mod defaults;
mod print;
mod strategy;
mod validate;

pub(super) use defaults::default_metric;
use machinery::kind::{Kind, Subresource};
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "autoscaling",
    version: "v2",
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
    singular: "horizontalpodautoscaler",
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[Subresource::status("HorizontalPodAutoscaler")],
    schema: "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    storage: "horizontalpodautoscalers",
    columns: COLUMNS,
    defaults: defaults::defaults,
    prepare_create: strategy::prepare_create,
    prepare_status: strategy::prepare_status,
    validate: validate::validate,
    validate_update: validate::validate_update,
    validate_status: validate::validate_status,
    row: print::row,
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
