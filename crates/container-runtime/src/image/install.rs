//! From the blobs of an image, wherever they come from, to unpacked layers in the store.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use rustix::fs::{Gid, Mode, Uid, XattrFlags};

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
    let mut tasks: FuturesUnordered<_> = (0..configuration.diff_ids.len())
        .map(|number| layer(inner, workspace, &places, &configuration.diff_ids[number], number, fetch))
        .collect();
    let mut waiting: Vec<Option<(PathBuf, Unpacked)>> = vec![None; configuration.diff_ids.len()];
    while let Some(result) = tasks.next().await {
        let (number, state) = result?;
        waiting[number] = state;
    }
    drop(tasks);
    let (inner, places) = (inner.clone(), places.clone());
    blocking(move || finish(&inner.store, &places, waiting)).await
}

/// One layer: nothing if it is in its place, else its folder, which waits for the layers below.
async fn layer(
    inner: &Arc<Inner>,
    workspace: &Arc<Workspace>,
    places: &Places,
    diff_id: &str,
    number: usize,
    fetch: &Fetch<'_>,
) -> Result<(usize, Option<(PathBuf, Unpacked)>), ImageError> {
    // Images that are pulled at the same time often have a layer in common: one of them gets it.
    let turn = inner.layer_turns.lock().entry(diff_id.to_owned()).or_default().clone();
    let guard = turn.lock().await;
    let result = async {
        if places.present(&inner.store, number).is_some() {
            return Ok((number, None));
        }
        let blob = fetch(number).await?;
        let target = workspace.path().join(format!("layer-{number}"));
        let (task_inner, key, wanted) = (inner.clone(), places.by_itself[number].clone(), diff_id.to_owned());
        let permit = inner.unpacks.acquire().await;
        let state = blocking(move || {
            let files = target.join("fs");
            std::fs::create_dir_all(&files).map_err(disk("create", &files))?;
            let unpacked = layer::unpack(blob, &files, &wanted, &task_inner.tuning.layers)?;
            if !unpacked.implicit.is_empty() && number > 0 {
                return Ok(Some((target, unpacked)));
            }
            task_inner.store.install_layer(&key, &target, &unpacked)?;
            Ok(None)
        })
        .await
        .map_err(|error: ImageError| error.within(format!("failed to extract layer {diff_id}")))?;
        drop(permit);
        Ok((number, state))
    }
    .await;
    drop(guard);
    let mut turns = inner.layer_turns.lock();
    if turns.get(diff_id).is_some_and(|turn| Arc::strong_count(turn) <= 2) {
        turns.remove(diff_id);
    }
    result
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
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ImageError::Silent("stopped".to_owned())),
    }
}
