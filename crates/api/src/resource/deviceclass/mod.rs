//! DeviceClass.

use machinery::field::Errors;
use machinery::kind::{Kind, Scope};
use machinery::node::Node;

use super::devices;

pub(crate) static KIND: Kind = Kind {
    group: "resource.k8s.io",
    version: "v1",
    kind: "DeviceClass",
    plural: "deviceclasses",
    singular: "deviceclass",
    scope: Scope::Cluster,
    schema: "io.k8s.api.resource.v1.DeviceClass",
    storage: "deviceclasses",
    generation: true,
    validate,
    validate_update: |new, _old, errors| validate(new, errors),
    ..Kind::COMMON
};

fn validate(class: &Node, errors: &mut Errors) {
    let spec = class.at("spec");
    devices::selectors(&spec.at("selectors"), errors);
    devices::configs(&spec.at("config"), errors);
}
