//! Pulls an image: finds it at a registry or one of its mirrors, downloads what is missing, puts it in the store.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use reqwest::Method;
use reqwest::header::HeaderMap;

use super::download::{Progress, download};
use super::error::{ImageError, disk};
use super::install::{blocking, install};
use super::manifest::{
    Configuration, DOCKER_LIST, DOCKER_MANIFEST, DOCUMENT_BYTES_MAX, Descriptor, Manifest, OCI_INDEX, OCI_MANIFEST,
    digest_of,
};
use super::platform::Platform;
use super::reference::{Reference, Version, is_digest};
use super::registry::{Client, RequestError};
use super::store::NewImage;
use super::work::Workspace;
use super::{Credentials, Inner};

const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// An index may point to an index.
const INDEX_DEPTH_MAX: usize = 3;

/// The id of the image, once all of it is here.
pub(crate) async fn pull(
    inner: &Arc<Inner>,
    reference: &Reference,
    credentials: Option<&Credentials>,
    progress: &Arc<Progress>,
) -> Result<String, ImageError> {
    let started = tokio::time::Instant::now();
    tracing::info!(image = %reference, "pulling image");
    let work = Pull { inner, reference, credentials, progress };
    let report = async {
        loop {
            tokio::time::sleep(LOG_INTERVAL).await;
            let now = progress.now();
            tracing::info!(image = %reference, bytes = now.bytes, total = now.bytes_total, layers = now.layers, "pulling image");
        }
    };
    let result = tokio::select! {
        result = work.run() => result,
        () = report => unreachable!("reports do not end"),
    };
    match result {
        Ok(id) => {
            tracing::info!(image = %reference, %id, bytes = progress.now().bytes, took = ?started.elapsed(), "pulled image");
            Ok(id)
        }
        Err(error) => {
            if matches!(error.cause(), ImageError::Invalid(_) | ImageError::TooLarge(_)) {
                // Whole layers of an image that lies are of no use to a second try.
                let inner = inner.clone();
                blocking(move || inner.store.sweep()).await?;
            }
            Err(error.within(format!("failed to pull and unpack image \"{reference}\"")))
        }
    }
}

struct Pull<'a> {
    inner: &'a Arc<Inner>,
    reference: &'a Reference,
    credentials: Option<&'a Credentials>,
    progress: &'a Arc<Progress>,
}

/// The manifest at the top, and whom to ask for the rest: first the one that had it.
struct Resolved {
    clients: Vec<Client>,
    digest: String,
    /// Not known yet if the registry only told the digest.
    bytes: Option<Vec<u8>>,
}

