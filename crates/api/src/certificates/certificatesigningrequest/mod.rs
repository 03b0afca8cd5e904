//! CertificateSigningRequest.

mod print;
mod strategy;
mod validate;

use machinery::kind::{Kind, Scope, Selectable, Subresource};
use machinery::table::Column;
use serde_json::Value;

pub use self::strategy::prepare_approval;
pub use self::validate::validate_approval;

pub(crate) static KIND: Kind = Kind {
    group: "certificates.k8s.io",
    version: "v1",
    kind: "CertificateSigningRequest",
    plural: "certificatesigningrequests",
    singular: "certificatesigningrequest",
    short_names: &["csr"],
    scope: Scope::Cluster,
    subresources: &[
        Subresource {
            name: "approval",
            kind: "CertificateSigningRequest",
            group: "",
            version: "",
            verbs: &["get", "patch", "update"],
        },
        Subresource::status("CertificateSigningRequest"),
    ],
    schema: "io.k8s.api.certificates.v1.CertificateSigningRequest",
    storage: "certificatesigningrequests",
    columns: COLUMNS,
    name_rule: |_| Vec::new(),
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    prepare_status: strategy::prepare_status,
    validate: validate::validate,
    validate_update: validate::validate_update,
    validate_status: validate::validate_status,
    selectable: SELECTABLE,
    row: print::row,
    sign: Some(strategy::sign),
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Age", "string", 0),
    Column::new("SignerName", "string", 0),
    Column::new("Requestor", "string", 0),
    Column::new("RequestedDuration", "string", 0),
    Column::new("Condition", "string", 0),
];

const SELECTABLE: &[Selectable] = &[Selectable {
    field: "spec.signerName",
    read: |object: &Value| object["spec"]["signerName"].as_str().unwrap_or("").to_string(),
}];
