//! Validation of Binding: it must name a node.

use machinery::field::Errors;
use machinery::node::Node;

use crate::core::check;

pub fn validate(binding: &Node, errors: &mut Errors) {
    let target = binding.at("target");
    if !matches!(target.text("kind"), "" | "Node") {
        check::not_supported(&target.at("kind"), target.text("kind"), &["Node", "<empty>"], errors);
    }
    check::required_text(&target.at("name"), errors);
}
