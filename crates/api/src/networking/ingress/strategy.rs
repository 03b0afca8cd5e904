//! Strategy of Ingress: what the server sets, and what it warns about.

use machinery::object::Meta;
use serde_json::{Value, json};

use crate::status;

pub(super) fn prepare_create(ingress: &mut Value) {
    status::set(ingress, json!({"loadBalancer": {}}));
}

/// The status always says something of the load balancer, as Go writes it.
pub(super) fn prepare_status(new: &mut Value, _old: &Value) {
    machinery::object::child_mut(new, "status").entry("loadBalancer").or_insert_with(|| json!({}));
}

pub(super) fn warnings(new: &Value, _old: Option<&Value>) -> Vec<String> {
    let annotation = "kubernetes.io/ingress.class";
    match new.annotation(annotation) {
        Some(_) => vec![format!("annotation {annotation:?} is deprecated, please use 'spec.ingressClassName' instead")],
        None => Vec::new(),
    }
}
