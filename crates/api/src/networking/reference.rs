//! Typed references that Ingress and IngressClass share.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use crate::check;

/// A reference by API group, kind and name inside the object's own scope.
pub(super) fn typed(reference: &Node, errors: &mut Errors) {
    if reference.has("apiGroup") {
        let group = reference.at("apiGroup");
        check::rule(&group, names::dns_subdomain(group.str()), errors);
    }
    for field in ["kind", "name"] {
        check::required_rule(&reference.at(field), names::path_segment_name, errors);
    }
}
