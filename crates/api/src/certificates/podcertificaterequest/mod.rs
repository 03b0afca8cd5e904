//! PodCertificateRequest: a kubelet asks a signer for a certificate of one pod on its node. Who may sign, and how late it is, is
//! asked by the server (`admission/pod_certificates.rs` of kube-apiserver).

mod issued;
mod key;
pub(crate) mod validate;

use machinery::kind::{Kind, Selectable, Subresource};
use machinery::object::Meta;
use machinery::table::{Cell, Column};
use serde_json::{Value, json};

use crate::status;

/// What every certificate is valid for at most, unless the request says so.
const EXPIRATION_SECONDS: i64 = 86_400;

pub(crate) static KIND: Kind = Kind {
    group: "certificates.k8s.io",
    version: "v1beta1",
    kind: "PodCertificateRequest",
    plural: "podcertificaterequests",
    singular: "podcertificaterequest",
    subresources: &[Subresource::status("PodCertificateRequest")],
    schema: "io.k8s.api.certificates.v1beta1.PodCertificateRequest",
    storage: "podcertificaterequests",
    columns: COLUMNS,
    unconditional_update: false,
    defaults: |request| {
        if let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) {
            spec.entry("maxExpirationSeconds").or_insert(json!(EXPIRATION_SECONDS));
        }
    },
    prepare_create: status::set_empty,
    prepare_update: |new, old| status::set(new, old["status"].clone()),
    validate: validate::validate,
    validate_update: validate::validate_update,
    validate_status: issued::validate_status,
    selectable: &[
        Selectable { field: "spec.signerName", read: |request| text(request, "signerName").to_owned() },
        Selectable { field: "spec.podName", read: |request| text(request, "podName").to_owned() },
        Selectable { field: "spec.nodeName", read: |request| text(request, "nodeName").to_owned() },
    ],
    row: |request, _| row(request),
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("PodName", "string", 0),
    Column::new("ServiceAccountName", "string", 0),
    Column::new("NodeName", "string", 0),
    Column::new("SignerName", "string", 0),
    Column::new("State", "string", 0),
    Column::new("UnverifiedUserAnnotations", "string", 0),
];

fn row(request: &Value) -> Vec<Cell> {
    let conditions = request["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let mut known = conditions.iter().filter_map(|condition| condition["type"].as_str());
    let state = known.rfind(|kind| DECISIONS.contains(kind)).unwrap_or("Pending");
    let mut cells = vec![request.name().into()];
    for field in ["podName", "serviceAccountName", "nodeName", "signerName"] {
        cells.push(text(request, field).into());
    }
    cells.push(state.into());
    let annotations = request["spec"]["unverifiedUserAnnotations"].as_object();
    let pairs = annotations.into_iter().flatten();
    let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))).collect();
    cells.push(if pairs.is_empty() { "<none>".into() } else { pairs.join(",").into() });
    cells
}

/// The conditions that end a request, in the order in which upstream names them.
const DECISIONS: [&str; 3] = ["Issued", "Denied", "Failed"];

fn text<'a>(request: &'a Value, field: &str) -> &'a str {
    request["spec"][field].as_str().unwrap_or("")
}
