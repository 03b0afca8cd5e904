//! ServiceAccount: who a pod is.

mod strategy;

use machinery::kind::{Kind, Subresource};

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    subresources: &[Subresource {
        name: "token",
        kind: "TokenRequest",
        group: "authentication.k8s.io",
        version: "v1",
        verbs: &["create"],
    }],
    schema: "io.k8s.api.core.v1.ServiceAccount",
    storage: "serviceaccounts",
    prepare_create: strategy::prepare,
    prepare_update: |new, _| strategy::prepare(new),
    warnings: strategy::warnings,
    delete_returns_object: true,
    ..Kind::COMMON
};
