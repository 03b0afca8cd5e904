//! One layer at a time: everything a layer may hold, and everything it must not do.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::super::error::ImageError;
use super::super::layer::{LayerLimits, Unpacked, unpack};
use super::super::manifest::{Configuration, Manifest, digest_of};
use super::{Packing, Tar, pack};

fn limits() -> LayerLimits {
    LayerLimits { disk_reserve_bytes: 1 << 20, ..Default::default() }
}

fn unpack_with(layer: &[u8], packing: Packing, target: &Path, limits: &LayerLimits) -> Result<Unpacked, ImageError> {
    let mut blob = tempfile::tempfile().unwrap();
    blob.write_all(&pack(layer, packing)).unwrap();
    std::io::Seek::rewind(&mut blob).unwrap();
    unpack(blob, target, &digest_of(layer), limits, &AtomicBool::new(false))
}

#[track_caller]
fn unpacked(layer: &[u8]) -> (tempfile::TempDir, Unpacked) {
    let folder = tempfile::tempdir().unwrap();
    let unpacked = unpack_with(layer, Packing::Gzip, folder.path(), &limits()).unwrap();
    (folder, unpacked)
}

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 256];
    let length = rustix::fs::lgetxattr(path, name, &mut value).ok()?;
    Some(value[..length].to_vec())
}

#[test]
fn all_kinds_of_files_arrive_with_all_they_have() {
    let mut owned = Tar::header(tar::EntryType::Regular, 0o4751, 3);
    owned.set_uid(1234);
    owned.set_gid(3_000_000);
    let mut device = Tar::header(tar::EntryType::Char, 0o666, 0);
    device.set_device_major(1).unwrap();
    device.set_device_minor(3).unwrap();
    let layer = Tar::new()
        .folder("bin/", 0o1777)
        .entry(owned, "bin/su", "", b"abc")
        .symlink("bin/sh", "/bin/su")
        .hardlink("bin/again", "bin/su")
        .entry(device, "null", "", b"")
        .entry(Tar::header(tar::EntryType::Fifo, 0o600, 0), "pipe", "", b"")
        .file("deep/er/file", b"")
        .finish();
    for packing in [Packing::None, Packing::Gzip, Packing::Zstd] {
        let folder = tempfile::tempdir().unwrap();
        let unpacked = unpack_with(&layer, packing, folder.path(), &limits()).unwrap();
        let at = |name: &str| std::fs::symlink_metadata(folder.path().join(name)).unwrap();
        let program = at("bin/su");
        assert_eq!((program.mode() & 0o7777, program.uid(), program.gid()), (0o4751, 1234, 3_000_000));
        assert_eq!((program.mtime(), program.nlink()), (1_000_000_000, 2));
        assert_eq!((at("bin").mode() & 0o7777, at("bin").mtime()), (0o1777, 1_000_000_000));
        assert_eq!(std::fs::read_link(folder.path().join("bin/sh")).unwrap(), Path::new("/bin/su"));
        assert!(at("null").file_type().is_char_device() && at("null").rdev() == rustix::fs::makedev(1, 3));
        assert!(at("pipe").file_type().is_fifo());
        assert_eq!(unpacked, Unpacked { bytes: 3, inodes: 7, implicit: vec![b"deep".to_vec(), b"deep/er".to_vec()] });
    }
}

#[test]
fn long_names_and_extended_attributes_arrive() {
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(150));
    // VFS_CAP_REVISION_2 with bits whose bytes are line ends.
    let capability = [1, 0, 0, 2, 0x0a, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_data(&mut Tar::header(tar::EntryType::Regular, 0o644, 2), &long, &b"hi"[..]).unwrap();
    let attributes: [(&str, &[u8]); 4] = [
        ("SCHILY.xattr.security.capability", &capability),
        ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
        ("path", b"ping"),
        ("mtime", b"1000000001.5"),
    ];
    builder.append_pax_extensions(attributes).unwrap();
    let mut header = Tar::header(tar::EntryType::Regular, 0o755, 0);
    builder.append_data(&mut header, "other", &b""[..]).unwrap();
    let (folder, _) = unpacked(&builder.into_inner().unwrap());
    assert_eq!(std::fs::read(folder.path().join(&long)).unwrap(), b"hi");
    let ping = folder.path().join("ping");
    assert_eq!(xattr(&ping, "security.capability").as_deref(), Some(&capability[..]));
    assert_eq!(xattr(&ping, "trusted.overlay.opaque"), None);
    let metadata = std::fs::metadata(&ping).unwrap();
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_001, 500_000_000));
}

