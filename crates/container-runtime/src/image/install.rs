//! Unpacks the blobs of an image, wherever they come from, into layers in the store.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use rustix::fs::{Gid, Mode, Uid, XattrFlags};
use tokio_util::task::TaskTracker;

use super::Inner;
use super::error::{ImageError, disk};
use super::layer::{self, Unpacked};
use super::manifest::{Configuration, digest_of, digits};
use super::root::{Root, set_time};
use super::store::Store;
use super::work::Workspace;

/// Gives the verified blob of the layer with this number.
pub(crate) type Fetch<'a> = dyn Fn(usize) -> BoxFuture<'a, Result<File, ImageError>> + Send + Sync + 'a;

/// Where the layers of an image are or will be.
struct Places {
    /// Where a layer is that means the same above any other.
    by_itself: Vec<String>,
    /// Where a layer is that took after the ones below it.
    by_chain: Vec<String>,
}

impl Places {
    fn of(configuration: &Configuration) -> Places {
        let by_itself: Vec<String> = configuration.diff_ids.iter().map(|diff_id| digits(diff_id).to_owned()).collect();
        let mut by_chain = Vec::new();
        let mut chain = String::new();
        for key in &by_itself {
            chain = digits(&digest_of(format!("{chain} {key} implicit folders").as_bytes())).to_owned();
            by_chain.push(chain.clone());
        }
        Places { by_itself, by_chain }
    }

    fn present(&self, store: &Store, number: usize) -> Option<String> {
        [&self.by_itself[number], &self.by_chain[number]].into_iter().find(|key| store.has_layer(key)).cloned()
    }
}

/// Gets what is missing and unpacks it. Gives the layers' places, the lowest first.
pub(crate) async fn install(
    inner: &Arc<Inner>,
    workspace: &Arc<Workspace>,
    configuration: &Configuration,
    fetch: &Fetch<'_>,
) -> Result<Vec<String>, ImageError> {
    let places = Arc::new(Places::of(configuration));
    // First protected, then looked for: nobody can take away in between what was found.
    {
        let (inner, workspace, places) = (inner.clone(), workspace.clone(), places.clone());
        blocking(move || {
            let _lock = super::work::Lock::shared(inner.store.root())?;
            workspace.protect(places.by_itself.iter().chain(&places.by_chain).map(String::as_str))
        })
        .await?;
    }
    let unpacking = Unpacking { inner, workspace, places: &places, stop: Arc::default(), tracker: TaskTracker::new() };
    let mut tasks: FuturesUnordered<_> = (0..configuration.diff_ids.len())
        .map(|number| unpacking.layer(&configuration.diff_ids[number], number, fetch))
        .collect();
    let mut waiting: Vec<Option<(PathBuf, Unpacked)>> = vec![None; configuration.diff_ids.len()];
    let mut failed = None;
    while let Some(result) = tasks.next().await {
        match result {
            Ok((number, state)) => waiting[number] = state,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    drop(tasks);
    if let Some(error) = failed {
        // The others are still unpacking: nothing of theirs may appear after the caller has cleaned up.
        unpacking.stop.store(true, Ordering::Relaxed);
        unpacking.tracker.close();
        unpacking.tracker.wait().await;
        return Err(error);
    }
    let (inner, places) = (inner.clone(), places.clone());
    blocking(move || finish(&inner.store, &places, waiting)).await
}

/// The layers of one image that are being unpacked.
struct Unpacking<'a> {
    inner: &'a Arc<Inner>,
    workspace: &'a Arc<Workspace>,
    places: &'a Places,
    stop: Arc<AtomicBool>,
    tracker: TaskTracker,
}

impl Unpacking<'_> {
    /// One layer: nothing if it is in its place, else its folder, which waits for the layers below.
    async fn layer(
        &self,
        diff_id: &str,
        number: usize,
        fetch: &Fetch<'_>,
    ) -> Result<(usize, Option<(PathBuf, Unpacked)>), ImageError> {
        // Images that are pulled at the same time often have a layer in common: one of them gets it.
        let turn = self.inner.layer_turns.lock().entry(diff_id.to_owned()).or_default().clone();
        let guard = turn.lock().await;
        let result = match self.places.present(&self.inner.store, number) {
            Some(_) => Ok(None),
            None => match fetch(number).await {
                Ok(blob) => self.unpack(blob, diff_id, number).await,
                Err(error) => Err(error),
            },
        };
        drop(guard);
        let mut turns = self.inner.layer_turns.lock();
        if turns.get(diff_id).is_some_and(|turn| Arc::strong_count(turn) <= 2) {
            turns.remove(diff_id);
        }
        result.map(|state| (number, state))
    }

    async fn unpack(
        &self,
        blob: File,
        diff_id: &str,
        number: usize,
    ) -> Result<Option<(PathBuf, Unpacked)>, ImageError> {
        let _permit = self.inner.unpacks.acquire().await;
        let (inner, workspace, stop) = (self.inner.clone(), self.workspace.clone(), self.stop.clone());
        let (key, wanted) = (self.places.by_itself[number].clone(), diff_id.to_owned());
        let work = move || {
            let target = workspace.path().join(format!("layer-{number}"));
            let files = target.join("fs");
            std::fs::create_dir_all(&files).map_err(disk("create", &files))?;
            let unpacked = layer::unpack(blob, &files, &wanted, &inner.tuning.layers, &stop)?;
            if !unpacked.implicit.is_empty() && number > 0 {
                return Ok(Some((target, unpacked)));
            }
            inner.store.install_layer(&key, &target, &unpacked)?;
            Ok(None)
        };
        joined(self.tracker.spawn_blocking(work).await)
            .map_err(|error| error.within(format!("failed to extract layer {diff_id}")))
    }
}

