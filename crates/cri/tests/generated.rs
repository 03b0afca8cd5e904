//! Is the code of the messages made from `proto/`? `UPDATE=1` makes it anew. No `protoc` is needed: the compiler is a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use prost_types::{DescriptorProto, FileDescriptorSet};

/// Records of pods on disk hold these, with all that they hold.
const KEPT_ON_DISK: [&str; 3] =
    [".runtime.v1.PodSandboxConfig", ".runtime.v1.ContainerConfig", ".runtime.v1.LinuxContainerUser"];

#[test]
fn the_messages_are_made_from_the_interface() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let descriptors = protox::compile(["runtime.v1.proto"], [root.join("proto")]).expect("the interface is valid");
    let mut builder = tonic_prost_build::configure().out_dir(folder.path());
    for message in held_by(&descriptors, &KEPT_ON_DISK) {
        // What was written before a field came must be readable after it.
        builder =
            builder.message_attribute(message, "#[derive(serde::Serialize, serde::Deserialize)]\n#[serde(default)]");
    }
    builder.compile_fds(descriptors).expect("code can be made");
    let made = std::fs::read_to_string(folder.path().join("runtime.v1.rs")).expect("it was made");
    let kept = root.join("src/generated/runtime.v1.rs");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&kept, &made).expect("the folder is writable");
    }
    let is_same = std::fs::read_to_string(&kept).is_ok_and(|text| text == made);
    assert!(is_same, "{} is not what proto/ says; UPDATE=1 makes it anew", kept.display());
}

/// These messages, and those they hold. Values of enums are numbers, and maps are of texts.
fn held_by(descriptors: &FileDescriptorSet, messages: &[&str]) -> BTreeSet<String> {
    let known: BTreeMap<String, &DescriptorProto> = descriptors
        .file
        .iter()
        .flat_map(|file| file.message_type.iter().map(|one| (format!(".{}.{}", file.package(), one.name()), one)))
        .collect();
    let mut open: Vec<String> = messages.iter().map(|name| name.to_string()).collect();
    let mut held = BTreeSet::new();
    while let Some(name) = open.pop() {
        if let Some(message) = known.get(&name)
            && held.insert(name)
        {
            open.extend(message.field.iter().filter_map(|field| field.type_name.clone()));
        }
    }
    held
}
