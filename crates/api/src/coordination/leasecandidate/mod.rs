//! LeaseCandidate: who would like to hold a lease, for coordinated leader election. v1beta1 is stored.

mod validate;

use machinery::kind::{Convert, Kind, Selectable, age};
use machinery::names;
use machinery::object::Meta;
use machinery::table::Column;
use serde_json::Value;

use crate::optional::named;

pub(crate) static KIND: Kind = Kind {
    group: "coordination.k8s.io",
    version: "v1beta1",
    kind: "LeaseCandidate",
    plural: "leasecandidates",
    singular: "leasecandidate",
    schema: "io.k8s.api.coordination.v1beta1.LeaseCandidate",
    storage: "leasecandidates",
    columns: COLUMNS,
    name_rule: names::config_map_key,
    create_on_update: true,
    unconditional_update: false,
    validate: validate::validate,
    validate_update: validate::validate_update,
    selectable: &[Selectable { field: "spec.leaseName", read: |candidate| text(candidate, "leaseName").to_owned() }],
    row: |candidate, now| {
        let cells = ["leaseName", "binaryVersion", "emulationVersion"].map(|field| text(candidate, field).into());
        let [lease, binary, emulation] = cells;
        vec![candidate.name().into(), lease, binary, emulation, age(candidate, now)]
    },
    ..Kind::COMMON
};

pub(crate) static V1ALPHA2: Kind = Kind {
    version: "v1alpha2",
    schema: "io.k8s.api.coordination.v1alpha2.LeaseCandidate",
    convert: Some(Convert {
        group: "coordination.k8s.io",
        version: "v1beta1",
        to_storage: |candidate| named(candidate, "coordination.k8s.io/v1beta1"),
        from_storage: |candidate| named(candidate, "coordination.k8s.io/v1alpha2"),
    }),
    ..KIND
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("LeaseName", "string", 0),
    Column::new("BinaryVersion", "string", 0),
    Column::new("EmulationVersion", "string", 0),
    Column::new("Age", "string", 0),
];

fn text<'a>(candidate: &'a Value, field: &str) -> &'a str {
    candidate["spec"][field].as_str().unwrap_or("")
}
