//! Is the code of the messages made from `proto/`? `UPDATE=1` makes it anew. No `protoc` is needed: the compiler is a crate.

use std::path::Path;

#[test]
fn the_messages_are_made_from_the_interfaces() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (interface, code) in [("csi.v1.proto", "csi.v1.rs"), ("pluginregistration.proto", "pluginregistration.rs")] {
        let folder = tempfile::tempdir().expect("a folder");
        let descriptors = protox::compile([interface], [root.join("proto")]).expect("the interface is valid");
        // `prost` has `BoolValue` itself: no other crate is needed for it.
        let builder = tonic_prost_build::configure().out_dir(folder.path());
        builder.compile_fds(descriptors).expect("code can be made");
        let made = std::fs::read_to_string(folder.path().join(code)).expect("it was made");
        let kept = root.join("src/generated").join(code);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&kept, &made).expect("the folder is writable");
        }
        let is_same = std::fs::read_to_string(&kept).is_ok_and(|text| text == made);
        assert!(is_same, "{} is not what proto/ says; UPDATE=1 makes it anew", kept.display());
    }
}
