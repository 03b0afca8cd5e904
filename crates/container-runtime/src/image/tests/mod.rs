//! Images made in the test, and stores to put them in.

mod layers;
mod archives;
mod stores;
mod registries;
mod liars;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::manifest::{DOCKER_MANIFEST, OCI_MANIFEST, digest_of, digits};
use super::{Images, ImagesConfig, Tuning};

/// A store in a folder of its own.
struct Fixture {
    images: Arc<Images>,
    folder: tempfile::TempDir,
}

impl Fixture {
    async fn new() -> Fixture {
        Fixture::with("", |_| {}).await
    }

    async fn with(registries: &str, tune: impl FnOnce(&mut Tuning)) -> Fixture {
        // Whoever is first installs it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let images = open(folder.path(), registries, tune).await;
        Fixture { images, folder }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn count(&self, name: &str) -> usize {
        std::fs::read_dir(self.root().join(name)).unwrap().count()
    }

    /// Neither images nor layers nor anything half-done.
    fn assert_empty(&self) {
        assert!(self.images.list().is_empty());
        for name in ["layers", "configs", "work"] {
            assert_eq!(self.count(name), 0, "{name}");
        }
    }
}

/// No registry is asked for it.
const BUILT_IN: &str = "built.in/image:latest";

async fn open(folder: &Path, registries: &str, tune: impl FnOnce(&mut Tuning)) -> Arc<Images> {
    let mut tuning = Tuning { silence_max: Duration::from_secs(10), ..Default::default() };
    tuning.layers.disk_reserve_bytes = 1 << 20;
    tune(&mut tuning);
    let registries = super::registries::Registries::parse(registries).unwrap();
    let config = ImagesConfig {
        root_dir: folder.join("store"),
        registries,
        layer_pulls_max: 3,
        built_in: vec![BUILT_IN.into()],
    };
    Images::open_tuned(config, tuning).await.unwrap()
}

/// Bytes of an archive, entry by entry.
struct Tar(tar::Builder<Vec<u8>>);

impl Tar {
    fn new() -> Tar {
        Tar(tar::Builder::new(Vec::new()))
    }

    fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        header.set_size(size);
        header
    }

    /// With the name as it is, however hostile.
    fn entry(mut self, mut header: tar::Header, path: &str, link: &str, content: &[u8]) -> Tar {
        assert!(path.len() < 100 && link.len() < 100);
        let raw = header.as_mut_bytes();
        raw[..100].fill(0);
        raw[..path.len()].copy_from_slice(path.as_bytes());
        raw[157..257].fill(0);
        raw[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    fn file(self, path: &str, content: &[u8]) -> Tar {
        self.entry(Tar::header(tar::EntryType::Regular, 0o644, content.len() as u64), path, "", content)
    }

    fn folder(self, path: &str, mode: u32) -> Tar {
        self.entry(Tar::header(tar::EntryType::Directory, mode, 0), path, "", b"")
    }

    fn symlink(self, path: &str, target: &str) -> Tar {
        self.entry(Tar::header(tar::EntryType::Symlink, 0o777, 0), path, target, b"")
    }

    fn hardlink(self, path: &str, target: &str) -> Tar {
        self.entry(Tar::header(tar::EntryType::Link, 0o644, 0), path, target, b"")
    }

    fn finish(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

#[derive(Clone, Copy)]
enum Packing {
    None,
    Gzip,
    Zstd,
}

fn pack(bytes: &[u8], packing: Packing) -> Vec<u8> {
    match packing {
        Packing::None => bytes.to_vec(),
        Packing::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut encoder, bytes).unwrap();
            encoder.finish().unwrap()
        }
        Packing::Zstd => zstd::encode_all(bytes, 1).unwrap(),
    }
}

/// An image and all of its blobs.
#[derive(Clone)]
struct TestImage {
    config: Vec<u8>,
    manifest: Vec<u8>,
    media_type: &'static str,
    /// As they are in the registry, and unpacked.
    layers: Vec<(Vec<u8>, Vec<u8>)>,
}

impl TestImage {
    fn new(layers: &[(Vec<u8>, Packing)]) -> TestImage {
        TestImage::of(layers, "amd64", OCI_MANIFEST)
    }

    fn small(text: &str) -> TestImage {
        let layer = Tar::new().folder("etc/", 0o755).file("etc/motd", text.as_bytes()).finish();
        TestImage::new(&[(layer, Packing::Gzip)])
    }

    fn docker(layers: &[(Vec<u8>, Packing)]) -> TestImage {
        TestImage::of(layers, "amd64", DOCKER_MANIFEST)
    }

    fn of(layers: &[(Vec<u8>, Packing)], architecture: &str, media_type: &'static str) -> TestImage {
        let diff_ids: Vec<String> = layers.iter().map(|(layer, _)| digest_of(layer)).collect();
        let config = serde_json::json!({
            "architecture": architecture, "os": "linux",
            "config": { "Env": ["A=b"], "Entrypoint": ["/bin/x"], "Cmd": ["y"], "User": "7", "WorkingDir": "/w", "StopSignal": "SIGINT" },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let config = serde_json::to_vec(&config).unwrap();
        let layers: Vec<_> = layers.iter().map(|(layer, packing)| (pack(layer, *packing), layer.clone())).collect();
        let descriptor = |media_type: &str, blob: &[u8]| serde_json::json!({ "mediaType": media_type, "digest": digest_of(blob), "size": blob.len() });
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": media_type,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": layers.iter().map(|(blob, _)| descriptor("application/vnd.oci.image.layer.v1.tar+gzip", blob)).collect::<Vec<_>>(),
        });
        TestImage { config, manifest: serde_json::to_vec(&manifest).unwrap(), media_type, layers }
    }

    fn id(&self) -> String {
        digest_of(&self.config)
    }

    fn digest(&self) -> String {
        digest_of(&self.manifest)
    }

    fn blobs(&self) -> Vec<Vec<u8>> {
        std::iter::once(self.config.clone()).chain(self.layers.iter().map(|(blob, _)| blob.clone())).collect()
    }

    /// The files of an OCI layout, under these names.
    fn layout(images: &[(&TestImage, &str)]) -> Vec<(String, Vec<u8>)> {
        let descriptor = |(image, name): &(&TestImage, &str)| {
            serde_json::json!({
                "mediaType": image.media_type, "digest": image.digest(), "size": image.manifest.len(),
                "annotations": { "io.containerd.image.name": name },
            })
        };
        let index =
            serde_json::json!({ "schemaVersion": 2, "manifests": images.iter().map(descriptor).collect::<Vec<_>>() });
        let mut files = vec![
            ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
            ("index.json".to_owned(), serde_json::to_vec(&index).unwrap()),
        ];
        for (image, _) in images {
            for blob in image.blobs().into_iter().chain([image.manifest.clone()]) {
                files.push((format!("blobs/sha256/{}", digits(&digest_of(&blob))), blob));
            }
        }
        files
    }
}

fn tar_of(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    files.iter().fold(Tar::new(), |tar, (name, content)| tar.file(name, content)).finish()
}
