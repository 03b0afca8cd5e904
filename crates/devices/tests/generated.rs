//! Is the code of the messages made from `proto/`? `UPDATE=1` makes it anew. No `protoc` is needed: the compiler is a crate.

use std::path::Path;

/// The interface, and what its package makes the code's file be called.
static INTERFACES: [(&str, &str); 5] = [
    ("deviceplugin.v1beta1", "v1beta1.rs"),
    ("dra.v1", "k8s.io.kubelet.pkg.apis.dra.v1.rs"),
    ("dra.v1beta1", "k8s.io.kubelet.pkg.apis.dra.v1beta1.rs"),
    ("drahealth.v1alpha1", "v1alpha1.rs"),
    ("podresources.v1", "v1.rs"),
];

#[test]
fn the_messages_are_made_from_the_interfaces() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (interface, code) in INTERFACES {
        let folder = tempfile::tempdir().expect("a folder");
        let descriptors = protox::compile([format!("{interface}.proto")], [root.join("proto")]);
        let descriptors = descriptors.expect("the interface is valid");
        // Maps are sorted, so that what is written to disk does not change by itself.
        let builder = tonic_prost_build::configure().out_dir(folder.path()).btree_map(".");
        builder.compile_fds(descriptors).expect("code can be made");
        let made = std::fs::read_to_string(folder.path().join(code)).expect("it was made");
        let kept = root.join("src/generated").join(format!("{interface}.rs"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&kept, &made).expect("the folder is writable");
        }
        let is_same = std::fs::read_to_string(&kept).is_ok_and(|text| text == made);
        assert!(is_same, "{} is not what proto/ says; UPDATE=1 makes it anew", kept.display());
    }
}
