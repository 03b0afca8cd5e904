//! Typed references that Ingress and IngressClass share.

use crate::names;
use machinery::field::Errors;
use machinery::node::Node;

use crate::check;

/// A reference by API group, kind and name inside the object's own scope.
pub(super) fn typed(reference: &Node, errors: &mut Errors) {
    if reference.has("apiGroup") {
        let group = reference.at("apiGroup");
        check::rule(&group, names::dns_subdomain(group.str()), errors);
    }
    for (field, missing) in [("kind", "kind is required"), ("name", "name is required")] {
        let text = reference.at(field);
        check::required(&text, missing, errors);
        check::rule(&text, check::path_segment(text.str()), errors);
    }
}