impl Pull<'_> {
    async fn run(&self) -> Result<String, ImageError> {
        let resolved = self
            .resolve()
            .await
            .map_err(|error| error.within(format!("failed to resolve reference \"{}\"", self.reference)))?;
        let repo_digest = self.reference.with_digest(&resolved.digest).to_string();
        let repo_tags = match &self.reference.version {
            Version::Tag(_) => vec![self.reference.to_string()],
            Version::Digest(_) => Vec::new(),
        };
        // The same digest again: nothing to download, at most a tag to move.
        if let Some(record) = self.inner.store.index().find(&repo_digest) {
            let (inner, id) = (self.inner.clone(), record.image.id.clone());
            return blocking(move || inner.store.tag(&id, &repo_tags, &[repo_digest]).map(|()| id)).await;
        }
        let (config, layers) = self.image_manifest(&resolved).await?;
        let config_bytes = self.document(&resolved.clients, "blobs", &config).await?;
        let configuration = Configuration::parse(&config_bytes)?;
        self.check(&configuration, &layers, &resolved.digest)?;
        self.progress.layers_total.store(layers.len() as u64, Ordering::Relaxed);
        let inner = self.inner.clone();
        let workspace = Arc::new(blocking(move || Workspace::create(inner.store.root())).await?);
        let fetch = |number: usize| {
            let (layers, resolved, workspace) = (&layers, &resolved, &workspace);
            async move {
                let file = self.layer(resolved, &layers[number], workspace, number).await?;
                self.progress.layers.fetch_add(1, Ordering::Relaxed);
                Ok(file)
            }
            .boxed()
        };
        let keys = install(self.inner, &workspace, &configuration, &fetch).await?;
        let inner = self.inner.clone();
        let image = blocking(move || {
            let pinned = false;
            let new = NewImage {
                config_bytes,
                configuration,
                layers: keys,
                repo_tags,
                repo_digests: vec![repo_digest],
                pinned,
            };
            let image = inner.store.commit(new)?;
            drop(workspace);
            Ok(image)
        })
        .await?;
        Ok(image.id.clone())
    }

    /// Asks the endpoints in their order. The most telling error is reported: a registry that says no, before one that does
    /// not have it, before one that cannot be reached.
    async fn resolve(&self) -> Result<Resolved, ImageError> {
        let mut clients = Vec::new();
        for endpoint in self.inner.config.registries.endpoints(self.reference, self.credentials) {
            clients.push(Client::new(endpoint, self.inner.tuning.silence_max)?);
        }
        let mut worst: Option<(u8, RequestError)> = None;
        for number in 0..clients.len() {
            match self.resolve_at(&clients[number]).await {
                Ok((digest, bytes)) => {
                    let first = clients.remove(number);
                    clients.insert(0, first);
                    return Ok(Resolved { clients, digest, bytes });
                }
                Err(error) => {
                    tracing::debug!(host = %clients[number].endpoint.host, ?error, "cannot pull image from this registry endpoint");
                    let weight = match &error {
                        RequestError::Unreachable(_) | RequestError::Silent(_) => 1,
                        RequestError::NotFound => 2,
                        RequestError::Refused(_) => 3,
                    };
                    if worst.as_ref().is_none_or(|(heaviest, _)| weight > *heaviest) {
                        worst = Some((weight, error));
                    }
                }
            }
        }
        let error = worst.map_or(RequestError::NotFound, |(_, error)| error);
        Err(error.into_error(&self.reference.to_string()))
    }

    async fn resolve_at(&self, client: &Client) -> Result<(String, Option<Vec<u8>>), RequestError> {
        let path = format!("/manifests/{}", self.reference.manifest());
        let told = match client.request(Method::HEAD, &path, &accept(), 0).await {
            Ok(response) => digest_header(response.headers()),
            // Some know no other question than GET.
            Err(RequestError::Refused(message)) if message.contains(": 405 ") => None,
            Err(error) => return Err(error),
        };
        match (&self.reference.version, told) {
            (Version::Digest(digest), _) => Ok((digest.clone(), None)),
            (Version::Tag(_), Some(digest)) => Ok((digest, None)),
            (Version::Tag(_), None) => {
                let response = client.request(Method::GET, &path, &accept(), 0).await?;
                let bytes = client.body(response, DOCUMENT_BYTES_MAX as usize).await?;
                Ok((digest_of(&bytes), Some(bytes)))
            }
        }
    }

    /// From an index down to the manifest for this machine.
    async fn image_manifest(&self, resolved: &Resolved) -> Result<(Descriptor, Vec<Descriptor>), ImageError> {
        let mut descriptor = Descriptor { digest: resolved.digest.clone(), ..Default::default() };
        let mut bytes = resolved.bytes.clone();
        for _ in 0..INDEX_DEPTH_MAX {
            let document = match bytes.take() {
                Some(bytes) => bytes,
                None => self.document(&resolved.clients, "manifests", &descriptor).await?,
            };
            descriptor = match Manifest::parse(&document)? {
                Manifest::Image { config, layers } => return Ok((config, layers)),
                Manifest::Index(manifests) => match Platform::of_this_machine().choose(&manifests) {
                    Some(chosen) => chosen.clone(),
                    None => return Err(no_match(&descriptor.digest)),
                },
            };
        }
        Err(ImageError::Invalid(format!("{}: indexes point to indexes", resolved.digest)))
    }

    fn check(&self, configuration: &Configuration, layers: &[Descriptor], digest: &str) -> Result<(), ImageError> {
        let config = &configuration.config;
        if !Platform::of_this_machine().runs(&config.os, &config.architecture) {
            return Err(no_match(digest));
        }
        if configuration.diff_ids.len() != layers.len() {
            return Err(ImageError::Invalid("mismatched image rootfs and manifest layers".to_owned()));
        }
        let largest = self.inner.tuning.layers.bytes_max;
        match layers.iter().find(|layer| layer.size > largest) {
            Some(layer) => Err(ImageError::TooLarge(format!(
                "layer {} has {} bytes, more than {largest}",
                layer.digest, layer.size
            ))),
            None => Ok(()),
        }
    }

    /// A small document, verified.
    async fn document(&self, clients: &[Client], kind: &str, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        let path = format!("/{kind}/{}", descriptor.digest);
        let mut first = None;
        for client in clients {
            let answer = async {
                let response = client.request(Method::GET, &path, &accept(), 0).await?;
                client.body(response, DOCUMENT_BYTES_MAX as usize).await
            };
            match answer.await {
                Ok(bytes) => return verified(bytes, descriptor),
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        let error = first.unwrap_or(RequestError::NotFound);
        Err(error.into_error(&descriptor.digest).within("failed to copy"))
    }

    async fn layer(
        &self,
        resolved: &Resolved,
        blob: &Descriptor,
        workspace: &Workspace,
        number: usize,
    ) -> Result<File, ImageError> {
        let _permit = self.inner.downloads.acquire().await;
        let root = self.inner.store.root();
        let free = rustix::fs::statvfs(root).map_err(disk("look at", root))?;
        if free.f_bavail.saturating_mul(free.f_frsize)
            < blob.size.saturating_add(self.inner.tuning.layers.disk_reserve_bytes)
        {
            return Err(ImageError::TooLarge(format!(
                "no space left on device: layer {} has {} bytes",
                blob.digest, blob.size
            )));
        }
        self.progress.bytes_total.fetch_add(blob.size, Ordering::Relaxed);
        let path = workspace.path().join(format!("blob-{number}"));
        let mut first = None;
        for client in &resolved.clients {
            match download(client, blob, &path, self.progress).await {
                Ok(file) => {
                    // Nobody needs its name: it is gone as soon as it is unpacked.
                    super::work::remove(&path)?;
                    return Ok(file);
                }
                Err(error) if matches!(error.cause(), ImageError::NotFound(_) | ImageError::Registry(_)) => {
                    first.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(first.unwrap_or_else(|| ImageError::NotFound(blob.digest.clone())))
    }
}

fn accept() -> String {
    [DOCKER_MANIFEST, DOCKER_LIST, OCI_MANIFEST, OCI_INDEX, "*/*"].join(", ")
}

fn digest_header(headers: &HeaderMap) -> Option<String> {
    headers.get("docker-content-digest")?.to_str().ok().filter(|digest| is_digest(digest)).map(str::to_owned)
}

pub(crate) fn verified(bytes: Vec<u8>, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
    let found = digest_of(&bytes);
    if descriptor.size > 0 && descriptor.size != bytes.len() as u64 {
        let (digest, size, got) = (&descriptor.digest, descriptor.size, bytes.len());
        return Err(ImageError::Invalid(format!("failed size validation: {digest} has {size} bytes, but {got} came")));
    }
    if found == descriptor.digest {
        Ok(bytes)
    } else {
        Err(ImageError::Invalid(format!("unexpected digest {found}, expected {}", descriptor.digest)))
    }
}

pub(crate) fn no_match(digest: &str) -> ImageError {
    ImageError::NotFound(format!("no match for platform in manifest {digest}"))
}
