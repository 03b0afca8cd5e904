//! Images from files: OCI layouts (folder or tar) and what `docker save` writes, packed or not, several in one.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::Inner;
use super::error::{ImageError, disk};
use super::install::{blocking, install};
use super::layer::decompress;
use super::manifest::{Configuration, DOCUMENT_BYTES_MAX, Descriptor, Manifest, digest_of, digits};
use super::platform::Platform;
use super::pull::{no_match, verified};
use super::reference::{Reference, Version};
use super::root::Root;
use super::store::NewImage;
use super::tar::{Archive, Kind};
use super::work::Workspace;

const FILES_MAX: usize = 100_000;
const INDEX_DEPTH_MAX: usize = 3;
const NAME_CONTAINERD: &str = "io.containerd.image.name";
const NAME_OCI: &str = "org.opencontainers.image.ref.name";

/// Takes every image of an archive; gives the names (or ids) that are known now. All of it or nothing.
pub(crate) async fn import(inner: &Arc<Inner>, path: &Path) -> Result<Vec<String>, ImageError> {
    let result = import_all(inner, path).await;
    if result.is_err() {
        let inner = inner.clone();
        blocking(move || inner.store.sweep()).await?;
    }
    result.map_err(|error| error.within(format!("failed to import {}", path.display())))
}

async fn import_all(inner: &Arc<Inner>, path: &Path) -> Result<Vec<String>, ImageError> {
    let (task_inner, task_path) = (inner.clone(), path.to_owned());
    let (workspace, source, found) = blocking(move || {
        let workspace = Workspace::create(task_inner.store.root())?;
        let source = Source::open(&task_path, &workspace, task_inner.tuning.layers.disk_reserve_bytes)?;
        let found = find_images(&source)?;
        Ok((Arc::new(workspace), Arc::new(source), found))
    })
    .await?;
    if found.is_empty() {
        return Err(ImageError::Invalid("archive has no image for this machine".to_owned()));
    }
    let mut ready = Vec::new();
    for (number, image) in found.into_iter().enumerate() {
        // Each has a folder of its own, for layers are numbered from zero in each.
        let own = Arc::new(
            blocking({
                let (inner, _) = (inner.clone(), number);
                move || Workspace::create(inner.store.root())
            })
            .await?,
        );
        let fetch = |layer: usize| {
            let (source, blob) = (source.clone(), image.layers[layer].clone());
            blocking(move || source.layer(&blob)).boxed()
        };
        let layers = install(inner, &own, &image.configuration, &fetch).await?;
        ready.push((own, layers, image));
    }
    let inner = inner.clone();
    blocking(move || {
        let mut names = Vec::new();
        for (_own, layers, image) in ready {
            let committed = inner.store.commit(NewImage {
                config_bytes: image.config_bytes,
                configuration: image.configuration,
                layers,
                repo_tags: image.repo_tags.clone(),
                repo_digests: image.repo_digests,
                pinned: false,
            })?;
            if image.repo_tags.is_empty() { names.push(committed.id.clone()) } else { names.extend(image.repo_tags) }
        }
        drop(workspace);
        Ok(names)
    })
    .await
}

/// An image as an archive has it.
struct Found {
    config_bytes: Vec<u8>,
    configuration: Configuration,
    layers: Vec<Blob>,
    repo_tags: Vec<String>,
    repo_digests: Vec<String>,
}

/// A file of the archive, and what it must be where that is known.
#[derive(Clone)]
struct Blob {
    path: String,
    expected: Option<Descriptor>,
}

fn find_images(source: &Source) -> Result<Vec<Found>, ImageError> {
    // Newer archives of Docker are both; the index is the one that knows digests.
    if source.has("index.json") {
        return find_in_layout(source);
    }
    if source.has("manifest.json") {
        find_in_docker_archive(source)
    } else {
        Err(ImageError::Invalid("unrecognized image format: neither index.json nor manifest.json".to_owned()))
    }
}

fn find_in_layout(source: &Source) -> Result<Vec<Found>, ImageError> {
    let Manifest::Index(descriptors) = Manifest::parse(&source.document("index.json")?)? else {
        return Err(ImageError::Invalid("index.json is not an image index".to_owned()));
    };
    let docker_tags = docker_tags(source);
    let mut found: Vec<Found> = Vec::new();
    for descriptor in &descriptors {
        let Some((config, layers)) = manifest_of(source, descriptor, descriptors.len() == 1)? else { continue };
        let config_bytes = verified(source.document(&blob_path(&config.digest))?, &config)?;
        let mut names: Vec<Reference> = name_of(descriptor)?.into_iter().collect();
        if names.is_empty() {
            names = docker_tags.get(digits(&config.digest)).cloned().unwrap_or_default();
        }
        let digests = names.iter().map(|name| name.with_digest(&descriptor.digest).to_string()).collect();
        let layers =
            layers.into_iter().map(|layer| Blob { path: blob_path(&layer.digest), expected: Some(layer) }).collect();
        found.push(Found::new(config_bytes, layers, &names, digests)?);
    }
    Ok(found)
}

