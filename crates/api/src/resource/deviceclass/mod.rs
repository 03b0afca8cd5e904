//! DeviceClass.

use machinery::field::Errors;
use machinery::kind::{Kind, Scope};
use machinery::node::Node;
use serde_json::Value;

use super::devices;
use crate::check;
use crate::core::resources;

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
    validate: |class, errors| validate(class, &Node::root(&Value::Null), errors),
    validate_update: validate,
    ..Kind::COMMON
};

fn validate(class: &Node, old: &Node, errors: &mut Errors) {
    let (spec, old) = (class.at("spec"), old.at("spec"));
    devices::selectors(&spec.at("selectors"), errors);
    let configs = spec.at("config");
    let stored = configs.exists() && check::same(configs.value, old.at("config").value);
    devices::configs(&configs, stored, errors);
    let name = spec.at("extendedResourceName");
    if name.exists() && !resources::is_extended(name.str()) {
        errors.invalid(&name, "must be a valid extended resource name");
    }
}
