//! The built-in demo image: a small web server and a handful of commands, carried in the knarr binary itself, so that the
//! first pod of a cluster needs no registry. The program is in `program/`; build.rs compiles it.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// The name under which a pod asks for it.
pub const NAME: &str = "knarr.dev/demo:latest";
/// The same image under the version that it belongs to.
pub const VERSIONED_NAME: &str = concat!("knarr.dev/demo:", env!("CARGO_PKG_VERSION"));

static PACKED: &[u8] = include_bytes!(env!("DEMO_PROGRAM_PACKED"));

/// The commands that have a link in /bin. `applets_are_all_linked` compares with what the program itself says.
static APPLETS: &[&str] = &[
    "serve",
    "get",
    "lookup",
    "connect",
    "tcp-echo",
    "udp-echo",
    "http-echo",
    "sleep",
    "ignore-term",
    "crash",
    "exit",
    "log",
    "eat-memory",
    "spin",
    "fork-bomb",
    "true",
    "false",
    "cat",
    "write",
    "echo",
    "ls",
    "stat",
    "mkdir",
    "rm",
    "touch",
    "test",
    "env",
    "id",
    "hostname",
    "mounts",
    "date",
    "sh",
    "tar",
];

static PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n";
static GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";

/// The static program that is in the image.
pub fn program() -> Vec<u8> {
    let mut program = Vec::new();
    GzDecoder::new(PACKED).read_to_end(&mut program).expect("what the build has packed can be unpacked");
    program
}

/// An OCI image layout as one tar file: the same bytes from the same build.
pub fn archive() -> Vec<u8> {
    let layer = layer();
    let config = config(&layer);
    let manifest = manifest(&config, &layer);
    let mut archive = Archive::new();
    archive.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#);
    archive.file("index.json", 0o644, &index(&manifest));
    archive.directory("blobs/", 0o755);
    archive.directory("blobs/sha256/", 0o755);
    for blob in [&manifest, &config, &layer] {
        archive.file(&format!("blobs/sha256/{}", hash(blob)), 0o644, blob);
    }
    archive.finish()
}

/// The digest of the image's manifest, under which it is known in references.
pub fn digest() -> String {
    let layer = layer();
    format!("sha256:{}", hash(&manifest(&config(&layer), &layer)))
}

fn index(manifest: &[u8]) -> Vec<u8> {
    let entry = |name: &str| {
        let tag = name.rsplit(':').next().unwrap_or(name);
        json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": format!("sha256:{}", hash(manifest)),
            "size": manifest.len(),
            "platform": platform(),
            // The second annotation is the tag alone, by the letter of the format; containerd reads whole names from the first.
            "annotations": { "io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag },
        })
    };
    to_bytes(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry(NAME), entry(VERSIONED_NAME)],
    }))
}

fn manifest(config: &[u8], layer: &[u8]) -> Vec<u8> {
    to_bytes(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": format!("sha256:{}", hash(config)),
            "size": config.len(),
        },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": format!("sha256:{}", hash(layer)),
            "size": layer.len(),
        }],
    }))
}

fn config(layer: &[u8]) -> Vec<u8> {
    let platform = platform();
    to_bytes(&json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": platform["architecture"],
        "os": platform["os"],
        "config": {
            "Entrypoint": ["/demo"],
            "Cmd": ["serve"],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "WorkingDir": "/",
            "ExposedPorts": { "8080/tcp": {} },
            "Labels": { "org.opencontainers.image.title": "knarr demo" },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", hash(layer))] },
        "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "knarr" }],
    }))
}

fn platform() -> serde_json::Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({ "architecture": architecture, "os": "linux" })
}

fn layer() -> Vec<u8> {
    let mut layer = Archive::new();
    for path in ["bin/", "dev/", "etc/", "proc/", "root/", "sys/", "usr/", "var/"] {
        layer.directory(path, if path == "root/" { 0o700 } else { 0o755 });
    }
    layer.directory("tmp/", 0o1777);
    layer.file("demo", 0o755, &program());
    for applet in APPLETS {
        layer.link(&format!("bin/{applet}"), "/demo");
    }
    layer.link("bin/[", "/demo");
    layer.file("etc/passwd", 0o644, PASSWD.as_bytes());
    layer.file("etc/group", 0o644, GROUP.as_bytes());
    layer.finish()
}

/// A tar file with nothing in it that changes from run to run.
struct Archive {
    builder: Builder<Vec<u8>>,
}

impl Archive {
    fn new() -> Archive {
        Archive { builder: Builder::new(Vec::new()) }
    }

    fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) {
        self.append(EntryType::Regular, path, mode, None, bytes);
    }

    fn directory(&mut self, path: &str, mode: u32) {
        self.append(EntryType::Directory, path, mode, None, &[]);
    }

    fn link(&mut self, path: &str, target: &str) {
        self.append(EntryType::Symlink, path, 0o777, Some(target), &[]);
    }

    fn append(&mut self, kind: EntryType, path: &str, mode: u32, target: Option<&str>, bytes: &[u8]) {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(bytes.len() as u64);
        if let Some(target) = target {
            header.set_link_name(target).expect("our own names fit into a header");
        }
        self.builder.append_data(&mut header, path, bytes).expect("memory takes every write");
    }

    fn finish(self) -> Vec<u8> {
        self.builder.into_inner().expect("memory takes every write")
    }
}

fn hash(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn to_bytes(value: &serde_json::Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain values can be written")
}

#[cfg(test)]
mod tests;