fn find_in_docker_archive(source: &Source) -> Result<Vec<Found>, ImageError> {
    let mut found = Vec::new();
    for entry in docker_manifest(source)? {
        let config_bytes = source.document(&entry.config)?;
        let stem = entry.config.rsplit('/').next().unwrap_or_default().trim_end_matches(".json");
        if stem.len() == 64 && digits(&digest_of(&config_bytes)) != stem {
            return Err(ImageError::Invalid(format!("{} does not match its digest", entry.config)));
        }
        let names: Vec<Reference> =
            entry.repo_tags.unwrap_or_default().iter().map(|tag| parse_name(tag)).collect::<Result<_, _>>()?;
        let layers = entry.layers.into_iter().map(|path| Blob { path, expected: None }).collect();
        found.push(Found::new(config_bytes, layers, &names, Vec::new())?);
    }
    Ok(found)
}

impl Found {
    fn new(
        config_bytes: Vec<u8>,
        layers: Vec<Blob>,
        names: &[Reference],
        digests: Vec<String>,
    ) -> Result<Found, ImageError> {
        let configuration = Configuration::parse(&config_bytes)?;
        if configuration.diff_ids.len() != layers.len() {
            return Err(ImageError::Invalid("mismatched image rootfs and manifest layers".to_owned()));
        }
        let config = &configuration.config;
        if !Platform::of_this_machine().runs(&config.os, &config.architecture) {
            return Err(no_match(&digest_of(&config_bytes)));
        }
        let is_tag = |name: &&Reference| matches!(name.version, Version::Tag(_));
        let repo_tags = names.iter().filter(is_tag).map(Reference::to_string).collect();
        Ok(Found { config_bytes, configuration, layers, repo_tags, repo_digests: digests })
    }
}

/// The manifest for this machine. What is for other machines only is passed over unless it is all there is.
fn manifest_of(
    source: &Source,
    top: &Descriptor,
    is_only: bool,
) -> Result<Option<(Descriptor, Vec<Descriptor>)>, ImageError> {
    let platform = Platform::of_this_machine();
    if let Some(for_platform) = &top.platform
        && !platform.runs(&for_platform.os, &for_platform.architecture)
    {
        return if is_only { Err(no_match(&top.digest)) } else { Ok(None) };
    }
    let mut descriptor = top.clone();
    for _ in 0..INDEX_DEPTH_MAX {
        let bytes = verified(source.document(&blob_path(&descriptor.digest))?, &descriptor)?;
        descriptor = match Manifest::parse(&bytes)? {
            Manifest::Image { config, layers } => return Ok(Some((config, layers))),
            Manifest::Index(manifests) => match platform.choose(&manifests) {
                Some(chosen) => chosen.clone(),
                None => return Err(no_match(&descriptor.digest)),
            },
        };
    }
    Err(ImageError::Invalid(format!("{}: indexes point to indexes", top.digest)))
}

/// A whole name, or only a tag, which names nothing.
fn name_of(descriptor: &Descriptor) -> Result<Option<Reference>, ImageError> {
    if let Some(name) = descriptor.annotations.get(NAME_CONTAINERD) {
        return parse_name(name).map(Some);
    }
    match descriptor.annotations.get(NAME_OCI) {
        Some(name) if name.contains(['/', ':']) => parse_name(name).map(Some),
        _ => Ok(None),
    }
}

fn parse_name(name: &str) -> Result<Reference, ImageError> {
    Reference::parse(name).map_err(|source| ImageError::Reference { image: name.to_owned(), source })
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    repo_tags: Option<Vec<String>>,
    #[serde(default, deserialize_with = "machinery::codec::null_as_default")]
    layers: Vec<String>,
}

fn docker_manifest(source: &Source) -> Result<Vec<DockerImage>, ImageError> {
    serde_json::from_slice(&source.document("manifest.json")?)
        .map_err(|error| ImageError::Invalid(format!("manifest.json: {error}")))
}

/// By the digits of the configuration's digest.
fn docker_tags(source: &Source) -> HashMap<String, Vec<Reference>> {
    if !source.has("manifest.json") {
        return HashMap::new();
    }
    let images = docker_manifest(source).unwrap_or_default();
    let stem = |path: &str| path.rsplit('/').next().unwrap_or_default().trim_end_matches(".json").to_owned();
    let tags = |image: DockerImage| {
        image.repo_tags.unwrap_or_default().iter().filter_map(|tag| Reference::parse(tag).ok()).collect()
    };
    images.into_iter().map(|image| (stem(&image.config), tags(image))).collect()
}

fn blob_path(digest: &str) -> String {
    format!("blobs/sha256/{}", digits(digest))
}

/// The files of an archive, by name. Names of a tar never become names on disk.
enum Source {
    Folder(Root),
    Tar(HashMap<String, PathBuf>),
}

