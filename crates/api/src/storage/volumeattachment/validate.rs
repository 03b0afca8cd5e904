//! Validation of VolumeAttachment: its spec never changes.

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use machinery::node::Node;
use serde_json::json;

use super::super::driver_name;
use crate::core::check;
use crate::core::persistentvolume::inline_spec;

const MESSAGE_BYTES_MAX: usize = 1024;
const METADATA_BYTES_MAX: usize = 256 * 1024;

pub(super) fn validate(attachment: &Node, errors: &mut Errors) {
    common(attachment, errors);
    let spec = attachment.at("spec");
    let name = spec.at("source").at("persistentVolumeName");
    if name.exists() {
        check::text(&name, names::dns_subdomain(name.str()), errors);
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate(new, errors);
    let spec = new.at("spec");
    if spec.value != old.at("spec").value {
        errors.push(FieldError::new(Problem::Invalid, &spec.path, internal(&spec), check::IMMUTABLE));
    }
}

pub(super) fn validate_status(new: &Node, _old: &Node, errors: &mut Errors) {
    common(new, errors);
}

fn common(attachment: &Node, errors: &mut Errors) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let spec = attachment.at("spec");
    driver_name(&spec.at("attacher"), errors);
    let source = spec.at("source");
    let (inline, name) = (source.at("inlineVolumeSpec"), source.at("persistentVolumeName"));
    match (inline.exists(), name.exists()) {
        (false, false) => errors.required(&source, ONE),
        (true, true) => errors.forbidden(&source, ONE),
        (false, true) if name.str().is_empty() => {
            errors.required(&name, "must specify non empty persistentVolumeName");
        }
        (false, true) => {}
        (true, false) => inline_spec(&inline, errors),
    }
    let node = spec.at("nodeName");
    check::text(&node, names::dns_subdomain(node.str()), errors);
    status(&attachment.at("status"), errors);
}

fn status(status: &Node, errors: &mut Errors) {
    let metadata = status.at("attachmentMetadata");
    let bytes: usize = metadata.entries().map(|(key, value)| key.len() + value.str().len()).sum();
    if bytes > METADATA_BYTES_MAX {
        errors.too_long(&metadata, METADATA_BYTES_MAX);
    }
    for field in ["attachError", "detachError"] {
        let (message, code) = (status.at(field).at("message"), status.at(field).at("errorCode"));
        if message.str().len() > MESSAGE_BYTES_MAX {
            // Upstream's sentence names the other limit.
            errors.too_long(&message, METADATA_BYTES_MAX);
        }
        if code.int().is_some_and(|code| code < 0) {
            errors.invalid(&code, "must be between 0 and 2147483647, inclusive");
        }
    }
}

/// A spec as upstream's message shows it: the internal struct, in Go's names and order.
fn internal(spec: &Node) -> String {
    let source = spec.at("source");
    format!(
        r#"{{"Attacher":{},"Source":{{"PersistentVolumeName":{},"InlineVolumeSpec":{}}},"NodeName":{}}}"#,
        json!(spec.text("attacher")),
        source.at("persistentVolumeName").value,
        source.at("inlineVolumeSpec").value,
        json!(spec.text("nodeName"))
    )
}
