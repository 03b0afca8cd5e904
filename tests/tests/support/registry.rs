//! A real registry on a node's machine, and images for it, well-meant and not.
//!
//! Images are put where the registry keeps them, as a push would have done; how one pushes is not our matter.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::{Machine, machine};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// `bcrypt` of `secret`, for the user `user`.
const PASSWORDS: &str = "user:$2b$05$XRxRNqJ7bA7o4gEHVMxaL.cPaM8typGZxXLsQkGN4EBv4eILMlfbG\n";

pub struct Registry {
    machine: Arc<Machine>,
    folder: PathBuf,
    process: Option<Child>,
    pub address: String,
}

impl Registry {
    /// `more` is configuration beyond storage and address.
    pub fn start(machine: &Arc<Machine>, folder: &Path, address: &str, more: &str) -> Registry {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("passwords"), PASSWORDS).unwrap();
        let config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {address}\n{more}",
            folder.join("data").display(),
        );
        let config = config.replace("{folder}", folder.to_str().unwrap());
        std::fs::write(folder.join("config.yml"), config).unwrap();
        let mut registry =
            Registry { machine: machine.clone(), folder: folder.into(), process: None, address: address.into() };
        registry.open();
        registry
    }

    pub fn open(&mut self) {
        let mut command = self.machine.command("docker-registry");
        command.arg("serve").arg(self.folder.join("config.yml"));
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.process = Some(process.expect("the registry's package is installed"));
        let begun = Instant::now();
        while machine::connect_within(&self.machine.network(), &self.address).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the registry does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Nobody answers at its address any more.
    pub fn close(&mut self) {
        let Some(mut outer) = self.process.take() else { return };
        let inside = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", outer.id())).unwrap_or_default();
        for pid in
            inside.split_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = outer.wait();
    }

    pub fn name(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address)
    }

    /// Puts an image there under a name and a tag; answers the digest of its manifest.
    pub fn put(&self, repository: &str, tag: &str, image: &Image) -> String {
        for blob in image.layers.iter().chain([&image.config]) {
            self.blob(blob);
            self.link(repository, "_layers", blob);
        }
        self.manifest(repository, tag, &image.manifest)
    }

    /// An index of images for several architectures.
    pub fn put_index(&self, repository: &str, tag: &str, images: &[(&Image, &str)]) -> String {
        let manifests: Vec<Value> = images
            .iter()
            .map(|(image, architecture)| {
                self.put(repository, architecture, image);
                let digest = digest_of(&image.manifest);
                json!({"mediaType": MANIFEST, "digest": digest, "size": image.manifest.len(),
                    "platform": {"os": "linux", "architecture": architecture}})
            })
            .collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        self.manifest(repository, tag, index.to_string().as_bytes())
    }

    fn manifest(&self, repository: &str, tag: &str, manifest: &[u8]) -> String {
        self.blob(manifest);
        self.link(repository, "_manifests/revisions", manifest);
        self.link(repository, &format!("_manifests/tags/{tag}/index"), manifest);
        let current = self.repository(repository).join(format!("_manifests/tags/{tag}/current"));
        std::fs::create_dir_all(&current).unwrap();
        std::fs::write(current.join("link"), digest_of(manifest)).unwrap();
        digest_of(manifest)
    }

    fn repository(&self, name: &str) -> PathBuf {
        self.folder.join("data/docker/registry/v2/repositories").join(name)
    }

    fn blob(&self, content: &[u8]) {
        let digest = digest_of(content);
        let hex = digest.strip_prefix("sha256:").unwrap();
        let folder = self.folder.join("data/docker/registry/v2/blobs/sha256").join(&hex[..2]).join(hex);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("data"), content).unwrap();
    }

    fn link(&self, repository: &str, kind: &str, content: &[u8]) {
        let digest = digest_of(content);
        let folder = self.repository(repository).join(kind).join(digest.replace(':', "/"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("link"), digest).unwrap();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.close();
    }
}

