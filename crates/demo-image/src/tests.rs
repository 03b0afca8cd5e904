//! The archive, read back by what it says about itself.

use std::collections::BTreeMap;
use std::io::Read;

use super::*;

fn entries(archive: &[u8]) -> BTreeMap<String, (EntryType, u32, Vec<u8>)> {
    let mut archive = tar::Archive::new(archive);
    let read = |entry: std::io::Result<tar::Entry<&[u8]>>| {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        let target = entry.link_name().unwrap().map(|target| target.display().to_string().into_bytes());
        let path = entry.path().unwrap().display().to_string();
        (path, (entry.header().entry_type(), entry.header().mode().unwrap(), target.unwrap_or(bytes)))
    };
    archive.entries().unwrap().map(read).collect()
}

/// The blob that a descriptor names, checked against its digest and size.
fn blob(files: &BTreeMap<String, (EntryType, u32, Vec<u8>)>, descriptor: &serde_json::Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let bytes = &files[&format!("blobs/sha256/{digest}")].2;
    assert_eq!(hash(bytes), digest);
    assert_eq!(descriptor["size"].as_u64().unwrap(), bytes.len() as u64);
    bytes.clone()
}

#[test]
fn the_archive_is_a_whole_oci_layout() {
    let files = entries(&archive());
    let json = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
    assert_eq!(json(&files["oci-layout"].2)["imageLayoutVersion"], "1.0.0");
    let index = json(&files["index.json"].2);
    let names: Vec<_> = index["manifests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["annotations"]["io.containerd.image.name"].as_str().unwrap())
        .collect();
    assert_eq!(names, [NAME, VERSIONED_NAME]);
    assert_eq!(index["manifests"][0]["digest"], digest());
    let manifest = json(&blob(&files, &index["manifests"][0]));
    let config = json(&blob(&files, &manifest["config"]));
    assert_eq!(config["config"]["Entrypoint"], json!(["/demo"]));
    assert_eq!(config["config"]["Cmd"], json!(["serve"]));
    assert!(config["config"].get("User").is_none());
    assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
    let layer = entries(&blob(&files, &manifest["layers"][0]));
    assert_eq!(layer["demo"], (EntryType::Regular, 0o755, program()));
    assert_eq!(layer["bin/cat"], (EntryType::Symlink, 0o777, b"/demo".to_vec()));
    assert_eq!(layer["tmp/"].1, 0o1777);
    assert!(String::from_utf8(layer["etc/passwd"].2.clone()).unwrap().contains("nobody:x:65534:"));
}

#[test]
fn the_archive_is_the_same_every_time() {
    assert_eq!(archive(), archive());
}