#[test]
fn whiteouts_become_what_overlayfs_knows() {
    let layer = Tar::new()
        .folder("etc/", 0o755)
        .file("etc/.wh.passwd", b"")
        .folder("var/", 0o755)
        .file("var/.wh..wh..opq", b"")
        .file("var/new", b"x")
        .file("etc/back", b"new")
        .file("etc/.wh.back", b"")
        .file(".wh..wh.plnk", b"")
        .finish();
    let (folder, _) = unpacked(&layer);
    let gone = std::fs::symlink_metadata(folder.path().join("etc/passwd")).unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    assert_eq!(xattr(&folder.path().join("var"), "trusted.overlay.opaque").as_deref(), Some(&b"y"[..]));
    assert_eq!(std::fs::read(folder.path().join("etc/back")).unwrap(), b"new");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    for bad in ["a/.wh.", "a/.wh..", "a/.wh..."] {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            unpack_with(&Tar::new().file(bad, b"").finish(), Packing::None, folder.path(), &limits()).is_err(),
            "{bad}"
        );
    }
}

#[test]
fn nothing_is_written_outside() {
    let outer = tempfile::tempdir().unwrap();
    let outside = outer.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), b"secret").unwrap();
    let absolute = outside.to_str().unwrap();
    let cases = [
        Tar::new().file("../outside/a", b"x"),
        Tar::new().file("../../../../../../../../tmp/../outside/a", b"x"),
        Tar::new().file(&format!("{absolute}/a"), b"x"),
        Tar::new().symlink("link", absolute).file("link/a", b"x"),
        Tar::new().symlink("link", "../outside").file("link/a", b"x"),
        Tar::new().symlink("a", "..").symlink("b", "a/../outside").file("b/a", b"x"),
        Tar::new().symlink("link", &format!("{absolute}/a")).file("link", b"x"),
        Tar::new().hardlink("link", &format!("{absolute}/secret")),
        Tar::new().hardlink("link", "../outside/secret"),
        Tar::new().symlink("way", absolute).hardlink("link", "way/secret"),
        Tar::new().symlink("link", absolute).file("link/.wh.secret", b""),
        Tar::new().symlink("link", absolute).file("link/.wh..wh..opq", b""),
        Tar::new().symlink("link", absolute).folder("link/", 0o000),
        Tar::new().symlink("link", "/proc/self/root").file(&format!("link{absolute}/a"), b"x"),
        Tar::new().symlink("loop", "loop").file("loop/a", b"x"),
        Tar::new().symlink("nowhere", "/no/where").file("nowhere/a", b"x"),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let root = outer.path().join(format!("root-{number}"));
        std::fs::create_dir(&root).unwrap();
        // Refused or contained: both are fine.
        let _ = unpack_with(&case.finish(), Packing::None, &root, &limits());
        let names: Vec<_> = std::fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"], "case {number}");
        let secret = std::fs::metadata(outside.join("secret")).unwrap();
        assert_eq!((secret.nlink(), secret.len()), (1, 6), "case {number}");
        assert_eq!(xattr(&outside, "trusted.overlay.opaque"), None);
        assert_eq!(std::fs::metadata(&outside).unwrap().mode() & 0o777, 0o755, "case {number}");
    }
}

#[test]
fn names_that_climb_are_refused_and_links_stay_inside() {
    let climbing = [
        Tar::new().file("../../etc/../x", b"1"),
        Tar::new().file("a/../../x", b"1"),
        Tar::new().folder("../", 0o755),
        Tar::new().symlink("../link", "x"),
        Tar::new().file("a", b"1").hardlink("link", "../a"),
        Tar::new().file("../.wh.x", b""),
    ];
    for case in climbing {
        let folder = tempfile::tempdir().unwrap();
        let error = unpack_with(&case.finish(), Packing::None, folder.path(), &limits()).unwrap_err().to_string();
        assert!(error.ends_with(": a path that climbs out of the image"), "{error}");
    }
    let (folder, _) = unpacked(&Tar::new().file("a/../x", b"1").symlink("up", "/../..").file("up/y", b"2").finish());
    assert_eq!(std::fs::read(folder.path().join("x")).unwrap(), b"1");
    assert_eq!(std::fs::read(folder.path().join("y")).unwrap(), b"2");
}

#[test]
fn later_entries_take_the_place_of_earlier_ones() {
    let layer = Tar::new()
        .folder("a/", 0o755)
        .file("a/b", b"1")
        .symlink("s", "a/b")
        .file("s", b"2")
        .file("a", b"3")
        .file("f", b"4")
        .folder("f/", 0o700)
        .finish();
    let (folder, _) = unpacked(&layer);
    assert_eq!(std::fs::read(folder.path().join("s")).unwrap(), b"2");
    assert_eq!(std::fs::read(folder.path().join("a")).unwrap(), b"3");
    assert!(folder.path().join("f").is_dir());
}

#[test]
fn bombs_are_refused() {
    let zeros = vec![0; 4 << 20];
    let layer = Tar::new().file("zeros", &zeros).finish();
    let refused = |limits: LayerLimits, expected: &str| {
        let folder = tempfile::tempdir().unwrap();
        let error = unpack_with(&layer, Packing::Gzip, folder.path(), &limits).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge(_)), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    };
    refused(LayerLimits { bytes_max: 1 << 20, ..limits() }, "larger than 1048576 bytes");
    refused(LayerLimits { ratio_max: 20, ratio_free_bytes: 1 << 20, ..limits() }, "unpacks to more than 1048576 bytes");
    refused(LayerLimits { disk_reserve_bytes: u64::MAX, ..limits() }, "no space left on device");
    refused(LayerLimits { entries_max: 0, ..limits() }, "more than 0 entries");
}