impl Source {
    fn open(path: &Path, workspace: &Workspace, reserve: u64) -> Result<Source, ImageError> {
        let metadata = std::fs::metadata(path).map_err(disk("open", path))?;
        if metadata.is_dir() {
            return Ok(Source::Folder(Root::open(path).map_err(disk("open", path))?));
        }
        let file = linux::file::open_regular_followed(path).map_err(disk("open", path))?;
        let reader = decompress(file).map_err(disk("read", path))?;
        extract(reader, workspace, reserve).map(Source::Tar)
    }

    fn has(&self, path: &str) -> bool {
        self.file(path).is_ok()
    }

    fn file(&self, path: &str) -> Result<File, ImageError> {
        match self {
            Source::Folder(root) => root.open_file(path.as_bytes()).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => missing(path),
                _ => ImageError::Disk { step: format!("open {path}"), source: error },
            }),
            Source::Tar(files) => {
                let file = files.get(&normal(path)).ok_or_else(|| missing(path))?;
                linux::file::open_regular(file).map_err(disk("open", file))
            }
        }
    }

    fn document(&self, path: &str) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        let file = self.file(path)?;
        file.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(disk("read", Path::new(path)))?;
        if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
            Err(ImageError::Invalid(format!("{path} is larger than {DOCUMENT_BYTES_MAX} bytes")))
        } else {
            Ok(bytes)
        }
    }

    /// A layer's blob; without a digest of its own the unpacked layer's is checked alone.
    fn layer(&self, blob: &Blob) -> Result<File, ImageError> {
        let mut file = self.file(&blob.path)?;
        if let Some(expected) = &blob.expected {
            let mut hash = Sha256::new();
            let size = std::io::copy(&mut file, &mut hash).map_err(disk("read", Path::new(&blob.path)))?;
            let found = format!("sha256:{}", hex::encode(hash.finalize()));
            if size != expected.size || found != expected.digest {
                return Err(ImageError::Invalid(format!(
                    "blob {} is broken: {size} bytes with the digest {found}",
                    expected.digest
                )));
            }
            file.rewind().map_err(disk("read", Path::new(&blob.path)))?;
        }
        Ok(file)
    }
}

fn missing(path: &str) -> ImageError {
    ImageError::Invalid(format!("archive has no {path}"))
}

/// Puts the files of a tar under numbers into the workspace.
fn extract(
    reader: Box<dyn Read + Send>,
    workspace: &Workspace,
    reserve: u64,
) -> Result<HashMap<String, PathBuf>, ImageError> {
    let broken = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::StorageFull => ImageError::TooLarge("no space left on device".to_owned()),
        _ => ImageError::Invalid(format!("archive is broken: {error}")),
    };
    let mut archive = Archive::new(std::io::BufReader::with_capacity(128 << 10, reader));
    let mut files = HashMap::new();
    let mut links = Vec::new();
    let mut count = 0;
    while let Some(entry) = archive.next().map_err(broken)? {
        let name = normal(&String::from_utf8_lossy(&entry.path));
        count += 1;
        if count > FILES_MAX {
            return Err(ImageError::TooLarge(format!("archive has more than {FILES_MAX} files")));
        }
        match entry.kind {
            Kind::File => {
                let path = workspace.path().join(format!("file-{count}"));
                let mut file = linux::file::create_new(&path, 0o600).map_err(disk("create", &path))?;
                copy_bounded(&mut archive, &mut file, workspace.path(), reserve, broken)?;
                files.insert(name, path);
            }
            // Docker links a layer that two of its folders have in common.
            Kind::HardLink => links.push((name, normal(&String::from_utf8_lossy(&entry.link)))),
            Kind::SymbolicLink => {
                let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
                let target = Path::new(folder).join(std::ffi::OsStr::from_bytes(&entry.link));
                links.push((name, normal(&target.to_string_lossy())));
            }
            Kind::Directory | Kind::CharacterDevice | Kind::BlockDevice | Kind::Fifo | Kind::Other => {}
        }
    }
    for (name, target) in links {
        if let Some(path) = files.get(&target).cloned() {
            files.insert(name, path);
        }
    }
    Ok(files)
}

fn copy_bounded(
    from: &mut impl Read,
    to: &mut File,
    folder: &Path,
    reserve: u64,
    broken: impl Fn(std::io::Error) -> ImageError,
) -> Result<(), ImageError> {
    const STEP: u64 = 32 << 20;
    loop {
        let copied = std::io::copy(&mut from.by_ref().take(STEP), to).map_err(&broken)?;
        if copied < STEP {
            return to.flush().map_err(&broken);
        }
        let free = rustix::fs::statvfs(folder).map_err(disk("look at", folder))?;
        if free.f_bavail.saturating_mul(free.f_frsize) < reserve {
            return Err(ImageError::TooLarge("no space left on device: archive does not fit".to_owned()));
        }
    }
}

/// `./a/../b` is `b`.
fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
