//! Downloads one blob: picks up where a lost connection left it, and takes nothing but what was asked for.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::header::CONTENT_RANGE;
use reqwest::{Method, Response, StatusCode};
use sha2::{Digest as _, Sha256};

use super::error::{ImageError, disk};
use super::manifest::Descriptor;
use super::registry::{Client, RequestError};

/// In a row, without a single byte between them.
const FAILURES_MAX: u32 = 4;
/// In all, however much came between them.
const CONNECTIONS_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(300);

/// How far a pull is.
#[derive(Debug, Default)]
pub struct Progress {
    pub(crate) bytes: AtomicU64,
    pub(crate) bytes_total: AtomicU64,
    pub(crate) layers: AtomicU64,
    pub(crate) layers_total: AtomicU64,
}

/// Progress at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgressNow {
    pub bytes: u64,
    pub bytes_total: u64,
    pub layers: u64,
    pub layers_total: u64,
}

impl Progress {
    pub fn now(&self) -> ProgressNow {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        ProgressNow {
            bytes: load(&self.bytes),
            bytes_total: load(&self.bytes_total),
            layers: load(&self.layers),
            layers_total: load(&self.layers_total),
        }
    }
}

/// Puts the blob into a new file and gives it back, verified and at its beginning.
pub(crate) async fn download(
    client: &Client,
    blob: &Descriptor,
    path: &Path,
    progress: &Progress,
) -> Result<File, ImageError> {
    let result = Download { client, blob, progress, path, received: 0, hash: Sha256::new() }.run().await;
    if result.is_err() {
        super::work::remove(path)?;
    }
    result
}

struct Download<'a> {
    client: &'a Client,
    blob: &'a Descriptor,
    progress: &'a Progress,
    path: &'a Path,
    received: u64,
    hash: Sha256,
}

impl Download<'_> {
    async fn run(mut self) -> Result<File, ImageError> {
        let mut file = linux::file::create(self.path, 0o600).map_err(disk("create", self.path))?;
        let mut failures = 0;
        for _ in 0..CONNECTIONS_MAX {
            let before = self.received;
            let error = match self.connection(&mut file).await {
                Ok(()) => return self.verified(file),
                Err(Stop::Final(error)) => return Err(error),
                Err(Stop::Lost(error)) => error,
            };
            failures = if self.received > before { 0 } else { failures + 1 };
            // A registry that is silent from the start has had its time.
            let is_silent = matches!(error, RequestError::Silent(_)) && self.received == before;
            if is_silent || failures >= FAILURES_MAX {
                return Err(error.into_error(&self.blob.digest).within("failed to copy"));
            }
            tracing::info!(digest = %self.blob.digest, received = self.received, ?error, "connection lost while downloading layer; resuming");
            tokio::time::sleep(PAUSE * (failures + 1)).await;
        }
        Err(ImageError::Registry(format!(
            "failed to copy {}: {CONNECTIONS_MAX} connections were lost",
            self.blob.digest
        )))
    }

    async fn connection(&mut self, file: &mut File) -> Result<(), Stop> {
        if self.received == self.blob.size && self.received > 0 {
            return Ok(());
        }
        let path = format!("/blobs/{}", self.blob.digest);
        let mut response = match self.client.request(Method::GET, &path, "*/*", self.received).await {
            Ok(response) => response,
            Err(error @ (RequestError::Unreachable(_) | RequestError::Silent(_))) => return Err(Stop::Lost(error)),
            Err(error) => return Err(Stop::Final(error.into_error(&self.blob.digest).within("failed to copy"))),
        };
        self.begin(file, &response)?;
        loop {
            let chunk = match self.client.chunk(&mut response).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) if self.received < self.blob.size => {
                    return Err(Stop::Lost(RequestError::Unreachable("unexpected EOF".to_owned())));
                }
                Ok(None) => return Ok(()),
                Err(error) => return Err(Stop::Lost(error)),
            };
            if self.received + chunk.len() as u64 > self.blob.size {
                return Err(Stop::Final(self.lie("registry sends more than that")));
            }
            self.hash.update(&chunk);
            file.write_all(&chunk).map_err(|error| Stop::Final(self.write_error(error)))?;
            self.received += chunk.len() as u64;
            self.progress.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        }
    }

    /// A registry may answer with the rest or, if it does not know how, with all of it again.
    fn begin(&mut self, file: &mut File, response: &Response) -> Result<(), Stop> {
        let is_rest = response.status() == StatusCode::PARTIAL_CONTENT;
        if is_rest {
            let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
            if !range.starts_with(&format!("bytes {}-", self.received)) {
                return Err(Stop::Final(self.lie(&format!("registry answers with the range {range:?}"))));
            }
        } else if self.received > 0 {
            let mut restart = || -> std::io::Result<()> {
                file.set_len(0)?;
                std::io::Seek::rewind(file)
            };
            restart().map_err(|error| Stop::Final(self.write_error(error)))?;
            self.progress.bytes.fetch_sub(self.received, Ordering::Relaxed);
            self.received = 0;
            self.hash = Sha256::new();
        }
        match response.content_length() {
            Some(length) if length != self.blob.size - self.received => {
                Err(Stop::Final(self.lie(&format!("registry announces {} bytes", length + self.received))))
            }
            _ => Ok(()),
        }
    }

    fn verified(self, mut file: File) -> Result<File, ImageError> {
        let found = format!("sha256:{}", hex::encode(self.hash.clone().finalize()));
        if self.received != self.blob.size || found != self.blob.digest {
            return Err(self.lie(&format!("{} bytes with the digest {found} came", self.received)));
        }
        std::io::Seek::rewind(&mut file).map_err(disk("read", self.path))?;
        Ok(file)
    }

    fn lie(&self, what: &str) -> ImageError {
        let (digest, size) = (&self.blob.digest, self.blob.size);
        ImageError::Invalid(format!(
            "failed to copy: failed size or digest validation: {digest} has {size} bytes, but {what}"
        ))
    }

    fn write_error(&self, error: std::io::Error) -> ImageError {
        match error.kind() {
            std::io::ErrorKind::StorageFull => {
                ImageError::TooLarge(format!("failed to copy {}: no space left on device", self.blob.digest))
            }
            _ => disk("write", self.path)(error),
        }
    }
}

enum Stop {
    /// Asking again does not help.
    Final(ImageError),
    Lost(RequestError),
}