#[test]
fn a_layer_that_is_another_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let layer = Tar::new().file("a", b"x").finish();
    let blob = folder.path().join("blob");
    std::fs::write(&blob, &layer).unwrap();
    let target = folder.path().join("fs");
    std::fs::create_dir(&target).unwrap();
    let error = unpack(File::open(&blob).unwrap(), &target, &digest_of(b"other"), &limits(), &AtomicBool::new(false))
        .unwrap_err();
    assert!(error.to_string().starts_with("wrong diff id calculated on extraction"), "{error}");
    let packed = pack(&layer, Packing::Gzip);
    std::fs::write(&blob, &packed[..packed.len() / 2]).unwrap();
    assert!(
        unpack(File::open(&blob).unwrap(), &target, &digest_of(&layer), &limits(), &AtomicBool::new(false)).is_err()
    );
}

#[test]
fn sparse_files_keep_their_holes() {
    let folder = tempfile::tempdir().unwrap();
    let sparse = File::create(folder.path().join("sparse")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"middle", 4 << 20).unwrap();
    for format in ["--format=gnu", "--format=posix"] {
        let output = std::process::Command::new("tar")
            .args(["--sparse", format, "-cf", "-", "-C"])
            .arg(folder.path())
            .arg("sparse")
            .output()
            .unwrap();
        assert!(output.status.success() && output.stdout.len() < 1 << 20, "{format}");
        let (target, _) = unpacked(&output.stdout);
        let content = std::fs::read(target.path().join("sparse")).unwrap();
        assert_eq!((content.len(), &content[4 << 20..][..6]), (8 << 20, &b"middle"[..]), "{format}");
        assert!(std::fs::metadata(target.path().join("sparse")).unwrap().blocks() < 1000, "{format}");
    }
}

#[test]
fn whatever_a_layer_holds_stays_inside() {
    let outer = tempfile::tempdir().unwrap();
    let outside = outer.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), b"secret").unwrap();
    let absolute = outside.to_str().unwrap();
    let examples = [
        Tar::new()
            .folder("bin/", 0o755)
            .file("bin/a", b"abc")
            .symlink("bin/b", "/bin/a")
            .hardlink("c", "bin/a")
            .finish(),
        Tar::new().symlink("link", absolute).file("link/a", b"x").file("link/.wh.secret", b"").finish(),
        Tar::new()
            .symlink("a", "..")
            .symlink("b", "a/../outside")
            .folder("b/", 0o777)
            .file("../outside/x", b"y")
            .finish(),
    ];
    let words: [&[u8]; 9] =
        [b"../", b"/", b"outside", b"link/", b".wh.", b".wh..wh..opq", b"ustar\0", b"L", b"20 path=../outside/z\n"];
    // Small, so that a header that promises much ends soon.
    let limits = LayerLimits { bytes_max: 1 << 20, entries_max: 1000, ..limits() };
    fuzz::bytes("layer", &examples, &words, |input| {
        let root = tempfile::tempdir_in(outer.path()).unwrap();
        if let Ok(unpacked) = unpack_with(input, Packing::None, root.path(), &limits) {
            assert!(unpacked.bytes <= 1 << 20 && unpacked.inodes <= 1000);
        }
        let names: Vec<_> = std::fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"]);
        let secret = std::fs::metadata(outside.join("secret")).unwrap();
        assert_eq!((secret.nlink(), secret.len(), secret.mode() & 0o777), (1, 6, 0o644));
        assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 2, "the folder outside, and the layer's own");
    });
}

#[test]
fn manifests_and_configurations_name_only_digests() {
    let digest = digest_of(b"x");
    let descriptor = serde_json::json!({"mediaType": "m", "digest": digest, "size": 3});
    let manifest = serde_json::json!({"schemaVersion": 2, "config": descriptor, "layers": [descriptor, descriptor]});
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [descriptor]});
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [digest]},
        "config": {"User": "1:2", "Env": ["A=b"], "Cmd": ["x"], "WorkingDir": "/", "Volumes": {"/v": {}}},
    });
    fuzz::values("image-documents", &[manifest, index, config], |value, _| {
        let bytes = value.to_string().into_bytes();
        let digests: Vec<String> = match Manifest::parse(&bytes) {
            Ok(Manifest::Index(all)) => all.into_iter().map(|one| one.digest).collect(),
            Ok(Manifest::Image { config, layers }) => {
                assert!(value.get("manifests").is_none_or(serde_json::Value::is_null), "it cannot be both");
                layers.into_iter().chain([config]).map(|one| one.digest).collect()
            }
            Err(_) => Vec::new(),
        };
        let layers = Configuration::parse(&bytes).map(|read| read.diff_ids).unwrap_or_default();
        for digest in digests.iter().chain(&layers) {
            let digits = digest.strip_prefix("sha256:").expect("a digest");
            assert!(digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
        }
    });
}