/// Layers that left folders unsaid take after the layers below, from the bottom up.
fn finish(
    store: &Store,
    places: &Places,
    waiting: Vec<Option<(PathBuf, Unpacked)>>,
) -> Result<Vec<String>, ImageError> {
    let mut keys: Vec<String> = Vec::new();
    for (number, state) in waiting.into_iter().enumerate() {
        if let Some((folder, unpacked)) = state {
            let differs = take_after(store, &keys, &folder.join("fs"), &unpacked.implicit)?;
            let key = if differs { &places.by_chain[number] } else { &places.by_itself[number] };
            store.install_layer(key, &folder, &unpacked)?;
        }
        let key =
            places.present(store, number).ok_or_else(|| ImageError::NotFound(places.by_itself[number].clone()))?;
        keys.push(key);
    }
    Ok(keys)
}

/// Gives folders that the archive said nothing about the owner, mode and attributes that they have below, for overlayfs shows
/// those of the topmost layer. Tells whether any is not what a new folder is.
fn take_after(
    store: &Store,
    below: &[String],
    files: &std::path::Path,
    implicit: &[Vec<u8>],
) -> Result<bool, ImageError> {
    let open = |path: &std::path::Path| Root::open(path).map_err(disk("open", path));
    let root = open(files)?;
    let lower: Vec<Root> =
        below.iter().rev().map(|key| open(&store.layer_path(key).join("fs"))).collect::<Result<_, _>>()?;
    let mut differs = false;
    for path in implicit {
        let Some(folder) = root.folder(path) else { continue };
        let Some(model) = lower.iter().find_map(|root| root.folder(path)) else { continue };
        differs |= copy_attributes(&model, &folder).map_err(disk("copy attributes to", files))?;
    }
    Ok(differs)
}

fn copy_attributes(from: &OwnedFd, to: &OwnedFd) -> std::io::Result<bool> {
    let stat = rustix::fs::fstat(from)?;
    let mode = stat.st_mode & 0o7777;
    rustix::fs::fchown(to, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    rustix::fs::fchmod(to, Mode::from_raw_mode(mode))?;
    let mut names = vec![0u8; 64 << 10];
    let length = match rustix::fs::flistxattr(from, &mut names) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut has_attributes = false;
    for name in
        names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty() && !name.starts_with(b"trusted."))
    {
        let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name);
        let mut value = vec![0u8; 64 << 10];
        let length = rustix::fs::fgetxattr(from, name, &mut value)?;
        rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty())?;
        has_attributes = true;
    }
    set_time(to, ".".as_ref(), (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)))?;
    Ok(has_attributes || mode != 0o755 || stat.st_uid != 0 || stat.st_gid != 0)
}

/// Runs what waits for the disk where it may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    joined(tokio::task::spawn_blocking(work).await)
}

fn joined<T>(result: Result<Result<T, ImageError>, tokio::task::JoinError>) -> Result<T, ImageError> {
    match result {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ImageError::Silent("stopped".to_owned())),
    }
}
