//! ClusterTrustBundle: certificates that pods trust, of a signer or of nobody in particular. v1beta1 is stored.

mod validate;

use machinery::kind::{Convert, Kind, Scope, Selectable};
use machinery::object::Meta;
use machinery::table::Column;
use serde_json::Value;

use crate::optional::named;

pub(crate) static KIND: Kind = Kind {
    group: "certificates.k8s.io",
    version: "v1beta1",
    kind: "ClusterTrustBundle",
    plural: "clustertrustbundles",
    singular: "clustertrustbundle",
    scope: Scope::Cluster,
    schema: "io.k8s.api.certificates.v1beta1.ClusterTrustBundle",
    storage: "clustertrustbundles",
    columns: &[Column::name(""), Column::new("SignerName", "string", 0)],
    // The name depends on the signer, which `validate` knows.
    name_rule: |_| Vec::new(),
    unconditional_update: false,
    validate: validate::validate,
    validate_update: validate::validate_update,
    selectable: &[Selectable { field: "spec.signerName", read: |bundle| signer(bundle).to_owned() }],
    row: |bundle, _| {
        let signer = Some(signer(bundle)).filter(|signer| !signer.is_empty());
        vec![bundle.name().into(), signer.unwrap_or("<none>").into()]
    },
    ..Kind::COMMON
};

pub(crate) static V1ALPHA1: Kind = Kind {
    version: "v1alpha1",
    schema: "io.k8s.api.certificates.v1alpha1.ClusterTrustBundle",
    convert: Some(Convert {
        group: "certificates.k8s.io",
        version: "v1beta1",
        to_storage: |bundle| named(bundle, "certificates.k8s.io/v1beta1"),
        from_storage: |bundle| named(bundle, "certificates.k8s.io/v1alpha1"),
    }),
    ..KIND
};

fn signer(bundle: &Value) -> &str {
    bundle["spec"]["signerName"].as_str().unwrap_or("")
}
