//! Is the code of etcd's messages made from `proto/`? `UPDATE=1` makes it anew. No `protoc` is needed: the compiler is a crate.

use std::path::Path;

#[test]
fn the_messages_are_made_from_the_interface() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let descriptors = protox::compile(["etcd.proto"], [root.join("proto")]).expect("the interface is valid");
    tonic_prost_build::configure()
        .build_server(false)
        .out_dir(folder.path())
        .compile_fds(descriptors)
        .expect("code can be made");
    let made = std::fs::read_to_string(folder.path().join("etcdserverpb.rs")).expect("it was made");
    let kept = root.join("src/etcd/generated/etcdserverpb.rs");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&kept, &made).expect("the folder is writable");
    }
    let is_same = std::fs::read_to_string(&kept).is_ok_and(|text| text == made);
    assert!(is_same, "{} is not what proto/ says; UPDATE=1 makes it anew", kept.display());
}
