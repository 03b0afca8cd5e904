//! CertificateSigningRequest.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use machinery::kind::{Kind, Scope, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

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
    schema: SchemaGenerator::subschema_for::<CertificateSigningRequest>,
    storage: "certificatesigningrequests",
    columns: COLUMNS,
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
