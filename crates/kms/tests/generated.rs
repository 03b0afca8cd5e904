//! Is the code of the messages made from `proto/`? `UPDATE=1` makes it anew. No `protoc` is needed: the compiler is a crate.

use std::path::Path;

/// The file of an interface, and its package, which is what the made file is named after.
fn check(file: &str, package: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let descriptors = protox::compile([file], [root.join("proto")]).expect("the interface is valid");
    // In the order of their names, so that the same annotations are always stored as the same bytes.
    let builder = tonic_prost_build::configure().out_dir(folder.path()).btree_map(".v2.EncryptedObject");
    builder.compile_fds(descriptors).expect("code can be made");
    let made = std::fs::read_to_string(folder.path().join(format!("{package}.rs"))).expect("it was made");
    let kept = root.join(format!("src/generated/{package}.rs"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&kept, &made).expect("the folder is writable");
    }
    let is_same = std::fs::read_to_string(&kept).is_ok_and(|text| text == made);
    assert!(is_same, "{} is not what proto/ says; UPDATE=1 makes it anew", kept.display());
}

#[test]
fn the_messages_are_made_from_the_interface() {
    check("v2.proto", "v2");
    check("externaljwt.proto", "v1");
}