pub struct Image {
    pub config: Vec<u8>,
    pub manifest: Vec<u8>,
    pub layers: Vec<Vec<u8>>,
}

impl Image {
    pub fn of(architecture: &str, layers: Vec<Vec<u8>>) -> Image {
        let diff_ids: Vec<String> = layers.iter().map(|layer| digest_of(layer)).collect();
        let config = json!({"architecture": architecture, "os": "linux", "config": {"Cmd": ["/bin/busybox", "sh"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let config = config.to_string().into_bytes();
        let descriptor = |kind: &str, blob: &[u8]| json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest_of(blob), "size": blob.len()});
        let listed: Vec<Value> = layers.iter().map(|layer| descriptor("layer.v1.tar", layer)).collect();
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST,
            "config": descriptor("config.v1+json", &config), "layers": listed});
        Image { config, manifest: manifest.to_string().into_bytes(), layers }
    }

    /// Busybox, and a file that tells one image from another.
    pub fn saying(word: &str) -> Image {
        Image::of("amd64", vec![busybox(), Layer::default().file("word", word.as_bytes()).finish()])
    }

    /// Busybox and one more layer.
    pub fn with(layer: Layer) -> Image {
        Image::of("amd64", vec![busybox(), layer.finish()])
    }

    /// The archive of an OCI layout with this one image under this name.
    pub fn archive(&self, name: &str) -> Vec<u8> {
        let descriptor = json!({"mediaType": MANIFEST, "digest": digest_of(&self.manifest), "size": self.manifest.len(),
            "annotations": {"io.containerd.image.name": name}});
        let index = json!({"schemaVersion": 2, "manifests": [descriptor]}).to_string();
        let mut layout = Layer::default()
            .file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)
            .file("index.json", index.as_bytes());
        for blob in self.layers.iter().chain([&self.config, &self.manifest]) {
            layout = layout.file(&format!("blobs/{}", digest_of(blob).replace(':', "/")), blob);
        }
        layout.finish()
    }
}

fn busybox() -> Vec<u8> {
    let program = std::fs::read("/bin/busybox").unwrap();
    Layer::default().entry(tar::EntryType::Regular, "bin/busybox", "", 0o755, &program).finish()
}

pub fn digest_of(content: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(content)))
}

/// A layer entry by entry, with names as they are, however hostile.
pub struct Layer(tar::Builder<Vec<u8>>);

impl Default for Layer {
    fn default() -> Layer {
        Layer(tar::Builder::new(Vec::new()))
    }
}

impl Layer {
    pub fn file(self, path: &str, content: &[u8]) -> Layer {
        self.entry(tar::EntryType::Regular, path, "", 0o644, content)
    }

    pub fn symlink(self, path: &str, target: &str) -> Layer {
        self.entry(tar::EntryType::Symlink, path, target, 0o777, b"")
    }

    pub fn hardlink(self, path: &str, target: &str) -> Layer {
        self.entry(tar::EntryType::Link, path, target, 0o644, b"")
    }

    fn entry(mut self, kind: tar::EntryType, path: &str, link: &str, mode: u32, content: &[u8]) -> Layer {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        header.set_size(content.len() as u64);
        let raw = header.as_mut_bytes();
        raw[..path.len()].copy_from_slice(path.as_bytes());
        raw[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    pub fn finish(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// An authority, a certificate that it vouches for with this address, and one for a client, in a folder.
pub fn certificates(folder: &Path, address: &str) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    std::fs::write(folder.join("ca.pem"), authority.self_signed(&authority_key).unwrap().pem()).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    for (name, subject) in [("server", address), ("client", "client.example")] {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec![subject.to_owned()]).unwrap();
        let usage = match name {
            "server" => rcgen::ExtendedKeyUsagePurpose::ServerAuth,
            _ => rcgen::ExtendedKeyUsagePurpose::ClientAuth,
        };
        parameters.extended_key_usages = vec![usage];
        let certificate = parameters.signed_by(&key, &issuer).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}
