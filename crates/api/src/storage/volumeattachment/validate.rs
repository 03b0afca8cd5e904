//! What is refused of a VolumeAttachment: its spec never changes.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use super::super::driver_name;
use crate::core::check;

const MESSAGE_BYTES_MAX: usize = 1024;
const METADATA_BYTES_MAX: usize = 256 * 1024;

pub(super) fn validate(attachment: &Node, errors: &mut Errors) {
    let spec = attachment.at("spec");
    driver_name(&spec.at("attacher"), errors);
    let source = spec.at("source");
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let name = source.at("persistentVolumeName");
    match (source.has("inlineVolumeSpec"), name.exists()) {
        (false, false) => errors.required(&source, ONE),
        (true, true) => errors.forbidden(&source, ONE),
        (false, true) if name.str().is_empty() => {
            errors.required(&name, "must specify non empty persistentVolumeName");
        }
        (true, false) if !source.at("inlineVolumeSpec").has("csi") => errors
            .required(&source.at("inlineVolumeSpec").at("csi"), "has to be specified in the context of inline volumes"),
        _ => {}
    }
    let node = spec.at("nodeName");
    check::text(&node, names::dns_subdomain(node.str()), errors);
    status(&attachment.at("status"), errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate(new, errors);
    check::immutable(&new.at("spec"), &old.at("spec"), errors);
}

pub(super) fn validate_status(new: &Node, _old: &Node, errors: &mut Errors) {
    status(&new.at("status"), errors);
}

fn status(status: &Node, errors: &mut Errors) {
    let metadata = status.at("attachmentMetadata");
    let mut bytes = 0;
    for (key, value) in metadata.entries() {
        if key.is_empty() {
            errors.required(&metadata, "");
        }
        bytes += key.len() + value.str().len();
    }
    if bytes > METADATA_BYTES_MAX {
        errors.too_long(&metadata, METADATA_BYTES_MAX);
    }
    for field in ["attachError", "detachError"] {
        let message = status.at(field).at("message");
        if message.str().len() > MESSAGE_BYTES_MAX {
            errors.too_long(&message, MESSAGE_BYTES_MAX);
        }
    }
}
